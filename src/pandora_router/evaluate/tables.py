"""Results as Markdown tables, and the verdict: does the router beat the best static way of routing?

The envelope at an inspection cost is the best of mean-only, inspect-all and margin-N there, each on f and on
the mean, picked on the very test prompts: a bound that no static router could have known to meet.
Regret + cost is in reward; differences are in 1e-3 of reward with two standard errors behind them, over
prompts (clustered bootstrap) and over splits; a star only where both tests agree.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from pandora_router.evaluate.arms import DEFAULT, STATIC
from pandora_router.evaluate.results import Key, Results

OVERALL = (
    "total",
    "regret",
    "inspection_cost",
    "queries",
    "inspected",
    "accuracy",
    "fee",
    "gain",
    "fee_saving",
)


@dataclass(frozen=True)
class Gap:
    """How far the router is above (+) the best static arm at one inspection cost."""

    cost: float
    static: str
    mean: float
    error: float
    split_error: float
    star: bool

    @property
    def behind(self) -> bool:
        """Worse than the envelope by more than one standard error, the larger of the two."""
        return self.mean > np.fmax(self.error, self.split_error)

    @property
    def ahead(self) -> bool:
        """Better than the envelope, with a star."""
        return self.star and self.mean < 0.0


@lru_cache(maxsize=256)
def gaps(results: Results, k: int, arm: str = DEFAULT) -> tuple[Gap, ...]:
    """The distance of one arm to the envelope at every cost."""
    statics = [name for name in STATIC if name in results.arms and name != arm]
    chosen = [_best(results, k, cost, statics) for cost in results.costs]
    pairs = [((k, c, arm), (k, c, s)) for c, s in zip(results.costs, chosen, strict=True)]
    found = results.compare(pairs)
    numbers = zip(results.costs, chosen, found.mean, found.error, found.split_error, found.star, strict=True)
    return tuple(Gap(c, s, float(m), float(e), float(p), bool(x)) for c, s, m, e, p, x in numbers)


def totals(results: Results, k: int) -> str:
    """Regret + cost of every arm at every cost; a star where it differs from the router's."""
    others = [arm for arm in results.arms if arm != DEFAULT]
    pairs: list[tuple[Key, Key]] = [((k, c, a), (k, c, DEFAULT)) for a in others for c in results.costs]
    star = dict(zip([pair[0] for pair in pairs], results.compare(pairs).star, strict=True))
    lines = ["| arm | " + " | ".join(f"{c:g}" for c in results.costs) + " |", _rule(len(results.costs))]
    for arm in results.arms:
        keys = [(k, c, arm) for c in results.costs]
        cells = [f"{results.mean('total', key):.4f}{'*' if star.get(key) else ''}" for key in keys]
        lines.append(f"| {_bold(arm)} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def overall(results: Results, k: int) -> str:
    """Every metric of every arm, averaged over the costs of the sweep."""
    names = [name.replace("_", " ") for name in OVERALL]
    lines = ["| arm | " + " | ".join(names) + " | total s.e. |", _rule(len(OVERALL) + 1)]
    for arm in results.arms:
        keys = [(k, c, arm) for c in results.costs]
        cells = [f"{np.mean([results.mean(m, key) for key in keys]):.4f}" for m in OVERALL]
        error = np.mean([results.mean("total_error", key) for key in keys])
        lines.append(f"| {_bold(arm)} | " + " | ".join(cells) + f" | {error:.4f} |")
    return "\n".join(lines)


def envelope(results: Results, k: int, arms: tuple[str, ...]) -> str:
    """1e-3 above the envelope for some arms at every cost, and averaged over costs."""
    lines = ["| 1e-3 above the envelope | " + " | ".join(f"{c:g}" for c in results.costs) + " | mean |"]
    lines.append(_rule(len(results.costs) + 1))
    for arm in arms:
        if arm not in results.arms:
            continue
        found = gaps(results, k, arm)
        cells = [
            f"{1e3 * g.mean:+.1f} ({1e3 * g.error:.1f}; {1e3 * g.split_error:.1f}){_mark(g)}" for g in found
        ]
        average = 1e3 * np.mean([g.mean for g in found])
        lines.append(f"| {_bold(arm)} | " + " | ".join(cells) + f" | {average:+.2f} |")
    statics = [g.static for g in gaps(results, k)]
    return "\n".join([*lines, "| best static arm | " + " | ".join(statics) + " | |"])


def verdict(results: Results, k: int) -> str:
    """One plain sentence or two on where the router beats or misses the envelope."""
    found = gaps(results, k)
    behind, ahead = [g for g in found if g.behind], [g for g in found if g.ahead]
    parts = []
    if ahead:
        parts.append(f"beats the envelope with a star at c = {_list(ahead)}")
    if behind:
        parts.append(f"**misses** it by more than one standard error at c = {_list(behind)}")
    if not parts:
        parts.append(
            "is within one standard error of the envelope, or below it without a star, at every cost"
        )
    average = 1e3 * float(np.mean([g.mean for g in found]))
    return (
        f"The default router {' and '.join(parts)}; averaged over costs it is {abs(average):.1f}e-3 "
        f"{'above' if average > 0 else 'below'} it ({len(results.seeds)} splits)."
    )


def _best(results: Results, k: int, cost: float, arms: list[str]) -> str:
    return min(arms, key=lambda arm: results.mean("total", (k, cost, arm)))


def _list(found: list[Gap]) -> str:
    return ", ".join(f"{g.cost:g} ({1e3 * g.mean:+.1f}e-3)" for g in found)


def _mark(gap: Gap) -> str:
    return "*" if gap.star else ""


def _bold(arm: str) -> str:
    return f"**{arm}**" if arm == DEFAULT else arm


def _rule(columns: int) -> str:
    return "|---|" + "---|" * columns
