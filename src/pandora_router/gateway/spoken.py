"""Converts between the three APIs of the gateway (wires) and the plain texts that bidders of the market use.

`conversation` extracts roles and texts from a request. `SpokenReply` turns the text of an answer into the
reply that a server of the wire would send, as one JSON body or as a stream of events, so the rest of the
gateway handles it like a reply of an endpoint. A stream has one delta with the whole text. Token counts are
estimated from lengths.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import orjson

from pandora_router.gateway.backend import BYTES_PER_TOKEN
from pandora_router.gateway.frames import framed
from pandora_router.gateway.members import objects, spoken, string
from pandora_router.gateway.wires import Name
from pandora_router.specialists.prices import CHARACTERS_PER_TOKEN

Event = tuple[str | None, dict[str, Any]]
KINDS = ("text", "input_text", "output_text")
"""Types of content parts that hold text."""


class Incoming(Protocol):
    """A reply whose status and headers have arrived: `transport.relay.Relay` or `SpokenReply`."""

    status: int

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers of the reply."""
        ...

    @property
    def broken(self) -> bool:
        """Whether the connection ended before the whole body had arrived."""
        ...

    async def chunk(self) -> bytes:
        """The next bytes, b"" at the end."""
        ...

    async def read(self, limit: int) -> bytes:
        """The whole body; raises `Failed` if it has more than `limit` bytes."""
        ...

    def close(self) -> None:
        """Close the connection."""
        ...


class SpokenReply:
    """The answer `text` of the bidder `model` as a reply on `wire`.

    size: bytes of the request, to estimate its tokens. stream: as server-sent events instead of one body.
    """

    status = 200
    broken = False

    def __init__(self, wire: Name, text: str, model: str, id_: str, size: int, *, stream: bool) -> None:
        self.headers = {"Content-Type": "text/event-stream" if stream else "application/json"}
        counts = max(size // BYTES_PER_TOKEN, 1), max(round(len(text) / CHARACTERS_PER_TOKEN), 1)
        whole = _WHOLE[wire](text, model, id_, counts)
        body = b"".join(framed(*event) for event in _EVENTS[wire](whole, text)) if stream else None
        done = b"data: [DONE]\n\n" if stream and wire == "chat" else b""
        self._body = orjson.dumps(whole) if body is None else body + done

    async def chunk(self) -> bytes:
        """The whole body at the first call, b"" after that."""
        body, self._body = self._body, b""
        return body

    async def read(self, limit: int) -> bytes:
        """The whole body. `limit` is ignored: the length of a bidder's answer was checked before."""
        return await self.chunk()

    def close(self) -> None:
        """Do nothing: there is no connection."""


def conversation(wire: Name, body: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Role and text of each turn of a request, its system prompt first.

    >>> conversation("messages", {"system": "Be brief.", "messages": [{"role": "user", "content": "Hi"}]})
    [('system', 'Be brief.'), ('user', 'Hi')]
    """
    system = spoken(body.get("system"), KINDS) if wire == "messages" else string(body.get("instructions"))
    items = body.get("input" if wire == "responses" else "messages")
    turns = [("user", items)] if isinstance(items, str) else _turns(objects(items))
    return [*([("system", system)] if system else []), *turns]


def _turns(items: Any) -> list[tuple[str, str]]:
    texts = [(str(item.get("role")), spoken(item.get("content"), KINDS)) for item in items]
    return [("system" if role == "developer" else role[:20], text) for role, text in texts if text]


def _chat(text: str, model: str, id_: str, counts: tuple[int, int]) -> dict[str, Any]:
    message = {"role": "assistant", "content": text, "refusal": None}
    return {
        "id": f"chatcmpl-{id_}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": model,
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}],
        "usage": {
            "prompt_tokens": counts[0],
            "completion_tokens": counts[1],
            "total_tokens": sum(counts),
        },
    }


def _chat_events(whole: dict[str, Any], text: str) -> Sequence[Event]:
    head = {name: whole[name] for name in ("id", "created", "model")} | {"object": "chat.completion.chunk"}
    first = {"index": 0, "delta": {"role": "assistant", "content": text}, "finish_reason": None}
    last: dict[str, Any] = {"index": 0, "delta": {}, "finish_reason": "stop"}
    return [
        (None, {**head, "choices": [first]}),
        (None, {**head, "choices": [last]}),
        (None, {**head, "choices": [], "usage": whole["usage"]}),
    ]


def _responses(text: str, model: str, id_: str, counts: tuple[int, int]) -> dict[str, Any]:
    part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    item = {"type": "message", "id": f"msg_{id_}", "status": "completed", "role": "assistant"}
    return {
        "id": f"resp_{id_}",
        "object": "response",
        "created_at": int(time.time()),
        "status": "completed",
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "model": model,
        "output": [{**item, "content": [part]}],
        "parallel_tool_calls": False,
        "temperature": None,
        "tool_choice": "auto",
        "tools": [],
        "top_p": None,
        "usage": {
            "input_tokens": counts[0],
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": counts[1],
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": sum(counts),
        },
    }


def _responses_events(whole: dict[str, Any], text: str) -> Sequence[Event]:
    item = whole["output"][0]
    part = item["content"][0]
    begun = {**whole, "status": "in_progress", "output": [], "usage": None}
    place = {"item_id": item["id"], "output_index": 0, "content_index": 0}
    opened = {**item, "status": "in_progress", "content": []}
    events: list[tuple[str, dict[str, Any]]] = [
        ("response.created", {"response": begun}),
        ("response.in_progress", {"response": begun}),
        ("response.output_item.added", {"output_index": 0, "item": opened}),
        ("response.content_part.added", {**place, "part": {**part, "text": ""}}),
        ("response.output_text.delta", {**place, "delta": text, "logprobs": []}),
        ("response.output_text.done", {**place, "text": text, "logprobs": []}),
        ("response.content_part.done", {**place, "part": part}),
        ("response.output_item.done", {"output_index": 0, "item": item}),
        ("response.completed", {"response": whole}),
    ]
    return [
        (name, {"type": name, "sequence_number": number, **event})
        for number, (name, event) in enumerate(events)
    ]


def _messages(text: str, model: str, id_: str, counts: tuple[int, int]) -> dict[str, Any]:
    return {
        "id": f"msg_{id_}",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [{"type": "text", "text": text}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": counts[0], "output_tokens": counts[1]},
    }


def _messages_events(whole: dict[str, Any], text: str) -> Sequence[Event]:
    counts = whole["usage"]
    begun = {**whole, "content": [], "stop_reason": None, "usage": {**counts, "output_tokens": 0}}
    stop = {"stop_reason": "end_turn", "stop_sequence": None}
    events: list[tuple[str, dict[str, Any]]] = [
        ("message_start", {"message": begun}),
        ("content_block_start", {"index": 0, "content_block": {"type": "text", "text": ""}}),
        ("content_block_delta", {"index": 0, "delta": {"type": "text_delta", "text": text}}),
        ("content_block_stop", {"index": 0}),
        ("message_delta", {"delta": stop, "usage": {"output_tokens": counts["output_tokens"]}}),
        ("message_stop", {}),
    ]
    return [(name, {"type": name, **event}) for name, event in events]


_WHOLE = {"chat": _chat, "responses": _responses, "messages": _messages}
_EVENTS = {"chat": _chat_events, "responses": _responses_events, "messages": _messages_events}
