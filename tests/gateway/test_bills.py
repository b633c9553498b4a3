"""What a key is charged, beside what its provider bills: attacks by clients and lies of providers."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

pytest.importorskip("uvicorn", reason="pip install 'pandora-router[serve]'")

from aiohttp import web

from pandora_router.gateway.generation import Settings, Site
from pandora_router.gateway.http.app import Gateway
from pandora_router.gateway.providers.backend import Backend
from pandora_router.gateway.request.passthrough import reply_usage
from pandora_router.prices import USUAL_ANSWER, WINDOW, Tariff
from pandora_router.search import Always
from pandora_router.store.money import nanodollars
from pandora_router.store.worker import Store
from pandora_router.transport.endpoint import Endpoint
from pandora_router.wires.chat import Chat
from pandora_router.wires.events import Frames
from pandora_router.wires.look import LookLength
from pandora_router.wires.usage import Usage
from tests.gateway.conftest import Running, Serve, backend
from tests.gateway.stub import Stub, events, whole
from tests.gateway.talking import Script, Talking
from tests.gateway.test_attacks import key
from tests.gateway.test_looks import SURE, UNSURE, listening
from tests.gateway.test_wires import PATHS, post, request
from tests.support.provider import Provider as Books
from tests.support.provider_models import Asked, Model
from tests.support.provider_replies import Said
from tests.support.raw_server import RawServer, read_request, reply
from tests.support.web_server import WebServer

PROMPT = "count the river king gene poem number"


@pytest.fixture
def talking() -> Iterator[Talking]:
    with closing(Talking()) as running:
        yield running


class Provider(WebServer):
    """Answers with 20 tokens read and 4 written, and states `usage`; `bodies` are the requests it got."""

    usage: Any = None

    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.raw: list[bytes] = []
        super().__init__()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.bodies.append(body)
        self.raw.append(await request.read())
        wire = request.match_info["wire"]
        if not body.get("stream"):
            whole_ = {**json.loads(whole(wire, "small")), "usage": self.usage}
            return web.json_response({**whole_, "status": "queued"} if body.get("background") else whole_)
        frames = [*events(wire, "small", False)[:-1], b"data: %s\n\n" % json.dumps(self._last).encode()]
        body_ = b"".join([*frames, b"data: [DONE]\n\n"])
        return web.Response(body=body_, headers={"Content-Type": "text/event-stream"})

    @property
    def _last(self) -> dict[str, Any]:
        return {"id": "c", "object": "chat.completion.chunk", "choices": [], "usage": self.usage}


@pytest.fixture
def provider() -> Iterator[Provider]:
    with closing(Provider()) as running:
        yield running


def charged(gateway: Running, headers: dict[str, str]) -> tuple[int, tuple[Any, ...]]:
    """What a request was charged, and how the counts of its call are recorded."""
    id_ = headers["x-pandora-decision-id"]
    cost = gateway.settled(id_)[1]
    sql = "SELECT fresh + cached + written, output, usage_complete, reason FROM attempts WHERE decision = ?"
    return cost, gateway.rows(sql, id_)[0]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("usage", "output"),
    [
        ({"prompt_tokens": 20, "completion_tokens": 4}, 4),
        ({"prompt_tokens": 20.0, "completion_tokens": "4"}, 4),
        ({"prompt_tokens": 20, "total_tokens": 24}, 4),
        ({"completion_tokens": 4, "total_tokens": 24}, 4),
        ({"input_tokens": 20, "output_tokens": 4}, 4),
        ({"input_tokens": 12, "cache_read_input_tokens": 8, "output_tokens": 4}, 4),
        ({"prompt_tokens": 20, "completion_tokens": 0}, 0),
        ({"prompt_tokens": 8, "completion_tokens": 4, "prompt_tokens_details": {"cached_tokens": 12}}, 4),
        ({"prompt_tokens": None, "completion_tokens": 0, "input_tokens": 20, "output_tokens": 4}, 4),
        (
            {
                "prompt_tokens": 20,
                "completion_tokens": 4,
                "total_tokens": 34,
                "completion_tokens_details": {"reasoning_tokens": 10},
            },
            14,
        ),
        (
            {
                "prompt_tokens": 20,
                "completion_tokens": 4,
                "completion_tokens_details": {"reasoning_tokens": 10},
            },
            14,
        ),
    ],
    ids=[
        *("plain", "float and text", "no output", "no input", "Responses", "Messages", "zero"),
        *(
            "cached beside the input",
            "names of two wires",
            "reasoning outside, with total",
            "reasoning outside",
        ),
    ],
)
def test_usage_in_the_forms_that_providers_send_is_charged(
    serve: Serve, provider: Provider, usage: Any, output: int, stream: bool
) -> None:
    provider.usage = usage
    gateway = serve(backend(provider, "small"))
    _, headers, _ = post(gateway, PATHS["chat"], request("chat", "small", stream=stream))
    cost, (read, written, complete, _) = charged(gateway, headers)
    assert (read, written, complete) == (20, output, 1)
    assert cost == nanodollars((20 + 10 * output) / 1e6)


NOT_UNDERSTOOD = [
    {},
    None,
    [],
    "24",
    {"total_tokens": 24},
    {"prompt_tokens": 20.5, "completion_tokens": 4.5},
    {"prompt_tokens": -20, "completion_tokens": -4},
    {"prompt_tokens": None, "completion_tokens": None},
    {"prompt_tokens": "many", "completion_tokens": True},
    {"prompt_tokens": "inf", "completion_tokens": "nan"},
    {"prompt_tokens": "0" * 45 + "20", "completion_tokens": "0" * 45 + "4"},
    {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0},
    {"input_tokens": 0, "output_tokens": 0, "cache_read_input_tokens": 0},
    {"prompt_tokens": 20, "total_tokens": 20},
    {"prompt_tokens": 20, "total_tokens": 5},
    {"completion_tokens": 4, "total_tokens": 2},
    {"tokens": 24},
]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("usage", NOT_UNDERSTOOD, ids=json.dumps)
def test_usage_that_is_not_understood_is_not_free(
    serve: Serve, provider: Provider, usage: Any, stream: bool
) -> None:
    provider.usage = usage
    small = backend(provider, "small")
    gateway = serve(small)
    body = json.dumps(request("chat", "small", stream=stream)).encode()
    _, headers, _ = post(gateway, PATHS["chat"], body)
    cost, (_, written, complete, _) = charged(gateway, headers)
    assert (complete, written) == (0, USUAL_ANSWER)  # what is expected where nothing was measured
    assert nanodollars((20 + 40) / 1e6) < cost <= small.bound(len(body), small.max_output)


@pytest.mark.parametrize("stream", [False, True])
def test_reasoning_that_is_stated_alone_is_not_free(serve: Serve, provider: Provider, stream: bool) -> None:
    thought = 5 * USUAL_ANSWER
    provider.usage = {"prompt_tokens": 20, "completion_tokens_details": {"reasoning_tokens": thought}}
    gateway = serve(backend(provider, "small"))
    _, headers, _ = post(gateway, PATHS["chat"], request("chat", "small", stream=stream))
    cost, (_, written, complete, _) = charged(gateway, headers)
    assert (cost, written, complete) == (nanodollars((20 + 10 * thought) / 1e6), thought, 0)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    "usage",
    [
        {"prompt_tokens": 20, "prompt_tokens_details": {"cached_tokens": 5, "cache_write_tokens": 10}},
        {"prompt_tokens": 20, "prompt_tokens_details": {"cached_tokens": 5, "cache_creation_tokens": 10}},
        {"prompt_tokens": 20, "cache_read_input_tokens": 5, "cache_creation_input_tokens": 10},
        {"input_tokens": 5, "cache_read_input_tokens": 5, "cache_creation_input_tokens": 10},
    ],
    ids=["router", "proxy", "proxy, beside", "Messages"],
)
def test_input_written_to_a_cache_has_its_price_under_every_name(
    serve: Serve, provider: Provider, usage: dict[str, Any], stream: bool
) -> None:
    provider.usage = {**usage, ("output_tokens" if "input_tokens" in usage else "completion_tokens"): 4}
    prices = Tariff(1.0, 10.0, cached_in=0.1, cached_write=1.25)
    gateway = serve(backend(provider, "small", prices=prices))
    _, headers, _ = post(gateway, PATHS["chat"], request("chat", "small", stream=stream))
    assert charged(gateway, headers)[0] == nanodollars((5 * 1.0 + 5 * 0.1 + 10 * 1.25 + 4 * 10.0) / 1e6)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", ["cached_tokens", "prompt_cache_hit_tokens"])
def test_cached_input_that_is_counted_beside_the_input_has_its_price(
    serve: Serve, provider: Provider, name: str, stream: bool
) -> None:
    """As Moonshot and DeepSeek count it."""
    provider.usage = {"prompt_tokens": 20, "completion_tokens": 4, "total_tokens": 24, name: 15}
    gateway = serve(backend(provider, "small", prices=Tariff(1.0, 10.0, cached_in=0.1)))
    _, headers, _ = post(gateway, PATHS["chat"], request("chat", "small", stream=stream))
    assert charged(gateway, headers)[0] == nanodollars((5 * 1.0 + 15 * 0.1 + 4 * 10.0) / 1e6)


def test_counts_in_the_last_choice_of_a_stream_are_read() -> None:
    """As Moonshot states them."""
    usage = {"prompt_tokens": 20, "completion_tokens": 4}
    piece = Chat().piece({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop", "usage": usage}]})
    assert (piece.usage, piece.last, piece.only_usage) == (Usage(20, 0, 0, 4), True, False)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("count", [10**8, 2**63, 1e300])
@pytest.mark.parametrize("more", [{}, {"max_tokens": 9}], ids=["open", "bounded"])
def test_a_claim_that_cannot_be_true_is_charged_at_the_bound_and_reported(
    serve: Serve, provider: Provider, count: Any, more: dict[str, Any], stream: bool, caplog: Any
) -> None:
    provider.usage = {"prompt_tokens": count, "completion_tokens": count}
    small = backend(provider, "small")
    gateway = serve(small)
    body = json.dumps(request("chat", "small", stream=stream, **more)).encode()
    _, headers, _ = post(gateway, PATHS["chat"], body)
    cost, (_, written, complete, reason) = charged(gateway, headers)
    most = more.get("max_tokens", small.max_output)
    assert cost == small.bound(len(body), most)
    assert (written, complete) == (most, 0)
    assert "more was claimed" in reason
    assert any("small claims" in record.getMessage() for record in caplog.records)


def test_running_usage_is_not_the_bill_of_a_stream_that_was_cancelled(serve: Serve, stub: Stub) -> None:
    """Running counts are of what was written so far; the provider may bill the whole answer."""
    usage = {"prompt_tokens": 20, "completion_tokens": 1}
    running = Chat().piece({"choices": [{"index": 0, "delta": {"content": "x"}}], "usage": usage})
    assert (running.usage, running.last) == (Usage(20, 0, 0, 1), False)
    for choices in ([], [{"index": 0, "delta": {}, "finish_reason": "stop"}]):
        assert Chat().piece({"choices": choices, "usage": usage}).last


KELVIN, LONG_S = "\N{KELVIN SIGN}", "\N{LATIN SMALL LETTER LONG S}"
OTHERS = [
    ("Model", {"Model": "dear"}),
    ("Max_Tokens", {"Max_Tokens": 10**6}),
    ("MAX_COMPLETION_TOKENS", {"MAX_COMPLETION_TOKENS": 10**6}),
    (f"max_to{KELVIN}ens", {f"max_to{KELVIN}ens": 10**6}),
    (f"max_token{LONG_S}", {f"max_token{LONG_S}": 10**6}),
    ("max_tokens\0", {"max_tokens\0": 10**6}),
    ("max_tokens\0x", {"max_tokens\0x": 10**6}),
    ("Max_New_Tokens", {"Max_New_Tokens": 10**6}),
    ("Service_Tier", {"Service_Tier": "priority"}),
    ("models", {"models": ["small", "dear"]}),
    ("fallbacks", {"fallbacks": ["dear"]}),
    ("maxTokens", {"maxTokens": 10**6}),
    ("N", {"N": 100}),
    ("Stream", {"Stream": True}),
    ("stream_options.Include_Usage", {"stream_options": {"Include_Usage": True}}),
    ("reasoning.Max_Tokens", {"reasoning": {"Max_Tokens": 10**6}}),
    ("thinking.Budget_Tokens", {"thinking": {"Budget_Tokens": 10**6}}),
    ("tools.Type", {"tools": [{"type": "function", "Type": "web_search"}]}),
    (
        "messages.Type",
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "x", "Type": "image_url"}]}]},
    ),
    (
        "input.Image_URL",
        {"input": [{"role": "user", "content": [{"type": "input_text", "text": "x", "Image_URL": "u"}]}]},
    ),
]


@pytest.mark.parametrize(("named", "more"), OTHERS, ids=[name for name, _ in OTHERS])
def test_members_that_some_servers_read_under_another_name_are_refused(
    serve: Serve, provider: Provider, named: str, more: dict[str, Any]
) -> None:
    gateway = serve(backend(provider, "small"), backend(provider, "dear", prices=Tariff(1000.0, 1000.0)))
    for wire in PATHS:
        for ensure_ascii in (True, False):
            body = json.dumps({**request(wire, "small"), **more}, ensure_ascii=ensure_ascii).encode()
            status, _, answer = post(gateway, PATHS[wire], body)
            assert (status, named in json.loads(answer)["error"]["message"]) == (400, True)
    if "." not in named:
        status, _, answer = post(gateway, "embeddings", {"model": "small", "input": "x", **more})
        assert (status, named in json.loads(answer)["error"]["message"]) == (400, True)
    assert provider.bodies == []


def twice(body: bytes) -> list[str]:
    """The names that come twice in one object of a JSON text."""
    names: list[str] = []

    def members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        given = [name for name, _ in pairs]
        names.extend(name for name in set(given) if given.count(name) > 1)
        return dict(pairs)

    json.loads(body, object_pairs_hook=members)
    return names


PART = b'{"type": "image_url", "image_url": {"url": "http://a/b.png"}, "type": "text", "text": "x%s"}'


@pytest.mark.parametrize("hidden", [b"", b"\\u0022", b"\\u0022\\u0022"], ids=["plain", "a quote", "quotes"])
@pytest.mark.parametrize(
    "members",
    [
        b'"messages": [{"role": "user", "content": [%s]}]' % PART,
        b'"tools": [{"type": "web_search", "type": "function", "name": "f"}], "messages": [{"role": "user", '
        b'"content": "x%s"}]',
        b'"thinking": {"budget_tokens": 90000, "budget_tokens": 1}, "messages": [{"role": "user", "content": '
        b'"x%s"}]',
    ],
    ids=["part", "tool", "option"],
)
def test_a_member_that_is_there_twice_anywhere_is_passed_on_once(
    serve: Serve, provider: Provider, members: bytes, hidden: bytes
) -> None:
    """Some servers read the first of two types: an image or a search that nobody charged."""
    provider.usage = {"prompt_tokens": 20, "completion_tokens": 4}
    body = b'{"model": "small", "max_tokens": 9, ' + members % hidden + b"}"
    assert twice(body)
    assert post(serve(backend(provider, "small")), PATHS["chat"], body)[0] == 200
    assert twice(provider.raw[-1]) == []
    assert json.loads(provider.raw[-1]) == json.loads(body)


@pytest.mark.parametrize("more", [b'"n": 1, "n": 1', b'"mode\\u006c": "small"', b'"stream": true, "n": 1'])
def test_an_object_that_is_nested_too_deeply_is_refused(
    serve: Serve, provider: Provider, more: bytes
) -> None:
    gateway = serve(backend(provider, "small"))
    deep = b"[" * 300 + b"]" * 300
    body = b'{"model": "small", %s, "messages": [{"role": "user", "content": %s}]}' % (more, deep)
    status, _, answer = post(gateway, PATHS["chat"], body)
    assert (status, b"nested" in answer, provider.bodies) == (400, True, [])


def test_names_inside_schemas_metadata_and_arguments_are_the_clients_own(serve: Serve, stub: Stub) -> None:
    schema = {"type": "object", "properties": {"Model": {"type": "string"}, "Type": {"type": "string"}}}
    body = request(
        "chat",
        "small",
        tools=[{"type": "function", "function": {"name": "f", "parameters": schema}}],
        metadata={"Model": "x", "Max_Tokens": "9"},
        logit_bias={"5": 1},
        Unknown={"Model": "x"},
    )
    assert post(serve(backend(stub, "small")), PATHS["chat"], body)[0] == 200


def test_contents_inside_each_other_are_looked_at_without_recursion(serve: Serve, stub: Stub) -> None:
    deep: Any = [{"Type": "image_url"}]
    for _ in range(400):
        deep = [{"type": "tool_result", "content": deep}]
    body = {**request("messages", "small"), "messages": [{"role": "user", "content": deep}]}
    status, _, answer = post(serve(backend(stub, "small")), PATHS["messages"], body)
    assert (status, b"messages.Type" in answer) == (400, True)


def test_an_answer_in_the_background_is_refused_under_a_budget(serve: Serve, provider: Provider) -> None:
    small = backend(provider, "small")
    gateway = serve(small, keys=True)
    body = request("responses", "small", background=True, max_output_tokens=1000)
    limited, free = key(gateway, "limited", budget=nanodollars(1.0)), key(gateway, "free")
    for more in ({}, {"stream": True}):
        asked = {**body, **more}
        status, _, answer = post(gateway, "responses", asked, Authorization=f"Bearer {limited}")
        assert (status, b"background" in answer, provider.bodies) == (400, True, [])
    status, headers, _ = post(gateway, "responses", body, Authorization=f"Bearer {free}")
    assert status == 200
    assert charged(gateway, headers)[0] >= nanodollars(1000 * 10.0 / 1e6)  # it may become that long
    answered = post(gateway, "responses", {**body, "background": False}, Authorization=f"Bearer {limited}")
    assert answered[0] == 200


@pytest.mark.parametrize("wire", PATHS)
@pytest.mark.parametrize(
    "more",
    [{"background": True}, {"deferred": True}, {"service_tier": "priority"}, {"speed": "fast"}],
    ids=lambda more: next(iter(more)),
)
def test_what_is_billed_later_or_at_other_prices_is_refused_under_a_budget(
    serve: Serve, provider: Provider, wire: str, more: dict[str, Any]
) -> None:
    provider.usage = {"prompt_tokens": 20, "completion_tokens": 4}
    gateway = serve(backend(provider, "small"), keys=True)
    limited, free = key(gateway, "limited", budget=nanodollars(1.0)), key(gateway, "free")
    for stream in (False, True):
        body = request(wire, "small", stream=stream, **more)
        status, _, answer = post(gateway, PATHS[wire], body, Authorization=f"Bearer {limited}")
        assert (status, next(iter(more)).encode() in answer, provider.bodies) == (400, True, [])
    assert (
        post(gateway, PATHS[wire], request(wire, "small", **more), Authorization=f"Bearer {free}")[0] == 200
    )
    usual = request(wire, "small", background=False, service_tier="auto", speed=None)
    assert post(gateway, PATHS[wire], usual, Authorization=f"Bearer {limited}")[0] == 200


@pytest.mark.parametrize("name", ["n_predict", "max_new_tokens", "max_tokens_to_sample", "num_predict"])
def test_every_name_of_a_limit_is_reserved(serve: Serve, provider: Provider, name: str) -> None:
    gateway = serve(backend(provider, "small"), keys=True)
    limited = key(gateway, "limited", budget=nanodollars(0.01))
    body = request("chat", "small", max_tokens=1, **{name: 100_000})
    assert post(gateway, PATHS["chat"], body, Authorization=f"Bearer {limited}")[0] == 429
    assert provider.bodies == []


def cancelled(gateway: Running, secret: str, events: int) -> int:
    """Ask for a long answer to a long prompt, leave after so many events; what that was charged."""
    asked = request("chat", "small", stream=True, max_tokens=400)
    asked["messages"] = [{"role": "user", "content": "tell me about rivers " * 40}]
    body, where = json.dumps(asked).encode(), urlsplit(gateway.url)
    headers = f"authorization: Bearer {secret}\r\ncontent-length: {len(body)}\r\n\r\n"
    with socket.create_connection((where.hostname, where.port), timeout=30) as client:
        client.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\n" + headers.encode() + body)
        received = b""
        while received.count(b"data:") < events:
            part = client.recv(65536)
            assert part, received
            received += part
    id_ = received.split(b"x-pandora-decision-id: ")[1].split(b"\r\n")[0].decode()
    return int(gateway.settled(id_)[1])


@pytest.mark.parametrize("cancel", ["stops", "bills_full"])
def test_short_requests_of_one_key_do_not_make_long_ones_of_another_cheap(serve: Serve, cancel: Any) -> None:
    """Most bytes of a short request are no text, and an answer of one token says nothing of an essay."""

    def says(asked: Asked) -> Said:
        return Said(tuple(f" w{i}" for i in range(300 if "rivers" in asked.prompt else 1)))

    model = Model(says, each=0.01, cancel=cancel)
    with closing(Books({"small": model})) as books:
        gateway = serve(backend(books, "small", cancel=cancel), keys=True)
        one, other = key(gateway, "one"), key(gateway, "other")
        for _ in range(WINDOW + 1):
            post(
                gateway, PATHS["chat"], request("chat", "small", max_tokens=1), Authorization=f"Bearer {one}"
            )
        cost = cancelled(gateway, other, 5)
        until = time.monotonic() + 30
        while not (bills := [bill for bill in books.log if bill.ended == "cancelled"]):
            assert time.monotonic() < until
            time.sleep(0.02)
        assert bills[0].nanodollars <= cost <= 3 * bills[0].nanodollars


NUMBERS = b"0.25, " * 20_000 + b"1.0"


@pytest.mark.parametrize(
    ("reply", "usage"),
    [
        (b'{"data": [%s], "usage": {"prompt_tokens": 5}}' % NUMBERS, {"prompt_tokens": 5}),
        (b'{"data": [%s], "usage": {"total_tokens": 5}, "model": "m"}' % NUMBERS, {"total_tokens": 5}),
        (b'{"model": "m", "usage": {"prompt_tokens": 5}, "data": [%s]}' % NUMBERS, {"prompt_tokens": 5}),
        (b'{"data": [%s, {"usage": {"prompt_tokens": 1}}]}' % NUMBERS, {}),
        (b'{"data": [{"usage": {"prompt_tokens": 1}}, %s]}' % NUMBERS, {}),
        (b'{"data": [%s], "usage": null}' % NUMBERS, {}),
        (b'{"data": [%s not JSON], "usage": {"prompt_tokens": 5}}' % NUMBERS, {"prompt_tokens": 5}),
        (b'{"usage": {"prompt_tokens": 5}}', {"prompt_tokens": 5}),
        (b"[]", {}),
        (b"", {}),
    ],
    ids=[
        "last",
        "near the end",
        "first",
        "inside",
        "inside first",
        "null",
        "not parsed",
        "short",
        "list",
        "none",
    ],
)
def test_usage_is_read_from_the_ends_of_a_large_reply(reply: bytes, usage: dict[str, int]) -> None:
    assert reply_usage(reply) == usage


@pytest.mark.parametrize(
    ("event", "plain"),
    [
        (b'{"choices":[{"delta":{"content":"x"}}],"usage":null}', True),
        (b'{"choices":[{"delta":{"content":"x"}}], "usage" : null, "error": null}', True),
        (b'{"choices":[{"delta":{"content":"\\"usage\\": {"}}]}', True),
        (b'{"type":"response.output_text.delta","delta":"x"}', True),
        (b'{"type":"response.completed","response":{"usage":null}}', False),
        (b'{"choices":[],"usage":{"prompt_tokens":1}}', False),
        (b'{"choices":[],"usage":null,"usage":{"prompt_tokens":1}}', False),
        (b'{"error":{"message":"no"}}', False),
        (b'{"type":"message_delta","usage":{"output_tokens":1}}', False),
        (b"[DONE]", False),
    ],
)
def test_events_that_only_carry_content_are_not_parsed(event: bytes, plain: bool) -> None:
    framed = b"data: " + event + b"\n\n"
    assert Frames().plain(framed) == ((framed, 1) if plain else None)


@pytest.mark.slow
def test_sixty_requests_at_once_do_not_exceed_a_budget(talking: Talking, tmp_path: Path) -> None:
    """One look, then the dearest of seven specialists, which is the last by its name, answers."""
    router = replace(listening(), policy=Always())
    dear, looked = "small", "large"
    asked = "tell about the angle planet gene poem number 176"  # `small` is good at it
    talking.says = {name: Script(UNSURE) for name in (*router.specialists, "a", "b", "c", "d")}
    talking.says[dear] = Script(SURE, output=1_000, wait=0.5)
    endpoint = Endpoint(talking.url)
    backends = [
        Backend(
            name,
            endpoint,
            name,
            Tariff(0.0, 100.0 if name == dear else 0.01),
            cancel="stops",
            looks=name == looked,
            peek=LookLength(characters=12),
        )
        for name in talking.says
    ]
    store = Store(str(tmp_path / "store.sqlite"))
    settings = Settings(dear, deadline=60.0, keys=True)
    gateway = Running(Gateway(Site(tuple(backends), settings, router, hash="h"), store))
    try:
        secret = key(gateway, "team", budget=nanodollars(2.0))
        body = {
            "model": "auto",
            "max_tokens": 1_000,
            "messages": [{"role": "user", "content": asked}],
        }
        statuses: list[int] = []

        def client() -> None:
            headers: Any = {"Authorization": f"Bearer {secret}", "x-pandora-session": str(time.time_ns())}
            statuses.append(post(gateway, "chat/completions", body, **headers)[0])

        threads = [threading.Thread(target=client) for _ in range(60)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert set(statuses) <= {200, 429}
        assert 15 <= talking.calls[dear] <= 20  # each is billed $0.10
        assert talking.calls[looked] >= talking.calls[dear]
    finally:
        gateway.close()
        store.close()


@pytest.mark.parametrize("claim", [5_000_000, "5000000", 10**8])
def test_a_claim_in_the_answer_to_one_key_does_not_raise_the_bill_of_another(
    serve: Serve, claim: Any
) -> None:
    """One key's provider claims millions of tokens of input; another key then leaves an honest stream."""
    lying = True

    def lie(usage: dict[str, Any]) -> dict[str, Any]:
        return {**usage, "prompt_tokens": claim} if lying else usage

    model = Model(lambda _: Said(tuple(f" w{i}" for i in range(300))), each=0.005, cancel="stops", lie=lie)
    with closing(Books({"small": model})) as books:
        gateway = serve(backend(books, "small", cancel="stops"), keys=True)
        one, other = key(gateway, "one"), key(gateway, "other")
        for _ in range(3):
            post(
                gateway, PATHS["chat"], request("chat", "small", max_tokens=1), Authorization=f"Bearer {one}"
            )
        lying = False
        cost = cancelled(gateway, other, 5)
        until = time.monotonic() + 30
        while not (bills := [bill for bill in books.log if bill.ended == "cancelled"]):
            assert time.monotonic() < until
            time.sleep(0.02)
        assert bills[0].nanodollars <= cost <= 3 * bills[0].nanodollars


