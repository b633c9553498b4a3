"""Estimates that must begin an answer to see it.

One `Looking` serves one request. Asked about specialists, it has each of them begin its answer, all at the
same time, and lets a fitted predictor estimate rewards from what they show. It keeps the beginnings: the
specialist that is chosen goes on where it stopped and is not paid twice, the others are cancelled.

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
from pandora_router.estimators.estimator import Named, Predictor, Query, names
from pandora_router.estimators.worker import Work, Worker
from pandora_router.specialists.answer import Answer, Unanswered
from pandora_router.specialists.beginning import Beginning, shown
from pandora_router.specialists.request import Request
from pandora_router.specialists.specialist import Specialist
from pandora_router.types import Vector

_SHARED = Worker()


def plain(begun: Beginning) -> str | None:
    """What a beginning shows, without log-probabilities."""
    return begun.context


def with_log_probabilities(begun: Beginning) -> str | None:
    """What a beginning shows, with its log-probabilities on the first line where there are any."""
    return shown(begun.context, begun.logprobs) if begun.logprobs else begun.context


class Looking:
    """The costly estimate of one request, made from the beginnings of answers; an `Estimator`.

    request: what is asked.
    predictor: fitted on contexts. Only specialists in its `needs` are begun; the others are estimated from
        the prompt alone.
    specialists: who can be begun, by name.
    context_of: turns a beginning into a context as the predictor was fitted on; None means that nothing can
        be seen. `plain` and `with_log_probabilities` are what `collect` writes without and with its option
        log_probabilities.
    work: where the predictor computes; a pool of threads that all requests share, unless another is given.
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
    def begun(self) -> Mapping[str, Beginning]:
        """The beginnings so far, by specialist; also those that have ended."""
        return MappingProxyType(self._begun)

    @property
    def failures(self) -> Mapping[str, Unanswered]:
        """Why specialists could not be begun, by name."""
        return MappingProxyType(self._failures)

    @property
    def lost(self) -> float:
        """The most that is owed for looks that led to no answer: cancelled, failed or broken off."""
        failed = sum(error.lost for error in self._failures.values())
        return failed + sum(beginning.lost for beginning in self._begun.values()) + self._broken_off

    async def estimate(self, query: Query, specialists: Sequence[Named | str]) -> Vector:
        """Estimated rewards in the order asked; NaN for specialists that could not be begun.

        A specialist is begun once, however often it is asked about. Contexts that the query carries are used
        as they are. If this is cancelled, so are the beginnings under way.
        """
        wanted = names(specialists)
        column = {name: j for j, name in enumerate(self.predictor.specialists)}
        unknown = [name for name in wanted if name not in column]
        if unknown:
            raise UsageError(
                "specialists to estimate",
                expected=f"among {sorted(column)}",
                came=f"{unknown}",
                do="Fit the predictor with them, or leave them out.",
            )
        known = set(query.contexts) | set(self._begun) | set(self._failures)
        todo = [name for name in dict.fromkeys(wanted) if name in self.predictor.needs and name not in known]
        try:
            async with asyncio.TaskGroup() as group:
                for name in todo:
                    group.create_task(self._look(name))
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None
        contexts = np.full((1, len(column)), None, dtype=object)
        seen = {name: self._context_of(begun) for name, begun in self._begun.items()}
        for name, text in {**seen, **query.contexts}.items():
            if name in column:
                contexts[0, column[name]] = text
        predicted = await self._work(self.predictor.predict, [query.prompt], contexts)
        lost = {name for name in wanted if name in self._failures and name not in query.contexts}
        values = [math.nan if name in lost else float(predicted[0, column[name]]) for name in wanted]
        return np.asarray(values, dtype=np.float64)

    async def answer(self, name: str) -> Answer:
        """The answer of the specialist that was chosen; the beginnings of all others are cancelled first."""
        for other, loser in self._begun.items():
            if other != name:
                loser.cancel()
        begun = self._begun.get(name)
        return await self.specialists[name].answer(
            self.request, begun if begun is not None and begun.held else None
        )

    def close(self) -> None:
        """Cancel all beginnings that did not lead to an answer; can be repeated."""
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
