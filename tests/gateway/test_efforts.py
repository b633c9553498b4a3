"""One model at several efforts: collected, fitted, served and explained as several specialists."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pandora_router.config import read_config
from pandora_router.config.gateway import ServePlan
from pandora_router.data import load
from pandora_router.gateway.http.app import Gateway
from pandora_router.specialists.chat import ChatEndpoint
from pandora_router.store.money import nanodollars
from pandora_router.store.worker import Store
from tests.gateway.conftest import Running, Serve, backend
from tests.gateway.test_attacks import key
from tests.gateway.test_wires import PATHS, post, request
from tests.support.command import pandora
from tests.support.provider import Provider
from tests.support.provider_models import Asked, Fault, Model
from tests.support.provider_replies import Said

FILE = """
prompts: questions.jsonl
grading: exact
collect: {budget: 5, samples: 1}
value: {right_answer: 0.05}
endpoints: {here: {base_url: "URL", pause: 0.01, retries: 0}}
specialists:
  m: {kind: chat, endpoint: here, model: m, efforts: [low, medium, high], prices: {in: 1, out: 10},
      wires: [chat, responses, messages], tokens: 2000, max_output_tokens: 2000}
serve: {keys: none, default: m-low, router: router}
"""
THOUGHT = {"low": 5, "medium": 60, "high": 900}
HARD = ("prove the theorem of", "derive the integral of")
EASY = ("name the colour of", "spell the word")


def effort(body: dict[str, Any]) -> str:
    """The effort that a request asks for on any wire; a request that asks twice is an error of ours."""
    stated = [
        body.get("reasoning_effort"),
        (body.get("reasoning") or {}).get("effort"),
        (body.get("output_config") or {}).get("effort"),
    ]
    said = [one for one in stated if one is not None]
    assert len(said) == 1, body
    return str(said[0])


def says(asked: Asked) -> Said:
    """Easy questions are answered at every effort, hard ones at the highest."""
    level = effort(asked.body)
    hard = asked.prompt.startswith(HARD)
    return Said(("right",) if level == "high" or not hard else ("wrong",), hidden=THOUGHT[level])


def questions(count: int, first: int = 0) -> list[str]:
    kinds = (*HARD, *EASY)
    return [f"{kinds[i % 4]} thing number {i}" for i in range(first, first + count)]


@pytest.fixture(scope="module")
def books() -> Iterator[Provider]:
    with closing(Provider({"m": Model(says)})) as running:
        yield running


@pytest.fixture(scope="module")
def folder(books: Provider, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the table that was collected and the router that was fitted on it."""
    folder = tmp_path_factory.mktemp("efforts")
    rows = [{"prompt": prompt, "answer": "right"} for prompt in questions(240)]
    (folder / "questions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    file = folder / "pandora.yaml"
    file.write_text(FILE.replace("URL", books.url))
    for words in (("collect", file), ("fit", file, "-o", folder / "router")):
        done = pandora(*words)
        assert done.exit_code == 0, done.output
    return folder


@pytest.fixture
def gateway(folder: Path, tmp_path: Path) -> Iterator[Running]:
    store = Store(str(tmp_path / "store.sqlite"))
    running = Running(Gateway(ServePlan(folder / "pandora.yaml").site(), store))
    yield running
    running.close()
    store.close()


def test_an_effort_is_collected_fitted_and_served_at_its_own_price(
    books: Provider, folder: Path, gateway: Running
) -> None:
    table = load(folder / "table")
    assert table.specialists == ("m-low", "m-medium", "m-high")
    fees, scores = np.nanmean(table.fee, axis=0), np.nanmean(table.score, axis=0)
    billed: dict[str, list[int]] = defaultdict(list)
    for bill in books.log:
        level = next(name for name, n in THOUGHT.items() if n == bill.tokens.reasoning)
        billed[level].append(bill.nanodollars)
    assert fees.tolist() == pytest.approx([np.mean(billed[name]) / 1e9 for name in THOUGHT], rel=1e-6)
    assert scores.tolist() == pytest.approx([0.5, 0.5, 1.0])
    asked = questions(40, first=1000)
    right, before = 0, len(books.log)
    chosen: dict[bool, list[str]] = {True: [], False: []}
    for prompt in asked:
        body = request("chat", "auto") | {"messages": [{"role": "user", "content": prompt}]}
        _, headers, answer = post(gateway, PATHS["chat"], body)
        right += json.loads(answer)["choices"][0]["message"]["content"] == "right"
        specialist = headers["x-pandora-specialist"]
        chosen[prompt.startswith(HARD)].append(specialist)
        assert f"m-{effort(json.loads(books.bodies[-1]))}" == specialist
        assert gateway.settled(headers["x-pandora-decision-id"])[1] == books.log[-1].nanodollars
    assert right >= 38
    assert chosen[False].count("m-high") <= 2  # 0.5 right at 5 tokens, 1.0 right at 900
    assert chosen[True].count("m-high") >= 18
    spent = sum(bill.nanodollars for bill in books.log[before:])
    assert spent < 0.75 * len(asked) * 1e9 * float(fees[2])
    explained = pandora("explain", "-r", folder / "router", asked[0])
    assert explained.exit_code == 0, explained.output
    assert all(f"m-{name}" in explained.stdout for name in THOUGHT)


@pytest.mark.parametrize("wire", PATHS)
@pytest.mark.parametrize("stream", [False, True])
def test_a_client_cannot_undo_or_hide_an_effort(
    books: Provider, gateway: Running, wire: str, stream: bool
) -> None:
    tries: list[dict[str, Any]] = [
        {},
        {"reasoning_effort": "high"},
        {"reasoning": {"effort": "high", "max_tokens": 5000}},
        {"output_config": {"effort": "high"}},
        {"thinking": {"type": "enabled", "budget_tokens": 4000}},
    ]
    for more in tries:
        _, headers, _ = post(gateway, PATHS[wire], request(wire, "m-low", stream=stream, **more))
        assert headers["x-pandora-specialist"] == "m-low"
        assert effort(json.loads(books.bodies[-1])) == "low"
        assert "budget_tokens" not in books.bodies[-1].decode()
        cost = gateway.settled(headers["x-pandora-decision-id"])[1]
        assert (
            cost
            == books.log[-1].nanodollars
            == nanodollars((books.log[-1].tokens.fresh + 10 * books.log[-1].tokens.output) / 1e6)
        )
    for name in ("Reasoning_Effort", "REASONING", "outputConfig"):
        assert post(gateway, PATHS[wire], request(wire, "m-low", **{name: "high"}))[0] == 400


def test_the_efforts_of_a_model_have_one_circuit_and_one_rate(
    books: Provider, folder: Path, gateway: Running
) -> None:
    circuits = [gateway.gateway.circuits[name] for name in ("m-low", "m-medium", "m-high")]
    assert all(circuit is circuits[0] for circuit in circuits)
    plan = read_config(folder / "pandora.yaml").plan(folder)
    limits = {id(one.limit) for one in plan.specialists if isinstance(one, ChatEndpoint)}
    assert (len(plan.specialists), len(limits)) == (3, 1)
    calm, books.models["m"] = books.models["m"], Model(fault=lambda _: Fault(status=500))  # type: ignore[index]
    try:
        for _ in range(5):
            post(gateway, PATHS["chat"], request("chat", "m-low"))
        calls = books.calls["m"]
        assert post(gateway, PATHS["chat"], request("chat", "m-high"))[0] == 503
        assert books.calls["m"] == calls  # nobody asks a model that has just failed at another effort
    finally:
        books.models["m"] = calm  # type: ignore[index]


WAYS = [("chat", "messages"), ("responses", "messages"), ("messages", "chat")]


@pytest.mark.parametrize(("here", "there"), WAYS)
def test_an_effort_crosses_between_wires(serve: Serve, books: Provider, here: str, there: str) -> None:
    gateway = serve(backend(books, "m", wires=frozenset({there})))
    asks = {
        "chat": {"reasoning_effort": "high"},
        "responses": {"reasoning": {"effort": "high"}},
        "messages": {"output_config": {"effort": "high"}},
    }
    status, _, answer = post(gateway, PATHS[here], request(here, "m", **asks[here]))
    assert status == 200, answer
    assert effort(json.loads(books.bodies[-1])) == "high"


def test_a_key_with_a_budget_pays_for_the_effort(books: Provider, folder: Path, tmp_path: Path) -> None:
    file = folder / "keys.yaml"
    file.write_text((folder / "pandora.yaml").read_text().replace("keys: none", "keys: required"))
    store = Store(str(tmp_path / "keys.sqlite"))
    gateway = Running(Gateway(ServePlan(file).site(), store))
    try:
        secret = key(gateway, "team", budget=nanodollars(0.05))
        costs = []
        for name in ("m-low", "m-high"):
            body = request("chat", name)
            headers = post(gateway, PATHS["chat"], body, Authorization=f"Bearer {secret}")[1]
            costs.append(gateway.settled(headers["x-pandora-decision-id"])[1])
        assert costs == [bill.nanodollars for bill in books.log[-2:]]
        assert costs[1] > 50 * costs[0]
    finally:
        gateway.close()
        store.close()
