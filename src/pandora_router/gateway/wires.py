"""The three wires (request formats): OpenAI chat completions, OpenAI Responses, Anthropic Messages.

A wire reads what the gateway needs from a request, recognises content, usage and the end of a response, and
formats errors. Requests and answers are never translated from one wire to another. Unknown members and events
are passed on unchanged.

Token counts are kept in disjoint buckets. OpenAI's input tokens include cached ones, Anthropic's do not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol

from pandora_router.gateway.members import (
    Json,
    count_of,
    flag_of,
    mapping,
    objects,
    spoken,
    string,
    text_of,
    tokens_of,
    wrong,
)
from pandora_router.specialists.asking import COPIES, MOST_COPIES, MOST_TOKENS, TOKEN_LIMITS
from pandora_router.store.rows import Usage

Name = Literal["chat", "responses", "messages"]


@dataclass(frozen=True)
class Turn:
    """The parts of a request that routing uses.

    `prompt` is the text of the last user message, "" if there is none. `continues`: whether the request has
    earlier answers or tool results and so belongs to a conversation. `needs` are abilities that the
    specialist must have; `previous` is the id of an earlier response, known only to the specialist that wrote
    it. `max_output` limits the tokens of each of the `answers` that are asked for. `media` counts images,
    sounds and files.
    """

    model: str
    stream: bool
    prompt: str
    system: str
    first: str
    continues: bool
    needs: frozenset[str]
    parameters: frozenset[str]
    max_output: int | None
    answers: int
    media: int
    wants_usage: bool
    previous: str | None
    cache_key: str | None
    metadata: Json


@dataclass(frozen=True)
class Piece:
    """The meaning of one event of a stream: has it content, token counts, an error, or is last."""

    content: bool = False
    usage: Usage | None = None
    only_usage: bool = False
    failed: str | None = None
    last: bool = False
    response: str | None = None


@dataclass(frozen=True)
class Spoken:
    """Parts of a request that the three wires have in different places, for `_turn`.

    users, system: texts in order. items: messages or input items. continues: whether earlier answers are
    among them. shape: the response format that is asked for. previous: the id of the response that goes on.
    """

    users: list[str]
    system: list[str]
    items: list[Json]
    continues: bool
    shape: object = None
    previous: str | None = None


def _turn(body: Json, texts: Spoken, *, wants_usage: bool = True) -> Turn:
    """The `Turn` of a request.

    The largest of the token limits counts, and the largest number of answers, whichever wire they belong to:
    members are passed on, and only the provider knows which of them it heeds. Raises `UsageError` for a
    model, flag, limit or number of the wrong kind.
    """
    media = [_PARTS[kind] for kind in _kinds(texts.items) if kind in _PARTS]
    asked = {
        "tools": bool(body.get("tools") or body.get("functions")),
        "json_schema": mapping(texts.shape).get("type") == "json_schema",
        "logprobs": bool(body.get("logprobs")),
    }
    return Turn(
        model=text_of(body, "model"),
        stream=flag_of(body, "stream"),
        prompt=texts.users[-1] if texts.users else "",
        system="\n".join(texts.system),
        first=texts.users[0] if texts.users else "",
        continues=texts.continues or texts.previous is not None,
        needs=frozenset({*media} | {ability for ability, wanted in asked.items() if wanted}),
        parameters=frozenset(body),
        max_output=count_of(body, *TOKEN_LIMITS, most=MOST_TOKENS),
        answers=count_of(body, *COPIES, most=MOST_COPIES) or 1,
        media=len(media),
        wants_usage=wants_usage,
        previous=texts.previous,
        cache_key=string(body.get("prompt_cache_key")),
        metadata=mapping(body.get("metadata")),
    )


def _messages(body: Json) -> list[Json]:
    """The messages of a request; raises `UsageError` if there are none."""
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise wrong("messages", "a list of messages that is not empty", messages)
    return list(objects(messages))


def _kinds(items: list[Json]) -> list[str | None]:
    """The types of all content parts; one that is no text counts as None."""
    return [string(part.get("type")) for item in items for part in objects(item.get("content"))]


def _texts(items: list[Json], roles: tuple[str, ...], kinds: tuple[str, ...] = ("text",)) -> list[str]:
    """The texts of the items of these roles; `kinds` are the types of content parts that hold text."""
    return [spoken(item.get("content"), kinds) for item in items if item.get("role") in roles]


class Wire(Protocol):
    """One request format."""

    name: ClassVar[Name]
    path: ClassVar[str]

    def read(self, body: Json) -> Turn:
        """Read a request; raises `UsageError` if it is not valid on this wire."""
        ...

    def usage(self, answer: Json) -> Usage | None:
        """The token counts of a complete answer, or None."""
        ...

    def piece(self, event: Json) -> Piece:
        """The meaning of one event of a stream."""
        ...

    def error(self, status: int, message: str, code: str) -> dict[str, Any]:
        """An error in the format of this wire."""
        ...

    def failure(self, message: str) -> list[tuple[str | None, dict[str, Any]]]:
        """The events that end a stream after a failure, each with its event name."""
        ...


class Chat:
    """OpenAI's chat completions."""

    name: ClassVar[Name] = "chat"
    path: ClassVar[str] = "/v1/chat/completions"

    def read(self, body: Json) -> Turn:
        """Read a request; raises `UsageError` if it is not valid on this wire."""
        items = _messages(body)
        texts = Spoken(
            users=_texts(items, ("user",)),
            system=_texts(items, _SYSTEM),
            items=items,
            continues=any(item.get("role") in ("assistant", "tool", "function") for item in items),
            shape=body.get("response_format"),
        )
        options = body.get("stream_options")
        if not isinstance(options, Mapping | None):
            raise wrong("stream_options", "an object", options)
        return _turn(body, texts, wants_usage=bool(mapping(options).get("include_usage")))

    def usage(self, answer: Json) -> Usage | None:
        """The token counts of a complete answer, or None."""
        return _usage(answer, "prompt_tokens", "completion_tokens")

    def piece(self, event: Json) -> Piece:
        """The meaning of one event of a stream."""
        if "error" in event and "choices" not in event:
            return Piece(failed=str(mapping(event["error"]).get("message") or "an error")[:200], last=True)
        choices = list(objects(event.get("choices")))
        content = any(
            choice.get("finish_reason") is not None
            or any(value for name, value in mapping(choice.get("delta")).items() if name != "role")
            for choice in choices
        )
        usage = self.usage(event)
        return Piece(content=content, usage=usage, only_usage=usage is not None and not choices)

    def error(self, status: int, message: str, code: str) -> dict[str, Any]:
        """An error in the format of this wire."""
        return {"error": {"message": message, "type": _openai_type(status), "param": None, "code": code}}

    def failure(self, message: str) -> list[tuple[str | None, dict[str, Any]]]:
        """One error event, without [DONE] after it, so that the answer does not look complete."""
        return [(None, self.error(502, message, "upstream_failed"))]


