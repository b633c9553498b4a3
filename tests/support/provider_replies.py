"""Replies of a provider on the three wires, whole or as the events of a stream, as the real ones send them.

What real providers do and simple stand-ins leave out: on the chat wire every chunk has `"usage": null` if
usage was asked for, and the counts come in a last chunk with `"choices": []`; a tool call comes in pieces
that are keyed by `index` and named once; Messages sends pings and counts its input in its first event; input
that was cached, input that was written to the cache and reasoning are counted under names of their own.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal

Wire = Literal["chat/completions", "responses", "messages"]
Json = dict[str, Any]
WIRES: tuple[Wire, ...] = ("chat/completions", "responses", "messages")
DONE = b"data: [DONE]\n\n"
CREATED = 1_700_000_000


@dataclass(frozen=True)
class Tokens:
    """Tokens of one request: input that was not cached, read from the cache, written to it; output.

    `reasoning`, `audio_out`, `image_out` are parts of `output`, `audio_in` and `image_in` of `fresh`,
    `written_hour` of `written`: kept for an hour. service_tier, speed: in which the request was served, ""
    where the provider says nothing of it. searches: calls of its web search.
    """

    fresh: int
    cached: int
    written: int
    output: int
    reasoning: int = 0
    written_hour: int = 0
    audio_in: int = 0
    image_in: int = 0
    audio_out: int = 0
    image_out: int = 0
    service_tier: str = ""
    speed: str = ""
    searches: int = 0


@dataclass(frozen=True)
class Said:
    """What a model says to one request.

    words: its answer, one event each and one token each. reasoning: words of reasoning before the answer,
    shown on the chat wire. hidden: further tokens of reasoning, shown on no wire. calls: name and arguments
    (JSON) of the tools that it calls. logprob: log-probability of every word, sent where asked for; None: it
    sends none. refusal: what it says instead of an answer, on the chat wire. output: tokens that are counted
    and billed, if not one for each word. searches: web searches that it makes where it may.
    mark: the end of the ids of its tool calls, so that those
    of two answers differ.
    """

    words: tuple[str, ...]
    reasoning: tuple[str, ...] = ()
    hidden: int = 0
    calls: tuple[tuple[str, str], ...] = ()
    logprob: float | None = None
    finish: Literal["stop", "length"] = "stop"
    output: int | None = None
    mark: str = ""
    refusal: str | None = None
    searches: int = 0

    @property
    def text(self) -> str:
        return "".join(self.words)

    @property
    def tokens(self) -> int:
        """Output tokens that are billed if the answer is written to its end."""
        thought = len(self.reasoning) + self.hidden
        return thought + len(self.words) + 8 * len(self.calls) if self.output is None else self.output


@dataclass(frozen=True)
class Shape:
    """How an answer is to be sent: its wire, the model's name, and what the request asked for."""

    wire: Wire
    model: str
    usage: bool = True
    chances: bool = False
    copies: int = 1
    pings: bool = True
    service_tier: str = ""
    searches: int = 0


Lie = Callable[[Json], object]
"""What a provider says its token counts are, made of the true ones."""


