"""The knowledge gradient of every sealed box, one or two inspections deep.

Oracles: `search.gradient.plain_gradient` and `search.gradient.plain_inspection`.
"""

from __future__ import annotations

import math

import numpy as np

from pandora_router.search.gradient import normal_rule
from pandora_router.search.kernels.special import NOTHING, jit, loss

REACH = 9.0  # crossings beyond so many standard deviations add less than 1e-20 of a slope
PHI_0 = 0.3989422804014327
ROUNDING = 1e-12  # a line counts as below another only by more than this
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
    left, right = a[lead] + b[lead] * first - ROUNDING, a[lead] + b[lead] * last - ROUNDING
    kept = 0
    for k in range(count):
        if k == lead or a[k] + b[k] * first >= left or a[k] + b[k] * last >= right:
            high[kept], steep[kept] = a[k], b[k]
            kept += 1
    total = 0.0
    for q in range(quantiles.shape[1]):
        top = -np.inf
        for k in range(kept):
            top = max(top, high[k] + steep[k] * quantiles[box, q])
        total += top
    return total / quantiles.shape[1] - a[lead]


@jit
def knowledge_gradient(mean, covariance, std, sealed, quantiles, outside, out):  # type: ignore[no-untyped-def]
    """Fill out[j] with the worth of opening j alone, before its cost; 0 where nothing is left to open."""
    boxes = len(mean)
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
            out[j] = max(gain(a, b, count, quantiles, j, high, steep), 0.0)


@jit
def second_gain(mean, covariance, std, after, sealed, quantiles, outside, first, rivals):  # type: ignore[no-untyped-def]
    """E[(best worth of a second inspection net of its cost)+] once `first` is open, over its outcomes.

    `after[l]` is the cost of box l then (a shared part may be settled), `rivals` the boxes considered.
    """
    boxes = len(mean)
    count = boxes + 1 if outside > -np.inf else boxes
    a, high, steep = np.empty(boxes + 1), np.empty(boxes + 1), np.empty(boxes + 1)
    a[boxes] = outside
    slopes = np.zeros((len(rivals), boxes + 1))
    most = np.full(len(rivals), -1.0)  # no news moves the maximum by more: (highest - lowest slope) E|Z|+
    for r in range(len(rivals)):
        l = rivals[r]
        share = covariance[first, l] / covariance[first, first]
        variance = covariance[l, l] - share * covariance[first, l]
        if l != first and sealed[l] and std[l] > 0.0 and variance > NOTHING * covariance[l, l]:
            for k in range(boxes):
                if k != first:
                    slopes[r, k] = (covariance[l, k] - share * covariance[first, k]) / math.sqrt(variance)
            reach = PHI_0
            if quantiles.shape[0] > 0:
                reach = max(abs(quantiles[l, 0]), abs(quantiles[l, -1]))
            most[r] = (slopes[r].max() - slopes[r].min()) * reach - after[l]
    outcomes = quantiles.shape[1] if quantiles.shape[0] > 0 else len(NODES)
    total = 0.0
    for n in range(outcomes):
        z = quantiles[first, n] if quantiles.shape[0] > 0 else NODES[n]
        for k in range(boxes):
            a[k] = mean[k] + covariance[first, k] / std[first] * z
        best = 0.0
        for r in range(len(rivals)):
            if most[r] > best:
                news = gain(a, slopes[r], count, quantiles, rivals[r], high, steep)
                best = max(best, news - after[rivals[r]])
        total += best / outcomes if quantiles.shape[0] > 0 else best * WEIGHTS[n]
    return total


@jit
def best_inspection(mean, covariance, std, cost, own, group, sealed, quantiles, outside, depth, width):  # type: ignore[no-untyped-def]
    """Return (box, net worth) of the best next inspection, looking `depth` (1 or 2) inspections ahead.

    With depth 2 only the `width` boxes of highest net worth are looked at, first and second.
    """
    boxes = len(mean)
    worth = np.empty(boxes)
    knowledge_gradient(mean, covariance, std, sealed, quantiles, outside, worth)
    top, highest = -1, -np.inf
    if depth == 1:
        for j in range(boxes):
            if sealed[j] and worth[j] - cost[j] > highest:
                top, highest = j, worth[j] - cost[j]
        return top, highest
    rivals = np.argsort(-np.where(sealed, worth - cost, -np.inf), kind="mergesort")[:width]
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
            net += second_gain(mean, covariance, std, after, sealed, quantiles, outside, j, rivals)
        if net > highest or (net == highest and j < top):
            top, highest = j, net
    return top, highest
