"""Requests that go to another wire and back, and streams of one wire read on another, as property tests."""

from __future__ import annotations

import contextlib
import itertools
import json
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support import provider_replies
from tests.support.provider_replies import Said, Tokens
from tests.support.provider_replies import Shape as Sending

from pandora_router.wires.chat import completion
from pandora_router.wires.events import Frames, data_of
from pandora_router.wires.known import BY_NAME
from pandora_router.wires.look import LookLength
from pandora_router.wires.translation import (
    AnswerAbout,
    AnswerSchema,
    ImagePart,
    NeutralMessage,
    NeutralRequest,
    TextPart,
    ToolCall,
    ToolOffer,
    ToolResult,
    Untranslatable,
)
from pandora_router.wires.translator import NEAREST, Translator, marked, request_of, written
from pandora_router.wires.usage import usage_of
from pandora_router.wires.wire import Name

NAMES: tuple[Name, ...] = ("chat", "responses", "messages")
PAIRS = list(itertools.permutations(NAMES, 2))
PATHS: dict[Name, provider_replies.Wire] = {
    "chat": "chat/completions",
    "responses": "responses",
    "messages": "messages",
}
words = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=12).filter(str.strip)
names = st.from_regex(r"[a-z_]{1,12}", fullmatch=True)
texts = st.builds(TextPart, words)
images = st.sampled_from(
    [ImagePart("https://example.com/a.png"), ImagePart("data:image/png;base64,iVBORw0KGgo=")]
)
values = st.dictionaries(names, st.integers(-9, 9) | words | st.booleans(), max_size=3)
calls = st.builds(ToolCall, names, names, values.map(lambda value: orjson.dumps(value).decode()))
users = st.lists(texts | images, min_size=1, max_size=3).map(
    lambda parts: NeutralMessage("user", tuple(parts))
)


CLOSED = {
    "type": "object",
    "properties": {"a": {"type": "string"}, "b": {"type": "array", "items": {"type": "integer"}}},
    "required": ["a", "b"],
    "additionalProperties": False,
}
"""A schema that every strict mode takes."""
OPEN = {"type": "object", "properties": {"a": {"type": "string"}}}


@st.composite
def conversations(draw: st.DrawFn, wires: frozenset[Name]) -> tuple[NeutralMessage, ...]:
    """User, assistant with texts and then calls, results, and so on; the assistant is not the last."""
    shown = texts if "chat" in wires else texts | images
    failed = st.booleans() if wires == {"messages"} else st.just(False)
    results = st.builds(ToolResult, names, st.lists(shown, min_size=1, max_size=3).map(tuple), failed)
    turns: list[NeutralMessage] = [draw(users)]
    for _ in range(draw(st.integers(0, 3))):
        said = draw(st.lists(texts, max_size=2))
        called = draw(st.lists(calls, min_size=0 if said else 1, max_size=3))
        turns.append(NeutralMessage("assistant", (*said, *called)))
        if called:
            turns.append(NeutralMessage("tool", tuple(draw(st.lists(results, min_size=1, max_size=3)))))
        if not called or draw(st.booleans()):
            turns.append(draw(users))
    return tuple(turns)


@st.composite
def tools(draw: st.DrawFn) -> ToolOffer:
    strict = draw(st.booleans())
    return ToolOffer(
        draw(names), draw(words), CLOSED if strict else draw(st.sampled_from([CLOSED, OPEN])), strict
    )


