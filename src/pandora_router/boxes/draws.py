"""Boxes known by draws: each box's law is a set of equally likely values, and its prices are exact for it.

For two-valued or bimodal values the residual law matters more than the policy (docs/method.md, section 3).
Boxes are independent of each other: conditioning an empirical joint law on one exact value would leave one
draw.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from pandora_router.boxes.base import DiscretePrices
from pandora_router.boxes.checks import finite
from pandora_router.boxes.costs import Costs, as_costs
from pandora_router.types import Mask, Matrix, Vector


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
