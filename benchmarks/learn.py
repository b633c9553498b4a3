"""What a log teaches, and what proves it: `python -m benchmarks.learn [--page docs/learn.md] [--every]`.

**Streams.** For each table and seed a router is fitted on `--scored` completely scored prompts, then answers
`--requests` fresh prompts in blocks (`benchmarks.learn_stream`). The score of the specialist that it asked
becomes known for a share of them. Each cell is the mean reward of the requests themselves, then of
held-out prompts decided by what was learnt, minus that of the frozen router, in thousandths, with standard
errors over prompts and seeds:

    learning     refitted after each block, exploring at the price of `learn.exploration`
    tried first  the same, but a candidate serves only after a trial on disagreements (`learn.evidence`)
    nothing      refitted after each block, exploring nothing
    uniform      refitted after each block, 2 % of requests go to a specialist drawn at random
    labels       as "nothing", and 5 % of requests, at random, are scored completely afterwards
    Pareto, VW   ParetoBandit and Vowpal Wabbit, each in `.venv-peers` (`make peers`)
    all scores   neighbours that remember each block with every score: the limit

Prices and specialists are those of `paper/experiments`. The row "all" is the mean over tables.

**Trials.** Rated disagreements of two routers are drawn with replacement from a table, so that the truth is
known; the evidence is read after each of them. A candidate that is worse should rarely be promoted, one that
is better soon (`benchmarks.learn_trials`).
"""

from __future__ import annotations

import argparse
import functools
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tools.pages import USUAL, put

from benchmarks import learn_stream, learn_trials
from benchmarks.folders import DATA
from benchmarks.kept import CACHE
from benchmarks.learn_stream import Feedback, Outcome, Stream
from pandora_router import Never, Router
from pandora_router.config.experiments import read_experiment
from pandora_router.data import Table, resplit
from pandora_router.estimators.embedders import embedder
from pandora_router.evaluate.estimates import table_of

EXPERIMENTS = Path(__file__).resolve().parents[1] / "paper" / "experiments"
SETS = {
    "routerdc7": "routerdc7",
    "openllm_pool": "openllm",
    "mmlupro_cot": "mmlupro8",
    "rag_mirage": "mirage",
    "routerbench_part": "routerbench",
}
"""The experiment that says who takes part at which fee, for each table."""
SHARE = 0.7
"""Share of the prompts that are not scored which a stream has at most; the others are held out."""
HELD = 2000
SOME = 100
"""Rated disagreements before promotion in a stream, which is too short for the usual 2,000."""
MAIN = "20 % rated"
SOME_WAYS = ("learning",)
"""The ways that are run in every scenario; the others only in `MAIN`, unless `--every` is given."""
SCENARIOS = {
    MAIN: Feedback(0.2),
    "every answer rated": Feedback(1.0),
    "5 % rated": Feedback(0.05),
    "20 % rated, wrong answers four times as often as right ones": Feedback(0.2, complaints=4.0),
    "20 % rated, known 500 requests later": Feedback(0.2, delay=500),
}
LABELS = 0.05
VECTORS = 50_000
"""Vectors that an embedder keeps, so that the prompts of a table are embedded once."""
Way = Callable[[Stream], Outcome]


def ways(feedback: Feedback, python: Path) -> Mapping[str, Way]:
    """The ways to learn that are compared; rivals only where their environment is installed."""
    biased = feedback.complaints > 1.0
    found: dict[str, Way] = {
        "learning": lambda stream: learn_stream.learning(stream, corrected=biased),
        "tried first": lambda stream: learn_stream.learning(stream, least=SOME, corrected=biased),
        "nothing": lambda stream: learn_stream.learning(stream, "nothing", corrected=biased),
        "uniform": lambda stream: learn_stream.learning(stream, "uniform", corrected=biased),
    }
    found["labels"] = lambda stream: learn_stream.learning(stream, "nothing", corrected=biased, labels=LABELS)
    if python.exists():
        found["Pareto"] = lambda stream: learn_stream.rival(stream, "stream_pareto", python)
        found["VW"] = lambda stream: learn_stream.rival(stream, "stream_vw", python)
    return {**found, "all scores": learn_stream.scored}


