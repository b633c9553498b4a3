"""What a log teaches: `python -m benchmarks.learn TABLE ... [--page docs/learn.md]`.

For each table and seed: a router is fitted on `--scored` completely scored prompts (`Router.fit`), decides
`--requests` fresh prompts, and the score of the specialist that it chose is known for a share of them. Then
held-out prompts are decided by

    frozen      the router as it was
    one cell    neighbours that remember rated requests with one score each, as they are
    learnt      `learn.refit`
    all scores  neighbours that remember the same requests with every score: the limit

and the mean reward minus that of frozen is printed, in thousandths, with standard errors over prompts and
seeds. `complaints` is feedback in which wrong answers are rated four times as often as right ones, learnt
without and with `complaints=True`. Nothing is bought, so that the effect is that of the cheap estimate.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from tools.pages import put

from pandora_router import Never, Router
from pandora_router.data import Table, resplit
from pandora_router.data.fees import Free, PerParameter
from pandora_router.data.importers.folder import read_folder
from pandora_router.estimators.neighbours import Neighbours
from pandora_router.learn.refit import refit

WAYS = ("one cell", "learnt", "all scores", "complaints, learnt", "complaints, corrected")


def learning(table: Table, seed: int, scored: int, requests: int, rate: float) -> dict[str, Any]:
    """Reward of each way minus that of frozen, per held-out prompt."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(np.flatnonzero(np.isfinite(table.score).all(axis=1)))
    known, fresh = table.rows(order[:scored]), table.rows(order[scored : scored + requests])
    held = table.rows(order[scored + requests : scored + requests + 3000])
    router = Router.fit(resplit(known, seed=seed), policy=Never())
    asked = [router.specialists.index(d.specialist) for d in router.route_batch(fresh.prompts)]
    rated = rng.random(len(fresh)) < rate
    right = fresh.score[np.arange(len(fresh)), asked] > 0.5
    complained = rng.random(len(fresh)) < np.where(right, 0.25 * rate, rate)
    routers = {
        "frozen": router,
        "one cell": _remembering(router, fresh.rows(rated), np.asarray(asked)[rated], alone=True),
        "learnt": refit(router, _log(fresh, asked, rated)).router,
        "all scores": _remembering(router, fresh.rows(rated), np.asarray(asked)[rated], alone=False),
        "complaints, learnt": refit(router, _log(fresh, asked, complained)).router,
        "complaints, corrected": refit(router, _log(fresh, asked, complained), complaints=True).router,
    }
    reward = {}
    for name, made in routers.items():
        chosen = [router.specialists.index(d.specialist) for d in made.route_batch(held.prompts)]
        reward[name] = held.reward[np.arange(len(held)), chosen]
    return {name: values - reward["frozen"] for name, values in reward.items()}


def _log(fresh: Table, asked: Sequence[int], rated: np.ndarray) -> Table:
    """The rated requests, with the score of the specialist that was asked alone."""
    score = np.full(fresh.score.shape, np.nan)
    rows = np.flatnonzero(rated)
    columns = np.asarray(asked)[rows]
    score[rows, columns] = fresh.score[rows, columns]
    return replace(fresh, score=score).rows(rows)


def _remembering(router: Router, rated: Table, asked: np.ndarray, *, alone: bool) -> Router:
    """The router whose neighbours remember these requests, with one score each if `alone`."""
    assert isinstance(router.cheap, Neighbours)
    reward = rated.reward.copy()
    if alone:
        reward[np.arange(reward.shape[1]) != asked[:, None]] = np.nan
    return replace(router, cheap=router.cheap.remember(rated.prompts, reward))


def main() -> None:
    """Print the table, and write it to a page if one is named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--scored", type=int, default=200)
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--rate", type=float, default=1.0)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--page", type=Path)
    asked = parser.parse_args()
    lines = [f"| table | {' | '.join(WAYS)} |", "|---" * (len(WAYS) + 1) + "|"]
    for folder in asked.folders:
        table = replace(read_folder(folder, fees=_fees(folder)), contexts=None)
        runs = [
            learning(table, seed, asked.scored, asked.requests, asked.rate) for seed in range(asked.seeds)
        ]
        cells = []
        for way in WAYS:
            means = np.array([run[way].mean() for run in runs])
            within = np.mean([run[way].var(ddof=1) / len(run[way]) for run in runs])
            error = np.sqrt(max(means.var(ddof=1) if len(means) > 1 else 0.0, within) / len(runs))
            cells.append(f"{1e3 * means.mean():+.1f} ({1e3 * error:.1f})")
        lines.append(f"| {folder.name} | {' | '.join(cells)} |")
        print(lines[-1], flush=True)
    about = (
        f"{asked.scored:,} scored prompts, {asked.requests:,} requests of which {asked.rate:.0%} are rated"
    )
    text = f"{about}, {asked.seeds} seeds.\n\n" + "\n".join(lines)
    print(text)
    if asked.page is not None:
        put(text, asked.page)


def _fees(folder: Path) -> Any:
    return PerParameter(1.0) if folder.name == "openllm_pool" else Free()


if __name__ == "__main__":
    main()
