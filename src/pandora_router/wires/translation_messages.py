"""Messages read into the neutral form of `translation`, and written from it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import orjson

from pandora_router.wires.events import framed, parsed
from pandora_router.wires.json_text import Json, mapping, objects, string
from pandora_router.wires.translation import (
    AnswerAbout,
    AnswerBegun,
    AnswerOver,
    AnswerSchema,
    AnswerStopped,
    BlockClosed,
    BlockMore,
    BlockOpened,
    Event,
    ImagePart,
    NeutralMessage,
    NeutralRequest,
    OpenBlocks,
    Part,
    Stop,
    TextPart,
    TokensCounted,
    ToolCall,
    ToolOffer,
    ToolResult,
    Untranslatable,
    closed,
    conversation,
    limit,
    number,
    offered,
    parts_of,
    refuse_others,
    required,
    text,
    tool_of,
)
from pandora_router.wires.usage import Usage, usage_of

KNOWN = frozenset(
    {
        "model", "messages", "system", "stream", "max_tokens", "temperature", "top_p", "stop_sequences",
        "tools", "tool_choice", "output_config",
    }
)  # fmt: skip
HINTS = frozenset({"metadata", "thinking", "context_management", "service_tier", "cache_control"})
EFFORTS = {"low": "low", "medium": "medium", "high": "high", "xhigh": "max"}
"""OpenAI's efforts that this wire knows, by its names; of others nothing is said: the usual one holds."""
_EFFORTS = {name: effort for effort, name in EFFORTS.items()}
STOPS: dict[str, Stop] = {
    "end_turn": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tools",
    "refusal": "refusal",
    "stop_sequence": "sequence",
}
REASONS: dict[Stop, str] = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tools": "tool_use",
    "refusal": "refusal",
    "sequence": "stop_sequence",
}
_ID = re.compile(r"[A-Za-z0-9_-]{1,256}")
_DATA = re.compile(r"data:([\w.+-]+/[\w.+-]+);base64,(.*)", re.DOTALL)


class MessagesReader:
    """Reads Messages."""

    def __init__(self) -> None:
        self._blocks = OpenBlocks()
        self._usage: Json = {}

    def request(self, body: Json) -> NeutralRequest:
        """A request in the neutral form; raises `Untranslatable`."""
        refuse_others(body, KNOWN, HINTS)
        first = NeutralMessage(
            "system", tuple(TextPart(text(part.get("text"), "text")) for part in parts_of(body.get("system")))
        )
        given = [message for one in objects(body.get("messages")) for message in _messages(one)]
        system, messages = conversation([first, *given])
        own, others = offered(body, None, "custom")
        choice, asked = mapping(body.get("tool_choice")), mapping(body.get("output_config"))
        return NeutralRequest(
            messages,
            system,
            tuple(tool_of(tool, "input_schema") for tool in own),
            _choice(choice),
            parallel=choice.get("disable_parallel_tool_use") is not True,
            stream=bool(body.get("stream")),
            max_output=limit(body, "max_tokens"),
            temperature=number(body, "temperature"),
            top_p=number(body, "top_p"),
            stop=tuple(text(one, "stop_sequences") for one in body.get("stop_sequences") or ()),
            shape=_shape(mapping(asked.get("format"))),
            effort=_EFFORTS.get(str(asked.get("effort"))),
            without=others,
        )

    def unrolled(self, answer: Json) -> Iterable[Json]:
        """The events that would have brought this whole answer."""
        yield {"type": "message_start", "message": answer}
        for index, block in enumerate(objects(answer.get("content"))):
            yield {"type": "content_block_start", "index": index, "content_block": block}
            yield {"type": "content_block_stop", "index": index}
        yield {"type": "message_delta", "delta": {"stop_reason": answer.get("stop_reason")}}
        yield {"type": "message_stop"}

    def events(self, event: Json) -> Iterable[Event]:
        """What one event means; raises `Untranslatable`."""
        kind, key = event.get("type"), str(event.get("index"))
        if kind == "message_start":
            message = mapping(event.get("message"))
            yield AnswerBegun(string(message.get("id")) or "", string(message.get("model")) or "")
            yield from self._counted(mapping(message.get("usage")))
        elif kind == "content_block_start":
            yield from self._started(key, mapping(event.get("content_block")))
        elif kind == "content_block_delta" and key in self._blocks.places:
            delta = mapping(event.get("delta"))
            if more := string(delta.get("text") or delta.get("partial_json") or delta.get("thinking")):
                yield BlockMore(self._blocks.places[key], more)
        elif kind == "content_block_stop":
            yield from self._blocks.close(key)
        elif kind == "message_delta":
            yield from self._blocks.close_all()
            yield from self._counted(mapping(event.get("usage")))
            reason = str(mapping(event.get("delta")).get("stop_reason"))
            if reason == "pause_turn":
                raise Untranslatable("an answer that pauses for a tool of the provider")
            yield AnswerStopped(STOPS.get(reason, "stop"))

    def _counted(self, usage: Json) -> Iterable[Event]:
        self._usage = {**self._usage, **{name: count for name, count in usage.items() if count is not None}}
        counted = usage_of({"usage": self._usage}) if usage else None
        if counted is not None:
            yield TokensCounted(counted)

    def _started(self, key: str, block: Json) -> Iterable[Event]:
        kind = block.get("type")
        if kind == "tool_use":
            id_, name = text(block.get("id"), "the id of a call"), block.get("name")
            yield self._blocks.open(key, "call", id_, text(name, "the name of a tool"))
            whole = orjson.dumps(block["input"]).decode() if block.get("input") else ""
        elif kind in ("text", "thinking"):
            yield self._blocks.open(key, "text" if kind == "text" else "thought")
            whole = string(block.get(str(kind))) or ""
        elif kind == "redacted_thinking":
            return
        else:
            raise Untranslatable(f"a block of the type {str(kind)[:40]!r}")
        if whole:
            yield BlockMore(self._blocks.places[key], whole)


