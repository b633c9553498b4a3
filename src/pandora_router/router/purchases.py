"""A purchase during a decision: `deciding` yields an `Ask` and is sent a `Paid`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from pandora_router.router.decision import PurchaseStatus
from pandora_router.search import Inspect, State
from pandora_router.search.gradient import gradient
from pandora_router.search.groups import group_gain, group_normals
from pandora_router.types import Vector

Offered = Mapping[str, str]
"""Beginnings of answers, by specialist."""
LONGEST_CONTEXT = 1_000_000
"""Most characters of a context; the rest is ignored."""
OUTCOMES = 256  # joint outcomes over which the worth of opening several boxes is averaged


@dataclass(frozen=True)
class Ask:
    """A request for costly estimates of one prompt, in one purchase.

    specialists: those to estimate now; looks at them can be made at the same time.
    opened: those bought before whose estimates arrived, in order.
    contexts: what the estimator may read: the contexts of specialists paid for so far, including these if
        known.
    """

    prompt: str
    specialists: tuple[str, ...]
    contexts: Mapping[str, str]
    opened: tuple[str, ...] = ()


@dataclass(frozen=True)
class Paid:
    """The result of an `Ask`: one estimate per specialist, in order, NaN where there is none.

    seconds: how long it took. fee: what an upstream charged in money, None if unknown.
    failure: why there is no estimate, for people to read.
    late: whether the deadline of the decision has passed, so that nothing more is bought.
    begun: false if the purchase was not made and costs nothing; then there are no estimates.
    contexts: what was seen during the purchase, by specialist; later asks carry it.
    everyone: the estimates of all specialists of the router given everything opened, for routers whose
        estimates depend on that; others ignore it.
    """

    estimates: Sequence[float] | Vector
    seconds: float = 0.0
    fee: float | None = None
    failure: str | None = None
    late: bool = False
    begun: bool = True
    contexts: Mapping[str, str] = field(default_factory=dict)
    everyone: Sequence[float] | Vector | None = None

    @classmethod
    def nothing(cls, ask: Ask, failure: str, seconds: float = 0.0, *, late: bool = False) -> Paid:
        """The purchase was made, but no estimate arrived."""
        return cls([math.nan] * len(ask.specialists), seconds, failure=failure, late=late)

    @classmethod
    def too_late(cls) -> Paid:
        """The purchase was not made because the deadline of the decision has passed."""
        return cls([], late=True, begun=False)


def worth(state: State, inspect: Inspect) -> float:
    """Expected improvement of the best choice by opening these boxes, before their cost.

    For several boxes an average over joint outcomes, but at least the worth of the best of them alone, since
    more information is never worth less.
    """
    alone = float(gradient(state.boxes, state.outside)[list(inspect.boxes)].max())
    if len(inspect.boxes) == 1:
        return alone
    members = np.array(inspect.boxes, dtype=np.intp)
    normals = group_normals(0, OUTCOMES, len(state.boxes.mean))
    return max(alone, group_gain(state.boxes, members, state.outside, normals))


def status_of(estimates: Sequence[float | None], late: bool) -> PurchaseStatus:
    """The status of a purchase with these estimates, None where nothing arrived."""
    if None not in estimates:
        return PurchaseStatus.ARRIVED
    if any(g is not None for g in estimates):
        return PurchaseStatus.PARTLY
    return PurchaseStatus.LATE if late else PurchaseStatus.FAILED
