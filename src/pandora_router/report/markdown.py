"""A Markdown page about finished experiments: what routing earned, and the tables behind it.

`page` turns the same text into one HTML file. `python -m paper` adds comparisons with the paper.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pandora_router.evaluate import reliability
from pandora_router.evaluate.arms import DEFAULT, PAPER
from pandora_router.evaluate.experiments import Experiment, cheap_name
from pandora_router.evaluate.results import Results
from pandora_router.report import summary, tables

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
        parts += [f"**{results.title}.** {summary.sentence(results)}", "", summary.grid(results), ""]
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


def folded(summary: str, table: str) -> list[str]:
    """A table inside a collapsible block; empty if the table is empty."""
    if not table:
        return []
    return [f"<details><summary>{summary}</summary>", "", table, "", "</details>", ""]
