"""Opens connections, through a proxy if asked to, and keeps them for the next call to the same origin.

Connections belong to one event loop, and are closed before it ends. Through a proxy, a request to an http://
address names the whole address and the proxy passes it on; for an https:// address the proxy is asked for a
tunnel (CONNECT), in which TLS ends at the server, so that the proxy does not see what is sent.
"""

from __future__ import annotations

import asyncio
import base64
import functools
import socket
import ssl
import urllib.parse
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pandora_router.transport.connections import Connection, Garbled, Unreachable

KEPT = 15.0
"""Seconds for which a connection without a call is kept."""
NEXT_ADDRESS = 0.25
"""Seconds after which another address of a host is tried at the same time (RFC 8305)."""
_OURS = frozenset({"content-length", "transfer-encoding", "connection"})
_SAFE = "/:@!$&'()*+,;=~%"


@dataclass(frozen=True)
class HostPort:
    """Where a connection ends: at a server or at a proxy."""

    host: str
    port: int
    tls: bool


@dataclass(frozen=True)
class Target:
    """A URL as a connection needs it.

    server: whom the request is for. where, named: what its first line and its Host header say.
    origin: what connections can be shared by.
    proxy: the proxy on the way, or None; `credentials` is its Proxy-Authorization header, or None.
    """

    server: HostPort
    where: str
    named: str
    origin: str = field(repr=False)
    proxy: HostPort | None = None
    credentials: str | None = field(default=None, repr=False)


@functools.lru_cache(1024)
def target_of(url: str, proxy: str | None = None) -> Target:
    """The target of a request to `url`, through the proxy with the address `proxy` if there is one.

    Raises `ValueError` unless both are http or https URLs; a proxy without a scheme is an http one.
    """
    address, parts = _host_port(url)
    path = urllib.parse.quote(parts.path or "/", safe=_SAFE)
    query = f"?{urllib.parse.quote(parts.query, safe=_SAFE + '?')}" if parts.query else ""
    shown = f"[{address.host}]" if ":" in address.host else address.host
    named = shown if parts.port is None else f"{shown}:{parts.port}"
    origin = f"{parts.scheme} {address.host} {address.port} {proxy or ''}"
    if proxy is None:
        return Target(address, path + query, named, origin)
    through, parts = _host_port(proxy if "://" in proxy else f"http://{proxy}")
    credentials = None
    if parts.username is not None:
        stated = f"{parts.username}:{parts.password or ''}"
        credentials = f"Basic {base64.b64encode(urllib.parse.unquote_to_bytes(stated)).decode()}"
    where = path + query if address.tls else f"http://{named}{path}{query}"
    return Target(address, where, named, origin, through, credentials)


def _host_port(url: str) -> tuple[HostPort, urllib.parse.SplitResult]:
    parts = urllib.parse.urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("not an http or https URL")
    host = parts.hostname
    if not host.isascii():
        host = host.encode("idna").decode()
    tls = parts.scheme == "https"
    return HostPort(host, parts.port or (443 if tls else 80), tls), parts


def head_of(target: Target, headers: Mapping[str, str], body: bytes | None, method: str = "") -> bytes:
    """The head of a POST of `body`, of a GET if that is None, or of `method`.

    Raises `ValueError` if a header would break it.
    """
    given = {name.lower() for name in headers}
    usual = {"host": target.named, "user-agent": "pandora-router", "accept": "*/*"}
    if target.credentials is not None and not target.server.tls:
        usual["proxy-authorization"] = target.credentials
    verb = method or ("GET" if body is None else "POST")
    lines = [f"{verb} {target.where} HTTP/1.1"]
    lines += [f"{name}: {value}" for name, value in usual.items() if name not in given]
    lines += [f"{name}: {value}" for name, value in headers.items() if name.lower() not in _OURS]
    if body is not None:
        lines.append(f"content-length: {len(body)}")
    head = "\r\n".join(lines)
    if not head.count("\r") == head.count("\n") == len(lines) - 1 or "\0" in head:
        raise ValueError("a header with a line break")
    return head.encode() + b"\r\n\r\n"


class ConnectionPool:
    """The connections of one event loop."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.opened: set[Connection] = set()
        self._idle: dict[str, list[Connection]] = {}
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
        first = target.proxy or target.server
        try:
            kinds = {"family": socket.AF_UNSPEC, "type": socket.SOCK_STREAM}
            found = await self.loop.getaddrinfo(first.host, first.port, **kinds)
            connected = await _started(found, self.loop)
            try:
                connection = await self._opened(connected, first, target)
            except BaseException:
                connected.close()
                raise
            if target.proxy is not None and target.server.tls:
                return await self._tunnelled(connection, target)
        except Unreachable:
            raise
        except (OSError, ssl.CertificateError, Garbled) as error:
            raise Unreachable(type(error).__name__) from error
        return connection

    async def _opened(self, connected: socket.socket, address: HostPort, target: Target) -> Connection:
        secure: dict[str, Any] = {"ssl": _context(), "server_hostname": address.host} if address.tls else {}
        connection = Connection(self, target.origin)
        try:
            await self.loop.create_connection(lambda: connection, sock=connected, **secure)
        except BaseException:  # uvloop closes such a connection without a word to its protocol
            self.opened.discard(connection)
            raise
        return connection

    async def _tunnelled(self, outer: Connection, target: Target) -> Connection:
        """A TLS connection to the server inside `outer`, a connection to the proxy."""
        host = f"[{target.server.host}]" if ":" in target.server.host else target.server.host
        lines = [f"CONNECT {host}:{target.server.port} HTTP/1.1", f"host: {host}:{target.server.port}"]
        if target.credentials is not None:
            lines.append(f"proxy-authorization: {target.credentials}")
        reply = outer.send("\r\n".join(lines).encode() + b"\r\n\r\n", b"")
        try:
            await reply.begun()
            if not 200 <= reply.status < 300:
                raise Unreachable(f"its proxy answered with status {reply.status}")
        except BaseException:
            outer.abort()
            raise
        inner = Connection(self, target.origin)
        transport = await self.loop.start_tls(
            outer.hand_over(), inner, _context(), server_hostname=target.server.host
        )
        assert transport is not None
        inner.connection_made(transport)
        return inner

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
