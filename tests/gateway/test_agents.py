"""What coding agents need besides answers: their names of models, stored responses, no websockets."""

from __future__ import annotations

import json
from contextlib import closing
from http.client import HTTPConnection

import pytest

from pandora_router.errors import UsageError
from pandora_router.gateway.generation import Settings, Site
from pandora_router.prices import Tariff
from pandora_router.store.money import nanodollars
from tests.gateway.conftest import Running, Serve, backend
from tests.gateway.stub import Stub
from tests.gateway.test_wires import post, request


def call(
    gateway: Running, method: str, path: str, body: str | None = None, **headers: str
) -> tuple[int, dict[str, str], bytes]:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    with closing(HTTPConnection(gateway.url.removeprefix("http://"), timeout=30)) as client:
        client.request(method, path, body, named)
        answer = client.getresponse()
        return answer.status, {name.lower(): value for name, value in answer.headers.items()}, answer.read()


def test_names_of_hosted_models_mean_auto_and_those_of_the_file_come_first(serve: Serve, stub: Stub) -> None:
    gateway = serve(backend(stub, "small"), backend(stub, "gpt-large"))
    for name in ("claude-opus-4-8[1m]", "claude-haiku-4-5", "gpt-5.5", "o3-mini", "codex-mini-latest"):
        status, headers, _ = post(gateway, "chat/completions", request("chat", name))
        assert (status, headers["x-pandora-policy"], headers["x-pandora-specialist"]) == (
            200,
            "default",
            "small",
        )
        row = gateway.rows("SELECT detail FROM decisions WHERE id = ?", headers["x-pandora-decision-id"])
        assert json.loads(row[0][0])["model"] == name
    assert gateway.gateway.site.meant("gpt-large") == "gpt-large"
    status, _, body = post(gateway, "chat/completions", request("chat", "nobody"))
    assert status == 404
    assert all(name in json.loads(body)["error"]["message"] for name in ("auto", "gpt-large", "claude-*"))


def test_an_operator_states_aliases_or_none(serve: Serve, stub: Stub) -> None:
    gateway = serve(backend(stub, "small"), backend(stub, "large"), aliases={"claude-opus*": "large"})
    headers = post(gateway, "messages", request("messages", "claude-opus-4-8[1m]"))[1]
    assert (headers["x-pandora-specialist"], headers["x-pandora-policy"]) == ("large", "named")
    assert post(gateway, "messages", request("messages", "claude-haiku-4-5"))[0] == 404
    assert (
        post(serve(backend(stub, "small"), aliases={}), "responses", request("responses", "gpt-5"))[0] == 404
    )
    with pytest.raises(UsageError, match="aliases"):
        Site((backend(stub, "small"),), Settings("small", aliases={"gpt-*": "nobody"}))


def test_one_model_and_a_sign_of_life(serve: Serve, stub: Stub) -> None:
    gateway = serve(backend(stub, "small"))
    for name in ("small", "auto", "claude-opus-4-8"):
        status, _, body = call(gateway, "GET", f"/v1/models/{name}")
        assert (status, json.loads(body)["id"], json.loads(body)["object"]) == (200, name, "model")
    status, _, body = call(gateway, "GET", "/v1/models/nobody")
    assert (status, "small" in json.loads(body)["error"]["message"]) == (404, True)
    assert call(gateway, "HEAD", "/")[0] == 200


def test_a_websocket_is_refused_with_the_status_after_which_codex_posts_at_once(
    serve: Serve, stub: Stub
) -> None:
    gateway = serve(backend(stub, "small"))
    asked = {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec_WebSocket_Key": "eA==",
        "Sec_WebSocket_Version": "13",
    }
    status, headers, body = call(gateway, "GET", "/v1/responses", None, **asked)
    assert (status, headers["upgrade"]) == (426, "HTTP/1.1")
    assert "POST /v1/responses" in json.loads(body)["error"]["message"]
    assert call(gateway, "GET", "/v1/responses")[0] == 405


def test_stored_responses_follow_the_specialist_that_wrote_them(serve: Serve, stub: Stub) -> None:
    with closing(Stub()) as other:
        gateway = serve(backend(stub, "small"), backend(other, "large"))
        post(gateway, "responses", request("responses", "large"))
        before = list(stub.stored)
        paths = ("GET /v1/responses/resp_1?stream=false", "GET /v1/responses/resp_1/input_items",
                 "POST /v1/responses/resp_1/cancel", "DELETE /v1/responses/resp_1")  # fmt: skip
        for path in paths:
            status, headers, body = call(gateway, *path.split(" "))
            assert (status, headers["x-pandora-specialist"]) == (200, "large")
            assert json.loads(body) == {"id": "resp_1", "object": "response"}
        assert (other.stored, stub.stored) == (list(paths), before)
        status, _, body = call(gateway, "GET", "/v1/responses/resp_other")
        assert (status, "No response" in json.loads(body)["error"]["message"]) == (404, True)


def test_compaction_is_made_and_billed_where_the_conversation_is(serve: Serve, stub: Stub) -> None:
    gateway = serve(backend(stub, "small"), backend(stub, "large", prices=Tariff(2.0, 20.0)))
    began = request("responses", "auto", prompt_cache_key="c1")
    assert post(gateway, "responses", began, x_pandora_allow="large")[0] == 200
    ask = {**began, "input": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}]}
    status, headers, body = post(gateway, "responses/compact", ask)
    assert (status, headers["x-pandora-specialist"]) == (200, "large")
    assert json.loads(body)["output"][0]["encrypted_content"] == "large"
    read = json.loads(body)["usage"]["input_tokens"]
    cost = nanodollars((2.0 * read + 20.0 * 7) / 1e6)
    assert gateway.settled(headers["x-pandora-decision-id"]) == ("ok", cost, "large")
    counted = post(gateway, "responses/input_tokens", ask)
    assert (counted[0], counted[1]["x-pandora-specialist"]) == (200, "large")


def test_what_needs_a_wire_goes_to_a_specialist_that_serves_it(serve: Serve, stub: Stub) -> None:
    gateway = serve(backend(stub, "small", wires=frozenset({"chat"})), backend(stub, "large"))
    asked = {"model": "claude-opus-4-8", "messages": [{"role": "user", "content": "hi"}]}
    status, headers, _ = post(gateway, "messages/count_tokens", asked)
    assert (status, headers["x-pandora-specialist"]) == (200, "large")
