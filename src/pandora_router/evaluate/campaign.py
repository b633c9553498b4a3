"""Run an experiment over fresh splits, one seed at a time, leaving finished seeds alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from pandora_router.evaluate import checks, results
from pandora_router.evaluate.estimates import estimates, table_of
from pandora_router.evaluate.experiments import Experiment
from pandora_router.evaluate.instances import instance_of
from pandora_router.evaluate.results import Results
from pandora_router.evaluate.sweep import sweep
from pandora_router.evaluate.variants import arms_of

Progress = Callable[[str, int, int], None]


def run(
    experiment: Experiment,
    root: Path,
    output: Path,
    *,
    seeds: Sequence[int] | None = None,
    cache: Path | None = None,
    progress: Progress | None = None,
) -> Results:
    """Run what is missing and return all finished seeds; `cache` keeps estimates (numbers, no texts)."""
    say = progress or (lambda what, done, total: None)
    arms = {k: arms_of(experiment, k) for k in experiment.neighbours}
    key = results.asked_for(experiment, [repr(arm) for each in arms.values() for arm in each])
    folder = output / experiment.name
    wanted = tuple(experiment.seeds if seeds is None else seeds)
    missing = [seed for seed in wanted if not results.is_finished(folder, seed, key)]
    table = table_of(experiment, root) if missing else None
    for done, seed in enumerate(missing):
        assert table is not None
        say(f"{experiment.name}: seed {seed}, estimates", done, len(missing))
        made = estimates(experiment, table, seed, cache)
        runs = {}
        costs_at = partial(experiment.inspection.costs, specialists=table.specialists)
        for k in experiment.neighbours:
            say(f"{experiment.name}: seed {seed}, arms on {k} neighbours", done, len(missing))
            instance = instance_of(made, k)
            runs[k] = (instance.test, sweep(instance, arms[k], experiment.costs, costs_at, seed))
        checks.write(folder, seed, checks.measure(table, made, {k: done for k, (_, done) in runs.items()}))
        results.write(folder, experiment, seed, key, runs)
    say(experiment.name, len(missing), max(1, len(missing)))
    found = results.read(folder)
    kept = {seed: found.seeds[seed] for seed in wanted if seed in found.seeds}
    return Results(found.name, found.title, found.control, kept)
