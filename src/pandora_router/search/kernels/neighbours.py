"""Compiled twins of the estimators: word vectors, nearest rows of packed vectors, sums of regression trees.

None makes a decision, but all are on the way to every one. Their plain forms are
`estimators.embedders.embedder`, `estimators.nearest` and `estimators.stack.ensemble`; that both agree bit
for bit, the trees also with LightGBM, is a test.
"""

from __future__ import annotations

import numba
import numpy as np

from pandora_router.search.kernels.special import KEPT, jit

ZERO = 1e-35  # LightGBM's: nearer to zero is zero
CATEGORICAL, LEFT_IF_MISSING = 1, 2  # bits of a node's decision; the next two say what counts as missing
MISSING_ZERO, MISSING_NAN = 1, 2
CLASSES = 512  # of known rows; a search counts the most similar row of each
PARTS = 258  # of the range of similarities, in which they are counted
HALF_TO_SINGLE = np.float32(2.0**112)  # makes up for the different offsets of the exponents

# Sums of products of small whole numbers are exact in single precision, in whichever order they are added.
exact = numba.njit(cache=KEPT, nogil=True, error_model="numpy", fastmath={"reassoc", "contract", "nsz"})


@jit
def half_means(bits, ids, ends, out):  # type: ignore[no-untyped-def]
    """Mean of the rows ids[ends[i-1]:ends[i]] of a table, into out[i] (n, width) of single precision.

    `bits` are the numbers of the table in half precision, all finite. out[i] stays 0 where there are no rows.
    """
    width = bits.shape[1]
    total = np.empty(width, dtype=np.float32)
    word = np.empty(width, dtype=np.uint32)
    number = word.view(np.float32)
    start = 0
    for i in range(len(ends)):
        total[:] = 0.0
        for t in range(start, ends[i]):
            row = bits[ids[t]]
            for j in range(width):
                half = np.uint32(row[j])
                sign, rest = half & np.uint32(0x8000), half & np.uint32(0x7FFF)
                word[j] = np.uint32((sign << np.uint32(16)) | (rest << np.uint32(13)))
            for j in range(width):
                total[j] += number[j] * HALF_TO_SINGLE
        count = ends[i] - start
        if count > 0:
            for j in range(width):
                out[i, j] = np.float32(np.float64(total[j]) / count)
        start = ends[i]


@exact
def inner_products(query, codes, products):  # type: ignore[no-untyped-def]
    """products[i] = query . codes[i]; `query` (d,) holds whole numbers of at most 127 as float32."""
    width = codes.shape[1]
    for i in range(codes.shape[0]):
        total = np.float32(0.0)
        for j in range(width):
            total += query[j] * np.float32(codes[i, j])
        products[i] = total


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
def candidates(products, scale, k, tops, counts, kept):  # type: ignore[no-untyped-def]
    """Numbers of the entries products[i] scale[i] that can be among the k largest, into `kept`; how many.

    Entry i belongs to class i % len(tops), and `tops` is filled with the largest entry of each class, at
    least 0. Entries below the k-th largest top are left out: k entries of different classes are above them.
    """
    classes, total = len(tops), len(products)
    tops[:] = 0.0
    for start in range(0, total, classes):
        near, far = products[start : start + classes], scale[start : start + classes]
        for j in range(len(near)):
            tops[j] = max(tops[j], near[j] * far[j])
    least = below_largest(tops, k, counts)
    size = 0
    for i in range(total):
        kept[size] = i
        size += products[i] * scale[i] >= least
    return size


@jit
def below_largest(tops, k, counts):  # type: ignore[no-untyped-def]
    """A number that the k largest of `tops` (none below 0) reach and few others; -inf if k reach only 0.

    The range from 0 to the largest is cut into as many equal parts as `counts` is long.
    """
    top = tops.max()
    if not top > 0.0:
        return np.float32(-np.inf)
    factor = np.float32((len(counts) - 1) / top)
    counts[:] = 0
    for j in range(len(tops)):
        counts[np.int64(tops[j] * factor)] += 1
    lowest, held = len(counts) - 1, counts[len(counts) - 1]
    while held < k:
        lowest -= 1
        held += counts[lowest]
    least = top
    for j in range(len(tops)):
        if np.int64(tops[j] * factor) >= lowest:
            least = min(least, tops[j])
    return least if least > 0.0 else np.float32(-np.inf)