def requests_on(*wires: Name) -> st.SearchStrategy[NeutralRequest]:
    """Requests of the subset that all of these wires can say."""
    shapes = [AnswerSchema(CLOSED)]
    if "messages" not in wires:
        shapes += [AnswerSchema(OPEN, "weather", strict=False), AnswerSchema(CLOSED, "weather")]
    efforts = ["low", "medium", "high"] + ([] if "messages" in wires else ["none", "minimal"])
    return st.builds(
        NeutralRequest,
        conversations(frozenset(wires)),
        system=st.just("") | words,
        tools=st.lists(tools(), min_size=1, max_size=2).map(tuple),
        choice=st.sampled_from(["auto", "required", "tool:look"]),
        parallel=st.booleans(),
        stream=st.booleans(),
        max_output=st.integers(1, 1000),
        temperature=st.none() | st.floats(0, 1),
        top_p=st.none() | st.floats(0, 1),
        stop=st.just(()) if "responses" in wires else st.lists(words, max_size=2).map(tuple),
        effort=st.none() | st.sampled_from(efforts),
        shape=st.none() | st.sampled_from(shapes),
    )


@pytest.mark.parametrize("through", NAMES)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_request_is_the_same_after_it_was_written_and_read_on_any_wire(
    through: Name, data: st.DataObject
) -> None:
    request = data.draw(requests_on(through))
    body = json.loads(orjson.dumps(written(request, through, "m")))
    assert request_of(through, body) == request
    BY_NAME[through].read(body)
    if through == "messages":
        assert request_of(through, marked(body)) == request


@pytest.mark.parametrize(("here", "there"), PAIRS)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_a_request_comes_back_from_another_wire_as_it_was(
    here: Name, there: Name, data: st.DataObject
) -> None:
    request = data.draw(requests_on(here, there))
    first = written(request, here, "m")
    crossed = written(request_of(here, first), there, "m")
    assert written(request_of(there, crossed), here, "m") == first


def test_stop_sequences_and_effort_cross_where_they_exist() -> None:
    request = NeutralRequest((NeutralMessage("user", (TextPart("hi"),)),), stop=("END",), max_output=5)
    assert request_of("messages", written(request, "messages", "m")).stop == ("END",)
    with pytest.raises(Untranslatable, match="stop sequences"):
        written(request, "responses", "m")
    thinking = NeutralRequest((NeutralMessage("user", (TextPart("hi"),)),), effort="low")
    assert request_of("responses", written(thinking, "responses", "m")).effort == "low"


