"""Responses read into the neutral form of `translation`, and written from it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

from pandora_router.wires.events import framed
from pandora_router.wires.json_text import Json, mapping, objects, string
from pandora_router.wires.responses import ECHO
from pandora_router.wires.translation import (
    ROLES,
    AnswerAbout,
    AnswerBegun,
    AnswerOver,
    AnswerStopped,
    BlockClosed,
    BlockMore,
    BlockOpened,
    Event,
    ImagePart,
    NeutralMessage,
    NeutralRequest,
    OpenBlocks,
    Stop,
    TextPart,
    TokensCounted,
    ToolCall,
    ToolOffer,
    ToolResult,
    Untranslatable,
    conversation,
    limit,
    number,
    offered,
    openai_counts,
    parts_of,
    refuse_others,
    schema_asked,
    text,
    tool_of,
)
from pandora_router.wires.usage import Usage, usage_of

KNOWN = frozenset(
    {
        "model", "input", "instructions", "stream", "max_output_tokens", "temperature", "top_p", "tools",
        "tool_choice", "parallel_tool_calls", "text", "reasoning",
    }
)  # fmt: skip
HINTS = frozenset(
    {
        "user", "metadata", "store", "prompt_cache_key", "safety_identifier", "service_tier", "include",
        "truncation", "client_metadata", "stream_options", "prompt_cache_retention",
    }
)  # fmt: skip
PIECES: dict[str, Literal["text", "thought"]] = {
    "output_text": "text", "refusal": "text",
    "reasoning_text": "thought", "reasoning_summary_text": "thought",
}  # fmt: skip
"""Events `response.NAME.delta` -> what they are more of."""
TEXTS = ("text", "input_text", "output_text")


class ResponsesReader:
    """Reads Responses."""

    def __init__(self) -> None:
        self._blocks = OpenBlocks()
        self._done: set[str] = set()
        self._calls = False
        self._refused = False
        self._part: tuple[str, object] = "", None

    def request(self, body: Json) -> NeutralRequest:
        """A request in the neutral form; raises `Untranslatable`."""
        refuse_others(body, KNOWN, HINTS)
        given = body.get("input")
        items = [{"role": "user", "content": given}] if isinstance(given, str) else list(objects(given))
        stated = (TextPart(str(body["instructions"])),) if body.get("instructions") else ()
        system, messages = conversation([NeutralMessage("system", stated), *map(_item, items)])
        own, others = offered(body, "function")
        shape = mapping(mapping(body.get("text")).get("format"))
        return NeutralRequest(
            messages,
            system,
            tuple(tool_of(tool) for tool in own),
            _choice(body.get("tool_choice")),
            parallel=body.get("parallel_tool_calls") is not False,
            stream=bool(body.get("stream")),
            max_output=limit(body, "max_output_tokens"),
            temperature=number(body, "temperature"),
            top_p=number(body, "top_p"),
            effort=string(mapping(body.get("reasoning")).get("effort")),
            shape=schema_asked(shape, shape),
            without=others,
        )

    def unrolled(self, answer: Json) -> Iterable[Json]:
        """The events that would have brought this whole answer."""
        yield {"type": "response.created", "response": answer}
        for index, item in enumerate(objects(answer.get("output"))):
            yield {"type": "response.output_item.done", "output_index": index, "item": item}
        status = "incomplete" if answer.get("status") == "incomplete" else "completed"
        yield {"type": f"response.{status}", "response": answer}

    def events(self, event: Json) -> Iterable[Event]:
        """What one event means; raises `Untranslatable`."""
        kind, answer = str(event.get("type")), mapping(event.get("response"))
        key, item = str(event.get("output_index")), mapping(event.get("item"))
        if kind == "response.created":
            yield AnswerBegun(string(answer.get("id")) or "", string(answer.get("model")) or "")
        elif kind == "response.output_item.added" and item.get("type") == "function_call":
            yield self._opened(key, item)
        elif kind == "response.output_item.done":
            yield from self._finished(key, item)
        elif kind.endswith(".delta"):
            yield from self._more(kind, key, event)
        elif kind in ("response.completed", "response.incomplete"):
            yield from self._blocks.close_all()
            if (usage := usage_of(answer)) is not None:
                yield TokensCounted(usage)
            yield AnswerStopped(self._why(answer))

    def _opened(self, key: str, item: Json) -> Event:
        self._calls = True
        name, id_ = text(item.get("name"), "the name of a tool"), text(item.get("call_id"), "call_id")
        return self._blocks.open(key, "call", id_, name)

    def _more(self, kind: str, key: str, event: Json) -> Iterable[Event]:
        name = kind.removeprefix("response.").removesuffix(".delta")
        more, opened = string(event.get("delta")), key in self._blocks.places
        if more is None or key in self._done:
            return
        if name == "function_call_arguments" and opened:
            yield BlockMore(self._blocks.places[key], more)
        elif name in PIECES:
            self._refused = self._refused or name == "refusal"
            if not opened:
                yield self._blocks.open(key, PIECES[name])
            before, self._part = self._part, (key, event.get("summary_index"))
            apart = "\n\n" if before[0] == key and before != self._part else ""  # parts of a summary
            yield BlockMore(self._blocks.places[key], apart + more)

    def _finished(self, key: str, item: Json) -> Iterable[Event]:
        """The end of an item; one that did not come in pieces is whole here."""
        kind, whole = item.get("type"), ""
        if key in self._done:
            return
        self._done.add(key)
        if key in self._blocks.places:
            yield from self._blocks.close(key)
            return
        if kind == "function_call":
            yield self._opened(key, item)
            whole = string(item.get("arguments")) or ""
        elif kind == "message":
            parts = list(objects(item.get("content")))
            self._refused = self._refused or any(part.get("type") == "refusal" for part in parts)
            whole = "".join(str(part.get("text") or part.get("refusal") or "") for part in parts)
            yield self._blocks.open(key, "text")
        elif kind == "reasoning":
            shown = list(objects(item.get("summary"))) or list(objects(item.get("content")))
            whole = "\n\n".join(str(part.get("text") or "") for part in shown)
            yield self._blocks.open(key, "thought")
        else:
            raise Untranslatable(f"an output item of the type {str(kind)[:40]!r}")
        if whole:
            yield BlockMore(self._blocks.places[key], whole)
        yield from self._blocks.close(key)

    def _why(self, answer: Json) -> Stop:
        reason = mapping(answer.get("incomplete_details")).get("reason")
        if answer.get("status") == "incomplete":
            return "refusal" if reason == "content_filter" else "length"
        return "refusal" if self._refused else "tools" if self._calls else "stop"


class ResponsesWriter:
    """Writes Responses. Reasoning is left out: in the next request only its author could continue it."""

    def __init__(self, about: AnswerAbout) -> None:
        self._about = about
        self._number, self._model = 0, ""
        self._items: dict[int, dict[str, Any]] = {}
        self._indices: dict[int, int] = {}
        self._texts: dict[int, list[str]] = {}
        self._open: list[int] = []
        self._usage: Usage | None = None
        self._stop: Stop = "stop"

    def request(self, request: NeutralRequest, tokens_as: str, most: int) -> dict[str, Any]:
        """A request without its model; raises `Untranslatable`."""
        if request.stop:
            raise Untranslatable("stop sequences")
        items = [item for message in request.messages for item in _written(message)]
        body: dict[str, Any] = {"input": items, "store": False}
        if request.tools:
            body["tools"] = [_tool_written(tool) for tool in request.tools]
            body["tool_choice"] = _choice_written(request.choice)
            body |= {} if request.parallel else {"parallel_tool_calls": False}
        if request.shape is not None:
            shape = {"type": "json_schema", "name": request.shape.name, "schema": request.shape.schema}
            body["text"] = {"format": {**shape, "strict": request.shape.strict}}
        optional = {
            "instructions": request.system or None,
            "stream": request.stream or None,
            "max_output_tokens": request.max_output,
            "temperature": request.temperature,
            "top_p": request.top_p,
            "reasoning": {"effort": request.effort} if request.effort else None,
        }
        return body | {name: value for name, value in optional.items() if value is not None}

    def write(self, event: Event) -> bytes:
        """The events that say the same."""
        match event:
            case AnswerBegun():
                self._model = event.model
                bare = self._response("in_progress", [])
                kinds = ("response.created", "response.in_progress")
                return b"".join(self._event(kind, response=bare) for kind in kinds)
            case BlockOpened():
                return self._opened(event)
            case BlockMore() if event.place in self._items:
                self._texts[event.place].append(event.text)
                return self._delta(event.place, event.text)
            case BlockClosed() if event.place in self._open:
                return self._closed(event.place)
            case TokensCounted():
                self._usage = event.usage
            case AnswerStopped():
                self._stop = event.stop
            case AnswerOver():
                return self._over()
            case _:
                pass
        return b""

    def failed(self, failure: Iterable[tuple[str | None, Json]]) -> bytes:
        """The event `response.failed`, which ends everything, with the number that is next."""
        about = {"id": f"resp_{self._about.id}", "created_at": self._about.created, "model": self._model}
        told = ((str(name), {**about, **mapping(event.get("response"))}) for name, event in failure)
        return b"".join(self._event(name, response=response) for name, response in told)

    def _opened(self, event: BlockOpened) -> bytes:
        if event.kind == "thought":
            return b""
        index = len(self._items)
        if event.kind == "call":
            item: dict[str, Any] = {
                "id": f"fc_{self._about.id}_{index}",
                "type": "function_call",
                "call_id": event.id,
            }
            item |= {"name": event.name, "arguments": "", "status": "in_progress"}
        else:
            item = {"id": f"msg_{self._about.id}_{index}", "type": "message", "role": "assistant"}
            item |= {"content": [], "status": "in_progress"}
        self._items[event.place], self._texts[event.place], self._indices[event.place] = item, [], index
        self._open.append(event.place)
        added = self._event("response.output_item.added", output_index=index, item=item)
        if event.kind == "call":
            return added
        part = self._event("response.content_part.added", **self._place(event.place), part=_text_part(""))
        return added + part

    def _delta(self, place: int, more: str) -> bytes:
        if self._items[place]["type"] == "message":
            return self._event("response.output_text.delta", **self._place(place), delta=more, logprobs=[])
        return self._event("response.function_call_arguments.delta", **self._place(place), delta=more)

    def _closed(self, place: int) -> bytes:
        self._open.remove(place)
        item, whole, where = self._items[place], "".join(self._texts[place]), self._place(place)
        if item["type"] == "message":
            done = {**item, "content": [_text_part(whole)], "status": "completed"}
            ended = self._event("response.output_text.done", **where, text=whole, logprobs=[])
            ended += self._event("response.content_part.done", **where, part=_text_part(whole))
        else:
            done = {**item, "arguments": whole or "{}", "status": "completed"}
            stated = {"name": item["name"], "arguments": done["arguments"]}
            ended = self._event("response.function_call_arguments.done", **where, **stated)
        self._items[place] = done
        return ended + self._event("response.output_item.done", output_index=where["output_index"], item=done)

    def _over(self) -> bytes:
        ends = b"".join(self._closed(place) for place in tuple(self._open))
        status = "incomplete" if self._stop in ("length", "refusal") else "completed"
        whole = self._response(status, list(self._items.values()))
        return ends + self._event(f"response.{status}", response=whole)

    def _place(self, place: int) -> dict[str, Any]:
        item, index = self._items[place], self._indices[place]
        where = {"item_id": item["id"], "output_index": index}
        return where | ({"content_index": 0} if item["type"] == "message" else {})

    def _event(self, kind: str, **members: Any) -> bytes:
        number, self._number = self._number, self._number + 1
        return framed(kind, {"type": kind, "sequence_number": number, **members})

    def _response(self, status: str, output: list[Any]) -> dict[str, Any]:
        reasons = {"length": "max_output_tokens", "refusal": "content_filter"}
        counts = openai_counts(self._usage or Usage(), "input", "output")
        return {
            "id": f"resp_{self._about.id}",
            "object": "response",
            "created_at": self._about.created,
            "status": status,
            "model": self._model,
            "output": output,
            "incomplete_details": {"reason": reasons[self._stop]} if status == "incomplete" else None,
            **ECHO,
            "store": False,
            "usage": None if status == "in_progress" else counts,
        }


def _text_part(whole: str) -> dict[str, Any]:
    return {"type": "output_text", "text": whole, "annotations": [], "logprobs": []}


def _item(item: Json) -> NeutralMessage:
    kind = item.get("type", "message")
    if kind == "function_call":
        stated = (text(item.get(name), name) for name in ("call_id", "name", "arguments"))
        return NeutralMessage("assistant", (ToolCall(*stated),))
    if kind == "function_call_output":
        parts = tuple(_part(part) for part in parts_of(item.get("output")))
        return NeutralMessage("tool", (ToolResult(text(item.get("call_id"), "call_id"), parts),))
    if kind == "reasoning":
        return NeutralMessage("assistant", ())
    role = ROLES.get(str(item.get("role")))
    if kind != "message" or role is None:
        raise Untranslatable(f"an input item of the type {str(kind)[:40]!r}")
    parts = tuple(_part(part) for part in parts_of(item.get("content")))
    if role != "user" and not all(isinstance(part, TextPart) for part in parts):
        raise Untranslatable("an image that is not the user's")
    return NeutralMessage(role, parts)


def _part(part: Json) -> TextPart | ImagePart:
    if part.get("type") in TEXTS:
        return TextPart(text(part.get("text"), "text"))
    if part.get("type") == "refusal":
        return TextPart(text(part.get("refusal"), "refusal"))
    if part.get("type") == "input_image" and part.get("image_url"):
        detail = string(part.get("detail")) or "auto"
        return ImagePart(text(part["image_url"], "the address of an image"), detail)
    raise Untranslatable(f"a part of the type {str(part.get('type'))[:40]!r}")


def _written(message: NeutralMessage) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    plain = [part for part in message.parts if isinstance(part, TextPart | ImagePart)]
    if plain:
        kind = "output_text" if message.role == "assistant" else "input_text"
        role = "developer" if message.role == "system" else message.role
        content = [_part_written(part, kind) for part in plain]
        items.append({"type": "message", "role": role, "content": content})
    for part in message.parts:
        if isinstance(part, ToolCall):
            call = {"call_id": part.id, "name": part.name, "arguments": part.arguments}
            items.append({"type": "function_call", **call})
        elif isinstance(part, ToolResult):
            items.append({"type": "function_call_output", "call_id": part.id, "output": _output(part)})
    return items


def _output(result: ToolResult) -> Any:
    if len(result.parts) == 1 and isinstance(result.parts[0], TextPart):
        return result.parts[0].text
    return [_part_written(part, "input_text") for part in result.parts] if result.parts else ""


def _part_written(part: TextPart | ImagePart, kind: str) -> dict[str, Any]:
    if isinstance(part, ImagePart):
        return {"type": "input_image", "image_url": part.url, "detail": part.detail}
    return {"type": kind, "text": part.text}


def _tool_written(tool: ToolOffer) -> dict[str, Any]:
    function = {"type": "function", "name": tool.name, "description": tool.description}
    return {**function, "parameters": tool.schema, "strict": tool.strict}


def _choice(choice: object) -> str:
    if choice is None:
        return "auto"
    if isinstance(choice, str) and choice in ("auto", "none", "required"):
        return choice
    named = mapping(choice)
    if named.get("type") != "function":
        raise Untranslatable("this tool_choice")
    return f"tool:{text(named.get('name'), 'the name of a tool')}"


def _choice_written(choice: str) -> Any:
    name = choice.removeprefix("tool:")
    return choice if name == choice else {"type": "function", "name": name}
