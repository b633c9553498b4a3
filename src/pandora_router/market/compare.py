"""Every mechanism and the central routers on the same prompts, with every inspection counted.

Welfare regret is the best value of a prompt, had for free, minus what the market or router achieves after
paying all inspections. The posted price appears twice: as the paper counts it, with the others' inspections
left out, and in full (METHOD section 7).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from pandora_router.boxes.checks import Vector
from pandora_router.market.clocks import Sales, ascending, descending, second_price
from pandora_router.market.instances import Instance
from pandora_router.market.plans import (
    announced_holdout,
    covered_plans,
    held_plans,
    myopic_plans,
    sealed_plans,
)
from pandora_router.market.posted import LeaveOneOut, Opponents
from pandora_router.market.sealed import inspection_equilibrium
from pandora_router.search import Batch, Committing, Obligatory, Policy, Rollout, run
from pandora_router.search.baselines import never


@dataclass(frozen=True)
class Result:
    """Means over the prompts; revenue and surplus are NaN for routers, which trade nothing.

    `surplus` is the total over all bidders, so that value - inspections paid = revenue + surplus.
    """

    regret: float
    inspections: float
    revenue: float = np.nan
    surplus: float = np.nan


def compare(instance: Instance, inspection_cost: float, *, threads: int | None = 1) -> dict[str, Result]:
    """The results of all mechanisms and routers by name, in the order of a table."""
    batch = instance.batch(inspection_cost)
    results = dict(_posted(instance, inspection_cost))
    for name, sales in _auctions(instance, batch):
        welfare, revenue = sales.welfare(instance.values), sales.revenue
        results[name] = Result(
            float(sales.regret(instance.values).mean()),
            float(sales.inspected.sum(axis=1).mean()),
            float(revenue.mean()),
            float((welfare - revenue).mean()),
        )
    routers: dict[str, Policy] = {
        "router: obligatory": Obligatory(),
        "router: committing": Committing(outside="mean", payoff="exact"),
        "router: rollout": Rollout(),
    }
    best = instance.values.max(axis=1)
    for name, policy in routers.items():
        done = run(policy, batch, instance.values, threads=threads)
        taken = _taken(instance, done.choice)
        results[name] = Result(float((best - taken + done.spent).mean()), float(done.inspections.mean()))
    unseen = _taken(instance, never(instance.mean).default)
    results["router: mean-only"] = Result(float((best - unseen).mean()), 0.0)
    return results


def _taken(instance: Instance, choice: np.ndarray[tuple[int, ...], np.dtype[np.integer]]) -> Vector:
    return np.take_along_axis(instance.values, choice[:, None].astype(np.intp), axis=1)[:, 0]


def _posted(instance: Instance, cost: float) -> Iterator[tuple[str, Result]]:
    """The leave-one-out bidder against strong opponents (counted both ways) and weak ones."""
    best = float(instance.values.max(axis=1).mean())
    others = instance.values.shape[1] - 1
    kinds: tuple[tuple[str, Opponents, bool], ...] = (
        ("posted price, others' inspections left out", "strong", False),
        ("posted price", "strong", True),
        ("posted price, set by f", "weak", True),
    )
    for name, opponents, counted in kinds:
        table = LeaveOneOut(
            instance.scores,
            instance.mean,
            instance.std,
            instance.values,
            instance.values,
            opponents=opponents,
        )
        played = table.play("bidder", cost)
        charged = float(played.others_cost.mean()) if counted else 0.0
        welfare = float(played.efficiency.mean()) - charged
        looks = float(played.inspections.mean()) + (others if counted and opponents == "strong" else 0)
        revenue = float(table.posted[0].mean())
        yield name, Result(best - welfare, looks, revenue, welfare - revenue)


def _auctions(instance: Instance, batch: Batch) -> Iterator[tuple[str, Sales]]:
    """The mechanisms in which all specialists are bidders."""
    values = instance.values
    yield "ascending", ascending(myopic_plans(batch, values))
    yield "ascending, patient", ascending(myopic_plans(batch, values, inspect_at="mean"))
    yield "descending", descending(covered_plans(batch, values))
    yield "descending, sealed claims", descending(covered_plans(batch, values, sealed=True))
    yield (
        "descending, announced holdout",
        descending(held_plans(batch, values, *announced_holdout(batch))),
    )
    yield "second price", second_price(sealed_plans(batch, values, inspection_equilibrium(batch)))
