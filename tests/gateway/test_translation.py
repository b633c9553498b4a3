"""Requests of one wire that specialists of another answer, over real sockets, with their bill."""

from __future__ import annotations

import gzip
import itertools
import json
import time
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import pytest

from pandora_router.prices import Tariff
from pandora_router.search import Always
from pandora_router.store import accounts
from pandora_router.store.money import nanodollars
from tests.gateway.conftest import Serve, backend
from tests.gateway.stub import CACHED, OUTPUT, READ, WORDS, Stub
from tests.gateway.talking import Talking
from tests.gateway.test_looks import SURE, Served, listening, script
from tests.gateway.test_wires import PATHS, post, request
from tests.support.provider import Provider
from tests.support.provider_models import HELLO, Asked, Fault, Model
from tests.support.provider_replies import Said, Tokens, counts

PAIRS = list(itertools.permutations(PATHS, 2))


def said(wire: str, answer: dict[str, Any]) -> str:
    if wire == "chat":
        return str(answer["choices"][0]["message"]["content"])
    if wire == "responses":
        return str(answer["output"][0]["content"][0]["text"])
    return str(answer["content"][0]["text"])


@pytest.mark.parametrize(("here", "there"), PAIRS)
def test_a_specialist_of_another_wire_answers_whole_and_is_billed(
    serve: Serve, stub: Stub, here: str, there: str
) -> None:
    gateway = serve(backend(stub, "small", wires=frozenset({there}), prices=Tariff(1.0, 10.0, cached_in=0.5)))
    status, headers, body = post(gateway, PATHS[here], request(here, "auto"))
    assert (status, headers["x-pandora-translated"]) == (200, f"{here}->{there}"), body
    assert said(here, json.loads(body)) == "".join(WORDS) + " called small"
    wanted = (READ * 1.0 + CACHED * 0.5 + OUTPUT * 10.0) / 1e6
    assert gateway.settled(headers["x-pandora-decision-id"]) == ("ok", nanodollars(wanted), "small")


@pytest.mark.parametrize(("here", "there"), PAIRS)
def test_a_specialist_of_another_wire_streams_and_is_billed(
    serve: Serve, stub: Stub, here: str, there: str
) -> None:
    gateway = serve(backend(stub, "small", wires=frozenset({there})))
    status, headers, body = post(gateway, PATHS[here], request(here, "auto", stream=True))
    assert (status, headers["x-pandora-translated"]) == (200, f"{here}->{there}"), body
    assert all(word.strip().encode() in body for word in WORDS)
    ends = {"chat": b"[DONE]", "responses": b"response.completed", "messages": b"message_stop"}
    assert ends[here] in body
    assert (b'"usage"' in body) == (here != "chat")  # a chat client that did not ask for counts gets none
    wanted = (READ + CACHED + OUTPUT * 10.0) / 1e6
    assert gateway.settled(headers["x-pandora-decision-id"]) == ("ok", nanodollars(wanted), "small")


@pytest.mark.parametrize(("here", "there"), PAIRS)
def test_a_stream_that_breaks_ends_as_clients_of_the_wire_expect(
    serve: Serve, stub: Stub, here: str, there: str
) -> None:
    gateway = serve(backend(stub, "cut", wires=frozenset({there})))
    status, headers, body = post(gateway, PATHS[here], request(here, "auto", stream=True))
    failures = {"chat": b'"error"', "responses": b"response.failed", "messages": b"event: error"}
    assert status == 200
    assert failures[here] in body
    if here == "messages":
        assert body.index(b"content_block_stop") < body.index(b"event: error")
    assert gateway.settled(headers["x-pandora-decision-id"])[0] == "error"


@pytest.mark.parametrize(("here", "there"), PAIRS)
def test_an_error_of_the_specialist_has_the_shape_of_the_client(
    serve: Serve, stub: Stub, here: str, there: str
) -> None:
    gateway = serve(backend(stub, "bad", wires=frozenset({there})))
    status, _, body = post(gateway, PATHS[here], request(here, "auto"))
    error = json.loads(body)
    assert (status, error.get("type")) == (400, "error" if here == "messages" else None)
    assert isinstance(error["error"]["message"], str)


