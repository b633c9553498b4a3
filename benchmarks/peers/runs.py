"""One run: a set, a seed, a way to route. Its choices are kept on disk, so that a broken-off run goes on."""

from __future__ import annotations

import hashlib
import json
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.folders import DATA, beginnings
from benchmarks.peers.adapters.shared import Task
from benchmarks.peers.baselines import BASELINES
from pandora_router.config.experiments import read_experiment
from pandora_router.data import Fractions, Table, resplit
from pandora_router.estimators.embedders.embedder import default_embedder
from pandora_router.estimators.embedders.tfidf import fitted_embedder
from pandora_router.evaluate.estimates import table_of
from pandora_router.evaluate.experiments import Experiment
from pandora_router.router import Router, SetRecipe
from pandora_router.search import Never

HERE = Path(__file__).resolve().parent
EXPERIMENTS = HERE.parents[1] / "paper" / "experiments"
SETS = {  # experiment of paper/experiments -> at most so many prompts
    "routerbench": 3150,
    "openllm": 4000,
    "routerdc7": 6000,
    "mmlupro8": 4000,
    "math_gpt": 2040,
    "math_small_pro": 2040,
    "math_small_o1": 2040,
}
SEEDS = (201, 202, 203)  # 101 to 103 were measured with earlier defaults
COST = 0.002  # of one purchase; at every set
PEERS = {  # name -> (adapter, environment)
    "ParetoBandit": ("paretobandit", "peers"),
    "argrouter": ("argrouter_", "peers"),
    "xrouter-llm": ("xrouter", "peers"),
    "semantic-router": ("semantic", "peers"),
    "litellm heuristic_v2": ("litellm_", "litellm"),
}
OURS, NEVER = "ours", "ours, nothing bought"


@dataclass(frozen=True)
class Chosen:
    """Choices on the test prompts (n,), what was spent on inspections, and CPU-microseconds a decision."""

    chosen: NDArray[np.intp]
    spent: NDArray[np.float64]
    microseconds: float
    fit_seconds: float


@dataclass(frozen=True)
class Run:
    """A set and a seed: the table, split 60/20/20, and the folder where choices are kept."""

    name: str
    seed: int
    experiment: Experiment
    table: Table
    folder: Path

    @classmethod
    def of(cls, name: str, seed: int, cache: Path) -> Run:
        """Prompts with a score of every specialist, at most as many as `SETS` says, freshly split."""
        experiment = read_experiment(EXPERIMENTS / f"{name}.yaml")
        table = table_of(experiment, DATA)
        table = table.rows(np.isfinite(table.reward).all(axis=1))
        keep = np.sort(np.random.default_rng(seed).permutation(len(table))[: SETS[name]])
        table = resplit(table.rows(keep), seed=seed, fractions=Fractions(0.6, 0.2, 0.2))
        return cls(name, seed, experiment, table, cache / name / str(seed))

    @property
    def known(self) -> Table:
        """What every router may learn from: train and calibration, four fifths."""
        return self.table.rows(self.table.split != "test")

    @property
    def test(self) -> Table:
        """The prompts that are routed."""
        return self.table.in_split("test")

    def task(self) -> Path:
        """The task file of the peers: written once, with the vectors that our own f is computed from."""
        path = self.folder / "task.npz"
        if not path.exists():
            known, test = self.known, self.test
            embedder = fitted_embedder(known.prompts)
            vectors = embedder.embed(known.prompts)
            default_embedder().forget()
            spent = []
            for prompt in test.prompts[:200]:
                begun = time.process_time_ns()
                embedder.embed([prompt])
                spent.append(1e-3 * (time.process_time_ns() - begun))
            texts = {"train": known.prompts, "test": test.prompts, "specialists": known.specialists}
            _write(
                path,
                vectors=np.asarray(vectors, dtype=np.float64),
                test=np.asarray(embedder.embed(test.prompts), dtype=np.float64),
                score=known.score,
                fee=known.fee_weight * known.fee,
                texts=np.array(json.dumps(texts)),
                embedding=np.median(spent),
            )
        return path

    @property
    def embedding(self) -> float:
        """CPU-microseconds of embedding one prompt."""
        with np.load(self.task(), allow_pickle=False) as found:
            return float(found["embedding"])

    def kept(self, way: str, make: Callable[[], Chosen], settings: object = "") -> Chosen:
        """The choices of a way to route from the disk, or made now; other `settings` are made anew."""
        mark = hashlib.sha256(f"{way} {settings}".encode()).hexdigest()[:10]
        path = self.folder / f"{mark}.npz"
        if not path.exists():
            _write(path, way=np.array(way), **vars(make()))
        with np.load(path, allow_pickle=False) as found:
            times = float(found["microseconds"]), float(found["fit_seconds"])
            return Chosen(found["chosen"], found["spent"], *times)

    def net(self, run: Chosen) -> NDArray[np.float64]:
        """Score - fee - inspection cost of each test prompt."""
        return self.test.reward[np.arange(len(run.chosen)), run.chosen] - run.spent


