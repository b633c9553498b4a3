"""The fake provider behaves as real ones do on every wire, and its books agree with what it sent."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest

from tests.support.provider import Provider
from tests.support.provider_models import Fault, Model
from tests.support.provider_replies import WIRES, Said

SAID = Said(("It", " is", " 7"), ("Let", " me", " see"), hidden=2, calls=(("add", '{"a": 3}'),), logprob=-0.5)
SYSTEM = "You add numbers. " * 20


@contextmanager
def asked(provider: Provider, wire: str, **more: Any) -> Iterator[http.client.HTTPResponse]:
    body: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "3 + 4?"}], **more}
    if wire == "responses":
        body = {"model": "m", "input": "3 + 4?", "instructions": SYSTEM, **more}
    elif wire == "messages":
        body["system"] = SYSTEM
    else:
        body["messages"].insert(0, {"role": "system", "content": SYSTEM})
    with closing(http.client.HTTPConnection("127.0.0.1", provider.port, timeout=30)) as connection:
        connection.request("POST", f"/v1/{wire}", json.dumps(body), {"Authorization": "Bearer k"})
        yield connection.getresponse()


def events(raw: bytes) -> list[dict[str, Any]]:
    return [json.loads(line[6:]) for line in raw.splitlines() if line.startswith(b"data: {")]


def total(usage: dict[str, Any]) -> tuple[int, int]:
    """Input and output tokens of a reply, however its wire names them."""
    cached = usage.get("cache_read_input_tokens", 0) + usage.get("cache_creation_input_tokens", 0)
    read = usage.get("prompt_tokens", usage.get("input_tokens", 0)) + cached
    return read, usage.get("completion_tokens", usage.get("output_tokens", 0))


@pytest.mark.parametrize("wire", WIRES)
def test_the_books_have_what_was_counted(wire: str) -> None:
    with closing(Provider({"m": Model(lambda _: SAID, caches=True)})) as provider:
        for i in range(2):
            with asked(provider, wire) as answer:
                usage = json.loads(answer.read())["usage"]
            bill = provider.log[i]
            tokens = bill.tokens
            assert total(usage) == (tokens.fresh + tokens.cached + tokens.written, tokens.output)
            assert tokens.output == len(SAID.words) + len(SAID.reasoning) + SAID.hidden + 8
            parts = (tokens.fresh, 0.1 * tokens.cached, 1.25 * tokens.written, 10 * tokens.output)
            assert bill.nanodollars == round(1000 * sum(parts))
            assert (bill.ended, bill.key) == ("whole", "Bearer k")
        first, second = (bill.tokens for bill in provider.log)
        assert (first.cached, second.cached) == (0, len(SYSTEM) // 4)
        assert first.written == (len(SYSTEM) // 4 if wire == "messages" else 0)


def test_chat_chunks_say_null_until_the_last_one_has_the_counts() -> None:
    with closing(Provider({"m": Model(lambda _: SAID)})) as provider:
        with asked(
            provider, WIRES[0], stream=True, logprobs=True, stream_options={"include_usage": True}
        ) as answer:
            chunks = events(answer.read())
        with asked(provider, WIRES[0], stream=True) as answer:
            plain = events(answer.read())
    assert [chunk["usage"] for chunk in chunks[:-1]] == [None] * (len(chunks) - 1)
    assert chunks[-1]["choices"] == []
    assert total(chunks[-1]["usage"])[1] == provider.log[0].tokens.output
    assert chunks[-1]["usage"]["completion_tokens_details"]["reasoning_tokens"] == 5
    assert not any("usage" in chunk for chunk in plain)
    deltas = [choice["delta"] for chunk in chunks for choice in chunk["choices"]]
    calls = [call for delta in deltas for call in delta.get("tool_calls", ())]
    assert {call["index"] for call in calls} == {0}
    assert [call["function"].get("name") for call in calls] == ["add", None, None]
    assert "".join(call["function"]["arguments"] for call in calls) == SAID.calls[0][1]
    assert "".join(delta.get("content") or "" for delta in deltas) == SAID.text
    told = [c["logprobs"]["content"][0] for chunk in chunks for c in chunk["choices"] if c["logprobs"]]
    assert [(one["token"], one["logprob"]) for one in told] == [(word, -0.5) for word in SAID.words]


def test_the_other_wires_name_their_events() -> None:
    with closing(Provider({"m": Model(lambda _: SAID)})) as provider:
        with asked(provider, "responses", stream=True) as answer:
            response = events(answer.read())
        with asked(provider, "messages", stream=True) as answer:
            message = events(answer.read())
    assert [event["sequence_number"] for event in response] == list(range(len(response)))
    text = "".join(e["delta"] for e in response if e["type"] == "response.output_text.delta")
    assert (text, response[-1]["type"]) == (SAID.text, "response.completed")
    assert total(response[-1]["response"]["usage"])[1] == provider.log[0].tokens.output
    kinds = [event["type"] for event in message]
    assert (kinds[0], kinds[-1], "ping" in kinds) == ("message_start", "message_stop", True)
    pieces = [e["delta"] for e in message if e["type"] == "content_block_delta"]
    assert "".join(piece.get("partial_json", "") for piece in pieces) == SAID.calls[0][1]
    assert message[-2]["usage"]["output_tokens"] == provider.log[1].tokens.output


@pytest.mark.parametrize("cancel", ["stops", "bills_full"])
def test_a_client_that_leaves_pays_as_the_provider_says(cancel: Any) -> None:
    long = Said(("word ",) * 500)
    with closing(Provider({"m": Model(lambda _: long, each=0.01, cancel=cancel)})) as provider:
        with asked(provider, WIRES[0], stream=True) as answer:
            answer.read1(400)
        until = time.monotonic() + 30
        while not provider.log and time.monotonic() < until:
            time.sleep(0.01)
        bill = provider.log[0]
    assert bill.ended == "cancelled"
    assert provider.left["m"] == 1
    assert bill.tokens.output == 500 if cancel == "bills_full" else 0 < bill.tokens.output < 500


def test_faults_and_lies() -> None:
    models = {
        "m": Model(lambda _: SAID, lie=lambda usage: {**usage, "completion_tokens": 10**9}),
        "cut": Model(fault=lambda _: Fault(cut=2)),
        "busy": Model(fault=lambda asked: Fault(429 if asked.attempt == 0 else 200, "3")),
    }
    with closing(Provider(models)) as provider:
        with asked(provider, WIRES[0]) as answer:
            assert json.loads(answer.read())["usage"]["completion_tokens"] == 10**9
        with (
            asked(provider, WIRES[0], model="cut", stream=True) as answer,
            pytest.raises((http.client.IncompleteRead, ConnectionResetError)),
        ):
            answer.read()
        statuses = []
        for _ in range(2):
            with asked(provider, WIRES[0], model="busy") as answer:
                statuses.append((answer.status, answer.headers["retry-after"]))
        with asked(provider, WIRES[0], model="nobody") as answer:
            statuses.append((answer.status, None))
    assert statuses == [(429, "3"), (200, None), (404, None)]
    assert [(bill.ended, bill.tokens.output) for bill in provider.log] == [
        ("whole", SAID.tokens),
        ("cut", 2),
        ("refused", 0),
        ("whole", 4),
    ]
