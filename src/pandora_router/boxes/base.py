"""What a search may know of unopened values: the `Boxes` protocol and what several kinds of boxes share.

M boxes are held as arrays and never change: opening one returns new boxes of the same type. A box is
*sealed* while there is an inspection left to buy. An opened box is worth its value plus what comes back of
its cost if it is chosen (the refund); a box whose inspection failed stays worth its mean but is no longer
sealed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike

from pandora_router.boxes.checks import sealed_box
from pandora_router.boxes.costs import Costs
from pandora_router.types import Mask, Matrix, Positions, Vector


@runtime_checkable
class Boxes(Protocol):
    """M boxes as arrays, immutable."""

    @property
    def mean(self) -> Vector:
        """What each box is worth if taken now (M,): of opened boxes the value plus the refund."""

    @property
    def costs(self) -> Costs:
        """The costs behind `inspection_cost`, with their shared parts."""

    @property
    def inspection_cost(self) -> Vector:
        """What opening each box alone would cost in the present state (M,)."""

    @property
    def refund(self) -> Vector:
        """What comes back of the next inspection of each box if it is chosen afterwards (M,)."""

    @property
    def sealed(self) -> Mask:
        """Whether there is an inspection left to buy (M,)."""

    @property
    def std(self) -> Vector:
        """The standard deviation of each box's next value (M,)."""

    def gain(self, outside: ArrayLike) -> Vector:
        """E[(G + refund - outside)+] of each next value; (mean - outside)+ where nothing is left to open."""

    def reservation_price(self) -> Vector:
        """The u with E[(G + r - u)+] = c, r the refund; the mean where nothing is left to open."""

    def backup_price(self) -> Vector:
        """The b with E[(b - r - G)+] = c - r; the mean where nothing is left to open."""

    def given(self, box: int, value: Any) -> Self:
        """Return what is known once `box` has shown `value`: a number, or the new means of all boxes."""

    def without(self, box: int) -> Self:
        """Return what is known once the inspection of `box` was paid for and failed."""

    def shut(self, which: Mask) -> Self:
        """Return the same boxes with those picked not for sale."""

    def only(self, boxes: Positions) -> Self:
        """Return some of the boxes, in this order, as if the others did not exist."""

    def moved(self, by: Vector) -> Self:
        """Return the same boxes, each worth `by` (M,) more, opened or not."""

    def sample(self, n: int, rng: np.random.Generator) -> Matrix:
        """Draw n joint outcomes of all values (n, M); opened boxes repeat what they are worth."""


class Bookkeeping:
    """Fields `mean`, `costs` and `sealed`, and how opening or losing a box changes the last two.

    `PER_BOX` names the fields that have one row per box.
    """

    PER_BOX: ClassVar[tuple[str, ...]] = ("mean", "sealed")
    mean: Vector
    costs: Costs
    sealed: Mask

    @property
    def inspection_cost(self) -> Vector:
        """What opening each box alone would cost in the present state (M,)."""
        return self.costs.marginal

    @property
    def refund(self) -> Vector:
        """What comes back of the next inspection of each box if it is chosen afterwards (M,)."""
        return self.costs.refund

    def __len__(self) -> int:
        return len(self.mean)

    def only(self, boxes: Positions) -> Self:
        """Return some of the boxes, in this order, as if the others did not exist."""
        per_box = {name: self.__dict__[name] for name in self.PER_BOX if self.__dict__.get(name) is not None}
        costs = {"costs": self.costs.only(boxes)} if "costs" in self.__dict__ else {}
        return self._changed(**{name: part[boxes] for name, part in per_box.items()}, **costs)

    def _changed(self, **fields: Any) -> Self:
        """Return a copy with some fields replaced, skipping the checks: they held for the original."""
        new = object.__new__(type(self))
        new.__dict__.update(self.__dict__)
        new._fill(**fields)
        return new

    def _fill(self, **fields: Any) -> None:
        """Set fields for good: arrays become read-only."""
        for part in fields.values():
            if isinstance(part, np.ndarray):
                part.setflags(write=False)
        self.__dict__.update(fields)

    def _settled(self, box: int) -> dict[str, Any]:
        """The fields that change because `box` has been paid for."""
        sealed = self.sealed.copy()
        sealed[box] = False
        return {"sealed": sealed, "costs": self.costs.paid(box)}

    def _opened(self, box: int, value: float) -> dict[str, Any]:
        """The fields that change because `box` showed `value`, dependence on others aside."""
        sealed_box(self.sealed, box, value)
        mean = self.mean.copy()
        mean[box] = value + self.refund[box]
        return {"mean": mean, **self._settled(box)}

    def without(self, box: int) -> Self:
        """Return what is known once the inspection of `box` was paid for and failed."""
        sealed_box(self.sealed, box, 0.0)
        return self._changed(**self._settled(box))

    def shut(self, which: Mask) -> Self:
        """Return the same boxes with those picked (M,) not for sale: nothing is paid, nothing is learnt."""
        return self._changed(sealed=self.sealed & ~which)

    def moved(self, by: Vector) -> Self:
        """Return the same boxes, each worth `by` (M,) more, opened or not."""
        return self._changed(mean=self.mean + by)


