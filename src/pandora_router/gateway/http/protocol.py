"""Limits on request headers and on clients that do not read, notice of a disconnect: uvicorn has none of it.

A connection on which the headers of a request are not complete after `patience` seconds, or exceed
`LARGEST_HEAD` bytes, is answered with status 408 or 431 and closed. `asgi.read_body` limits bodies. A request
can ask to be told when its client disconnects (`asgi.ON_DISCONNECT`), in place of a task that waits for it. A
client that reads nothing of its answer for `stall` seconds is disconnected: otherwise it could keep a stream
of a specialist, and the money that is reserved for it, for ever.

The header `Upgrade` is taken out, since no other protocol is served here: the parser would end the request
after its headers and read its body as another request (request smuggling). Where it cannot be taken out
because the headers arrived in pieces, the request is refused.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from pandora_router.transport.asgi import KEPT, ON_DISCONNECT

if TYPE_CHECKING:
    from pandora_router.gateway.http.app import Gateway

LARGEST_HEAD = 64 * 2**10
"""Most bytes of request line and headers together."""
_UPGRADE = re.compile(rb"\r\nupgrade:[^\r\n]*(?=\r\n)", re.IGNORECASE)


def settings(gateway: Gateway, **more: Any) -> uvicorn.Config:
    """The configuration of uvicorn for a gateway; `more` are further options of `uvicorn.Config`."""

    class Bounded(Arriving):
        patience = gateway.site.settings.patience

    return uvicorn.Config(
        gateway,
        http=Bounded,
        ws="none",
        log_config=None,
        log_level="warning",
        access_log=False,
        lifespan="off",
        proxy_headers=False,
        server_header=False,
        date_header=False,
        timeout_keep_alive=KEPT,
        **more,
    )


class Arriving(HttpToolsProtocol):
    """uvicorn's protocol with limits on the time and size of request headers."""

    patience: float = 60.0
    stall: float = 300.0
    _stalled: asyncio.TimerHandle | None = None
    _waiting: asyncio.TimerHandle | None = None
    _due = 0.0
    _head = 0
    _in_head = True
    _in_body = False
    _upgrading = False
    _left: Callable[[], None] | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the first request."""
        super().connection_made(transport)
        self._due = self.loop.time() + self.patience
        self._waiting = self.loop.call_at(self._due, self._check)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None
        if self._stalled is not None:
            self._stalled.cancel()
        super().connection_lost(exc)
        if self._left is not None:
            self._left()

    def pause_writing(self) -> None:
        """The client reads more slowly than it is written to: disconnect it unless it reads on in time."""
        super().pause_writing()
        self._stalled = self.loop.call_later(self.stall, self.transport.abort)

    def resume_writing(self) -> None:
        """The client has read."""
        if self._stalled is not None:
            self._stalled.cancel()
        super().resume_writing()

    def data_received(self, data: bytes) -> None:
        """Count the bytes of a head that is not complete, and take `Upgrade` out of it."""
        if self._in_head:
            self._head += len(data)
        if not self._in_body:
            head, blank, rest = data.partition(b"\r\n\r\n")
            data = _UPGRADE.sub(b"", head + blank[:2]) + blank[2:] + rest
        super().data_received(data)
        if self._in_head and self._head > LARGEST_HEAD and not self.transport.is_closing():
            self._refuse(b"431 Request Header Fields Too Large")

    def on_message_begin(self) -> None:
        """A request begins: its head has to be complete in time."""
        self._in_head, self._upgrading = True, False
        self._due = self.loop.time() + self.patience
        if self._waiting is None:
            self._waiting = self.loop.call_at(self._due, self._check)
        super().on_message_begin()
        self.scope["extensions"] = {ON_DISCONNECT: {"notify": self._notify}}

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header is complete."""
        self._upgrading = self._upgrading or name.lower() == b"upgrade"
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The head is complete."""
        self._in_head, self._in_body, self._head = False, True, 0
        if self._upgrading:
            self._refuse(b"400 Bad Request")
            return
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """The body is complete: another request may follow on this connection."""
        self._in_body = False
        super().on_message_complete()

    def _notify(self, left: Callable[[], None] | None) -> None:
        """Call `left` when the client disconnects, soon if it already has; None for nothing any more."""
        self._left = left
        if left is None:
            return
        if self.transport.is_closing():
            self.loop.call_soon(left)
        else:
            self.flow.resume_reading()  # a disconnect is only noticed while reading

    def _check(self) -> None:
        """Refuse a head that is late. One timer serves many requests: it is set anew only when it is due."""
        self._waiting = None
        if not self._in_head or self.transport.is_closing():
            return
        if self.loop.time() < self._due:
            self._waiting = self.loop.call_at(self._due, self._check)
        else:
            self._refuse(b"408 Request Timeout")

    def _refuse(self, status: bytes) -> None:
        self.transport.write(b"HTTP/1.1 " + status + b"\r\nconnection: close\r\ncontent-length: 0\r\n\r\n")
        self.transport.close()
