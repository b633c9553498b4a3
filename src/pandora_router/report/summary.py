"""A finished evaluation as a sentence, a small table, and a whole Markdown page.

Summary of an evaluation: one sentence and one small table, in accuracy and money.

Everything is averaged over the inspection costs of the experiment. Money is in the unit of the fees of the
routing table, per 1,000 prompts; net is score x worth of a right answer (1 / fee_weight) - money.

A Markdown page about finished experiments: what routing earned, and the tables behind it.

`page` turns the same text into one HTML file. `python -m paper` adds comparisons with the paper.
"""

from __future__ import annotations

import bisect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pandora_router.calibrate.ways import ALWAYS, BEST_SINGLE, F_ONLY, NEVER, ORACLE, ROUTER
from pandora_router.evaluate import flips, reliability
from pandora_router.evaluate.arms import DEFAULT, PAPER, SINGLE
from pandora_router.evaluate.experiments import Experiment, cheap_name
from pandora_router.evaluate.results import Results
from pandora_router.report import paired, tables
from pandora_router.router.curve import hull
from pandora_router.text import money

SHOWN = (ROUTER, NEVER, F_ONLY, BEST_SINGLE, ALWAYS, ORACLE)
WORDS = {
    ROUTER: "the router",
    NEVER: "buying no estimates",
    ALWAYS: "buying all estimates",
    BEST_SINGLE: "the best single specialist",
    ORACLE: "best in hindsight",
}
"""The names of ways of routing in tables for users, as `pandora fit` prints them."""
MIX = "mix of two at that cost"
MANY = 6
"""Specialists above which only those on the frontier of cost and score are shown."""
HEAD = ("way of routing", "right", "per 1,000", "estimates", "net per 1,000", "behind the router (se)")


@dataclass(frozen=True)
class Earned:
    """What one way of routing earns; money in the currency of the fees, per 1,000 prompts.

    accuracy: mean score. fees, inspections: what was paid. net: score x worth of a right answer, minus money.
    behind: net of the router minus `net`; error: its standard error.
    """

    way: str
    accuracy: float
    fees: float
    inspections: float
    net: float
    behind: float
    error: float

    @property
    def money(self) -> float:
        """Everything paid per 1,000 prompts."""
        return self.fees + self.inspections


def earned(results: Results) -> tuple[Earned, ...]:
    """The rows of the table: the router, ways without a search, single specialists, a mix of two, hindsight.

    Where every specialist was run, they stand in place of the best single one.
    """
    k = results.neighbours[0]
    singles = _singles(results, k)
    ways = [way for way in SHOWN if paired.has(results, k, way) and not (singles and way == BEST_SINGLE)]
    at = len(ways) - (ways[-1] == ORACLE)
    rows = [_row(results, k, way, _named(way), ((way, 1.0),)) for way in [*ways[:at], *singles]]
    if len(singles) > 1:
        rows.append(_row(results, k, MIX, MIX, _mixture(results, k, singles)))
    return (*rows, *(_row(results, k, way, _named(way), ((way, 1.0),)) for way in ways[at:]))


def _row(results: Results, k: int, way: str, name: str, parts: tuple[tuple[str, float], ...]) -> Earned:
    """What a random mixture of arms earns, each with its share of the prompts, beside the router."""
    scale = 1e3 / _fee_weight(results)
    score, fees, looks = (
        sum(share * _mean(results, k, arm, metric) for arm, share in parts)
        for metric in ("accuracy", "fee", "inspection_cost")
    )
    gap = (
        None
        if way == ROUTER
        else paired.over_mixture(results, (k, ROUTER), tuple(((k, arm), share) for arm, share in parts))
    )
    return Earned(
        name,
        accuracy=score,
        fees=scale * fees,
        inspections=scale * looks,
        net=scale * (score - fees - looks),
        behind=0.0 if gap is None else -scale * float(gap.mean[0]),
        error=0.0 if gap is None else scale * float(gap.doubt[0]),
    )