def discrete_gain(support: Matrix, outside: ArrayLike) -> Vector:
    """E[(G - v)+] for equally likely values in each row of `support` (M, S)."""
    v = np.asarray(outside, dtype=np.float64)
    gaps: Vector = np.maximum(support - (v[:, None] if v.ndim else v), 0.0).mean(axis=1)
    return gaps


def discrete_reservation_price(support: Matrix, cost: Vector) -> Vector:
    """The u with E[(G - u)+] = c, exactly: max over k of (sum of the k largest - S c)/k.

    For any k the k largest values give sum (x_i - u) <= S E[(G - u)+], with equality at the right k, so no
    root has to be found. Rows of `support` (M, S) ascend. At c = 0 this is the largest value.
    """
    draws = support.shape[1]
    totals = np.cumsum(support[:, ::-1], axis=1) - draws * cost[:, None]
    price: Vector = (totals / np.arange(1, draws + 1)).max(axis=1)
    return price


def discrete_backup_price(support: Matrix, cost: Vector, refund: ArrayLike = 0.0) -> Vector:
    """The b with E[(b - r - G)+] = c - r, exactly: the mirror image of the reservation price.

    `support` holds G + r. Where all of a cost comes back every look is free, and the price is -inf.
    """
    back = np.asarray(refund, dtype=np.float64)
    price = -discrete_reservation_price(-support[:, ::-1], cost - back)
    return np.where((back == cost) & (back > 0.0), -np.inf, price)


class Discrete(Protocol):
    """Boxes whose next values are finitely many and equally likely."""

    @property
    def sealed(self) -> Mask:
        """Whether there is an inspection left to buy (M,)."""

    @property
    def refund(self) -> Vector:
        """What comes back of the next inspection of each box if it is chosen afterwards (M,)."""

    def support(self) -> Matrix | None:
        """The equally likely next values of each box (M, S)."""


class DiscretePrices(Bookkeeping, ABC):
    """Gain and prices of boxes whose next values are finitely many and equally likely, exact for these."""

    mean: Vector
    sealed: Mask

    @abstractmethod
    def support(self) -> Matrix:
        """The equally likely next values of each box (M, S); its worth, repeated, if it is not sealed."""

    def gain(self, outside: ArrayLike) -> Vector:
        """E[(G + r - v)+], the mean over the next values G."""
        return discrete_gain(opened_worths(self), outside)

    def reservation_price(self) -> Vector:
        """The u with E[(G + r - u)+] = c; the mean where nothing is left to open."""
        price = discrete_reservation_price(opened_worths(self), self.inspection_cost)
        return np.where(self.sealed, price, self.mean)

    def backup_price(self) -> Vector:
        """The b with E[(b - r - G)+] = c - r; the mean where nothing is left to open."""
        price = discrete_backup_price(opened_worths(self), self.inspection_cost, self.refund)
        return np.where(self.sealed, price, self.mean)


def opened_worths(boxes: Discrete) -> Matrix:
    """What each box may be worth once it is open (M, S): its next values plus the refund."""
    support = boxes.support()
    assert support is not None
    return support + np.where(boxes.sealed, boxes.refund, 0.0)[:, None]
