"""The correlated knowledge gradient: what one inspection is worth when it moves every posterior mean.

Opening box j moves all posterior means along one direction, a + b Z with b = P_j / sqrt(P_jj), so it is worth

    E[max_k (a_k + b_k Z)] - max_k a_k

which is exact by the upper envelope of lines under a normal law, or a plain average where the boxes carry
residual quantiles (METHOD sections 8 and 9). The best thing is always taken, sealed or not.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pandora_router.boxes import Boxes, Independent
from pandora_router.boxes.checks import Vector, locked
from pandora_router.boxes.joint import CorrelatedNormal, root
from pandora_router.errors import UsageError
from pandora_router.index import unit_loss
from pandora_router.search import kernels
from pandora_router.search.policies import Memoryless, purchase
from pandora_router.search.state import Action, Inspect, Select, State

NO_QUANTILES = locked(np.empty((0, 0)))


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


def plain_gradient(boxes: Boxes, outside: float) -> Vector:
    """What opening each box alone is worth before its cost (M,); 0 where nothing is left to open."""
    if not isinstance(boxes, CorrelatedNormal):
        return independent_gradient(boxes, outside)
    worth = np.zeros(len(boxes.mean))
    finite = np.isfinite(outside)
    a = np.append(boxes.mean, outside) if finite else boxes.mean
    for j in np.flatnonzero(boxes.sealed & (boxes.std > 0.0)):
        column = boxes.column(int(j)) / boxes.std[j]
        b = np.append(column, 0.0) if finite else column
        if boxes.quantiles is None:
            worth[j] = envelope_gain(a, b)
        else:
            worth[j] = np.mean([np.max(a + b * z) for z in boxes.quantiles[j]]) - a.max()
    return worth


def independent_gradient(boxes: Boxes, outside: float) -> Vector:
    """For independent boxes of any law: E[(G_j - v)+] - (mu_j - v)+ against the best v of all else."""
    mean = boxes.mean
    first = int(mean.argmax())
    rivals = np.full(len(mean), max(outside, float(mean[first])))
    rivals[first] = max(outside, float(np.max(np.delete(mean, first), initial=-np.inf)))
    if not np.isfinite(rivals[first]):  # one box and nothing else: news changes nothing
        return np.zeros(len(mean))
    return np.where(boxes.sealed, np.maximum(boxes.gain(rivals) - np.maximum(mean - rivals, 0.0), 0.0), 0.0)


def gradient(boxes: Boxes, outside: float) -> Vector:
    """`plain_gradient` at speed; boxes whose worth cannot reach their own cost may show 0 instead."""
    out = np.zeros(len(boxes.mean))
    if isinstance(boxes, Independent):
        kernels.load().independent_gradient(boxes.mean, boxes.std, boxes.sealed, outside, out)
        return out
    if not isinstance(boxes, CorrelatedNormal):
        return independent_gradient(boxes, outside)
    quantiles = boxes.quantiles if boxes.quantiles is not None else NO_QUANTILES
    kernels.load().knowledge_gradient(
        boxes.mean, boxes.covariance, boxes.std, boxes.inspection_cost, boxes.sealed, quantiles, outside, out
    )
    return out


@dataclass(frozen=True)
class KnowledgeGradient(Memoryless):
    """Open the box whose news is worth most net of its cost, while that is positive; take the argmax.

    Where costs are shared, opening a whole group at once is weighed too, with `samples` joint outcomes of
    the group (deterministic for a given `seed`).
    """

    samples: int = 256
    seed: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.samples, int | np.integer) or self.samples < 2:
            raise UsageError(
                "samples", expected="2 or more", came=f"{self.samples}", do="Leave it out to use 256."
            )

    def next(self, state: State) -> Action:
        """Buy the most valuable purchase, or stop."""
        boxes = state.boxes
        if not boxes.sealed.any():
            return Select(state.richest.box)
        net = np.where(boxes.sealed, gradient(boxes, state.outside) - boxes.inspection_cost, -np.inf)
        box = int(net.argmax())
        single = float(net[box])
        if len(boxes.costs.shared):
            group, worth = self._best_group(state)
            if worth > max(single, 0.0):
                return Inspect(group)
        return purchase(boxes, box) if single > 0.0 else Select(state.richest.box)

    def _best_group(self, state: State) -> tuple[tuple[int, ...], float]:
        """The unpaid group whose opening as a whole is worth most net of its cost."""
        boxes, costs = state.boxes, state.boxes.costs
        best: tuple[tuple[int, ...], float] = ((), 0.0)
        for g in np.flatnonzero(costs.shared > 0.0):
            members = np.flatnonzero((costs.group == g) & boxes.sealed)
            if len(members) > 1:
                cost = float(costs.shared[g] + costs.own[members].sum())
                net = group_gain(boxes, members, state.outside, self.samples, self.seed) - cost
                if net > best[1]:
                    best = (tuple(int(j) for j in members), net)
        return best


def group_gain(boxes: Boxes, members: NDArray[np.intp], outside: float, samples: int, seed: int) -> float:
    """E[best posterior mean once all `members` are open] - best mean now, over paired simulated outcomes.

    With y the outcome of the members, all means move by P_.A P_AA^-1 (y - mean_A).
    """
    rng = np.random.Generator(np.random.Philox(key=[seed, len(members)]))
    half = rng.standard_normal((samples // 2, len(members)))
    normals = np.concatenate([half, -half])  # antithetic: the mean is exact
    index = members
    if isinstance(boxes, CorrelatedNormal):
        block = boxes.covariance[np.ix_(index, index)]
        factor = root(block)
        gain = boxes.covariance[:, index] @ np.linalg.pinv(block, hermitian=True) @ factor
        means = boxes.mean + normals @ gain.T
    else:
        draws = boxes.sample(samples, rng)
        means = np.tile(boxes.mean, (samples, 1))
        means[:, index] = draws[:, index]
    # against what the present choice shows in the same outcome: news that changes no choice is worth 0
    leader = int(boxes.mean.argmax())
    kept = means[:, leader] if boxes.mean[leader] > outside else outside
    return float((np.maximum(means.max(axis=1), outside) - kept).mean())
