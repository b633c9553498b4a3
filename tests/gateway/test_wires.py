"""What clients see of the gateway, over real sockets: bytes, headers, errors, rows in the store."""

from __future__ import annotations

import json
import socket
import threading
import time
import urllib.error
import urllib.request
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from pandora_router.prices import Tariff
from pandora_router.store import accounts
from pandora_router.store.money import nanodollars
from pandora_router.wires.usage import Usage
from tests.gateway.conftest import Running, Serve, backend
from tests.gateway.stub import Stub, events, whole

PATHS = {"chat": "chat/completions", "responses": "responses", "messages": "messages"}


def request(wire: str, model: str, **more: Any) -> dict[str, Any]:
    said = {"input": "hi"} if wire == "responses" else {"messages": [{"role": "user", "content": "hi"}]}
    bound = {"max_tokens": 50} if wire == "messages" else {}
    return {"model": model, **said, **bound, **more}


def post(gateway: Running, path: str, body: object, **headers: str) -> tuple[int, dict[str, str], bytes]:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    named = {"Content-Type": "application/json", **{k.replace("_", "-"): v for k, v in headers.items()}}
    ask = urllib.request.Request(f"{gateway.url}/v1/{path}", data, named, method="POST")
    try:
        with urllib.request.urlopen(ask, timeout=60) as answer:
            return answer.status, {k.lower(): v for k, v in answer.headers.items()}, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, {k.lower(): v for k, v in error.headers.items()}, error.read()


@pytest.mark.parametrize("wire", PATHS)
def test_an_answer_comes_back_byte_for_byte_and_is_billed(serve: Serve, stub: Stub, wire: str) -> None:
    gateway = serve(backend(stub, "small", prices=Tariff(1.0, 10.0, cached_in=0.5)))
    status, headers, body = post(gateway, PATHS[wire], request(wire, "small"))
    assert (status, body) == (200, whole(PATHS[wire], "small"))
    assert headers["x-pandora-specialist"] == "small"
    id_ = headers["x-pandora-decision-id"]
    wanted = (12 * 1.0 + 8 * 0.5 + 4 * 10.0) / 1e6
    assert gateway.settled(id_) == ("ok", nanodollars(wanted), "small")


@pytest.mark.parametrize("wire", PATHS)
def test_a_stream_comes_back_byte_for_byte_and_is_billed(serve: Serve, stub: Stub, wire: str) -> None:
    gateway = serve(backend(stub, "small"))
    status, headers, body = post(gateway, PATHS[wire], request(wire, "small", stream=True))
    assert status == 200
    assert body == b"".join(events(PATHS[wire], "small", usage=False))  # counts nobody asked for are left out
    cost = gateway.settled(headers["x-pandora-decision-id"])[1]
    assert cost == nanodollars((20 + 40) / 1e6)
    rows = gateway.rows("SELECT fresh + cached, output, usage_complete FROM attempts")
    assert rows == [(20, 4, 1)]


def test_usage_stays_where_the_client_asked_for_it(serve: Serve, stub: Stub) -> None:
    gateway = serve(backend(stub, "small"))
    body = request("chat", "small", stream=True, stream_options={"include_usage": True})
    assert post(gateway, "chat/completions", body)[2] == b"".join(events("chat/completions", "small", True))


def test_unknown_members_reach_the_specialist_untouched(serve: Serve, stub: Stub) -> None:
    gateway = serve(backend(stub, "small"), default="small")
    raw = (
        b'{ "future" : {"x": [1.50, 1e3]}, "model":"auto" ,"messages":[{"role":"user","content":"\\u00e9"}]}'
    )
    status, headers, _ = post(gateway, "chat/completions", raw)
    assert status == 200
    assert headers["x-pandora-policy"] == "default"
    assert stub.bodies[-1] == raw.replace(b'"model":"auto"', b'"model":"small"')


