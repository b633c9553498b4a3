"""The gateway as an attacker sees it: smuggled requests, hidden costs, websites, slow searches."""

from __future__ import annotations

import asyncio
import gzip
import json
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from urllib.parse import urlsplit

import pytest
from aiohttp import web

from pandora_router.gateway.http.protocol import Arriving
from pandora_router.gateway.http.telemetry import redacted
from pandora_router.gateway.request import attempts
from pandora_router.gateway.request.eligible import MEDIUM
from pandora_router.prices import Tariff
from pandora_router.store import accounts
from pandora_router.store.money import nanodollars
from pandora_router.transport.endpoint import Endpoint
from pandora_router.wires.events import Frames
from tests.gateway.conftest import Running, Serve, backend
from tests.gateway.stub import Stub, chat_event
from tests.gateway.test_wires import PATHS, post, request
from tests.support.web_server import WebServer

BODY = json.dumps(request("chat", "small")).encode()
INNER = b"GET /v1/models HTTP/1.1\r\nhost: localhost\r\n\r\n"


def replies(gateway: Running, *parts: bytes) -> bytes:
    """What the server sends to these bytes, with a pause between the parts, within a second of silence."""
    where = urlsplit(gateway.url)
    with socket.create_connection((where.hostname, where.port), timeout=1.0) as client:
        received = b""
        for i, part in enumerate(parts):
            time.sleep(0.2 if i else 0.0)
            client.sendall(part)
        try:
            while part := client.recv(65536):
                received += part
        except (TimeoutError, ConnectionResetError):
            pass
        return received


def head(*lines: bytes) -> bytes:
    return b"\r\n".join([b"POST /v1/chat/completions HTTP/1.1", b"host: localhost", *lines]) + b"\r\n\r\n"


SIZED = b"content-length: %d" % len(BODY)
CHUNKED = b"%x\r\n%s\r\n0\r\n\r\n" % (len(BODY), BODY)


@pytest.mark.parametrize(
    "sent",
    [
        head(SIZED, b"transfer-encoding: chunked") + b"0\r\n\r\n" + INNER,
        head(b"transfer-encoding: chunked", SIZED) + CHUNKED + INNER,
        head(SIZED, b"content-length: 5") + BODY,
        head(b"transfer-encoding: chunked, identity") + CHUNKED,
        head(b"transfer-encoding: xchunked") + CHUNKED,
        head(b"content-length : %d" % len(BODY)) + BODY,
        head(b"anthropic-beta: a\r\n b", SIZED) + BODY,
        head(b"anthropic-beta: a\rx: b", SIZED) + BODY,
        head(b"anthropic-beta: a\x00b", SIZED) + BODY,
        head(SIZED).replace(b"\r\n", b"\n") + BODY,
        head(b"transfer-encoding: chunked") + CHUNKED.replace(b"\r\n", b"\n"),
    ],
    ids=["both", "both-2", "lengths", "identity", "unknown", "space", "fold", "cr", "nul", "lf", "chunk-lf"],
)
def test_an_ambiguous_request_is_refused_once(serve: Serve, stub: Stub, sent: bytes) -> None:
    gateway = serve(backend(stub, "small"))
    before = stub.calls["small"]
    received = replies(gateway, sent)
    assert received.startswith(b"HTTP/1.1 400 ")
    assert received.count(b"HTTP/1.1 ") == 1
    assert stub.calls["small"] == before


def test_the_body_of_an_upgrade_is_not_another_request(serve: Serve, stub: Stub) -> None:
    gateway = serve(backend(stub, "small"))
    sent = head(b"connection: Upgrade", b"Upgrade: h2c", b"content-length: %d" % len(INNER))
    assert replies(gateway, sent, INNER).count(b"HTTP/1.1 ") == 1
    assert replies(gateway, sent[:70], sent[70:], INNER).count(b"HTTP/1.1 ") == 1  # in pieces: "Upgr", "ade"


@pytest.mark.slow
def test_a_client_that_offers_another_protocol_is_served(serve: Serve, stub: Stub) -> None:
    """As Java's HTTP client does with every request to an http address."""
    gateway = serve(backend(stub, "small"))
    offer = (b"connection: Upgrade, HTTP2-Settings", b"upgrade: h2c", b"http2-settings: AAEAAEAAAAIAAAAB")
    for parts in ((head(*offer, SIZED) + BODY,), (head(*offer, SIZED), BODY)):
        assert replies(gateway, *parts).startswith(b"HTTP/1.1 200 ")
        assert replies(gateway, *parts, *parts).count(b"HTTP/1.1 200 ") == 2  # the connection is kept


