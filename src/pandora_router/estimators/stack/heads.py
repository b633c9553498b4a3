"""Ridge regression of rewards on features, with out-of-fold predictions.

One closed-form solution per penalty and fold, from sums of squares computed once per fold. Missing rewards
(NaN) are left out; specialists with the same missing rows share one solution. The intercept is not penalised.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from pandora_router.errors import UsageError
from pandora_router.types import Matrix, Positions, Vector

Features = NDArray[np.float32] | Vector
PENALTIES = (1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0)
CHUNK = 8192


@dataclass(frozen=True)
class Ridge:
    """Weights (features, outputs) and intercept (outputs,): predicts features @ weights + intercept."""

    weights: Matrix = field(repr=False)
    intercept: Matrix = field(repr=False)

    def predict(self, features: Features) -> Matrix:
        """Predictions (rows, outputs)."""
        return features @ self.weights + self.intercept


def fit_ridge(
    features: Features, reward: Matrix, folds: Positions, penalties: Sequence[float] = PENALTIES
) -> tuple[Ridge, Matrix]:
    """The ridge with the penalty of lowest cross-validated error, and its out-of-fold predictions.

    Minimises sum (R - Xw - a)^2 + penalty |w|^2 per output. `folds` (rows,) is the fold number of each row.
    One penalty is chosen for each group of outputs with the same missing rows.
    """
    width = features.shape[1]
    weights = np.zeros((width, reward.shape[1]))
    intercept = np.zeros(reward.shape[1])
    held_out = np.zeros(reward.shape)
    patterns: dict[bytes, list[int]] = {}
    for column in range(reward.shape[1]):
        patterns.setdefault(np.isnan(reward[:, column]).tobytes(), []).append(column)
    for columns in patterns.values():
        solution, outside = _fit_complete(features, reward[:, columns], folds, penalties)
        weights[:, columns] = solution[:-1]
        intercept[columns] = solution[-1]
        held_out[:, columns] = outside
    return Ridge(weights, intercept), held_out


def _fit_complete(
    features: Features, reward: Matrix, folds: Positions, penalties: Sequence[float]
) -> tuple[Matrix, Matrix]:
    present = ~np.isnan(reward[:, 0])
    count = int(folds.max()) + 1
    sums = [_sums(features, reward, np.flatnonzero(present & (folds == k))) for k in range(count)]
    gram = np.sum([s[0] for s in sums], axis=0)
    cross = np.sum([s[1] for s in sums], axis=0)
    best: tuple[float, float, Matrix] | None = None
    for penalty in penalties:
        outside = np.empty(reward.shape)
        for k in range(count):
            solution = _solve(gram - sums[k][0], cross - sums[k][1], penalty)
            rows = folds == k
            outside[rows] = features[rows] @ solution[:-1] + solution[-1]
        error = float(np.mean((outside[present] - reward[present]) ** 2))
        if best is None or error < best[0]:
            best = error, penalty, outside
    if best is None:
        raise UsageError(
            "penalties of a ridge head", expected="at least one", came="none", do="Pass a penalty."
        )
    return _solve(gram, cross, best[1]), best[2]


def _sums(features: Features, reward: Matrix, rows: Positions) -> tuple[Matrix, Matrix]:
    width = features.shape[1] + 1
    gram, cross = np.zeros((width, width)), np.zeros((width, reward.shape[1]))
    for start in range(0, len(rows), CHUNK):
        chunk = rows[start : start + CHUNK]
        block = np.column_stack([features[chunk].astype(np.float64), np.ones(len(chunk))])
        gram += block.T @ block
        cross += block.T @ reward[chunk]
    return gram, cross


def _solve(gram: Matrix, cross: Matrix, penalty: float) -> Matrix:
    ridge = np.full(len(gram), penalty)
    ridge[-1] = 1e-9 * (1.0 + gram[-1, -1])
    solution: Matrix = np.linalg.solve(gram + np.diag(ridge), cross).astype(np.float64)
    return solution


def grouped_folds(groups: Sequence[object], count: int, seed: int) -> Positions:
    """Fold numbers, balanced over the distinct elements of `groups`; equal elements share a fold."""
    members = {member: i for i, member in enumerate(dict.fromkeys(groups))}
    if len(members) < 2:
        raise UsageError(
            "prompts to fit on",
            expected="at least two different prompts",
            came=f"{len(members)}",
            do="Collect more scored prompts.",
        )
    numbers = np.random.default_rng(seed).permutation(len(members)) % min(count, len(members))
    return np.asarray([numbers[members[member]] for member in groups], dtype=np.intp)
