"""Boxes that say nothing of each other: normal ones, and boxes known by draws.

Independent normal boxes: G_m ~ N(mean_m, std_m^2) (paper, section 4; docs/method.md, section 1).

Draws: each box's law is a set of equally likely values, and its prices are exact for it. For two-valued or
bimodal values the residual law matters more than the policy (docs/method.md, section 3). These boxes are
independent too: conditioning an empirical joint law on one exact value would leave one draw.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from pandora_router.boxes.base import Bookkeeping, DiscretePrices
from pandora_router.boxes.checks import finite, not_negative
from pandora_router.boxes.costs import Costs, as_costs
from pandora_router.index import normal_gain, price_offset
from pandora_router.types import Mask, Matrix, Vector


class NormalPrices(Bookkeeping):
    """Gains and prices of normal marginals N(mean, std^2), for every kind of box that has them."""

    std: Vector

    def gain(self, outside: ArrayLike) -> Vector:
        """E[(G + r - v)+] = s psi((v - mu - r)/s)."""
        opened = self.mean + np.where(self.sealed, self.refund, 0.0)
        return normal_gain(opened, np.where(self.sealed, self.std, 0.0), outside)

    def reservation_price(self) -> Vector:
        """The price u = mu + r + s T(c/s); the mean where nothing is left to open."""
        offset = price_offset(self.std, self.inspection_cost)
        return self.mean + np.where(self.sealed, self.refund + offset, 0.0)

    def backup_price(self) -> Vector:
        """The price b = mu + r - s T((c - r)/s); the mean where nothing is left to open."""
        offset = price_offset(self.std, self.inspection_cost - self.refund)
        return self.mean + np.where(self.sealed, self.refund - offset, 0.0)


@dataclass(frozen=True, eq=False)
class Independent(NormalPrices):
    """M independent normal boxes.

    >>> boxes = Independent(mean=[0.5, 0.4], std=[0.2, 0.3], inspection_cost=0.01)
    >>> boxes.reservation_price().round(4).tolist()
    [0.7511, 0.8329]
    >>> boxes.given(1, 0.7).mean.tolist()
    [0.5, 0.7]
    """

    PER_BOX: ClassVar[tuple[str, ...]] = ("mean", "sealed", "std")
    mean: Vector
    std: Vector
    costs: Costs
    sealed: Mask

    def __init__(self, mean: ArrayLike, std: ArrayLike, inspection_cost: ArrayLike | Costs) -> None:
        means = finite("mean", mean, ndim=1)
        self._fill(
            mean=means,
            std=not_negative("std", std, boxes=len(means)),
            costs=as_costs(inspection_cost, len(means)),
            sealed=np.ones(len(means), dtype=np.bool_),
        )

    @classmethod
    def known(cls, mean: Vector, std: Vector, costs: Costs, sealed: Mask) -> Self:
        """Return boxes from parts of other, already checked boxes, some of them perhaps open."""
        boxes = object.__new__(cls)
        boxes._fill(mean=mean, std=std, costs=costs, sealed=sealed)
        return boxes

    def given(self, box: int, value: float) -> Self:
        """Open `box`; the other boxes do not change."""
        fields = self._opened(box, value)
        std = self.std.copy()
        std[box] = 0.0
        return self._changed(std=std, **fields)

    def sample(self, n: int, rng: np.random.Generator) -> Matrix:
        """Draw n outcomes (n, M)."""
        return self.mean + self.std * rng.standard_normal((n, len(self)))


@dataclass(frozen=True, eq=False)
class Draws(DiscretePrices):
    """M independent boxes, box m taking each of `samples[m]` with the same probability.

    >>> boxes = Draws([[0.0, 1.0], [0.4, 0.6]], inspection_cost=0.1)
    >>> boxes.reservation_price().round(3).tolist()
    [0.8, 0.4]
    """

    PER_BOX: ClassVar[tuple[str, ...]] = ("mean", "sealed", "samples")
    mean: Vector
    samples: Matrix
    costs: Costs
    sealed: Mask

    def __init__(self, samples: ArrayLike, inspection_cost: ArrayLike | Costs) -> None:
        table = np.sort(finite("samples", samples, ndim=2), axis=1)
        self._fill(
            samples=table,
            mean=table.mean(axis=1),
            costs=as_costs(inspection_cost, len(table)),
            sealed=np.ones(len(table), dtype=np.bool_),
        )

    @property
    def std(self) -> Vector:
        """The standard deviation of each next value; 0 where nothing is left to open."""
        gaps = np.abs(self.samples - self.samples.mean(axis=1, keepdims=True))
        size = np.maximum(gaps.max(axis=1), 5e-324)  # squares of gaps may be too large or too small to write
        return np.where(self.sealed, size * np.sqrt(((gaps / size[:, None]) ** 2).mean(axis=1)), 0.0)

    def support(self) -> Matrix:
        """The values each box may still show (M, S); its worth repeated where nothing is left to open."""
        return np.where(self.sealed[:, None], self.samples, self.mean[:, None])

    def given(self, box: int, value: float) -> Self:
        """Open `box`; the value need not be one of its draws."""
        return self._changed(**self._opened(box, value))

    def moved(self, by: Vector) -> Self:
        """Return the same boxes with their draws and means `by` (M,) higher."""
        return self._changed(mean=self.mean + by, samples=self.samples + by[:, None])

    def sample(self, n: int, rng: np.random.Generator) -> Matrix:
        """Draw n outcomes (n, M), each box on its own."""
        pick = rng.integers(self.samples.shape[1], size=(n, len(self)))
        return self.support()[np.arange(len(self)), pick]
