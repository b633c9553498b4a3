"""Run experiments over fresh splits, skipping finished ones; a shard is one experiment and one seed.

The runner computes shards; this process writes each result atomically when it arrives. An interruption
therefore loses only the shards in progress.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path

from pandora_router.data import Table
from pandora_router.evaluate import reliability, results
from pandora_router.evaluate.arms import arms_of, with_singles
from pandora_router.evaluate.estimates import VERSION, estimates, table_of
from pandora_router.evaluate.experiments import Experiment
from pandora_router.evaluate.flips import read_pairs
from pandora_router.evaluate.outcomes import sweep
from pandora_router.evaluate.reliability import Measured
from pandora_router.evaluate.results import Flat, Results
from pandora_router.evaluate.trials import trial_of
from pandora_router.run import InPlace, Runner
from pandora_router.search import kernels
from pandora_router.types import Progress, silent


@dataclass(frozen=True)
class Shard:
    """One seed of one experiment: everything that a worker needs.

    Shards are equal if their `key` is: same settings and same data, whatever the seed. `_table` counts on it.
    """

    experiment: Experiment = field(compare=False)
    root: Path = field(compare=False)
    seed: int = field(compare=False)
    cache: Path | None = field(compare=False)
    key: str = ""
    settings: str = field(default="", compare=False)


@dataclass(frozen=True)
class Campaign:
    """One experiment, the folder of its data, and the seeds to run (None: those of the experiment)."""

    experiment: Experiment
    root: Path
    seeds: Sequence[int] | None = None

    @property
    def wanted(self) -> tuple[int, ...]:
        """The seeds, in order."""
        return tuple(self.experiment.seeds if self.seeds is None else self.seeds)


def run(
    campaigns: Sequence[Campaign],
    output: Path,
    *,
    cache: Path | None = None,
    runner: Runner | None = None,
    progress: Progress | None = None,
) -> list[Results]:
    """Run what is missing and return all finished seeds; `cache` keeps estimates (numbers, no texts)."""
    say = progress or silent
    shards = []
    for done, request in enumerate(campaigns):
        say(f"{request.experiment.name}: reading", done, len(campaigns))
        shards += _missing(request, output, cache)
    if shards:  # compile once for all workers
        kernels.warm(say)
    waiting = dict(enumerate(shards))
    say(_words(waiting), 0, max(1, len(shards)))
    with closing((runner or InPlace()).finish(compute, shards)) as coming:
        for number, measured in coming:
            shard = waiting.pop(number)
            folder = output / shard.experiment.name
            reliability.write(folder, shard.seed, measured[1])
            results.write(folder, shard.experiment, shard.seed, shard.key, measured[0], shard.settings)
            say(_words(waiting), len(shards) - len(waiting), len(shards))
    return [_finished(request, output) for request in campaigns]


def compute(shard: Shard) -> tuple[Flat, Measured]:
    """All results of one seed: estimates, then every arm at every cost, for each number of neighbours."""
    experiment, seed = shard.experiment, shard.seed
    table = _table(shard) if shard.key else table_of(experiment, shard.root)
    arrays = estimates(experiment, table, seed, shard.cache, paraphrases=_pairs(experiment, shard.root))
    costs_at = partial(experiment.costs_at, specialists=table.specialists, together=bool(arrays["together"]))
    runs = {}
    for k in experiment.ks:
        trial = trial_of(arrays, k)
        arms = with_singles(arms_of(experiment, k), table.specialists)
        runs[k] = (trial, sweep(trial, arms, experiment.costs, costs_at, seed))
    return results.flat(experiment, seed, runs), reliability.measure(table, arrays, runs, costs_at)


def _pairs(experiment: Experiment, root: Path) -> dict[str, str]:
    """The paraphrases of an experiment, none if it names no file."""
    return read_pairs(root / experiment.paraphrases) if experiment.paraphrases else {}


@lru_cache(maxsize=1)
def _table(shard: Shard) -> Table:
    """The table of a shard, read once for all seeds that a process computes one after the other."""
    return table_of(shard.experiment, shard.root)


def _missing(request: Campaign, output: Path, cache: Path | None) -> list[Shard]:
    """The seeds without results for the same settings, data and estimators."""
    experiment, folder = request.experiment, output / request.experiment.name
    settings = settings_of(experiment)
    content = table_of(experiment, request.root).fingerprint()
    if pairs := _pairs(experiment, request.root):
        content += repr(sorted(pairs.items()))
    key = results.asked_for(settings, content)
    wanted = [seed for seed in request.wanted if not results.is_finished(folder, seed, key)]
    return [Shard(experiment, request.root, seed, cache, key, settings) for seed in wanted]


def settings_of(experiment: Experiment) -> str:
    """The key of an experiment's settings, its arms and the estimators (`results.settings_of`)."""
    arms = [repr(arm) for k in experiment.ks for arm in arms_of(experiment, k)]
    return results.settings_of(experiment, arms, VERSION)


def _finished(request: Campaign, output: Path) -> Results:
    return results.read(output / request.experiment.name, settings_of(request.experiment), request.wanted)


def _words(waiting: Mapping[int, Shard]) -> str:
    """Description of the work in progress: the shards that are handed out next."""
    if not waiting:
        return "done"
    shard = next(iter(waiting.values()))
    return f"{shard.experiment.name}: seed {shard.seed}" + (" ..." if len(waiting) > 1 else "")
