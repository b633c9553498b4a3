"""The two pages about all experiments: the long one under results/, and docs/results.md for people.

Every number on both is computed here from results on disk; `python -m paper results` writes them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from pandora_router.evaluate import checks
from pandora_router.evaluate.arms import DEFAULT
from pandora_router.evaluate.experiments import Experiment
from pandora_router.evaluate.results import Results
from pandora_router.report import paired, summary, tables
from pandora_router.report.markdown import NOTES, section
from pandora_router.report.verdicts import CHANCE, gaps, verdict_on
from paper import findings, paper_tables

COMMAND = "python -m paper results"
SUMMARY = """*Averaged*: regret + cost over all costs, 1e-3 above the best static arm at all costs; below 0
is better. *Better than all*: costs at which the router beats every static arm, each with a star. *Worst
cost*: where it is most standard errors above the best of them. *Behind*: costs at which that is more than one
standard error; in brackets the same against the static arm that was best on the other splits, which is what
somebody who must choose beforehand could have had."""
SHORT = """# Results

Written by `{command}` on the experiments named below; do not edit by hand.
{count} experiments on public routing data, {splits} fresh splits each, {cells} pairs of
experiment and inspection cost.

The router is fitted on each split exactly as `pandora fit` fits it and judged on prompts that fitted nothing.
The numbers are net reward per prompt (score - fee - inspection cost) in 1e-3, averaged over the inspection
costs of an experiment: how much more the router earns than each way to route that does not search. In
brackets the larger of two standard errors (over prompts, over splits). A star: both tests reject "no
difference" at 5 %.

{table}

**Where inspection pays.** {pays}

**Where it does not.** {not_}

**Never worse?** The router is more than one standard error behind the best static way in {behind} of {cells}
cells; a router exactly as good as that way would be in about {chance}.

