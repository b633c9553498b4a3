"""One POST to an endpoint: opened, read at once or as a stream of events, closed. Uses aiohttp.

All waiting of a call ends at one deadline, `endpoint.timeout` seconds after it began: connecting, headers,
bodies, error bodies, each chunk. Redirects are refused, since they would send the key elsewhere. Replies are
requested without compression, and a compressed one is refused, so that size limits hold. No cookies are kept.
Error messages never repeat text from a server, except the status code and a short error code from which the
key has been removed.
"""

from __future__ import annotations

import asyncio
import json
import re
import weakref
from collections import deque
from collections.abc import AsyncGenerator, Mapping
from dataclasses import replace
from io import BytesIO
from typing import TYPE_CHECKING, Any

from pandora_router.transport.call_errors import Guard, library, wire_errors
from pandora_router.transport.endpoint import Endpoint
from pandora_router.transport.events import Event, EventParser
from pandora_router.transport.failures import Failed
from pandora_router.transport.retries import waited
from pandora_router.transport.secrets import Redaction
from pandora_router.transport.strict_json import parse

if TYPE_CHECKING:
    import aiohttp

AGAIN = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
"""Statuses after which the same call may succeed."""
DEAD = frozenset({401, 402, 403, 404, 405})
"""Statuses after which no call to this model with this key will succeed."""
BUSY = frozenset({429, 503, 529})
PROBE = 10.0  # seconds that `probe` may take
ERROR_SECONDS = 2.0
"""Seconds to wait for the body of an error; its status is usually enough."""
LARGE = 2**18
"""Larger bodies are parsed in a thread, so that the parser does not block the event loop."""
_CODE = re.compile(r"[A-Za-z0-9_.-]{1,60}")

_sessions: dict[asyncio.AbstractEventLoop, AsyncGenerator[aiohttp.ClientSession, None]] = {}
_open: dict[asyncio.AbstractEventLoop, aiohttp.ClientSession] = {}
_calls: weakref.WeakSet[HttpCall] = weakref.WeakSet()
"""Open calls, so that an event loop can close its own before it ends; afterwards nobody could."""


def encoded(body: Mapping[str, Any]) -> bytes:
    """A request body as bytes: JSON in UTF-8; unpaired surrogates become question marks."""
    return json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")


def sendable(body: bytes) -> bytes | BytesIO:
    """A body in the form that aiohttp sends best: a large one as a file, sent in parts between other work."""
    return body if len(body) <= LARGE else BytesIO(body)


