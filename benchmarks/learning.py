"""What the default router earns from 100 to 1,600 scored prompts: learning curves on six public sets.

    OMP_NUM_THREADS=1 python -m benchmarks.learning [SET ...] [--seeds 3] [--page docs/results.md]

One cell is a whole `Router.fit` with default settings on N prompts (three quarters train, one quarter
calibration), measured on prompts that it never saw. Fees are those of `paper/experiments`. What each way to
route earned on each prompt is kept in CACHE/learning, so a run that is broken off goes on; cells of other
settings are made anew. `--page` writes the page from the cells that are there.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tools.pages import put

from benchmarks.folders import DATA, beginnings
from benchmarks.kept import CACHE, Cell, kept
from pandora_router.calibrate.readings import Readings
from pandora_router.calibrate.set_signal import SetSignal
from pandora_router.calibrate.ways import BEST_SINGLE, F_ONLY, NEVER, ROUTER, Standing, basic
from pandora_router.config.experiments import read_experiment
from pandora_router.data import Table
from pandora_router.evaluate.estimates import table_of
from pandora_router.evaluate.statistics import Comparison, Split, compare
from pandora_router.router import Router
from pandora_router.router.table_fit import parted
from pandora_router.search import Never

EXPERIMENTS = Path(__file__).resolve().parents[1] / "paper" / "experiments"
SETS = {
    "zeroeval_math": "math_small_pro",
    "rag_mirage": "mirage",
    "mmlupro_cot": "mmlupro_pair",
    "openllm_pool": "openllm",
    "routerdc7": "routerdc7",
    "routerbench_part": "routerbench",
}
"""The experiment that says who takes part at which fee, for each set."""
SIZES = (100, 200, 400, 800, 1600)
JUDGED = 1000  # prompts that a router is measured on, at most
COST = 0.005
VERSION = 3  # raise when the default router decides otherwise: cells of other versions are made anew
WAYS = (ROUTER, F_ONLY, NEVER, BEST_SINGLE)


def split_of(table: Table, size: int, seed: int) -> Table:
    """N prompts to fit on, a quarter of them for calibration, and up to `JUDGED` others to measure on."""
    order = np.random.default_rng([seed, 7]).permutation(len(table))
    split = np.full(len(table), "", dtype="<U11")
    split[order[:size]] = "train"
    split[order[: size // 4]] = "calibration"
    split[order[size : size + JUDGED]] = "test"
    return table.with_split(split)


def measured(table: Table, size: int, seed: int) -> tuple[Any, float, dict[str, Any]]:
    """Net reward of each way to route (prompts, ways), then the number of each prompt and its cluster."""
    begun, held = time.process_time(), dict[str, Readings]()
    split = split_of(table, size, seed)
    router = Router.fit(
        split,
        inspection_cost=COST,
        on_estimates=held.update,
        remember_test=False,
    )
    number = {name: i for i, name in enumerate(table.prompt_ids)}
    prompts = np.array([number[name] for name in parted(split)[2].prompt_ids])
    complete = held["test"].complete
    test = held["test"].rows(complete)
    named = router.record.report["standing"]
    standing = Standing(*(table.specialists.index(named[who]) for who in ("single", "cheapest")))
    model = router.signal.base if isinstance(router.signal, SetSignal) else router.signal
    routes = basic(model, Never(), test, router.costs, standing)
    judged = parted(split)[2].rows(complete)
    decisions = router.route_batch(judged.prompts, beginnings(judged))
    chosen = np.array([table.specialists.index(decision.specialist) for decision in decisions])
    spent = np.array([decision.trace.spent for decision in decisions])
    nets = [test.reward[np.arange(len(chosen)), chosen] - spent]
    nets += [routes[way].reward(test) - routes[way].spent for way in WAYS if way != ROUTER]
    told = {"bought": float(np.mean([len(decision.inspected) > 0 for decision in decisions]))}
    return np.column_stack([*nets, prompts[complete], test.cluster]), time.process_time() - begun, told


def cells(name: str, seeds: int, cache: Path, *, fit: bool) -> dict[int, list[Cell]]:
    """The finished cells of one set by number of prompts; missing ones are made if `fit`."""
    experiment = read_experiment(EXPERIMENTS / f"{SETS[name]}.yaml")
    table = table_of(experiment, DATA) if fit else None
    found: dict[int, list[Cell]] = {size: [] for size in SIZES}
    for seed in range(1, seeds + 1):
        for size in SIZES:
            settings = {"cost": COST, "judged": JUDGED, "version": VERSION}
            make = None
            if table is not None and len(table) >= size + 200:
                make = lambda s=size, d=seed: measured(table, s, d)  # noqa: E731
            cell = kept(cache / "learning" / name, f"{size} {seed}", settings, make)
            if cell is not None:
                found[size].append(cell)
                print(f"{name} {size} prompts, split {seed}: {cell.seconds:.1f} CPU-s", flush=True)
    return found


def compared(some: Sequence[Cell]) -> tuple[NDArray[Any], Comparison, int]:
    """Mean net rewards of all ways, the comparison of the router with each other way, the best other way."""
    means = np.mean([cell.predicted[:, : len(WAYS)].mean(axis=0) for cell in some], axis=0)
    splits = [
        Split(
            cell.predicted[:, :1] - cell.predicted[:, 1 : len(WAYS)],
            cell.predicted[:, -2].astype(np.int64),
            cell.predicted[:, -1].astype(np.int64),
        )
        for cell in some
    ]
    return means, compare(splits), 1 + int(means[1:].argmax())


def row(name: str, size: int, some: Sequence[Cell]) -> tuple[str, float]:
    """One line of the table, and how many standard errors the router is above the best other way."""
    means, found, best = compared(some)
    gap, error = 1e3 * found.mean[best - 1], 1e3 * found.doubt[best - 1]
    shares = [cell.told["bought"] for cell in some]
    values = " | ".join(f"{value:.4f}" for value in means)
    line = (
        f"| {name} | {size:,} | {len(some)} | {values} | {WAYS[best]} | {gap:+.1f} ({error:.1f}) | "
        f"{np.mean(shares):.0%} |"
    )
    return line, float(gap / error) if error > 0.0 else 0.0


def page(cache: Path, seeds: int) -> str:
    """The page about all cells that are in the cache."""
    lines, scores = [], []
    for name in SETS:
        for size, some in cells(name, seeds, cache, fit=False).items():
            if some:
                line, score = row(name, size, some)
                lines.append(line)
                scores.append((name, size, score))
    behind = [f"{name} with {size:,}" for name, size, score in scores if score < -2.0]
    ahead = sum(score > 2.0 for _, _, score in scores)
    verdict = f"{len(behind)}: {', '.join(behind)}" if behind else "none"
    return PAGE.format(
        cells=len(scores), ahead=ahead, behind=verdict, seeds=seeds, cost=COST, judged=JUDGED
    ) + "\n".join([*HEAD, *lines, ""])


PAGE = """## Learning curves: from 100 to 1,600 scored prompts