@pytest.mark.parametrize("wire", PATHS)
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("fault", ["busy", "broken", "silent", "nowhere", "keyless"])
def test_another_specialist_takes_over_before_the_first_content(
    serve: Serve, stub: Stub, wire: str, stream: bool, fault: str
) -> None:
    if fault == "silent" and not stream:
        pytest.skip("only a stream can end without content")
    first = backend(stub, fault)
    if fault == "nowhere":
        with socket.socket() as probe:  # a port on which nobody listens
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        object.__setattr__(first.endpoint, "base_url", f"http://127.0.0.1:{port}/v1")
    if fault == "keyless":  # the file with its key has gone
        object.__setattr__(first.endpoint, "key_file", Path("/nowhere"))
    gateway = serve(first, backend(stub, "small"))
    status, headers, body = post(gateway, PATHS[wire], request(wire, "auto", stream=stream))
    assert status == 200
    assert b"Hello" in body
    assert headers["x-pandora-specialist"] == "small"
    assert gateway.settled(headers["x-pandora-decision-id"])[2] == "small"
    rows = gateway.rows("SELECT kind, specialist, status FROM attempts ORDER BY at")
    assert rows == [("answer", fault, "error"), ("retry", "small", "ok")]


def test_a_key_that_cannot_be_read_is_no_mistake_of_the_client(serve: Serve, stub: Stub) -> None:
    keyless = backend(stub, "small")
    object.__setattr__(keyless.endpoint, "key_file", Path("/nowhere/key"))
    gateway = serve(keyless)
    for path in ("chat/completions", "embeddings"):
        status, _, body = post(gateway, path, {**request("chat", "small"), "input": "x"})
        assert (status, json.loads(body)["error"]["code"]) == (502, "upstream_failed")
        assert b"nowhere" not in body
    assert gateway.rows("SELECT sum(cost) FROM decisions") == [(0,)]


@pytest.mark.parametrize("stream", [False, True])
def test_a_specialist_that_never_answers_is_given_up(serve: Serve, stub: Stub, stream: bool) -> None:
    gateway = serve(backend(stub, "hang", timeout=0.5), backend(stub, "small"))
    status, headers, _ = post(gateway, "chat/completions", request("chat", "auto", stream=stream))
    assert (status, headers["x-pandora-specialist"]) == (200, "small")
    status, _, body = post(gateway, "chat/completions", request("chat", "hang", stream=stream))
    assert (status, json.loads(body)["error"]["code"]) == (504, "upstream_failed")


def test_nobody_takes_over_for_a_specialist_that_was_named(serve: Serve, stub: Stub) -> None:
    gateway = serve(backend(stub, "broken"), backend(stub, "small"))
    status, headers, body = post(gateway, "chat/completions", request("chat", "broken"))
    assert status == 502
    assert json.loads(body)["error"]["code"] == "upstream_failed"
    assert gateway.settled(headers["x-pandora-decision-id"])[0] == "error"


def test_an_error_of_the_request_is_passed_on(serve: Serve, stub: Stub) -> None:
    gateway = serve(backend(stub, "bad"))
    status, _, body = post(gateway, "chat/completions", request("chat", "bad"))
    assert (status, json.loads(body)["error"]["message"]) == (400, "no such option")


@pytest.mark.parametrize("wire", PATHS)
def test_a_stream_that_breaks_ends_with_an_error_of_its_wire(serve: Serve, stub: Stub, wire: str) -> None:
    gateway = serve(backend(stub, "cut"), backend(stub, "small"))
    status, headers, body = post(gateway, PATHS[wire], request(wire, "cut", stream=True))
    assert status == 200
    assert b"[DONE]" not in body
    assert (b"response.failed" if wire == "responses" else b"error") in body
    assert gateway.settled(headers["x-pandora-decision-id"])[0] == "error"


