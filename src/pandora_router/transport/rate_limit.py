"""Rate limiter shared by all specialists behind one endpoint."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from pandora_router.errors import UsageError
from pandora_router.transport.failures import Failed


@dataclass
class _Places:
    """The state of a limiter on one event loop."""

    free: asyncio.Semaphore
    next_start: float = 0.0


@dataclass
class Place:
    """Permission to run one call, held until `release`."""

    _places: _Places = field(repr=False)
    _held: bool = True

    def release(self) -> None:
        """Give the place back; a second call does nothing."""
        if self._held:
            self._held = False
            self._places.free.release()


class RateLimit:
    """At most `at_once` calls run together; starts are 60 / `per_minute` seconds apart.

    After `rest(s)` no call starts for s seconds. The limits hold separately for each event loop: a program
    has one, tests may use several one after the other.
    """

    def __init__(self, at_once: int = 8, per_minute: float | None = None) -> None:
        if at_once < 1 or (per_minute is not None and not per_minute > 0):
            raise UsageError(
                "the rate limit of an endpoint",
                expected="at_once of at least 1 and per_minute above 0",
                came=f"at_once {at_once}, per_minute {per_minute}",
                do="Leave per_minute out if there is no limit.",
            )
        self.at_once = at_once
        self.per_minute = per_minute
        self._loops: dict[asyncio.AbstractEventLoop, _Places] = {}

    def __repr__(self) -> str:
        return f"RateLimit(at_once={self.at_once}, per_minute={self.per_minute})"

    @asynccontextmanager
    async def enter(self) -> AsyncIterator[None]:
        """Wait for a place and for the next start; the end of the `with` block releases the place."""
        place = await self.take()
        try:
            yield
        finally:
            place.release()

    async def take(self, within: float | None = None) -> Place:
        """Wait for a place and for the next start, and hold the place until it is released.

        Raises `Failed` ("busy", nothing charged) if that takes more than `within` seconds.
        """
        places = self._places()
        try:
            async with asyncio.timeout(within):
                await places.free.acquire()
                try:
                    await self._start(places)
                except BaseException:
                    places.free.release()
                    raise
        except TimeoutError:
            why = f"no place was free within {within:g} s ({self.at_once} calls run at once)"
            raise Failed(why, "busy", again=False) from None
        return Place(places)

    def rest(self, seconds: float) -> bool:
        """Start no call for `seconds` seconds, on the running event loop.

        Returns whether the next start is now at least a second later than it was.
        """
        places, until = self._places(), asyncio.get_running_loop().time() + seconds
        longer = until >= places.next_start + 1.0
        places.next_start = max(places.next_start, until)
        return longer

    async def _start(self, places: _Places) -> None:
        loop = asyncio.get_running_loop()
        while (now := loop.time()) < places.next_start:
            await asyncio.sleep(places.next_start - now)
        places.next_start = now + (60.0 / self.per_minute if self.per_minute is not None else 0.0)

    def _places(self) -> _Places:
        loop = asyncio.get_running_loop()
        if loop not in self._loops:
            for closed in [other for other in self._loops if other.is_closed()]:
                del self._loops[closed]
            self._loops[loop] = _Places(asyncio.Semaphore(self.at_once))
        return self._loops[loop]