def counts(wire: Wire, tokens: Tokens, lie: Lie | None = None) -> Any:
    """The member `usage` of a reply, true unless there is a `lie`."""
    read = tokens.fresh + tokens.cached + tokens.written
    usage: Json
    if wire == "chat/completions":
        usage = {
            "prompt_tokens": read,
            "completion_tokens": tokens.output,
            "total_tokens": read + tokens.output,
            "prompt_tokens_details": {"cached_tokens": tokens.cached, "audio_tokens": tokens.audio_in},
            "completion_tokens_details": {
                "reasoning_tokens": tokens.reasoning,
                "audio_tokens": tokens.audio_out,
            },
        }
        if tokens.written:
            usage["prompt_tokens_details"]["cache_write_tokens"] = tokens.written
            usage["cache_creation"] = _kept(tokens)
        if tokens.searches:
            usage["num_search_queries"] = tokens.searches
    elif wire == "responses":
        usage = {
            "input_tokens": read,
            "input_tokens_details": {"cached_tokens": tokens.cached},
            "output_tokens": tokens.output,
            "output_tokens_details": {"reasoning_tokens": tokens.reasoning},
            "total_tokens": read + tokens.output,
        }
        if tokens.audio_in or tokens.audio_out:
            usage["input_tokens_details"]["audio_tokens"] = tokens.audio_in
            usage["output_tokens_details"]["audio_tokens"] = tokens.audio_out
        if tokens.written:
            usage["input_tokens_details"]["cache_write_tokens"] = tokens.written
            usage["cache_creation"] = _kept(tokens)
    else:
        usage = {
            "input_tokens": tokens.fresh,
            "cache_creation_input_tokens": tokens.written,
            "cache_read_input_tokens": tokens.cached,
            "output_tokens": tokens.output,
        }
        if tokens.written:
            usage["cache_creation"] = _kept(tokens)
        if tokens.searches:
            usage["server_tool_use"] = {"web_search_requests": tokens.searches, "web_fetch_requests": 0}
        if tokens.service_tier:
            usage["service_tier"] = tokens.service_tier
        if tokens.audio_in or tokens.audio_out:
            usage["input_tokens_details"] = {"audio_tokens": tokens.audio_in}
            usage["output_tokens_details"] = {"audio_tokens": tokens.audio_out}
    if tokens.speed:
        usage["speed"] = tokens.speed
    if tokens.image_in or tokens.image_out:
        for side, count in (("prompt", tokens.image_in), ("completion", tokens.image_out)):
            name = side if wire == "chat/completions" else {"prompt": "input", "completion": "output"}[side]
            usage.setdefault(f"{name}_tokens_details", {})["image_tokens"] = count
    return usage if lie is None else lie(usage)


def _kept(tokens: Tokens) -> Json:
    """How long input that was written to the cache is kept."""
    hour = tokens.written_hour
    return {"ephemeral_5m_input_tokens": tokens.written - hour, "ephemeral_1h_input_tokens": hour}


def whole(shape: Shape, said: Said, usage: Any) -> bytes:
    """A whole answer, with odd spacing so that rewriting it would be noticed."""
    make = {"chat/completions": _chat_whole, "responses": _response, "messages": _message}[shape.wire]
    return json.dumps(make(shape, said, usage), indent=1).encode()


def _finish(said: Said) -> str:
    return "tool_calls" if said.calls else said.finish


def _chances(said: Said, words: tuple[str, ...]) -> Json:
    return {"content": [{"token": word, "logprob": said.logprob, "top_logprobs": []} for word in words]}


def _chat_whole(shape: Shape, said: Said, usage: Any) -> Json:
    message: Json = {"role": "assistant", "content": said.text if said.words else None}
    message["refusal"] = said.refusal
    if said.reasoning:
        message["reasoning_content"] = "".join(said.reasoning)
    if said.calls:
        message["tool_calls"] = [
            {
                "id": f"call_{i}{said.mark}",
                "type": "function",
                "function": {"name": name, "arguments": arguments},
            }
            for i, (name, arguments) in enumerate(said.calls)
        ]
    chances = _chances(said, said.words) if shape.chances and said.logprob is not None else None
    choices = [
        {"index": i, "message": message, "logprobs": chances, "finish_reason": _finish(said)}
        for i in range(shape.copies)
    ]
    head = {"id": "chatcmpl-1", "object": "chat.completion", "created": CREATED, "model": shape.model}
    return {**head, "choices": choices, "usage": usage, **_tier(shape)}


def _tier(shape: Shape) -> Json:
    return {"service_tier": shape.service_tier} if shape.service_tier else {}


def _response(shape: Shape, said: Said, usage: Any, status: str = "completed") -> Json:
    output: list[Json] = []
    if said.reasoning or said.hidden:
        output.append({"type": "reasoning", "id": "rs_1", "summary": []})
    if said.words:
        content = [{"type": "output_text", "text": said.text, "annotations": []}]
        output.append(_item("msg_1", "message", role="assistant", content=content))
    for i, (name, arguments) in enumerate(said.calls):
        output.append(
            _item(f"fc_{i}", "function_call", call_id=f"call_{i}{said.mark}", name=name, arguments=arguments)
        )
    head = {"id": "resp_1", "object": "response", "created_at": CREATED, "model": shape.model}
    if status == "completed":
        output += [_item(f"ws_{i}", "web_search_call") for i in range(shape.searches)]
    return {**head, "status": status, "output": output, "usage": usage, **_tier(shape)}


