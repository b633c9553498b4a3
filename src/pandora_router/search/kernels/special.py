"""Compiled twins of `index`: the same polynomial pieces, one number at a time."""

from __future__ import annotations

import math

import numba
import numpy as np

from pandora_router import index, index_tables
from pandora_router.boxes import joint

# No fast-math: results must not depend on how a loop was vectorised.
KEPT = bool(numba.config.CACHE_DIR)  # type: ignore[attr-defined]
jit = numba.njit(cache=KEPT, nogil=True, error_model="numpy")

LOSS = index.LOSS
INVERSE = index.INVERSE
DEGREE = INVERSE.shape[1]
LOSS_PIECES = len(LOSS)
LOSS_WIDTH = index_tables.LOSS_WIDTH
TAIL_START, TAIL_WIDTH = index_tables.TAIL_START, index_tables.TAIL_WIDTH
DEEP_START, DEEP_WIDTH, DEEP_AT = index_tables.DEEP_START, index_tables.DEEP_WIDTH, index.DEEP_AT
NEAR_START, NEAR_WIDTH, NEAR_AT = index_tables.NEAR_START, index_tables.NEAR_WIDTH, index.NEAR_AT
FAR_START, FAR_WIDTH, FAR_AT = index_tables.FAR_START, index_tables.FAR_WIDTH, index.FAR_AT
SPLIT, LINEAR, PHI_0, PHI_0_LOW = index.SPLIT, index.LINEAR, index.PHI_0, index.PHI_0_LOW
SUPPORT = 9.0  # a normal lies within so many standard deviations but for 1e-19
INVERSE_SQRT_TWO_PI = 1.0 / index.SQRT_TWO_PI
CELLS_PER_UNIT = 16
NOTHING = joint.NOTHING
TIE = index.TIE


def _cells() -> np.ndarray:
    """Taylor coefficients of Phi around the middle of every cell, in the variable (t - middle) * 16."""
    middle = (np.arange(int(2 * SUPPORT * CELLS_PER_UNIT)) + 0.5) / CELLS_PER_UNIT - SUPPORT
    hermite = [np.ones_like(middle), middle.copy()]
    for n in range(1, 8):
        hermite.append(middle * hermite[n] - n * hermite[n - 1])
    phi = np.exp(-0.5 * middle**2) * INVERSE_SQRT_TWO_PI
    terms = [np.array([0.5 * math.erfc(-m * math.sqrt(0.5)) for m in middle])]
    terms += [
        (-1) ** (n - 1) * hermite[n - 1] * phi / math.factorial(n) / CELLS_PER_UNIT**n for n in range(1, 9)
    ]
    return np.stack(terms, axis=1)


@jit
def margin(mean):  # type: ignore[no-untyped-def]
    """The difference up to which worths of boxes with these means count as equal (`search.state.margin`)."""
    largest = 0.0
    for k in range(len(mean)):
        largest = max(largest, abs(mean[k]))
    return TIE * largest


@jit
def first_highest(values, margin):  # type: ignore[no-untyped-def]
    """The lowest position of those within `margin` of the highest value (`search.state.first_highest`)."""
    highest = values[0]
    for k in range(1, len(values)):
        highest = max(highest, values[k])
    for k in range(len(values)):
        if values[k] >= highest - margin:
            return k
    return 0


CELLS = _cells()
LAST = 0.5 * math.erfc(SUPPORT * math.sqrt(0.5))


@jit
def density(t):  # type: ignore[no-untyped-def]
    """phi(t)."""
    return INVERSE_SQRT_TWO_PI * math.exp(-0.5 * t * t)


@jit
def cumulative(t):  # type: ignore[no-untyped-def]
    """Phi(t), to 1e-16 absolutely (constant beyond 9 standard deviations): a Taylor polynomial per cell.

    Four times faster than erfc, and the exact payoffs spend nearly all their time here.
    """
    if t <= -SUPPORT:
        return LAST  # not 0: callers divide by it
    if t >= SUPPORT:
        return 1.0
    position = (t + SUPPORT) * CELLS_PER_UNIT
    cell = int(position)
    x = position - cell - 0.5
    row = CELLS[cell]
    return row[0] + x * (
        row[1]
        + x * (row[2] + x * (row[3] + x * (row[4] + x * (row[5] + x * (row[6] + x * (row[7] + x * row[8]))))))
    )


@jit
def horner(table, piece, x):  # type: ignore[no-untyped-def]
    """Polynomial number `piece` of the table at x."""
    result = table[piece, 0]
    for k in range(1, DEGREE):
        result = result * x + table[piece, k]
    return result


@jit
def loss(t):  # type: ignore[no-untyped-def]
    """psi(t) = phi(t) - t Phi(-t)."""
    size = abs(t)
    if size >= 40.0:
        return 0.0 if t > 0.0 else -t
    x = 1.0 / (1.0 + size)
    position = x / LOSS_WIDTH
    piece = min(int(position), LOSS_PIECES - 1)
    high = float(np.float32(size))
    phi = math.exp(-0.5 * high * high) * math.exp(-0.5 * (size - high) * (size + high))
    upper = phi * INVERSE_SQRT_TWO_PI * horner(LOSS, piece, 2.0 * (position - piece) - 1.0) * x * x
    return upper - t if t < 0.0 else upper


@jit
def loss_inverse(y):  # type: ignore[no-untyped-def]
    """T(y) with psi(T(y)) = y."""
    if y <= 0.0:
        return math.inf
    if y >= LINEAR:
        return -y
    if y < SPLIT:
        w = math.sqrt(-2.0 * math.log(y))
        if w < DEEP_START:
            position, first = (w - TAIL_START) / TAIL_WIDTH, 0
        else:
            position, first = (w - DEEP_START) / DEEP_WIDTH, DEEP_AT
        piece = int(position)
        return w - horner(INVERSE, first + piece, 2.0 * (position - piece) - 1.0)
    if y < FAR_START:
        position, first = (y - NEAR_START) / NEAR_WIDTH, NEAR_AT
    else:
        position, first = (y - FAR_START) / FAR_WIDTH, FAR_AT
    piece = int(position)
    return -((y - PHI_0) - PHI_0_LOW) * horner(INVERSE, first + piece, 2.0 * (position - piece) - 1.0)


@jit
def offset(std, cost):  # type: ignore[no-untyped-def]
    """s T(c/s), with the edges of `index.price_offset`."""
    if std > 0.0:
        ratio = cost / std
        if ratio < LINEAR:
            return std * loss_inverse(ratio)
    return -cost


@jit
def unit_loss_inverse(y, out):  # type: ignore[no-untyped-def]
    """Fill `out` with T(y), element by element."""
    for i in range(len(y)):
        out[i] = loss_inverse(y[i])


@jit
def normal_prices(mean, std, cost, refund, sealed, out):  # type: ignore[no-untyped-def]
    """Fill `out` with reservation prices; the mean where nothing is left to open."""
    for k in range(len(mean)):
        out[k] = mean[k] + (refund[k] + offset(std[k], cost[k]) if sealed[k] else 0.0)
