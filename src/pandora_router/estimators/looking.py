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

import numpy as np

from pandora_router.errors import UsageError
from pandora_router.estimators.estimator import Named, Predictor, Query, columns_of, context_row, names
from pandora_router.specialists.specialist import Answer, Beginning, Request, Specialist, Unanswered
from pandora_router.specialists.threads import Work, Worker
from pandora_router.types import Vector
from pandora_router.wires.look import shown

_SHARED = Worker()


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
        self._context_of, self._work = context_of, work
        self.needs: frozenset[str] = frozenset()
        self.together = predictor.together
        self._begun: dict[str, Beginning] = {}
        self._failures: dict[str, Unanswered] = {}
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

    async def estimate(self, query: Query, specialists: Sequence[Named | str]) -> Vector:
        """Estimated rewards in the order given; otherwise as `estimate_all`."""
        column = columns_of(self.predictor, names(specialists))
        everyone = await self.estimate_all(query, specialists)
        return np.asarray(everyone[[column[name] for name in names(specialists)]])

    async def estimate_all(self, query: Query, specialists: Sequence[Named | str]) -> Vector:
        """Let `specialists` begin; returns the estimates of all specialists of the predictor, in its order.

        NaN for those of `specialists` that could not begin. A specialist begins once, however often it is
        asked about. Contexts in the query are used as they are. Cancelling this call cancels the beginnings
        in progress.
        """
        wanted = names(specialists)
        column = columns_of(self.predictor, wanted)
        known = set(query.contexts) | set(self._begun) | set(self._failures)
        todo = [name for name in dict.fromkeys(wanted) if name in self.predictor.needs and name not in known]
        try:
            async with asyncio.TaskGroup() as group:
                for name in todo:
                    group.create_task(self._look(name))
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None
        seen = {name: self._context_of(begun) for name, begun in self._begun.items()}
        contexts = context_row(column, {**seen, **query.contexts})
        predicted = await self._work(self.predictor.predict, [query.prompt], contexts)
        lost = {name for name in wanted if name in self._failures and name not in query.contexts}
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
