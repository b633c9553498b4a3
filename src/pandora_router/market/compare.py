"""All mechanisms and the central routers on the same prompts, and what a bidder gains by deviating.

Generated markets have normal boxes whose cheap estimates say little (weak f) or much (strong f):
mu ~ N(center, spread^2) and G = mu + std Z, independent over prompts and specialists. The raw estimate is
f = G + noise with mu = E[G | f], that is f = center + (mu - center)(1 + std^2/spread^2): weak estimates are
over-dispersed, as kNN with few neighbours is. Rewards are the values themselves.

Welfare regret is the best value of a prompt, had for free, minus what the market or router achieves after
paying all inspections. The posted price appears twice: as the paper counts it, with the others' inspections
left out, and in full (docs/method.md, section 7).

What one bidder could gain by not playing its part, against others who do: measured, not assumed.

Each deviation replaces the plan of one bidder and keeps everybody else's; the gain is its change in surplus
on the same prompts. A positive gain many standard errors wide says that the truthful profile is no
equilibrium. The grid shades limits; where looking is a choice it also changes who looks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from pandora_router.boxes import Boxes, Costs, Independent, Joint
from pandora_router.boxes.costs import as_costs
from pandora_router.errors import UsageError
from pandora_router.market.plans import (
    Plans,
    Sales,
    announced_holdout,
    ascending,
    covered_plans,
    descending,
    held_plans,
    inspection_equilibrium,
    myopic_plans,
    sealed_plans,
    second_price,
)
from pandora_router.market.posted import LeaveOneOut, Opponents
from pandora_router.search import Batch, Committing, Obligatory, Policy, Rollout, run
from pandora_router.search.baselines import never
from pandora_router.types import Mask, Matrix, Positions, Vector


@dataclass(frozen=True)
class Result:
    """Means over the prompts; revenue and surplus are NaN for routers, which trade nothing.

    `surplus` is the total over all bidders, so that value - inspections paid = revenue + surplus.
    """

    regret: float
    inspections: float
    revenue: float = np.nan
    surplus: float = np.nan


@dataclass(frozen=True, eq=False)
class PromptResults:
    """The same prompt by prompt (N,), so that two mechanisms can be compared on the same prompts."""

    regret: Vector
    inspections: Vector
    revenue: Vector
    surplus: Vector

    def mean(self) -> Result:
        """The means over the prompts."""
        parts = (self.regret, self.inspections, self.revenue, self.surplus)
        return Result(*(float(part.mean()) for part in parts))


def compare(
    instance: Instance, inspection_cost: ArrayLike | Costs, *, threads: int | None = 1
) -> dict[str, Result]:
    """The results of all mechanisms and routers by name, in the order of a table."""
    played = outcomes(instance, inspection_cost, threads=threads)
    return {name: outcome.mean() for name, outcome in played.items()}


def outcomes(
    instance: Instance, inspection_cost: ArrayLike | Costs, *, threads: int | None = 1
) -> dict[str, PromptResults]:
    """What all mechanisms and routers do, by name.

    `inspection_cost` is one number, one per specialist, or `Costs` (refunds, but nothing shared).
    """
    batch, rewards = instance.batch(inspection_cost), instance.rewards
    results = dict(_posted(instance, inspection_cost))
    for name, sales in _auctions(instance, batch):
        welfare, looks = sales.welfare(rewards), sales.inspected.sum(axis=1, dtype=np.float64)
        results[name] = PromptResults(sales.regret(rewards), looks, sales.revenue, welfare - sales.revenue)
    routers: dict[str, Policy] = {
        "router: obligatory": Obligatory(),
        "router: committing": Committing(outside="mean", payoff="exact"),
        "router: rollout": Rollout(),
    }
    best, nothing = rewards.max(axis=1), np.full(len(rewards), np.nan)
    for name, policy in routers.items():
        done = run(policy, batch, instance.values, threads=threads)
        regret = best - _taken(instance, done.choice) + done.spent
        results[name] = PromptResults(regret, done.inspections.astype(np.float64), nothing, nothing)
    unseen = _taken(instance, never(instance.mean).default)
    results["router: never inspect"] = PromptResults(best - unseen, np.zeros(len(best)), nothing, nothing)
    return results


def _taken(instance: Instance, choice: np.ndarray[tuple[int, ...], np.dtype[np.integer]]) -> Vector:
    return np.take_along_axis(instance.rewards, choice[:, None].astype(np.intp), axis=1)[:, 0]


def _posted(instance: Instance, cost: ArrayLike | Costs) -> Iterator[tuple[str, PromptResults]]:
    """The leave-one-out bidder against strong opponents (counted both ways) and weak ones."""
    best = instance.rewards.max(axis=1)
    others = instance.values.shape[1] - 1
    kinds: tuple[tuple[str, Opponents, bool], ...] = (
        ("posted price, others' inspections left out", "strong", False),
        ("posted price", "strong", True),
        ("posted price, set by f", "weak", True),
    )
    for name, opponents, counted in kinds:
        table = leave_one_out(instance, opponents)
        played = table.play("bidder", cost)
        welfare = played.efficiency - (played.others_cost if counted else 0.0)
        looks = played.inspections + (others if counted and opponents == "strong" else 0)
        revenue = table.posted(cost)[0].mean(axis=1)
        yield name, PromptResults(best - welfare, looks, revenue, welfare - revenue)


def leave_one_out(instance: Instance, opponents: Opponents) -> LeaveOneOut:
    """The posted-price table of an instance."""
    return LeaveOneOut(
        instance.scores,
        instance.mean,
        instance.std,
        instance.values,
        instance.rewards,
        opponents=opponents,
    )


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


@dataclass(frozen=True)
class Signal:
    """How far the means lie apart (`spread`) and how far the value strays from its mean (`std`)."""

    spread: float
    std: float
    center: float = 0.5

    def __post_init__(self) -> None:
        if not (0.0 < self.spread < np.inf and 0.0 <= self.std < np.inf and np.isfinite(self.center)):
            raise UsageError(
                "signal",
                expected="a positive spread and a standard deviation from 0 upward",
                came=f"spread {self.spread}, std {self.std}, center {self.center}",
                do="Weak f has a small spread beside a large std.",
            )


WEAK = Signal(spread=0.1, std=0.25)
STRONG = Signal(spread=0.25, std=0.1)


@dataclass(frozen=True, eq=False)
class Instance:
    """Raw estimates f, means, standard deviations and values of N prompts and M specialists, all (N, M).

    Welfare is counted in `rewards`: realised ones where there is a table, else the values themselves. Values
    are normal around their means, unless `quantiles` (L, Q) has laws of standardised residuals; `rank` (N, M)
    then says which of them each value follows.
    """

    scores: Matrix
    mean: Matrix
    std: Matrix
    values: Matrix
    realised: Matrix | None = None
    quantiles: Matrix | None = None
    rank: Positions | None = None

    @property
    def rewards(self) -> Matrix:
        """What each specialist's answer is worth (N, M)."""
        return self.values if self.realised is None else self.realised

    def batch(self, inspection_cost: ArrayLike | Costs) -> Batch:
        """The same prompts as independent boxes; costs are a number, one per specialist, or `Costs`."""
        costs = as_costs(inspection_cost, self.mean.shape[1])
        if self.quantiles is None:
            return Batch(self.mean, self.std, costs)
        alone = np.eye(self.mean.shape[1])
        return Batch(self.mean, self.std, costs, correlation=alone, quantiles=self.quantiles, rank=self.rank)

    def boxes(self, prompt: int, inspection_cost: ArrayLike | Costs) -> Boxes:
        """The boxes of one prompt, independent of each other (M,)."""
        mean, std = self.mean[prompt], self.std[prompt]
        if self.quantiles is None or self.rank is None:
            return Independent(mean, std, inspection_cost)
        return Joint(mean, np.diag(std * std), inspection_cost, self.quantiles[self.rank[prompt]])

    def prompts(self, chosen: Positions) -> Instance:
        """The same market with these prompts alone, in this order."""
        return self._part(chosen, slice(None))

    def specialist(self, number: int) -> Instance:
        """The same prompts with one specialist alone."""
        return self._part(slice(None), slice(number, number + 1))

    def _part(self, rows: Positions | slice, columns: slice) -> Instance:
        return replace(
            self,
            scores=self.scores[rows, columns],
            mean=self.mean[rows, columns],
            std=self.std[rows, columns],
            values=self.values[rows, columns],
            realised=None if self.realised is None else self.realised[rows, columns],
            rank=None if self.rank is None else self.rank[rows, columns],
        )


def generate(signal: Signal, prompts: int, specialists: int, rng: np.random.Generator) -> Instance:
    """Draw an instance."""
    if prompts < 1 or specialists < 2:
        raise UsageError(
            "instance",
            expected="1 prompt or more and 2 specialists or more",
            came=f"{prompts} and {specialists}",
            do="Ask for more.",
        )
    shift = signal.spread * rng.standard_normal((prompts, specialists))
    mean = signal.center + shift
    std = np.full(mean.shape, signal.std)
    values = mean + std * rng.standard_normal(mean.shape)
    scores = signal.center + shift * (1.0 + (signal.std / signal.spread) ** 2)
    return Instance(scores, mean, std, values)