class Responses:
    """OpenAI's Responses."""

    name: ClassVar[Name] = "responses"
    path: ClassVar[str] = "/v1/responses"

    def read(self, body: Json) -> Turn:
        """Read a request; raises `UsageError` if it is not valid on this wire."""
        given = body.get("input")
        if not isinstance(given, str | list) and body.get("prompt") is None:
            raise wrong("input", "a text or a list of items", given)
        items = list(objects(given))
        kinds = ("input_text", "text", "output_text")
        instructions = string(body.get("instructions"))
        texts = Spoken(
            users=[given] if isinstance(given, str) else _texts(items, ("user",), kinds),
            system=[*([instructions] if instructions else []), *_texts(items, _SYSTEM, kinds)],
            items=items,
            continues=any(
                item.get("role") == "assistant"
                or item.get("type") in ("function_call_output", "function_call", "reasoning")
                for item in items
            ),
            shape=mapping(body.get("text")).get("format"),
            previous=string(body.get("previous_response_id")),
        )
        return _turn(body, texts)

    def usage(self, answer: Json) -> Usage | None:
        """The token counts of a complete answer, or None."""
        return _usage(answer, "input_tokens", "output_tokens")

    def piece(self, event: Json) -> Piece:
        """The meaning of one event of a stream."""
        kind = str(event.get("type"))
        answer = mapping(event.get("response"))
        if kind in ("response.failed", "error"):
            error = mapping(answer.get("error") or event)
            return Piece(
                failed=str(error.get("message") or "an error")[:200], last=True, usage=self.usage(answer)
            )
        if kind in ("response.completed", "response.incomplete"):
            return Piece(content=True, usage=self.usage(answer), last=True, response=string(answer.get("id")))
        return Piece(content=kind.endswith(".delta"), response=string(answer.get("id")))

    def error(self, status: int, message: str, code: str) -> dict[str, Any]:
        """An error in the format of this wire."""
        return {"error": {"message": message, "type": _openai_type(status), "param": None, "code": code}}

    def failure(self, message: str) -> list[tuple[str | None, dict[str, Any]]]:
        """The event `response.failed`: clients ignore others in mid-stream."""
        failed = {"object": "response", "status": "failed", "output": []}
        error = {"code": "server_error", "message": message}
        event = {"type": "response.failed", "sequence_number": 0, "response": {**failed, "error": error}}
        return [("response.failed", event)]