def test_a_client_that_leaves_cancels_the_call_and_is_settled(serve: Serve, stub: Stub) -> None:
    gateway = serve(backend(stub, "slow"))
    before = stub.left["slow"]
    body = json.dumps(request("chat", "slow", stream=True)).encode()
    host, port = gateway.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as client:
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
        client.sendall(head.encode() + body)
        assert b"200 OK" in client.recv(65536)
    until = time.monotonic() + 20
    while stub.left["slow"] == before and time.monotonic() < until:
        time.sleep(0.02)
    assert stub.left["slow"] == before + 1
    id_ = gateway.rows("SELECT id FROM decisions")[0][0]
    assert gateway.settled(id_)[0] == "cancelled"
    assert gateway.rows("SELECT status, usage_complete FROM attempts") == [("cancelled", 0)]


def test_keys_rates_and_budgets(serve: Serve, stub: Stub) -> None:
    gateway = serve(backend(stub, "small", max_output=100), keys=True)

    def make(open_: Any) -> str:
        return accounts.add_key(open_, "team", time.time(), budget=nanodollars(0.0030))[1]

    secret = gateway.gateway.store.submit(make).result()
    ask = request("chat", "small")
    status, _, body = post(gateway, "chat/completions", ask)
    assert (status, b"has none" in body, b"not known" in body) == (401, True, False)
    assert post(gateway, "chat/completions", ask, Authorization="Bearer pk-wrong")[0] == 401
    results = [post(gateway, "chat/completions", ask, Authorization=f"Bearer {secret}") for _ in range(60)]
    served = [result for result in results if result[0] == 200]
    refused = [result for result in results if result[0] == 429]
    assert len(served) + len(refused) == 60
    assert served
    assert refused
    assert refused[0][1]["x-should-retry"] == "false"
    assert "budget" in json.loads(refused[0][2])["error"]["message"]
    spent, reserved = gateway.rows("SELECT spent, reserved FROM budgets")[0]
    assert (spent, reserved) == (len(served) * nanodollars((20 + 40) / 1e6), 0)
    assert spent <= nanodollars(0.0030)
    assert not any(secret in json.dumps(result[1]) + result[2].decode() for result in results)


def test_a_provider_cannot_claim_more_than_a_request_allows(serve: Serve, stub: Stub) -> None:
    gateway = serve(backend(stub, "liar"))
    ask = request("chat", "liar", max_tokens=50)
    headers = post(gateway, "chat/completions", ask)[1]
    bound = nanodollars(((len(json.dumps(ask)) + 64) + 50 * 10.0) / 1e6)
    assert gateway.settled(headers["x-pandora-decision-id"])[1] == bound
    assert gateway.rows("SELECT usage_complete, reason FROM attempts")[0][0] == 0
    headers = post(gateway, "chat/completions", request("chat", "liar"))[1]  # nothing bounds this one
    assert gateway.settled(headers["x-pandora-decision-id"])[1] == nanodollars((20 + 100_000) / 1e6)


def test_the_estimate_of_a_call_is_within_what_is_reserved_for_it(serve: Serve, stub: Stub) -> None:
    """A dead worker's calls are charged at their estimates, which must not exceed the budget."""
    gateway = serve(backend(stub, "small"), backend(stub, "liar"))
    post(gateway, "chat/completions", request("chat", "liar", max_tokens=50))
    measured = gateway.gateway.measured
    assert measured["liar"].output.value is None  # what is not believed is not learnt
    for _ in range(100):
        measured["small"].answered(Usage(10**6, 0, 0, 10**6), 0.2, size=100)
    ask = request("chat", "small", max_tokens=50)
    post(gateway, "chat/completions", ask)
    bound = nanodollars(((len(json.dumps(ask)) + 64) + 50 * 10.0) / 1e6)
    [(estimate,)] = gateway.rows("SELECT estimate FROM attempts WHERE specialist = 'small'")
    assert nanodollars(50 * 10.0 / 1e6) < estimate <= bound


