"""Endpoints beside the wires: who may read them, and in which format a request to decide about is read."""

from __future__ import annotations

import json
import re
import socket
import time
import urllib.error
import urllib.request
from dataclasses import replace
from typing import Any

import pytest

from pandora_router.gateway.http import openapi
from pandora_router.gateway.http.endpoints import ROUTES
from pandora_router.store import accounts
from pandora_router.wires.known import BY_PATH
from tests.gateway.conftest import Running, Serve, backend
from tests.gateway.stub import Stub
from tests.support import routers


class Stay(urllib.request.HTTPRedirectHandler):
    """Does not follow a redirect."""

    def redirect_request(self, *_: Any) -> None:
        return None


def ask(gateway: Running, path: str, body: object | None = None, **headers: str) -> tuple[int, Any, bytes]:
    data = None if body is None else json.dumps(body).encode()
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    request = urllib.request.Request(gateway.url + path, data, named)
    try:
        with urllib.request.build_opener(Stay).open(request, timeout=30) as answer:
            return answer.status, answer.headers, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers, error.read()


def key_of(gateway: Running, name: str, *, admin: bool = False) -> str:
    _, secret = gateway.gateway.store.submit(
        lambda open_: accounts.add_key(open_, name, time.time(), admin=admin)
    ).result(30)
    return f"Bearer {secret}"


def test_names_need_a_key_and_what_concerns_all_keys_an_admin_key(serve: Serve, stub: Stub) -> None:
    gateway = serve(backend(stub, "hidden-name"), keys=True)
    team, operator = key_of(gateway, "team"), key_of(gateway, "operator", admin=True)
    for path in ("/openapi.json", "/readyz", "/metrics", "/v1/models", "/nowhere"):
        for headers in ({}, {"Authorization": "Bearer pk-unknown"}):
            status, _, body = ask(gateway, path, **headers)
            assert b"hidden-name" not in body, path
            assert status == (200 if path in ("/openapi.json", "/readyz") else 401), path
    message = {"model": "hidden-name", "messages": [{"role": "user", "content": "hi"}]}
    headers = ask(gateway, "/v1/chat/completions", message, Authorization=operator)[1]
    gateway.settled(headers["x-pandora-decision-id"])
    status, _, body = ask(gateway, "/metrics", Authorization=team)
    assert (status, b"hidden-name" in body) == (403, False)
    assert b"--admin" in body
    status, _, body = ask(gateway, "/metrics", Authorization=operator)
    assert (status, b'pandora_requests_total{specialist="hidden-name"} 1' in body) == (200, True)
    assert "specialists" not in json.loads(ask(gateway, "/readyz", Authorization=team)[2])
    ready = json.loads(ask(gateway, "/readyz", Authorization=operator)[2])
    assert ready["specialists"] == {"hidden-name": "closed"}
    assert b"hidden-name" in ask(gateway, "/openapi.json", Authorization=team)[2]


@pytest.mark.parametrize("path", ["/v1/embeddings", "/v1/messages/count_tokens"])
def test_calls_that_are_passed_on_name_nobody_without_a_key(serve: Serve, stub: Stub, path: str) -> None:
    wires = frozenset({"responses"})
    gateway = serve(replace(backend(stub, "hidden-name"), wires=wires), keys=True)
    body = {"model": "any", "input": "x", "messages": [{"role": "user", "content": "x"}]}
    for headers in ({}, {"Authorization": "Bearer pk-unknown"}):
        status, _, answer = ask(gateway, path, body, **headers)
        assert (status, b"hidden-name" in answer) == (401, False)
    named = {**body, "model": "hidden-name"}
    status, _, answer = ask(gateway, path, named, Authorization=key_of(gateway, "team"))
    assert (status, b"hidden-name" in answer) == (404, True)


def test_a_browser_is_sent_to_the_dashboard_and_clients_get_json(serve: Serve, stub: Stub) -> None:
    gateway = serve(backend(stub, "small"), keys=True)
    html = "text/html,application/xhtml+xml"
    assert ask(gateway, "/", Accept=html)[0] == 401  # nothing to be sent to
    gateway.gateway.mounted["/dashboard"] = gateway.gateway
    status, headers, _ = ask(gateway, "/", Accept=html)
    assert (status, headers["location"]) == (303, "/dashboard")
    status, headers, body = ask(gateway, "/", Accept="*/*")
    assert (status, headers["content-type"]) == (401, "application/json")
    assert json.loads(body)["error"]["code"] == "invalid_api_key"


