"""The knowledge gradient of every sealed box, one or two inspections deep, and of whole groups.

`covariance` (M, M) is the present covariance of all values; an empty one stands for independent boxes, and an
empty `quantiles` for the normal law. Nothing here squares a standard deviation, so that scales from 1e-300 to
1e300 do not matter. Oracles: `search.gradient.plain_gradient`, `plain_inspection`, `plain_group_gain`.
"""

from __future__ import annotations

import math

import numpy as np

from pandora_router.search.gradient import normal_rule
from pandora_router.search.kernels.special import NOTHING, cumulative, jit, loss

REACH = 9.0  # crossings beyond so many standard deviations add less than 1e-20 of a slope
PHI_0 = 0.3989422804014327
NODES, WEIGHTS = normal_rule()  # for the outcome of the first of two inspections


@jit
def envelope_gain(a, b, count):  # type: ignore[no-untyped-def]
    """E[max(a + b Z)] - max a over the first `count` lines, walking the envelope from left to right."""
    line = 0
    height = a[0] - REACH * b[0]
    for k in range(1, count):
        here = a[k] - REACH * b[k]
        if here > height or (here == height and b[k] > b[line]):
            line, height = k, here
    total = 0.0
    while True:
        following, z = -1, REACH
        for k in range(count):
            if b[k] > b[line]:
                crossing = (a[line] - a[k]) / (b[k] - b[line])
                if crossing < z or (crossing == z and following >= 0 and b[k] > b[following]):
                    following, z = k, crossing
        if following < 0:
            return total
        total += (b[following] - b[line]) * loss(abs(z))
        line = following


@jit
def gain(a, b, count, quantiles, box, high, steep):  # type: ignore[no-untyped-def]
    """E[max(a + b Z)] - max a, Z normal or, where there are quantiles, a residual of `box`.

    Lines that lie below the highest one at the first and at the last quantile are below it at all of them and
    are left out; `high` and `steep` hold the others.
    """
    if quantiles.shape[0] == 0:
        return envelope_gain(a, b, count)
    lead = 0
    for k in range(1, count):
        if a[k] > a[lead]:
            lead = k
    first, last = quantiles[box, 0], quantiles[box, -1]
    left, right = a[lead] + b[lead] * first, a[lead] + b[lead] * last
    kept = 0
    for k in range(count):
        if k == lead or a[k] + b[k] * first > left or a[k] + b[k] * last > right:
            high[kept], steep[kept] = a[k], b[k]
            kept += 1
    if kept == 1:
        return 0.0
    total = 0.0
    for q in range(quantiles.shape[1]):
        top = -np.inf
        for k in range(kept):
            top = max(top, high[k] + steep[k] * quantiles[box, q])
        total += top
    return max(total / quantiles.shape[1] - a[lead], 0.0)


@jit
def knowledge_gradient(mean, covariance, std, refund, sealed, quantiles, outside, out):  # type: ignore[no-untyped-def]
    """Fill out[j] with the worth of opening j alone, before its cost; 0 where nothing is left to open."""
    boxes = len(mean)
    if covariance.shape[0] == 0:
        independent_gradient(mean, std, refund, sealed, outside, out)
        return
    a, b = np.empty(boxes + 1), np.empty(boxes + 1)
    high, steep = np.empty(boxes + 1), np.empty(boxes + 1)
    a[:boxes] = mean
    a[boxes], b[boxes] = outside, 0.0
    count = boxes + 1 if outside > -np.inf else boxes
    for j in range(boxes):
        out[j] = 0.0
        if sealed[j] and std[j] > 0.0:
            for k in range(boxes):
                b[k] = covariance[j, k] / std[j]
            out[j] = refunded_gain(a, b, count, refund[j], quantiles, j, high, steep)


@jit
def refunded_gain(a, b, count, back, quantiles, box, high, steep):  # type: ignore[no-untyped-def]
    """E[max(a + b Z)] - max a where the line of `box` rises by `back` once the box is open."""
    if back == 0.0:
        return gain(a, b, count, quantiles, box, high, steep)
    before = a[:count].max()
    sealed_worth = a[box]
    a[box] = sealed_worth + back
    worth = gain(a, b, count, quantiles, box, high, steep) + (a[:count].max() - before)
    a[box] = sealed_worth
    return worth


@jit
def independent_gradient(mean, std, refund, sealed, outside, out):  # type: ignore[no-untyped-def]
    """The same for independent normal boxes: E[(G + r - v)+] - (mu - v)+ against the best v of all else."""
    first, second = 0, -1
    for k in range(1, len(mean)):
        if mean[k] > mean[first]:
            first, second = k, first
        elif second < 0 or mean[k] > mean[second]:
            second = k
    for j in range(len(mean)):
        out[j] = 0.0
        if sealed[j] and std[j] > 0.0:
            rival = outside
            if j != first:
                rival = max(outside, mean[first])
            elif second >= 0:
                rival = max(outside, mean[second])
            if rival == -np.inf:  # nothing else to take: news changes nothing
                out[j] = refund[j]
                continue
            lead = mean[j] + refund[j] - rival
            z = abs(lead) / std[j]
            if z < REACH:
                out[j] = std[j] * loss(z)
            out[j] += max(lead, 0.0) - max(mean[j] - rival, 0.0)


