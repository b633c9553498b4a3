"""A finished evaluation as a sentence, a small table, and a whole Markdown page.

Summary of an evaluation: one sentence and one small table, in accuracy and money.

Everything is averaged over the inspection costs of the experiment. Money is in the unit of the fees of the
routing table, per 1,000 prompts; net reward is score - fee_weight x fee - inspection cost, per prompt.

A Markdown page about finished experiments: what routing earned, and the tables behind it.

`page` turns the same text into one HTML file. `python -m paper` adds comparisons with the paper.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pandora_router.calibrate.ways import ALWAYS, BEST_SINGLE, F_ONLY, NEVER, ROUTER
from pandora_router.evaluate import reliability
from pandora_router.evaluate.arms import DEFAULT, PAPER
from pandora_router.evaluate.experiments import Experiment, cheap_name
from pandora_router.evaluate.results import Results
from pandora_router.report import paired, tables
from pandora_router.text import money

SHOWN = (ROUTER, NEVER, F_ONLY, BEST_SINGLE, ALWAYS)
HEAD = ("way to route", "accuracy", "fees / 1,000", "inspections / 1,000", "net reward", "behind the router")


@dataclass(frozen=True)
class Earned:
    """What one way to route earns.

    fees, inspections: money per 1,000 prompts. net: reward per prompt after all costs.
    behind: net reward of the router minus `net`; error: its standard error.
    """

    way: str
    accuracy: float
    fees: float
    inspections: float
    net: float
    behind: float
    error: float


def earned(results: Results) -> tuple[Earned, ...]:
    """The rows of the table: the ways of `SHOWN` that were run, the router first."""
    k = results.neighbours[0]
    ways = [way for way in SHOWN if paired.has(results, k, way)]
    others = tuple(((k, way), (k, ROUTER)) for way in ways if way != ROUTER)
    gaps = paired.averages(results, others) if others else None
    weight = _fee_weight(results)
    rows = []
    for way in ways:
        at = ways.index(way) - 1
        mean = {name: _mean(results, k, way, name) for name in ("accuracy", "fee", "inspection_cost")}
        rows.append(
            Earned(
                way,
                accuracy=mean["accuracy"],
                fees=1e3 * mean["fee"] / weight,
                inspections=1e3 * mean["inspection_cost"] / weight,
                net=mean["accuracy"] - mean["fee"] - mean["inspection_cost"],
                behind=0.0 if way == ROUTER or gaps is None else float(gaps.mean[at]),
                error=0.0 if way == ROUTER or gaps is None else float(gaps.doubt[at]),
            )
        )
    return tuple(rows)


def sentence(results: Results) -> str:
    """One or two sentences that compare the router with the best of the other ways."""
    router, *others = earned(results)
    spent = f"{_amount(router.fees + router.inspections)} per 1,000 prompts"
    words = f"The router is right on {router.accuracy:.3f} of the prompts at {spent}"
    if not others:
        return words + "."
    best = max(others, key=lambda way: way.net)
    sure = "" if abs(best.behind) > 2.0 * best.error else ", within two standard errors"
    lead = "more" if best.behind >= 0.0 else "less"
    return (
        f"{words}; {best.way}: {best.accuracy:.3f} at {_amount(best.fees + best.inspections)}. "
        f"Net of all costs the router earns {abs(best.behind):.4f} {lead} per prompt "
        f"(s.e. {best.error:.4f}{sure})."
    )


def cells(results: Results) -> list[list[str]]:
    """The rows of the table as formatted texts, in the columns of `HEAD`."""
    return [
        [
            way.way,
            f"{way.accuracy:.3f}",
            _amount(way.fees),
            _amount(way.inspections),
            f"{way.net:z.4f}",
            "" if way.way == ROUTER else f"{way.behind:.4f} ({way.error:.4f})",
        ]
        for way in earned(results)
    ]


def grid(results: Results) -> str:
    """The table in Markdown."""
    return tables.grid(HEAD, cells(results))


def _mean(results: Results, k: int, way: str, metric: str) -> float:
    return float(np.mean([results.mean(metric, (k, cost, way)) for cost in results.costs]))


def _fee_weight(results: Results) -> float:
    """Reward per unit of money, from the routing table; 1 if it is unknown or 0."""
    checked = reliability.of(results)
    if checked is None:
        return 1.0
    return float(next(iter(checked.facts.values())).get("fee_weight", 1.0)) or 1.0


def _amount(number: float) -> str:
    """Fees or costs in the unit of the data, without an exponent."""
    return money(number, "", 4)


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
