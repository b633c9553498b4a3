"""A plain Python function as a specialist."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from pandora_router.prices import Tariff
from pandora_router.specialists.specialist import Answer, Beginning, Finish, Request, Unanswered
from pandora_router.specialists.threads import in_thread
from pandora_router.transport.failures import Failure

CONTEXT = 400


@dataclass(frozen=True)
class Function:
    """A Python function that answers prompts.

    call: takes the prompt and returns the text of the answer, or None if it has none; plain (runs in a
        thread) or async.
    prices: per call or per second; there are no tokens.
    version: part of the identity; change it with the function, so that recorded answers of the old function
        are not used for the new one.
    deadline: most seconds of a call, which bounds its fee; a slower call is charged and counts as failed. An
        async function is cancelled then; a plain one cannot be, and is waited for.
    at_once: most concurrent calls.

    The seconds of a plain function are processor time, those of an async function wall-clock time.
    """

    name: str
    call: Callable[[str], str | Awaitable[str | None] | None] = field(repr=False)
    prices: Tariff
    version: str = "1"
    deadline: float = 60.0
    at_once: int = 4

    @property
    def identity(self) -> str:
        """The function's name and version."""
        return f"function {self.name} {self.version}"

    def most(self, request: Request) -> float:
        """The fee of a call that takes `deadline` seconds."""
        return self.prices.per_call + self.prices.per_second * self.deadline

    async def begin(self, request: Request) -> Beginning:
        """The whole answer: a function cannot be paused, so a look is the call itself."""
        return Beginning.whole(self.name, request, await self.answer(request))

    async def answer(self, request: Request, begun: Beginning | None = None) -> Answer:
        """The function's result; raises `Unanswered` if it raises an exception or is too slow."""
        if begun is not None:
            return await begun.finish(self.name, request)
        most = self.most(request)
        try:
            returned, seconds = await self._timed(request.prompt)
        except Exception as error:
            message = f"{self.name}: {type(error).__name__} instead of an answer"
            failure: Failure = "timeout" if isinstance(error, TimeoutError) else "invalid reply"
            raise Unanswered(message, failure=failure, lost=most) from error
        text = "" if returned is None else str(returned)
        fee = self.prices.fee(0, 0, seconds)
        assert fee is not None
        if seconds > self.deadline:
            raise Unanswered(f"{self.name}: took {seconds:.1f} s", failure="timeout", lost=most)
        finish: Finish = "stop" if text.strip() else "empty"
        return Answer(text, None, None, seconds, fee, text[:CONTEXT] or None, finish, context_seconds=seconds)

    async def _timed(self, prompt: str) -> tuple[str | None, float]:
        begun = time.monotonic()
        if inspect.iscoroutinefunction(self.call):
            async with asyncio.timeout(self.deadline):
                return await self.call(prompt), time.monotonic() - begun

        def work() -> tuple[str | Awaitable[str | None] | None, float]:
            start = time.thread_time()
            return self.call(prompt), time.thread_time() - start

        value, seconds = await in_thread(work)
        if inspect.isawaitable(value):
            async with asyncio.timeout(self.deadline):
                return await value, time.monotonic() - begun
        return value, seconds
