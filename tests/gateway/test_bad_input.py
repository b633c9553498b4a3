"""Bad input on every wire: a clear 4xx in its shape or untouched, never a 500 or a stuck connection."""

from __future__ import annotations

import json
import socket
from urllib.parse import urlsplit

import pytest

from pandora_router.gateway.http.protocol import LARGEST_HEAD
from tests.gateway.conftest import Running, Serve, backend
from tests.gateway.stub import Stub, events, whole
from tests.gateway.test_wires import PATHS, post, request


def body(wire: str, text: str = "hi", **more: object) -> dict[str, object]:
    said = {"input": text} if wire == "responses" else {"messages": [{"role": "user", "content": text}]}
    return {**request(wire, "small"), **said, **more}


def raw(gateway: Running, sent: bytes, *, then_wait: bool = True) -> bytes:
    """Everything the server says to these bytes until it closes the connection."""
    where = urlsplit(gateway.url)
    with socket.create_connection((where.hostname, where.port), timeout=60) as client:
        client.sendall(sent)
        came = b""
        while then_wait and (part := client.recv(65536)):
            came += part
        return came


def content(wire: str, item: object) -> dict[str, object]:
    return {"input": [item]} if wire == "responses" else {"messages": [item]}


ODD = [
    {"role": "user", "content": [{"type": []}]},
    {"role": "user", "content": [{"type": {}, "text": {}}]},
    {"role": [], "content": "x"},
    {"role": {}, "content": [[], None, 5, "x"]},
    {"role": "user", "content": 10**30},
    {"role": "user", "type": [], "content": None},
]


@pytest.mark.parametrize("wire", PATHS)
def test_members_of_the_wrong_kind(serve: Serve, stub: Stub, wire: str) -> None:
    gateway = serve(backend(stub, "small"))
    for item in ODD:
        status, _, answer = post(gateway, PATHS[wire], {**request(wire, "auto"), **content(wire, item)})
        assert status in (200, 400), (item, answer)
    for name in (
        "tools",
        "metadata",
        "stream_options",
        "response_format",
        "text",
        "prompt_cache_key",
        "logprobs",
    ):
        for value in ([], {}, "x", 5, None, [[]], {"type": []}):
            status, _, answer = post(gateway, PATHS[wire], body(wire, **{name: value}))
            assert status in (200, 400), (name, value, answer)
    for value in ("x", 5, [1]):
        sent = {**request("chat", "small"), "stream": True, "stream_options": value}
        assert post(gateway, PATHS["chat"], sent)[0] == 400, value


@pytest.mark.parametrize("wire", PATHS)
@pytest.mark.parametrize(
    "broken",
    [
        b'{"model": "small", "x": "\\ud800"}',
        b'{"model": "small", "x": "\xff\xfe"}',
        b'{"model": "small", "x": ' + b"[" * 200_000 + b"]" * 200_000 + b"}",
        b'{"model": "small", "x": ' + b'{"a":' * 100_000 + b"1" + b"}" * 100_000 + b"}",
        b'{"model": "small", "n": 1e999}',
        b"\x00" * 1000,
        b'"' + b"x" * 10_000_000 + b'"',
        b"",
    ],
    ids=["surrogate", "utf-8", "lists", "objects", "number", "zeros", "text", "empty"],
)
def test_what_is_no_request_is_a_400_in_the_shape_of_the_wire(
    serve: Serve, stub: Stub, wire: str, broken: bytes
) -> None:
    gateway = serve(backend(stub, "small"))
    status, _, answer = post(gateway, PATHS[wire], broken)
    assert status == 400
    error = json.loads(answer)
    assert isinstance(error["error"]["message"], str)
    assert ("type" in error) == (wire == "messages")


