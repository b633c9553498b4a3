"""Boxes whose means all move with every opening: what one look shows may change what is thought of everybody.

The means are m_S = E[R | prompt, everything opened in S], for sealed boxes too (docs/method.md, section 12).
Opening box j replaces all of them, so `given` takes the new means of all boxes. In place of a covariance
there is the law of the next step: the movement of all means when j is opened is one of Q equally likely
vectors of mean 0, which may depend on what is open and on the present means,

    m_{S + j} = m_S + d_q,    d_q = law.steps(S, m_S, j)[q],    q uniform on 0 .. Q - 1.

A box that was opened is worth its mean plus its refund; later openings still move its mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol, Self

import numpy as np
from numpy.typing import ArrayLike

from pandora_router.boxes.base import DiscretePrices
from pandora_router.boxes.checks import finite, same_length, sealed_box
from pandora_router.boxes.costs import Costs, as_costs
from pandora_router.types import Mask, Matrix, Positions, Vector

News = float | Sequence[float]
"""What opening a box showed: its own value, or the new means of all boxes."""


class Movement(Protocol):
    """The law of the next step of N searches over M boxes at once."""

    def steps(self, opened: Mask, mean: Matrix, box: int) -> Matrix:
        """The equally likely movements (N, Q, M) of all means when `box` is opened; they average to 0.

        `opened` (N, M) says what is open and `mean` (N, M) what each box is thought to earn, refunds apart.
        """

    def only(self, boxes: Positions) -> Movement:
        """The law of some of the boxes, in this order, while the others stay sealed."""


@dataclass(frozen=True, eq=False)
class Moving(DiscretePrices):
    """M boxes with means that move together by a `Movement`.

    >>> class Coin:
    ...     def steps(self, opened, mean, box):
    ...         both = np.array([[0.2, 0.1], [-0.2, -0.1]])
    ...         return np.broadcast_to(both, (len(mean), 2, 2))
    >>> boxes = Moving([0.5, 0.6], Coin(), inspection_cost=0.01)
    >>> boxes.outcomes(0).tolist()
    [[0.7, 0.7], [0.3, 0.5]]
    >>> boxes.given(0, [0.81, 0.7]).mean.tolist()
    [0.81, 0.7]
    """

    PER_BOX: ClassVar[tuple[str, ...]] = ("mean", "sealed", "opened")
    mean: Vector
    law: Movement
    costs: Costs
    sealed: Mask
    opened: Mask

    def __init__(self, mean: ArrayLike, law: Movement, inspection_cost: ArrayLike | Costs) -> None:
        means = finite("mean", mean, ndim=1)
        self._fill(
            mean=means,
            law=law,
            costs=as_costs(inspection_cost, len(means)),
            sealed=np.ones(len(means), dtype=np.bool_),
            opened=np.zeros(len(means), dtype=np.bool_),
        )

    def at(self, worth: Vector, opened: Mask) -> Self:
        """The same law with other means, refunds of opened boxes included, where `opened` is open (M,)."""
        return self._changed(mean=worth, sealed=~opened, opened=opened)

    @property
    def bare(self) -> Vector:
        """The means without refunds (M,)."""
        return self.mean - np.where(self.opened, self.refund, 0.0)

    def only(self, boxes: Positions) -> Self:
        """Return some of the boxes, in this order, with their part of the law."""
        return super().only(boxes)._changed(law=self.law.only(boxes))

    def moved(self, by: Vector) -> Self:
        """Return the same boxes, each worth `by` (M,) more whatever it shows."""
        return self._changed(mean=self.mean + by, law=ShiftedMovement(self.law, by))

    def steps(self, box: int) -> Matrix:
        """The equally likely movements (Q, M) of all means when `box` is opened."""
        steps: Matrix = self.law.steps(self.opened[None], self.bare[None], box)[0]
        return steps

    def outcomes(self, box: int) -> Matrix:
        """What all boxes may be worth once `box` is open (Q, M), its refund included."""
        worths = self.mean + self.steps(box)
        worths[:, box] += self.refund[box]
        return worths

    def support(self) -> Matrix:
        """The equally likely next means of each box when it is opened itself (M, Q), ascending."""
        rows = [
            self.mean[j] + np.sort(self.steps(j)[:, j]) if self.sealed[j] else None
            for j in range(len(self.mean))
        ]
        width = max((len(row) for row in rows if row is not None), default=1)
        full = [np.full(width, self.mean[j]) if row is None else row for j, row in enumerate(rows)]
        return np.stack(full)

    @property
    def std(self) -> Vector:
        """The standard deviation of each box's own next mean; 0 where nothing is left to open."""
        return self.support().std(axis=1)

    def given(self, box: int, value: News) -> Self:
        """Open `box`: `value` has the new means of all boxes, or is that of `box` alone.

        Known the new mean of `box` alone, the others move by regression on it under the law. Raises
        `UsageError` for a box that is not sealed, a number that is not finite or a wrong count of means.
        """
        if np.ndim(value) == 0:
            means = self._regressed(box, float(value))  # type: ignore[arg-type]
        else:
            means = finite("the new means of all boxes", value, ndim=1)
            same_length("the new means of all boxes", len(means), len(self.mean))
            sealed_box(self.sealed, box, float(means[box]))
        opened = self.opened.copy()
        opened[box] = True
        worth = means + np.where(opened, self.refund, 0.0)
        return self._changed(**self._settled(box), mean=worth, opened=opened)

    def _regressed(self, box: int, value: float) -> Vector:
        sealed_box(self.sealed, box, value)
        steps = self.steps(box)
        own = steps[:, box]
        spread = float(own @ own)
        ratio = steps.T @ own / spread if spread > 0.0 else np.zeros(len(self.mean))
        means: Vector = self.bare + ratio * (value - self.mean[box])
        means[box] = value
        return means

    def sample(self, n: int, rng: np.random.Generator) -> Matrix:
        """Draw n outcomes (n, M): each box's own new mean, were the sealed boxes opened in order."""
        bare, opened = np.tile(self.bare, (n, 1)), np.tile(self.opened, (n, 1))
        drawn = np.tile(self.mean, (n, 1))
        for j in np.flatnonzero(self.sealed):
            steps = self.law.steps(opened, bare, int(j))
            bare = bare + steps[np.arange(n), rng.integers(steps.shape[1], size=n)]
            opened[:, j] = True
            drawn[:, j] = bare[:, j]
        return drawn

    def moved_by(self, order: Positions, ranks: Matrix) -> Matrix:
        """The worths (S, M) once `order` is opened in turn, refunds of `order` apart.

        `ranks` (S, n) from 0 to 1 pick the outcome of each step along the own movement of the box that is
        opened.
        """
        rows = np.arange(len(ranks))
        bare, opened = np.tile(self.bare, (len(rows), 1)), np.tile(self.opened, (len(rows), 1))
        for i, j in enumerate(order):
            steps = self.law.steps(opened, bare, int(j))
            count = steps.shape[1]
            place = np.minimum((ranks[:, i] * count).astype(np.intp), count - 1)
            along = np.argsort(steps[:, :, j], axis=1, kind="stable")
            bare = bare + steps[rows, along[rows, place]]
            opened[:, j] = True
        return bare + np.where(self.opened, self.refund, 0.0)


@dataclass(frozen=True, eq=False)
class ShiftedMovement:
    """The law of boxes that are all worth `by` (M,) more: it moves as the boxes it was fitted on."""

    law: Movement
    by: Vector

    def steps(self, opened: Mask, mean: Matrix, box: int) -> Matrix:
        """The movements at the means before the shift."""
        return self.law.steps(opened, mean - self.by, box)

    def only(self, boxes: Positions) -> Movement:
        """The law of some of the boxes."""
        return ShiftedMovement(self.law.only(boxes), self.by[boxes])


def value_of(news: News, box: int) -> float:
    """What `box` itself is thought to earn after news of it.

    >>> value_of(0.7, 1), value_of((0.2, 0.8), 1)
    (0.7, 0.8)
    """
    return float(news) if isinstance(news, int | float | np.number) else float(news[box])
