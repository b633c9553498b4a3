"""Months of requests with a budget, and ways to set the worth of a right answer as they come.

A stream is replayed on what the router scores and costs for each prompt at each worth. The hard stop is that
of a key with a budget: once a request no longer fits, requests go to the cheapest specialist, and when not
even that fits they are refused and score 0.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pandora_router.folders import replacing
from pandora_router.learn.pace import Pace, Traffic, affordable
from pandora_router.router.curve import Curve

Numbers = NDArray[np.float64]
ADAPTER = Path(__file__).resolve().parent / "peers" / "adapters" / "budget_pareto.py"
HOURS = 720
SHAPES = ("constant", "growing", "weekly", "spike", "falling")
PER_HOUR = 8
TIMES = 2
"""Times an hour that the price is computed anew."""
OURS, FIXED, MIX = "goal: {budget, per}", "fixed at the start", "mix of two"
PACER, PARETO = "ParetoBandit's pacer, our router", "ParetoBandit, learning"


class Replayed(Protocol):
    """What a month is drawn from; see `goals.Measured`."""

    @property
    def curve(self) -> Curve: ...
    @property
    def worths(self) -> Numbers: ...
    @property
    def score(self) -> Numbers: ...
    @property
    def money(self) -> Numbers: ...
    @property
    def singles(self) -> Numbers: ...
    @property
    def fees(self) -> Numbers: ...


def month(shape: str) -> NDArray[np.int64]:
    """Requests of each hour of 30 days, with a daily rhythm; each shape has the same sum, a spike more."""
    hours = np.arange(HOURS)
    rate = {
        "constant": np.ones(HOURS),
        "growing": np.linspace(0.5, 1.5, HOURS),
        "weekly": np.where(hours // 24 % 7 < 5, 1.2, 0.5),
        "spike": np.where((hours >= 300) & (hours < 320), 10.0, 1.0),
        "falling": np.linspace(1.5, 0.5, HOURS),
    }[shape]
    return np.round(PER_HOUR * rate * (1.0 + 0.8 * np.sin(2 * np.pi * hours / 24))).astype(np.int64)


@dataclass(frozen=True, eq=False)
class Spent:
    """Scores (T,) of the requests, 0 where one was refused, the money, and how many were refused."""

    score: Numbers
    spent: float
    refused: int

    @property
    def scored(self) -> float:
        """The sum of scores."""
        return float(self.score.sum())


@dataclass(frozen=True, eq=False)
class Stream:
    """The requests of a month: score and money (T, K) at each of `worths`, and of the cheapest specialist.

    counts: requests of each hour. day: requests of the day before the month, all that is known of traffic
    when it begins. singles, fees: (T, M).
    """

    curve: Curve
    worths: Numbers
    score: Numbers
    money: Numbers
    singles: Numbers
    fees: Numbers
    counts: NDArray[np.int64]
    budget: float
    day: float

    @classmethod
    def of(cls, case: Replayed, counts: NDArray[np.int64], rows: NDArray[np.int64], each: float) -> Stream:
        """The prompts `rows` of a case, with `each` money per request of the month."""
        score, money, singles, fees = (
            part[rows] for part in (case.score, case.money, case.singles, case.fees)
        )
        budget, day = each * len(rows), int(counts[:24].sum())
        return cls(case.curve, case.worths, score, money, singles, fees, counts, budget, day)

    def served(self, at: NDArray[np.int64]) -> Spent:
        """The month with the worth `at` (T,) for each request, under the hard stop."""
        rows = np.arange(len(at))
        return self.stopped(self.score[rows, at], self.money[rows, at])

    def stopped(self, score: Numbers, money: Numbers) -> Spent:
        """The month in which requests would score and cost this, under the hard stop."""
        fits = int(np.searchsorted(np.cumsum(money), self.budget * (1.0 + 1e-12), side="right"))
        spent, scored = float(money[:fits].sum()), np.where(np.arange(len(score)) < fits, score, 0.0)
        cheapest = int(self.fees.mean(axis=0).argmin())
        rest = np.cumsum(self.fees[fits:, cheapest])
        more = int(np.searchsorted(rest, self.budget - spent, side="right"))
        if more:
            spent += float(rest[more - 1])
            scored[fits : fits + more] = self.singles[fits : fits + more, cheapest]
        return Spent(scored, spent, len(score) - fits - more)

    def place(self, worth: float) -> int:
        """The measured worth nearest to `worth`."""
        return int(np.abs(np.log(self.worths / worth)).argmin())

    def best(self) -> Spent:
        """The best fixed worth in hindsight."""
        runs = (self.served(np.full(len(self.score), at)) for at in range(len(self.worths)))
        return max(runs, key=lambda run: run.scored)

    @property
    def forecast(self) -> float:
        """Money for a request when the month begins, if traffic stays as it was the day before."""
        return self.budget / (self.day * HOURS / 24)


def paced(stream: Stream) -> Spent:
    """The goal: `learn.pace`, with the day before known, as `keep_pace` of the gateway computes it."""
    pace = Pace(stream.curve, stream.budget, affordable(stream.curve, stream.forecast))
    before = np.concatenate([stream.counts[:24], stream.counts])
    at = np.empty(len(stream.score), dtype=np.int64)
    done, spent = 0, 0.0
    for hour, requests in enumerate(stream.counts.tolist()):
        for part in range(TIMES):
            here = requests * (part + 1) // TIMES - requests * part // TIMES
            recent = int(before[hour : hour + 24].sum())
            traffic = Traffic(spent, done, recent, 86_400.0)
            pace = pace.after(traffic, 3600.0 * (HOURS - hour - part / TIMES))
            place = stream.place(pace.worth)
            at[done : done + here] = place
            spent += float(stream.money[done : done + here, place].sum())
            done += here
    return stream.served(at)


def fixed(stream: Stream) -> Spent:
    """The worth whose expected cost is the forecast for a request when the month begins."""
    place = stream.place(affordable(stream.curve, stream.forecast))
    return stream.served(np.full(len(stream.score), place))


def best_mix(stream: Stream) -> tuple[float, int, int]:
    """The best random mix of two specialists whose mean cost is that of the budget, known in hindsight.

    That is the share of the second specialist, and both of them; the cheapest alone if none costs so little.
    """
    fee, score = stream.fees.mean(axis=0), stream.singles.mean(axis=0)
    each = stream.budget / len(stream.score)
    share, low, high, top = 0.0, int(fee.argmin()), int(fee.argmin()), float(score[fee.argmin()])
    for i in range(len(fee)):
        for j in range(len(fee)):
            if fee[i] <= each:
                part = 1.0 if fee[j] <= each else (each - fee[i]) / (fee[j] - fee[i])
                level = float(score[i] + part * (score[j] - score[i]))
                if level > top:
                    share, low, high, top = float(part), i, j, level
    return share, low, high


def mixed(stream: Stream) -> Spent:
    """One draw of the best mix, under the hard stop."""
    share, low, high = best_mix(stream)
    rows = np.arange(len(stream.score))
    name = np.where(np.random.default_rng(0).random(len(rows)) < share, high, low)
    return stream.stopped(stream.singles[rows, name], stream.fees[rows, name])


def rivals(
    vectors: Callable[[], tuple[tuple[Numbers, Numbers, Numbers], Numbers]],
    case: Replayed,
    streams: Sequence[tuple[Stream, NDArray[np.int64]]],
    python: Path,
    out: Path,
) -> list[dict[str, Spent]]:
    """What ParetoBandit makes of each stream and its prompts, under the same stop, run by `python`.

    vectors: gives vectors, scores and fees of the prompts of the fit, and vectors of those of the case. out:
    keeps the choices; if the file is there, nothing is run. Raises `subprocess.CalledProcessError` if it
    fails.
    """
    if not out.exists():
        _run(*vectors(), case, streams, python, out)
    with np.load(out, allow_pickle=False) as found:
        made = [(found[f"at{i}"], found[f"chosen{i}"]) for i in range(len(streams))]
    every = []
    for (stream, _), (at, chosen) in zip(streams, made, strict=True):
        each = np.arange(len(chosen))
        whole = stream.stopped(stream.singles[each, chosen], stream.fees[each, chosen])
        every.append({PACER: stream.served(at), PARETO: whole})
    return every


def _run(
    known: tuple[Numbers, Numbers, Numbers],
    fresh: Numbers,
    case: Replayed,
    streams: Sequence[tuple[Stream, NDArray[np.int64]]],
    python: Path,
    out: Path,
) -> None:
    """Run the adapter on a task and write what it chose."""
    with tempfile.TemporaryDirectory() as folder, replacing(out) as draft:
        task, made = Path(folder) / "task.npz", Path(folder) / "made.npz"
        parts: dict[str, Any] = {f"rows{i}": rows for i, (_, rows) in enumerate(streams)}
        parts |= dict(zip(("known", "known_score", "known_fee"), known, strict=True))
        parts |= {"fresh": fresh, "score": case.singles, "fee": case.fees, "worths": case.worths}
        targets = json.dumps([stream.forecast for stream, _ in streams])
        np.savez(task, money=case.money, targets=np.array(targets), **parts)
        subprocess.run([str(python), str(ADAPTER), str(task), str(made)], check=True)
        shutil.copyfile(made, draft)


WAYS: Mapping[str, Callable[[Stream], Spent]] = {OURS: paced, FIXED: fixed, MIX: mixed}
