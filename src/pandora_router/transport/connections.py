"""HTTP/1.1 connections, for every call of this package.

A general client prepares every call for redirects, cookies, compression, form data and tracing, none of which
is used here; that was a third of the processor time of a request to the gateway. Here a call is one request
with a body that is known whole. The reply is parsed by httptools, the parser that also reads requests to the
gateway. Reading stops while more than `AHEAD` bytes wait to be taken, so a slow reader does not fill the
memory. `connection_pool` opens connections and keeps them for the next call.
"""

from __future__ import annotations

import asyncio
import functools
from collections import deque
from types import ModuleType
from typing import TYPE_CHECKING, Any

from pandora_router.errors import missing_package

if TYPE_CHECKING:
    from pandora_router.transport.connection_pool import ConnectionPool

AHEAD = 2**16
"""Bytes of a reply that may wait to be taken before reading stops."""
LARGEST_HEAD = 2**16
"""Most bytes of the status line and headers of a reply."""
LARGEST_STATUS = 599
"""The largest status that HTTP has; another one could not be passed on to a client."""
PIECE = 2**16
"""A larger body is sent in pieces of this many bytes, each after the one before has left."""


class Garbled(ValueError):
    """The reply is not valid HTTP."""


class Unreachable(OSError):
    """No connection to the server could be opened, so nothing was sent to it; the message says why."""


class Broken(OSError):
    """The connection ended before the reply did; `begun` says whether its headers had arrived."""

    def __init__(self, *, begun: bool) -> None:
        self.begun = begun
        super().__init__("the connection ended")


