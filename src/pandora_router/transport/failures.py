"""A failed call to an endpoint, and whether it is made again.

`Failed` is a call without a usable reply. `retried` repeats a call after a transient failure; failed calls
that may have been charged are counted. A `RateLimit` is shared by all specialists behind one endpoint.
"""

from __future__ import annotations

import asyncio
import email.utils
import logging
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Generic, Literal, TypeVar

from pandora_router.errors import UpstreamError, UsageError
from pandora_router.transport.endpoint import Endpoint

Failure = Literal[
    "status",
    "timeout",
    "busy",
    "connection",
    "cut",
    "broken json",
    "content type",
    "invalid reply",
    "unpriced",
    "overcharged",
]
"""Why a call failed. `overcharged`: the fee exceeds the worst case that was reserved for the call. `busy`: no
place under the rate limit became free in time."""


class Failed(UpstreamError):
    """One call without a usable reply.

    what: the message; it never repeats text of the server.
    failure: the kind of failure, for statistics and control flow.
    again: whether the same call may succeed later.
    charged: whether the call may be charged, because the server may have done the work.
    busy: whether the server is overloaded, so that other calls to the same endpoint should wait too.
    dead: whether no call to this model of this endpoint can succeed (wrong key, unknown model).
    wait: seconds that the server asked to wait, None if it did not say.
    bill: what the server says it charged, None if unknown.
    status: the HTTP status, if that is the failure.
    """

    def __init__(
        self,
        what: str,
        failure: Failure,
        *,
        again: bool,
        charged: bool = False,
        busy: bool = False,
        dead: bool = False,
        wait: float | None = None,
        bill: float | None = None,
        status: int | None = None,
    ) -> None:
        self.failure: Failure = failure
        self.again, self.charged, self.busy, self.dead = again, charged, busy, dead
        self.wait, self.bill, self.status = wait, bill, status
        super().__init__(what)

    @property
    def brief(self) -> str:
        """The failure for a client of the gateway, without the address that the message has."""
        return f"status {self.status}" if self.status else self.failure


T = TypeVar("T")

logger = logging.getLogger("pandora_router.transport")

LONGEST_WAIT = 120.0
"""Most seconds that one purchase waits between its calls, in all, if `endpoint.timeout` is not longer."""
LONGEST_PAUSE = 60.0
"""Most seconds of one pause for which the server did not ask."""
WORTH_SAYING = 5.0
"""A wait of this many seconds is reported in the log."""
MOST_CHARGED = 3
"""Most failed calls of one purchase that may be charged before it is given up."""


@dataclass(frozen=True)
class Tried(Generic[T]):
    """The result, and the number of failed calls before it that may have been charged."""

    value: T
    charged: int


class GaveUp(Failed):
    """The last of several failures; `tries` calls were made, `charged_calls` of them may be charged.

    `why` is added to the message of the last failure.
    """

    def __init__(self, last: Failed, tries: int, charged_calls: int, why: str = "") -> None:
        self.tries, self.charged_calls = tries, charged_calls
        super().__init__(
            f"{last}{why} (tries: {tries})",
            last.failure,
            again=last.again,
            charged=charged_calls > 0,
            busy=last.busy,
            dead=last.dead,
            bill=last.bill,
            status=last.status,
        )


def most_charged(endpoint: Endpoint) -> int:
    """Most calls that one purchase may be charged for, including the successful one."""
    return 1 + min(endpoint.retries, MOST_CHARGED)


async def retried(
    call: Callable[[], Awaitable[T]], endpoint: Endpoint, limit: RateLimit, *, charged: int = 0
) -> Tried[T]:
    """The result of `call`, which is called up to 1 + `endpoint.retries` times.

    `call` takes its own place under `limit`. After a transient failure this waits as long as the server
    asked, or `endpoint.pause` doubled each time; if the server is busy, every call under `limit` waits. Long
    waits are logged. `charged` counts earlier calls that may be charged. Raises `GaveUp` after a permanent
    failure, after the last retry, when more than `MOST_CHARGED` failed calls were charged, or at once when
    the waits would add up to more than `LONGEST_WAIT` seconds or one `endpoint.timeout`.
    """
    patience = max(endpoint.timeout, LONGEST_WAIT)
    for attempt in range(endpoint.retries + 1):
        try:
            return Tried(await call(), charged)
        except Failed as error:
            last = error
            charged += error.charged
        if not last.again or charged > min(endpoint.retries, MOST_CHARGED) or attempt == endpoint.retries:
            break
        pause = min(endpoint.pause * 2**attempt, LONGEST_PAUSE)
        seconds = pause if last.wait is None else last.wait
        patience -= seconds
        if patience < 0.0:
            why = f", and a wait of {seconds:g} s is too long"
            raise GaveUp(last, attempt + 1, charged, why)
        longer = limit.rest(seconds) if last.busy else True
        if longer and seconds >= WORTH_SAYING:
            logger.warning("%s; the next call there is in %.0f s", last, seconds)
        if not last.busy:
            await asyncio.sleep(seconds)
    raise GaveUp(last, attempt + 1, charged)


def waited(asked: str | None, now: float | None = None) -> float | None:
    """The seconds that a Retry-After header asks for, from 0 to infinity; None if it is invalid.

    `asked` is a number of seconds or an HTTP date; `now` is the time since the epoch, for tests.
    """
    if asked is None:
        return None
    try:
        seconds = float(asked)
    except ValueError:
        try:
            moment = email.utils.parsedate_to_datetime(asked).timestamp()
        except (TypeError, ValueError, OverflowError, IndexError):
            return None
        seconds = moment - (time.time() if now is None else now)
    return None if math.isnan(seconds) else max(seconds, 0.0)


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