@pytest.mark.parametrize("wire", PATHS)
def test_a_website_cannot_use_a_gateway_without_keys(serve: Serve, stub: Stub, wire: str) -> None:
    gateway, body = serve(backend(stub, "small")), request(wire, "small")
    before = stub.calls["small"]
    for headers in (
        {"Origin": "https://example.com"},
        {"Origin": "null"},
        {"Host": "example.com:8080"},
        {"Host": "localhost.example.com", "Origin": "http://localhost"},
    ):
        status, _, answer = post(gateway, PATHS[wire], body, **headers)
        assert (status, "error" in json.loads(answer)) == (403, True), headers
    assert stub.calls["small"] == before
    local = {"Host": "localhost:8080", "Origin": "http://localhost:3000"}
    for headers in ({}, local, {"Host": "[::1]:80"}, {"Origin": "vscode-webview://x"}):
        assert post(gateway, PATHS[wire], body, **headers)[0] == 200, headers


def test_a_website_may_use_a_gateway_with_a_key(serve: Serve, stub: Stub) -> None:
    gateway = serve(backend(stub, "small"), keys=True)
    secret = key(gateway, "team")
    headers = {
        "Origin": "https://example.com",
        "Host": "llm.example.com",
        "Authorization": f"Bearer {secret}",
    }
    assert post(gateway, PATHS["chat"], request("chat", "small"), **headers)[0] == 200


def key(gateway: Running, name: str, **limits: int) -> str:
    store = gateway.gateway.store
    return store.submit(lambda open_: accounts.add_key(open_, name, time.time(), **limits)[1]).result(30)


TALL = 10_000  # output tokens that the model `liar` claims
PRICE = nanodollars(TALL * 10 / 1e6)


@pytest.mark.parametrize(
    "more",
    [
        {"n": 100, "max_tokens": 250},
        {"max_completion_tokens": 1, "max_tokens": TALL},
        {"max_tokens": 1, "n_predict": TALL},
        {"max_tokens": 1, "tools": [{"type": "web_search"}]},
    ],
    ids=["answers", "two limits", "another limit", "hosted tool"],
)
def test_what_a_request_may_cost_is_charged(serve: Serve, stub: Stub, more: dict[str, object]) -> None:
    gateway = serve(backend(stub, "liar"))
    _, headers, _ = post(gateway, PATHS["chat"], request("chat", "liar", **more))
    assert gateway.settled(headers["x-pandora-decision-id"])[1] >= PRICE


def test_a_provider_that_claims_more_than_was_asked_for_is_not_believed(serve: Serve, stub: Stub) -> None:
    gateway = serve(backend(stub, "liar"))
    _, headers, _ = post(gateway, PATHS["chat"], request("chat", "liar", max_tokens=50, temperature=1))
    assert gateway.settled(headers["x-pandora-decision-id"])[1] < PRICE / 10


def test_several_answers_are_reserved(serve: Serve, stub: Stub) -> None:
    gateway = serve(backend(stub, "small"), keys=True)
    secret = key(gateway, "team", budget=nanodollars(0.01))
    asked = request("chat", "small", max_tokens=100)
    bearer = f"Bearer {secret}"
    assert post(gateway, PATHS["chat"], asked, Authorization=bearer)[0] == 200
    assert post(gateway, PATHS["chat"], {**asked, "n": 20}, Authorization=bearer)[0] == 429


