"""One call to an endpoint: opened, read at once or as a stream of events, closed.

All waiting of a call ends at one deadline, `endpoint.timeout` seconds after it began: connecting, headers,
bodies, error bodies, each chunk. Redirects are refused, since they would send the key elsewhere. Replies are
requested without compression, and a compressed one is refused, so that size limits hold. No cookies are kept.
Error messages never repeat text from a server, except the status code and a short error code from which the
key has been removed.

Replies are parsed with limited depth and limited numbers: the standard parser recurses once per level and
converts integers of any length, so a reply of a few kilobytes could exhaust the stack or take minutes. Both
are refused in advance, as one kind of failure.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from itertools import accumulate
from typing import Any

from pandora_router.transport.endpoint import Endpoint, Redaction
from pandora_router.transport.failures import Failed, waited
from pandora_router.transport.relay import Relay
from pandora_router.wires.events import EventTooLarge, Frames, data_of

DEEPEST = 64
MOST_DIGITS = 40
_ESCAPED = re.compile(rb"\\.", re.DOTALL)
_QUOTED = re.compile(rb'"[^"]*"?')
_OTHER = bytes(set(range(256)) - set(b'[]{}"'))
_STEP = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}


def too_deep(raw: bytes, deepest: int = DEEPEST) -> bool:
    """Whether arrays and objects in the JSON text `raw` are nested deeper than `deepest`.

    Brackets inside strings do not count.

    >>> too_deep(b'{"a": [1, "[[["]}', 2), too_deep(b'{"a": [[1]]}', 2)
    (False, True)
    """
    if raw.count(b"[") + raw.count(b"{") <= deepest:
        return False
    plain = _ESCAPED.sub(b"", raw) if b"\\" in raw else raw
    brackets = _QUOTED.sub(b"", plain.translate(None, _OTHER))
    return max(accumulate(_STEP[bracket] for bracket in brackets), default=0) > deepest


class _TooManyDigits(ValueError):
    """An integer with so many digits that its conversion would take long."""


def _integer(digits: str) -> int:
    if len(digits) > MOST_DIGITS:
        raise _TooManyDigits
    return int(digits)


def parse(raw: bytes, what: str) -> dict[str, Any]:
    """The JSON object in `raw`; `what` names the reply in error messages.

    Numbers beyond the range of a float become infinite and NaN stays NaN, so callers must check numbers.
    Raises `Failed`: "invalid reply" for nesting deeper than 64 or integers of more than 40 digits, "broken
    json" for anything else that is not one JSON object in UTF-8.
    """
    if too_deep(raw):
        raise Failed(f"{what} is nested too deeply", "invalid reply", again=False, charged=True)
    try:
        parsed = json.loads(raw.decode("utf-8"), parse_int=_integer)
    except _TooManyDigits:
        why = f"{what} holds an integer of more than {MOST_DIGITS} digits"
        raise Failed(why, "invalid reply", again=False, charged=True) from None
    except (ValueError, RecursionError):
        parsed = None
    if not isinstance(parsed, dict):
        raise Failed(f"{what} is no JSON object", "broken json", again=True, charged=True)
    return parsed


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


def encoded(body: Mapping[str, Any]) -> bytes:
    """A request body as bytes: JSON in UTF-8; unpaired surrogates become question marks."""
    return json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")


class HttpCall:
    """One call whose status and headers have arrived; the body has not been read yet.

    Created by `HttpCall.open`. Read the body with `json` or `events`, and always `close` the call: otherwise
    it keeps its connection, and the server continues to work.
    """

    def __init__(self, endpoint: Endpoint, relay: Relay, redaction: Redaction) -> None:
        self.endpoint = endpoint
        self.url = relay.url
        self.redaction = redaction
        self._relay: Relay | None = relay

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
        method: str = "",
        headers: Mapping[str, str] | None = None,
    ) -> HttpCall:
        """POST `body` (GET if it is None, or `method`) and wait for status and headers.

        `accept` is the type requested, `headers` are sent beside ours.
        Raises `Failed` for every status but 2xx, and if the deadline passes or the connection breaks first.
        """
        key, seconds = endpoint.key(), endpoint.timeout
        sent_headers = {**(headers or {}), "Accept": accept, "Accept-Encoding": "identity"}
        if body is not None:
            sent_headers["Content-Type"] = "application/json"
        if key is not None:
            sent_headers["Authorization"] = f"Bearer {key}"
        sent = None if body is None else encoded(body)
        end = asyncio.get_running_loop().time() + seconds
        where = endpoint.url(path), sent, sent_headers, seconds, endpoint.proxy(), seconds
        relay = await Relay.open(*where, method)
        call = cls(endpoint, relay, Redaction(key))
        try:
            await call._check(end)
        except BaseException:
            call.close()
            raise
        return call

    @property
    def streamed(self) -> bool:
        """Whether the reply is a stream of events."""
        return self._kind == "text/event-stream"

    @property
    def _kind(self) -> str:
        stated = self.opened.headers.get("content-type", "application/json")
        return stated.partition(";")[0].strip().lower()

    async def json(self) -> dict[str, Any]:
        """The whole reply as a JSON object, with the key removed from it; raises `Failed`."""
        if "json" not in self._kind:
            raise Failed(f"{self.url} did not answer with JSON", "content type", again=True, charged=True)
        raw = await self.opened.read(self.endpoint.limits.body)
        return self._parsed(raw) if len(raw) <= LARGE else await asyncio.to_thread(self._parsed, raw)

    def _parsed(self, raw: bytes) -> dict[str, Any]:
        cleaned: dict[str, Any] = self.redaction.tree(parse(raw, f"the reply of {self.url}"))
        return cleaned

    def events(self) -> EventStream:
        """The events of the reply; apply `redaction` to texts that are joined from several of them."""
        return EventStream(self, self.endpoint)

    def close(self) -> None:
        """End the call, and its connection unless the reply was read to the end; may be called repeatedly."""
        if self._relay is not None:
            relay, self._relay = self._relay, None
            relay.close()

    @property
    def opened(self) -> Relay:
        """The reply; raises `Failed` if the call was closed."""
        if self._relay is None:
            raise Failed(f"the call to {self.url} was closed", "cut", again=True, charged=True)
        return self._relay

    async def _check(self, end: float) -> None:
        """Raise `Failed` unless the status is 2xx; the body of an error is read until `end` at most."""
        relay = self.opened
        status = relay.status
        if 200 <= status < 300:
            return
        code = await self._error_code(end)
        wait = waited(relay.headers.get("retry-after")) if status in AGAIN else None
        raise Failed(
            f"{self.url} did not answer: status {status}" + (f" ({code})" if code else ""),
            "status",
            status=status,
            again=status in AGAIN,
            busy=status in BUSY,
            dead=status in DEAD,
            wait=wait,
        )

    async def _error_code(self, end: float) -> str | None:
        """The short error code in the body of an error, or None; the rest of the body is not used."""
        left = end - asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout(min(ERROR_SECONDS, left / 2)):
                error = parse(await self.opened.read(self.endpoint.limits.error), "the error")["error"]
            stated = error.get("code") or error.get("type")
        except (Failed, KeyError, AttributeError, TimeoutError):
            return None
        code = self.redaction.text(stated) if isinstance(stated, str) else ""
        return code if _CODE.fullmatch(code) else None


class EventStream:
    """The data of the events of a reply as they arrive; iteration can be interrupted and resumed.

    Events without data are left out. Raises `Failed` if the deadline passes, the connection breaks, or an
    event or the stream is too large.
    """

    def __init__(self, call: HttpCall, endpoint: Endpoint) -> None:
        self._call, self._left = call, endpoint.limits.stream
        self._frames = Frames(endpoint.limits.event)
        self._ready: deque[bytes] = deque()
        self._ended = False

    def __aiter__(self) -> EventStream:
        return self

    async def __anext__(self) -> bytes:
        reply = self._call.opened
        while not self._ready:
            if self._ended:
                raise StopAsyncIteration
            chunk = await reply.chunk()
            self._left -= len(chunk)
            if self._left < 0:
                raise Failed("the stream is too large", "invalid reply", again=False, charged=True)
            self._ended = not chunk
            try:
                frames = self._frames.feed(chunk) if chunk else [self._frames.rest]
            except EventTooLarge as error:
                raise Failed(str(error), "invalid reply", again=False, charged=True) from None
            self._ready.extend(data for frame in frames if (data := data_of(frame)))
        return self._ready.popleft()


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