def table_named(name: str, data: Path) -> Table:
    """All prompts of a table, with the specialists and fees of its experiment, without beginnings."""
    experiment = replace(read_experiment(EXPERIMENTS / f"{SETS[name]}.yaml"), prompts=sys.maxsize)
    return replace(table_of(experiment, data), contexts=None)


def parts(table: Table, seed: int, scored: int, requests: int) -> tuple[Table, Table, Table]:
    """Scored prompts, the requests of a stream in their order, and held-out prompts."""
    rng = np.random.default_rng([seed, 27])
    order = rng.permutation(np.flatnonzero(np.isfinite(table.score).all(axis=1)))
    requests = min(requests, int(SHARE * (len(order) - scored)))
    known, fresh = table.rows(order[:scored]), table.rows(order[scored : scored + requests])
    return known, fresh, table.rows(order[scored + requests : scored + requests + HELD])


def streams(table: Table, seed: int, scored: int, requests: int) -> Stream:
    """A fitted router, its requests and held-out prompts; nothing is rated yet."""
    known, fresh, held = parts(table, seed, scored, requests)
    router = Router.fit(resplit(known, seed=seed), policy=Never())
    nothing = np.zeros(fresh.score.shape, dtype=bool)
    return Stream(router, fresh, held, nothing, Feedback(0.0), seed)


def gains(outcome: Outcome, frozen: Outcome, stream: Stream) -> tuple[NDArray[Any], NDArray[Any]]:
    """Reward minus that of the frozen router, for each request and each held-out prompt."""
    rows, later = np.arange(len(stream.fresh)), np.arange(len(stream.held))
    reward, held = stream.fresh.reward, stream.held.reward
    return (
        reward[rows, outcome.asked] - reward[rows, frozen.asked],
        held[later, outcome.later] - held[later, frozen.later],
    )


def cell(runs: Sequence[NDArray[Any]]) -> str:
    """Mean over seeds in thousandths, and its standard error: between seeds or within, the larger."""
    means = np.array([run.mean() for run in runs])
    within = np.mean([run.var(ddof=1) / len(run) for run in runs])
    error = np.sqrt(max(means.var(ddof=1) if len(means) > 1 else 0.0, within) / len(runs))
    return f"{1e3 * means.mean():+.1f} ({1e3 * error:.1f})"


def over_tables(tables: Sequence[Sequence[Any]]) -> str:
    """Mean over tables of the gains of all seeds, with the standard error over tables and seeds."""
    parts = []
    for part in (0, 1):
        means = np.array([1e3 * run[part].mean() for runs in tables for run in runs])
        error = means.std(ddof=1) / np.sqrt(len(means)) if len(means) > 1 else 0.0
        parts.append(f"{means.mean():+.1f} ({error:.1f})")
    return ", ".join(parts)


def measured(name: str, table: Table, asked: argparse.Namespace) -> dict[str, dict[str, list[Any]]]:
    """For each scenario and way the gains of each seed."""
    found: dict[str, dict[str, list[Any]]] = {scenario: {} for scenario in scenarios(asked)}
    for seed in range(asked.seeds):
        file = asked.cache / f"{name}-{asked.scored}-{asked.requests}-{len(found)}-{seed}.npz"
        if not file.exists():
            made = of_seed(table, seed, asked)
            arrays = {f"{key} {part}": run[part] for key, run in made.items() for part in (0, 1)}
            told = json.dumps({key: run[2] for key, run in made.items()})
            asked.cache.mkdir(parents=True, exist_ok=True)
            np.savez(file, told=told, **arrays)
            print(f"{file.name} is done", flush=True)
        with np.load(file, allow_pickle=False) as kept:
            for key, remarks in json.loads(str(kept["told"])).items():
                scenario, way = key.split(": ")
                found[scenario].setdefault(way, []).append((kept[f"{key} 0"], kept[f"{key} 1"], remarks))
    return found


def scenarios(asked: argparse.Namespace) -> dict[str, Feedback]:
    """The scenarios that are run, the main one first."""
    return dict(list(SCENARIOS.items())[: asked.scenarios])