class Messages:
    """Anthropic's Messages."""

    name: ClassVar[Name] = "messages"
    path: ClassVar[str] = "/v1/messages"

    def read(self, body: Json) -> Turn:
        """Read a request; raises `UsageError` if it is not valid on this wire."""
        items = _messages(body)
        texts = Spoken(
            users=[text for text in _texts(items, ("user",)) if text],
            system=[spoken(body.get("system"), ("text",))],
            items=items,
            continues=any(item.get("role") == "assistant" for item in items)
            or "tool_result" in _kinds(items),
        )
        return _turn(body, texts)

    def usage(self, answer: Json) -> Usage | None:
        """The token counts of a complete answer, or None."""
        counts = answer.get("usage")
        if not isinstance(counts, Mapping):
            return None
        return Usage(
            tokens_of(counts, "input_tokens"),
            tokens_of(counts, "cache_read_input_tokens"),
            tokens_of(counts, "cache_creation_input_tokens"),
            tokens_of(counts, "output_tokens"),
        )

    def piece(self, event: Json) -> Piece:
        """The meaning of one event of a stream; the counts in `message_delta` are the final ones."""
        kind = event.get("type")
        if kind == "error":
            return Piece(
                failed=str(mapping(event.get("error")).get("message") or "an error")[:200], last=True
            )
        if kind == "message_start":
            return Piece(usage=self.usage(mapping(event.get("message"))))
        if kind == "message_delta":
            return Piece(content=True, usage=self.usage(event))
        return Piece(
            content=kind in ("content_block_start", "content_block_delta"), last=kind == "message_stop"
        )

    def error(self, status: int, message: str, code: str) -> dict[str, Any]:
        """An error in the format of this wire."""
        return {"type": "error", "error": {"type": _ANTHROPIC.get(status, "api_error"), "message": message}}

    def failure(self, message: str) -> list[tuple[str | None, dict[str, Any]]]:
        """One event `error`."""
        return [("error", self.error(502, message, ""))]


_SYSTEM = ("system", "developer")
_PARTS = {
    "image_url": "images",
    "input_image": "images",
    "image": "images",
    "input_audio": "audio",
    "file": "files",
    "input_file": "files",
    "document": "files",
}
"""Types of content parts -> the ability a specialist needs for them."""
_ANTHROPIC = {
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


def _openai_type(status: int) -> str:
    return {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}.get(
        status, "invalid_request_error" if status < 500 else "server_error"
    )


WIRES: tuple[Wire, ...] = (Chat(), Responses(), Messages())
BY_PATH: Mapping[str, Wire] = {wire.path: wire for wire in WIRES}
BY_NAME: Mapping[str, Wire] = {wire.name: wire for wire in WIRES}


def _usage(answer: Json, read: str, written: str) -> Usage | None:
    """Token counts as OpenAI states them, in the members `read` and `written`; None if there are none."""
    counts = answer.get("usage")
    if not isinstance(counts, Mapping):
        return None
    whole, cached = tokens_of(counts, read), tokens_of(counts.get(f"{read}_details"), "cached_tokens")
    reasoning = tokens_of(counts.get(f"{written}_details"), "reasoning_tokens")
    return Usage(max(whole - cached, 0), min(cached, whole), 0, tokens_of(counts, written), reasoning)
