"""A Markdown page about finished experiments: what routing earned, and the tables behind it.

`page` makes one HTML file of the same words. What a page says of the paper is made by `python -m paper`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pandora_router.evaluate import checks
from pandora_router.evaluate.arms import DEFAULT, PAPER
from pandora_router.evaluate.experiments import Experiment, cheap_name
from pandora_router.evaluate.results import Results
from pandora_router.report import summary, tables

COMPARED = (DEFAULT, PAPER, "rollout", "relative", "auto")
PAID = (DEFAULT, PAPER, "margin", "never inspect", "always inspect, raw g", "f-only")
NOTES = """Every number is measured on test prompts of fresh splits: estimators were fitted on train prompts,
the signal model and the policy on calibration prompts, as `pandora fit` does. In parentheses: standard error
over prompts (clustered bootstrap); over splits. A star: both tests reject "no difference" at 5 %. *Static
ways*: those that do not search (never inspect, f-only, best single, always inspect, margin)."""


def markdown(
    found: Sequence[Results],
    figures: Mapping[str, str] | None = None,
    settings: Sequence[Experiment] = (),
) -> str:
    """The page about these results; `figures` are image paths relative to it, by name of experiment."""
    known = {one.name: one for one in settings}
    parts = ["# What routing earns", ""]
    for one in found:
        parts += [f"**{one.title}.** {summary.sentence(one)}", "", summary.grid(one), ""]
    parts += [NOTES, ""]
    for one in found:
        parts += [section(one, known.get(one.name), figures or {}), ""]
    return "\n".join(parts)


def section(one: Results, setting: Experiment | None, images: Mapping[str, str]) -> str:
    """The tables of one experiment, the longer ones folded."""
    kind = "Negative control. " if one.control else ""
    told, first = checks.of(one), one.neighbours[0]
    lines = [f"## {one.name}", "", f"{one.title}", "", kind + tables.verdict(one, first), ""]
    if told is not None and (left := sum(fact["left_out"] for fact in told.facts.values())):
        kept = one.mean("prompts", (first, one.costs[0], DEFAULT)) * len(one.seeds)
        lines += [f"{left} of {left + kept:.0f} test prompts lack a score and could not be judged.", ""]
    for ending, alt in (("", one.title), ("-more", "Outside options; USD"), ("-sweeps", "Variations")):
        if one.name + ending in images:
            lines += [f"![{alt}]({images[one.name + ending]})", ""]
    lines += [tables.envelope(one, first, COMPARED), ""]
    lines += folded("Against each static arm by itself", tables.each_static(one, first))
    lines += folded(
        "Regret + cost at every cost (bold: the lowest; a star: differs from the router)",
        tables.totals(one, first),
    )
    lines += folded(
        "Every metric, averaged over costs; our accounting and the paper's", tables.overall(one, first)
    )
    if told is not None:
        lines += folded("Value estimators: MSE against rewards", tables.estimators(told, one.neighbours[:2]))
    if any(arm.startswith("signal: ") for arm in one.arms):
        lines += folded("Signal models, with coverage", tables.signals(one, first, told))
    lines += folded("Outside option, obligation, payoffs, depth", tables.choices(one, first))
    for group in tables.GROUPS:
        if any(arm.startswith(f"{group}: ") for arm in one.arms):
            lines += folded(f"Sweep: {tables.GROUPS[group][1]}", tables.sweep(one, first, group))
    if len(one.neighbours) > 1:
        lines += folded("Sweep: neighbours behind f", tables.neighbours(one))
        for k in one.neighbours[1:2]:
            lines += folded(f"The router with {cheap_name(k)}", tables.envelope(one, k, COMPARED))
    if setting is not None and setting.usd is not None and told is not None:
        lines += folded("USD", tables.money(one, first, told, setting.usd, PAID))
    return "\n".join(lines)


def folded(summary: str, table: str) -> list[str]:
    """A table behind a summary that can be opened; nothing if the table is empty."""
    if not table:
        return []
    return [f"<details><summary>{summary}</summary>", "", table, "", "</details>", ""]
