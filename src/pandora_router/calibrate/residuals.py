"""The residual G - h(f): its scale, and its correlation between specialists. `laws` fits its law.

**Scale.** Scores lie in [0, 1], so residuals are smaller near the ends:

    log sigma_m^2 = a_m + b_m z + c_m z^2,   z = (mu_m - centre_m)/spread_m

fitted per specialist by maximum likelihood of normal residuals with a small penalty on b and c. Outside the
calibrated range of the mean, z stops at its ends. On nine data sets this form had a better held-out
likelihood than binned, linear or pooled ones (decision 0030).

**Correlation** of standardised residuals by Ledoit-Wolf shrinkage, low-rank for many specialists. The shrunk
covariance is rescaled to a correlation and carries no scale.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from pandora_router.calibrate.readings import frozen_fields
from pandora_router.errors import UsageError
from pandora_router.types import Matrix, Positions, Vector

ScaleKind = Literal["constant", "by_mean"]
PENALTY = (0.0, 10.0, 10.0)  # on a, b, c: how much evidence a scale that varies with the mean needs
REACH = (0.01, 0.99)  # quantiles of the mean between which the curve is used
LEAST = 1e-6  # smaller standard deviations are rounding errors


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
        z = (np.minimum(np.maximum(mean, self.lowest), self.highest) - self.centre) / self.spread
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

    Here eta = w_0 + w_1 z + w_2 z^2; `towards` is both the start and the centre of the penalty. The objective
    is concave in w, and Newton steps of at most 1 per coefficient find its maximum.
    """
    powers = np.stack([np.ones_like(z), z, z**2], axis=1)
    ridge = np.diag(penalty)
    w = towards.copy()
    for _ in range(100):
        ratio = np.maximum(square, LEAST**2) * np.exp(-powers @ w)
        slope = 0.5 * powers.T @ (ratio - 1.0) - ridge @ (w - towards)
        # the weight 1 is the expected curvature: it keeps the step finite if the ratio vanishes
        bend = 0.5 * powers.T @ (powers * np.maximum(ratio, 1.0)[:, None]) + ridge
        step = np.clip(np.linalg.solve(bend + 1e-9 * np.eye(3), slope), -1.0, 1.0)
        w = w + step
        if np.abs(step).max() < 1e-10:
            break
    return w


CorrelationKind = Literal["ledoit_wolf", "none"]
DENSE = 50  # with more specialists the correlation is kept as factors plus a diagonal
MOST_FACTORS = 16
OWN = 1e-3  # smallest fraction of variance of a specialist outside the factors


@dataclass(frozen=True, eq=False)
class Correlation:
    """The correlation C (M, M) and, for many specialists, A (M, K) with C = A A' + diag(1 - |A_m|^2)."""

    matrix: Matrix
    factor: Matrix | None = None

    def __post_init__(self) -> None:
        frozen_fields(self, "matrix", *(() if self.factor is None else ("factor",)))

    @property
    def own(self) -> Vector:
        """Fraction of variance outside the factors (M,)."""
        assert self.factor is not None
        return 1.0 - (self.factor**2).sum(axis=1)


def fit_correlation(standardised: Matrix, kind: CorrelationKind) -> Correlation | None:
    """Fit the correlation of standardised residuals (N, M), NaN where missing; None for "none"."""
    if kind not in ("ledoit_wolf", "none"):
        raise UsageError("correlation", expected="'ledoit_wolf' or 'none'", came=repr(kind), do="Choose one.")
    if kind == "none":
        return None
    covariance, _ = ledoit_wolf(standardised)
    matrix = to_correlation(covariance)
    if len(matrix) <= DENSE:
        return Correlation(matrix)
    factor = fit_factor(matrix, len(standardised))
    return Correlation(from_factor(factor), factor)