@pytest.mark.parametrize(("calls", "answered"), [(1, False), (2, True)])
def test_calls_that_may_fail_are_reserved_with_the_answer(
    serve: Serve, stub: Stub, calls: int, answered: bool
) -> None:
    """A budget for one call pays for one: if the first specialist fails, the second is not asked."""
    first, second = (backend(stub, name, max_output=100) for name in ("silent", "small"))
    gateway = serve(first, second, keys=True)
    ask = request("chat", "auto", stream=True)
    size = len(json.dumps(ask).encode())
    budget = calls * nanodollars(((size + 64) + 100 * 10.0) / 1e6) + 10

    def make(open_: Any) -> str:
        return accounts.add_key(open_, "team", time.time(), budget=budget)[1]

    secret = gateway.gateway.store.submit(make).result()
    status, headers, body = post(gateway, "chat/completions", ask, Authorization=f"Bearer {secret}")
    assert status == (200 if answered else 429), body
    if not answered:
        assert headers["x-should-retry"] == "false"
    gateway.settled(gateway.rows("SELECT id FROM decisions")[0][0])
    spent, reserved = gateway.rows("SELECT spent, reserved FROM budgets")[0]
    assert (0 < spent <= budget, reserved) == (True, 0)
    asked = {name for (name,) in gateway.rows("SELECT specialist FROM attempts")}
    assert asked == {*("silent", "small")[:calls]}


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (b"", 400),
        (b"not json", 400),
        (b"[1, 2]", 400),
        (b'{"model": 5, "messages": [1]}', 400),
        (b'{"model": "auto"}', 400),
        (b'{"model": "auto", "messages": []}', 400),
        (b'{"model": "auto", "messages": [{"role": "user", "content": "\\ud800"}]}', 400),
        (b'{"model": "auto", "messages": [{"role": "user", "content": "\xff"}]}', 400),
        (b'{"model": "auto", "messages": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", 400),
        (b'{"model": "nobody", "messages": [{"role": "user", "content": "x"}]}', 404),
        (b'{"model": "auto@nobody", "messages": [{"role": "user", "content": "x"}]}', 404),
        (b'{"model": "auto", "stream": "yes", "messages": [{"role": "user", "content": "x"}]}', 400),
        (b'{"model": "auto", "max_tokens": -1, "messages": [{"role": "user", "content": "x"}]}', 400),
        (b'{"model": "auto", "messages": [{"role": "user", "content": "' + b"x" * 10_000_000 + b'"}]}', 200),
        (b'{"model": "auto", "messages": ["x", null, {"role": 5}, {"role": "user", "content": {}}]}', 200),
        (b'{"model": "auto", "messages": [{"role": "user", "content": "x"}], "n": 1e400}', 400),
        (b'{"model": "auto", "messages": [{"role": "user", "content": " "}]}' + b" " * 40_000_000, 413),
    ],
)
def test_bad_input_is_a_clear_4xx_or_untouched(serve: Serve, stub: Stub, raw: bytes, status: int) -> None:
    gateway = serve(backend(stub, "small"))
    came, _, body = post(gateway, "chat/completions", raw)
    assert came == status, body[:300]
    if status >= 400:
        assert isinstance(json.loads(body)["error"]["message"], str)


def test_errors_have_the_shape_of_their_wire(serve: Serve, stub: Stub) -> None:
    gateway = serve(backend(stub, "small"))
    said = json.loads(post(gateway, "messages", b"{}")[2])
    assert said["type"] == "error"
    assert said["error"]["type"] == "invalid_request_error"
    assert json.loads(post(gateway, "responses", b"{}")[2])["error"]["type"] == "invalid_request_error"


