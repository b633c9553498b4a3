"""Committing payoffs by Monte Carlo, as the paper estimates them (Algorithm 1, lines 4 to 8).

The same joint outcomes serve all M+1 policies; the held box pays its own sample; with correlated boxes every
opening reconditions the rest. Plain version: `plain_payoffs`, which drives the policies one by one.
"""

from __future__ import annotations

import hashlib
from types import SimpleNamespace

import numpy as np

from pandora_router.boxes import Boxes, Ladder
from pandora_router.boxes.checks import locked
from pandora_router.boxes.joint import CorrelatedNormal
from pandora_router.search import kernels
from pandora_router.search.payoffs import Outside, normal_law, outside_options
from pandora_router.search.state import State
from pandora_router.types import Matrix, Vector


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
        return compiled_payoffs(kernel, state, outside, samples, seed)
    normals = stream(boxes.mean, seed).standard_normal((samples, len(held)))
    return plain_payoffs(state, held, joint_outcomes(boxes.mean, covariance_of(boxes), normals))


def compiled_payoffs(
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
