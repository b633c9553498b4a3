"""The knowledge gradient of every sealed box, one or two inspections deep, and the purchase it recommends.

`covariance` (M, M) is the present covariance of all values; an empty one stands for independent boxes, and an
empty `quantiles` for the normal law. Nothing here squares a standard deviation, so that scales from 1e-300 to
1e300 do not matter. Oracles: `search.gradient.plain_gradient`, `plain_inspection`.
"""

from __future__ import annotations

import math

import numpy as np

from pandora_router.search.gradient import normal_rule
from pandora_router.search.kernels.groups import group_gain
from pandora_router.search.kernels.special import NOTHING, first_highest, jit, loss, margin

REACH = 9.0  # crossings beyond so many standard deviations add less than 1e-20 of a slope
PHI_0 = 0.3989422804014327
NODES, WEIGHTS = normal_rule()  # for the outcome of the first of two inspections
FEW = 16  # boxes up to which a bound on a gain takes less time than the gain itself


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
def upper_lines(a, b, count, lead, first, last, high, steep):  # type: ignore[no-untyped-def]
    """Copy the lines that can be highest somewhere from `first` to `last` to `high` and `steep`; how many.

    A line that is below the highest one at 0 (`lead`), below the highest one at an end, and below both where
    these two meet, is below them everywhere between 0 and that end. Usually few of many lines are left.
    """
    left, right = 0, 0
    at_first, at_last = a[0] + b[0] * first, a[0] + b[0] * last
    for k in range(1, count):
        here = a[k] + b[k] * first
        if here > at_first:
            left, at_first = k, here
        here = a[k] + b[k] * last
        if here > at_last:
            right, at_last = k, here
    before, after = meeting(a, b, lead, left), meeting(a, b, lead, right)
    at_before, at_after = a[lead] + b[lead] * before, a[lead] + b[lead] * after
    kept = 0
    for k in range(count):
        above = a[k] + b[k] * before > at_before or a[k] + b[k] * after > at_after
        if above or k == lead or k == left or k == right:  # noqa: SIM109 (no tuples in compiled loops)
            high[kept], steep[kept] = a[k], b[k]
            kept += 1
    return kept


@jit
def meeting(a, b, k, l):  # type: ignore[no-untyped-def]
    """Where lines k and l meet; 0 if they are parallel."""
    return (a[k] - a[l]) / (b[l] - b[k]) if b[k] != b[l] else 0.0


@jit
def gain(a, b, count, lead, quantiles, box, high, steep):  # type: ignore[no-untyped-def]
    """E[max(a + b Z)] - max a, Z normal or, where there are quantiles, a residual of `box`.

    Line `lead` is highest at 0; `high` and `steep` are filled with the lines that matter.
    """
    normal = quantiles.shape[0] == 0
    first, last = (-REACH, REACH) if normal else (quantiles[box, 0], quantiles[box, -1])
    kept = upper_lines(a, b, count, lead, first, last, high, steep)
    if kept == 1:
        return 0.0
    if normal:
        return envelope_gain(high, steep, kept)
    before, total = -np.inf, 0.0
    for k in range(kept):
        before = max(before, high[k])
    for q in range(quantiles.shape[1]):
        top = -np.inf
        for k in range(kept):
            top = max(top, high[k] + steep[k] * quantiles[box, q])
        total += top
    return max(total / quantiles.shape[1] - before, 0.0)


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
    lead = np.argmax(a[:count])
    for j in range(boxes):
        out[j] = 0.0
        if sealed[j] and std[j] > 0.0:
            for k in range(boxes):
                b[k] = covariance[j, k] / std[j]
            out[j] = refunded_gain(a, b, count, lead, refund[j], quantiles, j, high, steep)


