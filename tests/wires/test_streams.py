"""Whole answers put together from streams: against what the public references of the wires say they are."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from tests.support.provider_replies import Said, Shape, Tokens
from tests.support.provider_replies import events as provider_events

from pandora_router.wires.events import assembled, data_of, parsed, without_chances
from pandora_router.wires.known import BY_NAME
from pandora_router.wires.look import Glimpse, LookLength, lookable


def whole_of(wire: str, stream: list[bytes]) -> bytes:
    whole = assembled(BY_NAME[wire].assembly(), b"".join(stream))
    assert whole is not None
    return whole


def glimpse(wire: str, length: LookLength, *events: dict[str, Any]) -> Glimpse:
    seen = Glimpse(length)
    for event in events:
        BY_NAME[wire].show(event, seen)
    return seen


def frames(*events: dict[str, Any]) -> list[bytes]:
    return [f"data: {json.dumps(event)}\r\n\r\n".encode() for event in events]


def chunk(delta: dict[str, Any], finish: str | None = None, index: int = 0, **more: Any) -> dict[str, Any]:
    choice = {"index": index, "delta": delta, "finish_reason": finish, **more}
    return {"id": "c", "object": "chat.completion.chunk", "created": 5, "model": "m", "choices": [choice]}


def delta(index: int, kind: str, **more: Any) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": {"type": kind, **more}}


def test_tool_calls_of_a_chat_stream_are_joined_by_index() -> None:
    first = {"index": 0, "id": "a", "type": "function", "function": {"name": "add", "arguments": ""}}
    second = {"index": 1, "id": "b", "type": "function", "function": {"name": "sub", "arguments": "{"}}
    stream = frames(
        chunk({"role": "assistant", "content": None}),
        chunk({"tool_calls": [first]}),
        chunk({"tool_calls": [{"index": 0, "function": {"arguments": '{"x"'}}]}),
        chunk({"tool_calls": [second]}),
        chunk({"tool_calls": [{"index": 0, "function": {"arguments": ": 1}"}}]}),
        chunk({"tool_calls": [{"index": 1, "function": {"arguments": "}"}}]}),
        chunk({}, "tool_calls"),
        {"id": "c", "choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 9}},
    )
    answer = json.loads(whole_of("chat", [*stream, b": a comment\n\n", b"data: [DONE]\n\n"]))
    assert answer == {
        "id": "c",
        "object": "chat.completion",
        "created": 5,
        "model": "m",
        "choices": [
            {
                "index": 0,
                "message": {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [
                        {"id": "a", "type": "function", "function": {"name": "add", "arguments": '{"x": 1}'}},
                        {"id": "b", "type": "function", "function": {"name": "sub", "arguments": "{}"}},
                    ],
                },
                "finish_reason": "tool_calls",
                "logprobs": None,
            }
        ],
        "usage": {"prompt_tokens": 3, "completion_tokens": 9},
    }


def test_several_choices_and_unknown_members_survive() -> None:
    stream = frames(
        chunk({"role": "assistant", "content": "a", "mood": "gl"}, index=1),
        chunk({"role": "assistant", "content": "x"}, logprobs={"content": [{"token": "x"}]}),
        chunk({"content": "b", "mood": "ad"}, "stop", index=1),
        chunk({"content": "y"}, "length", logprobs={"content": [{"token": "y"}]}, extra={"k": 1}),
    )
    choices = json.loads(whole_of("chat", stream))["choices"]
    assert [one["message"]["content"] for one in choices] == ["xy", "ab"]
    assert choices[1]["message"]["mood"] == "glad"
    assert choices[0]["logprobs"] == {"content": [{"token": "x"}, {"token": "y"}]}
    assert (choices[0]["finish_reason"], choices[0]["extra"]) == ("length", {"k": 1})


@pytest.mark.parametrize("odd", [{}, [], "x", None, 1.5])
def test_a_choice_without_a_number_belongs_to_the_first(odd: Any) -> None:
    none = {"choices": odd}
    stream = frames(chunk({"content": "a"}), none, chunk({"content": "b"}, index=odd), chunk({}, "stop"))
    answer = json.loads(whole_of("chat", [*stream, b"data: [DONE]\n\n"]))
    assert [choice["message"]["content"] for choice in answer["choices"]] == ["ab"]


def test_blocks_of_a_message_are_joined() -> None:
    message = {"id": "m", "type": "message", "role": "assistant", "model": "c", "content": [],
               "stop_reason": None, "usage": {"input_tokens": 7, "output_tokens": 1}}  # fmt: skip
    kinds = [
        {"type": "message_start", "message": message},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": ""}},
        delta(0, "thinking_delta", thinking="hm"),
        delta(0, "signature_delta", signature="sig"),
        {"type": "content_block_stop", "index": 0},
        {"type": "ping"},
        {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}},
        delta(1, "text_delta", text="Hel"),
        delta(1, "text_delta", text="lo"),
        delta(1, "citations_delta", citation={"n": 1}),
        {"type": "content_block_start", "index": 2,
         "content_block": {"type": "tool_use", "id": "t", "name": "add", "input": {}}},
        delta(2, "input_json_delta", partial_json='{"x"'),
        delta(2, "input_json_delta", partial_json=":1}"),
        {"type": "message_delta", "delta": {"stop_reason": "tool_use", "stop_sequence": None},
         "usage": {"output_tokens": 12}},
        {"type": "message_stop"},
    ]  # fmt: skip
    answer = json.loads(whole_of("messages", frames(*kinds)))
    assert answer["content"] == [
        {"type": "thinking", "thinking": "hm", "signature": "sig"},
        {"type": "text", "text": "Hello", "citations": [{"n": 1}]},
        {"type": "tool_use", "id": "t", "name": "add", "input": {"x": 1}},
    ]
    assert (answer["stop_reason"], answer["usage"]) == ("tool_use", {"input_tokens": 7, "output_tokens": 12})


def test_a_response_keeps_the_bytes_of_its_provider() -> None:
    raw = b'{ "id":"r",  "output" : [{"text":"a } \\" b"}], "n":1.50 }'
    last = b'event: response.completed\ndata: {"type":"response.completed", "response":' + raw + b"}\n\n"
    started = frames({"type": "response.created", "response": {"id": "r"}})
    assert whole_of("responses", [*started, last]) == raw


@pytest.mark.parametrize("wire", ["chat", "responses", "messages"])
def test_a_stream_without_its_end_is_no_answer(wire: Any) -> None:
    cut = {
        "chat": chunk({"content": "x"}),
        "responses": {"type": "response.output_text.delta", "delta": "x"},
        "messages": {"type": "message_start", "message": {"id": "m"}},
    }
    assert assembled(BY_NAME[wire].assembly(), b"".join(frames(cut[wire]))) is None


ODD: list[Any] = [None, True, 2.5, "x", 10**18, [], {}, [5], [None], {"index": {}}]
"""Values in place of those that a wire has."""


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every list or object inside a JSON value, with each of its indices or names."""
    inside = list(value.items() if isinstance(value, dict) else enumerate(value))
    deeper = [place for _, part in inside if isinstance(part, dict | list) for place in places(part)]
    return [(value, at) for at, _ in inside] + deeper