class HttpCall:
    """One POST whose status and headers have arrived; the body has not been read yet.

    Created by `HttpCall.open`. Read the body with `json` or `events`, and always `close` the call: otherwise
    it keeps its connection, and the server continues to work.
    """

    def __init__(self, endpoint: Endpoint, path: str, deadline: float, redaction: Redaction) -> None:
        self.endpoint = endpoint
        self.url = endpoint.url(path)
        self.redaction = redaction
        self._deadline = deadline
        self._loop = asyncio.get_running_loop()
        self._response: aiohttp.ClientResponse | None = None
        _calls.add(self)

    def __repr__(self) -> str:
        return f"HttpCall({self.url!r})"

    @classmethod
    async def open(
        cls,
        endpoint: Endpoint,
        path: str,
        body: Mapping[str, Any] | None,
        *,
        accept: str = "application/json",
    ) -> HttpCall:
        """POST `body` (GET if it is None) and wait for status and headers; `accept` is the type requested.

        Raises `Failed` for every status but 2xx, and if the deadline passes or the connection breaks first.
        """
        key = endpoint.key()
        library()  # import it before the clock starts: that time is not the server's
        deadline = asyncio.get_running_loop().time() + endpoint.timeout
        call = cls(endpoint, path, deadline, Redaction(key))
        headers = {"Accept": accept, "Accept-Encoding": "identity"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        if key is not None:
            headers["Authorization"] = f"Bearer {key}"
        try:
            async with call.guarded():
                session = await session_of_loop()
                call._response = await session.request(
                    "GET" if body is None else "POST",
                    call.url,
                    data=None if body is None else sendable(encoded(body)),
                    headers=headers,
                    proxy=endpoint.proxy(),
                    allow_redirects=False,
                )
                await call._check()
        except BaseException:
            call.close()
            raise
        return call

    @property
    def streamed(self) -> bool:
        """Whether the reply is a stream of events."""
        return self._opened.content_type == "text/event-stream"

    async def json(self) -> dict[str, Any]:
        """The whole reply as a JSON object, with the key removed from it; raises `Failed`."""
        response = self._opened
        kind = response.content_type if "Content-Type" in response.headers else "application/json"
        if "json" not in kind:
            raise Failed(f"{self.url} did not answer with JSON", "content type", again=True, charged=True)
        async with self.guarded():
            raw = await self._read(self.endpoint.limits.body)
            if len(raw) <= LARGE:
                return self._parsed(raw)
            return await asyncio.to_thread(self._parsed, raw)

    def _parsed(self, raw: bytes) -> dict[str, Any]:
        cleaned: dict[str, Any] = self.redaction.tree(parse(raw, f"the reply of {self.url}"))
        return cleaned

    def events(self) -> EventStream:
        """The events of the reply; apply `redaction` to texts that are joined from several of them."""
        return EventStream(self, self.endpoint)

    async def chunk(self) -> bytes:
        """The next bytes of the body, empty at its end; raises `Failed`."""
        async with self.guarded():
            return await self._opened.content.readany()

    def close(self) -> None:
        """End the call, and its connection unless the reply was read to the end; may be called repeatedly."""
        _calls.discard(self)
        if self._response is not None:
            response, self._response = self._response, None
            response.close()

    @property
    def _opened(self) -> aiohttp.ClientResponse:
        if self._response is None:
            raise Failed(f"the call to {self.url} was closed", "cut", again=True, charged=True)
        return self._response

    async def _check(self) -> None:
        response = self._opened
        coding = response.headers.get("Content-Encoding", "identity").strip().lower()
        if coding not in {"", "identity"}:
            why = f"{self.url} answered with a compressed body, which was not asked for"
            raise Failed(why, "content type", again=False, charged=True)
        status = response.status
        if 200 <= status < 300:
            return
        code = await self._error_code()
        wait = waited(response.headers.get("Retry-After")) if status in AGAIN else None
        raise Failed(
            f"{self.url} did not answer: status {status}" + (f" ({code})" if code else ""),
            "status",
            status=status,
            again=status in AGAIN,
            busy=status in BUSY,
            dead=status in DEAD,
            wait=wait,
        )

    async def _error_code(self) -> str | None:
        """The short error code in the body of an error, or None; the rest of the body is not used."""
        left = self._deadline - asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout(min(ERROR_SECONDS, left / 2)):
                error = parse(await self._read(self.endpoint.limits.error), "the error")["error"]
            stated = error.get("code") or error.get("type")
        except (Failed, KeyError, AttributeError):
            return None
        except wire_errors():
            return None
        code = self.redaction.text(stated) if isinstance(stated, str) else ""
        return code if _CODE.fullmatch(code) else None

    async def _read(self, limit: int) -> bytes:
        """The whole body; raises `Failed` beyond `limit` bytes."""
        parts: list[bytes] = []
        size = 0
        while chunk := await self._opened.content.readany():
            parts.append(chunk)
            size += len(chunk)
            if size > limit:
                raise Failed(
                    f"the reply of {self.url} is too large", "invalid reply", again=False, charged=True
                )
        return b"".join(parts)

    def guarded(self) -> Guard:
        """A block in which connection errors and a missed deadline become `Failed`."""
        return Guard(self.url, self._deadline, self.endpoint.timeout)


class EventStream:
    """The events of a reply as they arrive; iteration can be interrupted and resumed.

    Raises `Failed` if the deadline passes, the connection breaks, or an event or the stream is too large.
    """

    def __init__(self, call: HttpCall, endpoint: Endpoint) -> None:
        self._call, self._left = call, endpoint.limits.stream
        self._parser = EventParser(endpoint.limits.event)
        self._ready: deque[Event] = deque()
        self._ended = False

    def __aiter__(self) -> EventStream:
        return self

    async def __anext__(self) -> Event:
        while not self._ready:
            if self._ended:
                raise StopAsyncIteration
            chunk = await self._call.chunk()
            self._left -= len(chunk)
            if self._left < 0:
                raise Failed("the stream is too large", "invalid reply", again=False, charged=True)
            self._ended = not chunk
            self._ready.extend(self._parser.feed(chunk) if chunk else self._parser.close())
        return self._ready.popleft()


async def session_of_loop() -> aiohttp.ClientSession:
    """The session of the running event loop.

    Created by its first call and closed when the loop shuts down.
    """
    loop = asyncio.get_running_loop()
    if loop not in _open:
        for closed in [other for other in _open if other.is_closed()]:
            del _open[closed], _sessions[closed]
        # A loop closes its asynchronous generators before it ends, which is how the session is closed.
        _sessions[loop] = _kept()
        _open[loop] = await anext(_sessions[loop])
    return _open[loop]


async def _kept() -> AsyncGenerator[aiohttp.ClientSession, None]:
    aiohttp = library()
    connector = aiohttp.TCPConnector(limit=0)  # `rate_limit` decides how many calls there are
    session = aiohttp.ClientSession(
        connector=connector,
        cookie_jar=aiohttp.DummyCookieJar(),
        headers={"User-Agent": "pandora-router"},
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=None),
        auto_decompress=False,
        read_bufsize=2**16,
    )
    loop = asyncio.get_running_loop()
    try:
        yield session
    finally:
        for call in [call for call in _calls if call._loop is loop]:
            call.close()
        await session.close()
        _open.pop(loop, None)
        _sessions.pop(loop, None)


async def close() -> None:
    """Close the session of the running event loop now, for servers that end before their loop does."""
    session = _sessions.get(asyncio.get_running_loop())
    if session is not None:
        await session.aclose()


async def post(endpoint: Endpoint, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON object in the reply to one POST; raises `Failed`."""
    call = await HttpCall.open(endpoint, path, body)
    try:
        return await call.json()
    finally:
        call.close()


async def probe(endpoint: Endpoint) -> None:
    """Request the list of models, which is free, to check address and key.

    One try, at most `PROBE` seconds. Raises `Failed` if no HTTP server answers or if it refuses the key
    (401, 403). Any other status is accepted: there is a server, even if it does not list its models.
    """
    try:
        call = await HttpCall.open(replace(endpoint, timeout=min(PROBE, endpoint.timeout)), "models", None)
    except Failed as error:
        if error.failure == "status" and error.status not in {401, 403}:
            return
        raise
    call.close()
