"""Parts of ASGI applications: types, reading a body, whole replies, refusals, noticing a disconnect."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

from pandora_router.errors import PandoraError

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]
PATIENCE = 60.0
"""Seconds in which the body of a request must arrive."""


@dataclass(frozen=True)
class Reply:
    """A complete HTTP response; `kind` is its content type."""

    body: bytes
    status: int = 200
    kind: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)

    async def send(self, send: Send, *, head: bool = False) -> None:
        """Send it to the client; with `head`, everything but the body."""
        named = {"content-type": self.kind, "content-length": str(len(self.body)), **self.headers}
        pairs = [(name.encode(), value.encode("latin-1", "replace")) for name, value in named.items()]
        await send({"type": "http.response.start", "status": self.status, "headers": pairs})
        await send({"type": "http.response.body", "body": b"" if head else self.body, "more_body": False})


def frames_of(error: Exception) -> str:
    """Files and lines of a traceback, without the text of the error, which may repeat parts of a request."""
    frames = []
    trace = error.__traceback__
    while trace is not None:
        frames.append(f"{trace.tb_frame.f_code.co_filename.rsplit('/', 1)[-1]}:{trace.tb_lineno}")
        trace = trace.tb_next
    return " < ".join(reversed(frames))


class Refused(PandoraError):
    """A request that is refused, with HTTP status, message for the client, error code and headers."""

    def __init__(
        self, status: int, message: str, code: str, headers: Mapping[str, str] | None = None
    ) -> None:
        self.status, self.message, self.code = status, message, code
        self.headers = dict(headers or {})
        super().__init__(message)


class Gone(Exception):
    """The client has disconnected."""


def bearer(header: str) -> str:
    """The token in the value of a header `Authorization`; the word before it may be written in any case.

    >>> bearer("Bearer pk-1"), bearer("bearer  pk-1"), bearer("pk-1"), bearer("")
    ('pk-1', 'pk-1', 'pk-1', '')
    """
    scheme, _, token = header.strip().partition(" ")
    return token.strip() if scheme.lower() == "bearer" else header.strip()


async def read_body(receive: Receive, largest: int, patience: float = PATIENCE) -> bytes:
    """The whole body of a request, which must arrive within `patience` seconds.

    Raises `Refused` (413 or 408) if it has more than `largest` bytes or is late, `Gone` if the client
    disconnected.

    Of a body that is too large up to four times the limit is read and discarded, because most clients read
    the response only after they have sent everything.
    """
    try:
        async with asyncio.timeout(patience):
            return await _whole_body(receive, largest)
    except TimeoutError:
        late = f"The body of the request did not arrive within {patience:g} seconds."
        raise Refused(408, late, "request_timeout", {"connection": "close"}) from None


async def _whole_body(receive: Receive, largest: int) -> bytes:
    parts: list[bytes] = []
    size, more = 0, True
    while more and size <= 4 * largest:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Gone
        part = message.get("body", b"")
        size += len(part)
        if size <= largest:
            parts.append(part)
        more = message.get("more_body", False)
    return b"".join(parts) if size <= largest else _too_large(largest)


def _too_large(largest: int) -> NoReturn:
    raise Refused(413, f"The request is larger than {largest:,} bytes.", "request_too_large")


OnDisconnect = Callable[[Callable[[], None] | None], None]
"""Registers what is called when the client disconnects, or nothing with None; given by a server."""
ON_DISCONNECT = "pandora.on_disconnect"
"""Name of an extension in an ASGI scope; its member `notify` is an `OnDisconnect`."""


async def watched(receive: Receive, work: Awaitable[None], notify: OnDisconnect | None = None) -> None:
    """Run `work` until it ends or the client disconnects; then cancels it and raises `Gone`.

    `notify` is the server's own notice of a disconnect; without one, a task waits for it in `receive`.
    """
    task = asyncio.current_task()
    assert task is not None
    over = gone = False

    def left() -> None:
        nonlocal gone
        if not over and not gone:
            gone = True
            task.cancel()

    leaving = None
    if notify is not None:
        notify(left)
    else:
        leaving = asyncio.ensure_future(_left(receive))
        leaving.add_done_callback(lambda done: None if done.cancelled() else left())
    try:
        await work
    except BaseException:
        if gone:
            task.uncancel()
            raise Gone from None
        raise
    finally:
        over = True
        if notify is not None:
            notify(None)
        if leaving is not None:
            leaving.cancel()


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