@jit
def refunded_gain(a, b, count, lead, back, quantiles, box, high, steep):  # type: ignore[no-untyped-def]
    """E[max(a + b Z)] - max a where the line of `box` rises by `back` once the box is open.

    `lead` is the first of the lines that are highest at 0 before that.
    """
    if back == 0.0:
        return gain(a, b, count, lead, quantiles, box, high, steep)
    before = a[lead]
    sealed_worth = a[box]
    a[box] = sealed_worth + back
    then = box if a[box] > before or (a[box] == before and box < lead) else lead
    worth = gain(a, b, count, then, quantiles, box, high, steep) + (a[then] - before)
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
def most_gain(a, b, count, lead):  # type: ignore[no-untyped-def]
    """At least E[max(a + b Z)] - max a for normal Z, without a special function; line `lead` is highest at 0.

    The gain is at most the sum over lines k of d psi(g / d), g the gap to the lead and d the difference of
    slopes; psi falls, so its value at the next lower of some points is above it.
    """
    total = 0.0
    for k in range(count):
        d = abs(b[k] - b[lead])
        g = a[lead] - a[k]
        if g < 0.5 * d:
            total += 0.39895 * d
        elif g < d:
            total += 0.19780 * d
        elif g < 1.5 * d:
            total += 0.08332 * d
        elif g < 2.0 * d:
            total += 0.02931 * d
        elif g < 3.0 * d:
            total += 0.00850 * d
        else:
            total += 0.00039 * d
    return total


@jit
def learning_gains(worth, moves, scales, out):  # type: ignore[no-untyped-def]
    """Fill out[n] with the mean over rows i of E[max_k (worth_ik + scales_n moves_ik Z)] - max_k worth_ik."""
    rows, boxes = worth.shape
    b, high, steep = np.empty(boxes), np.empty(boxes), np.empty(boxes)
    for n in range(len(scales)):
        total = 0.0
        for i in range(rows):
            lead = np.argmax(worth[i])
            for k in range(boxes):
                b[k] = scales[n] * moves[i, k]
            kept = upper_lines(worth[i], b, boxes, lead, -REACH, REACH, high, steep)
            total += envelope_gain(high, steep, kept) if kept > 1 else 0.0
        out[n] = total / rows


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
    bounded = quantiles.shape[0] == 0 and boxes <= FEW
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
        best, lead = 0.0, np.argmax(a[:count])
        for r in range(len(rivals)):
            if most[r] > best:
                l = rivals[r]
                if bounded and refund[l] == 0.0 and most_gain(a, slopes[r], count, lead) - after[l] <= best:
                    continue
                news = refunded_gain(a, slopes[r], count, lead, refund[l], quantiles, l, high, steep)
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
    equal = margin(mean)
    nets = np.full(boxes, -np.inf)
    for j in range(boxes):
        if sealed[j]:
            nets[j] = worth[j] - cost[j]
    if depth == 1:
        return best_of(nets, equal)
    promise = np.full(boxes, -np.inf)
    lead = first_highest(mean, equal)
    for j in range(boxes):
        for l in range(boxes):
            if sealed[j] and sealed[l] and nets[l] - nets[j] <= equal:
                promise[j] = max(promise[j], nets[l])
    if sealed[lead]:
        promise[lead] = np.inf
    rivals = most_promising(promise, width)
    nets[:] = -np.inf
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
        nets[j] = net
    return best_of(nets, equal)


@jit
def best_of(nets, equal):  # type: ignore[no-untyped-def]
    """The first box of those whose worth is highest but for rounding, and the highest; -1 without any."""
    top = first_highest(nets, equal)
    if nets[top] == -np.inf:
        return -1, -np.inf
    return top, nets.max()


@jit
def most_promising(promise, width):  # type: ignore[no-untyped-def]
    """Numbers of the `width` boxes of highest promise, highest first, ties by number."""
    chosen = np.empty(min(width, len(promise)), dtype=np.int64)
    count = 0
    for k in range(len(promise)):
        at = count
        while at > 0 and promise[k] > promise[chosen[at - 1]]:
            if at < len(chosen):
                chosen[at] = chosen[at - 1]
            at -= 1
        if at < len(chosen):
            chosen[at] = k
            count = min(count + 1, len(chosen))
    return chosen


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
    chosen, highest, equal = -1, net, margin(mean)
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
            if worth > highest + equal:
                chosen, highest = g, worth
    if chosen >= 0:
        return -1, chosen
    return (box if net > equal else -1), -1