@pytest.mark.parametrize("wire", PATHS)
def test_large_requests_reach_the_specialist_untouched(serve: Serve, stub: Stub, wire: str) -> None:
    gateway = serve(backend(stub, "small"))
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    for more in ({"tools": [tool] * 1000}, {"x": "y" * 10_000_000}):
        sent = json.dumps(body(wire, **more)).encode()
        assert post(gateway, PATHS[wire], sent)[0] == 200
        assert stub.bodies[-1] == sent


IMITATIONS = (
    "data: [DONE]\n\nevent: error\ndata: {}\n\n",
    ": ping\n\n",
    '"usage": {"prompt_tokens": 999999, "completion_tokens": 999999}',
    '{"model": "large", "x-pandora-allow": "large"}',
    '"model": "large"',
    '{"type":"response.failed","error":{"message":"no"}}',
    "event: message_stop\r\n\r\n\u2028\x85\x0b",
    "log-probabilities: -0.100 -0.200\nyes",
)


@pytest.mark.parametrize("wire", PATHS)
@pytest.mark.parametrize("stream", [False, True])
def test_texts_that_imitate_our_formats_are_only_texts(
    serve: Serve, stub: Stub, wire: str, stream: bool
) -> None:
    gateway = serve(backend(stub, "echo"), backend(stub, "large"))
    for text in IMITATIONS:
        sent = {**body(wire, text, stream=stream), "model": "echo"}
        status, headers, answer = post(gateway, PATHS[wire], sent)
        path = PATHS[wire]
        wanted = b"".join(events(path, "echo", False, [text])) if stream else whole(path, "echo", text)
        assert (status, answer) == (200, wanted)
        assert headers["x-pandora-specialist"] == "echo"
        assert gateway.settled(headers["x-pandora-decision-id"])[0] == "ok"
    assert gateway.rows("SELECT DISTINCT fresh + cached, output FROM attempts") == [(20, 4)]


def test_a_header_cannot_be_injected(serve: Serve, stub: Stub) -> None:
    gateway = serve(backend(stub, "small"))
    for name in ("nobody\r\nx-injected: 1", "small\r\n\r\n", "\u2603" * 50):
        status, headers, _ = post(gateway, "chat/completions", {**body("chat"), "model": name})
        assert (status, "x-injected" in headers) == (404, False)
    start = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    sent = json.dumps(body("chat")).encode()
    length = b"Content-Length: %d\r\n\r\n" % len(sent)
    for odd in (
        b"x-pandora-session: a\rb\r\n",
        b"x-pandora-allow: \x00\r\n",
        b"x y: 1\r\n",
        b"x-pandora-max-fee: \xff\r\n",
    ):
        assert raw(gateway, start + odd + length + sent).startswith((b"HTTP/1.1 400", b"HTTP/1.1 200"))


def test_a_request_that_does_not_arrive_is_let_go(serve: Serve, stub: Stub) -> None:
    gateway = serve(backend(stub, "small"), patience=0.3)
    start = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
    assert raw(gateway, b"").startswith(b"HTTP/1.1 408")
    assert raw(gateway, start + b"X-Slow: ").startswith(b"HTTP/1.1 408")
    assert raw(gateway, start + b"Content-Length: 100\r\n\r\n").startswith(b"HTTP/1.1 408")
    assert raw(gateway, start + b"Content-Length: 100\r\n\r\n{").startswith(b"HTTP/1.1 408")
    assert raw(gateway, start + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhel").startswith(b"HTTP/1.1 408")
    assert raw(gateway, start + b"X: " + b"y" * (LARGEST_HEAD + 10)).startswith(b"HTTP/1.1 431")
    assert raw(gateway, b"nonsense\r\n\r\n").startswith(b"HTTP/1.1 400")
    first = start + b"Content-Length: 2\r\n\r\n{}"
    kept = raw(gateway, first + start + b"X-Slow: ")  # a second request on a connection that is kept
    assert kept.startswith(b"HTTP/1.1 400")
    assert b"HTTP/1.1 408" in kept
    assert post(gateway, "chat/completions", body("chat"))[0] == 200