def test_the_same_wire_is_never_translated_and_what_cannot_be_said_excludes(serve: Serve, stub: Stub) -> None:
    gateway = serve(
        backend(stub, "small", wires=frozenset({"messages"})), backend(stub, "large"), default="small"
    )
    assert "x-pandora-translated" not in post(gateway, "chat/completions", request("chat", "large"))[1]
    headers = post(gateway, "chat/completions", request("chat", "auto", seed=7))[1]
    assert headers["x-pandora-specialist"] == "large"
    row = gateway.rows("SELECT detail FROM decisions WHERE id = ?", headers["x-pandora-decision-id"])
    assert "seed" in json.loads(row[0][0])["excluded"]["small"]
    status, _, body = post(gateway, "chat/completions", request("chat", "small", seed=7))
    assert (status, b"wires: [messages, chat]" in body) == (400, True)


def _calls_then_tells(asked: Asked) -> Said:
    """Calls a tool; once its result is there, tells it."""
    given = asked.body.get("messages", asked.body.get("input"))
    if "42 degrees" in json.dumps(given[-1]):
        return Said(("It", " is", " 42 degrees"))
    return Said(("Looking",), calls=(("look_up", '{"place": "here"}'),))


SCHEMA = {"type": "object", "properties": {"place": {"type": "string"}}}
OFFERS: dict[str, dict[str, Any]] = {
    "chat": {"type": "function", "function": {"name": "look_up", "parameters": SCHEMA}},
    "responses": {"type": "function", "name": "look_up", "parameters": SCHEMA},
    "messages": {"name": "look_up", "input_schema": SCHEMA},
}


def _second(here: str, first: dict[str, Any]) -> dict[str, Any]:
    """The request that follows the tool call in the answer `first`."""
    user = {"role": "user", "content": "hi"}
    if here == "chat":
        message = first["choices"][0]["message"]
        result = {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "42 degrees"}
        return {"messages": [user, message, result]}
    if here == "responses":
        call = next(item for item in first["output"] if item["type"] == "function_call")
        result = {"type": "function_call_output", "call_id": call["call_id"], "output": "42 degrees"}
        return {"input": [user, *first["output"], result]}
    call = next(block for block in first["content"] if block["type"] == "tool_use")
    result = {"type": "tool_result", "tool_use_id": call["id"], "content": "42 degrees"}
    content = {"role": "assistant", "content": first["content"]}
    return {"messages": [user, content, {"role": "user", "content": [result]}]}


@pytest.mark.parametrize(("here", "there"), PAIRS)
def test_a_tool_is_called_and_its_result_told_across_wires(serve: Serve, here: str, there: str) -> None:
    with closing(Provider({"tooled": Model(_calls_then_tells)})) as provider:
        gateway = serve(backend(provider, "tooled", wires=frozenset({there})))  # type: ignore[arg-type]
        asked = request(here, "auto", tools=[OFFERS[here]])
        status, _, body = post(gateway, PATHS[here], asked)
        assert status == 200, body
        first = json.loads(body)
        status, headers, body = post(gateway, PATHS[here], {**asked, **_second(here, first)})
        assert (status, said(here, json.loads(body))) == (200, "It is 42 degrees"), body
        assert headers["x-pandora-policy"] == "session"


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(("here", "there"), PAIRS)
def test_a_look_at_a_specialist_of_another_wire_goes_on_as_the_answer(
    tmp_path: Path, here: str, there: str, stream: bool
) -> None:
    router = listening().with_policy(Always())
    with closing(Talking()) as talking:
        script(talking, router, "large")
        options = {"wires": frozenset({there})}
        with closing(Served(talking, router, tmp_path, backend=options)) as served:
            status, headers, body = served.ask(here, stream=stream)
            assert (status, headers["x-pandora-specialist"]) == (200, "large"), body
            assert headers["x-pandora-translated"] == f"{here}->{there}"
            if stream:
                assert all(json.dumps(word)[1:-1].encode() in body for word in SURE)
            else:
                assert said(here, json.loads(body)) == "".join(SURE)
            rows = served.rows(headers)
            assert rows["large"]["cost"] == nanodollars((20 + 10 * len(SURE)) / 1e6)
            assert {row["kind"] for name, row in rows.items() if name != "large"} == {"loser"}
            assert talking.calls.total() == len(router.specialists)