def test_headers_cannot_be_injected_and_odd_values_are_refused(serve: Serve, stub: Stub) -> None:
    gateway = serve(backend(stub, "small"))
    ask = request("chat", "auto")
    assert post(gateway, "chat/completions", ask, x_pandora_router="maybe")[0] == 400
    assert post(gateway, "chat/completions", ask, x_pandora_allow="nobody")[0] == 400
    assert post(gateway, "chat/completions", ask, x_pandora_max_fee="much")[0] == 400
    assert post(gateway, "chat/completions", ask, x_pandora_deny="small")[0] == 400
    status, headers, _ = post(gateway, "chat/completions", ask, x_pandora_router="off")
    assert (status, headers["x-pandora-policy"]) == (200, "default")


def test_who_may_answer_is_filtered_by_the_request(serve: Serve, stub: Stub) -> None:
    plain = backend(stub, "small", abilities=frozenset(), refuses=frozenset({"temperature"}), context=1000)
    gateway = serve(plain, backend(stub, "large"))
    for more in (
        {"tools": [{"type": "function"}]},
        {"temperature": 0},
        {"response_format": {"type": "json_schema"}},
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:"}}]}]},
        {"messages": [{"role": "user", "content": "x" * 5000}]},
    ):
        headers = post(gateway, "chat/completions", {**request("chat", "auto"), **more})[1]
        assert headers["x-pandora-specialist"] == "large", more
        row = gateway.rows("SELECT detail FROM decisions WHERE id = ?", headers["x-pandora-decision-id"])
        assert list(json.loads(row[0][0])["excluded"]) == ["small"]


def test_a_conversation_stays_where_it_began(serve: Serve, stub: Stub) -> None:
    gateway = serve(backend(stub, "small"), backend(stub, "large"))
    first = [{"role": "user", "content": "begin"}]
    ask = {"model": "auto", "messages": first}
    headers = post(gateway, "chat/completions", ask, x_pandora_allow="large")[1]
    assert headers["x-pandora-specialist"] == "large"
    more = [*first, {"role": "assistant", "content": "ok"}, {"role": "user", "content": "go on"}]
    headers = post(gateway, "chat/completions", {"model": "auto", "messages": more})[1]
    assert (headers["x-pandora-specialist"], headers["x-pandora-policy"]) == ("large", "session")
    other = [{"role": "user", "content": "another"}, *more[1:]]
    headers = post(gateway, "chat/completions", {"model": "auto", "messages": other})[1]
    assert headers["x-pandora-specialist"] == "small"


def test_a_response_is_continued_by_its_author(serve: Serve, stub: Stub) -> None:
    gateway = serve(backend(stub, "small"), backend(stub, "large"))
    post(gateway, "responses", request("responses", "large"))
    ask = request("responses", "auto", previous_response_id="resp_1")
    assert post(gateway, "responses", ask)[1]["x-pandora-specialist"] == "large"


def test_a_failing_specialist_is_left_alone_and_tried_again(serve: Serve, stub: Stub) -> None:
    gateway = serve(backend(stub, "broken"), backend(stub, "small"))
    for _ in range(8):
        assert post(gateway, "chat/completions", request("chat", "auto"))[0] == 200
    assert gateway.gateway.circuits["broken"].state(time.monotonic()) == "open"
    before = stub.calls["broken"]
    post(gateway, "chat/completions", request("chat", "auto"))
    assert stub.calls["broken"] == before
    status, _, body = post(gateway, "chat/completions", request("chat", "broken"))
    assert status == 503, body


@pytest.mark.slow
def test_a_connection_waits_for_its_next_request(serve: Serve, stub: Stub) -> None:
    """Longer than the five seconds of uvicorn: load balancers keep connections for about a minute."""
    gateway = serve(backend(stub, "small"))
    with closing(HTTPConnection(gateway.url.removeprefix("http://"), timeout=30)) as client:
        for pause in (0.0, 5.5):
            time.sleep(pause)
            client.request("POST", "/v1/chat/completions", json.dumps(request("chat", "small")))
            if pause == 0.0:
                kept = client.sock
            answer = client.getresponse()
            answer.read()
            assert (answer.status, client.sock) == (200, kept)