def spoiled(event: bytes, rng: random.Random) -> bytes:
    """The event, one time in four with another value at one place."""
    data = event.partition(b"data: ")[2]
    if rng.random() < 0.75 or not data.startswith(b"{"):
        return event
    value = json.loads(data)
    inside, at = rng.choice(places(value))
    inside[at] = rng.choice(ODD)
    return b"data: " + json.dumps(value).encode() + b"\n\n"


@pytest.mark.parametrize("wire", ["chat", "responses", "messages"])
def test_events_of_any_form_raise_nothing(wire: Any) -> None:
    """A provider's mistake is an incomplete answer or a look that shows less, never an error of ours."""
    path: Any = "chat/completions" if wire == "chat" else wire
    said = Said((" a", " b"), ("Hm.",), hidden=2, calls=(("f", '{"x": 1}'), ("g", "{}")), logprob=-0.2)
    whole = [event for event, _ in provider_events(Shape(path, "m", chances=True), said, Tokens(9, 2, 1, 9))]
    rng = random.Random(23)
    for _ in range(400):
        stream = [spoiled(event, rng) for event in whole]
        seen = Glimpse(LookLength(characters=400))
        for event in filter(None, (parsed(data_of(one)) for one in stream)):
            BY_NAME[wire].piece(event)
            BY_NAME[wire].show(event, seen)
        answer = assembled(BY_NAME[wire].assembly(), b"".join(stream))
        assert answer is None or isinstance(json.loads(answer), dict)


