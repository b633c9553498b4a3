"""docs/peers.md: our router beside its peers, from what `runs` measured."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.peers.baselines import BASELINES
from benchmarks.peers.runs import COST, NEVER, OURS, PEERS, SETS, Chosen, Run
from pandora_router.data.table import normalise
from pandora_router.evaluate.statistics import Split, compare

PAGE = """# Beside other routers

Written by `{command}` (peers are installed by `make peers`, each in an environment of its own); do not
edit by hand. Measured code: {version}.{waiting}

Each router learns from the same four fifths of the scored prompts, is given the same prompt vectors
(those of our own cheap estimate) and routes the same last fifth ({seeds} {named}).
Peers run with their recommended settings. The number is the mean net reward (score - fee - what was spent
on inspections); beside each router stands its difference to ours in 1e-3, with the standard error of the
paired difference, clustered by prompt. Negative: behind ours. A look or a costly estimate costs {cost:g}
in every set. Only our router can look at what specialists have begun to say ({looked}): that is
part of what is compared, and "{never}" shows the same router without it.

{table}

CPU: microseconds of processor time per decision, one prompt at a time, embedding included, median over
prompts, then over sets (a busy machine makes all of them larger).

## What it says

{verdicts}

## How the peers were set up

- **ParetoBandit**: 25 whitened principal components, priors from all training prompts, greedy; it learns
  score - fee, so its own cost penalty is off.
- **argrouter**: the package holds the inference only. Logistic regressions per specialist are
  scikit-learn's; k = 50 and the half-and-half blend are its defaults.
- **xrouter-llm**: bundled policy `auto` (cheapest with a predicted completion of .7, else within .05 of
  the best); capability of a model is its mean training score. Its licence is not an open-source one.
- **semantic-router**: one route per specialist; utterances are the training prompts on which it is best;
  defaults.
- **litellm heuristic_v2**: learns nothing; the efficient specialists in order of strength stand for its
  four tiers.
- **CARROT** and **RouterBench**: their rules, written anew (benchmarks/peers/baselines.py).
{missing}"""


@dataclass(frozen=True)
class Measured:
    """One set over its seeds: runs and, by way to route, choices in the same order."""

    runs: Sequence[Run]
    ways: Mapping[str, Sequence[Chosen]]

    def lead(self, way: str) -> tuple[float, float]:
        """Mean net reward of `way` minus ours, and its standard error over prompts."""
        splits = []
        for run, one, base in zip(self.runs, self.ways[way], self.ways[OURS], strict=True):
            codes = np.array([zlib.crc32(normalise(prompt).encode()) for prompt in run.test.prompts])
            gap = (run.net(one) - run.net(base))[:, None]
            splits.append(Split(gap, codes, np.arange(len(codes))))
        found = compare(splits)
        return float(found.mean[0]), float(found.error[0])

    def level(self, way: str) -> float:
        """Mean net reward."""
        found = zip(self.runs, self.ways[way], strict=True)
        return float(np.mean([run.net(one).mean() for run, one in found]))


def page(found: Mapping[str, Measured], missing: Mapping[str, str], version: str, command: str) -> str:
    """The whole page."""
    ways = [OURS, NEVER, *PEERS, *BASELINES]
    head = ["router", *found, "CPU us"]
    rows = []
    for way in ways:
        there = [one for one in found.values() if way in one.ways]
        if not there:
            continue
        cells = [_cell(one, way) for one in found.values()]
        times = [np.median([run.microseconds for run in one.ways[way]]) for one in there]
        rows.append([way, *cells, f"{np.median(times):,.0f}"])
    waiting = [name for name in SETS if name not in found]
    seeds = sorted({run.seed for one in found.values() for run in one.runs})
    lines = ["| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *rows)]
    return PAGE.format(
        command=command,
        version=version,
        seeds="one fresh split, seed" if len(seeds) == 1 else f"{len(seeds)} fresh splits, seeds",
        named=", ".join(map(str, seeds)),
        cost=COST,
        looked=", ".join(name for name, one in found.items() if one.runs[0].experiment.peek) or "no set",
        waiting=f" Not measured with it yet: {', '.join(waiting)}." if waiting else "",
        never=NEVER,
        table="\n".join(lines),
        verdicts=verdicts(found),
        missing="".join(f"- **{name}** was left out: {why}\n" for name, why in missing.items()),
    )


def _cell(one: Measured, way: str) -> str:
    if way not in one.ways:
        return "-"
    if way == OURS:
        return f"{one.level(way):.4f}"
    lead, error = one.lead(way)
    return f"{1e3 * lead:+.1f} ({1e3 * error:.1f})"


def verdicts(found: Mapping[str, Measured]) -> str:
    """Where a rival is ahead by more than one standard error, and where ours leads by more than two."""
    rivals = [way for way in (*PEERS, *BASELINES) if any(way in one.ways for one in found.values())]
    ahead, half = [], []
    for way in rivals:
        leads = {name: one.lead(way) for name, one in found.items() if way in one.ways}
        ahead += [f"{way} on {name}" for name, (lead, error) in leads.items() if lead > error > 0.0]
        behind = sum(lead < -2 * error for lead, error in leads.values())
        half.append(f"{way} {behind} of {len(leads)}")
    ratio = ""
    if "ParetoBandit" in rivals:
        times = {
            way: np.median(
                [run.microseconds for one in found.values() if way in one.ways for run in one.ways[way]]
            )
            for way in (NEVER, "ParetoBandit")
        }
        ratio = (
            f"- A decision without purchases takes {times[NEVER] / times['ParetoBandit']:.1f} times the CPU "
            "of ParetoBandit's, embedding included."
        )
    return "\n".join(
        [
            f"- Ahead of ours by more than one standard error: {', '.join(ahead) or 'nobody on any set'}.",
            f"- Sets on which ours leads by more than two standard errors: {'; '.join(half)}.",
            ratio,
        ]
    )


def write(path: Path, text: str) -> None:
    """Write the page under a temporary name and rename it."""
    draft = path.with_suffix(".draft")
    draft.write_text(text, encoding="utf-8")
    draft.replace(path)
