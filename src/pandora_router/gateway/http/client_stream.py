"""Responses to a client: keep-alives for silent streams, and errors after the headers were sent.

A stream that is silent for `ping` seconds gets a keep-alive, so that proxies and clients do not close it: a
comment, or on the Messages wire an event `ping`. Keep-alives are sent only between events, since every body
message of a stream has complete events. The first one may be sent before any content. It fixes status 200 and
the promised headers, but not the specialist: another one can still take over. After that an error, or an
answer without a stream, can only be sent as the events with which the wire ends a stream.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping

import orjson

from pandora_router.transport.asgi import Message, Refused, Reply, Send
from pandora_router.wires.events import framed, parsed
from pandora_router.wires.json_text import mapping
from pandora_router.wires.wire import Wire

Headers = list[tuple[bytes, bytes]]


class Sending:
    """Sends a response to one client. `ping`: seconds of silence after which a stream gets a keep-alive."""

    def __init__(self, send: Send, wire: Wire, ping: float) -> None:
        self.begun = False
        self.ended = False
        self.status: int | None = None
        self._send = send
        self._wire = wire
        self._silence = ping
        self._promised: Headers | None = None
        self._committed = False
        self._replaced = False
        self._busy = 0
        self._last = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._pinging: asyncio.Task[None] | None = None

    async def __call__(self, message: Message) -> None:
        """Send one ASGI message; headers are skipped if a keep-alive has already sent them."""
        if message["type"] == "http.response.start":
            self.begun = True
            self.status = self.status or message["status"]
            if self._committed:
                self._replaced = not _is_stream(message["headers"])
                return
        elif self._replaced:
            await self._fail(_said(message.get("body", b"")))
            return
        self._busy += 1
        try:
            await self._send(message)
        finally:
            self._busy -= 1
            self._last = asyncio.get_running_loop().time()
        self.ended = message["type"] == "http.response.body" and not message.get("more_body", False)

    def promise(self, headers: Headers) -> None:
        """Allow keep-alives from now on; one that is sent before the answer sends these `headers`."""
        self._promised = headers
        if self._timer is None and self._silence > 0:
            loop = asyncio.get_running_loop()
            self._last = loop.time()
            self._timer = loop.call_later(self._silence, self._tick)

    async def refuse(self, refused: Refused, more: Mapping[str, str]) -> None:
        """Send an error, if that is still possible."""
        if self._committed and not self.ended:
            await self._fail(refused.message)
        elif not self.begun:
            body = orjson.dumps(self._wire.error(refused.status, refused.message, refused.code))
            await Reply(body, refused.status, headers={**more, **refused.headers}).send(self)

    def close(self) -> None:
        """Send no more keep-alives."""
        self._silence = 0.0
        if self._timer is not None:
            self._timer.cancel()
        if self._pinging is not None:
            self._pinging.cancel()

    async def _fail(self, message: str) -> None:
        """End a stream whose headers were sent with the error events of its wire."""
        self._replaced, self._committed = False, False
        for name, event in self._wire.failure(message):
            await self({"type": "http.response.body", "body": framed(name, event), "more_body": True})
        await self({"type": "http.response.body", "body": b"", "more_body": False})

    def _tick(self) -> None:
        """Send a keep-alive if nothing was sent for `ping` seconds; otherwise set the timer again."""
        if self.ended or self._silence <= 0:
            return
        loop = asyncio.get_running_loop()
        silent = loop.time() - self._last
        if silent >= self._silence and not self._busy:
            self._pinging = loop.create_task(self._ping())
            silent = 0.0
        self._timer = loop.call_later(max(self._silence - silent, 0.05), self._tick)

    async def _ping(self) -> None:
        if not self.begun:
            self.begun = self._committed = True
            self.status = 200
            start = {"type": "http.response.start", "status": 200, "headers": self._promised}
            await self._send(start)
        with contextlib.suppress(OSError):  # the exchange notices a client that disconnected
            await self._send({"type": "http.response.body", "body": self._wire.ping, "more_body": True})
        self._last = asyncio.get_running_loop().time()


def _is_stream(headers: Headers) -> bool:
    return any(name == b"content-type" and kind.startswith(b"text/event-stream") for name, kind in headers)


def _said(body: bytes) -> str:
    """The message of a specialist's error, for a client that expects a stream."""
    error = mapping(mapping(parsed(body)).get("error"))
    return str(error.get("message") or "The specialist answered without a stream.")[:1000]
