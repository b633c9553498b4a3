"""Retry after a transient failure, and count the failed calls that may have been charged."""

from __future__ import annotations

import asyncio
import email.utils
import logging
import math
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from pandora_router.transport.endpoint import Endpoint
from pandora_router.transport.failures import Failed
from pandora_router.transport.rate_limit import RateLimit

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
