"""The router compared with static ways of routing, prompt by prompt, and the verdict.

Paired comparisons of finished runs over several costs: averages, and choices made on other splits.

All of them use `statistics.compare`: clustered over prompts, replicated over splits. Totals are regret +
inspection cost of each test prompt.

Compares the router with static arms: with each one, with the best in hindsight, and as a short verdict.

The envelope at an inspection cost is the static arm (never inspect, always inspect, margin; on f or on the
mean) that is best at this cost on the test prompts themselves. It is chosen in hindsight, so no static router
could be sure to reach it. `chosen_elsewhere` compares with the arm that was best on the other splits instead.
"Standard error" means the larger of that over prompts and that over splits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from pandora_router.evaluate.arms import DEFAULT, STATIC
from pandora_router.evaluate.results import Key, Results, Seed
from pandora_router.evaluate.statistics import Comparison, Estimate, Split, compare
from pandora_router.types import Matrix

Way = tuple[int, str]  # neighbours, arm


def has(results: Results, k: int, arm: str) -> bool:
    """Whether this arm was run where f uses k neighbours."""
    return (k, results.costs[0], arm) in results.keys


@lru_cache(maxsize=512)
def levels(results: Results, keys: tuple[Key, ...]) -> Comparison:
    """The totals of these runs, with standard errors."""
    return _over(results, keys[0][0], lambda n, seed: _stack(seed, keys))


@lru_cache(maxsize=512)
def averages(results: Results, pairs: tuple[tuple[Way, Way], ...]) -> Comparison:
    """First minus second of each pair, averaged over the inspection costs of the experiment."""
    return _over(
        results,
        pairs[0][0][0],
        lambda n, seed: np.stack(
            [_mean(results, seed, a) - _mean(results, seed, b) for a, b in pairs], axis=1
        ),
    )


@lru_cache(maxsize=512)
def over_mixture(results: Results, way: Way, parts: tuple[tuple[Way, float], ...]) -> Comparison:
    """A way minus a random mixture of others, each with its share of the prompts, averaged over costs."""
    return _over(
        results,
        way[0],
        lambda n, seed: (
            _mean(results, seed, way) - sum(share * _mean(results, seed, part) for part, share in parts)
        )[:, None],
    )


@lru_cache(maxsize=512)
def between(first: Results, second: Results, way: Way) -> Comparison:
    """One way of routing in two experiments on the same prompts, averaged over costs: first minus second."""
    return _over(
        first,
        way[0],
        lambda n, seed: (_mean(first, seed, way) - _mean(second, second.seeds[n], way))[:, None],
        [n for n in first.seeds if n in second.seeds],
    )


@lru_cache(maxsize=512)
def elsewhere(results: Results, k: int, arm: str, statics: tuple[str, ...]) -> Comparison | None:
    """An arm at every cost against the static arm that was best on the other splits; None for one split.

    This avoids the bias of choosing the best of several arms on the test prompts themselves (up to the
    prompts that splits share).
    """
    if len(results.seeds) < 2:
        return None

    def differences(n: int, seed: Seed) -> Matrix:
        rivals = [seed_ for m, seed_ in results.seeds.items() if m != n]
        columns = []
        for cost in results.costs:
            lost = {s: np.mean([rival.rows[k, cost, s]["total"] for rival in rivals]) for s in statics}
            columns += [(k, cost, arm), (k, cost, min(statics, key=lambda s: lost[s]))]
        totals = _stack(seed, columns)
        return totals[:, ::2] - totals[:, 1::2]

    return _over(results, k, differences)


def _over(
    results: Results, k: int, of: Callable[[int, Seed], Matrix], seeds: Sequence[int] | None = None
) -> Comparison:
    splits = []
    for n, seed in results.seeds.items():
        if seeds is None or n in seeds:
            prompt, cluster = seed.clusters(k)
            splits.append(Split(of(n, seed), prompt, cluster))
    return compare(splits)


def _stack(seed: Seed, keys: Sequence[Key]) -> Matrix:
    totals = seed.totals(keys)
    return np.stack([totals[key] for key in keys], axis=1)


def _mean(results: Results, seed: Seed, way: Way) -> Matrix:
    return _stack(seed, [(way[0], cost, way[1]) for cost in results.costs]).mean(axis=1)


@dataclass(frozen=True)
class Gap(Estimate):
    """Regret + cost of the router minus that of the static arm `static`; positive: the router is worse.

    cost: the inspection cost; NaN for the average over all.
    """

    cost: float
    static: str

    @property
    def behind(self) -> bool:
        """Whether the router is worse by more than one standard error."""
        return self.mean > self.doubt

    @property
    def ahead(self) -> bool:
        """Whether the router is significantly better."""
        return self.star and self.mean < 0.0

    @property
    def errors_behind(self) -> float:
        """The difference in standard errors; 0 if both made the same decisions everywhere."""
        return self.mean / self.doubt if self.doubt > 0.0 else 0.0

    def __str__(self) -> str:
        splits = "" if np.isnan(self.split_error) else f"; {1e3 * self.split_error:.1f}"  # of one split: none
        errors = f"{1e3 * self.error:.1f}{splits}"
        return f"{1e3 * self.mean:+.1f} ({errors}){'*' if self.star else ''}"


def statics(results: Results, k: int, arm: str = DEFAULT) -> tuple[str, ...]:
    """The names of the static arms that were run, without `arm`."""
    return tuple(name for name in STATIC if name != arm and has(results, k, name))


@lru_cache(maxsize=256)
def against(results: Results, k: int, arm: str = DEFAULT) -> dict[float, tuple[Gap, ...]]:
    """By inspection cost: the difference between `arm` and each static arm."""
    names = statics(results, k, arm)
    pairs = [((k, c, arm), (k, c, s)) for c in results.costs for s in names]
    every = _gaps([(c, s) for c in results.costs for s in names], results.compare(pairs))
    return {c: tuple(gap for gap in every if gap.cost == c) for c in results.costs}


@lru_cache(maxsize=256)
def gaps(results: Results, k: int, arm: str = DEFAULT) -> tuple[Gap, ...]:
    """The difference between `arm` and the envelope at every cost."""
    return tuple(max(each, key=lambda gap: gap.mean) for each in against(results, k, arm).values())


@lru_cache(maxsize=256)
def averaged(results: Results, k: int, arm: str = DEFAULT) -> tuple[Gap, ...]:
    """The difference between `arm` and each static arm, averaged over costs; the best static arm first."""
    names = statics(results, k, arm)
    compared = averages(results, tuple(((k, arm), (k, s)) for s in names))
    found = _gaps([(float("nan"), s) for s in names], compared)
    return tuple(sorted(found, key=lambda gap: -gap.mean))


def chosen_elsewhere(results: Results, k: int, arm: str = DEFAULT) -> tuple[Gap, ...]:
    """The difference, at every cost, to the static arm that was best on the other splits.

    Empty if there is only one split.
    """
    compared = elsewhere(results, k, arm, statics(results, k, arm))
    return () if compared is None else _gaps([(c, "best elsewhere") for c in results.costs], compared)


@dataclass(frozen=True)
class Verdict:
    """The comparison of one arm with all static arms, in an experiment.

    better_than_all: costs at which it is significantly better than every static arm.
    worst: the gap to the envelope that is largest in standard errors.
    behind: costs at which it is worse than the envelope by more than one standard error.
    behind_elsewhere: the same against the arm that was best on the other splits.
    average: the gap to the best static arm, averaged over costs.
    average_beats: static arms that are significantly worse on average.
    rivals: number of static arms.
    """

    better_than_all: tuple[float, ...]
    worst: Gap
    behind: tuple[float, ...]
    behind_elsewhere: tuple[float, ...]
    average: Gap
    average_beats: tuple[str, ...]
    rivals: int

    @property
    def words(self) -> str:
        """The verdict in a few words, for tables."""
        beats = len(self.average_beats) == self.rivals
        good = (
            "better than every static arm" if beats else "ahead at some costs" if self.better_than_all else ""
        )
        bad = f"worse at {len(self.behind)} costs" if len(self.behind) > 1 else "worse at one cost"
        if self.behind:
            return f"{good}, but {bad}" if good else bad
        return f"{good}, never worse" if good else "never worse"


@lru_cache(maxsize=256)
def verdict_on(results: Results, k: int) -> Verdict:
    """Compare the router with all static arms (see `Verdict` for what counts as better and worse)."""
    every, best = against(results, k), gaps(results, k)
    mean = averaged(results, k)
    return Verdict(
        better_than_all=tuple(c for c, each in every.items() if all(gap.ahead for gap in each)),
        worst=max(best, key=lambda gap: gap.errors_behind),
        behind=tuple(gap.cost for gap in best if gap.behind),
        behind_elsewhere=tuple(gap.cost for gap in chosen_elsewhere(results, k) if gap.behind),
        average=mean[0],
        average_beats=tuple(gap.static for gap in mean if gap.ahead),
        rivals=len(mean),
    )


def _gaps(names: list[tuple[float, str]], compared: Comparison) -> tuple[Gap, ...]:
    numbers = zip(names, compared.mean, compared.error, compared.split_error, compared.star, strict=True)
    return tuple(Gap(float(m), float(e), float(p), bool(x), c, s) for (c, s), m, e, p, x in numbers)
