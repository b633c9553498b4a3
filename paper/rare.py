"""`python -m paper.rare --data ../shared/data`: a slope of the news for each prompt, from prompts like it.

The signal model has one slope of rewards on news (`calibrate.reward_mean`). A rare kind of prompt may need
another one, so ways of giving each prompt its own are compared with it, on RouterDC's own split and on
experiments. Likeness is the distance between the contrasts of cheap estimates.

    nearest    the slope of the `NEAREST` known prompts, with `PRIOR` prompts of the one slope beside them
    error      the one slope times what news gains on those prompts: the part of the squared error of the
               means that values take away, divided by that part over all known prompts, within 0 and 1
    crowd      the one slope times n / (n + `PRIOR`), where n counts the known prompts within the distance
               at which a known prompt has, at the median, `NEAREST` others
    rare       as crowd, but with the whole slope where n is `NEAREST` or more
    two thirds the one slope times what crowd gives at n = `NEAREST`, for every prompt

Known prompts are training and calibration prompts; their costly estimates did not read their rewards. The
guard is off. Prints what each way loses less than the one slope per prompt, in 1e-3 of reward, with its
standard error over prompts, and for RouterDC's split what buying changes against not buying, by task.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import click
import numpy as np
from numpy.typing import NDArray

from pandora_router.boxes.costs import as_costs
from pandora_router.calibrate import Calibrated, FittedSignal, Readings
from pandora_router.calibrate.reward_mean import centred
from pandora_router.calibrate.ways import search
from pandora_router.config.experiments import read_experiment
from pandora_router.data import carve
from pandora_router.evaluate.estimates import estimates, table_of
from pandora_router.evaluate.experiments import USUAL
from pandora_router.evaluate.trials import trial_of
from pandora_router.router.out_of_fold import Part, ask, cheap_estimates, knowing, out_of_fold
from pandora_router.router.recipes import NeighbourRecipe, SetRecipe
from pandora_router.router.table_fit import parted
from pandora_router.search import KnowledgeGradient, Never
from pandora_router.types import Matrix, Vector, silent
from paper import public

EXPERIMENTS = Path(__file__).parent / "experiments"
NAMES = ("openllm", "math_gpt", "routerbench")
COSTS = (0.001, 0.005, 0.02)
ONE = "one slope"
WAYS = ("nearest", "error", "crowd", "rare", "two thirds")
NEAREST, PRIOR = 100, 50
MOST = 3000
"""Test prompts searched."""


def slopes(signal: FittedSignal, known: Readings, cheap: Matrix) -> Mapping[str, Vector]:
    """The slope (N,) of each prompt with cheap estimates (N, M), by each way."""
    mean, believed = signal.expected(known.cheap), signal.believed(known.cheap)
    news, surprise = centred(known.costly - mean, known.reward - mean)
    k, v = (news * surprise).sum(axis=1), (news**2).sum(axis=1)
    gap, told = centred(known.reward - believed, signal.values(known.cheap, known.costly) - believed)
    before, after = (gap**2).sum(axis=1), ((gap - told) ** 2).sum(axis=1)
    gained = float(1.0 - after.sum() / before.sum())
    sample = known.cheap[np.random.default_rng(0).permutation(len(known))[:MOST]]
    radius = np.median(np.concatenate([np.sort(d, axis=1)[:, NEAREST] for d in _far(known.cheap, sample)]))
    local, part, crowd = [], [], []
    usual = PRIOR * v.mean() * k.sum() / v.sum(), PRIOR * v.mean()
    for d in _far(known.cheap, cheap):
        near = np.argpartition(d, NEAREST, axis=1)[:, :NEAREST]
        local.append((k[near].sum(axis=1) + usual[0]) / (v[near].sum(axis=1) + usual[1]))
        part.append(1.0 - after[near].sum(axis=1) / np.maximum(before[near].sum(axis=1), 1e-9))
        crowd.append((d <= radius).sum(axis=1))
    count = np.concatenate(crowd)
    crowded = count / (count + PRIOR)
    return {
        ONE: np.full(len(cheap), signal.slope),
        "nearest": signal.slope * np.clip(np.concatenate(local) / (k.sum() / v.sum()), 0.0, 2.0),
        "error": signal.slope * np.clip(np.concatenate(part) / max(gained, 1e-9), 0.0, 1.0),
        "crowd": signal.slope * crowded,
        "rare": signal.slope * np.minimum(crowded * (1.0 + PRIOR / NEAREST), 1.0),
        "two thirds": np.full(len(cheap), signal.slope / (1.0 + PRIOR / NEAREST)),
    }


def _far(known: Matrix, cheap: Matrix) -> Iterator[Matrix]:
    """Squared distances (n, known) between contrasts of cheap estimates, in blocks of prompts."""
    a, b = (f - f.mean(axis=1, keepdims=True) for f in (cheap, known))
    for rows in np.array_split(a, max(1, len(a) // 500)):
        yield (rows**2).sum(axis=1)[:, None] - 2.0 * rows @ b.T + (b**2).sum(axis=1)


def earned(calibration: Readings, train: Readings, test: Readings, cost: float) -> dict[str, Vector]:
    """Reward - cost of each way and of never inspecting for each test prompt (N,); and its slopes."""
    signal = Calibrated().fit(calibration, train)
    known = train.beside(calibration)
    known = known.rows(known.complete)
    costs = as_costs(cost, test.cheap.shape[1])
    made = {"never": search(Never(), signal, test, costs).reward(test)}
    for name, slope in slopes(signal, known, test.cheap).items():
        own = replace(signal, slope=slope[:, None])  # `batch` and `values` take one slope per row
        done = search(KnowledgeGradient(), own, test, costs)
        made[name] = done.reward(test) - done.spent
        made[f"slope: {name}"] = slope
    return made


def routerdc(root: Path, seeds: Sequence[int]) -> None:
    """RouterDC's own split: the mean of reward over seeds for each test prompt, task by task."""
    table, runs = public.routerdc7(root / "routerdc7"), []
    for seed in seeds:
        train, calibration, test, _ = parted(carve(table, seed=seed))
        cheap = knowing(NeighbourRecipe().fit(train, silent), calibration)
        costly = SetRecipe(peek=0, seed=seed).fit(train, silent)
        parts = {"train": train, "calibration": calibration, "test": test}
        f = cheap_estimates(cheap, {n: Part.of(p, len(p)) for n, p in parts.items()}, {"f": None})
        g = {"train": out_of_fold(costly, np.full(train.reward.shape, np.nan))}
        g |= {name: ask(costly, parts[name]) for name in ("calibration", "test")}
        made = {name: Readings(f[f"{name}.f"], g[name], part.reward) for name, part in parts.items()}
        runs.append(earned(made["calibration"], made["train"], made["test"], public.COST))
    show_routerdc(runs, np.array(table.in_split("test").tasks))


