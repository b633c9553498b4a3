"""What opening several boxes at once is worth: E[max of all posterior means] over joint outcomes.

`plain_group_gain` is the twin of a compiled kernel: it decides alike, needs no compiler, and is what the
kernel is tested against.
"""

from __future__ import annotations

from functools import lru_cache
from types import SimpleNamespace

import numpy as np

from pandora_router.boxes import Boxes, Draws, Independent
from pandora_router.boxes.checks import locked, unlocked
from pandora_router.boxes.costs import NO_GROUP
from pandora_router.boxes.joint import NOTHING, CorrelatedNormal
from pandora_router.boxes.moving import Moving
from pandora_router.index import normal_cdf
from pandora_router.search import kernels
from pandora_router.types import Matrix, Positions, Vector

NOTHING_HERE = locked(np.empty((0, 0)))  # no covariance, no quantiles or no outcomes, as kernels take them


def has_normal_parts(boxes: Boxes) -> bool:
    """Whether the kernels of the knowledge gradient serve these boxes."""
    return isinstance(boxes, Independent | CorrelatedNormal)


def normal_parts(boxes: Boxes) -> tuple[Matrix, Matrix]:
    """Covariance (empty: independent) and residual quantiles (empty: normal) as the kernels take them."""
    if isinstance(boxes, CorrelatedNormal):
        quantiles = NOTHING_HERE if boxes.quantiles is None else boxes.quantiles
        return unlocked(boxes.covariance), unlocked(quantiles)
    return unlocked(NOTHING_HERE), unlocked(NOTHING_HERE)


@lru_cache(maxsize=32)
def group_normals(seed: int, samples: int, boxes: int) -> Matrix:
    """Standard normals (S, M) in pairs of opposite sign, so that their mean is 0 exactly."""
    half = np.random.Generator(np.random.Philox(key=[seed, boxes])).standard_normal((samples // 2, boxes))
    return locked(np.concatenate([half, -half]))


def group_gain(
    boxes: Boxes, members: Positions, outside: float, normals: Matrix, std: Vector | None = None
) -> float:
    """`plain_group_gain` at speed where the boxes are normal or carry quantiles; `members` are sealed."""
    kernel = kernels.ready() if has_normal_parts(boxes) else None
    if kernel is None:
        return plain_group_gain(boxes, members, outside, normals, std)
    return compiled_group_gain(kernel, boxes, members, outside, normals)


def compiled_group_gain(
    kernel: SimpleNamespace, boxes: Boxes, members: Positions, outside: float, normals: Matrix
) -> float:
    """`plain_group_gain` at speed."""
    covariance, quantiles = normal_parts(boxes)
    group = np.full(len(boxes.mean), NO_GROUP)
    group[members] = 0
    law = unlocked(boxes.mean), covariance, unlocked(boxes.std), boxes.refund, unlocked(boxes.sealed)
    worth: float = kernel.group_gain(*law, quantiles, outside, locked(group), 0, normals)
    return worth


def plain_group_gain(
    boxes: Boxes, members: Positions, outside: float, normals: Matrix, std: Vector | None = None
) -> float:
    """What opening all `members` at once is worth before its cost, over the outcomes `normals` stand for.

    E[best worth then] - E[what the present choice is worth then]: in the same outcome, so that news that
    changes no choice is worth exactly its refund. The columns of `normals` go to the members in descending
    order of (mean, std), whatever their numbers; residual quantiles are reached through a normal copula.
    `std` is that of the boxes, where it is known already.
    """
    std = boxes.std if std is None else std
    order = members[np.lexsort((-std[members], -boxes.mean[members]))]
    normals = normals[:, : len(order)]
    if isinstance(boxes, Moving):
        means = boxes.moved_by(order, normal_cdf(normals))
    elif isinstance(boxes, Draws):
        means = np.tile(boxes.mean, (len(normals), 1))
        for i, m in enumerate(order):
            means[:, m] = at_rank(boxes.samples[m], normals[:, i])
    else:
        factor = member_factor(boxes, order)
        means = boxes.mean + residual_steps(boxes, order, factor, normals) @ factor
    leader = int(boxes.mean.argmax())
    kept = means[:, leader].copy() if boxes.mean[leader] > outside else outside
    means[:, order] += boxes.refund[order]
    return float((np.maximum(means.max(axis=1), outside) - kept).mean())


def at_rank(values: Vector, normals: Vector) -> Vector:
    """Of equally likely ascending values, those at the ranks of standard normals."""
    return values[np.minimum((normal_cdf(normals) * len(values)).astype(np.intp), len(values) - 1)]


def member_factor(boxes: Boxes, order: Positions) -> Matrix:
    """How all posterior means move with each of the independent steps that open `order` in turn (n, M).

    Rows of a Cholesky factor; one of zeros where a member has nothing left to show.
    """
    factor = np.zeros((len(order), len(boxes.mean)))
    if not isinstance(boxes, CorrelatedNormal):
        factor[np.arange(len(order)), order] = boxes.std[order]
        return factor
    covariance = boxes.covariance
    left = covariance[order]
    for i, m in enumerate(order):
        if boxes.std[m] > 0.0 and left[i, m] > NOTHING * covariance[m, m]:
            factor[i] = left[i] / np.sqrt(left[i, m])
            left[i + 1 :] -= factor[i, order[i + 1 :], None] * factor[i]
            factor[i, order[:i]] = 0.0  # what was opened before no longer moves
    return factor


def residual_steps(boxes: Boxes, order: Positions, factor: Matrix, normals: Matrix) -> Matrix:
    """The steps (S, n) that make each member show a residual quantile; the normals if there are none."""
    if not isinstance(boxes, CorrelatedNormal) or boxes.quantiles is None:
        return normals
    steps = np.zeros_like(normals)
    for i, m in enumerate(order):
        if factor[i, m] > 0.0:
            rank = normals[:, : i + 1] @ factor[: i + 1, m] / boxes.std[m]
            shown = boxes.std[m] * at_rank(boxes.quantiles[m], rank)
            steps[:, i] = (shown - steps[:, :i] @ factor[:i, m]) / factor[i, m]
    return steps