def _singles(results: Results, k: int) -> list[str]:
    """The arms of single specialists that are shown: all, or the frontier where there are many."""
    arms = [arm for arm in results.arms if arm.startswith(SINGLE) and paired.has(results, k, arm)]
    if len(arms) <= MANY:
        return arms
    corners = hull([_point(results, k, arm) for arm in arms])
    return [arm for arm in arms if _point(results, k, arm) in corners]


def _point(results: Results, k: int, arm: str) -> tuple[float, float]:
    return _mean(results, k, arm, "fee"), _mean(results, k, arm, "accuracy")


def _named(way: str) -> str:
    return f"always {way.removeprefix(SINGLE)}" if way.startswith(SINGLE) else WORDS.get(way, way)


def _mixture(results: Results, k: int, singles: Sequence[str]) -> tuple[tuple[str, float], ...]:
    """The random mix of two specialists that scores best at what the router costs."""
    by_point = {_point(results, k, arm): arm for arm in reversed(singles)}
    corners = hull(list(by_point))
    cost = _mean(results, k, ROUTER, "fee") + _mean(results, k, ROUTER, "inspection_cost")
    after = bisect.bisect_left([fee for fee, _ in corners], cost)
    if after in (0, len(corners)):  # cheaper than the cheapest, or dearer than the best: that one itself
        return ((by_point[corners[min(after, len(corners) - 1)]], 1.0),)
    low, high = corners[after - 1], corners[after]
    share = (cost - low[0]) / (high[0] - low[0])
    return ((by_point[low], 1.0 - share), (by_point[high], share))


def sentence(results: Results, sign: str = "") -> str:
    """Sentences that compare the router with the best static way: a single specialist, a mix, no search.

    sign: the currency. Buying every estimate and the best in hindsight are no static ways.
    """
    router, *others = earned(results)
    words = f"{_short(router, sign)}, net {_amount(router.net, sign)}"
    static = [way for way in others if way.way not in (WORDS[ALWAYS], WORDS[ORACLE])]
    if not static:
        return f"The router: {words}."
    best = max(static, key=lambda way: way.net)
    sure = "" if abs(best.behind) > 2.0 * best.error else ", within two standard errors"
    lead = "more" if best.behind >= 0.0 else "less"
    return (
        f"The router: {words}. The best static way, {best.way}: {_short(best, sign)}. After all costs the "
        f"router earns {_amount(abs(best.behind), sign)} {lead} per 1,000 prompts "
        f"(s.e. {_amount(best.error, sign)}{sure})."
    )


def _short(way: Earned, sign: str) -> str:
    return f"{way.accuracy:.3f} right at {_amount(way.money, sign)} per 1,000 prompts"


def cells(results: Results, sign: str = "") -> list[list[str]]:
    """The rows of the table as formatted texts, in the columns of `HEAD`."""
    return [
        [
            way.way,
            f"{way.accuracy:.3f}",
            _amount(way.money, sign),
            _amount(way.inspections, sign),
            _amount(way.net, sign),
            "" if row == 0 else f"{_amount(way.behind, sign)} ({_amount(way.error, sign)})",
        ]
        for row, way in enumerate(earned(results))
    ]


def grid(results: Results, sign: str = "") -> str:
    """The table in Markdown."""
    return tables.grid(HEAD, cells(results, sign))


def reworded(results: Results) -> str:
    """Sentences on the same questions in other words; empty where the experiment has no paraphrases."""
    found = flips.of(results, results.neighbours[0])
    return " ".join(
        f"Of {way.pairs:.0f} prompts a split with a paraphrase, {_named(way.way)} gives "
        f"{100 * way.flips.mean:.1f} % ({100 * way.flips.doubt:.1f}) to another specialist in other words, "
        f"which costs {1e3 * way.cost.mean:+.1f} ({1e3 * way.cost.doubt:.1f}) thousandths of reward a prompt."
        for way in found
    )


def _mean(results: Results, k: int, way: str, metric: str) -> float:
    return float(np.mean([results.mean(metric, (k, cost, way)) for cost in results.costs]))


def _fee_weight(results: Results) -> float:
    """Reward per unit of money, from the routing table; 1 if it is unknown or 0."""
    checked = reliability.of(results)
    if checked is None:
        return 1.0
    return float(next(iter(checked.facts.values())).get("fee_weight", 1.0)) or 1.0


