"""How far G strays from its mean: one number per specialist, or a function of the mean.

Rewards live in [0, 1] less a fee, so there is less room to stray near the ends:

    log sigma_m^2 = a_m + b_m z + c_m z^2,   z = (mu_m - centre_m)/spread_m

fitted per specialist by maximum likelihood of normal residuals with a small penalty on b and c. Outside the
calibrated range of the mean, z stops at its ends. On nine data sets this form had a better held-out
likelihood than binned, linear or pooled ones (decision 0030).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from pandora_router.calibrate.readings import frozen_fields
from pandora_router.errors import UsageError
from pandora_router.types import Matrix, Vector

ScaleKind = Literal["constant", "by_mean"]
PENALTY = (0.0, 10.0, 10.0)  # on a, b, c: what it takes to believe that the scale bends
REACH = (0.01, 0.99)  # quantiles of the mean between which the curve is trusted
LEAST = 1e-6  # standard deviations below this are numerical dust


@dataclass(frozen=True, eq=False)
class Scale:
    """Coefficients (M, 3) of log sigma^2 in powers of z, and centre, spread and range of the mean (M,)."""

    coefficients: Matrix
    centre: Vector
    spread: Vector
    lowest: Vector
    highest: Vector

    def __post_init__(self) -> None:
        frozen_fields(self, "coefficients", "centre", "spread", "lowest", "highest")

    def of(self, mean: Matrix) -> Matrix:
        """The standard deviation of G at each mean (N, M)."""
        z = (np.clip(mean, self.lowest, self.highest) - self.centre) / self.spread
        a, b, c = self.coefficients.T
        return np.exp(0.5 * (a + z * (b + z * c)))


def fit_scale(mean: Matrix, residual: Matrix, kind: ScaleKind = "by_mean") -> Scale:
    """Fit the scale of residuals (N, M), NaN where missing, as a function of the mean (N, M)."""
    if kind not in ("constant", "by_mean"):
        raise UsageError("scale", expected="'constant' or 'by_mean'", came=repr(kind), do="Choose one.")
    boxes = mean.shape[1]
    coefficients = np.zeros((boxes, 3))
    centre, spread = np.empty(boxes), np.empty(boxes)
    lowest, highest = np.empty(boxes), np.empty(boxes)
    for j in range(boxes):
        rows = ~np.isnan(residual[:, j])
        mu, square = mean[rows, j], residual[rows, j] ** 2
        centre[j], spread[j] = mu.mean(), max(float(mu.std()), 1e-9)
        lowest[j], highest[j] = np.quantile(mu, REACH)
        z = (np.clip(mu, lowest[j], highest[j]) - centre[j]) / spread[j]
        coefficients[j, 0] = np.log(max(float(square.mean()), LEAST**2))
        if kind == "by_mean":
            coefficients[j] = fit_curve(z, square, np.array([coefficients[j, 0], 0.0, 0.0]))
    return Scale(coefficients, centre, spread, lowest, highest)


def fit_curve(
    z: Vector, square: Vector, towards: Vector, penalty: tuple[float, float, float] = PENALTY
) -> Vector:
    """Coefficients w that maximise -1/2 sum(eta + e^2 exp(-eta)) - 1/2 sum_k penalty_k (w_k - towards_k)^2.

    Here eta = w_0 + w_1 z + w_2 z^2 and `towards` is both the start and the aim of the penalty. The
    objective is concave in w; Newton steps of at most 1 per coefficient find its top.
    """
    powers = np.stack([np.ones_like(z), z, z**2], axis=1)
    ridge = np.diag(penalty)
    w = towards.copy()
    for _ in range(100):
        ratio = np.maximum(square, LEAST**2) * np.exp(-powers @ w)
        slope = 0.5 * powers.T @ (ratio - 1.0) - ridge @ (w - towards)
        # the weight 1 is the expected curvature: it keeps the step finite where the ratio vanishes
        bend = 0.5 * powers.T @ (powers * np.maximum(ratio, 1.0)[:, None]) + ridge
        step = np.clip(np.linalg.solve(bend + 1e-9 * np.eye(3), slope), -1.0, 1.0)
        w = w + step
        if np.abs(step).max() < 1e-10:
            break
    return w
