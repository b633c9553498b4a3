"""Server-sent events as bytes: cut a stream into whole events without changing any of them.

Lines end in LF, CR or CRLF, wherever the bytes are split (WHATWG HTML, section 9.2.6).

`assembled` joins the pieces of a stream to a complete answer, for a client that did not request a stream, by
the rules of the public references: texts are appended, list items with the same `index` are merged, other
members get the latest value. The same rules apply to unknown members.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from pandora_router.wires.json_text import Json, closing, dumped, string
from pandora_router.wires.look import Glimpse
from pandora_router.wires.usage import Usage, usage_of

if TYPE_CHECKING:
    from pandora_router.wires.wire import Piece

LARGEST = 2**21
"""Most bytes of one event, where nothing else is said."""
_END = re.compile(rb"\r\n\r\n|\n\n|\r\r|\n\r\n")
DONE = b"[DONE]"
TELLS = re.compile(
    rb'"(?:usage"(?!\s*:\s*null)|error"(?!\s*:\s*null)|response(?!\.[a-z_.]+\.delta")|message_)|\[DONE\]'
)
"""What occurs in every event after the first content that may say something besides more content.

Providers that were asked for usage send `"usage": null` in every event but the last; every event of a
Responses stream names its type, which ends in `.delta` where it carries more content.
"""


class EventTooLarge(ValueError):
    """One event has more bytes than `Frames` may keep."""


class Frames:
    """Cuts the chunks of a stream into events, each with the blank line that ends it.

    At most `largest` bytes of an event that is not complete are kept.
    """

    def __init__(self, largest: int = LARGEST) -> None:
        self._rest = b""
        self._largest = largest

    def feed(self, chunk: bytes) -> list[bytes]:
        """The events that are complete now; raises `EventTooLarge`."""
        data = self._rest + chunk if self._rest else chunk
        frames: list[bytes] = []
        start, searched = 0, max(len(self._rest) - 3, 0)  # the end of an event has up to four bytes
        for end in _END.finditer(data, searched):
            frames.append(data[start : end.end()])
            start = end.end()
        self._rest = data[start:]
        if len(self._rest) > self._largest:
            raise EventTooLarge("one event of the stream is too large")
        return frames

    def plain(self, chunk: bytes) -> tuple[bytes, int] | None:
        """The events that are whole now in one piece, and how many of them carry data.

        None, with nothing taken, if no event is whole or one of them may have to be read (`TELLS`): then
        `feed` the chunk.
        """
        data = self._rest + chunk if self._rest else chunk
        end = data.rfind(b"\n\n") + 2
        if end < 2 or b"\r" in data or TELLS.search(data):
            return None
        whole, self._rest = data[:end], data[end:]
        return whole, whole.count(b"\ndata:") + whole.startswith(b"data:")

    @property
    def rest(self) -> bytes:
        """The bytes after the last complete event."""
        return self._rest


def data_of(frame: bytes) -> bytes:
    r"""The data of an event, b"" if it has none (a comment, a keep-alive).

    >>> data_of(b"event: x\ndata: {}\n\n"), data_of(b": ping\n\n")
    (b'{}', b'')
    """
    lines = frame.removeprefix(b"\xef\xbb\xbf").splitlines()
    lines = [line[5:].removeprefix(b" ") for line in lines if line.startswith(b"data:")]
    return b"\n".join(lines)


def parsed(data: bytes) -> dict[str, object] | None:
    """The JSON object in an event's data, or None."""
    import orjson

    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError:
        return None
    return value if isinstance(value, dict) else None


def framed(name: str | None, value: object) -> bytes:
    """An event of our own."""
    head = b"" if name is None else b"event: " + name.encode() + b"\n"
    return head + b"data: " + dumped(value) + b"\n\n"


NOT_JOINED = frozenset({"role", "id", "type", "object", "index", "name", "finish_reason"})
"""Texts that are repeated, not continued, by later pieces."""


class Assembly(Protocol):
    """An answer in the process of assembly."""

    def add(self, data: bytes, event: dict[str, Any]) -> None:
        """Take one event, as bytes and parsed."""
        ...

    def body(self) -> bytes | None:
        """The answer as the provider would have sent it without a stream; None if it is incomplete."""
        ...


def assembled(assembly: Assembly, stream: bytes) -> bytes | None:
    """The whole answer in the events of a stream; None if its end is missing, or not understood."""
    frames = Frames(len(stream))
    try:
        for frame in [*frames.feed(stream), frames.rest]:
            data = data_of(frame)
            event = parsed(data) if data and data != DONE else None
            if event is not None:
                assembly.add(data, event)
        return assembly.body()
    except (AttributeError, KeyError, TypeError, ValueError):  # members of a kind that the wire does not have
        return None


def joined(whole: dict[str, Any], piece: Mapping[str, Any]) -> None:
    """Add the members of `piece` to `whole`, in place; nested objects and indexed lists are joined alike.

    >>> whole = {"content": "Par"}
    >>> joined(whole, {"content": "is", "tool_calls": [{"index": 0, "id": "a"}]})
    >>> whole
    {'content': 'Paris', 'tool_calls': [{'index': 0, 'id': 'a'}]}
    """
    for name, value in piece.items():
        before = whole.get(name)
        if before is None or name in NOT_JOINED:
            whole[name] = _own(value) if value is not None else before
        elif isinstance(before, str) and isinstance(value, str):
            whole[name] = before + value
        elif isinstance(before, dict) and isinstance(value, dict):
            joined(before, value)
        elif isinstance(before, list) and isinstance(value, list):
            _joined_list(before, value)
        elif value is not None:
            whole[name] = value


