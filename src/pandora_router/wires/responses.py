"""OpenAI's Responses."""

from __future__ import annotations

from typing import Any, ClassVar

import orjson

from pandora_router.wires.events import framed, parsed
from pandora_router.wires.json_text import Json, closing, mapping, objects, spoken, string, wrong
from pandora_router.wires.look import Glimpse, called, keep
from pandora_router.wires.usage import usage_of
from pandora_router.wires.wire import (
    COMMENT,
    OPENAI,
    SAMPLING,
    SYSTEM,
    TEXTS,
    Name,
    Piece,
    Spoken,
    Turn,
    WireAnswer,
    openai_error,
    texts_of,
    turn_of,
    turns_of,
    with_system,
)

ECHO: dict[str, Any] = {
    "error": None, "instructions": None, "metadata": {}, "parallel_tool_calls": True, "temperature": None,
    "tool_choice": "auto", "tools": [], "top_p": None,
}  # fmt: skip
"""Members that every response has, as if the request had left them out."""
EARLIER = (
    "function_call", "function_call_output", "custom_tool_call", "custom_tool_call_output",
    "local_shell_call", "local_shell_call_output", "reasoning", "compaction", "item_reference",
)  # fmt: skip
"""Types of input items that only an earlier answer can have brought."""


class Responses:
    """OpenAI's Responses."""

    name: ClassVar[Name] = "responses"
    path: ClassVar[str] = "/v1/responses"
    stored: ClassVar[bool] = True
    logprobs: ClassVar[bool] = False
    ping: ClassVar[bytes] = COMMENT
    members: ClassVar[frozenset[str]] = frozenset(
        SAMPLING | OPENAI | {"input", "instructions", "max_output_tokens", "reasoning", "text", "truncation"}
    )

    def read(self, body: Json) -> Turn:
        """Read a request; raises `UsageError` if it is not valid on this wire."""
        given = body.get("input")
        if not isinstance(given, str | list) and body.get("prompt") is None:
            raise wrong("input", "a text or a list of items", given)
        items = list(objects(given))
        instructions = string(body.get("instructions"))
        texts = Spoken(
            users=[given] if isinstance(given, str) else texts_of(items, ("user",), TEXTS),
            system=[*([instructions] if instructions else []), *texts_of(items, SYSTEM, TEXTS)],
            items=items,
            continues=any(item.get("role") == "assistant" or item.get("type") in EARLIER for item in items),
            shape=mapping(body.get("text")).get("format"),
            previous=string(body.get("previous_response_id")),
        )
        return turn_of(body, texts)

    def conversation(self, body: Json) -> list[tuple[str, str]]:
        """Role and text of each turn of a request, its system prompt first."""
        return with_system(string(body.get("instructions")), turns_of(body.get("input")))

    def hides(self, body: Json) -> bool:
        """Whether a request asks for reasoning, which hosted models write first and hide."""
        return mapping(body.get("reasoning")).get("effort") not in (None, "none")

    def counted(self, body: Json) -> dict[str, Any]:
        """Nothing: every stream ends with token counts."""
        return {}

    def key_headers(self, key: str | None) -> dict[str, str]:
        """The key as a bearer token."""
        return {} if key is None else {"Authorization": f"Bearer {key}"}

    def piece(self, event: Json) -> Piece:
        """The meaning of one event of a stream."""
        kind = str(event.get("type"))
        answer = mapping(event.get("response"))
        if kind in ("response.failed", "error"):
            error = mapping(answer.get("error") or event)
            return Piece(
                failed=str(error.get("message") or "an error")[:200], last=True, usage=usage_of(answer)
            )
        if kind in ("response.completed", "response.incomplete"):
            return Piece(content=True, usage=usage_of(answer), last=True, response=string(answer.get("id")))
        return Piece(content=kind.endswith(".delta"), response=string(answer.get("id")))

    def error(self, status: int, message: str, code: str) -> dict[str, Any]:
        """An error in the format of this wire."""
        return openai_error(status, message, code)

    def failure(self, message: str) -> list[tuple[str | None, dict[str, Any]]]:
        """The event `response.failed`: clients ignore others in mid-stream."""
        failed = {"object": "response", "status": "failed", "output": []}
        error = {"code": "server_error", "message": message}
        event = {"type": "response.failed", "sequence_number": 0, "response": {**failed, "error": error}}
        return [("response.failed", event)]

    def show(self, event: Json, glimpse: Glimpse) -> None:
        """Add to a look what one event of a stream shows."""
        kind = str(event.get("type"))
        item, place = mapping(event.get("item")), str(event.get("output_index"))
        added = item.get("type") if kind == "response.output_item.added" else None
        if added == "reasoning" or kind.startswith("response.reasoning"):
            glimpse.hidden = glimpse.hidden or not glimpse.text
        elif added is not None:
            called(glimpse.text, item.get("name"), None)
        elif kind.endswith(".delta"):
            glimpse.heard.add(place)
            keep(glimpse.text, event.get("delta"))
        elif kind == "response.output_item.done" and place not in glimpse.heard:
            keep(glimpse.text, item.get("arguments") or spoken(item.get("content"), TEXTS))
        elif kind in ("response.completed", "response.incomplete"):
            glimpse.finished = True

    def assembly(self) -> ResponsesAssembly:
        """A new reader of the last event of a stream, which holds the whole answer."""
        return ResponsesAssembly()

    def speech(self) -> ResponsesSpeech:
        """A new writer of one answer, which numbers its events."""
        return ResponsesSpeech()


