"""Quality of estimates and signal model on test prompts, stored beside the results.

`checks-N.parquet` has one row per test prompt and, per number of neighbours, the squared error of each
predictor and the fraction of costly estimates within one and two predicted standard deviations, averaged over
specialists. Its metadata have one number per split: slopes of g, correlation of residuals, reliability of g,
CPU-seconds, and the number of incomplete prompts. Predictors: the specialist's mean reward on the calibration
prompts ("mean"), f, h(f) and g.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from pandora_router.calibrate import (
    Calibrated,
    EmpiricalDraws,
    GaussianIndependent,
    NeighbourSignal,
    Unfitted,
)
from pandora_router.calibrate import check as check_signal
from pandora_router.calibrate.reward_mean import centred
from pandora_router.data import Table
from pandora_router.evaluate import flips
from pandora_router.evaluate.outcomes import CostsAt, Run
from pandora_router.evaluate.results import Results, write_parquet
from pandora_router.evaluate.statistics import Comparison, Split, compare
from pandora_router.evaluate.trials import Trial
from pandora_router.types import Matrix, Vector

PREDICTORS = ("mean", "f", "h(f)", "g")
COVERED: Mapping[str, Unfitted] = {
    "calibrated": Calibrated(),
    "Gaussian (paper)": GaussianIndependent(),
    "neighbours, K=16 (paper)": NeighbourSignal(),
    "empirical draws": EmpiricalDraws(),
}
BINS = 10


@dataclass(frozen=True, eq=False)
class Measured:
    """One split in stored form: columns with a number per test prompt, facts with one number per split."""

    columns: Mapping[str, NDArray[Any]]
    facts: Mapping[str, Any]


def measure(
    table: Table,
    arrays: Mapping[str, Vector],
    runs: Mapping[int, tuple[Trial, Sequence[Run]]],
    costs_at: CostsAt,
) -> Measured:
    """Measure one split from its estimates `arrays`; `runs` has each trial with its runs, by neighbours."""
    columns: dict[str, NDArray[Any]] = {}
    facts: dict[str, Any] = {
        "specialists": list(table.specialists),
        "fee_weight": table.fee_weight,
        "characters": float(np.mean([len(prompt) for prompt in table.prompts])),
        "left_out": int((~np.isfinite(arrays["test_score"] + arrays["test_g"]).all(axis=1)).sum()),
        "seconds": {
            "estimates": float(arrays["seconds"]) if "seconds" in arrays else None,
            "arms": _seconds([run for _, each in runs.values() for run in each]),
        },
    }
    for k, (trial, each) in runs.items():
        columns |= flips.columns(trial, each, k, costs_at)
        columns.setdefault("prompt", trial.prompt.astype(np.int32))
        columns[f"cluster|{k}"] = trial.test.cluster.astype(np.int32)
        for name, values in {**_errors(trial), **_inside(trial)}.items():
            kind, rest = name.split("|", 1)
            columns[f"{kind}|{k}|{rest}"] = values.astype(np.float32)
        facts[str(k)] = _numbers(trial)
    return Measured(columns, facts)


def write(folder: Path, seed: int, measured: Measured) -> None:
    """Store one split's checks beside its results."""
    checks = pa.table(dict(measured.columns)).replace_schema_metadata({"facts": json.dumps(measured.facts)})
    write_parquet(folder / f"checks-{seed}.parquet", checks)


def _seconds(runs: Sequence[Run]) -> dict[str, float]:
    spent: dict[str, float] = {}
    for run in runs:
        spent[run.arm] = spent.get(run.arm, 0.0) + run.seconds
    return {arm: round(seconds, 4) for arm, seconds in spent.items()}


def _errors(trial: Trial) -> dict[str, Vector]:
    test, calibration = trial.test, trial.calibration
    guesses = (calibration.reward.mean(axis=0), test.cheap, trial.signal().expected(test.cheap), test.costly)
    squares = ((guess - test.reward) ** 2 for guess in guesses)
    return {f"error|{name}": square.mean(axis=1) for name, square in zip(PREDICTORS, squares, strict=True)}


def _inside(trial: Trial) -> dict[str, Vector]:
    test, columns = trial.test, {}
    for name, unfitted in COVERED.items():
        signal = trial.signal(unfitted)
        away = np.abs(test.costly - signal.expected(test.cheap))
        spread = signal.spread(test.cheap)
        for times in (1, 2):
            columns[f"inside{times}|{name}"] = (away <= times * spread).mean(axis=1)
    return columns


