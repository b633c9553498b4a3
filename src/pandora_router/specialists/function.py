"""A plain Python function as a specialist."""

from __future__ import annotations

import inspect
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from .answer import Answer, Finish, Prices, Unanswered
from .gate import in_thread


@dataclass(frozen=True)
class Function:
    """`call(prompt)` gives the answer's text, plain (run in a thread) or async; None means it has none.

    `prices` are stated like anybody's, per call or per second; `version` is part of its identity, so that a
    changed function can be told from the one whose answers were bought before. `deadline` only bounds what a
    call priced per second can cost: one that takes longer is charged for it and is no answer. Seconds are
    those of the processor for a plain function, those of the clock for an async one.
    """

    name: str
    call: Callable[[str], str | Awaitable[str | None] | None] = field(repr=False)
    prices: Prices
    version: str = "1"
    deadline: float = 60.0
    at_once: int = 4

    @property
    def identity(self) -> str:
        """The function's name and version."""
        return f"function {self.name} {self.version}"

    def most(self, prompt: str) -> float:
        """The fee of the slowest call allowed."""
        return self.prices.per_call + self.prices.per_second * self.deadline

    async def answer(self, prompt: str) -> Answer:
        """What the function says; whatever it raises means that it has no answer."""
        try:
            said, seconds = await self._timed(prompt)
        except Exception as error:
            what = f"{self.name}: {type(error).__name__} instead of an answer"
            raise Unanswered(what, failure="not as agreed", lost=self.most(prompt)) from error
        text = "" if said is None else str(said)
        fee = self.prices.fee(0, 0, seconds)
        assert fee is not None
        if fee > self.most(prompt):
            raise Unanswered(f"{self.name}: took {seconds:.1f} s", failure="timeout", lost=self.most(prompt))
        finish: Finish = "stop" if text.strip() else "empty"
        return Answer(text, None, None, seconds, fee, text[:400] or None, finish, context_seconds=seconds)

    async def _timed(self, prompt: str) -> tuple[str | None, float]:
        begun = time.monotonic()
        if inspect.iscoroutinefunction(self.call):
            return await self.call(prompt), time.monotonic() - begun

        def work() -> tuple[str | Awaitable[str | None] | None, float]:
            start = time.thread_time()
            return self.call(prompt), time.thread_time() - start

        value, seconds = await in_thread(work)
        if inspect.isawaitable(value):
            return await value, time.monotonic() - begun
        return value, seconds
