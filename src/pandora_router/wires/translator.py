"""Requests of one wire for specialists of another, and their answers: whole, or event by event.

Pure: bytes in and out. `Translator` is made for one answer. Its only error is `Untranslatable`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from pandora_router.wires.events import DONE, EventTooLarge, Frames, assembled, data_of, parsed
from pandora_router.wires.json_text import Json, mapping
from pandora_router.wires.translation import (
    AnswerAbout,
    AnswerBegun,
    AnswerOver,
    AnswerStopped,
    NeutralRequest,
    Untranslatable,
    WireReader,
    WireWriter,
)
from pandora_router.wires.translation_chat import ChatReader, ChatWriter
from pandora_router.wires.translation_messages import MessagesReader, MessagesWriter
from pandora_router.wires.translation_responses import ResponsesReader, ResponsesWriter
from pandora_router.wires.wire import Name, Wire

READERS: Mapping[Name, Callable[[], WireReader]] = {
    "chat": ChatReader,
    "responses": ResponsesReader,
    "messages": MessagesReader,
}
WRITERS: Mapping[Name, Callable[[AnswerAbout], WireWriter]] = {
    "chat": ChatWriter,
    "responses": ResponsesWriter,
    "messages": MessagesWriter,
}
NEAREST: Mapping[Name, tuple[Name, ...]] = {
    "chat": ("responses", "messages"),
    "responses": ("chat", "messages"),
    "messages": ("chat", "responses"),
}
"""For each wire the others, in the order in which they are tried."""

LONGEST_LIST = 400
"""Characters of the names of tools in a header, after which it is cut off."""


def request_of(wire: Name, body: Json) -> NeutralRequest:
    """A request in the neutral form; raises `Untranslatable`."""
    try:
        return READERS[wire]().request(body)
    except Untranslatable:
        raise
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise Untranslatable("a member of the wrong kind") from error


def written(
    request: NeutralRequest, wire: Name, model: str, tokens_as: str = "max_tokens", most: int = 4096
) -> dict[str, Any]:
    """A request of `wire`; raises `Untranslatable`. See `WireWriter.request` for `tokens_as` and `most`."""
    return {"model": model, **WRITERS[wire](AnswerAbout("", 0)).request(request, tokens_as, most)}


def marked(body: Mapping[str, Any]) -> dict[str, Any]:
    """A written Messages request whose provider is asked to keep its input in the cache, up to the end.

    Providers of the other wires keep long inputs without being asked.
    """
    *before, last = body["messages"]
    *blocks, end = last["content"]
    content = [*blocks, {**end, "cache_control": {"type": "ephemeral"}}]
    return {**body, "messages": [*before, {**last, "content": content}]}


@dataclass
class Translator:
    """One answer from the wire `came`, for a client of the wire `goes`.

    failed: whether its stream ended, or was ended, with the events of a failure.
    """

    came: Wire
    goes: Wire
    about: AnswerAbout
    without: tuple[str, ...] = ()
    failed: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self._frames = Frames()
        self._reader = READERS[self.came.name]()
        self._writer = WRITERS[self.goes.name](self.about)
        self._unsent: list[bytes] = []
        self._begun = self._stopped = False

    @property
    def header(self) -> str:
        """What a header tells the client: the direction, and the tools that were left out."""
        names = ",".join(name if name.isascii() and name.isprintable() else "?" for name in self.without)
        return f"{self.goes.name}->{self.came.name}" + (f"; without {names[:LONGEST_LIST]}" if names else "")

    def feed(self, part: bytes) -> bytes:
        """The events for the client that the next bytes of a stream make; raises `Untranslatable`."""
        try:
            frames = self._frames.feed(part)
        except EventTooLarge as error:
            raise Untranslatable(str(error)) from error
        for frame in frames:
            self._unsent.append(self._frame(frame))
        made = b"".join(self._unsent)
        self._unsent.clear()
        return made

    def end(self) -> bytes:
        """The last events; those of a failure if the stream ended before the answer did."""
        rest = self._frame(self._frames.rest) if self._frames.rest else b""
        if self.failed:
            return rest
        if not self._stopped:
            return rest + self.fail("The specialist broke off.")
        return rest + self._writer.write(AnswerOver())

    def fail(self, message: str) -> bytes:
        """The events that end a stream after a failure, with those that an error kept back."""
        if self.failed:
            return b""
        self.failed = True
        begun, self._begun = self._begun, True
        head = b"" if begun else self._writer.write(AnswerBegun("", ""))
        return b"".join([*self._unsent, head, self._writer.failed(self.goes.failure(message))])

    def _frame(self, frame: bytes) -> bytes:
        data = data_of(frame)
        event = parsed(data) if data and data != DONE else None
        return b"" if event is None or self.failed else self._event(event)

    def _event(self, event: Json) -> bytes:
        if (failed := self.came.piece(event).failed) is not None:
            return self.fail(failed)
        made: list[bytes] = []
        try:
            made.extend(map(self._write, self._reader.events(event)))  # keeps those before an error
        except Untranslatable:
            self._unsent += made
            raise
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            self._unsent += made
            raise Untranslatable(f"an event that is not understood ({type(error).__name__})") from error
        return b"".join(made)

    def _write(self, event: Any) -> bytes:
        if self._stopped and isinstance(event, AnswerStopped):
            return b""
        begun, self._begun = self._begun, True
        self._stopped = self._stopped or isinstance(event, AnswerStopped)
        if isinstance(event, AnswerBegun):
            return b"" if begun else self._writer.write(event)
        return (b"" if begun else self._writer.write(AnswerBegun("", ""))) + self._writer.write(event)

    def whole(self, body: bytes) -> bytes:
        """A whole answer in the format of the client; raises `Untranslatable`."""
        answer = parsed(body)
        if answer is None:
            raise Untranslatable("a reply that is no JSON object")
        events = [self._event(event) for event in self._reader.unrolled(answer)]
        if not self._stopped or self.failed:
            raise Untranslatable("a reply without an answer")
        stream = b"".join([*events, self._writer.write(AnswerOver())])
        made = assembled(self.goes.assembly(), stream)
        if made is None:
            raise Untranslatable("an answer that is not complete")
        return made

    def error(self, status: int, body: bytes) -> bytes:
        """An error in the format of the client."""
        said = mapping(mapping(parsed(body)).get("error"))
        message = str(said.get("message") or f"The specialist answered with status {status}.")[:1000]
        return orjson.dumps(self.goes.error(status, message, str(said.get("code") or "")[:100]))
