"""Signal models that keep calibration samples: neighbours in f space, and residual draws."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from pandora_router.boxes import Boxes, Costs, Draws, Independent
from pandora_router.calibrate.laws import cut
from pandora_router.calibrate.means import FittedMean, MeanModel, RidgeMean
from pandora_router.calibrate.readings import Readings, cells, estimates, frozen_fields, same_presence
from pandora_router.calibrate.residuals import classify
from pandora_router.calibrate.signals import Prior
from pandora_router.errors import UsageError
from pandora_router.search import Batch
from pandora_router.types import Matrix, Vector

CHUNK = 4096  # prompts whose distances are held at once


class ValueIsEstimate:
    """Base of signal models in which the value of an opened box is the costly estimate itself."""

    def boxes(self, estimates: ArrayLike, inspection_cost: ArrayLike | Costs) -> Boxes:
        """The boxes of one prompt."""
        raise NotImplementedError

    def prior(self, estimates: ArrayLike, inspection_cost: ArrayLike | Costs) -> Prior:
        """The boxes, with v = g (up to rounding)."""
        boxes = self.boxes(estimates, inspection_cost)
        return Prior(boxes, boxes.mean)

    def values(self, cheap: ArrayLike, costly: ArrayLike) -> Matrix:
        """v = g for each cell."""
        return cells("costly estimates", costly, np.shape(cheap))


@dataclass(frozen=True, eq=False)
class FittedNeighbours(ValueIsEstimate):
    """The calibration prompts themselves: cheap and costly estimates (N, M), and K."""

    cheap: Matrix
    costly: Matrix
    neighbours: int

    def __post_init__(self) -> None:
        frozen_fields(self, "cheap", "costly")

    def moments(self, cheap: ArrayLike) -> tuple[Matrix, Matrix]:
        """Mean and standard deviation of G over the K nearest prompts that have it; each (N, M)."""
        from scipy.spatial.distance import cdist

        rows = estimates(cheap, self.cheap.shape[1], ndim=2)
        mean, std = np.empty(rows.shape), np.empty(rows.shape)
        for columns, known in same_presence(~np.isnan(self.costly)):
            targets = self.costly[np.ix_(known, columns)]
            for lo in range(0, len(rows), CHUNK):
                distance = cdist(rows[lo : lo + CHUNK], self.cheap[known], "sqeuclidean")
                nearest = np.argsort(distance, axis=1, kind="stable")[:, : self.neighbours]
                near = targets[nearest]  # (rows, K, columns)
                mean[lo : lo + CHUNK, columns] = near.mean(axis=1)
                std[lo : lo + CHUNK, columns] = near.std(axis=1, ddof=1)
        return mean, std

    def expected(self, cheap: ArrayLike) -> Matrix:
        """The local mean of G (N, M)."""
        return self.moments(cheap)[0]

    def spread(self, cheap: ArrayLike) -> Matrix:
        """The local standard deviation of G (N, M)."""
        return self.moments(cheap)[1]

    def boxes(self, estimates: ArrayLike, inspection_cost: ArrayLike | Costs) -> Boxes:
        """Independent normal boxes with the local mean and standard deviation."""
        mean, std = self.moments(np.asarray(estimates, dtype=np.float64)[None])
        return Independent(mean[0], std[0], inspection_cost)

    def batch(self, cheap: ArrayLike, inspection_cost: ArrayLike | Costs) -> Batch:
        """The boxes of many prompts (N, M) at once."""
        return Batch(*self.moments(cheap), inspection_cost)


@dataclass(frozen=True)
class NeighbourSignal:
    """Mean and standard deviation of G over the K nearest calibration prompts in f space (paper, appendix).

    Ties in distance go to the earlier prompt. For a specialist with missing costly estimates the K nearest
    prompts that have one are used.
    """

    neighbours: int = 16

    def __post_init__(self) -> None:
        if self.neighbours < 2:
            raise UsageError(
                "neighbours", expected="2 or more", came=f"{self.neighbours}", do="The paper uses 16."
            )

    def fit(self, readings: Readings, train: Readings | None = None) -> FittedNeighbours:
        """Keep the calibration prompts; rewards and training prompts are not used."""
        readings = readings.enough(self.neighbours)
        return FittedNeighbours(readings.cheap, readings.costly, self.neighbours)


@dataclass(frozen=True, eq=False)
class FittedDraws(ValueIsEstimate):
    """Residuals (M, L, S), ascending, of each specialist in each of L classes of its mean.

    `edges` (M, L - 1) are the limits of the classes.
    """

    mean: FittedMean
    residuals: Matrix
    edges: Matrix

    def __post_init__(self) -> None:
        frozen_fields(self, "residuals", "edges")

    def expected(self, cheap: ArrayLike) -> Matrix:
        """The mean of G for each row of cheap estimates (N, M)."""
        return self.mean.of(estimates(cheap, len(self.edges), ndim=2))

    def spread(self, cheap: ArrayLike) -> Matrix:
        """The standard deviation of the draws (N, M)."""
        return self._std()[self._which(self.expected(cheap))]

    def boxes(self, estimates: ArrayLike, inspection_cost: ArrayLike | Costs) -> Boxes:
        """Independent boxes whose values are mu plus the residuals of its class."""
        mean = self.expected(np.asarray(estimates, dtype=np.float64)[None])
        draws = self.residuals[self._which(mean)][0]
        return Draws(mean[0][:, None] + draws, inspection_cost)

    def batch(self, cheap: ArrayLike, inspection_cost: ArrayLike | Costs) -> Batch:
        """The same laws as standardised quantiles of uncorrelated boxes."""
        mean = self.expected(cheap)
        std = self._std()
        laws = self.residuals / np.where(std > 0.0, std, 1.0)[:, :, None]
        boxes, classes, draws = laws.shape
        specialist, level = self._which(mean)
        return Batch(
            mean,
            std[specialist, level],
            inspection_cost,
            correlation=np.eye(boxes),
            quantiles=laws.reshape(boxes * classes, draws),
            rank=specialist * classes + level,
        )

    def _std(self) -> Matrix:
        return self.residuals.std(axis=2)

    def _which(self, mean: Matrix) -> tuple[np.ndarray, np.ndarray]:
        level = classify(mean, self.edges)
        return np.broadcast_to(np.arange(mean.shape[1]), level.shape), level


@dataclass(frozen=True)
class EmpiricalDraws:
    """G is its mean plus a residual drawn from those observed at similar means.

    See docs/method.md, section 3.

    Each specialist's means are divided into at most `classes` classes of equal size with at least `draws`
    prompts; the centred residuals of a class are compressed to `draws` equally likely values. Useful for
    bimodal g, where the law matters more than the policy or the correlation.
    """

    mean: MeanModel = field(default_factory=RidgeMean)
    classes: int = 5
    draws: int = 32

    def __post_init__(self) -> None:
        if self.classes < 1 or self.draws < 2:
            raise UsageError(
                "EmpiricalDraws",
                expected="1 or more classes and 2 or more draws",
                came=f"{self.classes} and {self.draws}",
                do="Leave the defaults.",
            )

    def fit(self, readings: Readings, train: Readings | None = None) -> FittedDraws:
        """Fit the mean and keep the residuals by class; rewards and training prompts are not used."""
        readings = readings.enough(max(self.draws, 8))
        mean, mu = self.mean.fit(readings)
        present = ~np.isnan(readings.costly)
        classes = int(np.clip(present.sum(axis=0).min() // self.draws, 1, self.classes))
        edges = cut(mu, present, classes)
        level = classify(mu, edges)
        residuals = np.empty((mu.shape[1], classes, self.draws))
        for j in range(mu.shape[1]):
            rest = (readings.costly - mu)[:, j]
            for k in range(classes):
                own = rest[present[:, j] & (level[:, j] == k)]
                residuals[j, k] = _compress(
                    own if len(own) >= self.draws else rest[present[:, j]], self.draws
                )
        return FittedDraws(mean, residuals, edges)


def _compress(residuals: Vector, draws: int) -> Vector:
    """`draws` equally likely values with the mean 0 and the standard deviation of the residuals."""
    groups = np.array([part.mean() for part in np.array_split(np.sort(residuals), draws)])
    centred = groups - groups.mean()
    spread = centred.std()
    return centred * (residuals.std() / spread) if spread > 0.0 else np.zeros(draws)
