"""Chat completions read into the neutral form of `translation`, and written from it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pandora_router.wires.chat import CallNumbers, said
from pandora_router.wires.events import framed
from pandora_router.wires.json_text import Json, mapping, objects, string
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
    Part,
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
        "model", "messages", "stream", "max_tokens", "max_completion_tokens", "temperature", "top_p", "stop",
        "tools", "tool_choice", "parallel_tool_calls", "response_format", "reasoning_effort",
    }
)  # fmt: skip
HINTS = frozenset(
    {
        "stream_options", "user", "metadata", "store", "prompt_cache_key", "safety_identifier", "verbosity",
        "service_tier", "prompt_cache_retention",
    }
)  # fmt: skip
STOPS: dict[str, Stop] = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "tools",
    "content_filter": "refusal",
}
REASONS = {stop: reason for reason, stop in STOPS.items()} | {"sequence": "stop"}


class ChatReader:
    """Reads chat completions."""

    def __init__(self) -> None:
        self._blocks = OpenBlocks()
        self._numbers = CallNumbers()
        self._begun = self._refused = False
        self._stop: Stop | None = None

    def request(self, body: Json) -> NeutralRequest:
        """A request in the neutral form; raises `Untranslatable`."""
        copies = body.get("n")
        refuse_others(body, KNOWN | {"n"} if copies == 1 else KNOWN, HINTS)
        system, messages = conversation(_message(message) for message in objects(body.get("messages")))
        tools, others = offered(body, "function")
        stop, shape = body.get("stop"), mapping(body.get("response_format"))
        return NeutralRequest(
            messages,
            system,
            tuple(tool_of(mapping(tool.get("function"))) for tool in tools),
            _choice(body.get("tool_choice")),
            parallel=body.get("parallel_tool_calls") is not False,
            stream=bool(body.get("stream")),
            max_output=limit(body, "max_tokens", "max_completion_tokens"),
            temperature=number(body, "temperature"),
            top_p=number(body, "top_p"),
            stop=(stop,) if isinstance(stop, str) else tuple(text(one, "stop") for one in stop or ()),
            effort=string(body.get("reasoning_effort")),
            shape=schema_asked(shape, mapping(shape.get("json_schema"))),
            without=others,
        )

    def unrolled(self, answer: Json) -> Iterable[Json]:
        """The chunk that would have brought this whole answer."""
        choices = []
        for choice in objects(answer.get("choices")):
            message = mapping(choice.get("message"))
            calls = [{**call, "index": i} for i, call in enumerate(objects(message.get("tool_calls")))]
            choices.append({**choice, "delta": {**message, "tool_calls": calls}})
        yield {**answer, "choices": choices}

    def events(self, event: Json) -> Iterable[Event]:
        """What one chunk means; raises `Untranslatable`."""
        if not self._begun and isinstance(event.get("choices"), list):
            self._begun = True
            yield AnswerBegun(string(event.get("id")) or "", string(event.get("model")) or "")
        for choice in objects(event.get("choices")):
            if choice.get("index", 0) != 0:
                raise Untranslatable("several answers")
            yield from self._delta(mapping(choice.get("delta")))
            finish = choice.get("finish_reason")
            if finish is not None and self._stop is None:
                self._stop = self._why(str(finish))
                yield from self._blocks.close_all()
                yield AnswerStopped(self._stop)
        usage = usage_of(event)
        if usage is not None:
            yield TokensCounted(usage)

    def _why(self, finish: str) -> Stop:
        """Why the answer ended. Some providers say `stop` after tool calls, and all do after a refusal."""
        stop = STOPS.get(finish, "stop")
        if stop != "stop":
            return stop
        return "refusal" if self._refused else "tools" if self._numbers.count else "stop"

    def _delta(self, delta: Json) -> Iterable[Event]:
        thought, plain = said(delta)
        yield from self._more("thought", thought)
        yield from self._more("text", plain)
        self._refused = self._refused or bool(delta.get("refusal"))
        yield from self._more("text", delta.get("refusal"))
        for call in objects(delta.get("tool_calls")):
            function, key = mapping(call.get("function")), ("call", self._numbers.of(call))
            if key not in self._blocks.places:
                yield from self._blocks.close("text")
                yield from self._blocks.close("thought")
                name, id_ = string(function.get("name")), string(call.get("id"))
                if name is None:
                    raise Untranslatable("a tool call without a name")
                yield self._blocks.open(key, "call", id_ or f"call_{self._blocks.opened}", name)
            if arguments := string(function.get("arguments")):
                yield BlockMore(self._blocks.places[key], arguments)

    def _more(self, kind: Any, more: object) -> Iterable[Event]:
        if not isinstance(more, str) or not more:
            return
        if kind not in self._blocks.places:
            yield from self._blocks.close("thought")
            yield self._blocks.open(kind, kind)
        yield BlockMore(self._blocks.places[kind], more)


class ChatWriter:
    """Writes chat completions."""

    def __init__(self, about: AnswerAbout) -> None:
        self._about = about
        self._model = ""
        self._calls: dict[int, int] = {}
        self._bare: set[int] = set()
        self._kinds: dict[int, str] = {}
        self._usage: Usage | None = None

    def request(self, request: NeutralRequest, tokens_as: str, most: int) -> dict[str, Any]:
        """A request without its model; raises `Untranslatable`."""
        messages: list[dict[str, Any]] = (
            [{"role": "system", "content": request.system}] if request.system else []
        )
        for message in request.messages:
            messages += _written(message)
        body: dict[str, Any] = {"messages": messages}
        if request.stream:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        if request.tools:
            body["tools"] = [_tool_written(tool) for tool in request.tools]
            body["tool_choice"] = _choice_written(request.choice)
            body |= {} if request.parallel else {"parallel_tool_calls": False}
        optional = {
            tokens_as: request.max_output,
            "temperature": request.temperature,
            "top_p": request.top_p,
            "stop": list(request.stop) or None,
            "reasoning_effort": request.effort,
        }
        if request.shape is not None:
            stated = {
                "name": request.shape.name,
                "schema": request.shape.schema,
                "strict": request.shape.strict,
            }
            body["response_format"] = {"type": "json_schema", "json_schema": stated}
        return body | {name: value for name, value in optional.items() if value is not None}

    def write(self, event: Event) -> bytes:
        """The chunks that say the same."""
        match event:
            case AnswerBegun():
                self._model = event.model
                return self._chunk({"role": "assistant", "content": ""})
            case BlockOpened():
                self._kinds[event.place] = event.kind
                if event.kind != "call":
                    return b""
                self._calls[event.place] = index = len(self._calls)
                self._bare.add(event.place)
                call = {"index": index, "id": event.id, "type": "function"}
                return self._chunk(
                    {"tool_calls": [{**call, "function": {"name": event.name, "arguments": ""}}]}
                )
            case BlockMore():
                self._bare.discard(event.place)
                return self._chunk(self._more(event))
            case TokensCounted():
                self._usage = event.usage
            case AnswerStopped():
                return self._chunk({}, REASONS[event.stop])
            case AnswerOver():
                return self._counts() + b"data: [DONE]\n\n"
            case BlockClosed() if event.place in self._bare:
                return self.write(BlockMore(event.place, "{}"))
            case _:
                pass
        return b""

    def failed(self, failure: Iterable[tuple[str | None, Json]]) -> bytes:
        """The failure alone: chunks need no end."""
        return b"".join(framed(name, event) for name, event in failure)

    def _more(self, more: BlockMore) -> dict[str, Any]:
        kind = self._kinds.get(more.place)
        if kind == "call":
            return {"tool_calls": [{"index": self._calls[more.place], "function": {"arguments": more.text}}]}
        return {"reasoning_content" if kind == "thought" else "content": more.text}

    def _counts(self) -> bytes:
        if not self._about.usage or self._usage is None:
            return b""
        return framed(
            None, {**self._head(), "choices": [], "usage": openai_counts(self._usage, "prompt", "completion")}
        )

    def _head(self) -> dict[str, Any]:
        about = self._about
        head = {"id": f"chatcmpl-{about.id}", "object": "chat.completion.chunk", "created": about.created}
        return {**head, "model": self._model}

    def _chunk(self, delta: dict[str, Any], finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return framed(None, {**self._head(), "choices": [choice]})


def _message(message: Json) -> NeutralMessage:
    role = str(message.get("role"))
    parts: list[Part] = [_part(part) for part in parts_of(message.get("content"))]
    if role == "tool":
        result = tuple(part for part in parts if isinstance(part, TextPart | ImagePart))
        return NeutralMessage(
            "tool", (ToolResult(text(message.get("tool_call_id"), "tool_call_id"), result),)
        )
    if role not in ROLES or message.get("function_call") or message.get("audio"):
        raise Untranslatable(f"a message of the role {role[:40]!r} or with members of old interfaces")
    for call in objects(message.get("tool_calls")):
        function = mapping(call.get("function"))
        if call.get("type", "function") != "function":
            raise Untranslatable("a call of a tool that is no function")
        name, arguments = text(function.get("name"), "name"), text(function.get("arguments"), "arguments")
        parts.append(ToolCall(text(call.get("id"), "the id of a tool call"), name, arguments))
    if ROLES[role] == "system" and not all(isinstance(part, TextPart) for part in parts):
        raise Untranslatable("a system prompt that is no text")
    return NeutralMessage(ROLES[role], tuple(parts))


def _part(part: Json) -> TextPart | ImagePart:
    if part.get("type") == "text" or part.get("type") == "refusal":
        return TextPart(text(part.get("text") or part.get("refusal") or "", "text"))
    if part.get("type") == "image_url":
        image = mapping(part.get("image_url"))
        return ImagePart(
            text(image.get("url"), "the address of an image"), string(image.get("detail")) or "auto"
        )
    raise Untranslatable(f"a part of the type {str(part.get('type'))[:40]!r}")


def _written(message: NeutralMessage) -> list[dict[str, Any]]:
    if message.role == "tool":
        return _results([part for part in message.parts if isinstance(part, ToolResult)])
    calls = [part for part in message.parts if isinstance(part, ToolCall)]
    content = _content([part for part in message.parts if isinstance(part, TextPart | ImagePart)])
    if not calls:
        return [{"role": message.role, "content": content}]
    written = [
        {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        for call in calls
    ]
    return [{"role": message.role, "content": content or None, "tool_calls": written}]


def _results(results: list[ToolResult]) -> list[dict[str, Any]]:
    """The results of tools; on this wire they are texts, and images follow in a message of the user."""
    written, shown = list[dict[str, Any]](), list[TextPart | ImagePart]()
    for result in results:
        images = [part for part in result.parts if isinstance(part, ImagePart)]
        texts = [part for part in result.parts if isinstance(part, TextPart)]
        if images:
            texts = texts or [TextPart("The result is an image; it follows.")]
            shown += [TextPart(f"The result of the tool call {result.id}:"), *images]
        written.append({"role": "tool", "tool_call_id": result.id, "content": _content(texts)})
    return [*written, {"role": "user", "content": _content(shown)}] if shown else written


def _content(parts: Iterable[Part]) -> str | list[dict[str, Any]]:
    listed = [part for part in parts if isinstance(part, TextPart | ImagePart)]
    if all(isinstance(part, TextPart) for part in listed) and len(listed) <= 1:
        return "".join(part.text for part in listed if isinstance(part, TextPart))
    return [
        {"type": "text", "text": part.text}
        if isinstance(part, TextPart)
        else {"type": "image_url", "image_url": {"url": part.url, "detail": part.detail}}
        for part in listed
    ]


def _tool_written(tool: ToolOffer) -> dict[str, Any]:
    function = {"name": tool.name, "description": tool.description, "parameters": tool.schema}
    return {"type": "function", "function": function | ({"strict": True} if tool.strict else {})}


def _choice(choice: object) -> str:
    if choice is None:
        return "auto"
    if isinstance(choice, str) and choice in ("auto", "none", "required"):
        return choice
    name = string(mapping(mapping(choice).get("function")).get("name"))
    if name is None:
        raise Untranslatable("this tool_choice")
    return f"tool:{name}"


def _choice_written(choice: str) -> Any:
    name = choice.removeprefix("tool:")
    return choice if name == choice else {"type": "function", "function": {"name": name}}
