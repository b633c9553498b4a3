"""How many calls an endpoint takes at once and per minute, and the rest it asks for.

All specialists behind one endpoint share one gate. Waiting here costs nothing and buys nothing. It refuses to
know what passes through.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

from ..errors import UsageError

R = TypeVar("R")


class Gate:
    """At most `at_once` callers inside, starts spaced to `per_minute`, nobody while it rests."""

    def __init__(self, at_once: int = 8, per_minute: float | None = None) -> None:
        if at_once < 1 or (per_minute is not None and not per_minute > 0):
            raise UsageError(
                "the limits of an endpoint",
                expected="at_once of at least 1 and per_minute above 0",
                came=f"at_once {at_once}, per_minute {per_minute}",
                do="Leave per_minute out if there is no limit.",
            )
        self.at_once = at_once
        self.per_minute = per_minute
        self._loop: asyncio.AbstractEventLoop | None = None
        self._places = asyncio.Semaphore(at_once)
        self._next = 0.0

    @asynccontextmanager
    async def enter(self) -> AsyncIterator[None]:
        """Wait for a place and for the next start, then hold the place."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._loop, self._places, self._next = loop, asyncio.Semaphore(self.at_once), 0.0
        async with self._places:
            while (now := loop.time()) < self._next:
                await asyncio.sleep(self._next - now)
            self._next = now + (60.0 / self.per_minute if self.per_minute is not None else 0.0)
            yield

    def rest(self, seconds: float) -> None:
        """Let nobody start for so long: the endpoint asked for it."""
        if self._loop is not None:
            self._next = max(self._next, self._loop.time() + seconds)


async def in_thread(call: Callable[[], R]) -> R:
    """Run a blocking call in a daemon thread of its own: no pool to size, nothing that delays an exit."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[R] = loop.create_future()

    def settle(value: R | None, error: BaseException | None) -> None:
        if not future.done():
            future.set_exception(error) if error is not None else future.set_result(value)  # type: ignore[arg-type]

    def work() -> None:
        value, error = None, None
        try:
            value = call()
        except BaseException as caught:
            error = caught
        if not loop.is_closed():
            try:
                loop.call_soon_threadsafe(settle, value, error)
            except RuntimeError:  # the loop was closed meanwhile: nobody waits for this any more
                return

    threading.Thread(target=work, daemon=True).start()
    return await future