def test_an_image_by_address_is_counted_like_one_in_the_request(serve: Serve, stub: Stub) -> None:
    gateway = serve(backend(stub, "small", prices=Tariff(1.0, 10.0, image_in=1.0)), keys=True)
    secret = key(gateway, "team", budget=nanodollars(MEDIUM / 1e6))
    parts = [{"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}]
    body = {**request("chat", "small", max_tokens=1), "messages": [{"role": "user", "content": parts}]}
    assert post(gateway, PATHS["chat"], body, Authorization=f"Bearer {secret}")[0] == 429


@pytest.mark.parametrize("path", [*PATHS.values(), "embeddings"])
def test_a_client_cannot_book_a_call_on_another_project(serve: Serve, stub: Stub, path: str) -> None:
    wire = next((name for name in PATHS if PATHS[name] == path), "chat")
    body = {"model": "small", "input": "x"} if path == "embeddings" else request(wire, "small")
    asks = {
        "openai-organization": "org-b",
        "openai-project": "proj-b",
        "openai-beta": "a",
        "anthropic-beta": "b",
    }
    assert post(serve(backend(stub, "small")), path, body, **asks)[0] == 200
    sent = stub.headers[-1]
    assert (sent["openai-beta"], sent["anthropic-beta"]) == ("a", "b")
    assert not {"openai-organization", "openai-project"} & set(sent)


@pytest.mark.parametrize("wire", PATHS)
def test_absurd_numbers_are_refused(serve: Serve, stub: Stub, wire: str) -> None:
    gateway = serve(backend(stub, "small"))
    limit = "max_output_tokens" if wire == "responses" else "max_tokens"
    for name, value in ((limit, 10**18), (limit, 2**62), ("n", 10**9), ("n", "5"), ("n", 0)):
        status, _, answer = post(gateway, PATHS[wire], {**request(wire, "small"), name: value})
        assert (status, name in answer.decode()) == (400, True)


@pytest.mark.parametrize(
    "body",
    [
        b'{"max_tokens": 9, "max_tokens": 1, "model": "small", "messages": [{"role": "user"}]}',
        b'{"model": "large", "model": "small", "messages": [{"role": "user", "content": "x"}]}',
        b'{"\\u006dodel": "large", "model": "small", "messages": [{"role": "user", "content": "x"}]}',
    ],
    ids=["limit", "model", "escaped"],
)
def test_a_member_that_is_there_twice_is_passed_on_once(serve: Serve, stub: Stub, body: bytes) -> None:
    """Some servers read the first of two, others the last."""
    gateway = serve(backend(stub, "small"))
    assert post(gateway, PATHS["chat"], body)[0] == 200
    names = [name for name, _ in json.loads(stub.bodies[-1], object_pairs_hook=list)]
    assert len(names) == len(set(names))
    assert json.loads(stub.bodies[-1]) == json.loads(body)


def test_texts_that_nearly_match_are_searched_in_time(serve: Serve, stub: Stub) -> None:
    begun = time.process_time()
    for text in ("a" * 10_000, "a." * 5_000, "1-" * 5_000, "bearer " * 1_400):
        redacted(text)
    assert time.process_time() - begun < 0.5
    gateway = serve(backend(stub, "small"))
    runs = {"type": "text", "text": ("A" * 4095 + " ") * 1_000}
    parts = [{"type": "image_url", "image_url": {"url": "x"}}, runs]
    body = {**request("chat", "small"), "messages": [{"role": "user", "content": parts}]}
    begun = time.process_time()
    post(gateway, PATHS["chat"], body)
    assert time.process_time() - begun < 5.0


def test_one_event_in_many_small_pieces_is_read_once() -> None:
    frames, begun = Frames(), time.process_time()
    event = b"data: " + b"x" * 1_000_000 + b"\r\n\r\n"
    found = [frame for i in range(0, len(event), 250) for frame in frames.feed(event[i : i + 250])]
    assert found == [event]
    assert time.process_time() - begun < 3.0


def test_a_response_of_another_key_is_not_known(serve: Serve, stub: Stub) -> None:
    gateway = serve(backend(stub, "small"), backend(stub, "large"), default="small", keys=True)
    one, other = key(gateway, "one"), key(gateway, "other")
    asked = request("responses", "large")
    assert post(gateway, "responses", asked, Authorization=f"Bearer {one}")[0] == 200
    id_ = json.loads(stub_answer(gateway, one))["id"]
    asked = request("responses", "auto", previous_response_id=id_)
    chosen = [
        post(gateway, "responses", asked, Authorization=f"Bearer {secret}")[1]["x-pandora-specialist"]
        for secret in (one, other)
    ]
    assert chosen == ["large", "small"]


def stub_answer(gateway: Running, secret: str) -> bytes:
    return post(gateway, "responses", request("responses", "large"), Authorization=f"Bearer {secret}")[2]


class Compressing(WebServer):
    """An upstream that sends a compressed answer although it was asked not to."""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        bomb = gzip.compress(b" " * 10_000_000)
        return web.Response(body=bomb, headers={"Content-Encoding": "gzip"}, content_type="application/json")


@pytest.fixture
def compressing() -> Iterator[Compressing]:
    with closing(Compressing()) as running:
        yield running


def test_a_compressed_reply_is_not_passed_on(serve: Serve, compressing: Compressing) -> None:
    gateway = serve(backend(compressing, "small"))
    status, _, answer = post(gateway, PATHS["chat"], request("chat", "small"))
    assert (status, b"invalid reply" in answer) == (502, True)
    reasons = [reason for (reason,) in gateway.rows("SELECT reason FROM attempts")]
    assert reasons
    assert all("compressed" in reason for reason in reasons)  # for operators; clients see no address


def test_a_compressed_reply_through_a_proxy_is_not_passed_on(
    serve: Serve, compressing: Compressing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", compressing.url.removesuffix("/v1"))
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    endpoint = Endpoint("http://models.example/v1", use_proxy=True)
    gateway = serve(replace(backend(compressing, "small"), endpoint=endpoint))
    assert post(gateway, "chat/completions", request("chat", "small"))[0] == 502


def test_decisions_are_counted_against_the_rate_of_a_key(serve: Serve, stub: Stub) -> None:
    gateway = serve(backend(stub, "small"), keys=True)
    secret = key(gateway, "team", per_minute=1)
    asked = [
        post(gateway, "routing/decision", request("chat", "auto"), Authorization=f"Bearer {secret}")[0]
        for _ in "ab"
    ]
    assert asked == [200, 429]


class Endless(WebServer):
    """Streams as fast as it is read; `streams` are those that are open."""

    streams = 0

    async def answer(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        self.streams += 1
        try:
            while True:
                await response.write(chat_event("small", "x" * 60_000))
        finally:
            self.streams -= 1


def test_a_client_that_does_not_read_is_disconnected(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Arriving, "stall", 0.3)
    with closing(Endless()) as endless:
        gateway = serve(backend(endless, "small"))
        body, where = json.dumps(request("chat", "small", stream=True)).encode(), urlsplit(gateway.url)
        with socket.create_connection((where.hostname, where.port)) as client:
            client.sendall(head(b"content-length: %d" % len(body)) + body)
            until = time.monotonic() + 20
            while not gateway.rows("SELECT 1 FROM decisions WHERE status = 'cancelled'") or endless.streams:
                assert time.monotonic() < until
                time.sleep(0.05)


class Long(WebServer):
    """Streams twelve megabytes, as fast as they are read, and says what they cost."""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for _ in range(200):
            await response.write(chat_event("small", "x" * 60_000))
        usage = {"prompt_tokens": 10, "completion_tokens": 200, "total_tokens": 210}
        last = {"id": "c", "object": "chat.completion.chunk", "choices": [], "usage": usage}
        await response.write(b"data: " + json.dumps(last).encode() + b"\n\ndata: [DONE]\n\n")
        return response


def test_a_client_that_reads_slowly_does_not_make_its_specialist_slow(serve: Serve) -> None:
    """Its specialist would be worth less to all other clients of this worker."""
    with closing(Long()) as long:
        gateway = serve(backend(long, "small"))
        body, where = json.dumps(request("chat", "small", stream=True)).encode(), urlsplit(gateway.url)
        with socket.create_connection((where.hostname, where.port)) as client:
            client.sendall(head(b"content-length: %d" % len(body)) + body)
            time.sleep(3.0)
            while not gateway.rows("SELECT 1 FROM decisions WHERE status = 'ok'"):
                client.recv(1 << 20)
        lengths = gateway.gateway.measured["small"]
        assert lengths.output.value == 200  # the answer was whole and has been counted
        assert lengths.seconds.given(0.0) < 1.0


ENDLESS = 30.0
"""Seconds for which the server below sends nothing of an answer; then it goes on, so that a test can end."""


class Lively(WebServer):
    """Is never silent; some models send no content: at first, later (after a word) or for a while."""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        model = (await request.json())["model"]
        if model == "at first":
            await self._noise(response, b": PROCESSING\n\n", ENDLESS)
        elif model == "for a while":
            await self._noise(response, b": PROCESSING\n\n", 2 * SILENT)
        for word in range(12):
            await response.write(chat_event("small", f" word{word}"))
            await asyncio.sleep(0.25)
            if model == "later" and word == 0:
                await self._noise(response, chat_event("small", ""), ENDLESS)
        await response.write(b"data: [DONE]\n\n")
        return response

    async def _noise(self, response: web.StreamResponse, event: bytes, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            await response.write(event)
            await asyncio.sleep(0.02)


SILENT = 0.7
"""The `timeout` of its endpoint."""


def test_events_without_content_end_a_call_but_not_one_that_thinks_or_writes_slowly(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempts, "PATIENCE", 3)
    with closing(Lively()) as lively:
        names = ("at first", "later", "for a while")
        gateway = serve(*(backend(lively, name, timeout=SILENT) for name in names))

        def ask(name: str) -> tuple[int, dict[str, str], bytes]:
            return post(gateway, PATHS["chat"], request("chat", name, stream=True))

        with ThreadPoolExecutor() as pool:
            first, begun, whole = pool.map(ask, names)
        assert first[0] == 504
        assert (begun[0], begun[2].count(b" word"), b"broke off" in begun[2]) == (200, 1, True)
        assert (whole[0], whole[2].count(b" word"), b"[DONE]" in whole[2]) == (200, 12, True)
        assert gateway.settled(whole[1]["x-pandora-decision-id"])[0] == "ok"
        ended = gateway.rows("SELECT specialist, reason, cost FROM attempts WHERE status = 'error'")
        assert {name for name, *_ in ended} == {"at first", "later"}
        assert all("without content" in reason and cost > 0 for _, reason, cost in ended)
