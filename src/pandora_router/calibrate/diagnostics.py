"""Quality of a signal model: errors against rewards, coverage of G, correlation of residuals.

The mean squared error against realised rewards of the training mean, f, h(f) and g, over complete cells; the
fraction of costly estimates within one and two predicted standard deviations (68.3 % and 95.4 % under the
normal law); the correlation of residuals between specialists. `check` is for prompts on which the model was
not fitted; `cross_check` gets such prompts by refitting on folds.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from pandora_router.boxes.checks import finite, same_length
from pandora_router.calibrate.readings import Readings
from pandora_router.calibrate.residuals import to_correlation
from pandora_router.calibrate.signals import SignalModel, Unfitted
from pandora_router.errors import UsageError
from pandora_router.text import json_values
from pandora_router.types import Matrix, Vector


@dataclass(frozen=True)
class Check:
    """The results: errors by predictor, coverage by standard deviations, residual correlation."""

    prompts: int
    specialists: int
    missing_costly: int
    missing_reward: int
    mse: dict[str, float]
    mse_by_specialist: dict[str, tuple[float, ...]]
    coverage_1: float
    coverage_2: float
    coverage_1_by_specialist: tuple[float, ...]
    coverage_2_by_specialist: tuple[float, ...]
    residual_correlation: float
    residual_correlation_range: tuple[float, float]

    def to_dict(self) -> dict[str, Any]:
        """The results as plain values for JSON; None where nothing could be measured."""
        facts: dict[str, Any] = json_values(asdict(self))
        return facts


def check(signal: SignalModel, readings: Readings, *, training_mean: ArrayLike | None = None) -> Check:
    """Check the model on prompts on which it was not fitted.

    `training_mean` (M,) is each specialist's mean reward in training; by default the mean over the given
    prompts, which makes the error of the mean slightly too small.
    """
    f = readings.cheap
    return _report(readings, signal.expected(f), signal.spread(f), training_mean)


def cross_check(
    signal: Unfitted,
    readings: Readings,
    *,
    folds: int = 5,
    training_mean: ArrayLike | None = None,
) -> Check:
    """Check on the calibration prompts themselves, each by a model fitted on the other folds."""
    mean, std = np.empty(readings.cheap.shape), np.empty(readings.cheap.shape)
    for held in folds_of(len(readings), folds, seed=0):
        fitted = signal.fit(readings.rows(~held))
        mean[held] = fitted.expected(readings.cheap[held])
        std[held] = fitted.spread(readings.cheap[held])
    return _report(readings, mean, std, training_mean)


def folds_of(prompts: int, folds: int, seed: int) -> list[np.ndarray]:
    """Masks (N,) that hold out every prompt once."""
    if not 2 <= folds <= prompts:
        raise UsageError(
            "folds", expected=f"2 to {prompts}, the number of prompts", came=f"{folds}", do="Try 5."
        )
    fold = np.random.default_rng(seed).permutation(prompts) % folds
    return [fold == k for k in range(folds)]


def _report(readings: Readings, mean: Matrix, std: Matrix, training_mean: ArrayLike | None) -> Check:
    f, g, r = readings.cheap, readings.costly, readings.reward
    cells = ~(np.isnan(g) | np.isnan(r))
    base = _column_means(r) if training_mean is None else finite("training_mean", training_mean, ndim=1)
    same_length("training_mean", len(base), f.shape[1])
    guesses = {"training mean": np.broadcast_to(base, f.shape), "f": f, "h(f)": mean, "g": g}
    squares = {name: np.where(cells, (guess - r) ** 2, np.nan) for name, guess in guesses.items()}
    away = np.abs(g - mean) / np.where(std > 0.0, std, np.inf)
    inside = [np.where(np.isnan(g), np.nan, away <= k) for k in (1.0, 2.0)]
    lowest, middle, highest = _shared(g - mean)
    return Check(
        prompts=len(readings),
        specialists=f.shape[1],
        missing_costly=int(np.isnan(g).sum()),
        missing_reward=int(np.isnan(r).sum()),
        mse={name: _mean(square) for name, square in squares.items()},
        mse_by_specialist={name: tuple(_column_means(square)) for name, square in squares.items()},
        coverage_1=_mean(inside[0]),
        coverage_2=_mean(inside[1]),
        coverage_1_by_specialist=tuple(_column_means(inside[0])),
        coverage_2_by_specialist=tuple(_column_means(inside[1])),
        residual_correlation=middle,
        residual_correlation_range=(lowest, highest),
    )


def _mean(values: Matrix) -> float:
    measured = values[~np.isnan(values)]
    return float(measured.mean()) if len(measured) else float("nan")


def _column_means(values: Matrix) -> Vector:
    return np.array([_mean(column) for column in values.T])


def _shared(residual: Matrix) -> tuple[float, float, float]:
    """Lowest, mean and highest correlation of residuals between two specialists; NaN for a single one."""
    if residual.shape[1] < 2:
        return (float("nan"),) * 3
    present = ~np.isnan(residual)
    centred = np.where(present, residual - _column_means(residual), 0.0)
    together = np.maximum(present.astype(np.float64).T @ present, 1.0)
    matrix = to_correlation(centred.T @ centred / together)
    pairs = matrix[np.triu_indices(len(matrix), 1)]
    return float(pairs.min()), float(pairs.mean()), float(pairs.max())
