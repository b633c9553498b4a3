"""Anthropic's Messages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import orjson

from pandora_router.wires.events import framed, joined
from pandora_router.wires.json_text import Json, dumped, mapping, spoken
from pandora_router.wires.look import Glimpse, called, keep
from pandora_router.wires.usage import usage_of
from pandora_router.wires.wire import (
    SAMPLING,
    TEXTS,
    Name,
    Piece,
    Spoken,
    Turn,
    WireAnswer,
    kinds_in,
    messages_of,
    texts_of,
    turn_of,
    turns_of,
    with_system,
)

ERRORS = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}
"""Status -> the type of an error."""


class Messages:
    """Anthropic's Messages."""

    name: ClassVar[Name] = "messages"
    path: ClassVar[str] = "/v1/messages"
    stored: ClassVar[bool] = False
    logprobs: ClassVar[bool] = False
    ping: ClassVar[bytes] = b'event: ping\ndata: {"type": "ping"}\n\n'
    members: ClassVar[frozenset[str]] = frozenset(
        SAMPLING | {"messages", "system", "max_tokens", "stop_sequences", "top_k", "thinking"}
    )

    def read(self, body: Json) -> Turn:
        """Read a request; raises `UsageError` if it is not valid on this wire."""
        items = messages_of(body)
        texts = Spoken(
            users=[text for text in texts_of(items, ("user",)) if text],
            system=[spoken(body.get("system"), ("text",))],
            items=items,
            continues=any(item.get("role") == "assistant" for item in items)
            or "tool_result" in kinds_in(items),
            shape=mapping(body.get("output_config")).get("format"),
        )
        return turn_of(body, texts)

    def conversation(self, body: Json) -> list[tuple[str, str]]:
        """Role and text of each turn of a request, its system prompt first.

        >>> Messages().conversation({"system": "Be brief.", "messages": [{"role": "user", "content": "Hi"}]})
        [('system', 'Be brief.'), ('user', 'Hi')]
        """
        return with_system(spoken(body.get("system"), TEXTS), turns_of(body.get("messages")))

    def hides(self, body: Json) -> bool:
        """Whether a request asks for reasoning, which hosted models write first and hide."""
        return body.get("thinking") is not None and mapping(body["thinking"]).get("type") != "disabled"

    def counted(self, body: Json) -> dict[str, Any]:
        """Nothing: every stream ends with token counts."""
        return {}

    def key_headers(self, key: str | None) -> dict[str, str]:
        """The key and the version of the interface."""
        return {"anthropic-version": "2023-06-01"} | ({} if key is None else {"x-api-key": key})

    def piece(self, event: Json) -> Piece:
        """The meaning of one event of a stream.

        The counts in `message_start` are of the input, those in `message_delta` are the final ones.
        """
        kind = event.get("type")
        if kind == "error":
            return Piece(
                failed=str(mapping(event.get("error")).get("message") or "an error")[:200], last=True
            )
        if kind == "message_start":
            usage = usage_of(mapping(event.get("message")))
            return Piece(usage=None if usage is None else replace(usage, complete=False))
        if kind == "message_delta":
            return Piece(content=True, usage=usage_of(event), last=True)
        return Piece(
            content=kind in ("content_block_start", "content_block_delta"), last=kind == "message_stop"
        )

    def error(self, status: int, message: str, code: str) -> dict[str, Any]:
        """An error in the format of this wire."""
        return {"type": "error", "error": {"type": ERRORS.get(status, "api_error"), "message": message}}

    def failure(self, message: str) -> list[tuple[str | None, dict[str, Any]]]:
        """One event `error`."""
        return [("error", self.error(502, message, ""))]

    def show(self, event: Json, glimpse: Glimpse) -> None:
        """Add to a look what one event of a stream shows."""
        kind = event.get("type")
        block, delta = mapping(event.get("content_block")), mapping(event.get("delta"))
        if kind == "content_block_start" and block.get("type") in ("thinking", "redacted_thinking"):
            glimpse.hidden = glimpse.hidden or not glimpse.text
        elif kind == "content_block_start":
            whole = block.get("input")
            called(glimpse.text, block.get("name"), dumped(whole).decode() if whole else "")
            keep(glimpse.text, block.get("text"))
        elif kind == "content_block_delta":
            keep(glimpse.text, delta.get("text"))
            keep(glimpse.text, delta.get("partial_json"))
        elif kind in ("message_delta", "message_stop"):
            glimpse.finished = True

    def assembly(self) -> MessagesAssembly:
        """A new assembly of a message from its events."""
        return MessagesAssembly()

    def speech(self) -> MessagesSpeech:
        """A new writer of one answer."""
        return MessagesSpeech()


class MessagesAssembly:
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


class MessagesSpeech:
    """Messages."""

    def whole(self, answer: WireAnswer) -> dict[str, Any]:
        """One text block."""
        return self._message(answer) | {
            "content": [{"type": "text", "text": answer.text}],
            "stop_reason": "max_tokens" if answer.truncated else "end_turn",
            "usage": {"input_tokens": answer.tokens_in, "output_tokens": answer.tokens_out},
        }

    def head(self, answer: WireAnswer) -> bytes:
        """message_start and content_block_start."""
        usage = {"input_tokens": answer.tokens_in, "output_tokens": 0}
        start = self._message(answer) | {"content": [], "stop_reason": None, "usage": usage}
        block = {"type": "text", "text": ""}
        return self._event("message_start", message=start) + self._event(
            "content_block_start", index=0, content_block=block
        )

    def delta(self, answer: WireAnswer, text: str) -> bytes:
        """One content_block_delta."""
        return self._event("content_block_delta", index=0, delta={"type": "text_delta", "text": text})

    def tail(self, answer: WireAnswer, *, usage: bool) -> bytes:
        """content_block_stop, message_delta with the final counts, message_stop."""
        whole = self.whole(answer)
        why = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
        return b"".join(
            (
                self._event("content_block_stop", index=0),
                self._event("message_delta", delta=why, usage=whole["usage"]),
                self._event("message_stop"),
            )
        )

    def _message(self, answer: WireAnswer) -> dict[str, Any]:
        about = {"id": f"msg_{answer.id}", "type": "message", "role": "assistant", "model": answer.model}
        return {**about, "stop_sequence": None}

    def _event(self, kind: str, **members: Any) -> bytes:
        return framed(kind, {"type": kind, **members})
