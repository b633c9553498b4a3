"""The ways to route that every report compares, with one name each, and functions that run a policy.

    router          the fitted router: its signal model and its policy
    never inspect   the specialist of the highest mean m(f); nothing is bought
    always inspect  every costly estimate is bought; the highest value is taken
    f-only          the specialist of the highest raw cheap estimate
    best single     the specialist of the highest mean reward on prompts that are not judged
    cheapest        the specialist of the lowest mean fee on those prompts (ties: the higher reward)
    random          a specialist drawn at random for each prompt
    oracle          the best specialist in hindsight

`pandora fit` reports these; `evaluate.arms` adds margin, top-2 and the policies that are only studied.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pandora_router.boxes import Costs
from pandora_router.calibrate.readings import Readings
from pandora_router.calibrate.signals import SignalModel
from pandora_router.search import Always, Batch, Decisions, Never, Policy, run
from pandora_router.types import Mask, Matrix, Positions, Vector

ROUTER = "router"
NEVER = "never inspect"
ALWAYS = "always inspect"
F_ONLY = "f-only"
BEST_SINGLE = "best single"
CHEAPEST = "cheapest"
RANDOM = "random"
ORACLE = "oracle"


@dataclass(frozen=True, eq=False)
class Routed:
    """Result for N prompts: the chosen specialist (N,), the inspection cost and the number of opened boxes.

    `spent` is net of refunds. `stage` (N, M) is the number of the purchase that opened each box, -1 for boxes
    that stayed sealed; None if nothing was bought.
    """

    choice: Positions
    spent: Vector
    inspections: Vector
    stage: Matrix | None = None

    @property
    def opened(self) -> Mask | None:
        """The opened boxes (N, M); None if nothing was bought."""
        return None if self.stage is None else np.asarray(self.stage >= 0)

    @classmethod
    def unseen(cls, choice: NDArray[Any]) -> Routed:
        """Choices without purchases."""
        none = np.zeros(len(choice))
        return cls(choice.astype(np.intp), none, none.copy())

    @classmethod
    def every(cls, choice: Positions, spent: Vector, boxes: int) -> Routed:
        """Choices after all boxes were opened."""
        return cls(choice, spent, np.full(len(choice), float(boxes)), np.zeros((len(choice), boxes)))

    @classmethod
    def after(cls, done: Decisions) -> Routed:
        """The decisions of a search."""
        prompts, boxes = done.order.shape
        stage = np.full((prompts, boxes), -1.0)
        rows, steps = np.nonzero(done.order >= 0)
        stage[rows, done.order[rows, steps]] = done.stage[rows, steps]
        return cls(done.choice.astype(np.intp), done.spent, done.inspections.astype(np.float64), stage)

    def money(self, costs: Costs) -> Vector:
        """`spent` (N,) without what was paid by waiting, at the costs of these decisions.

        Of the money of an own cost the same share comes back as of the whole.
        """
        opened = self.opened
        if not len(costs.wait) or opened is None:
            return self.spent
        share = np.divide(costs.refund, costs.own, out=np.zeros(len(costs)), where=costs.own > 0.0)
        money = Costs(costs.own - costs.wait, costs.shared, costs.group)
        kept = opened[np.arange(len(self.choice)), self.choice]
        return bill(opened, money) - np.where(kept, (share * money.own)[self.choice], 0.0)

    def reward(self, readings: Readings) -> Vector:
        """The reward of each prompt (N,), before what was spent on inspections."""
        return np.asarray(readings.reward[np.arange(len(readings)), self.choice])

    def regret(self, readings: Readings) -> Vector:
        """The reward of the best specialist in hindsight minus that of the chosen one (N,)."""
        best: Vector = readings.reward.max(axis=1)
        return best - self.reward(readings)

    def total(self, readings: Readings) -> Vector:
        """Regret + inspection cost of each prompt (N,)."""
        return self.regret(readings) + self.spent


def bill(opened: Mask, costs: Costs) -> Vector:
    """Cost of opening these boxes (N, M) per prompt in one purchase.

    Own parts, each group's shared part once, and of the waits the longest.
    """
    spent = opened @ costs.own
    if len(costs.wait):
        spent = spent - opened @ costs.wait + np.max(opened * costs.wait, axis=1, initial=0.0)
    for group, shared in enumerate(costs.shared):
        spent = spent + shared * opened[:, costs.group == group].any(axis=1)
    return np.asarray(spent, dtype=np.float64)


def decide(policy: Policy, batch: Batch, values: Matrix) -> Routed:
    """Run a policy on every prompt of a batch; `values` (N, M) are the values that opened boxes show.

    Never and always inspecting need no search and are computed for all prompts at once.
    """
    prompts, boxes = batch.mean.shape
    if isinstance(policy, Never):
        return Routed.unseen(batch.mean.argmax(axis=1))
    if isinstance(policy, Always):
        opened = np.ones((prompts, boxes), dtype=np.bool_)
        choice = (values + batch.costs.refund).argmax(axis=1)
        spent = bill(opened, batch.costs) - batch.costs.refund[choice]
        return Routed.every(choice, spent, boxes)
    return Routed.after(run(policy, batch, values))


def search(policy: Policy, signal: SignalModel, readings: Readings, costs: Costs) -> Routed:
    """Decide every prompt of `readings` with a policy on the boxes of a fitted signal model."""
    return decide(policy, signal.batch(readings.cheap, costs), signal.values(readings.cheap, readings.costly))


@dataclass(frozen=True)
class Standing:
    """Columns of the specialists of highest mean reward (`single`) and of lowest mean fee (`cheapest`)."""

    single: int
    cheapest: int

    @classmethod
    def of(cls, reward: Matrix, fee: Matrix) -> Standing:
        """From rewards and fees (N, M) of known prompts, NaN where missing; ties of fees by reward."""
        means, fees = np.nanmean(reward, axis=0), np.nanmean(fee, axis=0)
        cheapest = min(range(len(means)), key=lambda j: (float(fees[j]), -float(means[j])))
        return cls(int(means.argmax()), cheapest)


def basic(
    signal: SignalModel, policy: Policy, readings: Readings, costs: Costs, standing: Standing
) -> Mapping[str, Routed]:
    """The results of all ways above except `random`, on complete readings, by name, the router first."""
    prompts = len(readings)
    return {
        ROUTER: search(policy, signal, readings, costs),
        NEVER: search(Never(), signal, readings, costs),
        ALWAYS: search(Always(), signal, readings, costs),
        F_ONLY: Routed.unseen(readings.cheap.argmax(axis=1)),
        BEST_SINGLE: Routed.unseen(np.full(prompts, standing.single)),
        CHEAPEST: Routed.unseen(np.full(prompts, standing.cheapest)),
        ORACLE: Routed.unseen(readings.reward.argmax(axis=1)),
    }
