"""Independent normal boxes: G_m ~ N(mean_m, std_m^2) (paper, section 4; docs/method.md, section 1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from pandora_router.boxes.base import Bookkeeping
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
