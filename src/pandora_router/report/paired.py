"""Paired comparisons of finished runs over several costs: averages, and choices made on other splits.

All of them use `statistics.compare`: clustered over prompts, replicated over splits. Totals are regret +
inspection cost of each test prompt.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np

from pandora_router.evaluate.results import Key, Results, Seed
from pandora_router.evaluate.statistics import Comparison, Split, compare
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
