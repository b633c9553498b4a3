"""OpenAI's chat completions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from pandora_router.wires.events import framed, joined, parsed
from pandora_router.wires.json_text import Json, dumped, mapping, objects, string, wrong
from pandora_router.wires.look import Glimpse, LookLength, called, keep
from pandora_router.wires.usage import usage_of
from pandora_router.wires.wire import (
    COMMENT,
    OPENAI,
    SAMPLING,
    SYSTEM,
    Name,
    Piece,
    Spoken,
    Turn,
    WireAnswer,
    messages_of,
    openai_error,
    texts_of,
    turn_of,
    turns_of,
    with_system,
)


class Chat:
    """OpenAI's chat completions."""

    name: ClassVar[Name] = "chat"
    path: ClassVar[str] = "/v1/chat/completions"
    stored: ClassVar[bool] = False
    logprobs: ClassVar[bool] = True
    ping: ClassVar[bytes] = COMMENT
    members: ClassVar[frozenset[str]] = frozenset(
        SAMPLING
        | OPENAI
        | {
            "messages", "max_tokens", "max_completion_tokens", "n", "stream_options", "stop", "seed",
            "logprobs", "logit_bias", "presence_penalty", "frequency_penalty", "response_format",
            "reasoning_effort", "functions", "function_call", "verbosity",
        }
    )  # fmt: skip

    def read(self, body: Json) -> Turn:
        """Read a request; raises `UsageError` if it is not valid on this wire."""
        items = messages_of(body)
        texts = Spoken(
            users=texts_of(items, ("user",)),
            system=texts_of(items, SYSTEM),
            items=items,
            continues=any(item.get("role") in ("assistant", "tool", "function") for item in items),
            shape=body.get("response_format"),
        )
        options = body.get("stream_options")
        if not isinstance(options, Mapping | None):
            raise wrong("stream_options", "an object", options)
        return turn_of(body, texts, wants_usage=bool(mapping(options).get("include_usage")))

    def conversation(self, body: Json) -> list[tuple[str, str]]:
        """Role and text of each turn of a request, its system prompt first."""
        return with_system(string(body.get("instructions")), turns_of(body.get("messages")))

    def hides(self, body: Json) -> bool:
        """Whether a request asks for reasoning, which hosted models write first and hide."""
        return body.get("reasoning_effort") not in (None, "none")

    def counted(self, body: Json) -> dict[str, Any]:
        """Usage must be requested."""
        return {"stream_options": {**(body.get("stream_options") or {}), "include_usage": True}}

    def key_headers(self, key: str | None) -> dict[str, str]:
        """The key as a bearer token."""
        return {} if key is None else {"Authorization": f"Bearer {key}"}

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
        counting = next((one for one in (event, *choices) if isinstance(one.get("usage"), Mapping)), event)
        usage = counted = usage_of(counting)  # Moonshot counts in the last choice
        if usage is None and event.get("service_tier"):  # some state it only in events without counts
            usage = usage_of({**event, "usage": {}})
        last = not choices or any(choice.get("finish_reason") is not None for choice in choices)
        return Piece(content=content, usage=usage, only_usage=counted is not None and not choices, last=last)

    def error(self, status: int, message: str, code: str) -> dict[str, Any]:
        """An error in the format of this wire."""
        return openai_error(status, message, code)

    def failure(self, message: str) -> list[tuple[str | None, dict[str, Any]]]:
        """One error event, without [DONE] after it, so that the answer does not look complete."""
        return [(None, self.error(502, message, "upstream_failed"))]

    def show(self, event: Json, glimpse: Glimpse) -> None:
        """Add to a look what one event of a stream shows."""
        for choice in objects(event.get("choices")):
            if choice.get("index", 0) != 0:
                continue
            delta = mapping(choice.get("delta"))
            thought, text = said(delta)
            keep(glimpse.reasoning, thought)
            keep(glimpse.text, text or choice.get("text"))
            keep(glimpse.text, delta.get("refusal"))
            for call in objects(delta.get("tool_calls")):
                function = mapping(call.get("function"))
                called(glimpse.text, function.get("name"), function.get("arguments"))
            for token in objects(mapping(choice.get("logprobs")).get("content")):
                glimpse.chance(token)
            glimpse.finished = glimpse.finished or choice.get("finish_reason") is not None

    def assembly(self) -> ChatAssembly:
        """A new assembly of a completion from its chunks."""
        return ChatAssembly()

    def speech(self) -> ChatSpeech:
        """A new writer of one answer."""
        return ChatSpeech()


