"""Keep-alives in silent streams: between events, before the first content, without giving up fail-over."""

from __future__ import annotations

import http.client
import json
import re
from dataclasses import replace
from urllib.parse import urlsplit

import pytest

from tests.gateway.conftest import Running, Serve, backend
from tests.gateway.stub import Stub, events
from tests.gateway.test_wires import PATHS, request

PING = {
    "chat": b": ping\n\n",
    "responses": b": ping\n\n",
    "messages": b'event: ping\ndata: {"type": "ping"}\n\n',
}


def streamed(gateway: Running, stub: Stub, wire: str, model: str) -> tuple[dict[str, str], bytes]:
    """Ask for a stream, let the upstream go on after two keep-alives, and return everything that came."""
    where = urlsplit(gateway.url)
    assert where.hostname is not None
    client = http.client.HTTPConnection(where.hostname, where.port, timeout=60)
    try:
        client.request("POST", f"/v1/{PATHS[wire]}", json.dumps(request(wire, model, stream=True)))
        answer = client.getresponse()
        assert answer.status == 200
        came = b""
        while came.count(PING[wire]) < 2:
            part = answer.read1()
            assert part, came
            came += part
        stub.go.set()
        return {k.lower(): v for k, v in answer.getheaders()}, came + answer.read()
    finally:
        stub.go.clear()
        client.close()


@pytest.mark.parametrize("wire", PATHS)
def test_a_silent_specialist_is_waited_for(serve: Serve, stub: Stub, wire: str) -> None:
    gateway = serve(replace(backend(stub, "small"), model="patient small"), ping=0.1)
    headers, came = streamed(gateway, stub, wire, "small")
    assert headers["content-type"].startswith("text/event-stream")
    assert headers["x-pandora-specialist"] == "small"
    assert came.replace(PING[wire], b"") == b"".join(events(PATHS[wire], "small", usage=False))
    assert gateway.settled(headers["x-pandora-decision-id"])[0] == "ok"


@pytest.mark.parametrize("wire", PATHS)
def test_a_pause_between_events_is_filled(serve: Serve, stub: Stub, wire: str) -> None:
    gateway = serve(backend(stub, "pausing"), ping=0.1)
    _, came = streamed(gateway, stub, wire, "pausing")
    assert came.replace(PING[wire], b"") == b"".join(events(PATHS[wire], "pausing", usage=False))
    assert came.index(b"Hello") < came.index(PING[wire])  # a whole event before it, and none is cut
    assert re.search(rb"\n\r?\n$", came[: came.index(PING[wire])])


@pytest.mark.parametrize("wire", PATHS)
@pytest.mark.parametrize("fault", ["broken", "busy", "silent"])
def test_another_specialist_can_take_over_after_keep_alives(
    serve: Serve, stub: Stub, wire: str, fault: str
) -> None:
    first = replace(backend(stub, fault), model=f"patient {fault}")
    gateway = serve(first, backend(stub, "small"), ping=0.1)
    headers, came = streamed(gateway, stub, wire, "auto")
    assert came.replace(PING[wire], b"") == b"".join(events(PATHS[wire], "small", usage=False))
    assert gateway.settled(headers["x-pandora-decision-id"])[2] == "small"


@pytest.mark.parametrize("wire", PATHS)
@pytest.mark.parametrize("fault", ["broken", "bad"])
def test_a_failure_after_keep_alives_ends_the_stream_in_the_shape_of_the_wire(
    serve: Serve, stub: Stub, wire: str, fault: str
) -> None:
    gateway = serve(replace(backend(stub, fault), model=f"patient {fault}"), ping=0.1)
    headers, came = streamed(gateway, stub, wire, fault)
    assert (b"response.failed" if wire == "responses" else b'"error"') in came
    assert b"[DONE]" not in came
    assert (b"no such option" in came) == (fault == "bad")
    assert gateway.settled(headers["x-pandora-decision-id"])[0] == "error"


def test_no_keep_alive_where_they_are_switched_off_or_the_answer_is_whole(serve: Serve, stub: Stub) -> None:
    gateway = serve(replace(backend(stub, "small"), model="patient small"), ping=0.05)
    where = urlsplit(gateway.url)
    assert where.hostname is not None
    client = http.client.HTTPConnection(where.hostname, where.port, timeout=60)
    client.request("POST", "/v1/chat/completions", json.dumps(request("chat", "small")))
    other = http.client.HTTPConnection(where.hostname, where.port, timeout=60)
    other.request("POST", "/v1/chat/completions", json.dumps(request("chat", "small", stream=True)))
    assert b"ping" in other.getresponse().read1()  # by then the whole answer would have been pinged too
    stub.go.set()
    answer = client.getresponse()
    assert json.loads(answer.read())["model"] == "small"
    stub.go.clear()
    client.close()
    other.close()
