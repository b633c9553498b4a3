"""Server-sent events as bytes: cut a stream into whole events without changing any of them.

Lines end in LF, CR or CRLF, wherever the bytes are split (WHATWG HTML, section 9.2.6).
"""

from __future__ import annotations

import re

from pandora_router.wires.json_read import dumped

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
