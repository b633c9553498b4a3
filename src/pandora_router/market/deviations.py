"""What one bidder could gain by not playing its part, against others who do: measured, not assumed.

Each deviation replaces the plan of one bidder and keeps everybody else's; the gain is its change in surplus
on the same prompts. A positive gain many standard errors wide says that the truthful profile is no
equilibrium. The grid shades limits; where looking is a choice it also changes who looks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from pandora_router.market.clocks import Sales, ascending, descending, second_price
from pandora_router.market.plans import Plans, covered_plans, myopic_plans, sealed_plans
from pandora_router.market.sealed import inspection_equilibrium
from pandora_router.search import Batch
from pandora_router.types import Mask, Matrix

SHADES = (-0.05, -0.02, 0.01, 0.02, 0.05, 0.1, 0.2)


@dataclass(frozen=True)
class Deviation:
    """One deviation: its mean gain in surplus per prompt over the truthful plan, and the standard error."""

    name: str
    gain: float
    error: float


def deviations(
    mechanism: Callable[[Plans], Sales],
    truthful: Plans,
    others: Mapping[str, Plans],
    rewards: Matrix,
    bidders: Sequence[int],
) -> list[Deviation]:
    """The gains of each deviation, averaged over `bidders` deviating alone; errors are over prompts."""
    base = mechanism(truthful).surplus(rewards)
    made = []
    for name, plans in others.items():
        gains = np.stack(
            [mechanism(truthful.but(m, plans)).surplus(rewards)[:, m] - base[:, m] for m in bidders]
        ).mean(axis=0)
        error = float(gains.std(ddof=1) / np.sqrt(len(gains))) if len(gains) > 1 else np.nan
        made.append(Deviation(name, float(gains.mean()), error))
    return made


def shading(
    batch: Batch,
    values: ArrayLike,
    *,
    shades: Sequence[float] = SHADES,
    bidders: Sequence[int] = (0,),
    looks: Mask | None = None,
) -> dict[str, list[Deviation]]:
    """The deviations of all three auctions by name; `looks` is who looks at second price (equilibrium)."""
    rewards = np.asarray(values, dtype=np.float64)
    looks = inspection_equilibrium(batch) if looks is None else looks

    def shaded(plan: Callable[[float], Plans]) -> dict[str, Plans]:
        return {f"shade {shade:+.3g}": plan(shade) for shade in shades}

    falling = shaded(lambda shade: covered_plans(batch, rewards, shade=shade))
    rising = shaded(lambda shade: myopic_plans(batch, rewards, shade=shade))
    rising["look at the mean"] = myopic_plans(batch, rewards, inspect_at="mean")
    rising["never look"] = sealed_plans(batch, rewards, np.zeros_like(looks))
    once = shaded(lambda shade: sealed_plans(batch, rewards, looks, shade=shade))
    once["look iff the rule says not to"] = sealed_plans(batch, rewards, ~looks)
    games = {
        "descending": (descending, covered_plans(batch, rewards), falling),
        "ascending": (ascending, myopic_plans(batch, rewards), rising),
        "second price": (second_price, sealed_plans(batch, rewards, looks), once),
    }
    return {
        name: deviations(mechanism, truthful, others, rewards, bidders)
        for name, (mechanism, truthful, others) in games.items()
    }