class MessagesWriter:
    """Writes Messages. Reasoning is left out: its signature could only come from its author.

    On this wire a block is closed before the next one opens: what comes of a later block meanwhile is kept.
    """

    def __init__(self, about: AnswerAbout) -> None:
        self._about = about
        self._places: dict[int, int] = {}
        self._kept: dict[int, list[Event]] = {}
        self._calls: set[int] = set()
        self._usage = Usage()
        self._stop: Stop = "stop"

    def request(self, request: NeutralRequest, tokens_as: str, most: int) -> dict[str, Any]:
        """A request without its model; raises `Untranslatable`."""
        if request.temperature is not None and request.temperature > 1:
            raise Untranslatable("a temperature above 1")
        told = (message for message in request.messages if message.role == "system")
        later = [part.text for message in told for part in message.parts if isinstance(part, TextPart)]
        system = "\n\n".join([request.system, *later] if request.system else later)
        written = [_written(message) for message in request.messages if message.role != "system"]
        messages = [message for message in written if message["content"]]
        if not messages:
            raise Untranslatable("a request without a message")
        body: dict[str, Any] = {"messages": messages, "max_tokens": request.max_output or most}
        if request.tools:
            body["tools"] = [_tool_written(tool) for tool in request.tools]
            body["tool_choice"] = _choice_written(request.choice, parallel=request.parallel)
        effort = EFFORTS.get(str(request.effort))
        asked: dict[str, Any] = {"effort": effort} if effort else {}
        if request.shape is not None:
            asked["format"] = {"type": "json_schema", "schema": closed(request.shape.schema)}
        optional = {
            "system": system or None,
            "stream": request.stream or None,
            "temperature": request.temperature,
            "top_p": request.top_p,
            "stop_sequences": list(request.stop) or None,
            "output_config": asked or None,
        }
        return body | {name: value for name, value in optional.items() if value is not None}

    def write(self, event: Event) -> bytes:
        """The events that say the same."""
        match event:
            case AnswerBegun():
                head = {"id": f"msg_{self._about.id}", "type": "message", "role": "assistant", "content": []}
                ends = {"model": event.model, "stop_reason": None, "stop_sequence": None}
                return _event("message_start", message={**head, **ends, "usage": counts(self._usage)})
            case BlockOpened() if event.kind != "thought":
                self._kept[event.place] = [event]
                return self._in_turn()
            case BlockMore() | BlockClosed() if event.place in self._kept:
                self._kept[event.place].append(event)
                return self._in_turn()
            case TokensCounted():
                self._usage = event.usage
            case AnswerStopped():
                self._stop = event.stop
            case AnswerOver():
                why = {"stop_reason": REASONS[self._stop], "stop_sequence": None}
                end = _event("message_delta", delta=why, usage=counts(self._usage))
                return self._closed_all() + end + _event("message_stop")
            case _:
                pass
        return b""

    def failed(self, failure: Iterable[tuple[str | None, Json]]) -> bytes:
        """The end of the open block, and the events of the failure."""
        self._kept = {place: [] for place in [*self._kept][:1]}
        return self._closed_all() + b"".join(framed(name, event) for name, event in failure)

    def _closed_all(self) -> bytes:
        for place, kept in self._kept.items():
            kept.append(BlockClosed(place))
        return self._in_turn()

    def _in_turn(self) -> bytes:
        """What is kept of the open block, and, once it is closed, of the next ones."""
        written: list[bytes] = []
        while self._kept:
            place = next(iter(self._kept))
            events, self._kept[place] = self._kept[place], []
            written += map(self._block_event, events)
            if not events or not isinstance(events[-1], BlockClosed):
                break
            del self._kept[place]
        return b"".join(written)

    def _block_event(self, event: Event) -> bytes:
        match event:
            case BlockOpened():
                return self._opened(event)
            case BlockMore():
                return self._delta(event.place, event.text)
            case BlockClosed():
                return _event("content_block_stop", index=self._places[event.place])
            case _:
                return b""

    def _opened(self, event: BlockOpened) -> bytes:
        index = self._places[event.place] = len(self._places)
        block: dict[str, Any] = {"type": "text", "text": ""}
        if event.kind == "call":
            self._calls.add(event.place)
            block = {"type": "tool_use", "id": event.id, "name": event.name, "input": {}}
        return _event("content_block_start", index=index, content_block=block)

    def _delta(self, place: int, more: str) -> bytes:
        call = {"type": "input_json_delta", "partial_json": more}
        delta = call if place in self._calls else {"type": "text_delta", "text": more}
        return _event("content_block_delta", index=self._places[place], delta=delta)