class ResponsesAssembly:
    """A response from the last event of its stream, which holds it whole."""

    def __init__(self) -> None:
        self._body: bytes | None = None

    def add(self, data: bytes, event: dict[str, Any]) -> None:
        """Take one event."""
        response = event.get("response")
        ends = event.get("type") in ("response.completed", "response.incomplete")
        if not ends or not isinstance(response, dict):
            return
        self._body = orjson.dumps(response)
        start = data.find(b"{", data.find(b'"response":') + 1)
        end = closing(data, start) if start > 0 else None
        if end is not None and parsed(data[start:end]) == response:
            self._body = data[start:end]

    def body(self) -> bytes | None:
        """The response in the bytes of its provider."""
        return self._body


class ResponsesSpeech:
    """Responses. Each event of a stream has a number: make a new object for each answer."""

    def __init__(self) -> None:
        self._number = 0

    def whole(self, answer: WireAnswer) -> dict[str, Any]:
        """One output item with its text."""
        return self._response(answer, "incomplete" if answer.truncated else "completed", [self._item(answer)])

    def head(self, answer: WireAnswer) -> bytes:
        """created, in_progress, output_item.added, content_part.added."""
        bare = self._response(answer, "in_progress", [])
        item = {**self._item(answer), "status": "in_progress", "content": []}
        part = {"type": "output_text", "text": "", "annotations": []}
        place = {"item_id": item["id"], "output_index": 0}
        return b"".join(
            (
                self._event("response.created", response=bare),
                self._event("response.in_progress", response=bare),
                self._event("response.output_item.added", output_index=0, item=item),
                self._event("response.content_part.added", **place, content_index=0, part=part),
            )
        )

    def delta(self, answer: WireAnswer, text: str) -> bytes:
        """One output_text.delta."""
        place = {"item_id": f"msg_{answer.id}", "output_index": 0, "content_index": 0}
        return self._event("response.output_text.delta", **place, delta=text, logprobs=[])

    def tail(self, answer: WireAnswer, *, usage: bool) -> bytes:
        """output_text.done, content_part.done, output_item.done, completed."""
        item = self._item(answer)
        place = {"item_id": item["id"], "output_index": 0, "content_index": 0}
        done = self.whole(answer)
        return b"".join(
            (
                self._event("response.output_text.done", **place, text=answer.text, logprobs=[]),
                self._event("response.content_part.done", **place, part=item["content"][0]),
                self._event("response.output_item.done", output_index=0, item=item),
                self._event(f"response.{done['status']}", response=done),
            )
        )

    def _event(self, kind: str, **members: Any) -> bytes:
        number, self._number = self._number, self._number + 1
        return framed(kind, {"type": kind, "sequence_number": number, **members})

    def _item(self, answer: WireAnswer) -> dict[str, Any]:
        part = {"type": "output_text", "text": answer.text, "annotations": [], "logprobs": []}
        item = {"id": f"msg_{answer.id}", "type": "message", "role": "assistant", "status": "completed"}
        return {**item, "content": [part]}

    def _response(self, answer: WireAnswer, status: str, output: list[Any]) -> dict[str, Any]:
        whole: dict[str, Any] = {
            "id": f"resp_{answer.id}",
            "object": "response",
            "created_at": answer.created,
            "status": status,
            "model": answer.model,
            "output": output,
            "incomplete_details": {"reason": "max_output_tokens"} if answer.truncated else None,
            **ECHO,
        }
        counts = {
            "input_tokens": answer.tokens_in,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": answer.tokens_out,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": answer.tokens_in + answer.tokens_out,
        }
        return whole | {"usage": counts if output else None}
