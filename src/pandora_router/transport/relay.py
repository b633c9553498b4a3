"""A call whose reply is passed on unchanged, for the gateway.

Unlike `client.HttpCall`, nothing is parsed or redacted, and no status raises an exception: the caller decides
what a status means and forwards the body. Long streams are normal here, so `timeout` limits each wait (for
the headers, for the next bytes) and `LONGEST` the whole call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING

from pandora_router.transport.client import sendable, session_of_loop
from pandora_router.transport.failures import Failed
from pandora_router.transport.guard import Guard, late, unheard, wire_errors

if TYPE_CHECKING:
    import aiohttp

LONGEST = 3600.0
"""Seconds after which a call is ended even if bytes still arrive."""


class _Late(Exception):
    """The next bytes did not arrive in time."""


class Relay:
    """One POST whose status and headers have arrived. Created by `Relay.open`; must always be closed."""

    def __init__(self, url: str, response: aiohttp.ClientResponse, end: float, timeout: float) -> None:
        self.url = url
        self.status = response.status
        self.headers = response.headers
        self._response: aiohttp.ClientResponse | None = response
        self._end = end
        self._timeout = timeout
        self._loop = asyncio.get_running_loop()
        self._due: float | None = None
        self._timer: asyncio.TimerHandle | None = None

    @classmethod
    async def open(
        cls, url: str, body: bytes, headers: Mapping[str, str], timeout: float, proxy: str | None = None
    ) -> Relay:
        """POST `body` and wait for status and headers, at most `timeout` seconds.

        Raises `Failed` if there is no HTTP response. Redirects are not followed and are not an error here.
        """
        now = asyncio.get_running_loop().time()
        async with Guard(url, now + timeout, timeout):
            session = await session_of_loop()
            response = await session.post(
                url, data=sendable(body), headers=headers, proxy=proxy, allow_redirects=False
            )
        return cls(url, response, now + LONGEST, timeout)

    @property
    def broken(self) -> bool:
        """Whether the connection is known to have ended before the reply, without reading."""
        return self._response is None or self._response.content.exception() is not None

    async def chunk(self) -> bytes:
        """The next bytes as they arrived, b"" at the end; raises `Failed` if they are late or it breaks."""
        if self._response is None:
            return b""
        self._due = min(self._loop.time() + self._timeout, self._end)
        if self._timer is None:
            self._timer = self._loop.call_at(self._due, self._check)
        try:
            return await self._response.content.readany()
        except _Late:
            raise late(self.url, self._timeout) from None
        except wire_errors() as error:
            raise unheard(self.url, error) from None
        finally:
            self._due = None

    def _check(self) -> None:
        """Wake a reader that has waited too long; one timer serves many reads, set anew only when due."""
        self._timer = None
        if self._due is None or self._response is None:
            return
        if self._loop.time() < self._due:
            self._timer = self._loop.call_at(self._due, self._check)
        else:
            self._response.content.set_exception(_Late())

    async def read(self, limit: int) -> bytes:
        """The whole body; raises `Failed` beyond `limit` bytes."""
        parts: list[bytes] = []
        size = 0
        while chunk := await self.chunk():
            parts.append(chunk)
            size += len(chunk)
            if size > limit:
                why = f"the reply of {self.url} is larger than {limit:,} bytes"
                raise Failed(why, "invalid reply", again=False, charged=True)
        return b"".join(parts)

    def close(self) -> None:
        """End the call; the connection is kept only if the reply was read to the end. May be repeated."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._response is not None:
            response, self._response = self._response, None
            response.close()
