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
from pandora_router.search.state import Policy, State
from pandora_router.types import Mask, Matrix, Positions, Vector

Told = Callable[[Positions, Positions], Matrix]
"""(rows, tier (n, M)) -> the means (n, M) of these queries when boxes were inspected that often."""
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
        none = np.zeros(self.mean.shape, dtype=np.intp)
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
    """Run `policy` over every query; never, always and the knowledge gradient take all queries together.

    Other policies, and costs that boxes share, are driven row by row.
    """
    out = Decisions.empty(len(batch), batch.costs.tiers * batch.mean.shape[1])
    if isinstance(policy, Never):
        out.choice[:] = batch.mean.argmax(axis=1)
    elif type(policy) is not KnowledgeGradient or len(batch.costs.shared):
        _drive_rows(policy, batch, means_of, out)
    else:
        _search(policy, batch, means_of, out)
    return out


def _search(policy: KnowledgeGradient, batch: MovingBatch, means_of: Told, out: Decisions) -> None:
    """All queries take their next step together until none buys anything more."""
    costs = batch.costs
    bare = np.array(batch.mean)
    tier = np.zeros(bare.shape, dtype=np.intp)
    live = np.arange(len(bare))
    for stage in range(out.order.shape[1]):
        box = next_boxes(policy, batch.law, costs, tier[live], bare[live])
        live, box = live[box >= 0], box[box >= 0]
        if not len(live):
            break
        out.spent[live] += _own(costs, tier[live])[np.arange(len(live)), box]
        tier[live, box] += 1
        out.order[live, stage], out.stage[live, stage] = box, stage
        bare[live] = means_of(live, tier[live])
    opened = tier > 0
    out.choice[:] = (bare + np.where(opened, costs.refund, 0.0)).argmax(axis=1)
    kept = opened[np.arange(len(bare)), out.choice]
    out.refunded[:] = np.where(kept, costs.refund[out.choice], 0.0)
    out.spent[:] -= out.refunded


def next_boxes(
    policy: KnowledgeGradient, law: Movement, costs: Costs, tier: Positions, bare: Matrix
) -> Positions:
    """The box that each query inspects next (N,), -1 where nothing is worth its cost any more.

    `tier` (N, M) says how often each box was inspected, `bare` (N, M) are the means without refunds. The twin
    of `gradient.plain_inspection`.
    """
    best = np.empty(len(bare), dtype=np.intp)
    for lo in range(0, len(bare), CHUNK):
        part = slice(lo, lo + CHUNK)
        best[part] = _next(policy, law, costs, tier[part], bare[part])
    return best


def _own(costs: Costs, tier: Positions) -> Matrix:
    """What the next inspection of each box costs (N, M); meaningless where there is none left."""
    if not len(costs.then):
        return np.broadcast_to(costs.own, tier.shape)
    return np.where(tier > 0, costs.then, costs.own)


def _next(policy: KnowledgeGradient, law: Movement, costs: Costs, tier: Positions, bare: Matrix) -> Positions:
    queries, boxes = bare.shape
    rows = np.arange(queries)
    net = _one_step(law, costs, tier, bare)
    looked = tier < costs.tiers
    if policy.depth > 1:
        lead = (bare + np.where(tier > 0, costs.refund, 0.0)).argmax(axis=1)
        promise = net.copy()
        led = looked[rows, lead]
        promise[rows[led], lead[led]] = np.inf
        rank = np.argsort(np.argsort(-promise, axis=1, kind="stable"), axis=1, kind="stable")
        looked = looked & (rank < policy.width)
        for j in range(boxes):
            here = np.flatnonzero(looked[:, j])
            if len(here):
                net[here, j] = _two_steps(law, costs, tier[here], bare[here], looked[here], j, net[here, j])
    net = np.where(looked, net, -np.inf)
    box = net.argmax(axis=1)
    return np.where(net[rows, box] > 0.0, box, -1)


def _one_step(law: Movement, costs: Costs, tier: Positions, bare: Matrix) -> Matrix:
    """What inspecting each box is worth net of its cost (N, M); -inf where nothing is left to open."""
    worth = bare + np.where(tier > 0, costs.refund, 0.0)
    now, own = worth.max(axis=1), _own(costs, tier)
    net = np.full(bare.shape, -np.inf)
    for j in range(bare.shape[1]):
        here = np.flatnonzero(tier[:, j] < costs.tiers)
        if len(here):
            then = worth[here, None, :] + law.steps(tier[here], bare[here], j)
            then[:, :, j] += np.where(tier[here, j] == 0, costs.refund[j], 0.0)[:, None]
            net[here, j] = np.maximum(then.max(axis=2).mean(axis=1) - now[here], 0.0) - own[here, j]
    return net


def _two_steps(
    law: Movement, costs: Costs, tier: Positions, bare: Matrix, looked: Mask, j: int, net: Vector
) -> Vector:
    """`net` of inspecting j (n,) plus what a second inspection among `looked` is then worth on average."""
    queries, boxes = bare.shape
    steps = law.steps(tier, bare, j)
    moves = steps[:, :, j].std(axis=1) > 0.0
    outcomes = steps.shape[1]
    means = (bare[:, None, :] + steps).reshape(-1, boxes)
    later = np.repeat(tier, outcomes, axis=0)
    later[:, j] += 1
    second = _one_step(law, costs, later, means)
    second = np.where(np.repeat(looked, outcomes, axis=0) & (later < costs.tiers), second, -np.inf)
    best = np.maximum(second.max(axis=1), 0.0).reshape(queries, outcomes)
    more = net.copy()
    for q in range(outcomes):  # in the order of the plain twin, so that sums round alike
        more += (1.0 / outcomes) * best[:, q]
    return np.where(moves, more, net)


def _drive_rows(policy: Policy, batch: MovingBatch, means_of: Told, out: Decisions) -> None:
    for i in range(len(batch)):

        def means(tier: Positions, i: int = i) -> Vector:
            row: Vector = means_of(np.array([i]), tier[None])[0]
            return row

        out.record(i, drive(policy, batch.state(i), reveal_means(means)))