def counts(usage: Usage) -> dict[str, int]:
    """Token counts by the names of this wire: cached input is beside the input."""
    return {
        "input_tokens": usage.fresh,
        "cache_read_input_tokens": usage.cached,
        "cache_creation_input_tokens": usage.written,
        "output_tokens": usage.output,
    }


def _event(kind: str, **members: Any) -> bytes:
    return framed(kind, {"type": kind, **members})


def _messages(message: Json) -> list[NeutralMessage]:
    """A message; results of tools in front of a user's words are a message of their own."""
    role = message.get("role")
    parts = [part for part in map(_part, parts_of(message.get("content"))) if part is not None]
    results = tuple(part for part in parts if isinstance(part, ToolResult))
    others = tuple(part for part in parts if not isinstance(part, ToolResult))
    if role == "user":
        if any(isinstance(part, ToolCall) for part in others):
            raise Untranslatable("a tool call of the user")
        return [NeutralMessage("tool", results), NeutralMessage("user", others)]
    if role not in ("assistant", "system") or results or any(isinstance(part, ImagePart) for part in others):
        raise Untranslatable(f"a message of the role {str(role)[:40]!r} with such content")
    return [NeutralMessage("assistant" if role == "assistant" else "system", others)]


def _part(part: Json) -> Part | None:
    kind = part.get("type")
    if kind == "text":
        return TextPart(text(part.get("text"), "text"))
    if kind == "image":
        return _image(mapping(part.get("source")))
    if kind == "tool_use":
        arguments = orjson.dumps(part.get("input") or {}).decode()
        return ToolCall(text(part.get("id"), "the id of a call"), text(part.get("name"), "name"), arguments)
    if kind == "tool_result":
        inner = tuple(_part(one) for one in parts_of(part.get("content")))
        shown = tuple(one for one in inner if isinstance(one, TextPart | ImagePart))
        if len(shown) != len(inner):
            raise Untranslatable("the result of a tool that is neither text nor image")
        return ToolResult(text(part.get("tool_use_id"), "tool_use_id"), shown, part.get("is_error") is True)
    if kind in ("thinking", "redacted_thinking"):
        return None
    raise Untranslatable(f"a part of the type {str(kind)[:40]!r}")


