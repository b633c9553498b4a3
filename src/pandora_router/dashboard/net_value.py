"""Net value: score times what a right answer is worth, minus all money; of the router and of other ways.

What another way would have earned is predicted: for each routed request the router stored what it expected of
every specialist before it looked, so the means over requests are those of always asking one specialist. The
scores of feedback say how far such predictions can be trusted (page Calibration). The mix of two asks one of
two specialists at random, in the proportion that costs the same money as the router: the best of all such
mixes lies on the upper convex hull of the specialists' (money, score).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

from pandora_router.dashboard.layout import Entry, PageTable, amount, number, per_1000


@dataclass(frozen=True)
class CostAndScore:
    """A way to answer: its mean score, and its money per request in dollars.

    error: the standard error of the mean score, of a prediction by the decisions that it was read from.
    """

    name: str
    score: float
    cost: float
    predicted: bool = True
    error: float = 0.0

    def net(self, right_answer: float) -> float:
        """Dollars per request: score times the worth of a right answer, minus money."""
        return self.score * right_answer - self.cost


def score_of(detail: Mapping[str, Any], specialist: str) -> float | None:
    """The score that was expected of a specialist when the decision ended; None if it is not known.

    A decision knows worths, which have the weighted fee taken off; a score is a worth with that put back.
    """
    worth = ((detail.get("decision") or {}).get("worth") or {}).get(specialist)
    deducted = ((detail.get("value") or {}).get("deducted") or {}).get(specialist)
    return None if worth is None or deducted is None else float(worth + deducted)


def predicted(details: Iterable[Mapping[str, Any]]) -> tuple[float | None, list[CostAndScore]]:
    """The mean score that was expected of the chosen specialists, and each specialist alone.

    Both over stored decisions, with what was known before any look for the specialists alone. A specialist
    that was a candidate in fewer than half of them is left out: its requests may have been special.
    """
    chosen: list[float] = []
    scores: dict[str, list[float]] = {}
    fees: dict[str, list[float]] = {}
    for detail in details:
        made, value = detail.get("decision") or {}, detail.get("value") or {}
        score = score_of(detail, made.get("specialist", ""))
        if score is None:
            continue
        chosen.append(score)
        for name, line in (made.get("specialists") or {}).items():
            if line["mean"] is not None and name in value["deducted"]:
                scores.setdefault(name, []).append(line["mean"] + value["deducted"][name])
                fees.setdefault(name, []).append(value["fee"][name])
    singles = [
        CostAndScore(f"always {name}", fmean(known), fmean(fees[name]), error=_error(known))
        for name, known in scores.items()
        if 2 * len(known) >= len(chosen)
    ]
    return (fmean(chosen) if chosen else None), singles


def _error(scores: Sequence[float]) -> float:
    """The standard error of a mean; infinite of a single number."""
    return stdev(scores) / math.sqrt(len(scores)) if len(scores) > 1 else math.inf


def mix_of_two(singles: Sequence[CostAndScore], cost: float) -> CostAndScore | None:
    """The highest mean score of a random mix of two specialists that costs `cost` per request.

    If all cost more than that, the cheapest alone; if a mix cannot use all the money, it keeps the rest.
    """
    best = min(singles, key=lambda way: (way.cost, -way.score), default=None)
    for low in singles:
        for high in singles:
            if not low.cost <= cost or (low is not high and not low.cost < high.cost):
                continue
            part = 0.0 if low is high else min(1.0, (cost - low.cost) / (high.cost - low.cost))
            score = low.score + part * (high.score - low.score)
            if best is None or best.cost > cost or score > best.score:
                names = (low.name.removeprefix("always "), high.name.removeprefix("always "))
                mixed = f"{1 - part:.0%} {names[0]}, {part:.0%} {names[1]}" if 0.0 < part < 1.0 else ""
                alone = high.name if part == 1.0 else low.name
                money = low.cost + part * (high.cost - low.cost)
                error = (1.0 - part) * low.error + part * high.error  # at most: as if both erred together
                best = CostAndScore(mixed or alone, score, money, error=error)
    return best


def ways_table(router: CostAndScore, singles: Sequence[CostAndScore], right_answer: float) -> PageTable:
    """The router beside every specialist alone and the mix of two, per 1,000 requests."""
    mix = mix_of_two(singles, router.cost)
    listed = [router, *sorted(singles, key=lambda way: -way.net(right_answer))]
    if mix is not None:
        listed.append(CostAndScore(f"mix of two: {mix.name}", mix.score, mix.cost))
    ours = router.net(right_answer)
    rows = [
        [
            Entry(way.name),
            Entry("predicted" if way.predicted else "from feedback"),
            number(way.score),
            per_1000(way.cost),
            per_1000(way.net(right_answer)),
            Entry(None, "–") if way is router else per_1000(ours - way.net(right_answer)),
        ]
        for way in listed
    ]
    columns = ("way to answer", "its score is", "score", "money", "net value", "the router is ahead by")
    title = f"Net value per 1,000 requests, with a right answer worth {amount(right_answer)}"
    return PageTable("ways", title, columns, rows, words=2)
