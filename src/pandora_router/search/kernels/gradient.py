"""The knowledge gradient of every sealed box, with boxes skipped that cannot pay for themselves.

Oracle: `search.gradient.plain_gradient`.
"""

from __future__ import annotations

import numpy as np

from pandora_router.search.kernels.special import jit, loss

PHI_0 = 0.3989422804014327
REACH = 9.0  # crossings beyond so many standard deviations add less than 1e-20 of a slope


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
def independent_gradient(mean, std, sealed, outside, out):  # type: ignore[no-untyped-def]
    """Fill out[j] with s psi(|v - mu|/s), v the best of all else: what opening j alone is worth."""
    leader, first, second = -1, outside, -np.inf
    for k in range(len(mean)):
        if mean[k] > first:
            leader, first, second = k, mean[k], first
        elif mean[k] > second:
            second = mean[k]
    for j in range(len(mean)):
        rival = second if j == leader else first
        out[j] = 0.0
        if sealed[j] and std[j] > 0.0 and rival > -np.inf:
            out[j] = std[j] * loss(abs(rival - mean[j]) / std[j])


@jit
def knowledge_gradient(mean, covariance, std, cost, sealed, quantiles, outside, out):  # type: ignore[no-untyped-def]
    """Fill out[j] with the worth of opening j alone; 0 where it cannot exceed its cost."""
    boxes = len(mean)
    a = np.empty(boxes + 1)
    b = np.empty(boxes + 1)
    leader = 0
    for k in range(boxes):
        a[k] = mean[k]
        if mean[k] > mean[leader]:
            leader = k
    count = boxes
    if outside > -np.inf:
        a[count] = outside
        b[count] = 0.0
        if outside >= mean[leader]:
            leader = count
        count += 1
    for j in range(boxes):
        out[j] = 0.0
        if not sealed[j] or std[j] <= 0.0:
            continue
        scale = 1.0 / std[j]
        low, high = b[boxes] if count > boxes else np.inf, b[boxes] if count > boxes else -np.inf
        for k in range(boxes):
            b[k] = covariance[j, k] * scale
            low, high = min(low, b[k]), max(high, b[k])
        reach = PHI_0
        if quantiles.shape[0] > 0:
            reach = max(abs(quantiles[j, 0]), abs(quantiles[j, -1]))
        # a_k + b_k Z exceeds the leader's line by at most (high - low) |Z|, one sign at a time
        if (high - low) * reach <= cost[j]:
            continue
        if quantiles.shape[0] == 0:
            out[j] = envelope_gain(a, b, count)
        else:
            total = 0.0
            for q in range(quantiles.shape[1]):
                z = quantiles[j, q]
                top = -np.inf
                for k in range(count):
                    top = max(top, a[k] + b[k] * z)
                total += top
            out[j] = total / quantiles.shape[1] - a[leader]
