"""The edge to the ASGI server: its types, reading a body, noticing that a client left, refusing a request."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

from pandora_router.errors import PandoraError

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class Refused(PandoraError):
    """A request that is not served: status, message and code in the words of its client."""

    def __init__(
        self, status: int, message: str, code: str, headers: Mapping[str, str] | None = None
    ) -> None:
        self.status, self.message, self.code = status, message, code
        self.headers = dict(headers or {})
        super().__init__(message)


class Gone(Exception):
    """The client has left."""


async def read_body(receive: Receive, largest: int) -> bytes:
    """The whole body of a request; raises `Refused` (413) if it is too large, `Gone` if the client left.

    Of a body that is too large four times the limit is read and thrown away, since most clients read an
    answer only after they have sent everything.
    """
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
    if size > largest:
        raise Refused(413, f"The request is larger than {largest:,} bytes.", "request_too_large")
    return b"".join(parts) if len(parts) > 1 else parts[0]


async def watched(receive: Receive, work: Awaitable[None]) -> None:
    """Run `work` until it ends or the client leaves; raises `Gone` after cancelling it."""
    job = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_left(receive))
    try:
        await asyncio.wait({job, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if job.done():
            await job
            return
        raise Gone
    finally:
        leaving.cancel()
        if not job.done():
            job.cancel()
            await asyncio.gather(job, return_exceptions=True)


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
