"""Policies that search by reservation prices: obligatory, committing, and their rollout.

Readings of what the paper leaves open (docs/method.md, section 4): a box is opened iff best < u; ties go to
the lowest index; the held box is taken iff the best opened value is at most its outside option; the
obligatory policy takes part in the same argmax and wins ties. Worths that differ by rounding alone are ties
(`state.margin`).
"""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Literal

import numpy as np

from pandora_router.boxes import Boxes
from pandora_router.boxes.checks import unlocked
from pandora_router.errors import UsageError
from pandora_router.search import kernels
from pandora_router.search.payoffs import (
    Outside,
    check_outside,
    committing_payoffs,
    normal_law,
    outside_options,
    reservation_prices,
    simulated_payoffs,
)
from pandora_router.search.state import (
    Action,
    Inspect,
    Memoryless,
    Policy,
    Select,
    State,
    Worth,
    first_highest,
    margin,
)
from pandora_router.types import Vector

NOBODY = -1  # no box is held


def purchase(boxes: Boxes, box: int) -> Inspect:
    """Open `box` and every sealed box of its group that costs nothing more: free information never hurts."""
    mates = boxes.costs.mates(box)
    if len(mates) == 1:
        return Inspect((box,))
    free = boxes.sealed[mates] & (boxes.costs.own[mates] == 0.0)
    return Inspect(tuple(int(j) for j in mates[free | (mates == box)]))


def climb(boxes: Boxes, price: Vector, best: Worth, held: int, at: float) -> Action:
    """Next action of Weitzman's search with one box optionally kept sealed (paper, Algorithm 1).

    Opens the sealed box j != held of highest `price[j]` (ties: lowest index) while max(best.value, at) <
    price[j]; otherwise stops. `at` is the outside option of the held box, -inf if none is held.
    """
    price = np.where(boxes.sealed, price, -np.inf)
    if held != NOBODY:
        price[held] = -np.inf
    equal = margin(boxes.mean)
    opens = max(best.value, at) < float(price.max()) - equal[0]
    return purchase(boxes, int(first_highest(price, equal))) if opens else settle(best, held, at)


def settle(best: Worth, held: int, at: float) -> Select:
    """Stop: take the held box if the best opened value is at most its outside option, else that value."""
    return Select(held) if held != NOBODY and best.value <= at else Select(best.box)


def best_plan(payoffs: Vector, mean: Vector) -> int:
    """The box held by the committing policy of highest payoff; `NOBODY` for the obligatory one."""
    return int(first_highest(payoffs, margin(mean))) - 1


@dataclass(frozen=True)
class Obligatory(Memoryless):
    """Weitzman's search: open by descending reservation price until the best opened value exceeds the rest.

    Every box it takes was opened first. With correlated boxes, prices are those of the distribution of each
    box given everything opened so far.
    """

    def next(self, state: State) -> Action:
        """Open the box of highest reservation price while it beats what is in hand."""
        boxes, best = state.boxes, state.best
        if best.value == -np.inf and not boxes.sealed.any():
            return Select(state.richest.box)
        return climb(boxes, reservation_prices(boxes), best, NOBODY, -np.inf)


@dataclass(frozen=True)
class Held(Memoryless):
    """Keep `box` sealed with the outside option `at`, and search the other boxes by Weitzman's rule."""

    box: int
    at: float

    def next(self, state: State) -> Action:
        """Open the other box of highest price while that exceeds the best opened value and `at`."""
        boxes = state.boxes
        self.check(len(boxes.mean))
        # opened with the rest of its group, it is a value in hand like any other
        held, at = (self.box, self.at) if boxes.sealed[self.box] else (NOBODY, -np.inf)
        return climb(boxes, reservation_prices(boxes), state.best, held, at)

    def check(self, boxes: int) -> None:
        """Refuse to hold a box that does not exist."""
        if not 0 <= self.box < boxes:
            raise UsageError(
                "Held", expected=f"a box from 0 to {boxes - 1}", came=f"{self.box}", do="Count boxes from 0."
            )


@dataclass(frozen=True)
class Committing:
    """Choose the best committing policy once, then follow it (paper, Algorithm 1).

    `Committing()` on `Joint` boxes is the paper's router: backup price, 100 simulated outcomes, correlated
    conditioning inside each. `payoff="exact"` uses the closed form on the marginals instead. Simulated
    outcomes depend on `seed` and the boxes only, so the same state always gets the same answer.
    """

    outside: Outside = "backup"
    payoff: Literal["exact", "monte_carlo"] = "monte_carlo"
    samples: int = 100
    seed: int = 0

    def __post_init__(self) -> None:
        check_outside(self.outside)
        if self.payoff not in ("exact", "monte_carlo"):
            raise UsageError(
                "payoff", expected="'exact' or 'monte_carlo'", came=repr(self.payoff), do="Choose one."
            )
        if not isinstance(self.samples, int | np.integer) or self.samples < 1:
            raise UsageError(
                "samples", expected="1 or more", came=f"{self.samples}", do="The paper uses 100."
            )

    def start(self, state: State) -> Policy:
        """Evaluate all M+1 committing policies and return the best one."""
        if self.payoff == "exact":
            payoffs = committing_payoffs(state.boxes, self.outside, state.best.value)
        else:
            payoffs = simulated_payoffs(state, self.outside, self.samples, self.seed)
        held = best_plan(payoffs, state.boxes.mean)
        if held == NOBODY:
            return Obligatory()
        return Held(held, float(outside_options(state.boxes, self.outside)[held]))

    def next(self, state: State) -> Action:
        """Take the first step of the plan made in this state."""
        return self.start(state).next(state)


@dataclass(frozen=True)
class Rollout(Memoryless):
    """After every opening, re-evaluate all committing policies and take the first step of the best.

    Payoffs are exact for independent boxes and ignore correlation. On small independent instances it is
    within 3e-4 of the optimum (`make bench`). With strongly correlated boxes it inspects too much: prefer
    `KnowledgeGradient`.
    """

    outside: Outside = "mean"

    def __post_init__(self) -> None:
        check_outside(self.outside)

    def next(self, state: State) -> Action:
        """Take the first step of the committing policy that is best from here."""
        if not state.boxes.sealed.any():
            return Select(state.best.box)
        kernel = kernels.ready() if normal_law(state.boxes) else None
        if kernel is not None:
            return compiled_rollout(kernel, state, self.outside == "mean")
        return self.plain_next(state)

    def plain_next(self, state: State) -> Action:
        """`next` without compiled code, for laws the kernels do not serve and as their oracle."""
        boxes, best = state.boxes, state.best
        held = best_plan(committing_payoffs(boxes, self.outside, best.value), boxes.mean)
        at = -np.inf if held == NOBODY else float(outside_options(boxes, self.outside)[held])
        return climb(boxes, boxes.reservation_price(), best, held, at)


def compiled_rollout(kernel: SimpleNamespace, state: State, by_mean: bool) -> Action:
    """`Rollout.plain_next` at speed, for boxes of normal law, held at their mean or backup price."""
    boxes, best = state.boxes, state.best
    box, held, at = kernel.rollout_step(
        unlocked(boxes.mean),
        unlocked(boxes.std),
        unlocked(boxes.inspection_cost),
        boxes.refund,
        unlocked(boxes.sealed),
        best.value,
        by_mean,
    )
    return purchase(boxes, box) if box >= 0 else settle(best, held, at)
