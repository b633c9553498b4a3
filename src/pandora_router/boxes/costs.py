"""Inspection costs: a part of each box's own, and a shared part paid once with the first box of a group.

A scorer that rates all specialists in one pass is one purchase that opens many boxes: a group with a shared
cost and own costs of zero. What a policy sees is always the marginal cost in the present state.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from pandora_router.boxes.checks import locked, not_negative, same_length, whole
from pandora_router.errors import UsageError
from pandora_router.types import Positions, Vector

NO_GROUP = -1
NO_FEES = locked(np.zeros(0))
NO_GROUPS = np.zeros(0, dtype=np.intp)
NO_GROUPS.setflags(write=False)


@dataclass(frozen=True, eq=False)
class Costs:
    """Own cost per box, shared cost per group, and the group of each box (-1: none).

    >>> costs = Costs([0.01, 0.01, 0.0], shared=[0.05], group=[-1, 0, 0])
    >>> costs.marginal.tolist()
    [0.01, 0.060000000000000005, 0.05]
    >>> costs.paid(1).marginal.tolist()
    [0.01, 0.01, 0.0]
    """

    own: Vector
    shared: Vector = field(default_factory=lambda: np.zeros(0))
    group: Positions = field(default_factory=lambda: np.zeros(0, dtype=np.intp))

    def __init__(self, own: ArrayLike, shared: ArrayLike = (), group: Sequence[int] | Positions = ()) -> None:
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

    def __len__(self) -> int:
        return len(self.own)

    @property
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
        for name, part in (("own", self.own), ("shared", shared), ("group", self.group)):
            object.__setattr__(settled, name, part)
        return settled

    def mates(self, box: int) -> Positions:
        """Return the boxes of the unpaid group of `box` (itself alone if it has none)."""
        if not len(self.shared) or self.group[box] < 0 or self.shared[self.group[box]] == 0.0:
            return np.array([box], dtype=np.intp)
        return np.flatnonzero(self.group == self.group[box])


def as_costs(costs: ArrayLike | Costs, boxes: int) -> Costs:
    """Accept one number for all boxes, one per box, or `Costs`."""
    if not isinstance(costs, Costs):
        costs = Costs(np.array([costs] * boxes) if np.ndim(costs) == 0 else costs)
    same_length("inspection_cost", len(costs), boxes)
    return costs