@jit
def second_gain(mean, covariance, std, after, refund, sealed, quantiles, outside, first, rivals):  # type: ignore[no-untyped-def]
    """E[(best worth of a second inspection net of its cost)+] once `first` is open, over its outcomes.

    `after[l]` is the cost of box l then (a shared part may be settled), `rivals` the boxes considered. With
    c the correlation of l and `first`, opening l then moves the means by (b_l - c b_first)/sqrt(1 - c^2).
    """
    boxes = len(mean)
    dense = covariance.shape[0] > 0
    count = boxes + 1 if outside > -np.inf else boxes
    a, high, steep = np.empty(boxes + 1), np.empty(boxes + 1), np.empty(boxes + 1)
    a[boxes] = outside
    slopes = np.zeros((len(rivals), boxes + 1))
    most = np.full(len(rivals), -1.0)  # no news moves the maximum by more: (highest - lowest slope) E|Z|+
    for r in range(len(rivals)):
        l = rivals[r]
        if l == first or not sealed[l] or std[l] <= 0.0:
            continue
        share = covariance[first, l] / std[first] / std[l] if dense else 0.0
        left = 1.0 - share * share
        if left <= NOTHING:
            continue
        if dense:
            for k in range(boxes):
                if k != first:
                    move = covariance[l, k] / std[l] - share * (covariance[first, k] / std[first])
                    slopes[r, k] = move / math.sqrt(left)
        else:
            slopes[r, l] = std[l]
        reach = PHI_0
        if quantiles.shape[0] > 0:
            reach = max(abs(quantiles[l, 0]), abs(quantiles[l, -1]))
        most[r] = (slopes[r].max() - slopes[r].min()) * reach + refund[l] - after[l]
    outcomes = quantiles.shape[1] if quantiles.shape[0] > 0 else len(NODES)
    total = 0.0
    for n in range(outcomes):
        z = quantiles[first, n] if quantiles.shape[0] > 0 else NODES[n]
        if dense:
            for k in range(boxes):
                a[k] = mean[k] + covariance[first, k] / std[first] * z
        else:
            a[:boxes] = mean
            a[first] = mean[first] + std[first] * z
        a[first] += refund[first]
        best = 0.0
        for r in range(len(rivals)):
            if most[r] > best:
                l = rivals[r]
                news = refunded_gain(a, slopes[r], count, refund[l], quantiles, l, high, steep)
                best = max(best, news - after[l])
        total += best / outcomes if quantiles.shape[0] > 0 else best * WEIGHTS[n]
    return total


@jit
def best_inspection(  # type: ignore[no-untyped-def]
    mean, covariance, std, cost, own, group, refund, sealed, quantiles, outside, depth, width
):
    """Return (box, net worth) of the best next inspection, looking `depth` (1 or 2) inspections ahead.

    With depth 2 only `width` boxes are looked at, first and second: the one of highest mean and those of
    highest net worth.
    """
    boxes = len(mean)
    worth = np.empty(boxes)
    knowledge_gradient(mean, covariance, std, refund, sealed, quantiles, outside, worth)
    top, highest = -1, -np.inf
    if depth == 1:
        for j in range(boxes):
            if sealed[j] and worth[j] - cost[j] > highest:
                top, highest = j, worth[j] - cost[j]
        return top, highest
    promise = np.where(sealed, worth - cost, -np.inf)
    lead = np.argmax(mean)
    if sealed[lead]:
        promise[lead] = np.inf
    rivals = np.argsort(-promise, kind="mergesort")[:width]
    after = np.empty(boxes)
    for r in range(len(rivals)):
        j = rivals[r]
        if not sealed[j]:
            continue
        net = worth[j] - cost[j]
        if std[j] > 0.0:
            for l in range(boxes):  # opening j settles the shared part of its group
                mates = len(group) > 0 and group[j] >= 0 and group[l] == group[j]
                after[l] = own[l] if mates else cost[l]
            net += second_gain(mean, covariance, std, after, refund, sealed, quantiles, outside, j, rivals)
        if net > highest or (net == highest and j < top):
            top, highest = j, net
    return top, highest


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


@jit
def gradient_step(  # type: ignore[no-untyped-def]
    mean, covariance, std, cost, own, left, group, refund, sealed, quantiles, outside, depth, width, normals
):
    """The best next purchase: (box, -1) to open a box, (-1, g) all of group g, (-1, -1) to stop.

    `left` holds what is still to be paid for each group (empty without groups).
    """
    box, net = best_inspection(
        mean, covariance, std, cost, own, group, refund, sealed, quantiles, outside, depth, width
    )
    net = max(net, 0.0) if box >= 0 else 0.0
    chosen, highest = -1, net
    for g in range(len(left)):
        bill, count = left[g], 0
        for k in range(len(mean)):
            if group[k] == g and sealed[k]:
                bill += own[k]
                count += 1
        if left[g] > 0.0 and count > 1:
            worth = -bill + group_gain(
                mean, covariance, std, refund, sealed, quantiles, outside, group, g, normals
            )
            if worth > highest:
                chosen, highest = g, worth
    if chosen >= 0:
        return -1, chosen
    return (box if net > 0.0 else -1), -1
