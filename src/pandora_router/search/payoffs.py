"""What every committing policy is worth, exactly and by Monte Carlo (docs/method.md, section 2).

A committing policy holds one box m out at a fixed outside option b and searches the others obligatorily.
With r the refunds, kappa_j = min(G_j + r_j, u_j), K = max over j != m of kappa_j, H its CDF and `best` in
hand, it is worth

    nu_m = mu_m H(b) + b (1 - H(b)) + integral from b of (1 - H)      if best <= b,
    nu_m = best + integral from best of (1 - H)                       otherwise,

and nu_0, the obligatory policy that holds none, is the second line with all boxes. Boxes are independent;
for correlated ones the correlation is ignored. `search.kernels.payoffs` is the compiled version.

By Monte Carlo the payoffs are estimated as in the paper (Algorithm 1, lines 4 to 8). The same joint outcomes
serve all M+1 policies; the held box pays its own sample; with correlated boxes every opening reconditions the
rest. `plain_payoffs`, which drives the policies one by one, is the plain version of `simulated_payoffs`.
"""

from __future__ import annotations

import hashlib
from types import SimpleNamespace
from typing import Literal

import numpy as np

from pandora_router.boxes import Boxes, Draws, Independent, Ladder
from pandora_router.boxes.checks import locked, unlocked
from pandora_router.boxes.joint import CorrelatedNormal
from pandora_router.errors import UsageError
from pandora_router.index import normal_cdf
from pandora_router.search import kernels
from pandora_router.search.state import State
from pandora_router.types import Mask, Matrix, Vector

Outside = Literal["backup", "mean"]


def normal_law(boxes: Boxes) -> bool:
    """Whether each box's next value is normal and its last: the case the compiled kernels serve."""
    return isinstance(boxes, Independent) or (isinstance(boxes, CorrelatedNormal) and boxes.quantiles is None)


def reservation_prices(boxes: Boxes) -> Vector:
    """`boxes.reservation_price()`, compiled where the law is normal: numpy is slow on small arrays."""
    kernel = kernels.ready() if normal_law(boxes) else None
    if kernel is None:
        return locked(boxes.reservation_price())
    return compiled_prices(kernel, boxes)


def compiled_prices(kernel: SimpleNamespace, boxes: Boxes) -> Vector:
    """The reservation prices of boxes of normal law."""
    out = np.empty(len(boxes.mean))
    kernel.normal_prices(boxes.mean, boxes.std, boxes.inspection_cost, boxes.refund, boxes.sealed, out)
    return locked(out)


def check_outside(outside: str) -> None:
    """Refuse anything but the two outside options there are."""
    if outside not in ("backup", "mean"):
        raise UsageError(
            "outside", expected="'backup' or 'mean'", came=repr(outside), do="'mean' is the safer choice."
        )


def outside_options(boxes: Boxes, outside: Outside) -> Vector:
    """The b at which a box is held: its backup price (paper) or its mean (never worse if independent)."""
    check_outside(outside)
    if outside == "mean":
        return boxes.mean
    if not normal_law(boxes):
        return locked(boxes.backup_price())
    mirrored = 2.0 * boxes.mean - reservation_prices(boxes)  # normal laws are symmetric: without refunds b
    return locked(np.where(boxes.refund == 0.0, mirrored, boxes.backup_price()))


def committing_payoffs(boxes: Boxes, outside: Outside = "backup", best: float = -np.inf) -> Vector:
    """Return the M+1 exact payoffs nu, index 0 the obligatory policy; -inf for boxes that cannot be held.

    `best` is what is already in hand. Values of unsealed boxes count as in hand.

    >>> from pandora_router.boxes import Independent
    >>> committing_payoffs(Independent([0.5, 0.45], [0.2, 0.25], 0.06), "mean").round(6).tolist()
    [0.497387, 0.516724, 0.497269]
    """
    kernel = kernels.ready() if normal_law(boxes) else None
    if kernel is not None:
        return compiled_payoffs(kernel, boxes, outside, best)
    held, price, in_hand = outside_options(boxes, outside), reservation_prices(boxes), _in_hand(boxes, best)
    if normal_law(boxes):
        std = boxes.std
        return normal_payoffs(boxes.mean, std, price, held, boxes.sealed, in_hand, boxes.refund)
    support = boxes.support() if isinstance(boxes, Draws | CorrelatedNormal) else None
    if support is None:
        raise UsageError(
            "committing_payoffs",
            expected="normal boxes or boxes known by draws, with one inspection each",
            came=type(boxes).__name__,
            do="Use Obligatory or KnowledgeGradient on these boxes.",
        )
    support = support + np.where(boxes.sealed, boxes.refund, 0.0)[:, None]
    return discrete_payoffs(support, price, held, boxes.mean, boxes.sealed, in_hand)


