"""Signal models: from cheap estimates to boxes, fitted on calibration prompts.

`Calibrated` is the default (docs/method.md, sections 9 and 11) and every part of it can be switched off:

    G = h + D(h) e,  h = h(f),  e of correlation C,  the value shown is v = m + slope (g - h),  m = m(f)

with h by ridge of G on f, D a scale that depends on h, C by Ledoit-Wolf on standardised residuals, the slope
that of reward differences on g differences, the likeliest of three laws of e (`laws`), and m, the mean that
decides, from rewards and estimates of training and calibration prompts. Where values of G are sharp, as those
of a verifier are, boxes are independent. With everything off it is the paper's Gaussian signal model. It
refuses to know where estimates come from and which policy will search the boxes.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import ArrayLike

from pandora_router.boxes import Boxes, Costs, Independent, Joint, LowRank
from pandora_router.boxes.checks import covariance_matrix
from pandora_router.boxes.joint import checked_quantiles
from pandora_router.calibrate.laws import LawKind, fit_laws
from pandora_router.calibrate.means import FittedMean, Linear, MeanModel, RidgeMean
from pandora_router.calibrate.readings import FEWEST, Readings, cells, estimates
from pandora_router.calibrate.residuals import (
    Correlation,
    CorrelationKind,
    Laws,
    Scale,
    ScaleKind,
    fit_correlation,
    fit_scale,
)
from pandora_router.calibrate.reward_mean import HALF, fit_reward_mean, fit_slope
from pandora_router.errors import UsageError
from pandora_router.search import Batch
from pandora_router.types import Mask, Matrix, Vector


@dataclass(frozen=True, eq=False)
class Prior:
    """One prompt before anything is bought: its boxes, and how a costly estimate becomes a value.

    `anchor` (M,) is the costly estimate expected from f: opening box j with estimate g shows the value
    mean_j + slope (g - anchor_j).
    """

    boxes: Boxes
    anchor: Vector
    slope: float = 1.0

    def value(self, box: int, g: float) -> float:
        """The value of `box` if its costly estimate is g, on the scale of the boxes."""
        return float(self.boxes.mean[box]) + self.slope * (g - float(self.anchor[box]))

    def means(self, opened: Mask, everyone: Vector) -> tuple[float, ...] | None:
        """The means of all boxes once `opened` (M,) is open, if estimates depend on everything opened.

        `everyone` (M,) are the costly estimates of all specialists. None here: each box has its own value.
        """
        return None


class SignalModel(Protocol):
    """A fitted signal model: turns cheap estimates into boxes and costly estimates into values."""

    def expected(self, cheap: ArrayLike) -> Matrix:
        """The mean of G for each row of cheap estimates (N, M)."""

    def spread(self, cheap: ArrayLike) -> Matrix:
        """The standard deviation of G around that mean (N, M)."""

    def boxes(self, estimates: ArrayLike, inspection_cost: ArrayLike | Costs) -> Boxes:
        """The boxes of one prompt with cheap estimates (M,)."""

    def prior(self, estimates: ArrayLike, inspection_cost: ArrayLike | Costs) -> Prior:
        """`boxes`, and how costly estimates of this prompt become values; computes h(f) once."""

    def batch(self, cheap: ArrayLike, inspection_cost: Any) -> Any:
        """The boxes of many prompts (N, M) at once; row i is `boxes(cheap[i], inspection_cost)`.

        A `search.Batch`, or a `search.moving_batch.MovingBatch` if every opening changes all means.
        """

    def values(self, cheap: ArrayLike, costly: ArrayLike) -> Matrix:
        """The value that each box would show (N, M); NaN stays NaN."""


class Unfitted(Protocol):
    """The settings of a signal model that is not fitted yet; immutable."""

    def fit(self, readings: Readings, train: Readings | None = None) -> SignalModel:
        """Fit on the `readings` of calibration prompts.

        `train` has left-out f and out-of-fold g of training prompts, for models that learn from them.
        """


@dataclass(frozen=True, eq=False)
class FittedSignal:
    """A fitted `Calibrated` model; parts that are off are None, or 1 for the slope.

    `mean` is h(f), the mean of G: news is g - h(f). `decided` is m(f), the mean of the boxes (docs/method.md,
    section 11); None means h(f). A box has mean m(f) and standard deviation slope x scale(h(f)); opened, it
    shows m(f) + slope (g - h(f)).
    """

    mean: FittedMean
    scale: Scale
    correlation: Correlation | None = None
    laws: Laws | None = None
    slope: float = 1.0
    decided: FittedMean | None = None

    def __post_init__(self) -> None:
        self._checked  # noqa: B018 (refuses a damaged correlation or law before the first decision)

    def expected(self, cheap: ArrayLike) -> Matrix:
        """h(f), the mean of G for each row of cheap estimates (N, M)."""
        return self.mean.of(estimates(cheap, len(self.scale.centre), ndim=2))

    def believed(self, cheap: ArrayLike) -> Matrix:
        """m(f), the mean of the boxes (N, M)."""
        chosen = self.mean if self.decided is None else self.decided
        return chosen.of(estimates(cheap, len(self.scale.centre), ndim=2))

    def spread(self, cheap: ArrayLike) -> Matrix:
        """The standard deviation of G (N, M); that of the values shown is the slope times it."""
        return self.scale.of(self.expected(cheap))

    def boxes(self, estimates: ArrayLike, inspection_cost: ArrayLike | Costs) -> Boxes:
        """The boxes of one prompt: independent, joint, or low-rank where there are many specialists."""
        return self._boxes(*self._row(estimates), inspection_cost)

    def _boxes(self, centre: Vector, mean: Vector, inspection_cost: ArrayLike | Costs) -> Boxes:
        std = self.slope * self.scale.of(centre[None])[0]
        if self.correlation is None and self.laws is None:
            return Independent(mean, std, inspection_cost)
        correlation, quantiles = self._checked
        rank = None if self.laws is None else self.laws.rank(centre[None])[0]
        laws = None if quantiles is None else quantiles[rank]
        if self.correlation is not None and self.correlation.factor is not None:
            factor = std[:, None] * self.correlation.factor
            return LowRank(mean, factor, std**2 * self.correlation.own, inspection_cost, laws)
        return Joint.known(mean, std[:, None] * std * correlation, inspection_cost, laws)

    @functools.cached_property
    def _checked(self) -> tuple[Matrix, Matrix | None]:
        """Correlation and quantiles as the boxes of every prompt need them, checked once."""
        boxes = len(self.scale.centre)
        laws = None if self.laws is None else self.laws.quantiles
        return (
            covariance_matrix("correlation", self._dense(boxes), boxes),
            None if laws is None else checked_quantiles(laws, len(laws)),
        )

    def prior(self, estimates: ArrayLike, inspection_cost: ArrayLike | Costs) -> Prior:
        """The boxes, read by v = m + slope (g - h)."""
        centre, mean = self._row(estimates)
        return Prior(self._boxes(centre, mean, inspection_cost), centre, self.slope)

    def batch(self, cheap: ArrayLike, inspection_cost: ArrayLike | Costs) -> Batch:
        """The boxes of many prompts (N, M) at once."""
        centre = self.expected(cheap)
        mean = centre if self.decided is None else self.believed(cheap)
        std = self.slope * self.scale.of(centre)
        if self.correlation is None and self.laws is None:
            return Batch(mean, std, inspection_cost)
        return Batch(
            mean,
            std,
            inspection_cost,
            correlation=self._dense(mean.shape[1]),
            quantiles=None if self.laws is None else self.laws.quantiles,
            rank=None if self.laws is None else self.laws.rank(centre),
        )

    def values(self, cheap: ArrayLike, costly: ArrayLike) -> Matrix:
        """v = m + slope (g - h), cell by cell."""
        centre = self.expected(cheap)
        mean = centre if self.decided is None else self.believed(cheap)
        return mean + self.slope * (cells("costly estimates", costly, mean.shape) - centre)

    def _row(self, row: ArrayLike) -> tuple[Vector, Vector]:
        """h(f) and m(f) of one prompt (M,)."""
        cheap = np.asarray(row, dtype=np.float64)[None]
        if cheap.shape != (1, len(self.scale.centre)) or not np.isfinite(cheap).all():
            raise UsageError(
                "estimates",
                expected=f"{len(self.scale.centre)} finite numbers, one per specialist",
                came=f"{cheap[0].tolist()}"[:80],
                do="Give the cheap estimates of one prompt, in the order of the specialists.",
            )
        centre = self.mean.of(cheap)[0]
        return centre, centre if self.decided is None else self.decided.of(cheap)[0]

    def _dense(self, boxes: int) -> Matrix:
        return np.eye(boxes) if self.correlation is None else self.correlation.matrix


@dataclass(frozen=True)
class Calibrated:
    """The default signal model; each argument switches one part of it.

    >>> rng = np.random.default_rng(0)
    >>> f = rng.random((200, 2))
    >>> g = 0.2 + 0.5 * f + 0.1 * rng.standard_normal((200, 2))
    >>> signal = Calibrated().fit(Readings(f, g, g))
    >>> signal.boxes([0.5, 0.6], inspection_cost=0.01).mean.round(1).tolist()
    [0.4, 0.5]
    """

    mean: MeanModel = field(default_factory=RidgeMean)
    scale: ScaleKind = "by_mean"
    correlation: CorrelationKind = "ledoit_wolf"
    slope: bool = True
    law: LawKind = "likeliest"
    pooled: bool = True

    def fit(self, readings: Readings, train: Readings | None = None) -> FittedSignal:
        """Fit mean, scale, correlation, law and slope in turn; without rewards the slope is the prior's mean.

        With `pooled`, the mean m and the slope are fitted on training prompts as well: `train` has their
        left-out cheap estimates and out-of-fold costly estimates (NaN where there is none).
        """
        readings = readings.enough()
        train = train if self.pooled else None
        mean, mu = self.mean.fit(readings)
        residual = readings.costly - mu
        scale = fit_scale(mu, residual, self.scale)
        spread = scale.of(mu)
        standardised = residual / spread
        laws = fit_laws(mu, standardised, spread, self.law)
        alone = laws is not None and laws.own  # sharp values do not move in a line with others
        return FittedSignal(
            mean,
            scale,
            fit_correlation(standardised, "none" if alone else self.correlation),
            laws,
            self._slope(mean, mu, readings, train) if self.slope else 1.0,
            self._decided(mean, readings, train),
        )

    def _slope(self, mean: FittedMean, mu: Matrix, readings: Readings, train: Readings | None) -> float:
        more = None if train is None else (mean.of(train.cheap), train.costly, train.reward)
        return fit_slope(mu, readings.costly, readings.reward, more)

    def _decided(self, mean: FittedMean, readings: Readings, train: Readings | None) -> FittedMean | None:
        """m(f), from training and calibration prompts: `reward_mean`, blended with plain regressions.

        The plain part is half the ridge of R on f and half that of G on f (h(f) without out-of-fold g). Its
        share grows with the number of prompts N: 1/2 N / (N + `HALF`). None where there are no training
        prompts or too few rewards, or where the mean was asked to be something other than a ridge.
        """
        if train is None or not isinstance(mean, Linear) or not isinstance(self.mean, RidgeMean):
            return None
        every = train.beside(readings)
        if (~np.isnan(every.reward)).sum(axis=0).min() < FEWEST:
            return None
        of_reward, _ = self.mean.fit(Readings(every.cheap, every.reward))
        of_costly = mean
        if (~np.isnan(train.costly)).any(axis=0).all():
            of_costly, _ = self.mean.fit(Readings(every.cheap, every.costly))
        plain = of_reward.blend(of_costly, 0.5)
        return fit_reward_mean(every.cheap, every.reward).blend(plain, 0.5 * len(every) / (len(every) + HALF))


@dataclass(frozen=True)
class _Gaussian:
    """The paper's signal model: constant scale, normal law, no slope."""

    correlation: ClassVar[CorrelationKind]
    mean: MeanModel = field(default_factory=RidgeMean)

    def fit(self, readings: Readings, train: Readings | None = None) -> FittedSignal:
        """Fit mean, standard deviations and correlation; rewards and training prompts are not used."""
        return Calibrated(self.mean, "constant", self.correlation, False, "normal").fit(readings)


@dataclass(frozen=True)
class GaussianJoint(_Gaussian):
    """The paper's signal model with correlated residuals (Ledoit-Wolf)."""

    correlation: ClassVar[CorrelationKind] = "ledoit_wolf"


@dataclass(frozen=True)
class GaussianIndependent(_Gaussian):
    """The paper's signal model with independent residuals."""

    correlation: ClassVar[CorrelationKind] = "none"
