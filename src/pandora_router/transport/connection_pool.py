"""Opens the connections of `relay` and keeps them for the next call to the same origin.

Connections belong to one event loop, and are closed before it ends.
"""

from __future__ import annotations

import asyncio
import functools
import socket
import ssl
import urllib.parse
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from typing import Any

from pandora_router.transport.connections import Connection, Unreachable

KEPT = 15.0
"""Seconds for which a connection without a call is kept."""
NEXT_ADDRESS = 0.25
"""Seconds after which another address of a host is tried at the same time (RFC 8305)."""
_OURS = frozenset({"content-length", "transfer-encoding", "connection"})
_SAFE = "/:@!$&'()*+,;=~%"


@dataclass(frozen=True)
class Target:
    """A URL as a connection needs it: where to connect, and the first line and Host header of a request."""

    host: str
    port: int
    tls: bool
    line: str
    named: str

    @property
    def origin(self) -> tuple[str, int, bool]:
        """What connections can be shared by."""
        return self.host, self.port, self.tls


@functools.lru_cache(1024)
def target_of(url: str) -> Target:
    """The target of a POST to `url`; raises `ValueError` if it is not an http or https URL."""
    parts = urllib.parse.urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("not an http or https URL")
    host = parts.hostname
    if not host.isascii():
        host = host.encode("idna").decode()
    tls = parts.scheme == "https"
    path = urllib.parse.quote(parts.path or "/", safe=_SAFE)
    query = f"?{urllib.parse.quote(parts.query, safe=_SAFE + '?')}" if parts.query else ""
    shown = f"[{host}]" if ":" in host else host
    named = shown if parts.port is None else f"{shown}:{parts.port}"
    return Target(host, parts.port or (443 if tls else 80), tls, f"POST {path}{query} HTTP/1.1", named)


def head_of(target: Target, headers: Mapping[str, str], length: int) -> bytes:
    """The head of a POST of `length` bytes; raises `ValueError` if a header would break it."""
    given = {name.lower() for name in headers}
    usual = {"host": target.named, "user-agent": "pandora-router", "accept": "*/*"}
    lines = [target.line, *(f"{name}: {value}" for name, value in usual.items() if name not in given)]
    lines += [f"{name}: {value}" for name, value in headers.items() if name.lower() not in _OURS]
    lines.append(f"content-length: {length}")
    head = "\r\n".join(lines)
    if not head.count("\r") == head.count("\n") == len(lines) - 1 or "\0" in head:
        raise ValueError("a header with a line break")
    return head.encode() + b"\r\n\r\n"


class ConnectionPool:
    """The connections of one event loop."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.opened: set[Connection] = set()
        self._idle: dict[tuple[str, int, bool], list[Connection]] = {}
        self._sweep: asyncio.TimerHandle | None = None

    def idle(self, target: Target) -> Connection | None:
        """A kept connection to the origin of `target`, the one used last; None if there is none."""
        kept = self._idle.get(target.origin)
        while kept:
            connection = kept.pop()
            if connection.usable and self.loop.time() - connection.since < KEPT:
                return connection
            connection.abort()
        return None

    async def connect(self, target: Target) -> Connection:
        """Open a connection; raises `Unreachable`."""
        try:
            kinds = {"family": socket.AF_UNSPEC, "type": socket.SOCK_STREAM}
            found = await self.loop.getaddrinfo(target.host, target.port, **kinds)
            connected = await _started(found, self.loop)
            try:
                return await self._opened(connected, target)
            except BaseException:
                connected.close()
                raise
        except (OSError, ssl.CertificateError) as error:
            raise Unreachable(type(error).__name__) from error

    async def _opened(self, connected: socket.socket, target: Target) -> Connection:
        secure: dict[str, Any] = {"ssl": _context(), "server_hostname": target.host} if target.tls else {}
        connection = Connection(self, target.origin)
        try:
            await self.loop.create_connection(lambda: connection, sock=connected, **secure)
        except BaseException:  # uvloop closes such a connection without a word to its protocol
            self.opened.discard(connection)
            raise
        return connection

    def keep(self, connection: Connection) -> None:
        """Keep a connection for the next call."""
        connection.since = self.loop.time()
        self._idle.setdefault(connection.origin, []).append(connection)
        if self._sweep is None:
            self._sweep = self.loop.call_later(KEPT, self._close_old)

    def forget(self, connection: Connection) -> None:
        """A connection has ended."""
        self.opened.discard(connection)
        kept = self._idle.get(connection.origin)
        if kept is not None and connection in kept:
            kept.remove(connection)

    def _close_old(self) -> None:
        self._sweep = None
        now = self.loop.time()
        for origin, kept in list(self._idle.items()):
            for connection in [old for old in kept if now - old.since >= KEPT]:
                kept.remove(connection)
                connection.abort()
            if not kept:
                del self._idle[origin]
        if self._idle:
            self._sweep = self.loop.call_later(KEPT, self._close_old)

    async def close(self) -> None:
        """Close all connections, with calls or without."""
        if self._sweep is not None:
            self._sweep.cancel()
        while self.opened:
            for connection in self.opened:
                connection.abort()
            await asyncio.sleep(0)


_pools: dict[asyncio.AbstractEventLoop, ConnectionPool] = {}
_closing: dict[asyncio.AbstractEventLoop, AsyncGenerator[ConnectionPool, None]] = {}


async def pool_of_loop() -> ConnectionPool:
    """The connections of the running event loop; they are closed when it shuts down."""
    loop = asyncio.get_running_loop()
    pool = _pools.get(loop)
    if pool is None:
        for closed in [other for other in _pools if other.is_closed()]:
            del _pools[closed], _closing[closed]
        # A loop closes its asynchronous generators before it ends, which is how the pool is closed.
        _closing[loop] = _kept()
        _pools[loop] = pool = await anext(_closing[loop])
    return pool


async def _kept() -> AsyncGenerator[ConnectionPool, None]:
    pool = ConnectionPool()
    try:
        yield pool
    finally:
        await pool.close()
        _pools.pop(pool.loop, None)
        _closing.pop(pool.loop, None)


async def _started(found: list[Any], loop: asyncio.AbstractEventLoop) -> socket.socket:
    """A socket that is connected to the first of these addresses that answers."""
    from aiohappyeyeballs import start_connection

    return await start_connection(found, happy_eyeballs_delay=NEXT_ADDRESS, interleave=1, loop=loop)


@functools.cache
def _context() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context
