"""The two pages about all experiments: the long one under results/, and docs/results.md for people.

Every number on both is computed here from results on disk; `python -m paper results` writes them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from pandora_router.calibrate.ways import ORACLE
from pandora_router.evaluate import reliability
from pandora_router.evaluate.arms import DEFAULT
from pandora_router.evaluate.experiments import Experiment
from pandora_router.evaluate.results import Results
from pandora_router.evaluate.statistics import Estimate
from pandora_router.report import paired, summary, tables
from pandora_router.report.paired import gaps, verdict_on
from pandora_router.report.summary import NOTES, section
from paper import findings, paper_tables
from paper.chance import behind_by_chance

COMMAND = "python -m paper results"
SUMMARY = """*Averaged*: regret + cost over all costs, 1e-3 above the best static arm at all costs; below 0
is better. *Better than all*: costs at which the router beats every static arm, each with a star. *Worst
cost*: where it is most standard errors above the best of them. *Behind*: costs at which that is more than one
standard error; in brackets the same against the static arm that was best on the other splits, which is what
somebody who must choose beforehand could have had."""
SHORT = """## Routing on public data

Written by `{command}`; do not edit by hand. {count} experiments on public routing data, fresh splits
drawn with the seeds {seeds}, which no rule of the router was tuned on (their prompts were also in earlier
splits).{missing}

The router is fitted on each split exactly as `pandora fit` fits it and judged on prompts that fitted
nothing. The numbers are net reward per prompt (score - fee - inspection cost) in 1e-3, averaged over the
inspection costs of an experiment: how much more the router earns than each way to route that does not
search. In brackets the larger of two standard errors (over prompts, over splits). A star: both tests
reject "no difference" at 5 %.

{table}

**Where inspection pays.** {pays}

**Where it does not.** {not_}

**Never worse?** The router is more than one standard error behind the best static way, f-only among them,
in {behind} of {cells} cells (experiment x inspection cost). A router exactly as good as that way would be in
about {chance}. Cells on the same prompts are behind together, so that it would be in {often} or more in
one case of ten, and in {behind} or more with probability {probability} (`paper/chance.py`).{worst}

**Better than every static way**, with a star against each, at some cost or on average: {better}.

How these numbers are made, and the rest of them (every way to route at every cost, value estimators,
signal models, the paper's findings and its own tables, figures): `make paper` writes `results/all.md`,
`results/report.html` and `results/figures/`. One experiment alone: `pandora evaluate
paper/experiments/math_gpt.yaml -o results --data DATA`. Markets: [bidding.md](bidding.md). Other routers:
[peers.md](peers.md).
"""
CHANCE = 0.159  # how often a normal number lies more than one standard error above its mean


def short(found: Sequence[Results], asked: Sequence[Experiment], command: str = COMMAND) -> str:
    """The part `routing` of docs/results.md: one table, where inspection pays and where not."""
    ways = [way for way in summary.SHOWN if way not in (DEFAULT, ORACLE)]
    head = [
        "experiment",
        "splits",
        *(f"over {way}" for way in ways),
        "inspections",
    ]
    rows = []
    pays: list[str] = []
    not_: list[str] = []
    for one in found:
        k = one.neighbours[0]
        leads = {way: _lead(one, (k, way)) for way in ways}
        opened = float(np.mean([one.mean("inspections", (k, cost, DEFAULT)) for cost in one.costs]))
        name = one.name + (" (control)" if one.control else "")
        cells = [_words(lead) for lead in leads.values()]
        rows.append([name, str(len(one.seeds)), *cells, f"{opened:.2f}"])
        never = leads["never inspect"]
        better = never is not None and never.star and never.mean > 0.0
        (pays if better else not_).append(f"{one.name} ({_words(never).rstrip('*')})")
    lead = "The lead over never inspecting is significant on "
    return SHORT.format(
        command=command,
        count=len(found),
        seeds=", ".join(str(seed) for seed in sorted({seed for one in asked for seed in one.seeds})),
        missing=_missing(found, asked),
        table=tables.grid(head, rows),
        pays=lead + (", ".join(pays) or "none of them") + ".",
        not_="It is not on " + (", ".join(not_) or "none of them") + ".",
        **_standing(found, {one.name: str(one.data) for one in asked}),
    )


def _lead(one: Results, rival: paired.Way) -> Estimate | None:
    """What the router earns more than a rival, averaged over costs; None if the rival was not run."""
    if not paired.has(one, *rival):
        return None
    gap = paired.averages(one, ((rival, (one.neighbours[0], DEFAULT)),))
    return Estimate(float(gap.mean[0]), float(gap.error[0]), float(gap.split_error[0]), bool(gap.star[0]))


def _words(lead: Estimate | None) -> str:
    if lead is None:
        return "-"
    return f"{1e3 * lead.mean:+.1f} ({1e3 * lead.doubt:.1f}){'*' if lead.star else ''}"


def _missing(found: Sequence[Results], asked: Sequence[Experiment]) -> str:
    """A sentence on experiments and splits that were asked for and are not finished."""
    done = {one.name: len(one.seeds) for one in found}
    none = [one.name for one in asked if one.name not in done]
    some = [
        f"{one.name} ({done[one.name]} of {len(one.seeds)})"
        for one in asked
        if 0 < done.get(one.name, 0) < len(one.seeds)
    ]
    words = f" Not run to the end with the present default: {', '.join(none)}." if none else ""
    if found and max(done.values()) == 1:
        words += " With one split nobody knows the spread over splits: there are no stars."
    return words + (f" Splits that are missing: {', '.join(some)}." if some else "")


def _by_chance(found: Sequence[Results], data: Mapping[str, str], behind: int) -> dict[str, object]:
    """How many cells of a router that is as good as the best static way would be behind."""
    draws = behind_by_chance(found, data)
    probability = float((draws >= behind).mean())
    return {
        "chance": f"{draws.mean():.0f}",
        "often": f"{np.quantile(draws, 0.9):.0f}",
        "probability": f"{probability:.2f}",
    }


def _standing(found: Sequence[Results], data: Mapping[str, str]) -> dict[str, object]:
    """How often the router is behind the best static way, and where it is better than all of them."""
    cells, behind, better = 0, [], []
    for one in found:
        k = one.neighbours[0]
        said = verdict_on(one, k)
        cells += sum(gap.doubt > 0.0 for gap in gaps(one, k))
        behind += [(gap.errors_behind, one.name, gap) for gap in gaps(one, k) if gap.behind]
        if not one.control and (len(said.average_beats) == said.rivals or said.better_than_all):
            better.append(one.name)
    worst = ""
    if behind:
        _, name, gap = max(behind, key=lambda row: row[0])
        worst = f" The worst of them: {name} at cost {gap.cost:g}, {gap} against {gap.static}."
    return {
        "behind": len(behind),
        "cells": cells,
        **_by_chance(found, data, len(behind)),
        "worst": worst,
        "better": ", ".join(better) or "none",
    }


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
        told = reliability.of(one)
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
