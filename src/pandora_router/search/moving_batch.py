"""Searches of many queries over boxes whose means all move, step by step and all queries at once.

Row i of a `MovingBatch` is the `State` that `state(i)` returns, and `run_moving` takes, action for action,
the decisions of `drive`. What an opening shows depends on all that is open, so values are not a table but a
function of the opened sets.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pandora_router.boxes import Costs
from pandora_router.boxes.base import discrete_backup_price, discrete_reservation_price
from pandora_router.boxes.moving import Movement, Moving, ShiftedMovement
from pandora_router.search.baselines import Never
from pandora_router.search.batch import Decisions
from pandora_router.search.drive import drive, reveal_means
from pandora_router.search.gradient import KnowledgeGradient
from pandora_router.search.state import (
    Action,
    Inspect,
    Policy,
    Select,
    State,
    first_highest,
    margin,
    snapped,
)
from pandora_router.types import Mask, Matrix, Positions, Vector

Told = Callable[[Positions, Mask], Matrix]
"""(rows, opened (n, M)) -> the means (n, M) of these queries once that is open."""
CHUNK = 256  # queries whose second steps are held in memory together


@dataclass(frozen=True, eq=False)
class MovingBatch:
    """N queries over M boxes whose means (N, M) move by one law, at the same costs."""

    mean: Matrix
    law: Movement
    costs: Costs

    def __len__(self) -> int:
        return len(self.mean)

    def state(self, query: int) -> State:
        """The state in which the search of one query starts."""
        return State(Moving(self.mean[query], self.law, self.costs))

    def moved(self, by: Vector) -> MovingBatch:
        """The same queries, each box worth `by` (M,) more whatever it shows."""
        return MovingBatch(self.mean + by, ShiftedMovement(self.law, by), self.costs)

    def support(self) -> Matrix:
        """The equally likely own next means of every box, nothing opened yet (N, M, Q), ascending."""
        none = np.zeros(self.mean.shape, dtype=np.bool_)
        steps = [self.law.steps(none, self.mean, j)[:, :, j] for j in range(self.mean.shape[1])]
        return self.mean[..., None] + np.sort(np.stack(steps, axis=1), axis=2)

    @property
    def std(self) -> Matrix:
        """The standard deviations of the own next means (N, M)."""
        return self.support().std(axis=2)

    def prices(self) -> tuple[Matrix, Matrix]:
        """Reservation and backup prices of all boxes, nothing opened yet (N, M), (N, M)."""
        shape = self.mean.shape
        cost = np.broadcast_to(self.costs.marginal, shape).ravel()
        back = np.broadcast_to(self.costs.refund, shape)
        worths = self.support() + back[..., None]
        flat = worths.reshape(-1, worths.shape[2])
        above = discrete_reservation_price(flat, cost)
        below = discrete_backup_price(flat, cost, back.ravel())
        return above.reshape(shape), below.reshape(shape)


def run_moving(policy: Policy, batch: MovingBatch, means_of: Told) -> Decisions:
    """Run `policy` over every query; `Never` and `KnowledgeGradient` take all queries together.

    Other policies (`Always` among them), and costs that boxes share, are driven row by row.
    """
    out = Decisions.empty(*batch.mean.shape)
    if isinstance(policy, Never):
        out.choice[:] = first_highest(batch.mean, margin(batch.mean))
    elif type(policy) is not KnowledgeGradient or len(batch.costs.shared):
        _drive_rows(policy, batch, means_of, out)
    else:
        _search(policy, batch, means_of, out)
    return out


def _search(policy: KnowledgeGradient, batch: MovingBatch, means_of: Told, out: Decisions) -> None:
    """All queries take their next step together until none buys anything more."""
    costs = batch.costs
    bare = np.array(batch.mean)
    opened = np.zeros(bare.shape, dtype=np.bool_)
    live = np.arange(len(bare))
    for stage in range(bare.shape[1]):
        taken = next_sets(policy, batch.law, costs, opened[live], bare[live])
        live, taken = live[taken.any(axis=1)], taken[taken.any(axis=1)]
        if not len(live):
            break
        query, box = np.nonzero(taken)
        place = (opened[live].sum(axis=1)[:, None] + np.cumsum(taken, axis=1) - 1)[query, box]
        out.order[live[query], place], out.stage[live[query], place] = box, stage
        out.spent[live] += taken @ costs.own
        if len(costs.wait):
            out.spent[live] -= taken @ costs.wait - (taken * costs.wait).max(axis=1)
        opened[live] |= taken
        bare[live] = means_of(live, opened[live])
    worth = bare + np.where(opened, costs.refund, 0.0)
    out.choice[:] = first_highest(worth, margin(worth))
    kept = opened[np.arange(len(bare)), out.choice]
    out.refunded[:] = np.where(kept, costs.refund[out.choice], 0.0)
    out.spent[:] -= out.refunded


def next_sets(policy: KnowledgeGradient, law: Movement, costs: Costs, opened: Mask, bare: Matrix) -> Mask:
    """The boxes that each query opens next, side by side where waiting has a price (N, M); none: it ends.

    Sets are weighed query by query, by `KnowledgeGradient.together`.
    """
    box = next_boxes(policy, law, costs, opened, bare)
    taken = np.arange(bare.shape[1]) == box[:, None]
    if not len(costs.wait):
        return taken
    worth = bare + np.where(opened, costs.refund, 0.0)
    for i in range(len(bare)):
        boxes = Moving(bare[i], law, costs).at(worth[i], opened[i])
        alone: Action = Inspect((int(box[i]),)) if box[i] >= 0 else Select(int(worth[i].argmax()))
        action = policy.together(State(boxes), alone)
        if isinstance(action, Inspect):
            taken[i, list(action.boxes)] = True
            taken[i, [j for j in range(len(worth[i])) if j not in action.boxes]] = False
    return taken


def next_boxes(
    policy: KnowledgeGradient, law: Movement, costs: Costs, opened: Mask, bare: Matrix
) -> Positions:
    """The box that each query opens next (N,), -1 where nothing is worth its cost any more.

    `opened` (N, M) says what is open, `bare` (N, M) are the means without refunds. The twin of
    `gradient.plain_inspection`.
    """
    best = np.empty(len(bare), dtype=np.intp)
    for lo in range(0, len(bare), CHUNK):
        part = slice(lo, lo + CHUNK)
        best[part] = _next(policy, law, costs, opened[part], bare[part])
    return best


def _next(policy: KnowledgeGradient, law: Movement, costs: Costs, opened: Mask, bare: Matrix) -> Positions:
    queries, boxes = bare.shape
    rows = np.arange(queries)
    net = _one_step(law, costs, opened, bare)
    looked = ~opened
    worth = bare + np.where(opened, costs.refund, 0.0)
    equal = margin(worth)
    if policy.depth > 1:
        lead = first_highest(worth, equal)
        promise = snapped(net, equal)
        led = ~opened[rows, lead]
        promise[rows[led], lead[led]] = np.inf
        rank = np.argsort(np.argsort(-promise, axis=1, kind="stable"), axis=1, kind="stable")
        looked = looked & (rank < policy.width)
        for j in range(boxes):
            here = np.flatnonzero(looked[:, j])
            if len(here):
                net[here, j] = _two_steps(law, costs, opened[here], bare[here], looked[here], j, net[here, j])
    net = np.where(looked, net, -np.inf)
    return np.where(net.max(axis=1) > equal[:, 0], first_highest(net, equal), -1)


def _one_step(law: Movement, costs: Costs, opened: Mask, bare: Matrix) -> Matrix:
    """What opening each box alone is worth net of its cost (N, M); -inf where it is open."""
    worth = bare + np.where(opened, costs.refund, 0.0)
    now = worth.max(axis=1)
    net = np.full(bare.shape, -np.inf)
    for j in range(bare.shape[1]):
        here = np.flatnonzero(~opened[:, j])
        if len(here):
            then = worth[here, None, :] + law.steps(opened[here], bare[here], j)
            then[:, :, j] += costs.refund[j]
            net[here, j] = np.maximum(then.max(axis=2).mean(axis=1) - now[here], 0.0) - costs.own[j]
    return net


def _two_steps(
    law: Movement, costs: Costs, opened: Mask, bare: Matrix, looked: Mask, j: int, net: Vector
) -> Vector:
    """`net` of opening j (n,) plus what a second opening among `looked` is then worth on average."""
    queries, boxes = bare.shape
    steps = law.steps(opened, bare, j)
    moves = steps[:, :, j].std(axis=1) > 0.0
    outcomes = steps.shape[1]
    means = (bare[:, None, :] + steps).reshape(-1, boxes)
    then_open = np.repeat(opened, outcomes, axis=0)
    then_open[:, j] = True
    second = _one_step(law, costs, then_open, means)
    second = np.where(np.repeat(looked, outcomes, axis=0) & ~then_open, second, -np.inf)
    best = np.maximum(second.max(axis=1), 0.0).reshape(queries, outcomes)
    more = net.copy()
    for q in range(outcomes):  # in the order of the plain twin, so that sums round alike
        more += (1.0 / outcomes) * best[:, q]
    return np.where(moves, more, net)


def _drive_rows(policy: Policy, batch: MovingBatch, means_of: Told, out: Decisions) -> None:
    for i in range(len(batch)):

        def means(opened: Mask, i: int = i) -> Vector:
            row: Vector = means_of(np.array([i]), opened[None])[0]
            return row

        out.record(i, drive(policy, batch.state(i), reveal_means(means)))
