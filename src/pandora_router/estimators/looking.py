"""Estimates from the beginnings of answers, for which specialists must begin to answer.

One `Looking` serves one request. Asked about specialists, it lets each of them begin its answer, all at the
same time, and a fitted predictor estimates rewards from what they show. It keeps the beginnings: the
specialist that is chosen continues its own, so nothing is paid twice, and the others are cancelled.

    with Looking(request, predictor, specialists) as looking:
        estimates = await looking.estimate(Query(request.prompt), ["small", "large"])
        answer = await looking.answer("small")
    owed = looking.lost
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType, TracebackType
from typing import Protocol, runtime_checkable

import numpy as np

from pandora_router.errors import UsageError
from pandora_router.estimators.estimator import Named, Predictor, Query, columns_of, context_row, names
from pandora_router.estimators.judge import Judge
from pandora_router.specialists.answer import Answer, Unanswered
from pandora_router.specialists.beginning import (
    Beginning,
    shown,
    split_verdict,
    told_to_judge,
    with_verdict,
    without_verdict,
)
from pandora_router.specialists.request import Request
from pandora_router.specialists.specialist import Specialist
from pandora_router.specialists.threads import Work, Worker
from pandora_router.types import Vector

_SHARED = Worker()


@runtime_checkable
class Judged(Protocol):
    """A predictor that says how many characters of a beginning it reads, and so the judge."""

    @property
    def peek(self) -> int:
        """Number of characters."""
        ...


def _judged(context: str | None) -> bool:
    return context is not None and split_verdict(context)[0] is not None


def plain(begun: Beginning) -> str | None:
    """What a beginning shows, without log-probabilities."""
    return begun.context


def with_log_probabilities(begun: Beginning) -> str | None:
    """What a beginning shows, with its log-probabilities on the first line where there are any."""
    return shown(begun.context, begun.logprobs) if begun.logprobs else begun.context


class Looking:
    """The costly estimate for one request from the beginnings of answers; an `Estimator`.

    request: the request to be answered.
    predictor: fitted on contexts. Only specialists in its `needs` are begun; the others are estimated from
        the prompt alone.
    specialists: the specialists that can begin an answer, by name.
    context_of: turns a beginning into a context like those the predictor was fitted on; None if there is
        nothing to see. `plain` and `with_log_probabilities` match what `collect` writes without and with its
        option log_probabilities.
    work: runs the predictor; by default a thread pool shared by all requests.
    judge: reads a beginning that was looked at when a query asks for a verdict on it.

    Raises `UsageError` if a specialist in the predictor's `needs` is missing.
    """

    def __init__(
        self,
        request: Request,
        predictor: Predictor,
        specialists: Mapping[str, Specialist],
        *,
        context_of: Callable[[Beginning], str | None] = with_log_probabilities,
        work: Work = _SHARED,
        judge: Judge | None = None,
    ) -> None:
        missing = sorted(predictor.needs - set(specialists))
        if missing:
            raise UsageError(
                "specialists to look at",
                expected="every specialist whose context the predictor needs",
                came=f"none named {missing[0]!r}",
                do="Add it, or fit without contexts.",
            )
        self.request, self.predictor, self.specialists = request, predictor, specialists
        self._context_of, self._work, self._judge = context_of, work, judge
        self.needs: frozenset[str] = frozenset()
        self.together = predictor.together
        self._begun: dict[str, Beginning] = {}
        self._failures: dict[str, Unanswered] = {}
        self._verdicts: dict[str, float] = {}
        self._judging = 0.0
        self._broken_off = 0.0
        self._closed = False

    def __enter__(self) -> Looking:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def columns(self) -> tuple[str, ...]:
        """The specialists of the predictor, in order."""
        return self.predictor.specialists

    @property
    def judges(self) -> bool:
        """Whether there is a judge."""
        return self._judge is not None

    @property
    def begun(self) -> Mapping[str, Beginning]:
        """All beginnings so far, by specialist, including those that have ended."""
        return MappingProxyType(self._begun)

    @property
    def failures(self) -> Mapping[str, Unanswered]:
        """Why a specialist could not begin, by name."""
        return MappingProxyType(self._failures)

    @property
    def lost(self) -> float:
        """Upper bound of what is owed for looks without an answer: cancelled, failed or interrupted."""
        failed = sum(error.lost for error in self._failures.values())
        return failed + sum(beginning.lost for beginning in self._begun.values()) + self._broken_off

    @property
    def judging(self) -> float:
        """What the judge charged; at most, where it was interrupted."""
        return self._judging

    async def estimate(self, query: Query, specialists: Sequence[Named | str]) -> Vector:
        """Estimated rewards in the order given; otherwise as `estimate_all`."""
        column = columns_of(self.predictor, names(specialists))
        everyone = await self.estimate_all(query, specialists)
        return np.asarray(everyone[[column[name] for name in names(specialists)]])

    async def estimate_all(self, query: Query, specialists: Sequence[Named | str]) -> Vector:
        """Let `specialists` begin; returns the estimates of all specialists of the predictor, in its order.

        NaN for those of `specialists` that could not begin, or of which the judge gave no verdict. A
        specialist begins once, however often it is asked about. Contexts in the query are used as they are.
        Cancelling this call cancels the beginnings in progress.
        """
        wanted = names(specialists)
        column = columns_of(self.predictor, wanted)
        known = set(query.contexts) | set(self._begun) | set(self._failures)
        todo = [name for name in dict.fromkeys(wanted) if name in self.predictor.needs and name not in known]
        texts = self._seen(query)
        unjudged = {name: text for name in query.judged if (text := texts.get(name)) is not None}
        try:
            async with asyncio.TaskGroup() as group:
                for name in todo:
                    group.create_task(self._look(name))
                for name, text in unjudged.items():
                    group.create_task(self._verdict(query.prompt, name, text))
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None
        contexts = context_row(column, self._seen(query))
        predicted = await self._work(self.predictor.predict, [query.prompt], contexts)
        lost = {name for name in wanted if name in self._failures and name not in query.contexts}
        lost |= {name for name in query.judged if not _judged(contexts[0, column[name]])}
        values = [math.nan if name in lost else float(predicted[0, place]) for name, place in column.items()]
        return np.asarray(values, dtype=np.float64)

    async def answer(self, name: str) -> Answer:
        """The answer of the chosen specialist `name`; the beginnings of all others are cancelled first."""
        for other, loser in self._begun.items():
            if other != name:
                loser.cancel()
        begun = self._begun.get(name)
        return await self.specialists[name].answer(
            self.request, begun if begun is not None and begun.held else None
        )

    def close(self) -> None:
        """Cancel all beginnings that did not lead to an answer; may be called repeatedly."""
        self._closed = True
        for begun in self._begun.values():
            begun.cancel()

    def _seen(self, query: Query) -> dict[str, str | None]:
        """What is known of each specialist, with the verdicts on it."""
        seen = {name: self._own_words(begun) for name, begun in self._begun.items()} | {**query.contexts}
        return {
            name: text
            if text is None or name not in self._verdicts
            else with_verdict(text, self._verdicts[name])
            for name, text in seen.items()
        }

    def _own_words(self, begun: Beginning) -> str | None:
        """What a beginning shows; a verdict that a specialist gives itself does not count."""
        text = self._context_of(begun)
        return None if text is None else without_verdict(text)

    async def _verdict(self, prompt: str, name: str, context: str) -> None:
        """Ask the judge about a beginning, unless its verdict is known; without a judge there is none."""
        if self._judge is None or _judged(context):
            return
        text = told_to_judge(
            context, self.predictor.peek if isinstance(self.predictor, Judged) else len(context)
        )
        request = self._judge.asked_before(prompt, name, text)
        try:
            score, answer = await self._judge.verdict(request)
        except Unanswered as error:
            self._judging += error.lost
        except asyncio.CancelledError:
            self._judging += self._judge.most(request)
            raise
        else:
            self._judging += answer.fee + answer.lost
            self._verdicts[name] = score

    async def _look(self, name: str) -> None:
        specialist = self.specialists[name]
        try:
            begun = await specialist.begin(self.request)
        except Unanswered as error:
            self._failures[name] = error
        except asyncio.CancelledError:
            self._broken_off += specialist.most(self.request)
            raise
        else:
            self._begun[name] = begun
            if self._closed:
                begun.cancel()
