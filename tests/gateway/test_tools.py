"""Functions and tools of MCP servers as specialists of the gateway: their answers, prices and limits."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from pandora_router.config.gateway import ServePlan
from pandora_router.gateway.http.app import Gateway
from pandora_router.store.money import nanodollars
from pandora_router.store.worker import Store
from tests.gateway.conftest import Running
from tests.gateway.stub import Stub
from tests.gateway.test_translation import said
from tests.gateway.test_wires import PATHS, post, request
from tests.specialists.test_mcp import SERVER

FILE = """
endpoints: {{local: {{base_url: "{stub}"}}}}
specialists:
  small: {{kind: chat, endpoint: local, model: small, prices: {{in: 1, out: 10}}}}
  echo: {{kind: mcp, command: [{run}, asks, {mark}], tool: t, argument: x, prices: {{call: 0.002}}}}
  broken: {{kind: mcp, command: [{run}, errs, {mark}], tool: t, argument: x, prices: {{call: 0.002}}}}
  counter: {{kind: function, function: "tests.gateway.test_tools:counted", prices: {{call: 0}}, at_once: 2}}
serve: {{keys: none, default: small}}
"""
PRICE = nanodollars(0.002)
RUNNING: list[int] = []
MOST: list[int] = []
LOCK = threading.Lock()


def counted(prompt: str) -> str | None:
    """The number of calls that run together; None for "nothing"."""
    if prompt == "nothing":
        return None
    with LOCK:
        RUNNING.append(1)
        MOST.append(len(RUNNING))
    threading.Event().wait(0.2)
    with LOCK:
        RUNNING.pop()
    return str(len(MOST))


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder: Path = tmp_path_factory.mktemp("tools")
    (folder / "server.py").write_text(SERVER)
    names = {"run": f"{sys.executable}, {folder / 'server.py'}", "mark": folder / "mark"}
    with closing(Stub()) as stub:
        (folder / "pandora.yaml").write_text(FILE.format(stub=stub.url, **names))
        store = Store(str(folder / "store.sqlite"))
        running = Running(Gateway(ServePlan(folder / "pandora.yaml").site(), store))
        yield running
        running.close()
        store.close()


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("wire", PATHS)
def test_a_tool_answers_on_every_wire_at_the_price_of_its_call(
    gateway: Running, wire: str, stream: bool
) -> None:
    body = {**request(wire, "echo", stream=stream), **asking(wire, "say this")}
    status, headers, answer = post(gateway, PATHS[wire], body)
    assert (status, headers["x-pandora-specialist"]) == (200, "echo"), answer
    assert b"say this" in answer if stream else said(wire, json.loads(answer)) == "say this"
    assert gateway.settled(headers["x-pandora-decision-id"]) == ("ok", PRICE, "echo")


def asking(wire: str, text: str) -> dict[str, Any]:
    return {"input": text} if wire == "responses" else {"messages": [{"role": "user", "content": text}]}


@pytest.mark.parametrize(("name", "prompt", "cost"), [("broken", "hi", PRICE), ("counter", "nothing", 0)])
def test_a_tool_without_an_answer_is_called_once_and_blamed_for_nothing(
    gateway: Running, name: str, prompt: str, cost: int
) -> None:
    for _ in range(6):
        body = {**request("chat", name), **asking("chat", prompt)}
        status, headers, answer = post(gateway, "chat/completions", body)
        assert (status, b"No specialist answered" in answer) == (502, True)
        assert gateway.settled(headers["x-pandora-decision-id"])[:2] == ("error", cost)
        rows = gateway.rows("SELECT 1 FROM attempts WHERE decision = ?", headers["x-pandora-decision-id"])
        assert len(rows) == 1
    assert gateway.gateway.circuits[name].failures == 0


MORE: dict[str, Callable[[], dict[str, Any]]] = {
    "conversation": lambda: {
        "messages": [{"role": role, "content": "hi"} for role in ("user", "assistant", "user")]
    },
    "tools": lambda: {"tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}]},
    "parameter n": lambda: {"n": 2},
}


@pytest.mark.parametrize("why", MORE)
def test_a_tool_is_not_asked_for_more_than_an_answer_to_one_question(gateway: Running, why: str) -> None:
    body = {**request("chat", "echo"), **MORE[why]()}
    status, _, answer = post(gateway, "chat/completions", body)
    assert (status, why in json.loads(answer)["error"]["message"]) == (400, True), answer
    status, headers, _ = post(gateway, "chat/completions", {**body, "model": "auto"})
    assert (status, headers["x-pandora-specialist"]) == (200, "small")


def test_calls_of_a_tool_wait_for_a_place(gateway: Running) -> None:
    body = {**request("chat", "counter"), **asking("chat", "count")}
    with ThreadPoolExecutor(6) as clients:
        answers = list(clients.map(lambda _: post(gateway, "chat/completions", body)[0], range(6)))
    assert answers == [200] * 6
    assert max(MOST) == 2


def test_other_paths_are_not_offered_to_a_tool(gateway: Running) -> None:
    for path in ("embeddings", "responses/compact", "messages/count_tokens"):
        status, _, answer = post(gateway, path, {"model": "echo", "input": "hi", "messages": []})
        assert status in (400, 404), (path, status, answer)
