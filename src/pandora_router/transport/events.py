"""A parser of server-sent events (WHATWG HTML, section 9.2.6) that is fed bytes as they arrive.

    parser = EventParser()
    for event in parser.feed(chunk): ...

Lines end in LF, CR or CRLF, wherever the bytes are split; lines that begin with a colon are comments; several
`data` lines of one event are joined by LF; an empty line ends an event. Only complete lines are decoded, so a
character that is split between two chunks is decoded correctly; invalid UTF-8 becomes U+FFFD.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from pandora_router.transport.failures import Failed

_END = re.compile(rb"\r\n|\r|\n")


@dataclass(frozen=True)
class Event:
    """One event: its name ("message" by default) and its data."""

    name: str
    data: str


class EventParser:
    """Turns bytes into events; keeps at most `limit` bytes of an incomplete event."""

    def __init__(self, limit: int = 2**20) -> None:
        self._limit = limit
        self._rest = bytearray()
        self._after_cr = False
        self._first = True
        self._name = ""
        self._data: list[str] = []
        self._size = 0

    def feed(self, chunk: bytes) -> list[Event]:
        """The events that `chunk` completes; raises `Failed` ("invalid reply") if one exceeds the limit."""
        if self._after_cr and chunk:
            chunk, self._after_cr = chunk.removeprefix(b"\n"), False
        *lines, rest = _END.split(chunk)
        if lines:
            lines[0] = bytes(self._rest) + lines[0]
            self._rest.clear()
        self._rest += rest
        # A CR at the very end may be the first half of CRLF: the LF that may follow is skipped.
        self._after_cr = self._after_cr or chunk.endswith(b"\r")
        events = [event for line in lines for event in self._line(line)]
        self._hold(len(self._rest))
        return events

    def close(self) -> list[Event]:
        """The last event, if the stream ended before the empty line that completes it."""
        return self._dispatch()

    def _line(self, line: bytes) -> list[Event]:
        if self._first:
            line, self._first = line.removeprefix(b"\xef\xbb\xbf"), False
        if not line:
            return self._dispatch()
        self._hold(len(line))
        field, _, value = line.decode("utf-8", "replace").partition(":")
        value = value.removeprefix(" ")
        if field == "data":
            self._data.append(value)
            self._size += len(line)
        elif field == "event":
            self._name = value
        return []

    def _dispatch(self) -> list[Event]:
        event = Event(self._name or "message", "\n".join(self._data))
        events = [event] if self._data else []
        self._name, self._data, self._size = "", [], 0
        return events

    def _hold(self, more: int) -> None:
        if self._size + more > self._limit:
            raise Failed("an event of the stream is too large", "invalid reply", again=False, charged=True)
