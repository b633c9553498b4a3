"""Bidders: the posted prices at which a look pays, and how to answer a call.

Pandora's Bidder: one specialist, one posted price, and perhaps a look at its own box before it answers.

With the price p as outside option, seeing G before deciding is worth VoI(p) = E[(G + r - p)+] - (mu - p)+
(r: what comes back of the cost c if the bidder then accepts), and VoI(p) >= c exactly for b <= p <= u: for
p >= mu the left side is E[(G + r - p)+], whose root is the reservation price u; for p < mu it is
r + E[(p - r - G)+], whose root is the backup price b. This holds for every law with one
inspection left. Either b <= mu <= u, or u < mu < b and no price is worth an inspection.
Paper: section "Pandora's Bidder", equations (6) and (7); docs/method.md, section 1.

How a bidder answers a call: inspect its own box first, or bid, wait or leave.

A strategy sees the call and its own `State`, in which only its own box is ever opened: what the others saw
is theirs. `shade` moves limits (and, in a descending clock, the price of inspection) below the truthful
ones; the best-response check varies it for one bidder.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal, Protocol

import numpy as np

from pandora_router.boxes import Boxes
from pandora_router.errors import UsageError
from pandora_router.market.mechanisms import Answer, Bid, Call, Leave, Wait
from pandora_router.search import Batch
from pandora_router.search.payoffs import normal_law, outside_options, reservation_prices
from pandora_router.search.state import OUTSIDE, Action, Inspect, Memoryless, Policy, Select, State
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


Moment = Literal["backup", "mean"]


class Strategy(Protocol):
    """How to answer: a small frozen value without memory."""

    def next(self, call: Call, state: State) -> Inspect | Answer:
        """Inspect the own box, or answer the call."""


@dataclass(frozen=True)
class Covered:
    """For a falling clock: inspect when it reaches u, then take the prompt at min(G, u).

    Bidding min(G, u) covers the inspection: in expectation the (G - u)+ kept pays c, so a truthful bidder
    earns nothing, and the clock finds the box that Weitzman's search would take. With `sealed` a bidder
    whose mean exceeds its u (an inspection is worth less than it costs at any price) bids its mean unseen.
    """

    sealed: bool = False
    shade: float = 0.0

    def next(self, call: Call, state: State) -> Inspect | Answer:
        """Wait for u, look, bid the smaller of the value and the price at which it looked."""
        boxes, me = state.boxes, call.bidder
        limit = Bid(min(float(boxes.mean[me]) - self.shade, call.price))
        if not boxes.sealed[me]:
            return limit
        price = float(reservation_prices(boxes)[me])
        if self.sealed and boxes.mean[me] >= price:
            return limit
        return Inspect((me,)) if price - self.shade >= call.price else Wait(price - self.shade)


@dataclass(frozen=True)
class Myopic:
    """For a rising clock: inspect as soon as VoI(clock) >= c, stay in up to what is known then.

    That moment is the backup price b: below it the bidder would accept unseen. `inspect_at="mean"` is the
    patient variant that looks only when it would otherwise have to leave. With an empty interval it stays
    up to the mean and never looks.
    """

    inspect_at: Moment = "backup"
    shade: float = 0.0

    def __post_init__(self) -> None:
        if self.inspect_at not in ("backup", "mean"):
            raise UsageError(
                "inspect_at", expected="'backup' or 'mean'", came=repr(self.inspect_at), do="Choose one."
            )

    def next(self, call: Call, state: State) -> Inspect | Answer:
        """Wait for the moment, look, stay up to the value."""
        boxes, me = state.boxes, call.bidder
        mean = float(boxes.mean[me])
        if boxes.sealed[me]:
            lower, upper = (float(prices[me]) for prices in interval(boxes))
            moment = lower if self.inspect_at == "backup" else mean
            if lower <= upper and call.price <= upper:
                return Inspect((me,)) if call.price >= moment else Wait(moment)
        return Bid(mean - self.shade)


@dataclass(frozen=True)
class Sealed:
    """For sealed bids: look or do not look, decided beforehand, then bid what is known.

    Given what it knows this bid is dominant at second price; whether to look is a game between the bidders
    (`sealed.inspection_equilibrium`).
    """

    inspects: bool
    shade: float = 0.0

    def next(self, call: Call, state: State) -> Inspect | Answer:
        """Look if so decided, then bid."""
        if self.inspects and state.boxes.sealed[call.bidder]:
            return Inspect((call.bidder,))
        return Bid(float(state.boxes.mean[call.bidder]) - self.shade)


@dataclass(frozen=True)
class Guided:
    """For sealed bids with a public reserve: look iff the reserve is a price at which a look pays (b to u).

    A bidder of its own cannot compute the equilibrium that `Sealed` is told; the reserve is what it knows of
    the others. Then it bids what it knows.
    """

    shade: float = 0.0

    def next(self, call: Call, state: State) -> Inspect | Answer:
        """Look if the reserve lies in the interval, then bid."""
        boxes, me = state.boxes, call.bidder
        looks = False
        if boxes.sealed[me]:
            lower, upper = (float(prices[me]) for prices in interval(boxes))
            looks = lower <= call.price <= upper
        return Sealed(looks, self.shade).next(call, state)


@dataclass(frozen=True)
class Quoting:
    """For posted prices: asked a price answer as `Bidder`; asked without one (-inf), name a price.

    `looks`: whether a quote is made after a look (a strong opponent) or from the mean (a weak one).
    """

    looks: bool = True

    def next(self, call: Call, state: State) -> Inspect | Answer:
        """Quote or answer."""
        if call.price == -math.inf:
            return Sealed(self.looks).next(call, state)
        return Responding(Bidder(call.bidder)).next(call, state)


@dataclass(frozen=True)
class Unseen:
    """Bid a fixed limit without looking: a held box at its outside option, or a cheap estimate."""

    limit: float

    def next(self, call: Call, state: State) -> Inspect | Answer:
        """Bid the limit."""
        return Bid(self.limit)


@dataclass(frozen=True)
class Responding:
    """Answer a posted price with a search policy over the own box: outside option p, `OUTSIDE` declines."""

    policy: Policy

    def next(self, call: Call, state: State) -> Inspect | Answer:
        """Ask the policy with the posted price as outside option."""
        action = self.policy.next(replace(state, outside=call.price))
        if isinstance(action, Inspect):
            return action
        return Leave() if action.box == OUTSIDE else Bid(call.price)