def _image(source: Json) -> ImagePart:
    if source.get("type") == "url":
        return ImagePart(text(source.get("url"), "the address of an image"))
    if source.get("type") != "base64":
        raise Untranslatable(f"an image from {str(source.get('type'))[:40]!r}")
    kind, data = text(source.get("media_type"), "media_type"), text(source.get("data"), "an image")
    return ImagePart(f"data:{kind};base64,{data}")


def _image_written(image: ImagePart) -> dict[str, Any]:
    if not image.url.startswith("data:"):
        return {"type": "image", "source": {"type": "url", "url": image.url}}
    data = _DATA.fullmatch(image.url)
    if data is None:
        raise Untranslatable("an image that is not in base64")
    return {"type": "image", "source": {"type": "base64", "media_type": data[1], "data": data[2]}}


def _written(message: NeutralMessage) -> dict[str, Any]:
    role = "assistant" if message.role == "assistant" else "user"
    return {"role": role, "content": _content(message.parts)}


def _content(parts: Iterable[Part]) -> list[dict[str, Any]]:
    """The parts, without texts of white space, which Anthropic refuses."""
    return [_part_written(part) for part in parts if not isinstance(part, TextPart) or part.text.strip()]


def _part_written(part: Part) -> dict[str, Any]:
    match part:
        case TextPart():
            return {"type": "text", "text": part.text}
        case ImagePart():
            return _image_written(part)
        case ToolCall():
            arguments = parsed(part.arguments.encode()) if part.arguments.strip() else {}
            if arguments is None or _ID.fullmatch(part.id) is None:
                raise Untranslatable("a tool call whose arguments are no JSON object, or with an odd id")
            return {"type": "tool_use", "id": part.id, "name": part.name, "input": arguments}
        case ToolResult():
            error = {"is_error": True} if part.error else {}
            return {"type": "tool_result", "tool_use_id": part.id, "content": _content(part.parts), **error}


def _tool_written(tool: ToolOffer) -> dict[str, Any]:
    schema = closed(tool.schema) if tool.strict else tool.schema
    written = {"name": tool.name, "description": tool.description, "input_schema": schema}
    return written | ({"strict": True} if tool.strict else {})


def _choice(choice: Json) -> str:
    kind = choice.get("type", "auto")
    if kind == "tool":
        return f"tool:{text(choice.get('name'), 'the name of a tool')}"
    if kind not in ("auto", "any", "none"):
        raise Untranslatable("this tool_choice")
    return "required" if kind == "any" else str(kind)


def _choice_written(choice: str, *, parallel: bool) -> dict[str, Any]:
    written: dict[str, Any] = {"type": "any" if choice == "required" else choice}
    if choice.startswith("tool:"):
        written = {"type": "tool", "name": choice.removeprefix("tool:")}
    single = {} if parallel or choice == "none" else {"disable_parallel_tool_use": True}
    return {**written, **single}


def _shape(stated: Json) -> AnswerSchema | None:
    if stated and stated.get("type") != "json_schema":
        raise Untranslatable(f"the format {str(stated.get('type'))[:40]!r}")
    schema = mapping(stated.get("schema"))
    return AnswerSchema(schema, strict=required(schema)) if stated else None
