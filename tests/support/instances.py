"""Instances of every kind of box, as numbers that can be shifted, scaled and permuted before they are built.

`Spec` holds the parameters, what opening would show and the outside option; `specs(...)` is the hypothesis
strategy and `make(kind, rng, ...)` the plain generator behind it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from pandora_router.boxes import Boxes, Costs, Draws, Independent, Joint, Ladder, LowRank
from pandora_router.search import (
    Committing,
    Held,
    KnowledgeGradient,
    Obligatory,
    Policy,
    Rollout,
    State,
    reveal,
)

Array = NDArray[Any]
KINDS = ("independent", "joint", "low rank", "quantiles", "draws", "ladder")
NORMAL = ("independent", "joint", "low rank")
ONE_TIER = KINDS[:-1]

EXACT: tuple[Policy, ...] = (
    Obligatory(),
    Committing("backup", payoff="exact"),
    Committing("mean", payoff="exact"),
    Rollout(),
    Rollout("backup"),
    KnowledgeGradient(),
)
SIMULATED: tuple[Policy, ...] = (Committing(samples=8), Committing("mean", samples=8, seed=3))
HELD = Held(0, 0.4)


def policies_for(kind: str) -> tuple[Policy, ...]:
    """The policies that serve a kind of box."""
    if kind == "ladder":
        return (Obligatory(), KnowledgeGradient(), HELD, *SIMULATED)
    return (*EXACT, HELD, *SIMULATED)


@dataclass(frozen=True)
class Spec:
    """The numbers behind M boxes of one kind, what each would show, and the outside option."""

    kind: str
    mean: Array
    factor: Array  # (M, K): dependence; its row norms and `noise` give the variances
    noise: Array  # (M,): variances of their own
    residuals: Array  # (M, Q): ascending, standardised; the law of quantiles and draws
    stds: Array  # (M, T): steps of a ladder
    tier_costs: Array  # (M, T)
    own: Array  # (M,)
    shared: Array  # (G,)
    group: Array  # (M,)
    values: Array  # (M,), or (M, T) for ladders
    outside: float = -np.inf
    skip: bool = True
    refunded: float = 0.0  # of every own cost and every tier's cost, what comes back

    @property
    def covariance(self) -> Array:
        return self.factor @ self.factor.T + np.diag(self.noise)

    @property
    def std(self) -> Array:
        return np.sqrt(np.diag(self.covariance))

    @property
    def costs(self) -> Costs:
        return Costs(self.own, self.shared, self.group, self.refunded * self.own)

    def boxes(self) -> Boxes:
        match self.kind:
            case "independent":
                return Independent(self.mean, self.std, self.costs)
            case "joint":
                return Joint(self.mean, self.covariance, self.costs)
            case "low rank":
                return LowRank(self.mean, self.factor, self.noise, self.costs)
            case "quantiles":
                return Joint(self.mean, self.covariance, self.costs, self.residuals)
            case "draws":
                return Draws(self.mean[:, None] + self.std[:, None] * self.residuals, self.costs)
            case _:
                return Ladder(
                    self.mean, self.stds, self.tier_costs, self.refunded * self.tier_costs, skip=self.skip
                )

    def state(self) -> State:
        return State(self.boxes(), self.outside)

    def opener(self) -> Any:
        return reveal(self.values)

    def shifted(self, by: float) -> Spec:
        return replace(self, mean=self.mean + by, values=self.values + by, outside=self.outside + by)

    def scaled(self, k: float) -> Spec:
        return replace(
            self,
            mean=k * self.mean,
            factor=k * self.factor,
            noise=k * k * self.noise,
            stds=k * self.stds,
            tier_costs=k * self.tier_costs,
            own=k * self.own,
            shared=k * self.shared,
            values=k * self.values,
            outside=k * self.outside,
        )

    def permuted(self, order: Array) -> Spec:
        rows = ("mean", "factor", "noise", "residuals", "stds", "tier_costs", "own", "values")
        moved = {name: getattr(self, name)[order] for name in rows}
        return replace(self, **moved, group=self.group[order] if len(self.group) else self.group)

    def charging(self, cost: float) -> Spec:
        """The same boxes at one cost for every purchase, nothing shared."""
        none = np.zeros(0)
        return replace(
            self,
            own=np.full_like(self.own, cost),
            tier_costs=np.full_like(self.tier_costs, cost),
            shared=none,
            group=none.astype(int),
        )


def make(
    kind: str,
    rng: np.random.Generator,
    boxes: int = 3,
    *,
    cost: float = 0.02,
    grouped: bool = False,
    outside: bool = False,
    tiers: int = 2,
    refunded: float = 0.0,
) -> Spec:
    """A random instance of rewards around one half, uncertain by .05 to .4, at costs around `cost`."""
    mean = rng.normal(0.5, 0.15, boxes)
    std = rng.uniform(0.05, 0.4, boxes)
    loading = rng.uniform(-1.0, 1.0, (boxes, 2))
    share = rng.uniform(0.1, 0.95, boxes)  # of the variance that is common
    factor = loading / np.linalg.norm(loading, axis=1, keepdims=True) * (std * np.sqrt(share))[:, None]
    residuals = np.sort(rng.standard_normal((boxes, 7)), axis=1)
    residuals -= residuals.mean(axis=1, keepdims=True)
    residuals /= residuals.std(axis=1, keepdims=True)
    stds = rng.uniform(0.1, 0.3, (boxes, tiers))
    own = cost * rng.uniform(0.3, 2.0, boxes)
    shared, group = np.zeros(0), np.zeros(0, dtype=int)
    if grouped and kind != "ladder":
        shared = cost * rng.uniform(0.3, 2.0, 2)
        group = rng.integers(-1, 2, boxes)
        own = np.where(rng.random(boxes) < 0.5, 0.0, 0.3 * own)
        own = np.where(group < 0, np.maximum(own, 0.1 * cost), own)
    spec = Spec(
        kind,
        mean,
        factor,
        std**2 * (1.0 - share),
        residuals,
        stds,
        cost * np.sort(rng.uniform(0.3, 2.0, (boxes, tiers)), axis=1),
        own,
        shared,
        group,
        mean,
        float(rng.normal(0.4, 0.2)) if outside else -np.inf,
        bool(rng.random() < 0.5),
        refunded,
    )
    if kind == "ladder":
        return replace(spec, values=mean[:, None] + np.cumsum(stds * rng.standard_normal(stds.shape), axis=1))
    return replace(spec, values=spec.boxes().sample(1, rng)[0])


@st.composite
def specs(
    draw: st.DrawFn,
    kinds: tuple[str, ...] = KINDS,
    *,
    grouped: bool | None = None,
    outside: bool | None = None,
    refunds: bool = False,
    smallest: int = 1,
    largest: int = 5,
) -> Spec:
    """Instances of the given kinds, with and without shared costs and outside options unless told."""
    kind = draw(st.sampled_from(kinds))
    count = draw(st.integers(smallest, min(largest, 3) if kind == "ladder" else largest))
    return make(
        kind,
        np.random.default_rng(draw(st.integers(0, 2**32 - 1))),
        count,
        cost=draw(st.sampled_from([1e-4, 3e-3, 0.02, 0.08, 0.5])),
        grouped=draw(st.booleans()) if grouped is None else grouped,
        outside=draw(st.booleans()) if outside is None else outside,
        refunded=draw(st.sampled_from([0.0, 0.0, 0.5, 0.9])) if refunds else 0.0,
    )
