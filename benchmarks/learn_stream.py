"""One stream of requests with exact partial feedback: who is asked, what is rated, what is learnt from it.

A router is fitted on completely scored prompts (`Router.fit`), then answers a stream of prompts in blocks. Of
each answer the score of the specialist that was asked becomes known, if it is rated, `delay` requests later.
After each block the log is learnt from (`learn.refit`). Nothing is bought: decisions are those of the cheap
estimate, so that the effect measured is that of learning.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from pandora_router.data import Table
from pandora_router.estimators.extended import neighbours_of
from pandora_router.estimators.neighbours import Neighbours
from pandora_router.learn.evidence import Evidence, difference, largest, verdict
from pandora_router.learn.exploration import COIN, Exploration
from pandora_router.learn.refit import refit
from pandora_router.router import Router

BLOCKS = 8
UNIFORM = 0.02
DELTA = 0.5
COMPONENTS = 25
ADAPTERS = Path(__file__).parent / "peers" / "adapters"
Explore = Literal["nothing", "uniform", "priced"]
Ints = NDArray[np.intp]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Feedback:
    """Which answers are rated: a share of all, wrong ones `complaints` times as often, `delay` later."""

    rate: float
    complaints: float = 1.0
    delay: int = 0

    def drawn(self, score: Floats, rng: np.random.Generator) -> NDArray[np.bool_]:
        """Whether each cell (N, M) would be rated if it were asked; right answers least often."""
        chance = np.where(score > 0.5, self.rate / self.complaints, self.rate)
        return np.asarray(rng.random((len(score), 1)) < chance)


@dataclass(frozen=True)
class Stream:
    """The router of the fit, the requests in their order with what would be rated, and held-out prompts."""

    router: Router
    fresh: Table
    held: Table
    rated: NDArray[np.bool_]
    feedback: Feedback
    seed: int


@dataclass(frozen=True)
class Outcome:
    """Who was asked for each request (N,), who would be for held-out prompts afterwards, and remarks."""

    asked: Ints
    later: Ints
    told: dict[str, Any]


def worths(router: Router, prompts: Sequence[str]) -> Floats:
    """The worth of each specialist for each prompt when nothing is bought (n, M).

    That of the decisions of `Router.route_batch`, without making a decision for each prompt.
    """
    return np.asarray(router.signal.batch(router.cheap.predict(prompts), router.costs).mean)


def frozen(stream: Stream) -> Outcome:
    """The router of the fit throughout."""
    asked = worths(stream.router, stream.fresh.prompts).argmax(axis=1)
    return Outcome(asked, worths(stream.router, stream.held.prompts).argmax(axis=1), {})


def scored(stream: Stream) -> Outcome:
    """The limit: neighbours remember each answered block with the score of every specialist."""
    serving, asked = stream.router, np.empty(len(stream.fresh), dtype=np.intp)
    assert isinstance(serving.cheap, Neighbours)
    for block in _blocks(len(stream.fresh)):
        some = stream.fresh.rows(block)
        asked[block] = worths(serving, some.prompts).argmax(axis=1)
        assert isinstance(serving.cheap, Neighbours)
        serving = replace(serving, cheap=serving.cheap.remember(some.prompts, some.reward))
    return Outcome(asked, worths(serving, stream.held.prompts).argmax(axis=1), {})


def learning(
    stream: Stream,
    explore: Explore = "priced",
    *,
    least: int | None = None,
    corrected: bool = False,
    labels: float = 0.0,
) -> Outcome:
    """Refitted after each block.

    least: a candidate is first tried on disagreements (veto rule). labels: share of requests, drawn at
    random, that are scored completely afterwards.
    """
    return _Learner(stream, explore, least, corrected, labels).run()


class _Learner:
    def __init__(
        self, stream: Stream, explore: Explore, least: int | None, corrected: bool, labels: float
    ) -> None:
        self.stream, self.explore, self.least, self.corrected = stream, explore, least, corrected
        draws = np.random.default_rng([stream.seed, 13]).random(len(stream.fresh))
        self.whole = draws < labels
        self.rng = np.random.default_rng([stream.seed, 11])
        self.serving = stream.router
        self.candidate: Router | None = None
        self.evidence = Evidence.start()
        self.asked = np.full(len(stream.fresh), -1)
        self.reward = stream.fresh.reward
        self.told = {"explored": 0, "lost": 0.0, "promoted": 0, "dropped": 0}
        self.waiting: list[tuple[int, float, float, bool]] = []
        self.knowledge = Exploration.of(stream.router.cheap)

    def run(self) -> Outcome:
        for block in _blocks(len(self.asked)):
            self._answer(block)
            done = int(block[-1]) + 1
            if self.candidate is not None:
                self._judge(done)
            self._learn(done)
        later = worths(self.serving, self.stream.held.prompts).argmax(axis=1)
        return Outcome(self.asked, later, self.told)

    def _answer(self, block: Ints) -> None:
        prompts = self.stream.fresh.rows(block).prompts
        worth = worths(self.serving, prompts)
        other = None if self.candidate is None else worths(self.candidate, prompts)
        cheap = _neighbours(self.stream.router)
        phi = self.knowledge.law.features(cheap.units(cheap.embedder.embed(prompts)))
        for row, i in enumerate(block.tolist()):
            best = int(worth[row].argmax())
            if other is not None and (rival := int(other[row].argmax())) != best:
                picked = self.rng.random() < DELTA
                self.waiting.append((i, worth[row, best], worth[row, rival], picked))
                self.asked[i] = rival if picked else best
            else:
                self.asked[i] = self._explored(best, worth[row], phi[row], len(self.asked) - i)

    def _explored(self, best: int, worth: Floats, phi: Floats, left: int) -> int:
        asked = best
        if self.explore == "uniform" and self.rng.random() < UNIFORM:
            asked = int(self.rng.integers(len(worth)))
        elif self.explore == "priced":
            rate = self.stream.feedback.rate
            lesson = self.knowledge.lesson(phi, worth, rate * left)
            if lesson is not None and self.rng.random() < COIN:
                asked = lesson.column
                self.knowledge = self.knowledge.expecting(phi, asked, rate)
        if asked != best:
            self.told["explored"] += 1
            self.told["lost"] += float(worth[best] - worth[asked])
        return asked

    def _judge(self, done: int) -> None:
        assert self.least is not None
        arrived = [one for one in self.waiting if one[0] + self.stream.feedback.delay < done]
        self.waiting = [one for one in self.waiting if one[0] + self.stream.feedback.delay >= done]
        bound = largest(DELTA, float(np.ptp(self.reward)))
        for i, q_a, q_b, picked in arrived:
            column = self.asked[i]
            if self.candidate is None or not self.stream.rated[i, column]:
                continue
            d = difference(float(self.reward[i, column]), picked, DELTA, q_a, q_b)
            self.evidence = self.evidence.after(d, bound)
            ends = verdict(self.evidence, "veto")
            if ends == "go on":
                continue
            if ends == "promote":
                self.serving = self.candidate
            self.told["promoted" if ends == "promote" else "dropped"] += 1
            self.candidate = None

    def _learn(self, done: int) -> None:
        fresh, column = self.stream.fresh, self.asked
        known = np.arange(max(done - self.stream.feedback.delay, 0))
        known = known[self.stream.rated[known, column[known]] | self.whole[known]]
        if not len(known):
            return
        score = np.full(fresh.score.shape, np.nan)
        score[known, column[known]] = fresh.score[known, column[known]]
        whole = self.whole[known]
        traffic = replace(fresh, score=score).rows(known[~whole])
        fair = fresh.rows(known[whole]) if whole.any() else None
        made = refit(self.stream.router, traffic, complaints=self.corrected, fair=fair).router
        self.knowledge = Exploration.of(made.cheap)
        if self.least is None:
            self.serving = made
        elif self.candidate is None:
            self.candidate, self.evidence, self.waiting = made, Evidence.start(self.least), []


def rival(stream: Stream, adapter: str, python: Path) -> Outcome:
    """A published bandit in a process of its own: it sees the scored prompts, then asks one by one.

    It is given the components of the same vectors, and the reward of each specialist that it asks, if rated.
    """
    cheap = _neighbours(stream.router)
    known = cheap.units().astype(np.float64)
    middle = known.mean(axis=0)
    axes = np.linalg.svd(known - middle, full_matrices=False)[2][:COMPONENTS].T
    scale = (known - middle) @ axes
    parts = {"known": known}
    for name, table in (("fresh", stream.fresh), ("held", stream.held)):
        parts[name] = cheap.units(cheap.embedder.embed(table.prompts)).astype(np.float64)
    inputs = {name: (rows - middle) @ axes / scale.std(axis=0) for name, rows in parts.items()}
    whole = np.isfinite(cheap.reward).all(axis=1)
    with tempfile.TemporaryDirectory() as folder:
        task, answer = Path(folder) / "task.npz", Path(folder) / "answer.npz"
        np.savez(
            task,
            known=inputs["known"][whole],
            known_reward=cheap.reward[whole],
            fresh=inputs["fresh"],
            fresh_reward=stream.fresh.reward,
            rated=stream.rated,
            held=inputs["held"],
            settings=json.dumps({"delay": stream.feedback.delay, "seed": stream.seed}),
        )
        subprocess.run(
            [python, ADAPTERS / f"{adapter}.py", task, answer], check=True, capture_output=True, timeout=600
        )
        with np.load(answer, allow_pickle=False) as found:
            return Outcome(found["asked"], found["later"], {})


def _blocks(count: int) -> list[Ints]:
    return [block for block in np.array_split(np.arange(count), BLOCKS) if len(block)]


def _neighbours(router: Router) -> Neighbours:
    known = neighbours_of(router.cheap)
    assert known is not None
    return known