Written by `OMP_NUM_THREADS=1 python -m benchmarks.learning --seeds {seeds} --page docs/results.md`. Each
row is a whole `Router.fit` with default settings on so many scored prompts (a quarter of them for
calibration), measured on up to {judged:,} prompts that the fit never saw, over fresh splits (seeds
1, 2, ...). One purchase of costly estimates costs {cost}; fees and specialists are those of
`paper/experiments`. Numbers are net reward per prompt: score - fee - what was spent on estimates.

The last but one column is the router minus the best of f-only, never inspecting and the best single
specialist, in 1e-3 of reward, with its paired standard error (clustered by prompt and by distinct f; the
larger of that over prompts and that over splits). The best of the three is taken after the fact, on the same
prompts, which favours it.

Of {cells} rows the router is more than two standard errors ahead of the best of the three in {ahead} and
behind in {behind}.

"""
HEAD = (
    "| set | prompts | splits | router | f-only | never inspect | best single | best of the three "
    "| router minus it | something bought |",
    "|---|---|---|---|---|---|---|---|---|---|",
)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("sets", nargs="*", default=list(SETS), metavar="SET", help=", ".join(SETS))
    options.add_argument("--seeds", type=int, default=3, help="how many fresh splits")
    options.add_argument("--cache", type=Path, default=CACHE)
    options.add_argument("--page", type=Path, help="write this page from all cells that are in the cache")
    options.add_argument("--kept", action="store_true", help="fit nothing: only what is in the cache")
    chosen = options.parse_args()
    for seeds in range(
        1, chosen.seeds + 1
    ):  # split by split, so that a broken run has something of every set
        for name in chosen.sets if not chosen.kept else ():
            cells(name, seeds, chosen.cache, fit=True)
    if chosen.page:
        put(page(chosen.cache, chosen.seeds), chosen.page, "learning")


if __name__ == "__main__":
    main()
