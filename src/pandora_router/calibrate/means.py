"""h: the mean of the costly estimate G given all cheap estimates f of a prompt (paper, section 4).

The target is G, not the reward: G has less noise, and on a calibration split alone a regression of rewards on
f is worse (docs/method.md, section 8). A fitted mean maps (N, M) cheap estimates to (N, M) means.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from pandora_router.calibrate.readings import Readings, frozen_fields, same_presence
from pandora_router.errors import UsageError
from pandora_router.types import Matrix, Vector

STRENGTHS = np.logspace(-4.0, 3.0, 29)  # ridge penalties per prompt, tried by leave-one-out


class FittedMean(Protocol):
    """A fitted mean."""

    def of(self, cheap: Matrix) -> Matrix:
        """The mean of G for each row of cheap estimates (N, M)."""


class MeanModel(Protocol):
    """A way to fit a mean."""

    def fit(self, readings: Readings) -> tuple[FittedMean, Matrix]:
        """Fit the mean of G given f; also returns the mean of each prompt (N, M) as if it had been left out.

        Residuals from left-out means are as large as on new prompts; residuals of the fit are too small.
        """


@dataclass(frozen=True, eq=False)
class Linear:
    """mu = f W + a, with W (M, M), one column per specialist, and a (M,).

    `strength` (M,) is the ridge penalty per prompt that was chosen (0 where none was).
    """

    weights: Matrix
    intercept: Vector
    strength: Vector

    def __post_init__(self) -> None:
        frozen_fields(self, "weights", "intercept", "strength")

    def of(self, cheap: Matrix) -> Matrix:
        """f W + a."""
        return cheap @ self.weights + self.intercept

    def blend(self, other: Linear, share: float) -> Linear:
        """The linear mean that is `share` of the other one and 1 - `share` of this one."""
        pairs = zip(vars(self).values(), vars(other).values(), strict=True)
        return Linear(*((1.0 - share) * mine + share * theirs for mine, theirs in pairs))


@dataclass(frozen=True)
class CheapMean:
    """mu = f: the cheap estimate itself."""

    def fit(self, readings: Readings) -> tuple[Linear, Matrix]:
        """Nothing is fitted."""
        boxes = readings.cheap.shape[1]
        return Linear(np.eye(boxes), np.zeros(boxes), np.zeros(boxes)), readings.cheap


@dataclass(frozen=True)
class RidgeMean:
    """Each column of G by ridge on all columns of f, its strength chosen by exact leave-one-out error.

    With standardised f = U S V' over the n prompts that have G_m, penalty a and hat values
    h_i = 1/n + sum_k U_ik^2 s_k^2/(s_k^2 + a), the error left out is e_i/(1 - h_i): no refit is needed.
    `strengths` are penalties per prompt (a/n).
    """

    strengths: tuple[float, ...] = tuple(STRENGTHS.tolist())

    def __post_init__(self) -> None:
        if not self.strengths or not all(np.isfinite(s) and s > 0.0 for s in self.strengths):
            raise UsageError(
                "strengths", expected="positive numbers", came=f"{self.strengths}", do="Leave the default."
            )

    def fit(self, readings: Readings) -> tuple[Linear, Matrix]:
        """Fit all specialists; those with the same prompts share one decomposition."""
        f, g = readings.cheap, readings.costly
        boxes = f.shape[1]
        weights, intercept, strength = np.empty((boxes, boxes)), np.empty(boxes), np.empty(boxes)
        errors = np.zeros(f.shape)
        for columns, rows in same_presence(~np.isnan(g)):
            fitted = fit_ridge(f[rows], g[np.ix_(rows, columns)], np.array(self.strengths))
            weights[:, columns], intercept[columns], strength[columns] = fitted[:3]
            errors[np.ix_(rows, columns)] = fitted[3]
        linear = Linear(weights, intercept, strength)
        return linear, np.where(np.isnan(g), linear.of(f), g - errors)


def fit_ridge(x: Matrix, y: Matrix, strengths: Vector) -> tuple[Matrix, Vector, Vector, Matrix]:
    """Ridge of y (n, K) on x (n, P).

    Returns weights (P, K) on the scale of x, intercepts (K,), the strengths (K,) with the smallest
    leave-one-out error, and those errors (n, K).
    """
    n = len(x)
    centre, spread = x.mean(axis=0), x.std(axis=0)
    live = spread > 1e-12 * np.maximum(np.abs(centre), 1.0)
    scaled = np.where(live, x - centre, 0.0) / np.where(live, spread, 1.0)
    u, s, vt = np.linalg.svd(scaled, full_matrices=False)
    level = y.mean(axis=0)
    along = u.T @ (y - level)
    best, least, errors = strengths[0] * np.ones(y.shape[1]), np.full(y.shape[1], np.inf), np.empty(y.shape)
    for strength in strengths:
        shrink = s**2 / (s**2 + n * strength)
        hat = 1.0 / n + (u**2) @ shrink
        left_out = (y - level - u @ (shrink[:, None] * along)) / np.maximum(1.0 - hat, 1e-9)[:, None]
        mean_square = (left_out**2).mean(axis=0)
        better = mean_square < least
        best[better], least[better], errors[:, better] = strength, mean_square[better], left_out[:, better]
    shrunk = s[:, None] / (s[:, None] ** 2 + n * best)
    weights = (vt.T @ (shrunk * along)) / np.where(live, spread, 1.0)[:, None]
    return weights, level - centre @ weights, best, errors
