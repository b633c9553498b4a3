"""Prints how well a specialist added from a few scored prompts is estimated, against a full fit.

    OMP_NUM_THREADS=1 python -m benchmarks.newcomer routerdc7 --prompts 24 48 96 400

Each specialist in turn is the newcomer to a default g fitted on the others; means over newcomers and three
draws of prompts, with the standard error over newcomers.

    OMP_NUM_THREADS=1 python -m benchmarks.newcomer --unscored [--page docs/add-a-specialist.md]

Of each table of `benchmarks.learn` the newcomers are the specialists that are best most often, each without
any score: the router of the others is told its fee (`Router.add_unscored`) and answers a stream of requests,
of which every answer is rated, refitted eight times. The reward of the stream, then of held-out prompts
decided afterwards, minus that of a router that was fitted with the newcomer's scores and learns from the same
stream; in thousandths, with the standard error over newcomers and seeds.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from tools.pages import put

from benchmarks import learn, learn_stream
from benchmarks.folders import DATA, load
from pandora_router import Never, Router
from pandora_router.data import Table, resplit
from pandora_router.estimators.embedders import embedder
from pandora_router.estimators.extended import Extended
from pandora_router.estimators.stack.boosted import Boosted

WAYS = ("without it", "nothing explored", "2 % drawn uniformly", "lessons at their price")


def of_newcomer(
    table: Table, j: int, seed: int, scored: int, requests: int
) -> dict[str, tuple[float, float]]:
    """For each way, reward per request and per held-out prompt, minus those of the router that knows `j`."""
    names = table.specialists
    table = table.only([*(name for name in names if name != names[j]), names[j]])
    known, fresh, held = learn.parts(table, seed, scored, requests)
    rated, rate = np.ones(fresh.score.shape, dtype=np.bool_), learn_stream.Feedback(1.0)

    def earned(router: Router, explore: learn_stream.Explore) -> tuple[float, float]:
        width = len(router.specialists)
        parts = fresh.only(table.specialists[:width]), held.only(table.specialists[:width])
        stream = learn_stream.Stream(router, *parts, rated[:, :width], rate, seed)
        outcome = learn_stream.learning(stream, explore)
        now = fresh.reward[np.arange(len(fresh)), outcome.asked].mean()
        return float(now), float(held.reward[np.arange(len(held)), outcome.later].mean())

    whole = earned(Router.fit(resplit(known, seed=seed), policy=Never()), "nothing")
    others = Router.fit(resplit(known.only(table.specialists[:-1]), seed=seed), policy=Never())
    grown = others.add_unscored(table.specialists[-1], float(np.nanmean(known.fee[:, -1])))
    ways = zip(WAYS, (others, grown, grown, grown), ("nothing", "nothing", "uniform", "priced"), strict=True)
    made = {way: earned(router, explore) for way, router, explore in ways}  # type: ignore[arg-type]
    return {way: (now - whole[0], later - whole[1]) for way, (now, later) in made.items()}


def without_scores(asked: argparse.Namespace) -> str:
    """The table of `--unscored`."""
    lines = [f"| | newcomers | {' | '.join(WAYS)} |", "|---" * (len(WAYS) + 2) + "|"]
    embedder.REMEMBERED = learn.VECTORS
    for name in asked.folder or learn.SETS:
        table, found = learn.table_named(name, DATA), []
        best = np.bincount(np.nanargmax(table.reward, axis=1), minlength=len(table.specialists))
        newcomers = np.argsort(-best, kind="stable")[: asked.newcomers].tolist()
        for seed in range(asked.seeds):
            found += [of_newcomer(table, j, seed, asked.scored, asked.requests) for j in newcomers]
        cells = []
        for way in WAYS:
            values = 1e3 * np.array([one[way] for one in found])
            error = values.std(axis=0, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else (0.0, 0.0)
            pairs = zip(values.mean(axis=0), error, strict=True)
            shown = [f"{mean:+.1f}" + (f" ({doubt:.1f})" if len(values) > 1 else "") for mean, doubt in pairs]
            cells.append(", ".join(shown))
        lines.append(f"| {name} | {len(newcomers)} | {' | '.join(cells)} |")
        print(lines[-1], flush=True)
    head = f"{asked.scored:,} scored prompts, {asked.requests:,} requests, {asked.seeds} seeds.\n\n"
    return head + "\n".join(lines) + "\n"


def main() -> None:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("folder", nargs="*")
    options.add_argument("--prompts", type=int, nargs="*", default=[24, 48, 96, 400])
    options.add_argument("--newcomers", type=int, default=5)
    options.add_argument("--unscored", action="store_true")
    options.add_argument("--scored", type=int, default=200)
    options.add_argument("--requests", type=int, default=3000)
    options.add_argument("--seeds", type=int, default=1)
    options.add_argument("--page", type=Path)
    chosen = options.parse_args()
    if chosen.unscored:
        text = without_scores(chosen)
        if chosen.page is not None:
            put(text, chosen.page)
        return
    for name in chosen.folder or options.error("Name a folder of data."):
        scored(name, chosen)


def scored(name: str, chosen: argparse.Namespace) -> None:
    """Print how well newcomers are estimated from a few scored prompts of one folder."""
    folder = load(name)
    train, test = folder.take(folder.rows("train")), folder.take(folder.rows("test"))
    whole = Boosted.fit(train.prompts, train.reward, train.specialists).predict(test.prompts)
    rows: dict[str, list[float]] = {}
    for j in range(min(chosen.newcomers, len(train.specialists))):
        others = [i for i in range(len(train.specialists)) if i != j]
        names = [train.specialists[i] for i in others]
        base = Boosted.fit(train.prompts, train.reward[:, others], names)
        truth = test.reward[:, j]
        rows.setdefault("full fit", []).append(float(np.nanmean((whole[:, j] - truth) ** 2)))
        scored = np.flatnonzero(np.isfinite(train.reward[:, j]))
        for count in chosen.prompts:
            found, constant = [], []
            for seed in range(3):
                few = np.random.default_rng(seed).permutation(scored)[:count]
                added = Extended.fit(base, "new", [train.prompts[i] for i in few], train.reward[few, j])
                found.append(np.nanmean((added.predict(test.prompts)[:, -1] - truth) ** 2))
                constant.append(np.nanmean((train.reward[few, j].mean() - truth) ** 2))
            rows.setdefault(f"added from {count}", []).append(float(np.mean(found)))
            rows.setdefault(f"mean of {count}", []).append(float(np.mean(constant)))
    for label, values in rows.items():
        print(
            f"{folder.name} {label:16s} {np.mean(values):.4f} ({np.std(values) / np.sqrt(len(values)):.4f})"
        )


if __name__ == "__main__":
    main()