def said(message: Json) -> tuple[str, str]:
    """Reasoning and text of a message, or of a delta; its content may be a list of parts (Mistral).

    >>> said({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}]})
    ('Hm.', '')
    """
    content, thought = message.get("content"), message.get("reasoning_content") or message.get("reasoning")
    thought, text = string(thought) or "", string(content) or ""
    for part in objects(content):
        text += (string(part.get("text")) or "") if part.get("type") == "text" else ""
        inner = part.get("thinking") if part.get("type") == "thinking" else None
        thought += string(inner) or "".join(string(one.get("text")) or "" for one in objects(inner))
    return thought, text


@dataclass
class CallNumbers:
    """Numbers the tool calls of one streamed answer.

    Pieces of a call have its `index`, and the first of them its name. Some providers number all calls 0, or
    none: a piece with another id begins the next call if it has another name, or if the arguments before it
    are complete.
    """

    _ids: list[tuple[object, object]] = field(default_factory=list)
    _arguments: list[list[str]] = field(default_factory=list)
    _last: dict[object, int] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """How many calls there are."""
        return len(self._ids)

    def of(self, piece: Json) -> int:
        """The number of the call that this piece belongs to."""
        function, index = mapping(piece.get("function")), piece.get("index")
        key = index if isinstance(index, int) else None
        id_, name = string(piece.get("id")), string(function.get("name"))
        number = self._last.get(key)
        if number is None or (id_ and name and self._ended(number, id_, name)):
            number = self._last[key] = len(self._ids)
            self._ids.append((id_, name))
            self._arguments.append([])
        keep(self._arguments[number], function.get("arguments"))
        return number

    def _ended(self, number: int, id_: str, name: str) -> bool:
        before, called = self._ids[number]
        if before in (None, id_):
            return False
        pieces = self._arguments[number]
        if name != called or not pieces or not pieces[-1].endswith("}"):
            return name != called
        return parsed("".join(pieces).encode()) is not None


class ChatAssembly:
    """A chat completion from its chunks."""

    def __init__(self) -> None:
        self._head: dict[str, Any] = {}
        self._choices: dict[int, dict[str, Any]] = {}
        self._calls: dict[int, CallNumbers] = {}

    def add(self, data: bytes, event: dict[str, Any]) -> None:
        """Take one chunk."""
        self._head.update({k: v for k, v in event.items() if k != "choices" and v is not None})
        for piece in objects(event.get("choices")):
            index = piece.get("index")
            index = index if isinstance(index, int) else 0
            choice = self._choices.setdefault(index, {"index": index, "message": {}, "finish_reason": None})
            delta = dict(mapping(piece.get("delta")))
            if calls := list(objects(delta.get("tool_calls"))):
                numbers = self._calls.setdefault(index, CallNumbers())
                delta["tool_calls"] = [{**call, "index": numbers.of(call)} for call in calls]
            joined(choice["message"], delta)
            joined(choice, {k: v for k, v in piece.items() if k not in ("delta", "index") and v is not None})

    def body(self) -> bytes | None:
        """The completion, once every choice has its finish reason."""
        reply = self.reply()
        if not reply["choices"] or any(choice["finish_reason"] is None for choice in reply["choices"]):
            return None
        for choice in reply["choices"]:
            message = choice["message"]
            message.setdefault("role", "assistant")
            message.setdefault("content", None)
            if message["content"] == "" and message.get("tool_calls"):
                message["content"] = None
            for call in message.get("tool_calls") or ():
                call.pop("index", None)
            choice.setdefault("logprobs", None)
        return dumped(reply)

    def reply(self) -> dict[str, Any]:
        """What has arrived so far, in the form of a reply without streaming."""
        choices = [self._choices[index] for index in sorted(self._choices)]
        head = {**self._head, "object": "chat.completion"}
        usage = {"usage": head.pop("usage")} if "usage" in head else {}
        return {**head, "choices": choices, **usage}


