"""Inspection costs: a part of each box's own, a shared part paid once with the first box of a group, refunds.

A scorer that rates all specialists in one pass is one purchase that opens many boxes: a group with a shared
cost and own costs of zero. What a policy sees is always the marginal cost in the present state.

A look that begins the answer is a down-payment: if the opened box is chosen, part of its own cost comes back
(docs/method.md, section 10). Shared costs never do.

Part of an own cost may be waiting. Boxes that are bought together wait side by side, so the purchase costs
the longest of their waits, not the sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from pandora_router.boxes.checks import locked, not_negative, same_length, whole
from pandora_router.errors import UsageError
from pandora_router.types import Positions, Vector

NO_GROUP = -1
NO_FEES = NO_WAITS = locked(np.zeros(0))
NO_GROUPS = np.zeros(0, dtype=np.intp)
NO_GROUPS.setflags(write=False)


@dataclass(frozen=True, eq=False)
class Costs:
    """Own cost per box, shared cost per group, the group of each box (-1: none), and the refund per box.

    `refund` (one number for all boxes, or one per box) is the part of the own cost that comes back when the
    box is opened and then chosen; from 0 to the own cost. `wait` (the same) is the part of the own cost that
    is waiting: of boxes bought together only the longest is paid.

    >>> costs = Costs([0.01, 0.01, 0.0], shared=[0.05], group=[-1, 0, 0])
    >>> costs.marginal.tolist()
    [0.01, 0.060000000000000005, 0.05]
    >>> costs.paid(1).marginal.tolist()
    [0.01, 0.01, 0.0]
    >>> Costs([0.01, 0.02], refund=0.01).refund.tolist()
    [0.01, 0.01]
    >>> Costs([0.5, 0.75, 1.0], wait=[0.25, 0.5, 0.0]).spared([0, 1, 2])
    0.25
    """

    own: Vector
    shared: Vector = field(default_factory=lambda: np.zeros(0))
    group: Positions = field(default_factory=lambda: np.zeros(0, dtype=np.intp))
    refund: Vector = field(default_factory=lambda: np.zeros(0))
    wait: Vector = field(default_factory=lambda: np.zeros(0))

    def __init__(
        self,
        own: ArrayLike,
        shared: ArrayLike = (),
        group: Sequence[int] | Positions = (),
        refund: ArrayLike = 0.0,
        wait: ArrayLike = 0.0,
    ) -> None:
        checked = not_negative("inspection_cost", own)
        groups, fees = NO_GROUPS, NO_FEES
        if np.size(group) or np.size(shared):
            same_length("group", np.size(group), len(checked))
            groups = whole("group", group, ndim=1)
            fees = not_negative("shared inspection cost", shared)
            if groups.min() < NO_GROUP or groups.max() >= len(fees):
                raise UsageError(
                    "group",
                    expected=f"group numbers from 0 to {len(fees) - 1}, or {NO_GROUP} for a box without one",
                    came=f"numbers from {groups.min()} to {groups.max()}",
                    do="Give one shared cost per group.",
                )
        object.__setattr__(self, "own", checked)
        object.__setattr__(self, "shared", fees)
        object.__setattr__(self, "group", groups)
        object.__setattr__(self, "refund", _part_of_own("refund", refund, checked))
        waits = _part_of_own("wait", wait, checked) if np.any(wait) else NO_WAITS
        object.__setattr__(self, "wait", waits)

    def __len__(self) -> int:
        return len(self.own)

    @cached_property
    def marginal(self) -> Vector:
        """What opening each box would cost now, alone."""
        if not len(self.shared):
            return self.own
        return locked(self.own + np.where(self.group >= 0, self.shared[self.group], 0.0))

    def paid(self, box: int) -> Costs:
        """Return the costs once `box` has been bought: the shared part of its group is settled."""
        if not len(self.shared) or self.group[box] < 0 or self.shared[self.group[box]] == 0.0:
            return self
        shared = self.shared.copy()
        shared[self.group[box]] = 0.0
        locked(shared)
        settled = object.__new__(Costs)
        settled.__dict__.update(
            own=self.own, shared=shared, group=self.group, refund=self.refund, wait=self.wait
        )
        return settled

    def spared(self, boxes: Sequence[int] | Positions) -> float:
        """What buying these boxes together saves: all of their waits but the longest."""
        if not len(self.wait) or len(boxes) < 2:
            return 0.0
        waits = self.wait[np.asarray(boxes)]
        return float(waits.sum() - waits.max())

    def scaled(self, by: float) -> Costs:
        """Return the same costs in another unit: every part `by` times as large."""
        return Costs(by * self.own, by * self.shared, self.group, by * self.refund, by * self.wait)

    def only(self, boxes: Positions) -> Costs:
        """Return the costs of some boxes, in this order; shared costs stay what they are."""
        own, refund = locked(self.own[boxes]), locked(self.refund[boxes])
        group = self.group[boxes] if len(self.shared) else self.group
        group.setflags(write=False)
        chosen = object.__new__(Costs)
        wait = locked(self.wait[boxes]) if len(self.wait) else self.wait
        chosen.__dict__.update(own=own, shared=self.shared, group=group, refund=refund, wait=wait)
        return chosen

    def mates(self, box: int) -> Positions:
        """Return the boxes of the unpaid group of `box` (itself alone if it has none)."""
        if not len(self.shared) or self.group[box] < 0 or self.shared[self.group[box]] == 0.0:
            return np.array([box], dtype=np.intp)
        return np.flatnonzero(self.group == self.group[box])


WHY = {
    "refund": "Only what was paid for a box itself can come back; shared costs are not refunded.",
    "wait": "Count the price of waiting in the own cost of its box.",
}


def _part_of_own(name: str, part: ArrayLike, own: Vector) -> Vector:
    """One number per box, none above the own cost of its box."""
    if np.ndim(part) == 0:
        part = np.full(len(own), part)
    checked = not_negative(name, part, boxes=len(own))
    if (checked > own).any():
        j = int(np.argmax(checked > own))
        raise UsageError(
            name,
            expected="no more than the own inspection cost of its box",
            came=f"{checked[j]} of {own[j]} for box {j}",
            do=WHY[name],
        )
    return checked


def as_costs(costs: ArrayLike | Costs, boxes: int) -> Costs:
    """Accept one number for all boxes, one per box, or `Costs`."""
    if not isinstance(costs, Costs):
        costs = Costs(np.array([costs] * boxes) if np.ndim(costs) == 0 else costs)
    same_length("inspection_cost", len(costs), boxes)
    return costs
