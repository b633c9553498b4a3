r"""The same router at other values of a right answer and of a second of waiting.

Rewards are quality minus weighted fees, R_w = q - w fee. A router fitted at the weight w serves another
weight w' by shifting the worth of each specialist j,

    E[R_w' | prompt] = E[R_w | prompt] + (w - w') E[fee_j | prompt],

with its mean fee in training for the last factor, and by converting inspection costs to the new unit. This is
what fitting at w' gives, up to rounding, if the fee of a specialist is the same for all prompts and each part
of the fit shifts with its target (averages over neighbours, ridge regression with an intercept). Otherwise it
differs in two ways: fees that vary between prompts are replaced by their mean, and boosted trees, scale and
residual laws stay those of the fitted weight.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from pandora_router.boxes import Boxes, Costs
from pandora_router.calibrate.signals import Prior, SignalModel
from pandora_router.prices import Lengths, answer_seconds, beginning_seconds
from pandora_router.router.router import Router
from pandora_router.search import Batch
from pandora_router.search.moving_batch import MovingBatch
from pandora_router.types import Matrix, Until, Vector


@dataclass(frozen=True, eq=False)
class Moved:
    """A signal model with `by` (M,) added to the worth of each box, opened or not."""

    signal: SignalModel
    by: Vector

    def expected(self, cheap: ArrayLike) -> Matrix:
        """The mean of G, as the costly estimate gives it (N, M)."""
        return self.signal.expected(cheap)

    def spread(self, cheap: ArrayLike) -> Matrix:
        """The standard deviation of G around that mean (N, M)."""
        return self.signal.spread(cheap)

    def boxes(self, estimates: ArrayLike, inspection_cost: ArrayLike | Costs) -> Boxes:
        """The boxes of one prompt, moved."""
        return self.signal.boxes(estimates, inspection_cost).moved(self.by)

    def prior(self, estimates: ArrayLike, inspection_cost: ArrayLike | Costs) -> Prior:
        """The same, with how costly estimates become values; values shift with the means."""
        prior = self.signal.prior(estimates, inspection_cost)
        return replace(prior, boxes=prior.boxes.moved(self.by))

    def batch(self, cheap: ArrayLike, inspection_cost: ArrayLike | Costs) -> Batch | MovingBatch:
        """The boxes of many prompts (N, M), moved."""
        moved: Batch | MovingBatch = self.signal.batch(cheap, inspection_cost).moved(self.by)
        return moved

    def values(self, cheap: ArrayLike, costly: ArrayLike) -> Matrix:
        """What opening each box would show (N, M), moved."""
        return self.signal.values(cheap, costly) + self.by


def weighed(router: Router, fee_weight: float, bonus: ArrayLike = 0.0, name: str = "") -> Router:
    """The router at another fee weight, with `bonus` (M,) added to the worth of each specialist.

    `name` is added to its id, so that decisions show at which values they were made. Estimators are shared.
    """
    by = (router.fee_weight - fee_weight) * router.fees + np.asarray(bonus, dtype=np.float64)
    before = router.fee_weight if router.fee_weight > 0.0 else 1.0
    scale = fee_weight / before
    return replace(
        router,
        signal=Moved(router.signal, by) if np.any(by != 0.0) else router.signal,
        costs=router.costs.scaled(scale),
        fee_weight=fee_weight,
        bonus=router.bonus + np.asarray(bonus, dtype=np.float64),
        id=f"{router.id}@{name}" if name else router.id,
    )


def at_speed(
    router: Router, second: float, measured: Mapping[str, Lengths], until: Until = "last_byte"
) -> Router:
    """The router with the expected time of each specialist's answer priced at `second` dollars per second.

    `until` says which time: to the last byte or to the first token.
    """
    expected = answer_seconds if until == "last_byte" else beginning_seconds
    waits = expected(router.specialists, measured)
    if second <= 0.0 or not any(waits):
        return router
    return weighed(router, router.fee_weight, [-router.fee_weight * second * wait for wait in waits])