UNUSABLE: dict[str, dict[str, Any]] = {
    "chat": {"choices": [{"message": {"tool_calls": [{"function": {"name": 3}}]}, "finish_reason": "stop"}]},
    "responses": {"status": "completed", "output": [{"type": "of_next_year"}]},
    "messages": {"type": "message", "content": [{"type": "of_next_year"}], "stop_reason": "end_turn"},
}


@pytest.mark.parametrize(("here", "there"), PAIRS)
def test_a_whole_answer_that_cannot_be_translated_costs_what_its_provider_bills(
    serve: Serve, here: str, there: str
) -> None:
    """The answers have thousands of bytes and few tokens, and say how many."""
    tokens = Tokens(1, 0, 0, len(HELLO.words))
    usage = counts(cast(Any, PATHS[there]), tokens)
    answer = json.dumps({"id": "x", "model": "m", "padding": "x" * 4000, **UNUSABLE[there], "usage": usage})
    raw = f"HTTP/1.1 200 -\r\ncontent-type: application/json\r\ncontent-length: {len(answer)}\r\n\r\n{answer}"
    with closing(Provider({"odd": Model(fault=lambda _: Fault(raw=raw.encode()))})) as provider:
        gateway = serve(backend(provider, "odd", wires=frozenset({there})))  # type: ignore[arg-type]
        status, headers, said = post(gateway, PATHS[here], request(here, "auto"))
        assert (status, b"invalid reply" in said) == (502, True)
        billed = sum(bill.nanodollars for bill in provider.log)
        assert billed == len(provider.log) * Model().nanodollars(tokens) > 0
        assert gateway.settled(headers["x-pandora-decision-id"])[:2] == ("error", billed)


def test_compressed_requests_are_refused_with_what_to_do(serve: Serve, stub: Stub) -> None:
    gateway = serve(backend(stub, "small"))
    body = gzip.compress(json.dumps(request("messages", "small")).encode())
    status, _, said = post(gateway, "messages", body, Content_Encoding="gzip")
    assert (status, "without Content-Encoding" in json.loads(said)["error"]["message"]) == (415, True)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("here", ["chat", "responses"])
def test_a_conversation_is_kept_in_a_cache_that_has_to_be_asked(
    serve: Serve, here: str, stream: bool
) -> None:
    """Anthropic caches only what a request marks: unmarked, each call of an agent is read anew."""
    sold = Tariff(1.0, 10.0, cached_in=0.1, cached_write=1.25)
    with closing(Provider({"small": Model(caches=True), "plain": Model()})) as provider:
        one = {"wires": frozenset({"messages"}), "max_output": 100}
        gateway = serve(
            backend(provider, "small", prices=sold, **one), backend(provider, "plain", **one), keys=True
        )
        secret = gateway.gateway.store.submit(
            lambda open_: accounts.add_key(open_, "team", time.time(), budget=nanodollars(1.0))[1]
        ).result()

        def sent(name: str, *said: str, **more: Any) -> tuple[bytes, tuple[Any, ...]]:
            turns = [{"role": ("user", "assistant")[i % 2], "content": text} for i, text in enumerate(said)]
            member = "input" if here == "responses" else "messages"
            body = {"model": name, member: turns, "stream": stream, **more}
            status, headers, told = post(gateway, PATHS[here], body, Authorization=f"Bearer {secret}")
            assert status == 200, told
            return provider.bodies[-1], gateway.settled(headers["x-pandora-decision-id"])

        words = ("w " * 3000, "so", "and")
        tool = {"name": "look", "parameters": {"type": "object", "properties": {}}}
        shape = tool if here == "responses" else {"function": tool}
        tools = {"tools": [{"type": "function", **shape}]}
        for body, marks in (
            (sent("small", "one question")[0], 0),
            (sent("plain", *words)[0], 0),
            (sent("small", "an agent begins", **tools)[0], 1),
        ):
            assert body.count(b'"cache_control"') == marks
        costs = []
        for _ in range(2):
            body, (status, cost, _) = sent("small", *words)
            last = json.loads(body)["messages"][-1]["content"][-1]
            assert (status, last["cache_control"], body.count(b"cache_control")) == (
                "ok",
                {"type": "ephemeral"},
                1,
            )
            assert cost == provider.log[-1].nanodollars
            costs.append(cost)
        assert costs[1] < 0.2 * costs[0]
