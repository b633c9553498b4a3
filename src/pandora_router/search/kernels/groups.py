"""What opening a whole group of boxes at once is worth, averaged over joint outcomes.

`covariance` and `quantiles` are as in `kernels.gradient`: empty for independent boxes and for the normal law.
Oracle: `search.groups.plain_group_gain`.
"""

from __future__ import annotations

import math

import numpy as np

from pandora_router.search.kernels.special import NOTHING, cumulative, jit


@jit
def group_gain(mean, covariance, std, refund, sealed, quantiles, outside, group, which, normals):  # type: ignore[no-untyped-def]
    """What opening all sealed boxes of group `which` at once is worth, before its cost.

    E[best worth then] - E[what the present choice is worth then], over the joint outcomes that
    `normals` (S, M) stand for: row by row for the members in descending order of (mean, std). The innermost
    loops run over outcomes, so that they are vectorised; each outcome is summed as it would be alone.
    """
    boxes, outcomes = len(mean), len(normals)
    members = in_order(mean, std, sealed, group, which)
    factor = member_factor(covariance, std, members)
    drawn, steps = np.empty((len(members), outcomes)), np.empty((len(members), outcomes))
    shown = np.empty((boxes, outcomes))
    for k in range(boxes):
        shown[k] = mean[k]
    for i in range(len(members)):
        drawn[i] = normals[:, i]
        if quantiles.shape[0] > 0:
            residual_steps(drawn, factor, std[members[i]], quantiles[members[i]], members[i], i, steps)
        else:
            steps[i] = drawn[i]
        for k in range(boxes):
            for s in range(outcomes):
                shown[k, s] += factor[i, k] * steps[i, s]
    lead = np.argmax(mean)
    kept = np.full(outcomes, outside)
    if mean[lead] > outside:
        kept[:] = shown[lead]
    for m in members:
        shown[m] += refund[m]
    total = 0.0
    for s in range(outcomes):
        best = outside
        for k in range(boxes):
            best = max(best, shown[k, s])
        total += best - kept[s]
    return total / outcomes


@jit
def in_order(mean, std, sealed, group, which):  # type: ignore[no-untyped-def]
    """The sealed boxes of group `which` in descending order of (mean, std), ties by number."""
    members = np.empty(len(mean), dtype=np.int64)
    count = 0
    for k in range(len(mean)):
        if group[k] == which and sealed[k]:
            at = count
            while at > 0 and comes_before(mean, std, k, members[at - 1]):
                members[at] = members[at - 1]
                at -= 1
            members[at] = k
            count += 1
    return members[:count]


@jit
def comes_before(mean, std, k, l):  # type: ignore[no-untyped-def]
    """Whether box k comes before box l in descending order of (mean, std)."""
    return mean[k] > mean[l] or (mean[k] == mean[l] and std[k] > std[l])


@jit
def member_factor(covariance, std, members):  # type: ignore[no-untyped-def]
    """Row i: how every mean moves with the i-th of the independent steps that open `members` (n, M)."""
    count, boxes = len(members), len(std)
    factor = np.zeros((count, boxes))
    rows = covariance[members] if covariance.shape[0] > 0 else np.zeros((count, boxes))
    for i in range(count):
        m = members[i]
        if covariance.shape[0] == 0:
            factor[i, m] = std[m]
        elif std[m] > 0.0 and rows[i, m] > NOTHING * covariance[m, m]:
            pivot = math.sqrt(rows[i, m])
            for k in range(boxes):
                factor[i, k] = rows[i, k] / pivot
            for l in range(i + 1, count):
                for k in range(boxes):
                    rows[l, k] -= factor[i, members[l]] * factor[i, k]
            for l in range(i):  # what was opened before no longer moves
                factor[i, members[l]] = 0.0
    return factor


@jit
def residual_steps(drawn, factor, std, quantiles, member, i, steps):  # type: ignore[no-untyped-def]
    """Fill steps[i] (S,) so that `member` shows the residual quantile at the rank of its normal outcome.

    `drawn` (n, S) are the standard normals of the members up to i; `std` and `quantiles` are the member's.
    """
    outcomes, size, own = steps.shape[1], len(quantiles), factor[i, member]
    if own == 0.0:
        steps[i] = 0.0
        return
    normal, before = np.zeros(outcomes), np.zeros(outcomes)
    for l in range(i):
        for s in range(outcomes):
            normal[s] += factor[l, member] * drawn[l, s]
            before[s] += factor[l, member] * steps[l, s]
    for s in range(outcomes):
        rank = min(int(cumulative((normal[s] + own * drawn[i, s]) / std) * size), size - 1)
        steps[i, s] = (std * quantiles[rank] - before[s]) / own