def _amount(number: float, sign: str) -> str:
    """An amount of money without an exponent; `sign` is empty where fees are in the unit of the data."""
    return money(number, sign, 4)


COMPARED = (DEFAULT, PAPER, "rollout", "auto")
PAID = (DEFAULT, PAPER, "margin", "never inspect", "always inspect, raw g", "f-only")
NOTES = """Every number is measured on test prompts of fresh splits: estimators were fitted on train prompts,
the signal model and the policy on calibration prompts, as `pandora fit` does. In parentheses: standard error
over prompts (clustered bootstrap); over splits. A star: both tests reject "no difference" at 5 %. *Static
ways*: those that do not search (never inspect, f-only, best single, always inspect, margin)."""


def markdown(
    measured: Sequence[Results],
    figures: Mapping[str, str] | None = None,
    settings: Sequence[Experiment] = (),
) -> str:
    """The page on these results; `figures` are image paths relative to it, by name of experiment."""
    by_name = {setting.name: setting for setting in settings}
    parts = ["# What routing earns", ""]
    for results in measured:
        parts += [f"**{results.title}.** {sentence(results)}", "", grid(results), ""]
    parts += [NOTES, ""]
    for results in measured:
        parts += [section(results, by_name.get(results.name), figures or {}), ""]
    return "\n".join(parts)


def section(results: Results, setting: Experiment | None, images: Mapping[str, str]) -> str:
    """The tables of one experiment, the longer ones collapsed."""
    kind = "Negative control. " if results.control else ""
    checked, first = reliability.of(results), results.neighbours[0]
    titled = [f"{kind}{results.title}", ""] if results.title not in ("", results.name) or kind else []
    lines = [f"## {results.name}", "", *titled]
    if checked is not None and (left := sum(fact["left_out"] for fact in checked.facts.values())):
        kept = results.mean("prompts", (first, results.costs[0], DEFAULT)) * len(results.seeds)
        lines += [f"{left} of {left + kept:.0f} test prompts lack a score and could not be judged.", ""]
    if said := reworded(results):
        lines += [said, ""]
    for ending, alt in (("", results.title), ("-more", "Outside options; USD"), ("-sweeps", "Variations")):
        if results.name + ending in images:
            lines += [f"![{alt}]({images[results.name + ending]})", ""]
    if envelope := tables.envelope(results, first, COMPARED):
        verdict = f"{tables.verdict(results, first)}\n\n{envelope}"
        lines += folded("Against the best way that does not search, at every cost", verdict)
    lines += folded("Against each way that does not search", tables.each_static(results, first))
    lines += folded(
        "Regret + cost at every cost (bold: the lowest; a star: differs from the router)",
        tables.totals(results, first),
    )
    lines += folded("Every metric, averaged over costs", tables.overall(results, first))
    if checked is not None:
        lines += folded(
            "Value estimators: MSE against rewards", tables.estimators(checked, results.neighbours[:2])
        )
    if any(arm.startswith("signal: ") for arm in results.arms):
        lines += folded("Signal models, with coverage", tables.signals(results, first, checked))
    lines += folded("Outside option, obligation, payoffs, depth", tables.choices(results, first))
    for group in tables.GROUPS:
        if any(arm.startswith(f"{group}: ") for arm in results.arms):
            lines += folded(f"Sweep: {tables.GROUPS[group][1]}", tables.sweep(results, first, group))
    if len(results.neighbours) > 1:
        lines += folded("Sweep: neighbours behind f", tables.neighbours(results))
        for k in results.neighbours[1:2]:
            lines += folded(f"The router with {cheap_name(k)}", tables.envelope(results, k, COMPARED))
    if setting is not None and setting.usd is not None and checked is not None:
        lines += folded("USD", tables.money(results, first, checked, setting.usd, PAID))
    return "\n".join(lines)


def folded(title: str, table: str) -> list[str]:
    """A table inside a collapsible block; empty if the table is empty."""
    if not table:
        return []
    return [f"<details><summary>{title}</summary>", "", table, "", "</details>", ""]