@dataclass(frozen=True)
class Completion:
    """What a chat completion, or the completion of a text, says; of several choices the first.

    text: the answer, and after it the tool calls, each on a line of its own, as a look shows them. finish:
    the provider's reason for its end, or None. glimpse: what a look at it shows.
    """

    text: str
    refusal: str
    finish: str | None
    glimpse: Glimpse


def completion(reply: Json, peek: LookLength) -> Completion:
    """Read a complete reply, or what has arrived of it; raises `ValueError` if it holds no completion."""
    try:
        choice = reply["choices"][0]
        message = {"content": choice["text"]} if "text" in choice else choice["message"]
        content, refusal = message.get("content") or "", message.get("refusal") or ""
    except (KeyError, IndexError, TypeError, AttributeError):
        raise ValueError("the reply holds no chat completion") from None
    if not isinstance(content, str | list) or not isinstance(refusal, str):
        raise ValueError("the reply holds no chat completion")
    text = said(message)[1]
    glimpse, parts = Glimpse(peek), [text]
    Chat().show({"choices": [{**choice, "index": 0, "delta": message}]}, glimpse)
    for call in objects(message.get("tool_calls")):
        function = mapping(call.get("function"))
        called(parts, function.get("name"), function.get("arguments"))
    return Completion("".join(parts), refusal, string(choice.get("finish_reason")), glimpse)


class ChatSpeech:
    """Chat completions."""

    def whole(self, answer: WireAnswer) -> dict[str, Any]:
        """One choice with its message."""
        message = {"role": "assistant", "content": answer.text, "refusal": None}
        choice = {
            "index": 0,
            "message": message,
            "finish_reason": _finish(answer),
            "logprobs": _chances(answer),
        }
        return self._about(answer, "chat.completion") | {"choices": [choice], "usage": _openai_usage(answer)}

    def head(self, answer: WireAnswer) -> bytes:
        """The chunk that names the role, with log-probabilities of the first tokens where there are any."""
        return self._chunk(answer, {"role": "assistant", "content": ""}, None)

    def delta(self, answer: WireAnswer, text: str) -> bytes:
        """One chunk."""
        return self._chunk(answer, {"content": text}, None)

    def tail(self, answer: WireAnswer, *, usage: bool) -> bytes:
        """The finish reason, the usage chunk if it was asked for, [DONE]."""
        counts = {
            **self._about(answer, "chat.completion.chunk"),
            "choices": [],
            "usage": _openai_usage(answer),
        }
        counted = framed(None, counts) if usage else b""
        return self._chunk(answer, {}, _finish(answer)) + counted + b"data: [DONE]\n\n"

    def _about(self, answer: WireAnswer, kind: str) -> dict[str, Any]:
        return {
            "id": f"chatcmpl-{answer.id}",
            "object": kind,
            "created": answer.created,
            "model": answer.model,
        }

    def _chunk(self, answer: WireAnswer, delta: dict[str, Any], finish: str | None) -> bytes:
        chances = _chances(answer) if "role" in delta else None
        choice = {"index": 0, "delta": delta, "finish_reason": finish, "logprobs": chances}
        return framed(None, {**self._about(answer, "chat.completion.chunk"), "choices": [choice]})


def _finish(answer: WireAnswer) -> str:
    return "length" if answer.truncated else "stop"


def _chances(answer: WireAnswer) -> dict[str, Any] | None:
    if not answer.logprobs:
        return None
    texts = [answer.first, *("" for _ in answer.logprobs[1:])]  # where one token ends is not known here
    tokens = zip(texts, answer.logprobs, strict=True)
    return {"content": [{"token": text, "logprob": chance, "top_logprobs": []} for text, chance in tokens]}


def _openai_usage(answer: WireAnswer) -> dict[str, int]:
    whole = answer.tokens_in + answer.tokens_out
    return {"prompt_tokens": answer.tokens_in, "completion_tokens": answer.tokens_out, "total_tokens": whole}
