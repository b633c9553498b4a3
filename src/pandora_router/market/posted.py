"""The posted-price experiment over a whole table: every specialist in turn faces the best of the others.

For prompt i and held-out specialist m the price is p = max over j != m of G_j (strong opponents) or of f_j
(weak ones), and the one who sets it (lowest index on ties) answers if m declines. Maxima over the others come
from the two best of each row. What m does:

    f-only          accept iff f_m > p
    never inspect   accept iff mu_m > p (the paper's "f-only" when bidding)
    always inspect  look, accept iff G_m > p (the paper's "g-always")
    bidder          look iff b <= p <= u; accept iff what it knows > p

Surplus is (R_m - p) if accepted, efficiency the reward of whoever answers, both minus m's inspections. Two
references, both free of inspections: one that knows G_m (accepts iff G_m > p) and hindsight on R (surplus
(R_m - p)+, efficiency max(R_m, R_rival)). Paper: sections "Pandora's Bidder" and "Auctions against weak
opponents"; docs/method.md, section 5, points 2 and 3: the paper's own curves fit hindsight.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from pandora_router.boxes.checks import finite, not_negative
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

    `others_cost` is what strong opponents paid for the estimates that set the prices (0 for weak ones).
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
class LeaveOneOut:
    """A table of f, mu, G and R (N, M) in which every specialist in turn faces a posted price.

    `std` is that of G given f: one per specialist (M,) or per entry (N, M). Everything that does not depend
    on the inspection cost is computed once, so a sweep over costs is cheap.
    """

    scores: Matrix
    mean: Matrix
    std: Matrix
    values: Matrix
    rewards: Matrix
    opponents: Opponents = "strong"

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
        self.__dict__.update(tables, std=per_entry, opponents=opponents)

    @cached_property
    def posted(self) -> tuple[Matrix, Positions]:
        """The posted price of every prompt and held-out specialist, and who sets it."""
        return best_of_others(self.values if self.opponents == "strong" else self.scores)

    @cached_property
    def _stakes(self) -> tuple[Matrix, Matrix]:
        """R_m - p and the reward of the one who sets the price."""
        price, rival = self.posted
        return self.rewards - price, np.take_along_axis(self.rewards, rival, axis=1)

    @cached_property
    def _gains(self) -> Mask:
        """Whether G_m > p."""
        return self.values > self.posted[0]

    @cached_property
    def _best(self) -> dict[tuple[Reference, Measure], Vector]:
        stake, fallback = self._stakes
        return {
            ("value", "surplus"): np.where(self._gains, stake, 0.0).mean(axis=1),
            ("value", "efficiency"): np.where(self._gains, self.rewards, fallback).mean(axis=1),
            ("hindsight", "surplus"): np.maximum(stake, 0.0).mean(axis=1),
            ("hindsight", "efficiency"): np.maximum(self.rewards, fallback).mean(axis=1),
        }

    def interval(self, inspection_cost: ArrayLike) -> tuple[Matrix, Matrix]:
        """The normal interval [b, u] = mu -+ s T(c/s) of every entry (N, M), (N, M)."""
        offset = price_offset(self.std, np.broadcast_to(self._cost(inspection_cost), self.std.shape))
        return self.mean - offset, self.mean + offset

    def _cost(self, inspection_cost: ArrayLike) -> Vector:
        cost = np.asarray(inspection_cost, dtype=np.float64)
        specialists = self.mean.shape[1]
        return not_negative(
            "inspection_cost", np.full(specialists, cost) if cost.ndim == 0 else cost, boxes=specialists
        )

    def _conduct(
        self, conduct: Conduct, cost: Vector, interval: tuple[Matrix, Matrix] | None
    ) -> tuple[Mask, Mask]:
        """Whether each held-out specialist looks and whether it accepts (N, M), (N, M)."""
        _one_of("conduct", conduct, get_args(Conduct))
        price = self.posted[0]
        if conduct == "f-only":
            return np.zeros_like(self._gains), self.scores > price
        if conduct == "never inspect":
            return np.zeros_like(self._gains), self.mean > price
        if conduct == "always inspect":
            return np.ones_like(self._gains), self._gains
        lower, upper = interval if interval is not None else self.interval(cost)
        looks = (lower <= price) & (price <= upper)
        return looks, np.where(looks, self._gains, self.mean > price)

    def play(
        self,
        conduct: Conduct,
        inspection_cost: ArrayLike,
        *,
        interval: tuple[Matrix, Matrix] | None = None,
    ) -> Bidding:
        """Play one conduct at one inspection cost (a number, or one per specialist).

        `interval` replaces the normal [b, u] by that of another law, from `market.interval`.
        """
        cost = self._cost(inspection_cost)
        looks, accepts = self._conduct(conduct, cost, interval)
        stake, fallback = self._stakes
        spent = (looks @ cost) / len(cost)
        others = (1.0 - 1.0 / len(cost)) * float(cost.sum()) if self.opponents == "strong" else 0.0
        return Bidding(
            surplus=np.where(accepts, stake, 0.0).mean(axis=1) - spent,
            efficiency=np.where(accepts, self.rewards, fallback).mean(axis=1) - spent,
            inspections=looks.mean(axis=1),
            accepted=accepts.mean(axis=1),
            others_cost=np.full(len(spent), others),
            best=self._best,
        )
