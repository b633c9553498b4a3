"""The posted-price experiment over a whole table: every specialist in turn faces the best of the others.

For prompt i and held-out specialist m the price is p = max over j != m of G_j + r_j (strong opponents, who
looked) or of f_j (weak ones, who did not), and the one who sets it (lowest index on ties) answers if m
declines. r_j is the refund of a look at j: the part of its cost that comes back if j answers. Maxima over the
others come from the two best of each row. What m does:

    f-only          accept iff f_m > p
    never inspect   accept iff mu_m > p (the paper's "f-only" when bidding)
    always inspect  look, accept iff G_m + r_m > p (the paper's "g-always")
    bidder          look iff b <= p <= u; accept iff G_m + r_m > p after a look, mu_m > p without one

Surplus is (R_m - p) if accepted, efficiency the reward of whoever answers, both minus what m's inspections
cost after refunds. Two references, both free of inspections: one that knows G_m (accepts iff G_m > p) and
hindsight on R (surplus (R_m - p)+, efficiency max(R_m, R_rival)). Paper: sections "Pandora's Bidder" and
"Auctions against weak opponents"; docs/method.md, section 5, points 2 and 3: the paper's own curves fit
hindsight.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from pandora_router.boxes import Costs
from pandora_router.boxes.checks import finite, not_negative
from pandora_router.boxes.costs import as_costs
from pandora_router.errors import UsageError
from pandora_router.index import price_offset
from pandora_router.types import Mask, Matrix, Positions, Vector

Opponents = Literal["strong", "weak"]
Conduct = Literal["f-only", "never inspect", "always inspect", "bidder"]
Reference = Literal["value", "hindsight"]
Measure = Literal["surplus", "efficiency"]


def _one_of(name: str, came: str, choices: tuple[str, ...]) -> None:
    if came not in choices:
        raise UsageError(name, expected=f"one of {', '.join(choices)}", came=repr(came), do="Choose one.")


def best_of_others(scores: Matrix) -> tuple[Matrix, Positions]:
    """For each entry of a row the largest score of the others and where it is (N, M), (N, M).

    >>> [a.tolist() for a in best_of_others(np.array([[0.3, 0.9, 0.5]]))]
    [[[0.9, 0.5, 0.9]], [[1, 2, 1]]]
    """
    if scores.shape[1] < 2:
        raise UsageError("specialists", expected="2 or more", came="1", do="Somebody must set the price.")
    rows = np.arange(len(scores))
    first = scores.argmax(axis=1)
    rest = scores.copy()
    rest[rows, first] = -np.inf
    second = rest.argmax(axis=1)
    rival = np.where(np.arange(scores.shape[1]) == first[:, None], second[:, None], first[:, None])
    return np.take_along_axis(scores, rival, axis=1), rival


@dataclass(frozen=True, eq=False)
class Bidding:
    """One conduct at one inspection cost, prompt by prompt (N,), averaged over the held-out specialist.

    `others_cost` is what strong opponents paid for the estimates that set the prices, after the refund of the
    one who answers (0 for weak opponents).
    """

    surplus: Vector
    efficiency: Vector
    inspections: Vector
    accepted: Vector
    others_cost: Vector
    best: dict[tuple[Reference, Measure], Vector]

    def regret(self, measure: Measure, *, against: Reference = "hindsight", counted: bool = False) -> Vector:
        """How far a measure stays below its reference (N,); `counted` charges the others' inspections too."""
        _one_of("measure", measure, get_args(Measure))
        _one_of("against", against, get_args(Reference))
        if counted and measure == "surplus":
            raise UsageError(
                "counted", expected="efficiency", came="surplus", do="Others' costs are not the bidder's."
            )
        own = self.surplus if measure == "surplus" else self.efficiency
        return self.best[against, measure] - own + (self.others_cost if counted else 0.0)


@dataclass(frozen=True, eq=False)
class _Stakes:
    """Posted prices, who sets them, what acceptance is worth (R_m - p) and the reward of the price setter.

    `best` has what the two references earn, prompt by prompt.
    """

    price: Matrix
    rival: Positions
    stake: Matrix
    fallback: Matrix
    best: dict[tuple[Reference, Measure], Vector]


