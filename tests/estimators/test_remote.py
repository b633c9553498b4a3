"""Embeddings from a real HTTP server on this machine that fails on purpose."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import numpy as np
import pytest

from pandora_router.errors import UpstreamError, UsageError
from pandora_router.estimators.embedders.remote import RemoteEmbedder
from pandora_router.transport.endpoint import Endpoint
from tests.support.raw_server import RawServer, raw_server, reply

SECRET = "sk-never-print-this"


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_KEY", SECRET)


def embeddings(request: bytes) -> list[bytes]:
    """One vector per text, its length and 1, in reverse order."""
    texts = json.loads(request.partition(b"\r\n\r\n")[2])["input"]
    items = [{"index": i, "embedding": [float(len(text)), 1.0]} for i, text in enumerate(texts)]
    return [reply(json.dumps({"data": items[::-1]}).encode())]


def embedder(server: RawServer, batch: int = 128, **settings: Any) -> RemoteEmbedder:
    usual = {"key_from": "TEST_KEY", "pause": 0.01, "timeout": 5.0}
    return RemoteEmbedder(Endpoint(server.url, **{**usual, **settings}), "small", batch)


def test_embeddings_come_in_batches_in_order_and_unit_length() -> None:
    texts = ["a" * n for n in range(7)]
    with raw_server(embeddings, 0.0) as server:
        rows = embedder(server, batch=3).embed(texts)
        requests = list(server.requests)
    expected = np.array([[max(n, 1), 1.0] for n in range(7)])
    np.testing.assert_allclose(rows, expected / np.linalg.norm(expected, axis=1, keepdims=True), rtol=1e-6)
    assert len(requests) == 3
    assert all(f"Authorization: Bearer {SECRET}".encode() in one for one in requests)


def test_no_texts_ask_nobody() -> None:
    with raw_server(embeddings, 0.0) as server:
        assert len(embedder(server).embed([])) == 0
        assert server.requests == []


def test_an_event_loop_goes_on_while_embeddings_are_awaited() -> None:
    def slow(request: bytes) -> Any:
        time.sleep(0.3)
        return embeddings(request)

    async def ticks(server: RawServer) -> int:
        work = asyncio.create_task(asyncio.to_thread(embedder(server).embed, ["x"]))
        fetched = asyncio.create_task(embedder(server).fetch(["x"]))
        count = 0
        while not (work.done() and fetched.done()):
            await asyncio.sleep(0.01)
            count += 1
        np.testing.assert_array_equal(work.result(), fetched.result())
        return count

    with raw_server(slow, 0.0) as server:
        assert asyncio.run(ticks(server)) >= 3


def test_what_may_pass_is_tried_again() -> None:
    script = iter([reply(b"busy", status="429 Busy", Retry_After="0.01"), reply(b"", status="503 Busy")])
    with raw_server(
        lambda request: [next(script, b"")] if len(server.requests) < 3 else embeddings(request), 0.0
    ) as server:
        assert embedder(server).embed(["x"]).shape == (1, 2)
        assert len(server.requests) == 3


@pytest.mark.parametrize(
    ("said", "tries", "message"),
    [
        (reply(b"bad key sk-never-print-this", status="401 No"), 1, "status 401"),
        (reply(b"", status="500 No"), 3, "status 500"),
        (reply(b"", status="307 Go", Location="http://127.0.0.1:9/v1/embeddings"), 1, "status 307"),
        (reply(b"not json"), 3, "JSON object"),
        (reply(b'{"data": [{"index": 5, "embedding": [1]}]}'), 1, "1 embeddings"),
        (reply(b'{"data": [{"index": 1e999, "embedding": [1]}]}'), 1, "1 embeddings"),
        (reply(b'{"data": [{"index": 0, "embedding": ["sk-never-print-this"]}]}'), 1, "1 embeddings"),
    ],
)
def test_failures_end_in_an_error_that_never_shows_the_key(said: bytes, tries: int, message: str) -> None:
    with raw_server(lambda _: [said], 0.0) as server:
        with pytest.raises(UpstreamError, match=message) as caught:
            embedder(server).embed(["x"])
        assert len(server.requests) == tries
        assert SECRET not in str(caught.value) + repr(embedder(server))


def test_nobody_listening_is_an_upstream_error() -> None:
    with pytest.raises(UpstreamError, match="could not be reached"):
        RemoteEmbedder(Endpoint("http://127.0.0.1:9/v1", retries=0), "m").embed(["x"])


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/hosts",
        "127.0.0.1:80",
        "http://user:pw@host/v1",
        "http://h/v1?key=pw",
        "http://h\r\nX: pw/",
        "http://[h",
    ],
)
def test_addresses_that_are_not_plain_http_are_refused(url: str) -> None:
    with pytest.raises(UsageError, match="base_url") as caught:
        Endpoint(url)
    assert "pw" not in str(caught.value)