def _item(id_: str, kind: str, status: str = "completed", **more: Any) -> Json:
    return {"type": kind, "id": id_, "status": status, **more}


def _message(shape: Shape, said: Said, usage: Any) -> Json:
    blocks: list[Json] = [{"type": "text", "text": said.text}] if said.words else []
    if said.reasoning or said.hidden:
        blocks.insert(0, {"type": "thinking", "thinking": "".join(said.reasoning), "signature": "x"})
    for i, (name, arguments) in enumerate(said.calls):
        blocks.append(
            {"type": "tool_use", "id": f"toolu_{i}{said.mark}", "name": name, "input": json.loads(arguments)}
        )
    stop = "tool_use" if said.calls else {"stop": "end_turn", "length": "max_tokens"}[said.finish]
    head = {"id": "msg_1", "type": "message", "role": "assistant", "model": shape.model}
    return {**head, "content": blocks, "stop_reason": stop, "stop_sequence": None, "usage": usage}


def event(name: str | None, value: Json) -> bytes:
    """One event of a stream, with the line ends that some providers use."""
    head = f"event: {name}\r\n" if name else ""
    return f"{head}data: {json.dumps(value)}\r\n\r\n".encode()


@lru_cache(maxsize=4096)
def events(shape: Shape, said: Said, tokens: Tokens, lie: Lie | None = None) -> tuple[tuple[bytes, int], ...]:
    """The events of a streamed answer, each with the output tokens written once it is sent."""
    make = {"chat/completions": _chat, "responses": _responses, "messages": _messages}[shape.wire]
    return tuple(make(shape, said, tokens, lie))


Events = Iterator[tuple[bytes, int]]


def chat_chunk(shape: Shape, choices: list[Json], usage: Any = None) -> bytes:
    """One chunk of the chat wire; `"usage": null` if counts were asked for and are not in this chunk."""
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": CREATED, "model": shape.model}
    told = {"usage": usage} if shape.usage else {}
    return event(None, {**head, "choices": choices, **told, **_tier(shape)})


def chat_word(shape: Shape, delta: Json, finish: str | None = None, chances: Json | None = None) -> bytes:
    """A chunk with a change of the first choice."""
    choice = {"index": 0, "delta": delta, "logprobs": chances, "finish_reason": finish}
    return chat_chunk(shape, [choice])


def _chat(shape: Shape, said: Said, tokens: Tokens, lie: Lie | None) -> Events:
    done = said.hidden
    yield chat_word(shape, {"role": "assistant", "content": "", "refusal": None}), done
    for word in said.reasoning:
        yield chat_word(shape, {"reasoning_content": word}), (done := done + 1)
    for word in said.words:
        told = _chances(said, (word,)) if shape.chances and said.logprob is not None else None
        yield chat_word(shape, {"content": word}, chances=told), (done := done + 1)
    if said.refusal is not None:
        yield chat_word(shape, {"refusal": said.refusal}), done
    for i, (name, arguments) in enumerate(said.calls):
        first = {"index": i, "id": f"call_{i}{said.mark}", "type": "function"}
        yield chat_word(shape, {"tool_calls": [{**first, "function": {"name": name, "arguments": ""}}]}), done
        for part in _halves(arguments):
            piece = {"index": i, "function": {"arguments": part}}
            yield chat_word(shape, {"tool_calls": [piece]}), (done := done + 4)
    yield chat_word(shape, {}, _finish(said)), tokens.output
    if shape.usage:
        yield chat_chunk(shape, [], counts(shape.wire, tokens, lie)), tokens.output
    yield DONE, tokens.output


