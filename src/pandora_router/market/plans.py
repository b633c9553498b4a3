r"""Markets over many prompts at once: plans of bidders, who looks at second price, and who wins.

What bidders will do, for many prompts at once: when each looks, and up to where it goes after that.

Every strategy here is a plan of two numbers per prompt and bidder: `call`, the clock price at which it looks
(if it `looks` at all), and `limit`, its final limit once it has looked. After a look a bidder is willing to
go as far as G + r: its refund r comes back if it wins. With these a whole clock is a matter of sorting
(`ascending`, `descending`, `second_price`), and a deviation is another column (`Plans.but`). Boxes have one
inspection each; what one bidder sees tells the others nothing.

Who looks before a sealed-bid auction at second price: a pure equilibrium of the inspection game.

Bidders bid what they know (dominant), so only the choice d of who looks is strategic. With P the highest
rival bid and r_j the refund of a look (which comes back if j wins), bidder j gains from looking

    B_j(d) = E[max(G_j + r_j, P)] - E[max(mu_j, P)] = \int H_{-j}(p) (Pr[G_j + r_j > p] - 1{mu_j > p}) dp,

H_{-j} the CDF of P. The expected surplus of j is the expected welfare with j minus the welfare without j, and
the latter does not depend on d_j: the game has expected welfare as exact potential. So best responses, one
bidder at a time, climb the welfare and end in an equilibrium, here the one that greedy steps reach from
"nobody looks". It is the best that looking all at once can do locally, not what looking in turn can do.
Boxes are independent (for dependent ones: their marginals).

The mechanisms over many prompts at once, and who gains what: sorting instead of calling.

Each function takes `Plans` and returns `Sales`, row for row what `trade` records for the same strategies
(a test holds them together). No reserve: every prompt is answered.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from pandora_router.boxes import Boxes
from pandora_router.boxes.checks import finite
from pandora_router.errors import UsageError
from pandora_router.index import TIE, normal_gain
from pandora_router.market.strategies import Moment, intervals
from pandora_router.search import Batch, Committing, Held
from pandora_router.search.payoffs import Outside
from pandora_router.search.policies import NOBODY
from pandora_router.types import Mask, Matrix, Positions, Vector


@dataclass(frozen=True, eq=False)
class Plans:
    """Whether, at which price and up to which limit: `looks`, `call` and `limit`, all (N, M).

    `cost` and `refund` (N, M) are what a look costs and what of it comes back to a bidder that wins.
    """

    looks: Mask
    call: Matrix
    limit: Matrix
    cost: Matrix
    refund: Matrix

    def but(self, bidder: int, other: Plans) -> Plans:
        """The same plans, except that one bidder follows `other`."""
        mine = np.arange(self.looks.shape[1]) == bidder
        return Plans(
            np.where(mine, other.looks, self.looks),
            np.where(mine, other.call, self.call),
            np.where(mine, other.limit, self.limit),
            self.cost,
            self.refund,
        )


def _shown(batch: Batch, values: ArrayLike) -> tuple[Matrix, Matrix, Matrix]:
    """What each box is worth once it is open (value + refund), costs of looking and refunds, all (N, M)."""
    shown = finite("values", values, ndim=2)
    if shown.shape != batch.mean.shape:
        raise UsageError(
            "values", expected=f"shape {batch.mean.shape}", came=f"{shown.shape}", do="Align with the means."
        )
    refund = np.broadcast_to(batch.costs.refund, shown.shape)
    return shown + refund, np.broadcast_to(batch.costs.marginal, shown.shape), refund


def covered_plans(batch: Batch, values: ArrayLike, *, sealed: bool = False, shade: float = 0.0) -> Plans:
    """`Covered` bidders: look at u, go to min(G + r, u), both minus `shade`."""
    shown, cost, refund = _shown(batch, values)
    price = intervals(batch)[1]
    looks = batch.mean < price if sealed else np.ones(shown.shape, dtype=np.bool_)
    limit = np.where(looks, np.minimum(shown, price), batch.mean) - shade
    return Plans(looks, price - shade, limit, cost, refund)


def myopic_plans(
    batch: Batch, values: ArrayLike, *, inspect_at: Moment = "backup", shade: float = 0.0
) -> Plans:
    """`Myopic` bidders: look at b (or the mean), stay up to G + r; up to the mean where b > u."""
    shown, cost, refund = _shown(batch, values)
    lower, upper = intervals(batch)
    looks = lower <= upper
    call = lower if inspect_at == "backup" else batch.mean
    limit = np.where(looks, np.maximum(shown - shade, call), batch.mean - shade)
    return Plans(looks, call, limit, cost, refund)


def sealed_plans(batch: Batch, values: ArrayLike, looks: Mask, *, shade: float = 0.0) -> Plans:
    """`Sealed` bidders: those who look bid G + r, the others the mean."""
    shown, cost, refund = _shown(batch, values)
    limit = np.where(looks, shown, batch.mean) - shade
    called = np.full(shown.shape, -np.inf)
    return Plans(np.broadcast_to(looks, shown.shape), called, limit, cost, refund)


def held_plans(batch: Batch, values: ArrayLike, held: ArrayLike, at: ArrayLike) -> Plans:
    """`Covered` bidders, except that bidder `held[i]` of prompt i (-1: none) bids `at[i]` unseen."""
    plans = covered_plans(batch, values)
    mine = np.arange(batch.mean.shape[1]) == np.asarray(held)[:, None]
    limit = np.where(mine, np.asarray(at, dtype=np.float64)[:, None], plans.limit)
    return Plans(plans.looks & ~mine, plans.call, limit, plans.cost, plans.refund)


def announced_holdout(batch: Batch, outside: Outside = "mean") -> tuple[Positions, Vector]:
    """The box the exact committing router would hold for each prompt (-1: none), and at which outside option.

    A platform that announces it turns the descending clock into that router (`held_plans`).
    """
    router = Committing(outside=outside, payoff="exact")
    chosen = [router.start(batch.state(i)) for i in range(len(batch))]
    held = [policy.box if isinstance(policy, Held) else NOBODY for policy in chosen]
    at = [policy.at if isinstance(policy, Held) else -np.inf for policy in chosen]
    return np.array(held, dtype=np.intp), np.array(at)


REACH = 6.0  # standard deviations around the mean that the price grid covers
TINY = 1e-200
CHUNK = 2**21  # table entries worked on at once


def inspection_equilibrium(batch: Batch, *, cells: int = 64) -> Mask:
    """Who looks in equilibrium, for every query of a batch of normal boxes (N, M).

    Prices are cut into `cells`; each box's own law is exact on them, products of laws are exact to
    O(width^2): 64 and 256 cells disagree on 1 prompt in 100, where a bidder is all but indifferent.
    """
    if batch.quantiles is not None:
        rows = [looking(batch.state(i).boxes, cells=cells) for i in range(len(batch))]
        return np.stack(rows)
    chosen = np.empty(batch.mean.shape, dtype=np.bool_)
    size = max(1, CHUNK // (batch.mean.shape[1] * cells))
    for lo in range(0, len(batch), size):
        mean, std = batch.mean[lo : lo + size], batch.std[lo : lo + size]
        opened = mean + batch.costs.refund  # a bidder that looked bids what it saw plus its refund
        low = _runner_up(mean - REACH * std)
        high = np.maximum((opened + REACH * std).max(axis=1), low + 1e-9)
        grid = low[:, None] + (high - low)[:, None] * np.linspace(0.0, 1.0, cells + 1)
        gain = normal_gain(opened[..., None], std[..., None], grid[:, None, :])
        chosen[lo : lo + size] = _settle(mean, gain, grid, batch.costs.marginal)
    return chosen


def looking(boxes: Boxes, *, cells: int = 64) -> Mask:
    """Who looks in equilibrium, for one query and any boxes (M,)."""
    # E[(G - mu)+] is 0.4 standard deviations of a normal law, and a scale for every other one
    reach = REACH / 0.4 * np.maximum(boxes.gain(boxes.mean), 1e-9)
    low = float(_runner_up((boxes.mean - reach)[None])[0])
    grid = np.linspace(low, float((boxes.mean + reach).max()), cells + 1)
    gain = np.stack([boxes.gain(p) for p in grid], axis=1)
    settled = _settle(boxes.mean[None], gain[None], grid[None], boxes.inspection_cost)
    return settled[0] & boxes.sealed


def _runner_up(low: Matrix) -> Vector:
    """A price the highest rival bid of no bidder stays below: the second largest of the lowest bids."""
    if low.shape[1] < 2:
        raise UsageError("bidders", expected="2 or more", came="1", do="Somebody else must set the price.")
    second: Vector = np.partition(low, -2, axis=1)[:, -2]
    return second


def _settle(mean: Matrix, gain: Matrix, grid: Matrix, cost: Vector) -> Mask:
    """Greedy best responses from "nobody looks"; `gain` is E[(G - p)+] on the grid (n, M, cells + 1).

    H_{-j} is the product over all divided by the own factor, which is kept above `TINY` for that purpose: a
    second factor of that size makes the product 0, as it should be.
    """
    width = np.diff(grid, axis=1)[:, None, :]
    seen = np.clip(1.0 + np.diff(gain, axis=2) / width, TINY, 1.0)  # Pr[G <= p], averaged over each cell
    certain = np.maximum(mean[..., None] - grid[:, None, :], 0.0)
    below = np.clip(1.0 + np.diff(certain, axis=2) / width, TINY, 1.0)
    worth = (below - seen) * width
    share = worth / below
    chosen = np.zeros(mean.shape, dtype=np.bool_)
    live = np.arange(len(mean))
    while len(live):
        together = below[live].prod(axis=1)
        benefit = np.matmul(share[live], together[:, :, None])[..., 0] - cost
        profit = np.where(chosen[live], -benefit, benefit)
        best = profit.argmax(axis=1)
        moves = profit[np.arange(len(live)), best] > 1e-9
        live, best = live[moves], best[moves]
        chosen[live, best] ^= True
        # `seen` keeps the factor of the other choice
        seen[live, best], below[live, best] = below[live, best], seen[live, best]
        share[live, best] = worth[live, best] / below[live, best]
    return chosen


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

    At the winning price standing limits come first (no further call), then calls by index. Prices that differ
    by rounding alone (`index.TIE`) are equal.
    """
    price = plans.limit.max(axis=1)[:, None]
    sizes = np.abs(np.where(np.isfinite(plans.limit), plans.limit, 0.0))
    equal = TIE * sizes.max(axis=1)[:, None]
    reached = plans.limit >= price - equal
    called = plans.looks & (np.abs(plans.call - price) <= equal)
    standing = reached & ~called
    by_call = ~standing.any(axis=1)
    winner = np.where(by_call, reached.argmax(axis=1), standing.argmax(axis=1))
    before = np.arange(plans.limit.shape[1]) <= winner[:, None]
    inspected = plans.looks & ((plans.call > price + equal) | (by_call[:, None] & called & before))
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
