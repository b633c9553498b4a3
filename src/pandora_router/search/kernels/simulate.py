"""Monte Carlo committing payoffs under a joint normal law, with everything shared that can be.

Three facts make the paper's Algorithm 1 fast without changing what it computes:
- the posterior covariance depends on which boxes were opened in which order, not on what they showed, so
  price offsets are kept in a tree of opening sequences that all outcomes and holdouts share;
- holding box m changes nothing about the obligatory path of an outcome until that path would open m, except
  that it may stop earlier, so most holdouts are read off the path;
- a node needs one new column of the posterior covariance, O(M x depth), never a dense update.

Oracle: `search.payoffs.plain_payoffs`.
"""

from __future__ import annotations

import math

import numpy as np

from pandora_router.search.kernels.special import NOTHING, jit, offset

NODES = 1024  # nodes kept per decision; deeper or rarer sequences are computed afresh


@jit
def grow(tree, parent, box, slot, depth, covariance):  # type: ignore[no-untyped-def]
    """Write node `slot`: the state after `box` is opened in node `parent`."""
    column, variance, offsets, parents, opened = tree
    boxes = len(covariance)
    for k in range(boxes):
        column[slot, k] = covariance[box, k]
    node = parent
    while node != 0:
        lead = column[node, box]
        for k in range(boxes):
            column[slot, k] -= lead * column[node, k]
        node = parents[node]
    pivot = column[slot, box]
    scale = 1.0 / math.sqrt(pivot) if pivot > NOTHING * covariance[box, box] else 0.0
    for k in range(boxes):
        column[slot, k] *= scale
        variance[slot, k] = variance[parent, k] - column[slot, k] * column[slot, k]
        if variance[slot, k] <= NOTHING * covariance[k, k]:
            variance[slot, k] = 0.0
        # prices only fall as variances do, so the parent's offset stands in until someone asks
        offsets[slot, k] = offsets[parent, k]
    variance[slot, box] = 0.0
    parents[slot] = parent
    opened[slot] = box


@jit
def best_box(tree, exact, node, mean, cost, refund, shut, banned):  # type: ignore[no-untyped-def]
    """The sealed box of highest reservation price, and the price; offsets are sharpened on demand."""
    variance, offsets = tree[1], tree[2]
    boxes = len(mean)
    while True:
        top, price = -1, -np.inf
        for k in range(boxes):
            if shut[k] and k != banned:
                u = mean[k] + offsets[node, k]
                if u > price:
                    top, price = k, u
        if top < 0 or exact[node, top]:
            return top, price
        offsets[node, top] = refund[top] + offset(math.sqrt(variance[node, top]), cost[top])
        exact[node, top] = True


@jit
def descend(tree, exact, child, used, node, box, depth, spare, covariance):  # type: ignore[no-untyped-def]
    """Return (node after opening `box`, nodes used): kept if there is room, else in a spare slot."""
    if node < NODES:
        below = np.int64(child[node, box])
        if below > 0:
            return below, used
    if node < NODES and used < NODES:
        slot = used
        child[node, box] = slot
        used += 1
    else:
        slot = spare + depth
    grow(tree, node, box, slot, depth, covariance)
    if slot < NODES:
        child[slot, :] = 0
    exact[slot, :] = False
    return slot, used


@jit
def joint_outcomes(mean, covariance, normals):  # type: ignore[no-untyped-def]
    """Turn independent standard normals (S, M) into joint outcomes by a Cholesky factor.

    In plain loops: a threaded BLAS would wait for cores on a busy machine. Directions without variance left
    (opened boxes, exact copies) are skipped.
    """
    boxes = len(mean)
    rows = covariance.copy()  # row j of the transposed factor, then what is left of the covariance
    drawn = np.empty(normals.shape)
    for s in range(len(normals)):
        drawn[s] = mean
    for j in range(boxes):
        pivot = rows[j, j]
        if pivot <= 1e-14 * covariance[j, j]:
            continue
        row = rows[j] / math.sqrt(pivot)
        for i in range(j + 1, boxes):
            for l in range(i, boxes):
                rows[i, l] -= row[i] * row[l]
        for s in range(len(normals)):
            for i in range(j, boxes):
                drawn[s, i] += row[i] * normals[s, j]
    return drawn


