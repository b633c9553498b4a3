"""How many cells would be behind by chance: the signs of paired differences are drawn anew.

A cell is an experiment at one inspection cost. Cells of an experiment come from the same prompts and splits,
so they are behind together, and their number varies far more than that of independent ones. Here a router is
made that is exactly as good as the best static way: on each prompt, at all costs, in all splits and in all
experiments on the same data alike, its difference to that way keeps its size and gets a random sign. That the
best way is picked on the same prompts, after the fact, is not part of it; it favours that way.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence

import numpy as np

from pandora_router.evaluate.arms import DEFAULT
from pandora_router.evaluate.results import Results
from pandora_router.report.paired import gaps
from pandora_router.types import Positions

DRAWS = 1000


def behind_by_chance(found: Sequence[Results], data: Mapping[str, str], draws: int = DRAWS) -> Positions:
    """The number of cells behind by more than one standard error, in each draw (draws,).

    `data` has the name of the data of each experiment.
    """
    total = np.zeros(draws, dtype=np.intp)
    for one in found:
        same = zlib.crc32(data[one.name].encode())  # equal data, equal signs
        total += _in_one(one, draws, np.random.default_rng(same))
    return total


def _in_one(one: Results, draws: int, rng: np.random.Generator) -> Positions:
    k = one.neighbours[0]
    best = [gap for gap in gaps(one, k) if gap.doubt > 0.0]
    if not best:
        return np.zeros(draws, dtype=np.intp)
    keys = [((k, gap.cost, DEFAULT), (k, gap.cost, gap.static)) for gap in best]
    prompts = [seed.clusters(k)[0] for seed in one.seeds.values()]
    signs = rng.integers(0, 2, (draws, 1 + max(int(some.max()) for some in prompts)), dtype=np.int8) * 2 - 1
    means = []
    for seed, some in zip(one.seeds.values(), prompts, strict=True):
        totals = seed.totals([key for pair in keys for key in pair])
        gap = np.stack([totals[router] - totals[static] for router, static in keys], axis=1)
        means.append(signs[:, some] @ gap / len(some))
    every = np.stack(means)
    error = np.array([gap.error for gap in best])
    if len(every) > 1:
        error = np.fmax(error, every.std(axis=0, ddof=1) / np.sqrt(len(every)))
    return np.asarray((every.mean(axis=0) > error).sum(axis=1), dtype=np.intp)
