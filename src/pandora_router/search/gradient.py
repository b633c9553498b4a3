"""The correlated knowledge gradient: what one inspection is worth when it moves every posterior mean.

Opening box j moves all posterior means along one direction, a + b Z with b = P_j / sqrt(P_jj), so it is worth

    E[max_k (a_k + r_j 1{k = j} + b_k Z)] - max_k a_k        (r_j: what comes back if j is chosen then)

which is exact by the upper envelope of lines under a normal law, or a plain average where the boxes carry
residual quantiles (docs/method.md, sections 8 and 9). The best thing is always taken, sealed or not. Where
costs are shared, opening a whole group is one more purchase, worth E[max of all posterior means] over joint
outcomes.

Every function `plain_*` is the twin of a compiled kernel: it decides alike, needs no compiler, and is what
the kernel is tested against.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from types import SimpleNamespace

import numpy as np

from pandora_router.boxes import Boxes, Costs, Draws
from pandora_router.boxes.checks import unlocked
from pandora_router.boxes.joint import CorrelatedNormal
from pandora_router.boxes.moving import Moving, News
from pandora_router.errors import UsageError
from pandora_router.index import unit_loss
from pandora_router.search import kernels
from pandora_router.search.groups import (
    NOTHING_HERE,
    group_gain,
    group_normals,
    has_normal_parts,
    normal_parts,
    plain_group_gain,
)
from pandora_router.search.policies import purchase
from pandora_router.search.state import (
    Action,
    Inspect,
    Memoryless,
    Select,
    State,
    first_highest,
    margin,
    snapped,
)
from pandora_router.types import Matrix, Positions, Vector


def envelope_gain(a: Vector, b: Vector) -> float:
    """E[max_k (a_k + b_k Z)] - max_k a_k for a standard normal Z, by the upper envelope of the lines.

    Between neighbours on the envelope that cross at z the slope rises by d, and the gain is the sum of
    d psi(|z|) (Frazier, Powell and Dayanik 2009).
    """
    order = np.lexsort((a, b))
    hull: list[int] = []
    crossing: list[float] = []
    for k in order:
        while hull:
            top = hull[-1]
            if b[k] == b[top]:
                hull.pop()
                if crossing:
                    crossing.pop()
                continue
            z = (a[top] - a[k]) / (b[k] - b[top])
            if crossing and z <= crossing[-1]:
                hull.pop()
                crossing.pop()
                continue
            crossing.append(float(z))
            break
        hull.append(int(k))
    rises = np.diff(b[hull])
    return float(np.sum(rises * unit_loss(np.abs(crossing)))) if crossing else 0.0


def plain_gradient(boxes: Boxes, outside: float, only: Positions | None = None) -> Vector:
    """What opening each box alone is worth before its cost (M,); 0 where nothing is left to open.

    With `only`, boxes that are not among these positions are left at 0.
    """
    if isinstance(boxes, Moving):
        return moving_gradient(boxes, outside, only)
    if not isinstance(boxes, CorrelatedNormal):
        return independent_gradient(boxes, outside)
    worth = np.zeros(len(boxes.mean))
    finite = np.isfinite(outside)
    a = np.append(boxes.mean, outside) if finite else boxes.mean
    for j in np.flatnonzero(boxes.sealed & (boxes.std > 0.0)) if only is None else only:
        if not boxes.sealed[j] or boxes.std[j] == 0.0:
            continue
        column = boxes.column(int(j)) / boxes.std[j]
        b = np.append(column, 0.0) if finite else column
        then = a.copy()
        then[j] += boxes.refund[j]
        if boxes.quantiles is None:
            worth[j] = envelope_gain(then, b) + (then.max() - a.max())
        else:
            worth[j] = max((then + boxes.quantiles[j][:, None] * b).max(axis=1).mean() - a.max(), 0.0)
    return worth


def moving_gradient(boxes: Moving, outside: float, only: Positions | None = None) -> Vector:
    """For boxes whose means all move: E[max(v, best worth then)] - max(v, best worth now) over the law."""
    worth, now = np.zeros(len(boxes.mean)), max(outside, float(boxes.mean.max()))
    for j in np.flatnonzero(boxes.sealed) if only is None else only:
        if boxes.sealed[j]:
            then = np.maximum(boxes.outcomes(int(j)).max(axis=1), outside)
            worth[j] = max(float(then.mean()) - now, 0.0)
    return worth


def independent_gradient(boxes: Boxes, outside: float) -> Vector:
    """For independent boxes of any law: E[(G_j + r_j - v)+] - (mu_j - v)+ against the best v of all else."""
    mean = boxes.mean
    first = int(mean.argmax())
    rivals = np.full(len(mean), max(outside, float(mean[first])))
    rivals[first] = max(outside, float(np.max(np.delete(mean, first), initial=-np.inf)))
    if not np.isfinite(rivals[first]):  # one box and nothing else: news changes nothing
        return np.where(boxes.sealed, boxes.refund, 0.0)
    return np.where(boxes.sealed, np.maximum(boxes.gain(rivals) - np.maximum(mean - rivals, 0.0), 0.0), 0.0)


def plain_inspection(
    boxes: Boxes, outside: float, depth: int, width: int, only: int | None = None
) -> tuple[int, float]:
    """The best next inspection and its worth net of cost, looking `depth` (1 or 2) inspections ahead.

    With `only`, that box and its worth.

    Two deep, opening j is worth its own gradient plus, over its outcomes, the best positive net worth of
    a second inspection: E[(max_l gradient_l(outcome) - c_l)+]. Only `width` boxes are looked at, first and
    second: the one of highest mean, whose own gradient is often 0, and those of highest net worth.
    """
    net = np.where(boxes.sealed, plain_gradient(boxes, outside) - boxes.inspection_cost, -np.inf)
    equal = margin(boxes.mean)
    if depth == 1:
        best = int(first_highest(net, equal)) if only is None else only
        return best, float(net.max() if only is None else net[only])
    lead = int(first_highest(boxes.mean, equal))
    promise = np.where((np.arange(len(net)) == lead) & boxes.sealed, np.inf, snapped(net, equal))
    order = np.argsort(-promise, kind="stable")[:width]
    rivals = order[boxes.sealed[order]]
    for j in rivals[boxes.std[rivals] > 0.0]:
        if only not in (None, j):
            continue
        points, weights = outcome_rule(boxes, int(j))
        others = rivals[rivals != j]
        for point, weight in zip(points, weights, strict=True):
            then = boxes.given(int(j), point)
            second = plain_gradient(then, outside, others) - then.inspection_cost
            net[j] += weight * np.max(second[others], initial=0.0)
    if only is not None:
        return only, float(net[only])
    looked = np.full(len(net), -np.inf)
    looked[rivals] = net[rivals]
    return int(first_highest(looked, equal)), float(looked.max())


def outcome_rule(boxes: Boxes, box: int) -> tuple[Sequence[News], Vector]:
    """News and weights for the next opening of `box`: its empirical law, or a rule for a normal one."""
    if isinstance(boxes, Moving):
        means = boxes.bare + boxes.steps(box)
        return [tuple(row) for row in means.tolist()], np.full(len(means), 1.0 / len(means))
    support = boxes.support() if isinstance(boxes, Draws | CorrelatedNormal) else None
    if support is not None:
        return support[box].tolist(), np.full(support.shape[1], 1.0 / support.shape[1])
    z, weights = normal_rule()
    return (boxes.mean[box] + boxes.std[box] * z).tolist(), weights


def gradient(boxes: Boxes, outside: float) -> Vector:
    """`plain_gradient` at speed where the boxes are normal or carry quantiles."""
    kernel = kernels.ready() if has_normal_parts(boxes) else None
    if kernel is None:
        return plain_gradient(boxes, outside)
    return compiled_gradient(kernel, boxes, outside)


def compiled_gradient(kernel: SimpleNamespace, boxes: Boxes, outside: float) -> Vector:
    """`plain_gradient` at speed."""
    covariance, quantiles = normal_parts(boxes)
    out = np.empty(len(boxes.mean))
    kernel.knowledge_gradient(
        unlocked(boxes.mean),
        covariance,
        unlocked(boxes.std),
        boxes.refund,
        unlocked(boxes.sealed),
        quantiles,
        outside,
        out,
    )
    return out


def normal_rule(points: int = 24, reach: float = 3.6) -> tuple[Vector, Vector]:
    """Points and weights of a trapezoid rule for a standard normal.

    What a second inspection is worth has kinks as a function of the first outcome: with as many points a
    Gauss rule errs five times more.
    """
    z = np.linspace(-reach, reach, points)
    weights = np.exp(-0.5 * z * z)
    return z, weights / weights.sum()


@dataclass(frozen=True)
class KnowledgeGradient(Memoryless):
    """Open the box whose news is worth most net of its cost, while that is positive; take the argmax.

    `depth=1` looks one inspection ahead. That misses inspections that pay only together (opening one of two
    strongly correlated boxes says little about which is better), so `depth=2` adds what a second inspection
    would then be worth, among the `width` most promising boxes. Where costs are shared, opening a whole group
    at once is weighed too, over `samples` joint outcomes of the group (the same ones for a given `seed`).
    Where boxes opened together wait side by side (`Costs.wait`), so are sets of up to `width` boxes, gathered
    one by one.
    """

    depth: int = 2
    width: int = 6
    samples: int = 256
    seed: int = 0

    def __post_init__(self) -> None:
        whole = all(isinstance(n, int | np.integer) for n in (self.width, self.samples))
        if self.depth not in (1, 2) or not whole or self.width < 1 or self.samples < 2:
            raise UsageError(
                "KnowledgeGradient",
                expected="depth 1 or 2, width 1 or more, samples 2 or more",
                came=f"depth={self.depth}, width={self.width}, samples={self.samples}",
                do="Leave them out for the defaults.",
            )

    def next(self, state: State) -> Action:
        """Buy the most valuable purchase, or stop."""
        costs = state.boxes.costs
        if not len(costs.wait):
            return self.next_alone(state)
        return self.plain_next(state) if len(costs.shared) else self.together(state, self.next_alone(state))

    def next_alone(self, state: State) -> Action:
        """The most valuable purchase where looks are waited for one after the other."""
        if isinstance(state.boxes, Moving) and not len(state.boxes.costs.shared):
            return self.moving_next(state, state.boxes)
        kernel = kernels.ready() if has_normal_parts(state.boxes) else None
        if kernel is None:
            return self.plain_next(state)
        return self.compiled_next(kernel, state)

    def compiled_next(self, kernel: SimpleNamespace, state: State) -> Action:
        """`plain_next` at speed, for normal boxes and boxes with residual quantiles."""
        boxes, costs = state.boxes, state.boxes.costs
        covariance, quantiles = normal_parts(boxes)
        box, group = kernel.gradient_step(
            unlocked(boxes.mean),
            covariance,
            unlocked(boxes.std),
            unlocked(boxes.inspection_cost),
            costs.own,
            unlocked(costs.shared),
            costs.group,
            costs.refund,
            unlocked(boxes.sealed),
            quantiles,
            state.outside,
            self.depth,
            self.width,
            self.normals(costs),
        )
        if group >= 0:
            return Inspect(tuple(int(j) for j in np.flatnonzero((costs.group == group) & boxes.sealed)))
        return purchase(boxes, box) if box >= 0 else Select(state.richest.box)

    def moving_next(self, state: State, boxes: Moving) -> Action:
        """`plain_next` at speed, for boxes whose means all move and that share no cost."""
        from pandora_router.search.moving_batch import next_boxes  # needs this module

        if np.isfinite(state.outside) or not np.array_equal(boxes.sealed, ~boxes.opened):
            return self.plain_next(state)
        box = int(next_boxes(self, boxes.law, boxes.costs, boxes.opened[None], boxes.bare[None])[0])
        return purchase(boxes, box) if box >= 0 else Select(state.richest.box)

    def normals(self, costs: Costs) -> Matrix:
        """The standard normals behind the joint outcomes of a group; none where no cost is shared."""
        return group_normals(self.seed, self.samples, len(costs)) if len(costs.shared) else NOTHING_HERE

    def together(self, state: State, alone: Action) -> Action:
        """The best set of boxes to open side by side, or `alone` where that is worth as much.

        The worth of `alone` is computed two inspections deep only where its first step is worth less than
        the set.
        """
        boxes, equal = state.boxes, margin(state.boxes.mean)[0]
        members, worth = self._best_set(state)
        if worth <= equal:
            return alone
        if isinstance(alone, Inspect):
            box = alone.boxes[0]
            net = float(gradient(boxes, state.outside)[box] - boxes.inspection_cost[box])
            if worth > net + equal:
                _, net = plain_inspection(boxes, state.outside, self.depth, self.width, box)
            if worth <= max(net, 0.0) + equal:
                return alone
        return Inspect(members)

    def plain_next(self, state: State) -> Action:
        """`next` without compiled code, for laws the kernels do not serve and as their oracle."""
        boxes = state.boxes
        if not boxes.sealed.any():
            return Select(state.richest.box)
        box, net = plain_inspection(boxes, state.outside, self.depth, self.width)
        for best in (self._best_group, self._best_set):
            together, worth = best(state)
            if worth > max(net, 0.0) + margin(boxes.mean)[0]:
                return Inspect(together)
        return purchase(boxes, box) if net > margin(boxes.mean)[0] else Select(state.richest.box)

    def _best_set(self, state: State) -> tuple[tuple[int, ...], float]:
        """The boxes whose opening side by side is worth most net of its cost, gathered one by one.

        Nothing is gathered where opening everything for the price of the cheapest pair would not pay.
        """
        boxes, costs, std = state.boxes, state.boxes.costs, state.boxes.std
        best: tuple[tuple[int, ...], float] = ((), 0.0)
        left = set(np.flatnonzero(boxes.sealed & (std > 0.0)).tolist())
        if not len(costs.wait) or len(left) < 2:
            return best
        normals, equal = group_normals(self.seed, self.samples, len(costs)), margin(boxes.mean)

        def gain(members: Sequence[int]) -> float:
            return group_gain(boxes, np.array(members), state.outside, normals, std)

        if gain(sorted(left)) <= min(state.bill(pair) for pair in combinations(sorted(left), 2)):
            return best
        members: tuple[int, ...] = ()
        while left and len(members) < self.width:
            nets = np.full(len(costs), -np.inf)
            for j in left:
                nets[j] = gain((*members, j)) - state.bill((*members, j))
            box = int(first_highest(nets, equal))
            members = (*members, box)
            left.remove(box)
            if len(members) > 1 and nets[box] > best[1] + equal[0]:
                best = (tuple(sorted(members)), float(nets[box]))
        return best

    def _best_group(self, state: State) -> tuple[tuple[int, ...], float]:
        """The unpaid group whose opening as a whole is worth most net of its cost."""
        boxes, costs = state.boxes, state.boxes.costs
        best: tuple[tuple[int, ...], float] = ((), 0.0)
        for g in np.flatnonzero(costs.shared > 0.0):
            members = np.flatnonzero((costs.group == g) & boxes.sealed)
            if len(members) > 1:
                cost = float(costs.shared[g] + costs.own[members].sum())
                net = plain_group_gain(boxes, members, state.outside, self.normals(costs)) - cost
                if net > best[1] + margin(boxes.mean)[0]:
                    best = (tuple(int(j) for j in members), net)
        return best