def _halves(text: str) -> tuple[str, str]:
    return text[: len(text) // 2], text[len(text) // 2 :]


def _responses(shape: Shape, said: Said, tokens: Tokens, lie: Lie | None) -> Events:
    number = 0

    def one(kind: str, **rest: Any) -> bytes:
        nonlocal number
        number += 1
        return event(kind, {"type": kind, "sequence_number": number - 1, **rest})

    started = _response(shape, Said(()), None, "in_progress")
    done = len(said.reasoning) + said.hidden
    yield one("response.created", response=started), 0
    yield one("response.in_progress", response=started), 0
    at = 0
    if done:
        thought = {"type": "reasoning", "id": "rs_1", "summary": []}
        yield one("response.output_item.added", output_index=0, item=thought), done
        yield one("response.output_item.done", output_index=0, item=thought), done
        at = 1
    if said.words:
        item = _item("msg_1", "message", "in_progress", role="assistant", content=[])
        yield one("response.output_item.added", output_index=at, item=item), done
        place = {"item_id": "msg_1", "output_index": at, "content_index": 0}
        empty = {"type": "output_text", "text": "", "annotations": []}
        yield one("response.content_part.added", **place, part=empty), done
        for word in said.words:
            told = _chances(said, (word,))["content"] if shape.chances and said.logprob is not None else []
            yield one("response.output_text.delta", **place, delta=word, logprobs=told), (done := done + 1)
        yield one("response.output_text.done", **place, text=said.text), done
    for i, (name, arguments) in enumerate(said.calls):
        item = _item(
            f"fc_{i}", "function_call", "in_progress", call_id=f"call_{i}{said.mark}", name=name, arguments=""
        )
        here = {"item_id": f"fc_{i}", "output_index": at + i + bool(said.words)}
        yield one("response.output_item.added", output_index=here["output_index"], item=item), done
        for part in _halves(arguments):
            yield one("response.function_call_arguments.delta", **here, delta=part), (done := done + 4)
        yield one("response.function_call_arguments.done", **here, arguments=arguments), done
    answer = _response(shape, said, counts(shape.wire, tokens, lie))
    yield one("response.completed", response=answer), tokens.output


def _messages(shape: Shape, said: Said, tokens: Tokens, lie: Lie | None) -> Events:
    def one(kind: str, **rest: Any) -> bytes:
        return event(kind, {"type": kind, **rest})

    first = replace(tokens, output=1, reasoning=0, searches=0)
    start = {**_message(shape, Said(()), counts(shape.wire, first, lie)), "stop_reason": None}
    yield one("message_start", message=start), 0
    blocks: list[tuple[Json, list[Json], int]] = []
    if said.reasoning or said.hidden:
        thought = {"type": "thinking_delta", "thinking": "".join(said.reasoning)}
        empty = {"type": "thinking", "thinking": "", "signature": ""}
        blocks.append((empty, [thought], len(said.reasoning) + said.hidden))
    if said.words:
        texts: list[Json] = [{"type": "text_delta", "text": word} for word in said.words]
        blocks.append(({"type": "text", "text": ""}, texts, 1))
    for i, (name, arguments) in enumerate(said.calls):
        parts: list[Json] = [
            {"type": "input_json_delta", "partial_json": part} for part in _halves(arguments)
        ]
        blocks.append(
            ({"type": "tool_use", "id": f"toolu_{i}{said.mark}", "name": name, "input": {}}, parts, 4)
        )
    done = 0
    for index, (block, deltas, each) in enumerate(blocks):
        yield one("content_block_start", index=index, content_block=block), done
        if shape.pings and index == 0:
            yield one("ping"), done
        for delta in deltas:
            yield one("content_block_delta", index=index, delta=delta), (done := done + each)
        yield one("content_block_stop", index=index), done
    stop = _message(shape, said, None)["stop_reason"]
    usage = counts(shape.wire, tokens, lie)
    said_last = ("output_tokens", "server_tool_use", "output_tokens_details")
    ended = {name: usage[name] for name in said_last if name in usage} if lie is None else usage
    yield (
        one("message_delta", delta={"stop_reason": stop, "stop_sequence": None}, usage=ended),
        tokens.output,
    )
    yield one("message_stop"), tokens.output


def error(wire: str, status: int, message: str, code: str | None) -> bytes:
    """An error in the wire's own shape."""
    if wire == "messages":
        kind = {400: "invalid_request_error", 404: "not_found_error", 429: "rate_limit_error"}
        told = {"type": kind.get(status, "api_error"), "message": message}
        return json.dumps({"type": "error", "error": told}).encode()
    told = {"message": message, "type": "server_error" if status >= 500 else "invalid_request_error"}
    return json.dumps({"error": {**told, "param": None, "code": code}}).encode()