@jit
def largest(products, scale, tops, counts, kept, values, rows):  # type: ignore[no-untyped-def]
    """Numbers of the k largest products[i] scale[i] into `rows` (k,), largest first, ties by number."""
    k = len(rows)
    total = candidates(products, scale, k, tops, counts, kept)
    for i in range(k):
        values[i], rows[i] = products[kept[i]] * scale[kept[i]], kept[i]
    for i in range(k // 2 - 1, -1, -1):
        sift(values, rows, i, k)
    for i in range(k, total):
        near = products[kept[i]] * scale[kept[i]]
        if near > values[0]:
            values[0], rows[0] = near, kept[i]
            sift(values, rows, 0, k)
    for size in range(k - 1, 0, -1):  # the worst goes to the end
        values[0], values[size] = values[size], values[0]
        rows[0], rows[size] = rows[size], rows[0]
        sift(values, rows, 0, size)


@jit
def counting(rows, k):  # type: ignore[no-untyped-def]
    """Arrays for the search of the k largest of so many entries: `tops`, `counts` and `kept`."""
    tops = np.empty(max(CLASSES, 2 * k), dtype=np.float32)
    return tops, np.empty(PARTS, dtype=np.int64), np.empty(rows, dtype=np.int64)


@jit
def packed_nearest(queries, codes, scale, positions):  # type: ignore[no-untyped-def]
    """Rows of `codes` (N, d) nearest to each query (n, d), nearest first, into `positions` (n, k), k <= N."""
    products = np.empty(codes.shape[0], dtype=np.float32)
    values = np.empty(positions.shape[1], dtype=np.float32)
    tops, counts, kept = counting(codes.shape[0], positions.shape[1])
    for i in range(queries.shape[0]):
        inner_products(queries[i], codes, products)
        largest(products, scale, tops, counts, kept, values, positions[i])


@jit
def largest_rows(products, scale, positions):  # type: ignore[no-untyped-def]
    """As `packed_nearest` where the inner products (n, N) of queries and codes have been taken."""
    values = np.empty(positions.shape[1], dtype=np.float32)
    tops, counts, kept = counting(products.shape[1], positions.shape[1])
    for i in range(products.shape[0]):
        largest(products[i], scale, tops, counts, kept, values, positions[i])


@exact
def similarity(query, codes, row):  # type: ignore[no-untyped-def]
    """Inner product of `query` and codes[row] over the length of that row; 0 for a row of zeros."""
    product, square = np.float32(0.0), np.float32(0.0)
    for j in range(codes.shape[1]):
        number = np.float32(codes[row, j])
        product += query[j] * number
        square += number * number
    return product * (np.float32(1.0) / np.sqrt(square)) if square > 0.0 else np.float32(0.0)


@jit
def walk(query, codes, starts, edges, entry, top, links):  # type: ignore[no-untyped-def]
    """The row at which a greedy walk from `entry` through the levels above the lowest ends."""
    at, best = entry, similarity(query, codes, entry)
    for level in range(top, 0, -1):
        before = -1
        while at != before:
            before = at
            begin = starts[before] + links * (level + 1)
            if begin + links > starts[before + 1]:
                break
            for edge in range(begin, begin + links):
                row = edges[edge]
                if row < 0:
                    break
                near = similarity(query, codes, row)
                if worse(best, at, near, row):
                    at, best = row, near
    return at


@jit
def graph_nearest(queries, codes, starts, edges, entry, top, links, pool, positions):  # type: ignore[no-untyped-def]
    """The rows nearest to each query that a search through a graph finds, into `positions` (n, k), k <= pool.

    Plain form: `estimators.nearest.Graph`. `starts` (N + 1,) says where the edges of each node begin in
    `edges`; `top` is the highest level; places of rows that were not found are left as they are.
    """
    near = np.empty(pool, dtype=np.float32)
    rows = np.empty(pool, dtype=np.int64)
    followed = np.empty(pool, dtype=np.bool_)
    seen = np.empty(codes.shape[0] // 8 + 1, dtype=np.uint8)
    for i in range(queries.shape[0]):
        seen[:] = 0
        rows[0] = walk(queries[i], codes, starts, edges, entry, top, links)
        near[0] = similarity(queries[i], codes, rows[0])
        followed[0] = False
        seen[rows[0] >> 3] |= np.uint8(1 << (rows[0] & 7))
        size, at = 1, 0
        while at < size:
            if followed[at]:
                at += 1
                continue
            followed[at] = True
            begin, first = starts[rows[at]], at + 1
            for edge in range(begin, begin + 2 * links):
                row = np.int64(edges[edge])
                if row < 0:
                    break
                bit = np.uint8(1 << (row & 7))
                if seen[row >> 3] & bit:
                    continue
                seen[row >> 3] |= bit
                value = similarity(queries[i], codes, row)
                if size == pool and not worse(near[size - 1], rows[size - 1], value, row):
                    continue
                place = size if size < pool else size - 1
                size = place + 1
                while place > 0 and worse(near[place - 1], rows[place - 1], value, row):
                    near[place], rows[place] = near[place - 1], rows[place - 1]
                    followed[place] = followed[place - 1]
                    place -= 1
                near[place], rows[place], followed[place] = value, row, False
                first = min(first, place)
            at = first
        for place in range(min(size, positions.shape[1])):
            positions[i, place] = rows[place]


@jit
def neighbour_means(nearest, reward, usual, ks, out):  # type: ignore[no-untyped-def]
    """Mean rewards of the first ks[0] <= ks[1] <= ... of the rows `nearest` (n, k), into `out` (K, n, M).

    `reward` (N, M) is NaN where missing, a row of -1 stands for none, and `usual` (M,) is the mean where
    nothing is there.
    """
    boxes = reward.shape[1]
    total, count = np.empty(boxes), np.empty(boxes)
    for i in range(nearest.shape[0]):
        total[:] = 0.0
        count[:] = 0.0
        start = 0
        for a in range(len(ks)):
            for position in range(start, min(ks[a], nearest.shape[1])):
                row = nearest[i, position]
                if row >= 0:
                    for j in range(boxes):
                        value = reward[row, j]
                        if value == value:
                            total[j] += value
                            count[j] += 1.0
            start = min(ks[a], nearest.shape[1])
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