def compiled_payoffs(kernel: SimpleNamespace, boxes: Boxes, outside: Outside, best: float) -> Vector:
    """`normal_payoffs` at speed."""
    out = np.empty(len(boxes.mean) + 1)
    held, price = outside_options(boxes, outside), reservation_prices(boxes)
    std, in_hand = boxes.std, _in_hand(boxes, best)
    kernel.committing_payoffs(
        unlocked(boxes.mean),
        unlocked(std),
        boxes.refund,
        unlocked(price),
        unlocked(held),
        unlocked(boxes.sealed),
        in_hand,
        out,
    )
    return out


def _in_hand(boxes: Boxes, best: float) -> float:
    return float(np.max(np.where(boxes.sealed, -np.inf, boxes.mean), initial=best))


def normal_payoffs(
    mean: Vector,
    std: Vector,
    price: Vector,
    held: Vector,
    sealed: Mask,
    best: float,
    refund: Vector | float = 0.0,
) -> Vector:
    """The plain twin for normal boxes: for each holdout, quadrature between all breakpoints."""
    x, w = np.polynomial.legendre.leggauss(20)
    opened = mean + refund  # rivals of the held box are opened before they are taken
    out = np.full(len(mean) + 1, -np.inf)
    for m in [-1, *np.flatnonzero(sealed)]:
        rivals = np.flatnonzero(sealed & (np.arange(len(mean)) != m))
        mu, s = opened[rivals], std[rivals]
        top = np.minimum(price[rivals], mu + 9.0 * s)
        bottom = np.minimum(mu - 9.0 * s, top)
        start = best if m < 0 else max(best, held[m])
        inner = np.concatenate(
            [top, bottom, *(np.linspace(a, b, 40) for a, b in zip(bottom, top, strict=True))]
        )
        if not np.isfinite(start):
            start = float(np.max(bottom, initial=-np.inf))  # below, K is larger almost surely
        edges = np.unique(np.concatenate([[start], inner[inner > start]]))
        half = 0.5 * np.diff(edges)
        points = (edges[:-1] + half)[:, None] + half[:, None] * x
        z = (points[..., None] - mu) / np.where(s > 0.0, s, 1.0)
        cdf = np.where(points[..., None] >= top, 1.0, np.where(s > 0.0, normal_cdf(z), 0.0)).prod(axis=-1)
        above = float((half[:, None] * w * (1.0 - cdf)).sum())
        if m < 0 or best > held[m]:
            out[m + 1] = start + above
        elif not np.isfinite(held[m]):
            out[m + 1] = start + above if len(rivals) else mean[m]
        else:
            z = (held[m] - mu) / np.where(s > 0.0, s, 1.0)
            at = np.where(held[m] >= top, 1.0, np.where(s > 0.0, normal_cdf(z), 0.0)).prod()
            out[m + 1] = mean[m] * at + held[m] * (1.0 - at) + above
    return out


def discrete_payoffs(
    support: Matrix, price: Vector, held: Vector, mean: Vector, sealed: Mask, best: float
) -> Vector:
    """The M+1 payoffs when each row of `support` (M, S, ascending) is equally likely: sums, no quadrature.

    `support` holds what boxes are worth once open, refunds included; `mean` what they are worth sealed.
    """
    out = np.full(len(mean) + 1, -np.inf)
    rows = np.flatnonzero(sealed)
    if not len(rows):
        out[0] = best
        return out
    kappa = np.minimum(support[rows], price[rows, None])
    floors = np.concatenate([[best], held[rows]])
    points = np.unique(np.concatenate([kappa.ravel(), floors[np.isfinite(floors)]]))
    cdf = np.stack([np.searchsorted(k, points, side="right") for k in kappa], axis=1) / support.shape[1]
    ones = np.ones((len(points), 1))
    before = np.concatenate([ones, np.cumprod(cdf, axis=1)], axis=1)
    after = np.concatenate([np.cumprod(cdf[:, ::-1], axis=1)[:, ::-1], ones], axis=1)
    products = np.concatenate(
        [before[:, -1:], before[:, :-1] * after[:, 1:]], axis=1
    )  # all, then leave-one-out
    steps = np.diff(points, append=points[-1])[:, None] * (1.0 - products)
    above = np.cumsum(steps[::-1], axis=0)[::-1]
    for i, m in enumerate([-1, *rows]):
        b = best if m < 0 else max(best, held[m])
        k = int(np.searchsorted(points, b)) if np.isfinite(b) else 0
        start = points[k]
        if m < 0 or best > held[m]:
            out[m + 1] = start + above[k, i]
        else:
            at = products[k, i]
            out[m + 1] = mean[m] * at + start * (1.0 - at) + above[k, i]
    return out


