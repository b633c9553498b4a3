"""The mechanisms over many prompts at once, and who gains what: sorting instead of calling.

Each function takes `Plans` and returns `Sales`, row for row what `trade` records for the same strategies
(a test holds them together). No reserve: every prompt is answered.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from pandora_router.errors import UsageError
from pandora_router.market.plans import Plans
from pandora_router.types import Mask, Matrix, Positions, Vector


@dataclass(frozen=True, eq=False)
class Sales:
    """Who answers (N,), at which price (N,), and who looked (N, M).

    `cost` and `refund` (N, M) are what a look costs and what of it comes back to a winner that looked.
    """

    winner: Positions
    price: Vector
    inspected: Mask
    cost: Matrix
    refund: Matrix

    def reward(self, rewards: ArrayLike) -> Vector:
        """The winners' rewards (N,)."""
        return np.take_along_axis(np.asarray(rewards, dtype=np.float64), self.winner[:, None], axis=1)[:, 0]

    @property
    def spent(self) -> Matrix:
        """What each bidder paid for looking (N, M), after the winner's refund."""
        paid = np.where(self.inspected, self.cost, 0.0)
        return paid - np.where(self.inspected & self._won, self.refund, 0.0)

    @property
    def refunded(self) -> Vector:
        """What came back of the winner's look (N,), 0 where it had not looked."""
        return np.where(self.inspected & self._won, self.refund, 0.0).sum(axis=1)

    @property
    def _won(self) -> Mask:
        return np.arange(self.inspected.shape[1]) == self.winner[:, None]

    @property
    def revenue(self) -> Vector:
        """What the winners paid (N,)."""
        return self.price

    def surplus(self, rewards: ArrayLike) -> Matrix:
        """What each bidder is left with (N, M)."""
        return np.where(self._won, np.asarray(rewards) - self.price[:, None], 0.0) - self.spent

    def welfare(self, rewards: ArrayLike) -> Vector:
        """The winner's reward minus all inspections net of refunds (N,) = revenue + all surpluses."""
        return self.reward(rewards) - self.spent.sum(axis=1)

    def regret(self, rewards: ArrayLike) -> Vector:
        """How far the welfare stays below the best reward had for free (N,)."""
        return np.max(np.asarray(rewards, dtype=np.float64), axis=1) - self.welfare(rewards)


def _rivals(plans: Plans) -> None:
    if plans.limit.shape[1] < 2:
        raise UsageError("bidders", expected="2 or more", came="1", do="Somebody else must set the price.")


def descending(plans: Plans) -> Sales:
    """A falling clock: the highest limit wins and is paid; whoever's call lies above it has looked.

    At the winning price standing limits come first (no further call), then calls by index.
    """
    price = plans.limit.max(axis=1)[:, None]
    reached = plans.limit == price
    called = plans.looks & (plans.call == price)
    standing = reached & ~called
    by_call = ~standing.any(axis=1)
    winner = np.where(by_call, reached.argmax(axis=1), standing.argmax(axis=1))
    before = np.arange(plans.limit.shape[1]) <= winner[:, None]
    inspected = plans.looks & ((plans.call > price) | (by_call[:, None] & called & before))
    return Sales(winner, price[:, 0], inspected, plans.cost, plans.refund)


def ascending(plans: Plans) -> Sales:
    """A rising clock: the last to stay wins at the price of the last exit; calls up to then were looks.

    Everything that happens is ordered by (price, exits before calls, exits by falling and calls by rising
    index). A bidder who looks and finds nothing above the clock goes at the moment of its call.
    """
    _rivals(plans)
    queries, bidders = plans.limit.shape
    index = np.arange(bidders)
    at_call = plans.looks & (plans.limit <= plans.call)
    phase = np.concatenate([at_call, np.ones_like(at_call)], axis=1)
    order = np.concatenate([np.where(at_call, index, -index), np.broadcast_to(index, at_call.shape)], axis=1)
    when = np.concatenate(
        [np.where(at_call, plans.call, plans.limit), np.where(plans.looks, plans.call, np.inf)], axis=1
    )
    place = np.empty(when.shape, dtype=np.intp)
    np.put_along_axis(
        place,
        np.lexsort((order, phase, when), axis=1),
        np.broadcast_to(np.arange(2 * bidders), when.shape),
        axis=1,
    )
    exits = place[:, :bidders]
    calls = np.where(at_call, exits, place[:, bidders:])  # looking and going may be one moment
    winner = exits.argmax(axis=1)
    last = np.partition(exits, -2, axis=1)[:, -2]
    loser = (exits == last[:, None]).argmax(axis=1)
    rows = np.arange(queries)
    inspected = plans.looks & (calls <= last[:, None])
    return Sales(winner, when[rows, loser], inspected, plans.cost, plans.refund)


def second_price(plans: Plans) -> Sales:
    """Sealed bids: the highest limit wins and pays the next; whoever looks has looked before bidding."""
    _rivals(plans)
    price = np.partition(plans.limit, -2, axis=1)[:, -2]
    return Sales(plans.limit.argmax(axis=1), price, plans.looks, plans.cost, plans.refund)
