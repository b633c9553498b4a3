"""Signal models: from cheap estimates to boxes, fitted on calibration prompts.

`Calibrated` is the default (METHOD section 9) and every part of it can be switched off:

    G = mu + D(mu) e,  mu = h(f),  e of correlation C,  the value shown is v = mu + slope (g - mu)

with mu by ridge of G on f, D a scale that depends on the mean, C by Ledoit-Wolf on standardised residuals,
the slope that of reward differences on g differences, and residual quantiles by tercile of the mean in
place of the normal law. With everything off it is the paper's Gaussian signal model. It refuses to know where
estimates come from and which policy will search the boxes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike

from pandora_router.boxes import Boxes, Costs, Independent, Joint, LowRank
from pandora_router.calibrate.correlations import Correlation, CorrelationKind, fit_correlation
from pandora_router.calibrate.laws import LawKind, Laws, fit_laws
from pandora_router.calibrate.means import FittedMean, MeanModel, RidgeMean
from pandora_router.calibrate.readings import Readings, cells, estimates
from pandora_router.calibrate.scales import Scale, ScaleKind, fit_scale
from pandora_router.calibrate.slopes import fit_slope
from pandora_router.search import Batch
from pandora_router.types import Matrix, Vector


@dataclass(frozen=True, eq=False)
class Prior:
    """What is known of one prompt before anything is bought: its boxes, and how a costly estimate is read.

    `anchor` (M,) is the costly estimate expected from f: opening box j with estimate g shows
    mean_j + slope (g - anchor_j).
    """

    boxes: Boxes
    anchor: Vector
    slope: float = 1.0

    def value(self, box: int, g: float) -> float:
        """What opening `box` shows when its costly estimate is g, on the scale of the boxes."""
        return float(self.boxes.mean[box]) + self.slope * (g - float(self.anchor[box]))


class SignalModel(Protocol):
    """A fitted signal model: what turns cheap estimates into boxes and costly ones into values."""

    def expected(self, cheap: ArrayLike) -> Matrix:
        """The mean of G for each row of cheap estimates (N, M)."""

    def spread(self, cheap: ArrayLike) -> Matrix:
        """The standard deviation of G around that mean (N, M)."""

    def boxes(self, estimates: ArrayLike, inspection_cost: ArrayLike | Costs) -> Boxes:
        """The boxes of one prompt with cheap estimates (M,)."""

    def prior(self, estimates: ArrayLike, inspection_cost: ArrayLike | Costs) -> Prior:
        """`boxes`, with what is needed to read costly estimates of this prompt: h(f) is computed once."""

    def batch(self, cheap: ArrayLike, inspection_cost: ArrayLike | Costs) -> Batch:
        """The boxes of many prompts (N, M) at once; row i is `boxes(cheap[i], inspection_cost)`."""

    def values(self, cheap: ArrayLike, costly: ArrayLike) -> Matrix:
        """What opening each box would show (N, M); NaN stays NaN."""


class Unfitted(Protocol):
    """A signal model before it has seen data: a small frozen value."""

    def fit(self, cheap: ArrayLike, costly: ArrayLike, reward: ArrayLike | None = None) -> SignalModel:
        """Fit on calibration prompts: F, G and R (N, M), NaN in G or R for missing cells."""


@dataclass(frozen=True, eq=False)
class FittedSignal:
    """The numbers of a `Calibrated` model; parts that are off are None, or 1 for the slope."""

    mean: FittedMean
    scale: Scale
    correlation: Correlation | None = None
    laws: Laws | None = None
    slope: float = 1.0

    def expected(self, cheap: ArrayLike) -> Matrix:
        """The mean of G, and of the values shown, for each row of cheap estimates (N, M)."""
        return self.mean.of(estimates(cheap, len(self.scale.centre), ndim=2))

    def spread(self, cheap: ArrayLike) -> Matrix:
        """The standard deviation of G (N, M); that of the values shown is the slope times it."""
        return self.scale.of(self.expected(cheap))

    def boxes(self, estimates: ArrayLike, inspection_cost: ArrayLike | Costs) -> Boxes:
        """The boxes of one prompt: independent, joint, or low-rank where there are many specialists."""
        mean = self._row(estimates)
        std = self.slope * self.scale.of(mean[None])[0]
        if self.correlation is None and self.laws is None:
            return Independent(mean, std, inspection_cost)
        laws = None if self.laws is None else self.laws.quantiles[self.laws.rank(mean[None])[0]]
        if self.correlation is not None and self.correlation.factor is not None:
            factor = std[:, None] * self.correlation.factor
            return LowRank(mean, factor, std**2 * self.correlation.own, inspection_cost, laws)
        return Joint(mean, std[:, None] * std * self._dense(len(mean)), inspection_cost, laws)

    def prior(self, estimates: ArrayLike, inspection_cost: ArrayLike | Costs) -> Prior:
        """The boxes, read by v = mu + slope (g - mu)."""
        boxes = self.boxes(estimates, inspection_cost)
        return Prior(boxes, boxes.mean, self.slope)

    def batch(self, cheap: ArrayLike, inspection_cost: ArrayLike | Costs) -> Batch:
        """The boxes of many prompts (N, M) at once."""
        mean = self.expected(cheap)
        std = self.slope * self.scale.of(mean)
        if self.correlation is None and self.laws is None:
            return Batch(mean, std, inspection_cost)
        return Batch(
            mean,
            std,
            inspection_cost,
            correlation=self._dense(mean.shape[1]),
            quantiles=None if self.laws is None else self.laws.quantiles,
            rank=None if self.laws is None else self.laws.rank(mean),
        )

    def values(self, cheap: ArrayLike, costly: ArrayLike) -> Matrix:
        """v = mu + slope (g - mu), cell by cell."""
        mean = self.expected(cheap)
        return mean + self.slope * (cells("costly estimates", costly, mean.shape) - mean)

    def _row(self, row: ArrayLike) -> Vector:
        return self.mean.of(estimates(row, len(self.scale.centre), ndim=1)[None])[0]

    def _dense(self, boxes: int) -> Matrix:
        return np.eye(boxes) if self.correlation is None else self.correlation.matrix


@dataclass(frozen=True)
class Calibrated:
    """The default signal model; each argument switches one part of it.

    >>> rng = np.random.default_rng(0)
    >>> f = rng.random((200, 2))
    >>> g = 0.2 + 0.5 * f + 0.1 * rng.standard_normal((200, 2))
    >>> signal = Calibrated().fit(f, g, g)
    >>> signal.boxes([0.5, 0.6], inspection_cost=0.01).mean.round(1).tolist()
    [0.4, 0.5]
    """

    mean: MeanModel = field(default_factory=RidgeMean)
    scale: ScaleKind = "by_mean"
    correlation: CorrelationKind = "ledoit_wolf"
    slope: bool = True
    law: LawKind = "quantiles"

    def fit(self, cheap: ArrayLike, costly: ArrayLike, reward: ArrayLike | None = None) -> FittedSignal:
        """Fit mean, scale, correlation, law and slope in turn; without rewards the slope stays 1."""
        readings = Readings(cheap, costly, reward).enough()
        mean, mu = self.mean.fit(readings)
        residual = readings.costly - mu
        scale = fit_scale(mu, residual, self.scale)
        standardised = residual / scale.of(mu)
        return FittedSignal(
            mean,
            scale,
            fit_correlation(standardised, self.correlation),
            fit_laws(mu, standardised, self.law),
            fit_slope(mu, readings.costly, readings.reward) if self.slope else 1.0,
        )


@dataclass(frozen=True)
class GaussianJoint:
    """The paper's signal model with correlated residuals: constant scale, normal law, no slope."""

    mean: MeanModel = field(default_factory=RidgeMean)

    def fit(self, cheap: ArrayLike, costly: ArrayLike, reward: ArrayLike | None = None) -> FittedSignal:
        """Fit mean, standard deviations and Ledoit-Wolf correlation; rewards are not used."""
        return Calibrated(self.mean, "constant", "ledoit_wolf", False, "normal").fit(cheap, costly, reward)


@dataclass(frozen=True)
class GaussianIndependent:
    """The paper's signal model with independent residuals."""

    mean: MeanModel = field(default_factory=RidgeMean)

    def fit(self, cheap: ArrayLike, costly: ArrayLike, reward: ArrayLike | None = None) -> FittedSignal:
        """Fit mean and standard deviations; rewards are not used."""
        return Calibrated(self.mean, "constant", "none", False, "normal").fit(cheap, costly, reward)