@dataclass(frozen=True, eq=False)
class LeaveOneOut:
    """A table of f, mu, G and R (N, M) in which every specialist in turn faces a posted price.

    `std` is that of G given f: one per specialist (M,) or per entry (N, M). Prices depend on refunds
    alone, so a sweep over costs without refunds computes them once.
    """

    scores: Matrix
    mean: Matrix
    std: Matrix
    values: Matrix
    rewards: Matrix
    opponents: Opponents = "strong"
    _known: dict[bytes, _Stakes] = field(default_factory=dict, repr=False)

    def __init__(
        self,
        scores: ArrayLike,
        mean: ArrayLike,
        std: ArrayLike,
        values: ArrayLike,
        rewards: ArrayLike,
        *,
        opponents: Opponents = "strong",
    ) -> None:
        _one_of("opponents", opponents, get_args(Opponents))
        given = {"scores": scores, "mean": mean, "values": values, "rewards": rewards}
        tables = {name: finite(name, table, ndim=2) for name, table in given.items()}
        shape = tables["mean"].shape
        for name, table in tables.items():
            if table.shape != shape:
                raise UsageError(
                    name, expected=f"shape {shape}", came=f"{table.shape}", do="Align with the means."
                )
        spread = np.asarray(std, dtype=np.float64)
        per_entry = finite("std", spread, ndim=2) if spread.ndim == 2 else not_negative("std", spread)[None]
        if per_entry.shape[1] != shape[1] or len(per_entry) not in (1, shape[0]) or (per_entry < 0.0).any():
            raise UsageError(
                "std",
                expected=f"{shape[1]} numbers from 0 upward, or one per entry of shape {shape}",
                came=f"shape {spread.shape}, smallest {spread.min():.3g}",
                do="Give the standard deviation of the value given the cheap estimates.",
            )
        self.__dict__.update(tables, std=per_entry, opponents=opponents, _known={})

    def posted(self, inspection_cost: ArrayLike | Costs = 0.0) -> tuple[Matrix, Positions]:
        """The posted price of every prompt and held-out specialist (N, M), and who sets it (N, M).

        Of the inspection costs only refunds matter: a strong opponent bids what it saw plus its refund.
        """
        stakes = self._stakes(self._costs(inspection_cost).refund)
        return stakes.price, stakes.rival

    def _stakes(self, refund: Vector) -> _Stakes:
        """What does not depend on costs once refunds (M,) are known; computed once for each of them."""
        key = refund.tobytes() if self.opponents == "strong" else b""
        if key not in self._known:
            bids = self.values + refund if self.opponents == "strong" else self.scores
            price, rival = best_of_others(bids)
            stake, fallback = self.rewards - price, np.take_along_axis(self.rewards, rival, axis=1)
            gains = self.values > price  # G_m is known for free: nothing was paid that could come back
            best: dict[tuple[Reference, Measure], Vector] = {
                ("value", "surplus"): np.where(gains, stake, 0.0).mean(axis=1),
                ("value", "efficiency"): np.where(gains, self.rewards, fallback).mean(axis=1),
                ("hindsight", "surplus"): np.maximum(stake, 0.0).mean(axis=1),
                ("hindsight", "efficiency"): np.maximum(self.rewards, fallback).mean(axis=1),
            }
            self._known[key] = _Stakes(price, rival, stake, fallback, best)
        return self._known[key]

    def interval(self, inspection_cost: ArrayLike | Costs) -> tuple[Matrix, Matrix]:
        """The normal interval [b, u] = [mu + r - s T((c - r)/s), mu + r + s T(c/s)] (N, M), (N, M)."""
        costs = self._costs(inspection_cost)
        cost, back = (np.broadcast_to(part, self.std.shape) for part in (costs.own, costs.refund))
        lower = self.mean + (back - price_offset(self.std, cost - back))
        return lower, self.mean + (back + price_offset(self.std, cost))

    def _costs(self, inspection_cost: ArrayLike | Costs) -> Costs:
        costs = as_costs(inspection_cost, self.mean.shape[1])
        if len(costs.shared):
            raise UsageError(
                "inspection_cost",
                expected="own costs alone: each bidder pays for its own look",
                came=f"{len(costs.shared)} shared costs",
                do="Give every specialist a cost of its own.",
            )
        return costs

    def _conduct(
        self, conduct: Conduct, costs: Costs, price: Matrix, interval: tuple[Matrix, Matrix] | None
    ) -> tuple[Mask, Mask]:
        """Whether each held-out specialist looks and whether it accepts (N, M), (N, M)."""
        _one_of("conduct", conduct, get_args(Conduct))
        nobody = np.zeros(price.shape, dtype=np.bool_)
        if conduct == "f-only":
            return nobody, self.scores > price
        if conduct == "never inspect":
            return nobody, self.mean > price
        gains = self.values + costs.refund > price
        if conduct == "always inspect":
            return ~nobody, gains
        lower, upper = interval if interval is not None else self.interval(costs)
        looks = (lower <= price) & (price <= upper)
        return looks, np.where(looks, gains, self.mean > price)

    def play(
        self,
        conduct: Conduct,
        inspection_cost: ArrayLike | Costs,
        *,
        interval: tuple[Matrix, Matrix] | None = None,
    ) -> Bidding:
        """Play one conduct at one inspection cost: a number, one per specialist, or `Costs` with refunds.

        `interval` replaces the normal [b, u] by that of another law, from `market.interval`. Raises
        `UsageError` for shared costs: each bidder pays for its own look.
        """
        costs = self._costs(inspection_cost)
        stakes = self._stakes(costs.refund)
        looks, accepts = self._conduct(conduct, costs, stakes.price, interval)
        boxes = len(costs)
        spent = (looks @ costs.own - (looks & accepts) @ costs.refund) / boxes
        others = np.zeros(len(spent))
        if self.opponents == "strong":
            back = np.where(accepts, 0.0, costs.refund[stakes.rival]).mean(axis=1)
            others = (1.0 - 1.0 / boxes) * float(costs.own.sum()) - back
        return Bidding(
            surplus=np.where(accepts, stakes.stake, 0.0).mean(axis=1) - spent,
            efficiency=np.where(accepts, self.rewards, stakes.fallback).mean(axis=1) - spent,
            inspections=looks.mean(axis=1),
            accepted=accepts.mean(axis=1),
            others_cost=others,
            best=stakes.best,
        )
