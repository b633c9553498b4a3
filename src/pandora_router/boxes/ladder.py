"""Boxes with more than two tiers: a cheap estimate, a better one, a better one still.

See docs/method.md, section 6.

Each purchase adds an independent normal step to the estimate. A tier may be skipped: what the next purchase
of a box is (`next_tier`) follows from the offsets, which depend only on steps and costs and are computed
once. A box stays sealed until its last tier is known.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pandora_router.boxes.base import Bookkeeping
from pandora_router.boxes.checks import finite, sealed_box
from pandora_router.boxes.costs import Costs
from pandora_router.errors import UsageError
from pandora_router.index import ladder_offsets, normal_gain
from pandora_router.types import Mask, Matrix, Positions, Vector


@dataclass(frozen=True, eq=False)
class Ladder(Bookkeeping):
    """M independent boxes that climb T tiers: steps of `stds` (M, T) at costs `tier_costs` (M, T).

    `tier_costs[m, k]` buys tier k+1 of box m, directly or after lower tiers; `tier_refunds[m, k]` of it (one
    number for all, 0 if left out) comes back if the box is chosen after that purchase.

    >>> boxes = Ladder([0.5], stds=[[0.1, 0.2]], tier_costs=[[0.01, 0.03]], skip=False)
    >>> boxes.reservation_price().round(4).tolist()
    [0.6601]
    >>> step = boxes.given(0, 0.55)
    >>> step.reservation_price().round(4).tolist(), step.tier.tolist(), step.sealed.tolist()
    ([0.6842], [1], [True])
    """

    PER_BOX: ClassVar[tuple[str, ...]] = (
        "mean", "sealed", "tier", "stds", "tier_costs", "tier_refunds", "offsets", "backups", "plan",
        "credit",
    )  # fmt: skip
    mean: Vector
    sealed: Mask
    tier: Positions
    stds: Matrix
    tier_costs: Matrix
    tier_refunds: Matrix
    offsets: Matrix
    backups: Matrix
    plan: Positions
    credit: Vector

    def __init__(
        self,
        mean: ArrayLike,
        stds: ArrayLike,
        tier_costs: ArrayLike,
        tier_refunds: ArrayLike = 0.0,
        *,
        skip: bool = True,
    ) -> None:
        means = finite("mean", mean, ndim=1)
        steps, prices = finite("stds", stds, ndim=2), finite("tier_costs", tier_costs, ndim=2)
        if steps.shape != prices.shape or len(steps) != len(means):
            raise UsageError(
                "ladder",
                expected=f"stds and tier_costs of shape ({len(means)}, tiers)",
                came=f"{steps.shape} and {prices.shape}",
                do="Give one row per box and one column per tier.",
            )
        refunds = finite("tier_refunds", np.broadcast_to(tier_refunds, prices.shape), ndim=2)
        if (refunds < 0.0).any() or (refunds > np.maximum(prices, 0.0)).any():
            raise UsageError(
                "tier_refunds",
                expected="numbers from 0 to the cost of their tier",
                came=f"numbers from {refunds.min():.3g} to {refunds.max():.3g}",
                do="Only what was paid for a tier can come back.",
            )
        climbs: dict[bytes, tuple[Vector, Positions, Vector]] = {}  # equal ladders are solved once
        keys = [b"".join(part.tobytes() for part in row) for row in zip(steps, prices, refunds, strict=True)]
        for key, s, c, r in zip(keys, steps, prices, refunds, strict=True):
            if key not in climbs:
                offsets, plan = ladder_offsets(s, c, r, skip=skip)
                # keeping the box forgoes c - r, taking the outside option instead forgoes the refund
                mirrored = ladder_offsets(s, c - r, -r, skip=skip)[0] if r.any() else offsets
                climbs[key] = offsets, plan, mirrored
        solved = [climbs[key] for key in keys]
        self._fill(
            mean=means,
            stds=steps,
            tier_costs=prices,
            tier_refunds=refunds,
            offsets=np.array([o for o, _, _ in solved]),
            plan=np.array([p for _, p, _ in solved]),
            backups=np.array([b for _, _, b in solved]),
            credit=np.zeros(len(means)),
            tier=np.zeros(len(means), dtype=np.intp),
            sealed=np.ones(len(means), dtype=np.bool_),
        )

    def _now(self, table: NDArray[np.generic]) -> NDArray[np.generic]:
        """Read a (M, T) table at each box's present tier (the last column for boxes at the top)."""
        return table[np.arange(len(self)), np.minimum(self.tier, table.shape[1] - 1)]

    @property
    def next_tier(self) -> Positions:
        """The tier that the next purchase of each box reveals."""
        return self._now(self.plan).astype(np.intp)

    @property
    def costs(self) -> Costs:  # type: ignore[override]
        """What the next purchase of each box costs."""
        at = (np.arange(len(self)), self.next_tier - 1)
        return Costs(self.tier_costs[at], refund=self.tier_refunds[at])

    @property
    def std(self) -> Vector:
        """The standard deviation of the step that the next purchase reveals; 0 where nothing is left."""
        variance = np.concatenate([np.zeros((len(self), 1)), np.cumsum(self.stds**2, axis=1)], axis=1)
        rows = np.arange(len(self))
        step: Vector = np.sqrt(variance[rows, self.next_tier] - variance[rows, self.tier])
        return np.where(self.sealed, step, 0.0)

    def gain(self, outside: ArrayLike) -> Vector:
        """E[(estimate after the next purchase + refunds - v)+]."""
        return normal_gain(self.mean + np.where(self.sealed, self.refund, 0.0), self.std, outside)

    def reservation_price(self) -> Vector:
        """The price u = estimate + offset of the tier; the mean where nothing is left to open."""
        return self.mean + np.where(self.sealed, self._now(self.offsets), 0.0)

    def backup_price(self) -> Vector:
        """The price b = estimate - offset: the mirror image of u at costs c - r, as steps are symmetric."""
        return self.mean - np.where(self.sealed, self._now(self.backups), 0.0)

    def given(self, box: int, value: float) -> Self:
        """Climb `box` to its next tier, where its estimate is `value`."""
        sealed_box(self.sealed, box, value)
        mean, tier, sealed = self.mean.copy(), self.tier.copy(), self.sealed.copy()
        credit = self.credit.copy()
        credit[box] += self.refund[box]
        mean[box] = value + credit[box]
        tier[box] = self.next_tier[box]
        sealed[box] = tier[box] < self.stds.shape[1]
        return self._changed(mean=mean, tier=tier, sealed=sealed, credit=credit)

    def without(self, box: int) -> Self:
        """Return what is known once the inspection of `box` was paid for and failed."""
        sealed_box(self.sealed, box, 0.0)
        sealed = self.sealed.copy()
        sealed[box] = False
        return self._changed(sealed=sealed)

    def paths(self, n: int, rng: np.random.Generator) -> Matrix:
        """Draw n climbs of the estimates through all tiers (n, M, T).

        Known tiers repeat the last estimate; boxes with nothing left to open repeat what they are worth.
        """
        ahead = self.sealed[:, None] & (np.arange(self.stds.shape[1]) >= self.tier[:, None])
        steps = np.where(ahead, self.stds, 0.0) * rng.standard_normal((n, *self.stds.shape))
        start = np.where(self.sealed, self.mean - self.credit, self.mean)
        return start[:, None] + np.cumsum(steps, axis=-1)

    def sample(self, n: int, rng: np.random.Generator) -> Matrix:
        """Draw n outcomes of the last tier (n, M)."""
        return self.paths(n, rng)[..., -1]
