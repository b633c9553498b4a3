"""A call whose reply is passed on unchanged, for the gateway; `client.HttpCall` reads its replies from one.

Nothing is parsed or redacted, and no status raises an exception: the caller decides what a status means and
forwards the body. Long streams are normal here, so `timeout` limits each wait (for the headers, for the next
bytes) and `longest` the whole call.

A server may close a connection that was kept while the next call is on its way to it. Such a call is made
once more, on a new connection (`STALE`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from typing import Protocol, TypeVar

from pandora_router.transport.connection_pool import head_of, pool_of_loop, target_of
from pandora_router.transport.connections import PIECE, Broken, Connection, HttpReply, Unreachable
from pandora_router.transport.failures import Failed

T = TypeVar("T")
LONGEST = 3600.0
"""Seconds after which a call is ended even if bytes still arrive."""
STALE = 2.0
"""Seconds within which the end of a kept connection, without a byte of a reply, means that the server had
closed it before the call arrived. A server that ends it later may have worked on the call, and charge for it.
"""


class _Late(Exception):
    """The next bytes did not arrive in time."""


class Incoming(Protocol):
    """A reply whose status and headers have arrived: a `Relay`, or an answer that needs no connection."""

    status: int

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers of the reply."""
        ...

    @property
    def broken(self) -> bool:
        """Whether the connection ended before the whole body had arrived."""
        ...

    async def chunk(self) -> bytes:
        """The next bytes, b"" at the end."""
        ...

    async def read(self, limit: int) -> bytes:
        """The whole body; raises `Failed` if it has more than `limit` bytes."""
        ...

    def close(self) -> None:
        """Close the connection."""
        ...


class Relay:
    """One call whose status and headers have arrived. Created by `Relay.open`; must always be closed."""

    def __init__(self, url: str, reply: HttpReply, end: float, timeout: float) -> None:
        self.url = url
        self.status = reply.status
        self.headers: Mapping[str, str] = reply.headers
        self._reply: HttpReply | None = reply
        self._end = end
        self._timeout = timeout
        self._loop = asyncio.get_running_loop()
        self._due: float | None = None
        self._timer: asyncio.TimerHandle | None = None

    @classmethod
    async def open(
        cls,
        url: str,
        body: bytes | None,
        headers: Mapping[str, str],
        timeout: float,
        proxy: str | None = None,
        longest: float = LONGEST,
        method: str = "",
    ) -> Relay:
        """POST `body` (GET if it is None, or `method`) and wait for the headers, at most `timeout` seconds.

        The whole call ends `longest` seconds after its begin. Header names of the reply are in lower case.
        Raises `Failed` if there is no HTTP response, or a compressed one: nothing is decompressed here, and
        the client did not ask for it. Redirects are not followed and are not an error here.
        """
        now = asyncio.get_running_loop().time()
        try:
            target = target_of(url, proxy)
            head = head_of(target, headers, body, method)
        except ValueError:  # its text may hold a key or the proxy's password
            why = f"{url} was not called: its address, its proxy or a header is not valid"
            raise Failed(why, "connection", again=False) from None
        call = (url, head, body or b"", now, timeout, now + longest)
        pool = await pool_of_loop()
        kept = pool.idle(target)
        if kept is not None:
            try:
                return await cls._sent(kept, *call)
            except Failed:
                if not kept.silent or pool.loop.time() - now > STALE:
                    raise
        try:
            async with asyncio.timeout_at(now + timeout):
                connection = await pool.connect(target)
        except TimeoutError:
            why = f"{url} could not be reached within {timeout:g} s"
            raise Failed(why, "timeout", again=True) from None
        except Unreachable as error:
            raise Failed(f"{url} could not be reached ({error})", "connection", again=True) from None
        return await cls._sent(connection, *call)

    @classmethod
    async def _sent(
        cls,
        connection: Connection,
        url: str,
        head: bytes,
        body: bytes,
        begun: float,
        timeout: float,
        end: float,
    ) -> Relay:
        """Send a request and wait for status and headers; raises `Failed`."""
        reply = connection.send(head, body)
        relay = cls(url, reply, end, timeout)
        try:
            await relay._within(begun + timeout, _begun(connection, reply, body))
        except BaseException:
            relay.close()
            raise
        relay.status, relay.headers = reply.status, reply.headers
        return relay._checked()

    def _checked(self) -> Relay:
        """The relay itself; closes it and raises `Failed` if the reply is compressed."""
        if self.headers.get("content-encoding", "").strip().lower() not in ("", "identity"):
            self.close()
            why = f"{self.url} compressed its reply, although it was asked not to"
            raise Failed(why, "invalid reply", again=False, charged=True)
        return self

    @property
    def broken(self) -> bool:
        """Whether the connection is known to have ended before the reply, without reading."""
        return self._reply is None or self._reply.broken

    async def chunk(self) -> bytes:
        """The next bytes as they arrived, b"" at the end; raises `Failed` if they are late or it breaks."""
        if self._reply is None:
            return b""
        return await self._within(self._loop.time() + self._timeout, self._reply.readany())

    async def _within(self, due: float, arriving: Awaitable[T]) -> T:
        """Wait for the reply until `due`; raises `Failed` if it is late or the connection breaks."""
        self._due = min(due, self._end)
        if self._timer is None:
            self._timer = self._loop.call_at(self._due, self._check)
        try:
            return await arriving
        except _Late:
            why = f"{self.url} did not answer within {self._timeout:g} s"
            raise Failed(why, "timeout", again=True, charged=True) from None
        except (OSError, ValueError) as error:
            raise _broken(self.url, error) from None
        finally:
            self._due = None

    def _check(self) -> None:
        """Wake a reader that has waited too long; one timer serves many reads, set anew only when due."""
        self._timer = None
        if self._due is None or self._reply is None:
            return
        if self._loop.time() < self._due:
            self._timer = self._loop.call_at(self._due, self._check)
        else:
            self._reply.fail(_Late())

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
        if self._reply is not None:
            reply, self._reply = self._reply, None
            reply.close()


async def _begun(connection: Connection, reply: HttpReply, body: bytes) -> None:
    """Send what is left of `body` and wait for the head of the reply."""
    if len(body) > PIECE:
        await connection.finish(reply, body)
    await reply.begun()


def _broken(url: str, error: Exception) -> Failed:
    """What went wrong on the wire, in our own words."""
    if isinstance(error, Broken) and error.begun:
        return Failed(f"the reply of {url} was cut off", "cut", again=True, charged=True)
    name = type(error).__name__
    if isinstance(error, ValueError):
        return Failed(f"{url} did not answer in HTTP ({name})", "invalid reply", again=True, charged=True)
    return Failed(f"the connection to {url} broke ({name})", "connection", again=True, charged=True)
