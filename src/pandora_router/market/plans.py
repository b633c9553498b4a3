"""What bidders will do, for many prompts at once: when each looks, and up to where it goes after that.

Every strategy here is a plan of two numbers per prompt and bidder: `call`, the clock price at which it looks
(if it `looks` at all), and `limit`, its final limit once it has looked. After a look a bidder is willing to
go as far as G + r: its refund r comes back if it wins. With these a whole clock is a matter
of sorting (`clocks`), and a deviation is another column (`Plans.but`). Boxes have one inspection each; what
one bidder sees tells the others nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from pandora_router.boxes.checks import finite
from pandora_router.errors import UsageError
from pandora_router.market.bidder import intervals
from pandora_router.market.strategies import Moment
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