How these numbers are made, and the rest of them (every way to route at every cost, value estimators, signal
models, the paper's findings and its own tables, figures): `make paper` writes `results/all.md`,
`results/report.html` and `results/figures/`. One experiment alone:
`pandora evaluate paper/experiments/math_gpt.yaml -o results --data DATA`. Markets: [bidding.md](bidding.md).
"""


def short(found: Sequence[Results], command: str = COMMAND) -> str:
    """docs/results.md: one table, where inspection pays and where not, and how to make the rest."""
    rows, cells, behind = [], 0, 0
    pays: list[str] = []
    not_: list[str] = []
    for one in found:
        k = one.neighbours[0]
        said = verdict_on(one, k)
        others = [way for way in summary.SHOWN if way != DEFAULT and paired.has(one, k, way)]
        leads = paired.averages(one, tuple(((k, way), (k, DEFAULT)) for way in others))
        by_way = {
            way: f"{1e3 * leads.mean[i]:+.1f} ({1e3 * leads.doubt[i]:.1f}){'*' if leads.star[i] else ''}"
            for i, way in enumerate(others)
        }
        opened = float(np.mean([one.mean("queries", (k, cost, DEFAULT)) for cost in one.costs]))
        name = one.name + (" (control)" if one.control else "")
        rows.append(
            [name, *(by_way.get(way, "") for way in summary.SHOWN if way != DEFAULT), f"{opened:.2f}"]
        )
        never = others.index("never inspect")
        better = bool(leads.star[never]) and leads.mean[never] > 0.0
        (pays if better else not_).append(f"{one.name} ({by_way['never inspect'].rstrip('*')})")
        cells += sum(gap.doubt > 0.0 for gap in gaps(one, k))
        behind += len(said.behind)
    head = ["experiment", *(f"over {way}" for way in summary.SHOWN if way != DEFAULT), "inspections"]
    lead = "The lead over never inspecting is significant on "
    return SHORT.format(
        command=command,
        count=len(found),
        splits=max(len(one.seeds) for one in found),
        cells=cells,
        behind=behind,
        chance=f"{CHANCE * cells:.0f}",
        table=tables.grid(head, rows),
        pays=lead + (", ".join(pays) or "none of them") + ".",
        not_="It is not on " + (", ".join(not_) or "none of them") + ".",
    )


def long(
    found: Sequence[Results],
    figures: Mapping[str, str],
    settings: Sequence[Experiment],
    paper: Path | None,
) -> str:
    """Every table of every experiment, the paper's findings, and its own tables if `paper` has them."""
    known = {one.name: one for one in settings}
    parts = [f"# All results\n\nWritten by `{COMMAND}`.\n", NOTES, "", "## Summary", "", _summary(found), ""]
    parts += ["## Where the paper's findings hold on this data", "", findings.markdown(found), ""]
    for one in found:
        parts += [section(one, known.get(one.name), figures), ""]
    parts += [_peeks(found, known), _seconds(found), "" if paper is None else paper_tables.markdown(paper)]
    return "\n".join(parts)


def _summary(found: Sequence[Results]) -> str:
    head = [
        "experiment",
        "splits",
        "prompts",
        "averaged",
        "better than all at c",
        "worst cost",
        "behind at c",
    ]
    rows, cells, behind, better = [], 0, 0, []
    for one in found:
        k = one.neighbours[0]
        said = verdict_on(one, k)
        name = one.name + (" (negative control)" if one.control else "")
        worst = f"{said.worst.cost:g}: {said.worst} ({said.worst.static})"
        missed = tables.listed(said.behind)
        if len(one.seeds) > 1:
            missed += f" [{tables.listed(said.behind_elsewhere)}]"
        prompts = f"{one.mean('prompts', (k, one.costs[0], DEFAULT)):.0f}"
        start = [name, str(len(one.seeds)), prompts, f"{said.average} ({said.average.static})"]
        rows.append([*start, tables.listed(said.better_than_all), worst, missed, said.words])
        cells += sum(gap.doubt > 0.0 for gap in gaps(one, k))
        behind += len(said.behind)
        if not one.control and (len(said.average_beats) == said.rivals or said.better_than_all):
            better.append(one.name)
    chance = f"{CHANCE * cells:.0f}"
    return "\n".join(
        [
            tables.grid([*head, "verdict"], rows),
            "",
            SUMMARY,
            "",
            f"Of {cells} cells (experiment x cost) in which the router and the best static arm ever differ, "
            f"it is more than one standard error behind in {behind}; a router exactly as good as that arm "
            f"would be in about {chance}. Significantly better than every static arm, at some cost or on "
            "average, on "
            f"{len(better)} experiments that are no controls: {', '.join(better) or 'none'}.",
        ]
    )


def _peeks(found: Sequence[Results], known: Mapping[str, Experiment]) -> str:
    """Experiments that differ in the length of the peek alone, each against the longest."""
    series: dict[str, list[Results]] = {}
    for one in found:
        setting = known.get(one.name)
        if setting is not None and setting.peek:
            same = (
                setting.folders,
                setting.tasks,
                dict(setting.specialists or {}),
                setting.inspection,
                setting.costs,
            )
            series.setdefault(repr(same), []).append(one)
    parts = []
    for members in series.values():
        lengths = {known[one.name].peek: one for one in members}
        if len(lengths) < 2:
            continue
        longest = lengths[max(lengths)]
        way, rows = (longest.neighbours[0], DEFAULT), []
        for length in sorted(lengths):
            one = lengths[length]
            total = np.mean([one.mean("total", (way[0], c, DEFAULT)) for c in one.costs])
            gap = "0" if one is longest else tables.difference(paired.between(one, longest, way), 0)
            rows.append([str(length), one.name, f"{total:.4f}", gap])
        head = [
            "characters that g sees",
            "experiment",
            "regret + cost of the router",
            "1e-3 above the longest",
        ]
        parts += ["## Length of the peek", "", tables.grid(head, rows), ""]
    return "\n".join(parts)


def _seconds(found: Sequence[Results]) -> str:
    """What it cost to compute all this."""
    rows, total = [], [0.0, 0.0]
    for one in found:
        told = checks.of(one)
        if told is None:
            continue
        estimates, arms, unknown = told.seconds()
        dear = ", ".join(f"{arm} {arms[arm]:.0f}" for arm in sorted(arms, key=lambda a: -arms[a])[:3])
        note = f" ({unknown} splits not known)" if unknown else ""
        rows.append([one.name, f"{estimates:.0f}{note}", f"{sum(arms.values()):.0f}", dear])
        total = [total[0] + estimates, total[1] + sum(arms.values())]
    if not rows:
        return ""
    rows.append(["all", f"{total[0]:.0f}", f"{total[1]:.0f}", ""])
    table = tables.grid(["experiment", "estimates", "arms", "the dearest arms"], rows)
    words = "CPU-seconds over all splits; estimates that experiments share are counted in each."
    return "\n".join(["## What it cost to compute", "", words, "", table, ""])