class HttpReply:
    """The reply to one request, as it arrives; `status` and `headers` (names in lower case) after `begun`."""

    def __init__(self, connection: Connection) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.ended = False
        self._connection: Connection | None = connection
        self._loop = connection.loop
        self._parts: deque[bytes] = deque()
        self._size = 0
        self._error: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None

    async def begun(self) -> None:
        """Wait for status and headers; raises `Broken`, `Garbled` or the error given to `fail`."""
        while not self.status:
            await self._change()

    async def readany(self) -> bytes:
        """All bytes of the body that have arrived, at least one; b"" at its end. Raises like `begun`."""
        while not self._parts:
            if self.ended:
                return b""
            await self._change()
        chunk = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        self._parts.clear()
        self._size = 0
        if self._connection is not None and self._connection.paused:
            self._connection.resume_reading()
        return chunk

    @property
    def broken(self) -> bool:
        """Whether the rest of the reply is known not to arrive."""
        return self._error is not None

    def fail(self, error: Exception) -> None:
        """End the reply with an error, which is raised once what arrived before has been taken."""
        if not self.ended and self._error is None:
            self._error = error
            self.wake()

    def close(self) -> None:
        """Give the connection back if the reply has ended, else close it; may be repeated."""
        if self._connection is not None:
            connection, self._connection = self._connection, None
            connection.release()

    def begin(self, status: int, headers: dict[str, str]) -> None:
        """Status and headers have arrived."""
        self.status, self.headers = status, headers
        self.wake()

    def feed(self, part: bytes) -> int:
        """Bytes of the body have arrived; returns how many wait to be taken."""
        self._parts.append(part)
        self._size += len(part)
        self.wake()
        return self._size

    def end(self) -> None:
        """The whole body has arrived."""
        self.ended = True
        self.wake()

    def wake(self) -> None:
        """Continue the coroutine that waits for a change."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def _change(self) -> None:
        if self._error is not None:
            raise self._error
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    async def until(self, connection: Connection) -> bool:
        """Wait until more can be written; false if the reply has begun, so that sending can stop."""
        while connection.full and not self.status:
            await self._change()
        return not self.status


class Connection(asyncio.Protocol):
    """One connection, for one call at a time. httptools calls the methods `on_...` while it parses.

    silent: whether it ended during a call, before a single byte of the reply had come.
    """

    def __init__(self, pool: ConnectionPool, origin: str) -> None:
        self.loop = pool.loop
        self.full = False
        self.paused = False
        self.silent = False
        self.since = 0.0
        self.origin = origin
        self._pool = pool
        self._transport: asyncio.Transport | None = None
        self._parser: Any = library().HttpResponseParser(self)
        self._reply: HttpReply | None = None
        self._headers: dict[str, str] = {}
        self._head = 0
        self._usable = True
        self._to_the_end = False

    @property
    def usable(self) -> bool:
        """Whether another call can be made on this connection."""
        return self._usable and self._transport is not None and not self._transport.is_closing()

    def send(self, head: bytes, body: bytes) -> HttpReply:
        """Begin to send a request; `finish` sends what is left of a large one."""
        assert self._transport is not None
        self._reply, self._head, self._to_the_end = HttpReply(self), 0, False
        self._transport.write(head + body[:PIECE])
        return self._reply

    async def finish(self, reply: HttpReply, body: bytes) -> None:
        """Send the rest of `body`, unless the reply begins before: then the connection is not used again."""
        assert self._transport is not None
        for start in range(PIECE, len(body), PIECE):
            if not await reply.until(self):
                self._usable = False
                return
            self._transport.write(body[start : start + PIECE])

    def release(self) -> None:
        """The call is over: keep the connection if it can be used again, else close it."""
        reply, self._reply = self._reply, None
        assert self._transport is not None
        if reply is not None and reply.ended and self.usable and not self.paused:
            self._pool.keep(self)
        else:
            self._transport.abort()

    def resume_reading(self) -> None:
        """Read on after the reply's bytes were taken."""
        assert self._transport is not None
        self.paused = False
        if not self._transport.is_closing():
            self._transport.resume_reading()

    def hand_over(self) -> asyncio.Transport:
        """Give up the bytes below this connection, for a TLS connection inside a proxy's tunnel."""
        assert self._transport is not None
        transport, self._transport, self._reply = self._transport, None, None
        self._pool.forget(self)
        return transport

    def abort(self) -> None:
        """Close the connection at once."""
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """The connection is open."""
        self._transport = transport
        self._pool.opened.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection has ended: so has a reply without a length; any other is broken."""
        self._usable = False
        self._pool.forget(self)
        reply = self._reply
        if reply is not None and not reply.ended:
            if self._to_the_end and exc is None:
                reply.end()
            else:
                self.silent = self._head == 0
                reply.fail(Broken(begun=bool(reply.status)))

    def pause_writing(self) -> None:
        """The peer reads more slowly than we write."""
        self.full = True

    def resume_writing(self) -> None:
        """More can be written."""
        self.full = False
        if self._reply is not None:
            self._reply.wake()

    def data_received(self, data: bytes) -> None:
        """Parse what arrived; bytes that belong to no call end the connection."""
        reply = self._reply
        if reply is None or reply.ended:
            self._usable = False
            self.abort()
            return
        if not reply.status:
            self._head += len(data)
        try:
            self._parser.feed_data(data)
        except (library().HttpParserError, library().HttpParserUpgrade):
            self._refuse(reply)
            return
        if not reply.status and self._head > LARGEST_HEAD:
            self._refuse(reply)

    def _refuse(self, reply: HttpReply) -> None:
        self._usable = False
        reply.fail(Garbled("the reply is not HTTP"))
        self.abort()

    def on_message_begin(self) -> None:
        """A reply begins; bytes after the end of the only one make the connection unusable."""
        self._headers = {}
        self._usable = self._usable and self._reply is not None and not self._reply.ended

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header is complete; trailers, after the body of a reply, are ignored."""
        if self._reply is not None and not self._reply.status:
            self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        """The headers are complete; those of an interim reply (status 1xx) are ignored."""
        status = self._parser.get_status_code()
        if status > LARGEST_STATUS and self._reply is not None:
            self._refuse(self._reply)
            return
        if self._reply is not None and not self._reply.ended and status >= 200:
            sized = "content-length" in self._headers or "transfer-encoding" in self._headers
            self._to_the_end = not sized and status not in (204, 304)
            self._reply.begin(status, self._headers)

    def on_body(self, part: bytes) -> None:
        """Bytes of the body, without the marks of chunked encoding."""
        if self._reply is None or self._reply.ended or self._transport is None:
            return
        if self._reply.feed(part) > AHEAD and not self.paused and not self._transport.is_closing():
            self.paused = True
            self._transport.pause_reading()

    def on_message_complete(self) -> None:
        """The reply is complete, unless it was an interim one."""
        if self._reply is not None and self._reply.status and not self._reply.ended:
            self._usable = self._usable and self._parser.should_keep_alive()
            self._reply.end()


@functools.cache
def library() -> ModuleType:
    """httptools, imported on first use; `UsageError` if it is not installed."""
    try:
        import httptools
    except ImportError:
        raise missing_package("a call to an endpoint", "httptools", "http") from None
    return httptools
