"""Who gets the same question in other words, and what a change costs.

An experiment may name a file of paraphrases. A test prompt that has one is routed twice, as it is and in the
other words, by the router and by never inspecting. It *flips* if the two go to different specialists. What
flips cost is reward minus purchases of the prompt as it is, less that of its paraphrase, per pair: the score
of a specialist is taken to be that of the prompt in both. Where costly estimates read the beginnings of
answers, which nobody has for a paraphrase, never inspecting alone is measured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from pandora_router.boxes import Costs
from pandora_router.calibrate import Calibrated
from pandora_router.calibrate.ways import NEVER, ROUTER, search
from pandora_router.data.importers.sheet import read_sheet
from pandora_router.errors import UsageError
from pandora_router.evaluate.outcomes import CostsAt, Run
from pandora_router.evaluate.results import Results
from pandora_router.evaluate.statistics import Estimate, Split, compare
from pandora_router.evaluate.trials import Trial
from pandora_router.search import KnowledgeGradient, Never
from pandora_router.types import Matrix, Vector

WAYS = (ROUTER, NEVER)


def read_pairs(path: Path) -> dict[str, str]:
    """Paraphrase by prompt, from the columns `prompt` and `paraphrase` of a file; empty ones are left out.

    Raises `UsageError` if the file cannot be read or has no pair.
    """
    sheet = read_sheet(path, columns=("prompt", "paraphrase"))
    columns = (sheet.optional_text(name) for name in ("prompt", "paraphrase"))
    pairs = {prompt: again for prompt, again in zip(*columns, strict=True) if prompt and again}
    if not pairs:
        raise UsageError(
            str(path),
            expected="a prompt with a paraphrase",
            came="none",
            do="Fill in the column `paraphrase`, or leave `paraphrases` out of the experiment.",
        )
    return pairs


def columns(trial: Trial, runs: Sequence[Run], k: int, costs_at: CostsAt) -> Mapping[str, NDArray[Any]]:
    """For each test prompt, NaN without a paraphrase: 1 if it flips, and what that costs (means over costs).

    Columns are named "flips|k|way" and "flip_cost|k|way"; empty if the trial has no paraphrases.
    """
    again = trial.reworded
    if again is None:
        return {}
    made: dict[str, NDArray[Any]] = {}
    readable = bool(np.isfinite(again.readings.costly).all())
    for way in WAYS if readable else (NEVER,):
        pairs = [_pair(trial, run, costs_at(run.cost)) for run in runs if run.arm == way]
        for name, values in zip(("flips", "flip_cost"), np.mean(pairs, axis=0), strict=True):
            made[f"{name}|{k}|{way}"] = np.full(len(trial.test), np.nan)
            made[f"{name}|{k}|{way}"][again.rows] = values
    return made


def _pair(trial: Trial, run: Run, costs: Costs) -> tuple[Vector, Vector]:
    """Whether each prompt that has a paraphrase flips, and what it loses in other words (n,)."""
    again = trial.reworded
    assert again is not None
    policy = Never() if run.arm == NEVER else trial.shipped(Calibrated(), KnowledgeGradient(), costs)
    other = search(policy, trial.signal(), again.readings, costs)
    lost = other.total(again.readings) - run.total[again.rows]
    return (run.routed.choice[again.rows] != other.choice).astype(np.float64), lost


@dataclass(frozen=True)
class Flips:
    """Of one way to route: pairs a split, the part that flips, and what flips cost per pair."""

    way: str
    pairs: float
    flips: Estimate
    cost: Estimate


def of(results: Results, k: int) -> tuple[Flips, ...]:
    """The flips of each way in all finished splits; only ways with two pairs or more."""
    files = [pq.read_table(path) for path in _paths(results) if path.is_file()]
    found = []
    for way in WAYS:
        splits = [_split(table, k, way) for table in files if f"flips|{k}|{way}" in table.column_names]
        if sum(len(split.prompt) for split in splits) > 1:
            found.append(_of(splits, way))
    return tuple(found)


def _paths(results: Results) -> list[Path]:
    return [seed.path.with_name(f"checks-{number}.parquet") for number, seed in results.seeds.items()]


def _split(table: Any, k: int, way: str) -> Split:
    names = (f"flips|{k}|{way}", f"flip_cost|{k}|{way}")
    values: Matrix = np.stack([table[name].to_numpy().astype(np.float64) for name in names], axis=1)
    some = np.isfinite(values).all(axis=1)
    prompt, cluster = (table[name].to_numpy().astype(np.int64) for name in ("prompt", f"cluster|{k}"))
    return Split(values[some], prompt[some], cluster[some])


def _of(splits: Sequence[Split], way: str) -> Flips:
    found = compare(splits)
    flips, cost = (
        Estimate(float(mean), float(error), float(split_error), bool(star))
        for mean, error, split_error, star in zip(
            found.mean, found.error, found.split_error, found.star, strict=True
        )
    )
    return Flips(way, float(np.mean([len(split.prompt) for split in splits])), flips, cost)