@pytest.mark.parametrize("stated", [True, False])
def test_a_messages_body_is_decided_with_its_system_prompt(serve: Serve, stub: Stub, stated: bool) -> None:
    """The decision is that of the same texts on the chat wire, where the system prompt is a message."""
    router = routers.fitted()
    gateway = serve(*(backend(stub, name) for name in router.specialists), router=router)
    users = [{"role": "user", "content": "tell about the river"}]
    system = "count the king and the queen"
    messages = {"model": "auto", "max_tokens": 9, "system": system, "messages": users}
    chat = {"model": "auto", "messages": [{"role": "system", "content": system}, *users]}

    def cheap(body: object, wire: str) -> dict[str, float]:
        query = f"?wire={wire}" if wire else ""
        status, _, answer = ask(gateway, f"/v1/routing/decision{query}", body)
        assert status == 200, answer
        known = json.loads(answer)["decision"]["specialists"]
        return {name: line["cheap"] for name, line in known.items()}

    found = cheap(messages, "messages" if stated else "")
    assert found == cheap(chat, "chat" if stated else "")
    assert found != cheap({"model": "auto", "messages": users}, "")
    assert cheap({"model": "auto", "instructions": system, "input": "tell about the river"}, "") == found
    assert ask(gateway, "/v1/routing/decision?wire=telex", chat)[0] == 400
    assert ask(gateway, "/v1/routing/decision?wire=responses", chat)[0] == 400  # it has no input


def test_clients_do_not_learn_where_specialists_run(serve: Serve, stub: Stub) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    nobody = backend(stub, "away")
    nobody = replace(nobody, endpoint=replace(nobody.endpoint, base_url=f"http://127.0.0.1:{port}/inner"))
    gateway = serve(nobody, keys=True)
    team = key_of(gateway, "team")
    status, _, body = ask(gateway, "/v1/embeddings", {"model": "away", "input": "x"}, Authorization=team)
    assert (status, b"away did not answer" in body) == (502, True)
    assert str(port).encode() not in body
    message = {"model": "away", "messages": [{"role": "user", "content": "hi"}]}
    headers = ask(gateway, "/v1/chat/completions", message, Authorization=team)[1]
    id_ = headers["x-pandora-decision-id"]
    gateway.settled(id_)
    assert str(port) in gateway.rows("SELECT reason FROM attempts WHERE decision = ?", id_)[0][0]
    row = json.loads(ask(gateway, f"/v1/routing/decisions/{id_}", Authorization=team)[2])
    assert "its endpoint" in row["attempts"][0]["reason"]
    assert str(port) not in json.dumps(row)


def test_an_agent_asks_over_mcp_who_would_answer_and_reads_its_own_decisions_only(
    serve: Serve, stub: Stub
) -> None:
    gateway = serve(backend(stub, "small"), keys=True)
    team, other = key_of(gateway, "team"), key_of(gateway, "other")

    def called(key: str, **params: Any) -> tuple[int, dict[str, Any]]:
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        status, _, answer = ask(gateway, "/mcp", body, **({"Authorization": key} if key else {}))
        return status, json.loads(answer)

    asked = {"model": "small", "messages": [{"role": "user", "content": "Hello"}]}
    _, headers, _ = ask(gateway, "/v1/chat/completions", asked, Authorization=team)
    bought = len(stub.bodies)
    assert called("", name="route", arguments={"prompt": "Hello"})[0] == 401
    _, routed = called(team, name="route", arguments={"prompt": "Hello", "model": "small"})
    assert routed["result"]["structuredContent"]["specialist"] == "small"
    past = {"decision_id": headers["x-pandora-decision-id"]}
    gateway.settled(past["decision_id"])
    assert called(team, name="explain", arguments=past)[1]["result"]["structuredContent"]["attempts"]
    assert called(other, name="explain", arguments=past)[1]["result"]["isError"]
    assert called(team, name="route", arguments={"prompt": 3})[1]["error"]["code"] == -32602
    assert called(team, name="nothing")[1]["error"]["code"] == -32602
    assert len(stub.bodies) == bought


def test_every_described_path_is_a_wire_or_a_route() -> None:
    for path, methods in openapi.document(())["paths"].items():
        named = re.sub(r"\{\w+\}", "a1", path)
        for method in methods:
            fits = [one for one in ROUTES if re.fullmatch(one.path, named)]
            served = any(re.fullmatch(one.methods, method.upper()) for one in fits)
            assert served or (method == "post" and named in BY_PATH), f"{method} {path}"


def test_a_path_that_is_served_in_another_way_is_not_unknown(serve: Serve, stub: Stub) -> None:
    gateway = serve(backend(stub, "small"))
    assert ask(gateway, "/v1/models/small", {})[0] == 405
    assert ask(gateway, "/v1/nothing")[0] == 404
