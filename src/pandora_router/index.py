r"""The unit normal loss function, its inverse, and the offsets of ladders: one function gives every price.

With psi(t) = phi(t) - t Phi(-t) and T = psi^-1, a box N(mu, s^2) with inspection cost c has

    E[(G - v)+] = s psi((v - mu)/s),   reservation price mu + s T(c/s),   backup price mu - s T(c/s).

Everything here is a function of plain arrays: no box, no policy, no randomness. The polynomial pieces come
from `tools/make_tables.py`; the compiled twins in `search.kernels` read the same tables.
Paper: equations (1), (2) and (4); docs/method.md, sections 1 and 6.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from pandora_router import index_tables as tables
from pandora_router.errors import UsageError
from pandora_router.types import Positions, Vector

SQRT_TWO_PI = 2.5066282746310002
# phi(0) as an unevaluated sum: T is ill-conditioned at its zero, so y - phi(0) must not lose a bit.
PHI_0 = 0.3989422804014327
PHI_0_LOW = -2.49232720227773e-17

LOSS = np.array(tables.LOSS)
INVERSE = np.array(tables.TAIL + tables.DEEP + tables.NEAR + tables.FAR)
# first piece of each part within INVERSE, and where the parts meet
DEEP_AT = len(tables.TAIL)
NEAR_AT = DEEP_AT + len(tables.DEEP)
FAR_AT = NEAR_AT + len(tables.NEAR)
SPLIT = 0.25  # below: polynomials in w = sqrt(-2 log y); above: in y
LINEAR = 9.0  # from here on T(y) = -y
TIE = 1e-12  # worths that differ by less than this share of the largest mean are equal but for rounding


# the same tables by coefficient: many polynomials are evaluated coefficient by coefficient
_LOSS_BY_POWER = tuple(np.ascontiguousarray(LOSS.T))
_INVERSE_BY_POWER = tuple(np.ascontiguousarray(INVERSE.T))
# by part of the inverse (tail, deep, near, far): where it starts, how wide a piece is, its first piece
_STARTS = np.array([tables.TAIL_START, tables.DEEP_START, tables.NEAR_START, tables.FAR_START])
_WIDTHS = np.array([tables.TAIL_WIDTH, tables.DEEP_WIDTH, tables.NEAR_WIDTH, tables.FAR_WIDTH])
_FIRSTS = np.array([0, DEEP_AT, NEAR_AT, FAR_AT], dtype=np.intp)


def _horner(table: tuple[Vector, ...], piece: Positions, local: Vector) -> Vector:
    """Evaluate polynomial number `piece` of a table by power at the local variable in [-1, 1]."""
    result = table[0].take(piece)
    for coefficients in table[1:]:
        result *= local
        result += coefficients.take(piece)
    return result


def normal_density(t: Vector) -> Vector:
    """phi(t) to full relative precision for every |t|, with t^2 split so that its rounding does not show."""
    high = np.float32(t).astype(np.float64)
    return np.exp(-0.5 * high * high) * np.exp(-0.5 * (t - high) * (t + high)) / SQRT_TWO_PI


def normal_cdf(t: Vector) -> Vector:
    """Phi(t)."""
    from scipy.special import ndtr  # half of the time `import pandora_router` would take; rarely needed

    return ndtr(t)


def unit_loss(t: ArrayLike) -> Vector:
    """Return psi(t) = phi(t) - t Phi(-t) = E[(Z - t)+] for a standard normal Z.

    Full double precision for every finite t; psi(+inf) = 0, psi(-inf) = inf.

    >>> float(unit_loss(0.0))
    0.3989422804014327
    """
    t = np.asarray(t, dtype=np.float64)
    size = np.minimum(np.abs(t), 40.0)  # psi(40) is below the smallest positive double
    x = 1.0 / (1.0 + size)
    position = x / tables.LOSS_WIDTH
    piece = np.minimum(position.astype(np.intp), len(LOSS) - 1)
    upper = normal_density(size) * _horner(_LOSS_BY_POWER, piece, 2.0 * (position - piece) - 1.0) * x * x
    return np.where(t < 0.0, upper - t, upper)


def unit_loss_inverse(y: ArrayLike) -> Vector:
    """Return T(y) with psi(T(y)) = y, for y in [0, inf]; T(0) = inf and T(y) = -y from y = 9 on.

    Full double precision from the smallest positive double up, by polynomial pieces without any iteration:
    in w = sqrt(-2 log y) below y = 1/4, in y - phi(0) above, so that the zero at phi(0) keeps its digits.

    >>> round(float(unit_loss_inverse(0.01)), 14)
    1.9383563072901
    """
    y = np.asarray(y, dtype=np.float64)
    if not (y >= 0.0).all():
        raise UsageError(
            "unit_loss_inverse",
            expected="numbers from 0 upward (a cost divided by a standard deviation)",
            came=f"{float(np.min(y)) if not np.any(np.isnan(y)) else 'NaN'}",
            do="Check the inspection costs and standard deviations.",
        )
    small = y < SPLIT
    w = np.sqrt(-2.0 * np.log(np.minimum(np.maximum(y, 5e-324), SPLIT)))
    x = np.where(small, w, np.minimum(y, LINEAR))
    part = np.where(small, x >= tables.DEEP_START, 2 + (x >= tables.FAR_START))
    position = (x - _STARTS.take(part)) / _WIDTHS.take(part)
    piece = position.astype(np.intp)
    number = np.minimum(_FIRSTS.take(part) + piece, len(INVERSE) - 1)
    value = _horner(_INVERSE_BY_POWER, number, 2.0 * (position - piece) - 1.0)
    result = np.where(small, w - value, -((x - PHI_0) - PHI_0_LOW) * value)
    return np.where(y == 0.0, np.inf, np.where(y >= LINEAR, -y, result))


def normal_gain(mean: Vector, std: Vector, outside: ArrayLike) -> Vector:
    """Return E[(G - v)+] = s psi((v - mu)/s) for G ~ N(mu, s^2); (mu - v)+ where s = 0."""
    gap = np.asarray(outside, dtype=np.float64) - mean
    safe = np.where(std > 0.0, std, 1.0)
    with np.errstate(over="ignore"):
        return np.where(std > 0.0, safe * unit_loss(gap / safe), np.maximum(-gap, 0.0))


def price_offset(std: Vector, cost: Vector) -> Vector:
    """Return s T(c/s): how far the reservation price lies above the mean, and the backup price below it.

    Edges: -c for s = 0; +inf for c = 0 with s > 0; 0 for c = s = 0.
    """
    safe = np.where(std > 0.0, std, 1.0)
    with np.errstate(over="ignore"):
        ratio = np.where(std > 0.0, cost / safe, 1.0)
    # c/s overflows only where s is negligible beside c, and there s T(c/s) = -c as well.
    return np.where(
        (std > 0.0) & (ratio < LINEAR), safe * unit_loss_inverse(np.minimum(ratio, LINEAR)), -cost
    )


def ladder_offsets(
    stds: ArrayLike, costs: ArrayLike, refunds: ArrayLike = 0.0, *, skip: bool = True
) -> tuple[Vector, Positions]:
    r"""Return, per tier, the offset w of the reservation price over the estimate and what to buy next.

    A box climbs tiers 0 (the cheap estimate) to T (the last); buying tier k from tier t costs `costs[k-1]`
    and adds an independent normal step of variance stds[t]^2 + ... + stds[k-1]^2. Against an outside option
    that lies d below the estimate, the box alone is worth

        V_T(d) = d+,  V_t(d) = max(0, max_k E[V_k(d + r_k + step)] - c_k),  k = t+1 only when skip is False,

    where r_k of `refunds` comes back of c_k if the box is taken in the end, and w_t is the largest root in w
    of E[V_k(step + r_k - w)] = c_k over the allowed k (docs/method.md, sections 6 and 10).
    `offsets` has length T; `next_tier[t]` is the tier whose purchase attains w_t, of several the last. A free
    tier gives +inf.
    Relative error 1e-13 for two tiers or without skipping; about 1e-6 where three tiers may be skipped.
    """
    s, c = np.asarray(stds, dtype=np.float64), np.asarray(costs, dtype=np.float64)
    r = np.broadcast_to(np.asarray(refunds, dtype=np.float64), c.shape)
    if s.ndim != 1 or s.shape != c.shape or s.size == 0 or not np.all(s > 0.0) or not np.all(c >= 0.0):
        raise UsageError(
            "ladder_offsets",
            expected="one positive standard deviation and one cost from 0 upward for each tier",
            came=f"stds {s.tolist()} and costs {c.tolist()}",
            do="Drop tiers that reveal nothing and check the costs.",
        )
    tiers = len(s)
    offsets, next_tier = np.empty(tiers), np.empty(tiers, dtype=np.intp)
    worth: dict[int, _Worth] = {}
    ends = {tiers: (0.0, 0.0)}  # per tier: below the first V is 0, above the second it has slope one
    for t in reversed(range(tiers)):
        targets = range(t + 1, tiers + 1) if skip else (t + 1,)
        steps = {k: float(np.sqrt(np.sum(s[t:k] ** 2))) for k in targets}
        roots = {k: _indifference(worth.get(k), steps[k], c[k - 1]) + r[k - 1] for k in targets}
        next_tier[t] = max(targets, key=lambda k: (roots[k], k))
        offsets[t] = roots[int(next_tier[t])]
        if t == 0:
            break
        # V is zero below -w and smooth above it, so quadrature panels start there.
        low = max(-float(offsets[t]), min(ends[k][0] - r[k - 1] - 12.0 * steps[k] for k in targets))
        last = max(ends[k][1] - r[k - 1] + 12.0 * steps[k] for k in targets)
        ends[t] = low, max(low + float(s.min()), last)
        nodes, weights = _panels(*ends[t], 0.5 * float(s.min()))
        best = np.max(
            [_expected(worth.get(k), nodes + r[k - 1], steps[k]) - c[k - 1] for k in targets], axis=0
        )
        worth[t] = _Worth(nodes, weights, np.maximum(best, 0.0), ends[t][1])
    return offsets, next_tier


@dataclass(frozen=True)
class _Worth:
    """V of one tier at the nodes of panels that end at `end`; from there on it grows with slope one."""

    nodes: Vector
    weights: Vector
    values: Vector
    end: float


def _panels(start: float, stop: float, width: float) -> tuple[Vector, Vector]:
    """Gauss-Legendre nodes and weights on equal panels of [start, stop] no wider than `width`."""
    x, w = np.polynomial.legendre.leggauss(16)
    edges = np.linspace(start, stop, int(np.ceil((stop - start) / width)) + 1)
    half = 0.5 * np.diff(edges)[:, None]
    return (edges[:-1, None] + half * (1.0 + x)).ravel(), (half * w).ravel()


def _expected(worth: _Worth | None, d: Vector, std: float) -> Vector:
    """E[V(d + std Z)], with V = (.)+ when `worth` is None."""
    if worth is None:
        return std * unit_loss(-d / std)
    height = worth.values[-1] + (worth.end - worth.nodes[-1])  # the last node lies inside the last panel
    above = (worth.end - d) / std
    beyond = std * unit_loss(above) + height * normal_cdf(-above)
    return _inner(worth, d, std) + beyond


def _inner(worth: _Worth, d: Vector, std: float) -> Vector:
    """The integral of V over its nodes against N(d, std^2), for ascending d: block by block, near d only."""
    weighted = worth.weights * worth.values
    result = np.empty(len(d))
    for rows in np.array_split(np.arange(len(d)), -(-len(d) // 256)):
        ends = d[rows[0]] - 13.0 * std, d[rows[-1]] + 13.0 * std
        near = slice(*np.searchsorted(worth.nodes, ends))
        kernel = normal_density((worth.nodes[near] - d[rows, None]) / std)
        result[rows] = kernel @ weighted[near] / std
    return result


def _indifference(worth: _Worth | None, std: float, cost: float) -> float:
    """The root w of E[V(std Z - w)] = cost."""
    if cost == 0.0:
        return np.inf
    if worth is None:
        return float(std * unit_loss_inverse(cost / std))

    from scipy.optimize import brentq  # a third of a second to import, and only ladders need it

    def surplus(w: float) -> float:
        return float(_expected(worth, np.array([-w]), std)[0]) - cost

    low = high = 0.0
    step = max(std, cost)
    while surplus(low) < 0.0:
        low, step = low - step, 2.0 * step
    step = std
    while surplus(high) > 0.0:
        high, step = high + step, 2.0 * step
    return float(brentq(surplus, low, high, xtol=1e-15 * std, rtol=1e-15))