def _own(value: Any) -> Any:
    """A copy of lists and objects, so that joining changes nothing of the event they came in."""
    if isinstance(value, dict):
        return {name: _own(part) for name, part in value.items()}
    return [_own(part) for part in value] if isinstance(value, list) else value


def _joined_list(before: list[Any], more: list[Any]) -> None:
    """Items with an `index` that is there already are joined with it, others appended."""
    places = {item.get("index"): item for item in before if isinstance(item, dict) and "index" in item}
    for item in more:
        known = places.get(item.get("index")) if isinstance(item, dict) and "index" in item else None
        if known is None:
            before.append(_own(item))
        else:
            joined(known, item)


class StreamWire(Protocol):
    """A wire, as far as `AnswerReader` needs it."""

    def piece(self, event: Json) -> Piece:
        """The meaning of one event of a stream."""
        ...

    def show(self, event: Json, glimpse: Glimpse) -> None:
        """Add to a look what one event of a stream shows."""
        ...


@dataclass
class AnswerReader:
    """What one answer on a wire has said so far, and the bytes of it that are to be sent on.

    strip_usage, strip_chances: token counts and log-probabilities were not asked for by the client, and are
    left out of what is sent on. glimpse: what a look has seen. usage: the latest token counts, final if
    `counted`. events: those that carry data. content: whether the answer itself has begun; fresh: whether the
    last bytes that were read in full had content. failed: the error that the stream reported. response: the
    id of the answer.
    """

    wire: StreamWire
    strip_usage: bool = False
    strip_chances: bool = False
    glimpse: Glimpse | None = None
    usage: Usage | None = None
    counted: bool = False
    events: int = 0
    content: bool = False
    fresh: bool = False
    failed: str | None = None
    response: str | None = None
    _unsent: list[bytes] = field(default_factory=list)
    _frames: Frames = field(default_factory=Frames)

    @property
    def seen(self) -> bool:
        """Whether the answer has begun, and a look at it has seen enough."""
        return self.content and (self.glimpse is None or self.glimpse.done)

    def whole(self, body: bytes) -> None:
        """Read a reply that is not streamed."""
        answer = parsed(body)
        if answer is not None:
            self.usage, self.counted, self.response = usage_of(answer), True, string(answer.get("id"))

    def feed(self, chunk: bytes, *, full: bool = False) -> None:
        """Read the next bytes of a stream; raises `EventTooLarge`.

        Once the answer has begun, events that tell nothing but more content are not parsed, unless `full`:
        then `fresh` says whether one of these has content, and is no keep-alive.
        """
        self.fresh = False
        plain = self._frames.plain(chunk) if self.seen and not self.strip_chances and not full else None
        if plain is not None:  # events that only carry more content
            self._unsent.append(plain[0])
            self.events += plain[1]
            return
        for frame in self._frames.feed(chunk):
            self._take(frame, full=full)

    def sent(self) -> bytes:
        """What is to be sent on and was not yet."""
        unsent = b"".join(self._unsent)
        self._unsent.clear()
        return unsent

    def end(self) -> bytes:
        """The same after the last bytes of the stream: with those that are no whole event."""
        return self.sent() + self._frames.rest

    def _take(self, frame: bytes, *, full: bool) -> None:
        """Keep a frame for the client, and what it says."""
        data = data_of(frame)
        if self.strip_chances:
            frame = without_chances(frame)
        event = None
        if data and data != DONE:
            self.events += 1
            tells = not self.seen or TELLS.search(data)
            event = parsed(data) if tells else None
            if full and not tells and (more := parsed(data)) is not None:
                self.fresh = self.fresh or self.wire.piece(more).content
        piece = None if event is None else self.wire.piece(event)
        if event is not None and piece is not None:
            if piece.usage is not None:
                self.usage = piece.usage if self.usage is None else piece.usage.after(self.usage)
                self.counted = piece.last
            self.failed = piece.failed or self.failed
            self.response = piece.response or self.response
            if self.glimpse is not None and not self.glimpse.done:
                self.wire.show(event, self.glimpse)
            self.fresh = self.fresh or piece.content
            self.content = self.content or piece.content
        if piece is None or not (piece.only_usage and self.strip_usage):
            self._unsent.append(frame)


_CHANCES = re.compile(rb'(?<!\\)"logprobs"\s*:\s*(?=\{)')


def without_chances(frame: bytes) -> bytes:
    r"""The event with null in place of each object `logprobs`.

    >>> without_chances(b'data: {"logprobs": {"content": [{"token": "}"}]}, "index": 0}\n\n')
    b'data: {"logprobs": null, "index": 0}\n\n'
    """
    parts: list[bytes] = []
    start = 0
    while (key := _CHANCES.search(frame, start)) is not None:
        end = closing(frame, key.end())
        if end is None:
            break
        parts += [frame[start : key.end()], b"null"]
        start = end
    return b"".join([*parts, frame[start:]]) if parts else frame
