"""Pandora's Bidder: one specialist, one posted price, and perhaps a look at its own box before it answers.

With the price p as outside option, seeing G before deciding is worth VoI(p) = E[(G + r - p)+] - (mu - p)+
(r: what comes back of the cost c if the bidder then accepts), and VoI(p) >= c exactly for b <= p <= u: for
p >= mu the left side is E[(G + r - p)+], whose root is the reservation price u; for p < mu it is
r + E[(p - r - G)+], whose root is the backup price b. This holds for every law with one
inspection left. Either b <= mu <= u, or u < mu < b and no price is worth an inspection.
Paper: section "Pandora's Bidder", equations (6) and (7); docs/method.md, section 1.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pandora_router.boxes import Boxes
from pandora_router.search import Batch, Inspect, Select, State
from pandora_router.search.payoffs import normal_law, outside_options, reservation_prices
from pandora_router.search.state import OUTSIDE, Action, Memoryless
from pandora_router.types import Matrix, Vector


def interval(boxes: Boxes) -> tuple[Vector, Vector]:
    """The posted prices [b, u] at which each box is worth inspecting (M,), (M,); empty where b > u.

    >>> from pandora_router.boxes import Independent
    >>> [p.round(4).tolist() for p in interval(Independent([0.5, 0.4], [0.2, 0.3], 0.01))]
    [[0.2489, -0.0329], [0.7511, 0.8329]]
    """
    upper = reservation_prices(boxes)
    if normal_law(boxes) and not boxes.refund.any():  # symmetric: one price gives the other
        return 2.0 * boxes.mean - upper, upper
    return outside_options(boxes, "backup"), upper


def intervals(batch: Batch) -> tuple[Matrix, Matrix]:
    """The intervals [b, u] of every query and box of a batch (N, M), (N, M), nothing opened yet."""
    upper, lower = batch.prices()
    return lower, upper


def value_of_information(boxes: Boxes, price: float) -> Vector:
    """VoI(p) = E[(G + r - p)+] - (mu - p)+ of each box against a posted price (M,); never negative."""
    return np.maximum(boxes.gain(price) - np.maximum(boxes.mean - price, 0.0), 0.0)


@dataclass(frozen=True)
class Bidder(Memoryless):
    """Answer the posted price `state.outside` for one box: `Select(box)` accepts, `Select(OUTSIDE)` declines.

    Inspects iff the box is sealed and b <= p <= u; accepts iff what it knows then exceeds p. With an empty
    interval that is: accept iff mu > p.

    >>> from pandora_router.boxes import Independent
    >>> from pandora_router.search import drive, reveal
    >>> drive(Bidder(), State(Independent([0.5], [0.2], 0.01), outside=0.6), reveal([0.7])).actions
    (Inspect(boxes=(0,)), Select(box=0))
    """

    box: int = 0

    def next(self, state: State) -> Action:
        """Look if the price lies where a look pays, then compare."""
        boxes, price = state.boxes, state.outside
        if boxes.sealed[self.box]:
            lower, upper = interval(boxes)
            if lower[self.box] <= price <= upper[self.box]:
                return Inspect((self.box,))
        return Select(self.box if boxes.mean[self.box] > price else OUTSIDE)
