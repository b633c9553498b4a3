"""All M+1 exact committing payoffs of independent normal boxes in one pass from the top down.

The breakpoints are the reservation prices, the outside options and the ends of each box's support. Between
two of them the CDF H of K = max_j min(G_j + r_j, u_j) is a smooth product of normal CDFs: leave-one-out
integrals differ from the full one by H (1/F_m - 1), so Gauss-Legendre panels serve all holdouts at once.
The pass stops where H has fallen to nothing: below, every integrand is 1. Oracle: `search.payoffs`.
"""

from __future__ import annotations

import numpy as np

from pandora_router.search.kernels.special import SUPPORT, cumulative, jit

# panel width in units of the smallest active standard deviation -> Gauss-Legendre nodes
WIDTHS = np.array([0.02, 0.10, 0.3, 0.9])
SIZES = np.array([2, 4, 6, 10])
NODES = np.zeros((4, 10))
WEIGHTS = np.zeros((4, 10))
for _i, _n in enumerate(SIZES):
    NODES[_i, :_n], WEIGHTS[_i, :_n] = np.polynomial.legendre.leggauss(_n)
NEGLIGIBLE = 1e-18


@jit
def committing_payoffs(sealed_mean, std, refund, reservation, outside, sealed, best, out):  # type: ignore[no-untyped-def]
    """Fill out[0] with the obligatory payoff and out[1 + m] with that of holding box m at outside[m].

    `best` is what is already in hand (-inf for nothing). A box that is not sealed is never held: -inf.
    Rivals of the held box are opened before they are taken, so that their refunds come back.
    """
    boxes = len(sealed_mean)
    mean = sealed_mean + refund
    live = np.empty(boxes, dtype=np.int64)  # boxes that matter: sealed, and with a price above `best`
    count = 0
    for j in range(boxes):
        out[1 + j] = -np.inf
        if sealed[j]:
            live[count] = j
            count += 1
    top = np.empty(count)  # where each box leaves the product: its price, or the end of its support
    bottom = np.empty(count)  # where its CDF has fallen to nothing
    floor = np.empty(count)  # where the integral of its own holdout policy ends
    edges = np.empty(3 * count + 1)
    for i in range(count):
        j = live[i]
        top[i] = min(reservation[j], mean[j] + SUPPORT * std[j])
        bottom[i] = min(mean[j] - SUPPORT * std[j], top[i])
        floor[i] = max(outside[j], best)
        edges[3 * i] = top[i]
        edges[3 * i + 1] = bottom[i]
        edges[3 * i + 2] = floor[i]
    edges[3 * count] = best
    edges = np.sort(edges)[::-1]
    if count == 1:  # without rivals a held box is simply taken
        out[1 + live[0]] = best if best > outside[live[0]] else sealed_mean[live[0]]

    total = 0.0  # integral of 1 - H from the present point up
    extra = np.zeros(count)  # integral of H/F_m - H from the present point up
    cdf = np.empty(count)
    active = np.empty(count, dtype=np.int64)
    done = np.full(count, count == 1)
    finished = False
    last_dead = 0
    x = edges[0]
    k = 0
    while True:
        # settle the policies whose floor is the present point
        for i in range(count):
            if not done[i] and floor[i] >= x:
                done[i] = True
                j = live[i]
                out[1 + j] = _settle(
                    sealed_mean, mean, outside, best, top, std, live, count, i, x, total - extra[i]
                )
        if best >= x:
            out[0] = best + total
            finished = True
            break
        while k < len(edges) and edges[k] >= x:
            k += 1
        if k == len(edges) or edges[k] == -np.inf:
            break
        low = edges[k]
        # the boxes whose CDF changes on (low, x), and how many have none left there
        moving = 0
        dead = 0
        narrow = np.inf
        for i in range(count):
            if top[i] >= x:
                if bottom[i] >= x:
                    dead += 1
                    last_dead = i
                else:
                    active[moving] = i
                    moving += 1
                    narrow = min(narrow, std[live[i]])
        if dead >= 2:
            break
        if moving == 0:
            # H is 0 with one dead box (and 1 without it), else 1
            if dead == 1:
                total += x - low
                extra[last_dead] += x - low
            x = low
            continue
        share = (x - low) / narrow
        panels = max(1, int(np.ceil(share / WIDTHS[-1])))
        share /= panels
        rule = 0
        while rule < len(WIDTHS) - 1 and share > WIDTHS[rule]:
            rule += 1
        width = (x - low) / panels
        largest = 0.0
        for p in range(panels):
            upper = x - p * width
            largest = 0.0
            for n in range(SIZES[rule]):
                point = upper - 0.5 * width * (1.0 + NODES[rule, n])
                weight = 0.5 * width * WEIGHTS[rule, n]
                product = 1.0
                for a in range(moving):
                    i = active[a]
                    j = live[i]
                    cdf[a] = cumulative((point - mean[j]) / std[j])
                    product *= cdf[a]
                if dead == 1:
                    total += weight
                    extra[last_dead] += weight * product
                    largest = max(largest, product)
                else:
                    total += weight * (1.0 - product)
                    smallest = 1.0
                    for a in range(moving):
                        smallest = min(smallest, cdf[a])
                        extra[active[a]] += weight * product * (1.0 / cdf[a] - 1.0)
                    largest = max(largest, product / smallest)
            if largest < NEGLIGIBLE:
                low = upper - width
                break
        x = low
        if largest < NEGLIGIBLE:
            break
    # below x every integrand is 1 and no policy settles for its sealed box
    for i in range(count):
        if not done[i]:
            out[1 + live[i]] = x + total - extra[i]
    if not finished:
        out[0] = x + total


@jit
def _settle(sealed_mean, mean, outside, best, top, std, live, count, held, x, above):  # type: ignore[no-untyped-def]
    """nu of holding one box, from the integral of 1 - H above its floor x."""
    j = live[held]
    if best > outside[j]:
        return best + above
    chance = 1.0  # H(b) without the held box: the chance that nothing beats it
    for i in range(count):
        if i != held and top[i] > x:
            chance *= cumulative((x - mean[live[i]]) / std[live[i]])
    return sealed_mean[j] * chance + outside[j] * (1.0 - chance) + above