def show_routerdc(runs: Sequence[Mapping[str, Vector]], tasks: NDArray[np.str_]) -> None:
    """One line per way: what buying changes against not buying in points, price included, by task."""
    print(f"RouterDC's split, {len(runs)} seeds, {len(tasks)} test prompts, c = {public.COST}")
    columns = ["way", *public.TASKS.values(), "mean of tasks", "over one slope", "slope on HumanEval"]
    print(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}")
    net = {way: 100 * np.mean([run[way] for run in runs], axis=0) for way in ("never", ONE, *WAYS)}
    where = [tasks == task for task in public.TASKS]
    for way in (ONE, *WAYS):
        gap, lead = net[way] - net["never"], net[way] - net[ONE]
        cells = [f"{x:+.2f} ({error:.2f})" for x, error in (_mean([gap[mask]]) for mask in where)]
        cells += [
            f"{x:+.2f} ({error:.2f})" for x, error in (_mean([d[m] for m in where]) for d in (gap, lead))
        ]
        slope = np.mean([run[f"slope: {way}"][tasks == "humaneval"].mean() for run in runs])
        print(f"| {way} | {' | '.join(cells)} | {slope:.2f} |")


def _mean(parts: Sequence[Vector]) -> tuple[float, float]:
    """The mean of the means of parts with one weight each, and its standard error over prompts."""
    square = sum(float(part.var(ddof=1)) / len(part) for part in parts) / len(parts) ** 2
    return float(np.mean([part.mean() for part in parts])), float(np.sqrt(square))


def others(names: Sequence[str], root: Path, seeds: Sequence[int], cache: Path | None) -> None:
    """Experiments on fresh splits: the lead of each way over the one slope, in 1e-3."""
    for name in names:
        experiment = read_experiment(EXPERIMENTS / f"{name}.yaml")
        table = table_of(experiment, root)
        print(f"{name}, seeds {', '.join(map(str, seeds))}")
        print(f"| way | {' | '.join(f'c = {cost}' for cost in COSTS)} |\n|---|{'---|' * len(COSTS)}")
        gaps: dict[str, list[list[Vector]]] = {}
        for seed in seeds:
            trial = trial_of(estimates(experiment, table, seed, cache), USUAL)
            assert trial.train is not None
            test = trial.test.rows(slice(MOST))
            for at, cost in enumerate(COSTS):
                made = earned(trial.calibration, trial.train, test, cost)
                for way in ("never", *WAYS):
                    gaps.setdefault(way, [[] for _ in COSTS])[at].append(made[way] - made[ONE])
        for way, by_cost in gaps.items():
            joined = [1e3 * np.concatenate(parts) for parts in by_cost]
            cells = [f"{x.mean():+.1f} ({x.std(ddof=1) / np.sqrt(len(x)):.1f})" for x in joined]
            print(f"| {way} | {' | '.join(cells)} |", flush=True)


@click.command()
@click.argument("names", nargs=-1)
@click.option("--data", "root", required=True, type=click.Path(path_type=Path), help="The data folders.")
@click.option("--seeds", default="61,62,63", help="Of the splits.")
@click.option("--cache", type=click.Path(path_type=Path), help="Folder that keeps the estimates of a split.")
def main(names: tuple[str, ...], root: Path, seeds: str, cache: Path | None) -> None:
    """Print a table for RouterDC's split ("routerdc") and for each experiment of paper/experiments."""
    drawn = [int(seed) for seed in seeds.split(",")]
    if not names or "routerdc" in names:
        routerdc(root, drawn)
    others([name for name in names or NAMES if name != "routerdc"], root, drawn, cache)


if __name__ == "__main__":
    main()