def test_questions(serve: Serve, stub: Stub) -> None:
    gateway = serve(backend(stub, "small"), backend(stub, "large"))

    def get(path: str) -> tuple[int, bytes]:
        try:
            with urllib.request.urlopen(gateway.url + path, timeout=30) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read()

    assert get("/healthz")[0] == 200
    ready = json.loads(get("/readyz")[1])
    assert ready["ready"]
    assert ready["generation"] == 1
    listed = [one["id"] for one in json.loads(get("/v1/models")[1])["data"]]
    assert listed == ["auto", "small", "large"]
    headers = post(gateway, "chat/completions", request("chat", "auto"))[1]
    id_ = headers["x-pandora-decision-id"]
    gateway.settled(id_)
    row = json.loads(get(f"/v1/routing/decisions/{id_}")[1])
    assert (row["specialist"], len(row["attempts"])) == ("small", 1)
    assert get("/v1/routing/decisions/none")[0] == 404
    assert get("/nowhere")[0] == 404
    assert get("/v1/chat/completions")[0] == 405
    for body, status in (
        ({"decision_id": id_, "reward": 1}, 200),
        ({"decision_id": id_, "metric": "stars", "value": 0.9, "source": "user"}, 200),
        ({"decision_id": id_, "metric": "stars", "value": 4.5}, 400),
        ({"decision_id": id_, "metric": "stars", "value": 1e308}, 400),
        ({"decision_id": id_, "metric": "stars", "value": 10**400}, 400),
        ({"decision_id": id_, "reward": 1, "observed_at": 10**400}, 400),
        ({"decision_id": id_, "reward": 1, "observed_at": -1}, 400),
        ({"decision_id": "none", "reward": 1}, 404),
        ({"decision_id": id_, "reward": "good"}, 400),
        ({"decision_id": id_, "reward": 1e300}, 400),
        ({"decision_id": id_, "metric": "reward", "value": -1}, 400),
        ({"decision_id": id_, "rewards": 1}, 400),
        ([], 400),
    ):
        assert post(gateway, "feedback", body)[0] == status, body
    again = [post(gateway, "feedback", {"decision_id": id_, "reward": 0}, Idempotency_Key="k") for _ in "ab"]
    assert [json.loads(body)["status"] for _, _, body in again] == ["added", "known"]
    calls = sum(stub.calls.values())
    status, _, body = post(gateway, "routing/decision", request("chat", "auto"))
    assert (status, json.loads(body)["specialist"], sum(stub.calls.values())) == (200, "small", calls)
    assert json.loads(post(gateway, "embeddings", {"model": "large", "input": "x"})[2])["model"] == "large"
    counted = post(gateway, "messages/count_tokens", {"model": "auto", "messages": []})
    assert json.loads(counted[2]) == {"input_tokens": 1}
    text = get("/metrics")[1].decode()
    assert 'pandora_requests_total{specialist="small"} 1' in text


def test_many_at_once_leave_one_settled_row_each(serve: Serve, stub: Stub) -> None:
    gateway = serve(backend(stub, "small"), backend(stub, "large"))
    models = ["auto", "small", "large"]
    found: list[tuple[int, dict[str, str], bytes]] = []

    def ask(i: int) -> None:
        wire = list(PATHS)[i % 3]
        asked = [request(wire, models[k % 3], stream=k % 2 == 0) for k in range(5)]
        found.extend(post(gateway, PATHS[wire], one) for one in asked)

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert [status for status, _, _ in found] == [200] * 60
    for _, headers, _ in found:
        assert gateway.settled(headers["x-pandora-decision-id"])[0] == "ok"
    assert gateway.rows("SELECT count(*) FROM attempts WHERE settled_at IS NULL") == [(0,)]
    assert gateway.rows("SELECT sum(requests) FROM minutes") == [(60,)]