def of_seed(table: Table, seed: int, asked: argparse.Namespace) -> dict[str, Any]:
    """The gains and remarks of each scenario and way, for one seed."""
    found: dict[str, Any] = {}
    base = streams(table, seed, asked.scored, asked.requests)
    frozen, limit = learn_stream.frozen(base), learn_stream.scored(base)
    for number, (name, feedback) in enumerate(scenarios(asked).items()):
        rng = np.random.default_rng([seed, number])
        stream = replace(base, rated=feedback.drawn(base.fresh.score, rng), feedback=feedback)
        for way, run in ways(feedback, asked.python).items():
            if not (asked.every or name == MAIN or way in (*SOME_WAYS, "all scores")):
                continue
            outcome = limit if way == "all scores" else run(stream)
            found[f"{name}: {way}"] = (*gains(outcome, frozen, stream), outcome.told)
    return found


def of_table(name: str, asked: argparse.Namespace) -> tuple[dict[str, dict[str, list[Any]]], str]:
    """The streams and the trials of one table, in a process of its own."""
    begun, embedder.REMEMBERED = time.process_time(), VECTORS
    table = table_named(name, asked.data)
    made = measured(name, table, asked), learn_trials.line(name, table, asked.scored)
    print(f"{name}: {time.process_time() - begun:.0f} s of CPU, rivals apart", flush=True)
    return made


def lines(name: str, found: Mapping[str, Mapping[str, Mapping[str, list[Any]]]]) -> list[str]:
    """The table of one scenario: rows are tables, columns ways, cells the stream and the held-out prompts."""
    first = next(iter(found.values()))[name]
    out = [f"**{name}**", "", f"| | {' | '.join(first)} |", "|---" * (len(first) + 1) + "|"]
    for table, scenarios in found.items():
        runs = scenarios[name]
        cells = [f"{cell([r[0] for r in runs[way]])}, {cell([r[1] for r in runs[way]])}" for way in runs]
        out.append(f"| {table} | {' | '.join(cells)} |")
    means = [over_tables([scenarios[name][way] for scenarios in found.values()]) for way in first]
    out.append(f"| all | {' | '.join(means)} |")
    parts = []
    for table, scenarios in found.items():
        told = [run[2] for run in scenarios[name]["learning"]]
        parts.append(f"{table}: {np.mean([t['explored'] for t in told]):.0f} requests explored")
        if tried := [run[2] for run in scenarios[name].get("tried first", [])]:
            parts[-1] += (
                f", {np.mean([t['promoted'] for t in tried]):.1f} candidates promoted and "
                f"{np.mean([t['dropped'] for t in tried]):.1f} dropped"
            )
    return [*out, "", "; ".join(parts) + " (means over seeds).", ""]


def main() -> None:
    """Print the tables, and write them to a page if one is named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("tables", nargs="*", default=list(SETS))
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--scored", type=int, default=200)
    parser.add_argument("--requests", type=int, default=8800)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--every", action="store_true", help="every way in every scenario")
    parser.add_argument("--python", type=Path, default=Path(".venv-peers/bin/python"))
    parser.add_argument("--cache", type=Path, default=CACHE / "learn", help="where finished seeds are kept")
    parser.add_argument("--scenarios", type=int, default=len(SCENARIOS), help="so many of them")
    parser.add_argument("--page", type=Path)
    parser.add_argument("--part", default=USUAL, help="part of the page")
    asked = parser.parse_args()
    with ProcessPoolExecutor(asked.processes) as pool:
        made = list(pool.map(functools.partial(of_table, asked=asked), asked.tables))
    found = {name: cells for name, (cells, _) in zip(asked.tables, made, strict=True)}
    trials = [trial for _, trial in made]
    text = (
        f"{asked.scored:,} scored prompts, {asked.requests:,} requests (fewer where a table has fewer), "
        f"{asked.seeds} seeds.\n\n"
    )
    text += "\n".join(line for name in scenarios(asked) for line in lines(name, found))
    text += "\n" + "\n".join([*learn_trials.HEAD, *trials])
    print(text)
    if asked.page is not None:
        put(text, asked.page, asked.part)


if __name__ == "__main__":
    main()
