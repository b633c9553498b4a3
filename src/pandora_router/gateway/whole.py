"""A complete answer assembled from its stream, for a client that did not request a stream.

A look needs a stream, and the chosen specialist continues it. A Responses stream ends with an event that has
the complete answer: those bytes are passed on unchanged. Chat completions and Messages send only pieces,
which are joined by the rules of their public references: texts are appended, list items with the same `index`
are merged, other members get the latest value. The same rules apply to unknown members.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import orjson

from pandora_router.gateway.attempts import RunningAttempt
from pandora_router.gateway.chances import closing
from pandora_router.gateway.frames import DONE, Frames, data_of, parsed
from pandora_router.gateway.wires import Name
from pandora_router.transport.failures import Failed

NOT_JOINED = frozenset({"role", "id", "type", "object", "index", "finish_reason"})
"""Texts that are repeated, not continued, by later pieces."""


class Whole(Protocol):
    """An answer in the process of assembly."""

    def add(self, data: bytes, event: dict[str, Any]) -> None:
        """Take one event, as bytes and parsed."""
        ...

    def body(self) -> bytes | None:
        """The answer as the provider would have sent it without a stream; None if it is incomplete."""
        ...


def whole_of(wire: Name, frames: list[bytes]) -> bytes:
    """The whole answer in the events of a stream; raises `Failed` if its end is missing."""
    whole = WHOLES[wire]()
    for frame in frames:
        data = data_of(frame)
        event = parsed(data) if data and data != DONE else None
        if event is not None:
            whole.add(data, event)
    body = whole.body()
    if body is None:
        raise Failed("the stream ended before the answer did", "cut", again=True, charged=True)
    return body


async def joined_answer(attempt: RunningAttempt) -> bytes:
    """Read a stream that a look began to its end and return the whole answer; raises `Failed`."""
    frames, events = Frames(), list[bytes]()
    async for part in attempt.rest():
        events += frames.feed(part)
    if attempt.failed is not None:
        raise Failed(f"{attempt.backend.name} broke off", "cut", again=True, charged=True)
    return whole_of(attempt.wire.name, [*events, frames.rest])


class ChatWhole:
    """A chat completion from its chunks."""

    def __init__(self) -> None:
        self._head: dict[str, Any] = {}
        self._choices: dict[int, dict[str, Any]] = {}

    def add(self, data: bytes, event: dict[str, Any]) -> None:
        """Take one chunk."""
        self._head.update({k: v for k, v in event.items() if k != "choices" and v is not None})
        for piece in event.get("choices") or ():
            if not isinstance(piece, dict):
                continue
            index = piece.get("index", 0)
            choice = self._choices.setdefault(index, {"index": index, "message": {}, "finish_reason": None})
            joined(choice["message"], piece.get("delta") or {})
            joined(choice, {k: v for k, v in piece.items() if k not in ("delta", "index") and v is not None})

    def body(self) -> bytes | None:
        """The completion, once every choice has its finish reason."""
        choices = [self._choices[index] for index in sorted(self._choices)]
        if not choices or any(choice["finish_reason"] is None for choice in choices):
            return None
        for choice in choices:
            message = choice["message"]
            message.setdefault("role", "assistant")
            message.setdefault("content", None)
            if message["content"] == "" and message.get("tool_calls"):
                message["content"] = None
            for call in message.get("tool_calls") or ():
                call.pop("index", None)
            choice.setdefault("logprobs", None)
        head = {**self._head, "object": "chat.completion"}
        usage = {"usage": head.pop("usage")} if "usage" in head else {}
        return orjson.dumps({**head, "choices": choices, **usage})


class ResponsesWhole:
    """A response from the last event of its stream, which holds it whole."""

    def __init__(self) -> None:
        self._body: bytes | None = None

    def add(self, data: bytes, event: dict[str, Any]) -> None:
        """Take one event."""
        if event.get("type") not in ("response.completed", "response.incomplete"):
            return
        self._body = orjson.dumps(event.get("response"))
        start = data.find(b"{", data.find(b'"response":') + 1)
        end = closing(data, start) if start > 0 else None
        if end is not None and parsed(data[start:end]) == event.get("response"):
            self._body = data[start:end]

    def body(self) -> bytes | None:
        """The response in the bytes of its provider."""
        return self._body


class MessagesWhole:
    """A message from its events."""

    def __init__(self) -> None:
        self._message: dict[str, Any] = {}
        self._blocks: dict[int, dict[str, Any]] = {}
        self._json: dict[int, list[str]] = {}
        self._ended = False

    def add(self, data: bytes, event: dict[str, Any]) -> None:
        """Take one event."""
        kind, index = event.get("type"), event.get("index", 0)
        if kind == "message_start" and isinstance(event.get("message"), dict):
            self._message = dict(event["message"])
        elif kind == "content_block_start" and isinstance(event.get("content_block"), dict):
            self._blocks[index] = dict(event["content_block"])
        elif kind == "content_block_delta" and isinstance(event.get("delta"), dict):
            self._delta(index, event["delta"])
        elif kind == "message_delta":
            self._message.update(event.get("delta") or {})
            self._message["usage"] = {**(self._message.get("usage") or {}), **(event.get("usage") or {})}
        elif kind == "message_stop":
            self._ended = True

    def _delta(self, index: int, delta: Mapping[str, Any]) -> None:
        block = self._blocks.setdefault(index, {})
        kind = delta.get("type")
        if kind == "input_json_delta":
            self._json.setdefault(index, []).append(str(delta.get("partial_json", "")))
        elif kind == "citations_delta":
            block["citations"] = [*(block.get("citations") or ()), delta.get("citation")]
        else:
            joined(block, {name: value for name, value in delta.items() if name != "type"})

    def body(self) -> bytes | None:
        """The message, once its stream has ended."""
        if not self._ended or not self._message:
            return None
        for index, parts in self._json.items():
            text = "".join(parts)
            try:
                self._blocks[index]["input"] = orjson.loads(text) if text.strip() else {}
            except orjson.JSONDecodeError:
                return None
        content = [self._blocks[index] for index in sorted(self._blocks)]
        return orjson.dumps({**self._message, "content": content})


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


WHOLES: Mapping[Name, Callable[[], Whole]] = {
    "chat": ChatWhole,
    "responses": ResponsesWhole,
    "messages": MessagesWhole,
}
