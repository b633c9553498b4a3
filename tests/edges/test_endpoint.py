"""Embeddings and judgements from a real HTTP server on this machine that fails on purpose."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
import pytest

from pandora_router.errors import UpstreamError, UsageError
from pandora_router.estimators.endpoint import Endpoint, RemoteEmbedder
from pandora_router.estimators.estimator import Judge, Query, Scorer

SECRET = "never-print-this"


class Upstream:
    """A server that plays a script of answers, then answers well; remembers what it was asked."""

    def __init__(self) -> None:
        self.script: list[tuple[int, dict[str, str], bytes]] = []
        self.asked: list[tuple[str, dict[str, Any], str | None]] = []
        self.reply = "73"
        self.slow = 0.0
        upstream = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                upstream.asked.append((self.path, body, self.headers.get("Authorization")))
                time.sleep(upstream.slow)
                status, headers, raw = upstream.script.pop(0) if upstream.script else upstream.good(body)
                self.send_response(status)
                for key, value in {"Content-Length": str(len(raw)), **headers}.items():
                    self.send_header(key, value)
                self.end_headers()
                self.wfile.write(raw)

            def log_message(self, *_: Any) -> None:
                return

        class Quiet(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_: Any) -> None:
                return

        self.server = Quiet(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/v1"

    def good(self, body: dict[str, Any]) -> tuple[int, dict[str, str], bytes]:
        if "input" in body:
            items = [{"index": i, "embedding": [len(t), 1.0]} for i, t in enumerate(body["input"])]
            answer: dict[str, Any] = {"data": items[::-1]}
        else:
            answer = {"choices": [{"message": {"content": self.reply}}]}
        return 200, {}, json.dumps(answer).encode()


@pytest.fixture
def upstream(monkeypatch: pytest.MonkeyPatch) -> Iterator[Upstream]:
    monkeypatch.setenv("TEST_KEY", SECRET)
    one = Upstream()
    thread = threading.Thread(target=one.server.serve_forever, args=(0.01,))
    thread.start()
    yield one
    one.server.shutdown()
    one.server.server_close()
    thread.join()


def endpoint(upstream: Upstream, **settings: Any) -> Endpoint:
    return Endpoint(upstream.url, **{"key_from": "TEST_KEY", "pause": 0.01, "timeout": 5.0, **settings})


def test_embeddings_come_in_batches_in_order_and_unit_length(upstream: Upstream) -> None:
    texts = ["a" * n for n in range(7)]
    rows = RemoteEmbedder(endpoint(upstream), "small", batch=3).embed(texts)
    expected = np.array([[max(n, 1), 1.0] for n in range(7)])
    np.testing.assert_allclose(rows, expected / np.linalg.norm(expected, axis=1, keepdims=True), rtol=1e-6)
    assert [path for path, _, _ in upstream.asked] == ["/v1/embeddings"] * 3
    assert {key for _, _, key in upstream.asked} == {f"Bearer {SECRET}"}


def test_no_texts_ask_nobody(upstream: Upstream) -> None:
    assert len(RemoteEmbedder(endpoint(upstream), "small").embed([])) == 0
    assert upstream.asked == []


def test_what_may_pass_is_tried_again(upstream: Upstream) -> None:
    upstream.script = [(429, {"Retry-After": "0.01"}, b"busy"), (503, {}, b"")]
    assert RemoteEmbedder(endpoint(upstream), "small").embed(["x"]).shape == (1, 2)
    assert len(upstream.asked) == 3


@pytest.mark.parametrize(
    ("script", "tries", "message"),
    [
        ([(401, {}, b"bad key never-print-this")], 1, "status 401"),
        ([(500, {}, b"")] * 3, 3, "status 500"),
        ([(307, {"Location": "http://127.0.0.1:9/v1/embeddings"}, b"")], 1, "status 307"),
        ([(200, {}, b"not json")], 1, "JSON object"),
        ([(200, {}, b'{"data": [{"index": 5, "embedding": [1]}]}')], 1, "1 embeddings"),
    ],
)
def test_failures_end_in_an_error_that_never_shows_the_key(
    upstream: Upstream, script: list, tries: int, message: str
) -> None:
    upstream.script = list(script)
    with pytest.raises(UpstreamError, match=message) as caught:
        RemoteEmbedder(endpoint(upstream), "small").embed(["x"])
    assert len(upstream.asked) == tries
    assert SECRET not in str(caught.value) + repr(endpoint(upstream))


def test_a_slow_server_is_left_after_the_deadline(upstream: Upstream) -> None:
    upstream.slow = 0.6
    start = time.monotonic()
    with pytest.raises(UpstreamError, match="did not answer"):
        endpoint(upstream, timeout=0.1, retries=1).post("embeddings", {"input": ["x"]})
    assert time.monotonic() - start < 0.6


def test_nobody_listening_is_an_upstream_error() -> None:
    with pytest.raises(UpstreamError, match="Connection refused"):
        Endpoint("http://127.0.0.1:9/v1", retries=0).post("embeddings", {})


@pytest.mark.parametrize("url", ["file:///etc/hosts", "127.0.0.1:80", "http://user:pw@host/v1"])
def test_addresses_that_are_not_plain_http_are_refused(url: str) -> None:
    with pytest.raises(UsageError, match="base_url") as caught:
        Endpoint(url)
    assert "pw" not in str(caught.value)


def test_a_judge_is_an_estimator(upstream: Upstream) -> None:
    scorer = Scorer(Judge(endpoint(upstream), "judge"), price=0.01)
    query = Query("What is 2+2?", {"small": "I think it is"})
    found = asyncio.run(scorer.estimate(query, ["small", "large"]))
    np.testing.assert_allclose(found, [0.73, 0.73])
    sent = sorted(body["messages"][1]["content"] for _, body, _ in upstream.asked)
    assert "I think it is" not in sent[0]
    assert "I think it is" in sent[1]


@pytest.mark.parametrize("reply", ["no idea", "250", ""])
def test_a_judge_without_a_number_leaves_the_estimate_missing(upstream: Upstream, reply: str) -> None:
    upstream.reply = reply
    found = asyncio.run(Scorer(Judge(endpoint(upstream), "judge"), retries=0).estimate(Query("p"), ["a"]))
    assert np.isnan(found).all()