def test_turns_whose_input_lies_at_the_provider_do_not_raise_the_bill_of_another(
    serve: Serve, provider: Provider
) -> None:
    gateway = serve(backend(provider, "small"), keys=True)
    one, other = key(gateway, "one"), key(gateway, "other")
    provider.usage = {"input_tokens": 20, "output_tokens": 4}
    body = request("responses", "small")
    _, _, first = post(gateway, PATHS["responses"], body, Authorization=f"Bearer {one}")
    provider.usage = {"input_tokens": 900_000, "output_tokens": 4}
    again = {**body, "previous_response_id": json.loads(first)["id"]}
    for _ in range(10):
        assert post(gateway, PATHS["responses"], again, Authorization=f"Bearer {one}")[0] == 200
    provider.usage = None  # so that the estimate is charged
    _, headers, _ = post(gateway, PATHS["responses"], body, Authorization=f"Bearer {other}")
    read = charged(gateway, headers)[1][0]
    assert read <= len(json.dumps(body))


class Closing(RawServer):
    """Keeps a connection after an answer, and closes it without a word when the next request comes on it."""

    answered = 0

    def talk(self, connection: socket.socket) -> None:
        with connection:
            read_request(connection)
            body = whole("chat/completions", "small")
            connection.sendall(reply(body, Connection="keep-alive"))
            self.answered += 1
            read_request(connection)


def test_a_connection_that_the_provider_has_closed_is_neither_an_error_nor_charged(serve: Serve) -> None:
    server = Closing(lambda _: ())
    thread = threading.Thread(target=server.serve, daemon=True)
    thread.start()
    try:
        gateway = serve(Backend("small", Endpoint(server.url), "small", Tariff(1.0, 10.0)))
        costs = []
        for _ in range(20):
            status, headers, _ = post(gateway, PATHS["chat"], request("chat", "small"))
            assert status == 200
            costs.append(gateway.settled(headers["x-pandora-decision-id"])[1])
        assert server.answered == 20
        assert costs == [nanodollars((12 + 8) * 1e-6 + 4 * 10e-6)] * 20
        assert gateway.rows("SELECT count(*) FROM attempts") == [(20,)]
    finally:
        server.listening.shutdown(socket.SHUT_RDWR)
        server.listening.close()
        thread.join(5.0)