def test_only_log_probabilities_leave_an_event() -> None:
    kept = b'data: {"choices":[{"delta":{"content":"say \\"logprobs\\": {1}"},"x":1.50,"logprobs":null}]}\n\n'
    assert without_chances(kept) == kept
    told = b'{"content":[{"token":"}{\\"","logprob":-1.0,"top_logprobs":[{"token":"{"}]}]}'
    assert without_chances(kept.replace(b"null", told)) == kept


def test_what_a_glimpse_shows() -> None:
    begun = [chunk({"role": "assistant", "content": ""}), chunk({"content": "abc"})]
    assert not glimpse("chat", LookLength(characters=5), *begun).done
    seen = glimpse("chat", LookLength(characters=5), *begun, chunk({"content": "defg"}))
    assert (seen.done, seen.context) == (True, "abcde")
    thought = [chunk({"reasoning_content": "a passage"}), chunk({"content": "An"})]
    thinking = glimpse("chat", LookLength(characters=50), *thought)
    assert (thinking.done, thinking.context) == (True, "a passage")
    calling = glimpse(
        "messages",
        LookLength(characters=6),
        {"type": "content_block_start", "content_block": {"type": "tool_use", "name": "add"}},
        {"type": "content_block_delta", "delta": {"type": "input_json_delta", "partial_json": '{"x"'}},
    )
    assert calling.context == 'add{"x'
    told = [{"content": [{"token": token, "logprob": -0.5}]} for token in "abc"]
    tokens = [chunk({"content": one["content"][0]["token"]}, logprobs=one) for one in told]
    chances = glimpse("chat", LookLength(tokens=2, chances=True), *tokens)
    assert chances.context == "log-probabilities: -0.500 -0.500\nab"


def test_which_requests_can_be_looked_at() -> None:
    assert BY_NAME["responses"].hides({"reasoning": {"effort": "low"}})
    assert not BY_NAME["chat"].hides({"reasoning_effort": "none"})
    assert not BY_NAME["messages"].hides({"thinking": {"type": "disabled"}})
    for odd in ({"n": 2}, {"audio": {}}, {"modalities": ["text", "audio"]}, {"background": True}):
        assert not lookable(odd)
    assert lookable({"n": 1, "modalities": ["text"], "stream": False})


@pytest.mark.parametrize("wire", ["chat", "responses", "messages"])
@pytest.mark.parametrize("plan", [(), ("First", " a", " list.")])
def test_the_first_step_of_an_agent_is_shown_by_a_look(wire: Any, plan: tuple[str, ...]) -> None:
    said = Said(plan, calls=(("bash", '{"command": "ls src"}'),))
    shape = Shape("chat/completions" if wire == "chat" else wire, "m")
    events = [parsed(data_of(data)) for data, _ in provider_events(shape, said, Tokens(5, 0, 0, 9))]
    seen = glimpse(wire, LookLength(), *(event for event in events if event is not None))
    assert seen.context == "".join(plan) + ("\n" if plan else "") + 'bash{"command": "ls src"}'
    assert seen.finished
    short = glimpse(wire, LookLength(characters=8), *(event for event in events if event is not None))
    assert short.done
    assert short.context == ("".join(plan) + 'bash{"command"')[:8]