@pytest.mark.parametrize(
    ("wire", "more"),
    [
        ("chat", {"n": 2}),
        ("chat", {"logprobs": True}),
        ("chat", {"seed": 7}),
        ("chat", {"seed": 0}),
        ("chat", {"response_format": {"type": "json_object"}}),
        ("chat", {"messages": [{"role": "user", "content": [{"type": "input_audio"}]}]}),
        ("chat", {"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "begun"}]}),
        ("responses", {"previous_response_id": "resp_1"}),
        ("responses", {"background": True}),
        ("responses", {"input": [{"type": "compaction", "encrypted_content": "x"}]}),
        ("responses", {"tool_choice": {"type": "web_search"}}),
        ("messages", {"top_k": 5}),
        ("messages", {"mcp_servers": [{"url": "x"}]}),
        ("messages", {"messages": [{"role": "user", "content": [{"type": "document"}]}]}),
    ],
)
def test_what_other_wires_cannot_say_is_named(wire: Name, more: dict[str, Any]) -> None:
    said = {"input": "hi"} if wire == "responses" else {"messages": [{"role": "user", "content": "hi"}]}
    with pytest.raises(Untranslatable):
        request_of(wire, {"model": "m", **said, **more})


def test_signatures_and_encrypted_reasoning_do_not_cross_and_tools_of_the_provider_are_named() -> None:
    thought = {"type": "thinking", "thinking": "hm", "signature": "SECRET"}
    body: dict[str, Any] = {
        "model": "m",
        "max_tokens": 9,
        "thinking": {"type": "adaptive"},
        "tools": [{"name": "web", "type": "web_search_20250305"}, {"name": "f", "input_schema": {}}],
        "messages": [
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": [thought, {"type": "text", "text": "ho"}]},
            {"role": "user", "content": "go on"},
        ],
    }
    request = request_of("messages", body)
    assert request.without == ("web",)
    assert [tool.name for tool in request.tools] == ["f"]
    for wire in ("chat", "responses"):
        assert b"SECRET" not in orjson.dumps(written(request, wire, "m"))  # type: ignore[arg-type]
    items = [
        {"role": "user", "content": "hi"},
        {"type": "reasoning", "encrypted_content": "SECRET", "summary": []},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "4"},
    ]
    for wire in ("chat", "messages"):
        asked = request_of("responses", {"model": "m", "input": items})
        assert b"SECRET" not in orjson.dumps(written(asked, wire, "m"))  # type: ignore[arg-type]


said_by = st.builds(
    Said,
    st.lists(words, max_size=4).map(tuple),
    st.lists(words, max_size=2).map(tuple),
    calls=st.lists(st.tuples(names, values.map(lambda value: json.dumps(value))), max_size=2).map(tuple),
    finish=st.sampled_from(["stop", "length"]),
)
TOKENS = Tokens(11, 5, 0, 9, 2)


def stream_of(wire: Name, said: Said) -> list[bytes]:
    return [frame for frame, _ in provider_replies.events(Sending(PATHS[wire], "m"), said, TOKENS)]


def translator(came: Name, goes: Name) -> Translator:
    return Translator(BY_NAME[came], BY_NAME[goes], AnswerAbout("1", 1))


def meaning(wire: Name, stream: bytes) -> tuple[str, list[tuple[str, Any]], int, int]:
    """Text, calls, cached and output tokens of a stream, read by the assembly of its wire."""
    frames = Frames().feed(stream)
    assembly = BY_NAME[wire].assembly()
    for frame in frames:
        data = data_of(frame)
        if data and data != b"[DONE]":
            assembly.add(data, json.loads(data))
    body = assembly.body()
    assert body is not None, stream
    answer = json.loads(body)
    usage = usage_of(answer)
    assert usage is not None
    if wire == "chat":
        message = answer["choices"][0]["message"]
        made = [call["function"] for call in message.get("tool_calls") or ()]
        text = message["content"] or ""
        called = [(call["name"], json.loads(call["arguments"])) for call in made]
    elif wire == "responses":
        texts = [item["content"][0]["text"] for item in answer["output"] if item["type"] == "message"]
        made = [item for item in answer["output"] if item["type"] == "function_call"]
        text, called = "".join(texts), [(item["name"], json.loads(item["arguments"])) for item in made]
    else:
        text = "".join(block["text"] for block in answer["content"] if block["type"] == "text")
        made = [block for block in answer["content"] if block["type"] == "tool_use"]
        called = [(block["name"], block["input"]) for block in made]
    return text, called, usage.cached, usage.output


@pytest.mark.parametrize(("came", "goes"), PAIRS)
@settings(max_examples=25, deadline=None)
@given(said=said_by, size=st.integers(1, 200))
def test_a_translated_stream_says_the_same_however_it_was_cut_into_pieces(
    came: Name, goes: Name, said: Said, size: int
) -> None:
    stream, machine = b"".join(stream_of(came, said)), translator(came, goes)
    pieces = [stream[i : i + size] for i in range(0, len(stream), size)]
    out = b"".join([*map(machine.feed, pieces), machine.end()])
    expected = said.text, [(name, json.loads(arguments)) for name, arguments in said.calls]
    assert meaning(goes, out) == (*expected, TOKENS.cached, TOKENS.output)


@pytest.mark.parametrize(("came", "goes"), PAIRS)
@settings(max_examples=25, deadline=None)
@given(said=said_by)
def test_a_whole_answer_says_the_same_as_its_stream(came: Name, goes: Name, said: Said) -> None:
    usage = provider_replies.counts(PATHS[came], TOKENS)
    whole = provider_replies.whole(Sending(PATHS[came], "m"), said, usage)
    machine = translator(came, goes)
    streamed = b"".join([*map(machine.feed, stream_of(came, said)), machine.end()])
    first = meaning(goes, streamed)
    answer = json.loads(translator(came, goes).whole(whole))
    unrolled = translator(goes, goes)
    again = b"".join(
        [*(unrolled._event(event) for event in unrolled._reader.unrolled(answer)), unrolled.end()]
    )
    assert meaning(goes, again) == first


MEMBERS = [
    "type", "index", "delta", "content", "choices", "item", "response", "output", "usage", "content_block",
    "message", "tool_calls", "function", "name", "output_index", "error", "arguments", "call_id", "id",
]  # fmt: skip
KINDS = [
    "message_start", "content_block_start", "content_block_delta", "content_block_stop", "message_delta",
    "response.created", "response.output_item.added", "response.output_item.done", "response.completed",
    "response.output_text.delta", "response.function_call_arguments.delta", "response.new", "error", "ping",
]  # fmt: skip
ASKED = [
    "messages", "input", "tools", "tool_choice", "stop", "stop_sequences", "text", "reasoning", "system",
    "response_format", "output_config", "instructions", "temperature", "metadata", "parallel_tool_calls",
]  # fmt: skip
junk = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(MEMBERS), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.parametrize(("came", "goes"), PAIRS)
@settings(max_examples=60, deadline=None)
@given(
    said=said_by,
    cut=st.integers(0, 5000),
    odd=st.lists(st.tuples(st.integers(0, 20), st.sampled_from(KINDS), junk), max_size=3),
)
def test_streams_that_are_cut_or_strange_end_in_events_or_in_the_one_declared_error(
    came: Name, goes: Name, said: Said, cut: int, odd: list[tuple[int, str, Any]]
) -> None:
    frames = stream_of(came, said)
    for place, kind, value in odd:
        members = value if isinstance(value, dict) else {"delta": value}
        frames.insert(place, b"data: " + json.dumps({"type": kind, **members}).encode() + b"\n\n")
    stream = b"".join(frames)[:cut]
    machine = translator(came, goes)
    try:
        out = machine.feed(stream) + machine.end()
    except Untranslatable:
        out = machine.fail("broke")
    assert out.endswith(b"\n\n")
    for frame in Frames().feed(out):
        data = data_of(frame)
        assert data == b"[DONE]" or isinstance(json.loads(data), dict)


@pytest.mark.parametrize(("came", "goes"), PAIRS)
@given(value=junk, member=st.sampled_from(ASKED))
@settings(max_examples=60, deadline=None)
def test_strange_whole_answers_and_requests_raise_the_one_declared_error(
    came: Name, goes: Name, value: Any, member: str
) -> None:
    plain = {"model": "m", "messages": [{"role": "user", "content": "x"}], "input": "x"}
    for attempt in (
        lambda: translator(came, goes).whole(json.dumps(value).encode()),
        lambda: request_of(came, {**plain, member: value}),
        lambda: written(request_of(came, {**plain, member: [value]}), goes, "m"),
    ):
        with contextlib.suppress(Untranslatable):
            attempt()


def chunks(*deltas: dict[str, Any], finish: str = "stop") -> bytes:
    """A stream of chat completions with these deltas."""
    made = [{"choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    made.append({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
    made.append({"choices": [], "usage": provider_replies.counts("chat/completions", TOKENS)})
    return b"".join(
        b"data: " + json.dumps({"id": "c", "model": "m", **one}).encode() + b"\n\n" for one in made
    )


def called(index: int | None, id_: str | None, name: str | None, arguments: str) -> dict[str, Any]:
    """A delta with a piece of a tool call."""
    function = {"arguments": arguments} | ({"name": name} if name else {})
    numbered = {} if index is None else {"index": index}
    return {
        "tool_calls": [numbered | ({"id": id_} if id_ else {}) | {"type": "function", "function": function}]
    }


TWICE = [("look", {"x": 1}), ("look", {"x": 2})]
ODD_NUMBERS = {
    "all are number 0": (called(0, "a", "look", '{"x": 1}'), called(0, "b", "look", '{"x": 2}')),
    "none has a number": (called(None, "a", "look", '{"x": 1}'), called(None, "b", "look", '{"x": 2}')),
    "in pieces": (
        called(0, "a", "look", ""), called(0, None, None, '{"x": '), called(0, None, None, "1}"),
        called(0, "b", "look", '{"x"'), called(0, None, None, ": 2}"),
    ),
    "another id and the name in every piece": (
        called(0, "a", "look", '{"x": '), called(0, "a2", "look", "1}"),
        called(1, "b", "look", '{"x": '), called(1, "b2", "look", "2}"),
    ),
}  # fmt: skip
"""How providers number parallel tool calls, apart from the way of the reference."""


@pytest.mark.parametrize("goes", ["responses", "messages"])
@pytest.mark.parametrize("how", ODD_NUMBERS)
def test_parallel_calls_are_told_apart_however_they_are_numbered(goes: Name, how: str) -> None:
    """Their finish reason is `stop`, as of some providers: clients of the others are told of the calls."""
    machine = translator("chat", goes)
    out = machine.feed(chunks(*ODD_NUMBERS[how])) + machine.end()
    assert meaning(goes, out)[1] == TWICE
    assert goes != "messages" or b'"stop_reason":"tool_use"' in out
    assert meaning("chat", chunks(*ODD_NUMBERS[how]))[1] == TWICE


PARTS = (
    {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}]},
    {"content": [{"type": "text", "text": "It is"}]},
    {"content": " here"},
)


@pytest.mark.parametrize("goes", ["responses", "messages"])
def test_content_in_parts_is_read(goes: Name) -> None:
    machine = translator("chat", goes)
    assert meaning(goes, machine.feed(chunks(*PARTS)) + machine.end())[0] == "It is here"
    whole = {"content": [part for delta in PARTS for part in delta["content"] if isinstance(part, dict)]}
    answer = {"choices": [{"index": 0, "message": whole, "finish_reason": "stop"}]}
    assert b"It is" in translator("chat", goes).whole(json.dumps(answer).encode())
    assert completion(answer, LookLength()).text == "It is"
    assert completion(answer, LookLength()).glimpse.context == "Hm."


def test_a_refusal_is_told_as_such() -> None:
    machine = translator("chat", "messages")
    out = machine.feed(chunks({"refusal": "I will not."})) + machine.end()
    assert b'"stop_reason":"refusal"' in out
    assert b"I will not." in out


USER = NeutralMessage("user", (TextPart("hi"),))


def test_schemas_are_written_as_the_strict_mode_of_each_provider_wants_them() -> None:
    inner = {"type": "array", "items": {"type": "object", "properties": {"type": {"type": "string"}}}}
    asked = AnswerSchema({"type": "object", "properties": {"all": inner}}, strict=False)
    body = written(NeutralRequest((USER,), shape=asked), "messages", "m")
    schema = body["output_config"]["format"]["schema"]
    assert schema["additionalProperties"] is False
    assert schema["properties"]["all"]["items"]["additionalProperties"] is False
    assert schema["properties"]["all"]["items"]["properties"] == {"type": {"type": "string"}}
    back = request_of("messages", body).shape
    assert back is not None
    assert not back.strict  # Anthropic does not want all members required, and OpenAI's strict mode does
    for open_ in (
        {"type": "object"},
        {"type": "array", "items": {"type": "object", "additionalProperties": {}}},
    ):
        with pytest.raises(Untranslatable, match="any members"):
            written(NeutralRequest((USER,), shape=AnswerSchema(open_)), "messages", "m")


def test_texts_of_white_space_do_not_reach_a_provider_that_refuses_them() -> None:
    said = NeutralMessage("assistant", (TextPart("\n\n"), ToolCall("a", "look", "{}")))
    result = NeutralMessage("tool", (ToolResult("a", (TextPart(""), TextPart("ok"))),))
    messages = written(NeutralRequest((USER, said, result)), "messages", "m")["messages"]
    assert [[part["type"] for part in message["content"]] for message in messages[1:]] == [
        ["tool_use"], ["tool_result"],
    ]  # fmt: skip
    assert messages[2]["content"][0]["content"] == [{"type": "text", "text": "ok"}]


def test_images_in_the_results_of_tools_follow_them_on_the_chat_wire() -> None:
    """There the result of a tool is a text, and all results of one answer come before anything else."""
    image = ImagePart("https://example.com/a.png")
    said = NeutralMessage("assistant", (ToolCall("a", "look", "{}"), ToolCall("b", "look", "{}")))
    results = (ToolResult("a", (image,)), ToolResult("b", (TextPart("two"), TextPart("texts"))))
    body = written(NeutralRequest((USER, said, NeutralMessage("tool", results))), "chat", "m")
    assert [message["role"] for message in body["messages"]] == ["user", "assistant", "tool", "tool", "user"]
    assert "image" in body["messages"][2]["content"]
    assert body["messages"][3]["content"] == [
        {"type": "text", "text": "two"},
        {"type": "text", "text": "texts"},
    ]
    assert "tool call a" in body["messages"][4]["content"][0]["text"]
    assert body["messages"][4]["content"][1]["image_url"]["url"] == image.url


def test_each_wire_knows_the_two_others() -> None:
    assert all({name, *NEAREST[name]} == set(NAMES) for name in NAMES)


@pytest.mark.parametrize(
    ("item", "shown"),
    [
        ({"summary": [{"type": "summary_text", "text": t} for t in ("hm", "so")]}, "hm\n\nso"),
        ({"summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]}, "hm"),
    ],
    ids=["a summary, as OpenAI sends it", "the reasoning itself, as servers of open models send it"],
)
def test_reasoning_of_responses_reaches_chat_clients_whole_and_streamed(item: Any, shown: str) -> None:
    about, wires = AnswerAbout("a", 1), (BY_NAME["responses"], BY_NAME["chat"])
    thought = {"type": "reasoning", "id": "rs_1", **item}
    said = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "4"}]}
    answer = {"id": "resp_1", "model": "m", "status": "completed", "output": [thought, said], "usage": None}
    whole = json.loads(Translator(*wires, about).whole(orjson.dumps(answer)))["choices"][0]["message"]
    assert (whole["reasoning_content"], whole["content"]) == (shown, "4")
    kind = "summary_" if item["summary"] else ""
    parts = item["summary"] or item["content"]
    pieces = [(i, half) for i, part in enumerate(parts) for half in (part["text"][:1], part["text"][1:])]
    index = "summary_index" if item["summary"] else "content_index"
    stream = [
        {"type": "response.created", "response": {"id": "resp_1", "model": "m"}},
        *(
            {"type": f"response.reasoning_{kind}text.delta", "output_index": 0, index: i, "delta": more}
            for i, more in pieces
        ),
        {"type": "response.output_item.done", "output_index": 0, "item": thought},
        {"type": "response.output_text.delta", "output_index": 1, "content_index": 0, "delta": "4"},
        {"type": "response.completed", "response": answer},
    ]
    translator = Translator(*wires, about)
    made = translator.feed(b"".join(b"data: " + orjson.dumps(event) + b"\n\n" for event in stream))
    deltas = [
        json.loads(line[6:])["choices"][0]["delta"]
        for line in (made + translator.end()).split(b"\n")
        if line.startswith(b"data: {") and b'"delta"' in line
    ]
    assert "".join(delta.get("reasoning_content") or "" for delta in deltas) == shown
    assert "".join(delta.get("content") or "" for delta in deltas) == "4"
