"""Compiled twins of the estimators: nearest rows of packed vectors, and sums of regression trees.

Neither makes a decision, but both are on the way to every one. Their plain forms are `estimators.packed`
(numpy) and LightGBM (`estimators.stack.ensemble`); that they agree bit for bit is a test.
"""

from __future__ import annotations

import numba
import numpy as np

from pandora_router.search.kernels.special import KEPT, jit

ZERO = 1e-35  # LightGBM's: nearer to zero is zero
CATEGORICAL, LEFT_IF_MISSING = 1, 2  # bits of a node's decision; the next two say what counts as missing
MISSING_ZERO, MISSING_NAN = 1, 2

# Sums of products of small whole numbers are exact in single precision, in whichever order they are added.
exact = numba.njit(cache=KEPT, nogil=True, error_model="numpy", fastmath={"reassoc", "contract", "nsz"})


@exact
def inner_products(query, codes, scale, near):  # type: ignore[no-untyped-def]
    """near[i] = (query . codes[i]) scale[i]; `query` (d,) holds whole numbers of at most 127 as float32."""
    width = codes.shape[1]
    for i in range(codes.shape[0]):
        total = np.float32(0.0)
        for j in range(width):
            total += query[j] * np.float32(codes[i, j])
        near[i] = total * scale[i]


@jit
def worse(a, i, b, j):  # type: ignore[no-untyped-def]
    """Whether row i at similarity a comes after row j at similarity b: less similar, or equal and later."""
    return a < b or (a == b and i > j)


@jit
def sift(values, rows, at, size):  # type: ignore[no-untyped-def]
    """Restore the heap (worst first) below position `at`."""
    while True:
        child = 2 * at + 1
        if child >= size:
            return
        if child + 1 < size and worse(values[child + 1], rows[child + 1], values[child], rows[child]):
            child += 1
        if not worse(values[child], rows[child], values[at], rows[at]):
            return
        values[child], values[at] = values[at], values[child]
        rows[child], rows[at] = rows[at], rows[child]
        at = child


@jit
def largest(near, values, rows):  # type: ignore[no-untyped-def]
    """Fill `rows` (k,) with the rows of the k largest entries of `near`, largest first, ties by row."""
    k = len(rows)
    for i in range(k):
        values[i], rows[i] = near[i], i
    for i in range(k // 2 - 1, -1, -1):
        sift(values, rows, i, k)
    for i in range(k, len(near)):
        if near[i] > values[0]:
            values[0], rows[0] = near[i], i
            sift(values, rows, 0, k)
    for size in range(k - 1, 0, -1):  # the worst goes to the end
        values[0], values[size] = values[size], values[0]
        rows[0], rows[size] = rows[size], rows[0]
        sift(values, rows, 0, size)


@jit
def packed_nearest(queries, codes, scale, found):  # type: ignore[no-untyped-def]
    """The rows of `codes` (N, d) nearest to each query (n, d), nearest first, into `found` (n, k), k <= N."""
    near = np.empty(codes.shape[0], dtype=np.float32)
    values = np.empty(found.shape[1], dtype=np.float32)
    for i in range(queries.shape[0]):
        inner_products(queries[i], codes, scale, near)
        largest(near, values, found[i])


@jit
def largest_rows(near, found):  # type: ignore[no-untyped-def]
    """The columns of the k largest entries of each row of `near` (n, N), as `packed_nearest` orders them."""
    values = np.empty(found.shape[1], dtype=np.float32)
    for i in range(near.shape[0]):
        largest(near[i], values, found[i])


@jit
def neighbour_means(found, reward, usual, ks, out):  # type: ignore[no-untyped-def]
    """Mean rewards of the first ks[0] <= ks[1] <= ... of the rows `found` (n, k), into `out` (K, n, M).

    `reward` (N, M) is NaN where missing, a row of -1 stands for none, and `usual` (M,) is the mean where
    nothing is there.
    """
    boxes = reward.shape[1]
    total, count = np.empty(boxes), np.empty(boxes)
    for i in range(found.shape[0]):
        total[:] = 0.0
        count[:] = 0.0
        start = 0
        for a in range(len(ks)):
            for position in range(start, min(ks[a], found.shape[1])):
                row = found[i, position]
                if row >= 0:
                    for j in range(boxes):
                        value = reward[row, j]
                        if value == value:
                            total[j] += value
                            count[j] += 1.0
            start = min(ks[a], found.shape[1])
            for j in range(boxes):
                out[a, i, j] = total[j] / count[j] if count[j] > 0.0 else usual[j]


@jit
def tree_sums(table, starts, nodes, thresholds, children, values, bounds, words, out):  # type: ignore[no-untyped-def]
    """Sum of all trees for each row of `table` (n, features), into `out` (n,).

    `starts` (T, 5): of each tree its first node, first leaf, first bound, first word, number of leaves.
    `nodes` (nodes, 2): feature and decision bits; `children` (nodes, 2): left and right, a node of the tree
    or -1 - leaf. Bounds and words are sets of categories, as in `Ensemble`.
    """
    for i in range(table.shape[0]):
        total = 0.0
        for tree in range(starts.shape[0]):
            at = 0 if starts[tree, 4] > 1 else -1
            while at >= 0:
                node = starts[tree, 0] + at
                value = table[i, nodes[node, 0]]
                bits = nodes[node, 1]
                if bits & CATEGORICAL:
                    left = in_set(value, thresholds[node], starts[tree, 2], starts[tree, 3], bounds, words)
                else:
                    kind = bits >> 2
                    if value != value and kind != MISSING_NAN:
                        value = 0.0
                    missing = value != value or (kind == MISSING_ZERO and -ZERO <= value <= ZERO)
                    left = (bits & LEFT_IF_MISSING) != 0 if missing else value <= thresholds[node]
                at = children[node, 0] if left else children[node, 1]
            total += values[starts[tree, 1] - 1 - at]
        out[i] = total


@jit
def in_set(value, number, first_bound, first_word, bounds, words):  # type: ignore[no-untyped-def]
    """Whether the category `value` is in the set `number` of its tree; NaN and negatives are in none."""
    if not value > -1.0:
        return False
    category = np.int64(value)
    low, high = bounds[first_bound + np.int64(number)], bounds[first_bound + np.int64(number) + 1]
    if category // 32 >= high - low:
        return False
    return (np.int64(words[first_word + low + category // 32]) >> (category % 32)) & 1 != 0