def ledoit_wolf(x: Matrix) -> tuple[Matrix, float]:
    """Return (1 - d) S + d m I and d, with m = tr(S)/M and d the shrinkage of Ledoit and Wolf (2004).

    S_ij is the mean of centred products over the prompts that have both, d the estimated variance of the
    entries of S over their squared distance to m I. With missing cells S may have slightly negative
    eigenvalues, which are lifted to zero after shrinking.
    """
    present = ~np.isnan(x)
    centred = np.where(present, x - np.nanmean(x, axis=0), 0.0)
    together = present.astype(np.float64).T @ present
    counts = np.maximum(together, 1.0)
    sample = centred.T @ centred / counts
    size = len(sample)
    level = np.trace(sample) / size
    target = level * np.eye(size)
    noise = (((centred**2).T @ (centred**2) / counts - sample**2) / counts).sum()
    distance = ((sample - target) ** 2).sum()
    weight = float(min(noise, distance) / distance) if distance > 0.0 else 0.0
    shrunk = (1.0 - weight) * sample + weight * target
    return (shrunk if present.all() else lift(shrunk)), weight


def lift(matrix: Matrix) -> Matrix:
    """The nearest matrix without negative eigenvalues."""
    values, vectors = np.linalg.eigh(matrix)
    return matrix if values[0] >= 0.0 else (vectors * np.maximum(values, 0.0)) @ vectors.T


def to_correlation(covariance: Matrix) -> Matrix:
    """Rescale to a unit diagonal; a specialist without variance has correlation 0 with all others."""
    std = np.sqrt(np.maximum(np.diag(covariance), 0.0))
    live = std > 0.0
    matrix: Matrix = covariance / np.outer(np.where(live, std, 1.0), np.where(live, std, 1.0))
    matrix = 0.5 * (matrix + matrix.T)
    np.fill_diagonal(matrix, 1.0)
    return matrix


def fit_factor(matrix: Matrix, prompts: int) -> Matrix:
    """A (M, K) with A A' + diag close to `matrix` off the diagonal, by iterated principal axes.

    K counts the eigenvalues above what pure noise would show, (1 + sqrt(M/N))^2 (Marchenko and Pastur).
    """
    noise = (1.0 + np.sqrt(len(matrix) / prompts)) ** 2
    keep = int(np.clip((np.linalg.eigvalsh(matrix) > noise).sum(), 1, MOST_FACTORS))
    shared = 1.0 - 1.0 / np.maximum(np.diag(np.linalg.pinv(matrix, hermitian=True)), 1.0)
    factor = np.zeros((len(matrix), keep))
    for _ in range(20):
        reduced = matrix.copy()
        np.fill_diagonal(reduced, shared)
        values, vectors = np.linalg.eigh(reduced)
        factor = vectors[:, -keep:] * np.sqrt(np.maximum(values[-keep:], 0.0))
        factor /= np.sqrt(np.maximum((factor**2).sum(axis=1, keepdims=True) / (1.0 - OWN), 1.0))
        shared = (factor**2).sum(axis=1)
    return factor


def from_factor(factor: Matrix) -> Matrix:
    """A A' with its diagonal set to one."""
    matrix: Matrix = factor @ factor.T
    np.fill_diagonal(matrix, 1.0)
    return matrix


@dataclass(frozen=True, eq=False)
class Laws:
    """Residual laws (L, Q) and the edges of the mean (M, C - 1) that say which one a box follows.

    L is C where all specialists share the laws of their classes, or M C where each has its own, in order.
    """

    quantiles: Matrix
    edges: Matrix

    def __post_init__(self) -> None:
        frozen_fields(self, "quantiles", "edges")

    @property
    def own(self) -> bool:
        """Whether each specialist has laws of its own."""
        return len(self.quantiles) > self.edges.shape[1] + 1

    def rank(self, mean: Matrix) -> Positions:
        """Which law each box of each prompt follows (N, M)."""
        classes = self.edges.shape[1] + 1
        return classify(mean, self.edges) + self.own * classes * np.arange(len(self.edges))


def classify(mean: Matrix, edges: Matrix) -> Positions:
    """The class of each mean: how many of its specialist's edges lie below it."""
    return (mean[:, :, None] > edges[None]).sum(axis=2)
