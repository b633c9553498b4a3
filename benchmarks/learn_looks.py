"""What looks teach a refit beside ratings: `OMP_NUM_THREADS=1 python -m benchmarks.learn_looks [TABLE ...]`.

A router is fitted on completely scored prompts with their beginnings. It then decides `--requests` others,
buying what its policy buys; the answers of a share of them are rated. It is refitted twice from the same log,
without looks (`learn.refit`) and with them. Printed for each seed, and as a mean with its standard error over
seeds: the looks per request, the slope by which their news counts, the root mean square error of the missing
cells of rated requests after completion, that of the estimates of held-out prompts, and the net reward
of these (score - fee - what was spent on looks) in thousandths; each without looks, and the change with them.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.folders import DATA, beginnings
from benchmarks.learn import EXPERIMENTS, VECTORS, parts
from pandora_router import Router
from pandora_router.config.experiments import read_experiment
from pandora_router.data import Table, resplit
from pandora_router.estimators.embedders import embedder
from pandora_router.estimators.pooled import Blended
from pandora_router.evaluate.estimates import table_of
from pandora_router.learn.refit import refit
from pandora_router.store.export import changed_by_looks

SETS = {"mmlupro_cot": ("mmlupro_pair", 800), "zeroeval_math": ("math_small_pro", 400)}
"""The experiment that says who takes part at which fee, and the scored prompts, for each table."""
COST = 0.005
JUDGED = 700
HEAD = "| | rated | looks | slope | completed, error | change | estimates, error | change | net | change |"


@dataclass(frozen=True)
class Judged:
    """What a refit made of a log: errors of completed cells and of held-out estimates, and net rewards."""

    completed: float
    estimates: float
    net: float


def logged(router: Router, fresh: Table) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    """Who answered each request (N,), and what looks changed before (N, M), NaN where nobody looked."""
    decisions = router.route_batch(fresh.prompts, beginnings(fresh))
    news = np.full(fresh.score.shape, np.nan)
    for i, decision in enumerate(decisions):
        for name, change in changed_by_looks(decision.to_dict()).items():
            news[i, router.specialists.index(name)] = change
    return np.array([router.specialists.index(one.specialist) for one in decisions]), news


def judged(made: Router, score: NDArray[np.float64], fresh: Table, held: Table) -> Judged:
    """Errors and net reward of a refit from the ratings `score` (N, M), NaN where missing."""
    assert isinstance(made.cheap, Blended)
    rated = np.isfinite(score).any(axis=1)
    missing = np.isnan(score[rated])
    completed = (made.cheap.after.reward[-int(rated.sum()) :] - fresh.reward[rated])[missing]
    estimates = made.cheap.predict(held.prompts) - held.reward
    decisions = made.route_batch(held.prompts, beginnings(held))
    chosen = [made.specialists.index(one.specialist) for one in decisions]
    spent = np.array([one.trace.spent for one in decisions])
    net = held.reward[np.arange(len(held)), chosen] - spent
    first, second = (float(np.sqrt(np.mean(error**2))) for error in (completed, estimates))
    return Judged(first, second, 1e3 * float(net.mean()))


def of_seed(table: Table, seed: int, scored: int, requests: int, rate: float) -> list[float]:
    """One line: looks per request, slope, then each measure without looks and its change with them."""
    known, fresh, held = parts(table, seed, scored, requests)
    held = held.rows(np.arange(min(len(held), JUDGED)))
    router = Router.fit(resplit(known, seed=seed), inspection_cost=COST)
    asked, news = logged(router, fresh)
    rated = np.random.default_rng([seed, 5]).random(len(fresh)) < rate
    score = np.full(fresh.score.shape, np.nan)
    at = np.flatnonzero(rated), asked[rated]
    score[at] = fresh.score[at]
    traffic = replace(fresh, score=score, contexts=None)
    plain, informed = (refit(router, traffic, looks=looks).router for looks in (None, news))
    before, after = (judged(made, score, fresh, held) for made in (plain, informed))
    line = [float(np.isfinite(news).sum(axis=1).mean()), float(informed.record.learnt["looks"]["slope"])]
    for name in ("completed", "estimates", "net"):
        line += [getattr(before, name), getattr(after, name) - getattr(before, name)]
    return line


def written(name: str, rate: float, line: Sequence[float]) -> str:
    """A row of the table."""
    looks, slope, completed, first, estimates, second, net, third = line
    return (
        f"| {name} | {rate:.0%} | {looks:.2f} | {slope:.2f} | {completed:.4f} | {first:+.4f} "
        f"| {estimates:.4f} | {second:+.4f} | {net:.1f} | {third:+.1f} |"
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("tables", nargs="*", default=list(SETS))
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--rate", type=float, default=1.0, help="share of answers that is rated")
    asked = parser.parse_args()
    embedder.REMEMBERED = VECTORS
    print(HEAD, "|---" * HEAD.count("|", 1) + "|", sep="\n")
    for name in asked.tables:
        experiment, scored = SETS[name]
        drawn = replace(read_experiment(EXPERIMENTS / f"{experiment}.yaml"), prompts=sys.maxsize)
        table, lines = table_of(drawn, asked.data), []
        for seed in range(asked.seeds):
            lines.append(of_seed(table, seed, scored, asked.requests, asked.rate))
            print(written(f"{name}, seed {seed}", asked.rate, lines[-1]), flush=True)
        every = np.array(lines)
        print(written(f"{name}, mean", asked.rate, every.mean(axis=0).tolist()))
        if len(lines) > 1:
            error = every.std(axis=0, ddof=1) / np.sqrt(len(lines))
            print(written(f"{name}, s.e.", asked.rate, error.tolist()), flush=True)


if __name__ == "__main__":
    main()
