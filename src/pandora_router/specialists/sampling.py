"""The most frequent of several answers of one specialist."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar, runtime_checkable

from pandora_router.errors import UsageError
from pandora_router.specialists.specialist import Answer, Beginning, Request, Specialist, Unanswered

B = TypeVar("B", Answer, Beginning)


def same(text: str) -> str:
    """Normal form of an answer for counting votes: letters and digits, lower case, single spaces."""
    plain = "".join(c if c.isalnum() or c in ".-/" else " " for c in text.casefold())
    return " ".join(word for word in (token.rstrip(".-/") for token in plain.split()) if word)


@runtime_checkable
class Several(Protocol):
    """A specialist that can answer n times with one pass over the prompt.

    The first answer has the whole bill.
    """

    async def several(self, request: Request, n: int) -> list[Answer]:
        """n answers."""
        ...

    async def begin_several(
        self, request: Request, n: int
    ) -> tuple[list[Answer], Callable[[], Awaitable[list[Answer]]]]:
        """The beginnings of n answers, and a function that continues them."""
        ...


@dataclass(frozen=True)
class Sampling:
    """The most frequent of several answers.

    name: its name in the routing table. inner: the specialist that answers `n` times. key: answers with equal
    `key(text)` count as one vote; ties go to the earliest.

    Empty answers do not vote unless all are empty. The fee is that of all n answers; seconds are those of the
    slowest. The context has the beginnings of all n answers, one per line. A beginning of n answers needs n
    places under the rate limit of `inner`.
    """

    name: str
    inner: Specialist
    n: int = 5
    key: Callable[[str], str] = field(default=same, repr=False)

    def __post_init__(self) -> None:
        if self.n < 1:
            raise UsageError(
                "n of a sampling specialist", expected="at least 1", came=f"{self.n}", do="Try 5."
            )

    @property
    def identity(self) -> str:
        """Number of answers, and the identity of `inner`."""
        return f"majority of {self.n}, {self.inner.identity}"

    @property
    def at_once(self) -> int:
        """As many groups of n answers as `inner` can answer concurrently, at least one."""
        return max(self.inner.at_once // self.n, 1)

    def most(self, request: Request) -> float:
        """n times the worst case of `inner`."""
        return self.n * self.inner.most(request)

    async def begin(self, request: Request) -> Beginning:
        """Begin all n answers; if one fails the others are cancelled and `Unanswered` is raised."""
        if isinstance(self.inner, Several):
            firsts, go_on_several = await self.inner.begin_several(request, self.n)

            async def vote() -> Answer:
                return self._elected(await go_on_several())

            return self._beginning(request, firsts, sum(first.fee for first in firsts), vote)
        begun = await self._all([self.inner.begin(request) for _ in range(self.n)])

        async def go_on() -> Answer:
            return self._elected(
                await self._all([self.inner.answer(request, beginning) for beginning in begun])
            )

        def stop() -> None:
            for beginning in begun:
                beginning.cancel()

        return self._beginning(request, begun, sum(beginning.cost for beginning in begun), go_on, stop)

    async def answer(self, request: Request, begun: Beginning | None = None) -> Answer:
        """The most frequent answer; if one of the n fails, `Unanswered` is raised and the others are lost."""
        if begun is not None:
            return await begun.finish(self.name, request)
        if isinstance(self.inner, Several):
            return self._elected(await self.inner.several(request, self.n))
        return self._elected(await self._all([self.inner.answer(request) for _ in range(self.n)]))

    async def _all(self, work: Sequence[Awaitable[B]]) -> list[B]:
        """The results of all `work`; if one is `Unanswered`, the cost of the others is added to its loss.

        If this call is cancelled, beginnings that already exist are cancelled too.
        """
        tasks = [asyncio.ensure_future(coroutine) for coroutine in work]
        try:
            await asyncio.wait(tasks)
        except BaseException:
            for task in tasks:
                task.cancel()
            _end(await asyncio.gather(*tasks, return_exceptions=True))
            raise
        results = await asyncio.gather(*tasks, return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException) and not isinstance(result, Unanswered):
                _end(results)
                raise result
        failures = [result for result in results if isinstance(result, Unanswered)]
        if failures:
            lost = _end(results) + sum(failure.lost for failure in failures)
            dead = any(failure.dead for failure in failures)
            message = f"{self.name}: {failures[0]}"
            raise Unanswered(message, failure=failures[0].failure, dead=dead, lost=lost) from failures[0]
        return [result for result in results if not isinstance(result, BaseException)]

    def _beginning(
        self,
        request: Request,
        firsts: Sequence[Answer | Beginning],
        cost: float,
        go_on: Callable[[], Awaitable[Answer]],
        stop: Callable[[], None] = lambda: None,
    ) -> Beginning:
        return Beginning(
            self.name,
            request,
            context=_lines(firsts),
            logprobs=firsts[0].logprobs,
            seconds=max(first.seconds for first in firsts),
            cost=cost,
            go_on=go_on,
            stop=stop,
        )

    def _elected(self, answers: Sequence[Answer]) -> Answer:
        votes = Counter(key for answer in answers if (key := self.key(answer.text)))
        winner = max(votes, key=lambda key: votes[key]) if votes else ""
        best = next(answer for answer in answers if self.key(answer.text) == winner)
        counted_in = [answer.tokens_in for answer in answers if answer.tokens_in is not None]
        counted_out = [answer.tokens_out for answer in answers if answer.tokens_out is not None]
        return Answer(
            best.text,
            sum(counted_in) if len(counted_in) == len(answers) else None,
            sum(counted_out) if len(counted_out) == len(answers) else None,
            max(answer.seconds for answer in answers),
            sum(answer.fee for answer in answers),
            _lines(answers),
            best.finish,
            sum(answer.lost for answer in answers),
            answers[0].logprobs,
            answers[0].context_seconds,
        )


def _lines(firsts: Sequence[Answer | Beginning]) -> str | None:
    """The beginnings of all answers, one per line."""
    return "\n".join(first.context or "" for first in firsts).strip() or None


def _end(results: Sequence[Answer | Beginning | BaseException]) -> float:
    """Cancel the beginnings; returns the cost of beginnings and answers together."""
    cost = 0.0
    for result in results:
        if isinstance(result, Beginning):
            result.cancel()
            cost += result.lost
        elif isinstance(result, Answer):
            cost += result.fee + result.lost
    return cost