def stream(boxes_mean: Vector, seed: int) -> np.random.Generator:
    """A stream of its own for every seed and vector of means: the same state gets the same outcomes."""
    key = hashlib.blake2b(boxes_mean.tobytes(), digest_size=8).digest()
    return np.random.Generator(np.random.Philox(key=[seed, int.from_bytes(key, "little")]))


def simulated_payoffs(state: State, outside: Outside, samples: int, seed: int) -> Vector:
    """Estimate the M+1 committing payoffs from joint outcomes; -inf for boxes that cannot be held."""
    boxes = state.boxes
    held = outside_options(boxes, outside)
    if isinstance(boxes, Ladder):
        return plain_payoffs(state, held, boxes.paths(samples, stream(boxes.mean, seed)))
    if not normal_law(boxes) or len(boxes.costs.shared) or lost_boxes(boxes):
        return plain_payoffs(state, held, boxes.sample(samples, stream(boxes.mean, seed)))
    kernel = kernels.ready()
    if kernel is not None:
        return compiled_simulation(kernel, state, outside, samples, seed)
    normals = stream(boxes.mean, seed).standard_normal((samples, len(held)))
    return plain_payoffs(state, held, joint_outcomes(boxes.mean, covariance_of(boxes), normals))


def compiled_simulation(
    kernel: SimpleNamespace, state: State, outside: Outside, samples: int, seed: int
) -> Vector:
    """The same at speed, for boxes of normal law without shared costs of which none was lost."""
    boxes = state.boxes
    out = np.empty(len(boxes.mean) + 1)
    kernel.simulated_payoffs(
        boxes.mean,
        covariance_of(boxes),
        boxes.inspection_cost,
        boxes.refund,
        boxes.sealed,
        outside_options(boxes, outside),
        state.best.value,
        stream(boxes.mean, seed).standard_normal((samples, len(boxes.mean))),
        out,
    )
    return out


def covariance_of(boxes: Boxes) -> Matrix:
    """The covariance of normal boxes, correlated or not (M, M)."""
    return boxes.covariance if isinstance(boxes, CorrelatedNormal) else locked(np.diag(boxes.std**2))


def joint_outcomes(mean: Vector, covariance: Matrix, normals: Matrix) -> Matrix:
    """Turn independent standard normals (S, M) into joint outcomes (S, M) by a Cholesky factor.

    Directions without variance left (opened boxes, exact copies) are skipped.
    """
    left = covariance.copy()
    drawn = np.tile(mean, (len(normals), 1))
    for j in range(len(mean)):
        if left[j, j] > 1e-14 * covariance[j, j]:
            row = np.where(np.arange(len(mean)) >= j, left[j], 0.0) / np.sqrt(left[j, j])
            left -= row[:, None] * row
            drawn += normals[:, j, None] * row
    return drawn


def lost_boxes(boxes: Boxes) -> bool:
    """Whether an inspection failed: such a box still moves with the others, but not in the kernel."""
    return bool((~boxes.sealed & (boxes.std > 0.0)).any())


def plain_payoffs(state: State, held: Vector, drawn: Matrix) -> Vector:
    """Estimate the payoffs by driving each policy through each outcome (S, M) or climb (S, M, T)."""
    from pandora_router.search.drive import drive, reveal
    from pandora_router.search.policies import Held, Obligatory

    out = np.full(len(held) + 1, -np.inf)
    for m in [-1, *np.flatnonzero(state.boxes.sealed)]:
        policy = Obligatory() if m < 0 else Held(int(m), float(held[m]))
        total = 0.0
        for outcome in drawn:
            trace = drive(policy, state, reveal(outcome))
            last = outcome[:, -1] if outcome.ndim == 2 else outcome
            worth = last[trace.selected] if trace.selected >= 0 else state.outside
            if trace.selected >= 0 and not state.boxes.sealed[trace.selected]:
                worth -= trace.refunded  # opened before: its worth has the refund in it
            total += worth - trace.spent
        out[m + 1] = total / len(drawn) + state.spent
    return out
