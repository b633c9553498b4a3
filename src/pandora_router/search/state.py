"""A search as a value: what is known and spent so far, and the only two things a policy can say.

A policy sees a `State` and answers `Inspect` or `Select`. It never holds a value that was not opened, so no
policy can use a value before it is paid for. Only `State.observe` and `State.lose` charge; what comes back of
the cost of the box that is chosen is given back once, when the search ends.
A failed inspection is data: the money is gone, the box stays worth its mean and cannot be inspected again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np

from pandora_router.boxes import Boxes
from pandora_router.boxes.moving import News, value_of
from pandora_router.errors import UsageError
from pandora_router.index import TIE
from pandora_router.types import Positions, Vector

OUTSIDE = -1  # `Select(OUTSIDE)` takes the outside option instead of a box


@dataclass(frozen=True, slots=True)
class Inspect:
    """Buy the next value of these boxes, in one purchase."""

    boxes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Select:
    """Stop and take this box, opened or sealed (or the outside option)."""

    box: int


Action = Inspect | Select


def margin(mean: Vector) -> Vector:
    """The difference up to which worths of boxes with these means (..., M) count as equal: (..., 1)."""
    largest: Vector = np.abs(mean).max(axis=-1, keepdims=True)
    return TIE * largest


def first_highest(values: Vector, margin: Vector) -> Positions:
    """The position of the highest value; of those within `margin` of it the lowest, over the last axis.

    Copies of one specialist have equal worths in theory. In floating point they differ in the last digits,
    by the order of the operations that led to them, so an exact argmax would be decided by rounding.
    """
    top: Positions = (values >= values.max(axis=-1, keepdims=True) - margin).argmax(axis=-1)
    return top


def snapped(values: Vector, margin: Vector) -> Vector:
    """The values (..., M), each raised to the highest that exceeds it by `margin` at most."""
    with np.errstate(invalid="ignore"):  # -inf - -inf
        near = values[..., None, :] - values[..., :, None] <= margin[..., None]
    raised: Vector = np.where(near, values[..., None, :], -np.inf).max(axis=-1)
    return raised


class Worth(NamedTuple):
    """A box (or `OUTSIDE`) and what it is worth."""

    box: int
    value: float


@dataclass(frozen=True, slots=True)
class State:
    """What is known (`boxes`), what can be had elsewhere (`outside`), what was paid, what was opened."""

    boxes: Boxes
    outside: float = -np.inf
    spent: float = 0.0
    opened: tuple[Worth, ...] = field(default=())
    refunds: tuple[float, ...] = field(default=())  # of each opening, if its box is chosen

    def __post_init__(self) -> None:
        if not isinstance(self.outside, int | float | np.number) or not self.outside < np.inf:
            raise UsageError(
                "outside",
                expected="the worth of not taking any box: a number, or -inf if one must be taken",
                came=f"{self.outside}",
                do="Leave it out if there is no outside option.",
            )

    def observe(self, box: int, value: News) -> State:
        """Pay the marginal cost of `box` and learn its value, or the new means of all boxes."""
        boxes = self.boxes.given(box, value)  # checks before anything is charged
        spent = self.spent + float(self.boxes.inspection_cost[box])
        refunds = (*self.refunds, float(self.boxes.refund[box]))
        return State(boxes, self.outside, spent, (*self.opened, Worth(box, value_of(value, box))), refunds)

    def lose(self, box: int) -> State:
        """Pay the marginal cost of `box` and learn nothing: it can no longer be inspected."""
        boxes = self.boxes.without(box)
        spent = self.spent + float(self.boxes.inspection_cost[box])
        return State(boxes, self.outside, spent, self.opened, self.refunds)

    def bill(self, boxes: Sequence[int]) -> float:
        """What opening these boxes together costs: own costs, shared costs not paid yet, the longest wait."""
        costs = self.boxes.costs
        total = -costs.spared(boxes)
        for box in boxes:
            total += float(costs.marginal[box])
            costs = costs.paid(box)
        return total

    def refund(self, box: int) -> float:
        """What comes back if the search ends with `box`: the refunds of its openings, 0 if it is sealed."""
        return sum(
            (back for worth, back in zip(self.opened, self.refunds, strict=True) if worth.box == box), 0.0
        )

    @property
    def best(self) -> Worth:
        """The best of the outside option and the boxes with nothing left to open; ties go to the lowest."""
        worth = np.where(self.boxes.sealed, -np.inf, self.boxes.mean)
        box = int(worth.argmax())
        return Worth(box, float(worth[box])) if worth[box] > self.outside else Worth(OUTSIDE, self.outside)

    @property
    def richest(self) -> Worth:
        """The best thing to take now, sealed or not: the argmax of the mean, or the outside option."""
        box = int(first_highest(self.boxes.mean, margin(self.boxes.mean)))
        worth = float(self.boxes.mean[box])
        return Worth(box, worth) if worth > self.outside else Worth(OUTSIDE, self.outside)


@dataclass(frozen=True, slots=True)
class Trace:
    """What happened: the actions in order, what each `Inspect` showed (None: it failed), and the bill.

    `spent` is net of `refunded`, the part of the cost of the chosen box that came back.
    """

    actions: tuple[Action, ...]
    values: tuple[tuple[News | None, ...], ...]
    spent: float
    refunded: float = 0.0

    @property
    def selected(self) -> int:
        """The box that was taken (`OUTSIDE` for none)."""
        last = self.actions[-1]
        assert isinstance(last, Select)
        return last.box

    @property
    def inspected(self) -> tuple[int, ...]:
        """The boxes paid for, in order."""
        return tuple(box for action in self.actions if isinstance(action, Inspect) for box in action.boxes)


class Policy(Protocol):
    """How to search: a small frozen value without memory."""

    def start(self, state: State) -> Policy:
        """Return the policy to follow from here; one that plans ahead fixes its plan now."""

    def next(self, state: State) -> Action:
        """Say what to do in this state."""


class Memoryless:
    """A policy that needs no plan: it decides from the state alone."""

    def start(self, state: State) -> Policy:
        """Return the policy itself."""
        return self  # type: ignore[return-value]