def _numbers(trial: Trial) -> dict[str, Any]:
    test = trial.test
    signal = trial.signal()
    mean = signal.expected(test.cheap)
    whole = check_signal(signal, test)
    return {
        "clusters": int(test.cluster.max()) + 1,
        "slope": slope(test.costly, test.reward),
        "slope_of_news": slope(test.costly - mean, test.reward - mean),
        "residual_correlation": whole.to_dict()["residual_correlation"],
        "reliability": _reliability(test.costly, test.reward),
    }


def slope(x: Matrix, y: Matrix) -> float | None:
    """Slope of differences between specialists in y on those in x, within prompts; None if x has none.

    Below 1 means that differences in x are larger than the true ones.
    """
    across, down = centred(x, y)
    weight = float((across**2).sum())
    return float((across * down).sum()) / weight if weight > 1e-12 else None


def _reliability(g: Matrix, reward: Matrix) -> list[list[float]]:
    """Mean g and mean reward of the cells in each tenth of g, in order."""
    order = np.argsort(g, axis=None, kind="stable")
    predicted, realised = g.ravel()[order], reward.ravel()[order]
    parts = zip(np.array_split(predicted, BINS), np.array_split(realised, BINS), strict=True)
    return [[float(a.mean()), float(b.mean())] for a, b in parts if len(a)]


@dataclass(frozen=True, eq=False)
class Checks:
    """The checks of all finished splits of one experiment, by seed."""

    facts: Mapping[int, Mapping[str, Any]]
    paths: Mapping[int, Path]

    def number(self, k: int, name: str) -> tuple[float, float]:
        """Mean over splits of one number of k neighbours, and its standard deviation over splits."""
        values = [fact[str(k)][name] for fact in self.facts.values() if fact[str(k)][name] is not None]
        if not values:
            return float("nan"), float("nan")
        return float(np.mean(values)), float(np.std(values, ddof=1)) if len(values) > 1 else float("nan")

    def reliability(self, k: int) -> Vector:
        """(splits, tenths, 2): mean g and mean reward."""
        return np.array([fact[str(k)]["reliability"] for fact in self.facts.values()])

    def seconds(self) -> tuple[float, dict[str, float], int]:
        """CPU-seconds of estimates and of each arm over all splits; how many splits lack the former."""
        spent = [fact["seconds"] for fact in self.facts.values()]
        arms: dict[str, float] = {}
        for times in spent:
            for arm, seconds in times["arms"].items():
                arms[arm] = arms.get(arm, 0.0) + seconds
        measured = [times["estimates"] for times in spent if times["estimates"] is not None]
        return float(sum(measured)), arms, len(spent) - len(measured)

    def compare(self, k: int, columns: Sequence[str], base: str | None = None) -> Comparison:
        """Means of columns such as "error|f", less those of `base`, with both standard errors."""
        splits = []
        for path in self.paths.values():
            wanted = [_column(name, k) for name in (*columns, *([base] if base else []))]
            table = pq.read_table(path, columns=["prompt", f"cluster|{k}", *dict.fromkeys(wanted)])
            values = np.stack([table[_column(name, k)].to_numpy() for name in columns], axis=1).astype(float)
            if base:
                values = values - table[_column(base, k)].to_numpy().astype(float)[:, None]
            prompt, cluster = (table[name].to_numpy().astype(np.int64) for name in ("prompt", f"cluster|{k}"))
            splits.append(Split(values, prompt, cluster))
        return compare(splits)


def _column(name: str, k: int) -> str:
    kind, rest = name.split("|", 1)
    return f"{kind}|{k}|{rest}"


def of(results: Results) -> Checks | None:
    """The checks beside these results, or None if some split has none."""
    paths = {
        seed: results_.path.with_name(f"checks-{seed}.parquet") for seed, results_ in results.seeds.items()
    }
    if not all(path.is_file() for path in paths.values()):
        return None
    metadata = {seed: pq.read_schema(path).metadata or {} for seed, path in paths.items()}
    return Checks({seed: json.loads(entries[b"facts"]) for seed, entries in metadata.items()}, paths)