@jit
def simulated_payoffs(mean, covariance, cost, refund, sealed, held, best, normals, out):  # type: ignore[no-untyped-def]
    """Fill out[0] and out[1 + m] with the mean payoffs of all committing policies over joint outcomes."""
    boxes = len(mean)
    drawn = joint_outcomes(mean, covariance, normals)
    rows = NODES + 2 * boxes + 2
    column = np.empty((rows, boxes))
    variance = np.empty((rows, boxes))
    offsets = np.empty((rows, boxes))
    parents = np.zeros(rows, dtype=np.int64)
    opened = np.zeros(rows, dtype=np.int64)
    tree = (column, variance, offsets, parents, opened)
    exact = np.empty((rows, boxes), dtype=np.bool_)  # rows are cleared as nodes are made
    child = np.empty((NODES, boxes), dtype=np.int32)
    child[0] = 0
    for k in range(boxes):
        column[0, k] = 0.0
        variance[0, k] = max(covariance[k, k], 0.0)
        offsets[0, k] = refund[k] + offset(math.sqrt(variance[0, k]), cost[k])
        exact[0, k] = True
    used = np.int64(1)  # of a fixed type: numba compiles callees once more for a constant
    out[:] = 0.0
    path = np.empty(boxes + 1, dtype=np.int64)  # boxes of the obligatory path
    nodes = np.empty(boxes + 1, dtype=np.int64)
    values = np.empty(boxes + 1)  # best in hand before each step
    lowest = np.empty(boxes + 1)  # lowest price up to each step
    spent = np.empty(boxes + 1)
    means = np.empty((boxes + 1, boxes))
    at = np.full(boxes, -1, dtype=np.int64)  # step at which the path opens each box
    shut = np.empty(boxes, dtype=np.bool_)
    now = np.empty(boxes)
    for s in range(len(drawn)):
        g = drawn[s]
        # the obligatory path
        shut[:] = sealed
        means[0] = mean
        node, steps, value, bill, low = np.int64(0), np.int64(0), best, 0.0, np.inf
        while True:
            top, price = best_box(tree, exact, node, means[steps], cost, refund, shut, -1)
            low = min(low, price)
            nodes[steps], values[steps], lowest[steps], spent[steps] = node, value, low, bill
            if top < 0 or value >= price:
                path[steps] = -1
                break
            path[steps] = top
            at[top] = steps
            node, used = descend(tree, exact, child, used, node, top, steps, NODES, covariance)
            shut[top] = False
            move(column[node], top, g[top], means[steps], means[steps + 1])
            value = max(value, g[top] + refund[top])
            bill += cost[top]
            steps += 1
        out[0] += value - bill
        # every holdout: where does it leave the path?
        for m in range(boxes):
            if not sealed[m]:
                continue
            b = held[m]
            leave = at[m] if at[m] >= 0 else steps
            stop = 0
            while stop < leave and lowest[stop] > b:
                stop += 1
            if stop < leave or at[m] < 0:
                value = values[stop]
                out[1 + m] += (g[m] if value <= b else value) - spent[stop]
                continue
            # the path would now open m: go on without it
            shut[:] = sealed
            for t in range(leave):
                shut[path[t]] = False
            node, value, bill, depth = nodes[leave], values[leave], spent[leave], leave
            now[:] = means[leave]
            while True:
                top, price = best_box(tree, exact, node, now, cost, refund, shut, m)
                if top < 0 or max(value, b) >= price:
                    break
                node, used = descend(
                    tree, exact, child, used, node, top, depth, NODES + boxes + 1, covariance
                )
                depth += 1
                shut[top] = False
                move(column[node], top, g[top], now, now)
                value = max(value, g[top] + refund[top])
                bill += cost[top]
            out[1 + m] += (g[m] if value <= b else value) - bill
        for t in range(steps):
            at[path[t]] = -1
    for m in range(boxes + 1):
        out[m] /= len(drawn)
        if m > 0 and not sealed[m - 1]:
            out[m] = -np.inf


@jit
def move(column, box, value, before, after):  # type: ignore[no-untyped-def]
    """Posterior means once `box` has shown `value`."""
    step = (value - before[box]) / column[box] if column[box] > 0.0 else 0.0
    for k in range(len(before)):
        after[k] = before[k] + column[k] * step
    after[box] = value