def ours(run: Run, version: str) -> dict[str, Chosen]:
    """The default router and the same without purchases, from one fit; `version` names the code measured."""
    settings = (version, COST)
    ways = {OURS: None, NEVER: Never()}
    fitted: list[tuple[Router, float]] = []

    def router() -> tuple[Router, float]:
        if not fitted:
            begun = time.process_time()
            made = Router.fit(
                run.table, costly=SetRecipe(run.experiment.peek), inspection_cost=COST, remember_test=False
            )
            fitted.append((made, time.process_time() - begun))
        return fitted[0]

    def make(way: str) -> Chosen:
        made, seconds = router()
        made = made if ways[way] is None else made.with_policy(Never())
        test = run.test
        offered = beginnings(test) if run.experiment.peek else None
        decisions = made.route_batch(test.prompts, offered)
        default_embedder().forget()
        spent = []
        for i, prompt in enumerate(test.prompts[:220]):
            begun = time.process_time_ns()
            made.route(prompt, None if offered is None else offered[i])
            spent.append(1e-3 * (time.process_time_ns() - begun))
        column = {name: j for j, name in enumerate(test.specialists)}
        return Chosen(
            np.array([column[one.specialist] for one in decisions]),
            np.array([one.trace.spent for one in decisions]),
            float(np.median(spent[20:])),
            seconds,
        )

    return {way: run.kept(way, partial(make, way), settings) for way in ways}


def baseline(run: Run, way: str) -> Chosen:
    """One of `BASELINES`, timed as the peers are; embedding is added."""

    def make() -> Chosen:
        task = Task(run.task())
        begun = time.process_time()
        decide = BASELINES[way](task)
        seconds = time.process_time() - begun
        chosen, spent = [], []
        for row in range(len(task.test)):
            begun_ns = time.process_time_ns()
            chosen.append(decide(row))
            spent.append(1e-3 * (time.process_time_ns() - begun_ns))
        extra = 0.0 if way == "best single" else run.embedding
        return Chosen(np.array(chosen), np.zeros(len(chosen)), float(np.median(spent)) + extra, seconds)

    return run.kept(way, make)


def peer(run: Run, way: str, environments: Path, seconds: float) -> Chosen:
    """A peer in its own environment; `RuntimeError` if it is not installed, fails or takes too long."""
    adapter, environment = PEERS[way]
    python = environments / f".venv-{environment}" / "bin" / "python"
    if not python.exists():
        raise RuntimeError(f"not installed: no {python.parent.parent.name} (run `make peers`)")
    script = HERE / "adapters" / f"{adapter}.py"

    def make() -> Chosen:
        run.folder.mkdir(parents=True, exist_ok=True)
        out = run.folder / f"{adapter}.out.npz"
        try:
            done = subprocess.run(
                [str(python), str(script), str(run.task()), str(out)],
                capture_output=True,
                text=True,
                timeout=seconds,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise RuntimeError(f"gave no answer within {seconds:.0f} s") from error
        if done.returncode:
            raise RuntimeError((done.stderr.strip().splitlines() or ["it said nothing"])[-1])
        with np.load(out, allow_pickle=False) as found:
            chosen, spent = found["chosen"], float(found["microseconds"])
            made = Chosen(chosen, np.zeros(len(chosen)), spent, float(found["fit_seconds"]))
        out.unlink()
        extra = 0.0 if environment == "litellm" else run.embedding
        return replace(made, microseconds=made.microseconds + extra)

    return run.kept(way, make, script.read_text("utf-8"))


def _write(path: Path, **arrays: Any) -> None:
    """Write arrays under a temporary name and rename."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(".draft.npz")
    with draft.open("wb") as sink:
        np.savez(sink, **arrays)
    draft.replace(path)
