"""Live looks over real sockets: streams begun, held, gone on with or cancelled, each settled once."""

from __future__ import annotations

import contextvars
import json
import random
import socket
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("uvicorn", reason="pip install 'pandora-router[serve]'")

from pandora_router.boxes import Costs
from pandora_router.folders.saved import Saved
from pandora_router.gateway.generation import Settings, Site
from pandora_router.gateway.http.app import Gateway
from pandora_router.gateway.providers.backend import Backend
from pandora_router.gateway.request.exchange import Exchange
from pandora_router.prices import Tariff
from pandora_router.router import Router
from pandora_router.search import Always, Obligatory
from pandora_router.store.money import nanodollars
from pandora_router.store.worker import Store
from pandora_router.transport.asgi import Receive, Scope, Send
from pandora_router.transport.endpoint import Endpoint
from pandora_router.types import Contexts, Matrix
from pandora_router.wires.known import BY_NAME
from pandora_router.wires.look import LookLength
from pandora_router.wires.wire import Wire
from tests.gateway.conftest import Running
from tests.gateway.talking import Script, Talking, streamed, undivided
from tests.gateway.test_wires import PATHS, post
from tests.support import routers

PROMPT = "count the river king gene poem number"
SURE = ["clearly", " it", " is", " river", " and", " so", " on", "."]
UNSURE = ["hmm", " not", " sure", " maybe", " poem", " or", " not", "."]
_EXCHANGE: contextvars.ContextVar[Exchange] = contextvars.ContextVar("exchange")


class Watched(Gateway):
    """A gateway that notes how many attempts are open whenever the head of an answer leaves."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.open_at_start: list[int] = []

    def exchange(self, wire: Wire, headers: Mapping[str, str]) -> Exchange:
        made = super().exchange(wire, headers)
        _EXCHANGE.set(made)
        return made

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def noted(message: Any) -> None:
            if message["type"] == "http.response.start" and message["status"] == 200:
                attempts = _EXCHANGE.get().attempts
                self.open_at_start.append(sum(one.settled is None for one in attempts))
            await send(message)

        await super().__call__(scope, receive, noted)


@pytest.fixture
def talking() -> Iterator[Talking]:
    with closing(Talking()) as running:
        yield running


@dataclass(frozen=True)
class Listener:
    """A costly estimate that believes whoever begins like one who is sure."""

    specialists: tuple[str, ...]
    together: bool = False

    @property
    def needs(self) -> frozenset[str]:
        return frozenset(self.specialists)

    def predict(self, prompts: Sequence[str], contexts: Contexts | None = None) -> Matrix:
        assert contexts is not None
        sure = [[0.9 if "clearly" in str(one) else 0.1 for one in row] for row in contexts]
        return np.array(sure) * 3.0 - 1.0

    def state(self) -> Saved:
        raise NotImplementedError


def listening() -> Router:
    """A router whose costly estimate reads what specialists have begun to say."""
    fitted = routers.fitted()
    return replace(fitted, costly=Listener(fitted.specialists))


@dataclass(frozen=True)
class HalfListener(Listener):
    """Reads the beginnings of one specialist; the others are estimated from the prompt alone."""

    @property
    def needs(self) -> frozenset[str]:
        return frozenset({"small"})


def test_estimates_that_need_no_look_cost_what_the_fit_said_and_call_nobody(
    talking: Talking, tmp_path: Path
) -> None:
    """Where some specialists have beginnings in the table and others have none."""
    router = replace(listening(), costly=HalfListener(routers.fitted().specialists))
    router = router.with_policy(Obligatory())
    talking.says = {name: Script(["clearly", " it", " is"]) for name in router.specialists}
    with closing(Served(talking, router, tmp_path)) as served:
        status, _, _ = served.ask("chat")
        assert status == 200
        exchange = served.gateway.exchange(BY_NAME["chat"], {})
        exchange.body = json.dumps(
            {"model": "auto", "messages": [{"role": "user", "content": PROMPT}]}
        ).encode()
        exchange.read()
        exchange.profile = served.gateway.site.profile("auto")
        looks = exchange._live(router, list(router.specialists))
        assert looks is not None
        costs = looks.looks().costs
        for name, own, fitted in zip(router.specialists, costs.own, router.costs.marginal, strict=True):
            assert (own == pytest.approx(fitted)) == (name != "small")


@pytest.fixture(scope="session")
def looking() -> Router:
    """The same router; it opens every box."""
    return listening().with_policy(Always())


class Served:
    """A gateway over the models of a `Talking`, one per specialist of a router."""

    def __init__(self, talking: Talking, router: Router, folder: Path, **more: Any) -> None:
        options = {"cancel": "stops", "peek": LookLength(characters=12), **more.pop("backend", {})}
        timeout, pause = more.pop("timeout", 60.0), more.pop("pause", 0.5)
        endpoint = Endpoint(talking.url, timeout=timeout, pause=pause)
        wires = frozenset({"chat", "responses", "messages"})
        made = [
            Backend(name, endpoint, name, Tariff(1.0, 10.0), **{"wires": wires, **options})
            for name in router.specialists
        ]
        second = more.pop("second", 0.0)
        settings = Settings(router.default, deadline=more.pop("deadline", 60.0), **more)
        self.store = Store(str(folder / "store.sqlite"))
        self.gateway = Watched(Site(tuple(made), settings, router, second=second, hash="h"), self.store)
        self.running = Running(self.gateway)

    def close(self) -> None:
        self.running.close()
        self.store.close()

    def ask(self, wire: str, **more: Any) -> tuple[int, dict[str, str], bytes]:
        prompt = more.pop("prompt", PROMPT)
        headers = more.pop("headers", {})
        said = (
            {"input": prompt} if wire == "responses" else {"messages": [{"role": "user", "content": prompt}]}
        )
        bound = {"max_tokens": 64} if wire == "messages" else {}
        return post(self.running, PATHS[wire], {"model": "auto", **said, **bound, **more}, **headers)

    def rows(self, headers: Mapping[str, str]) -> dict[str, dict[str, Any]]:
        id_ = headers["x-pandora-decision-id"]
        self.running.settled(id_)
        columns = "specialist, kind, status, cost, fresh, output, usage_complete, reason"
        found = self.running.rows(f"SELECT {columns} FROM attempts WHERE decision = ? ORDER BY at", id_)
        return {row[0]: dict(zip(columns.split(", "), row, strict=True)) for row in found}

    def decision(self, headers: Mapping[str, str]) -> dict[str, Any]:
        columns = "specialist, proposed, inspected, inspection_cost, cost, baseline, detail"
        id_ = headers["x-pandora-decision-id"]
        row = self.running.rows(f"SELECT {columns} FROM decisions WHERE id = ?", id_)[0]
        told = dict(zip(columns.split(", "), row, strict=True))
        return {**told, "detail": json.loads(told["detail"])}


def saying(wire: str, prompt: str) -> dict[str, Any]:
    said = {"messages": [{"role": "user", "content": prompt}]}
    return {"model": "auto", **({"input": prompt} if wire == "responses" else said)}


def script(talking: Talking, router: Router, sure: str, **faults: Script) -> None:
    """Let the specialist `sure` begin like one who is right, all others like ones who are not."""
    for name in router.specialists:
        talking.says[name] = Script(SURE if name == sure else UNSURE)
    talking.says.update(faults)


@pytest.mark.parametrize("wire", PATHS)
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("sure", ["small", "large"])
def test_the_winner_goes_on_and_the_losers_are_settled_before_the_answer(
    talking: Talking, looking: Router, tmp_path: Path, wire: str, stream: bool, sure: str
) -> None:
    script(talking, looking, sure)
    with closing(Served(talking, looking, tmp_path)) as served:
        status, headers, body = served.ask(wire, stream=stream)
        assert (status, headers["x-pandora-specialist"]) == (200, sure)
        assert set(headers["x-pandora-inspected"].split(",")) == set(looking.specialists)
        if stream:
            whole = streamed(PATHS[wire], sure, talking.says[sure], usage=False, chances=False)
            assert body == b"".join(whole)
        else:
            assert json.loads(body) == json.loads(undivided(PATHS[wire], sure, talking.says[sure]))
        rows = served.rows(headers)
        assert {name: row["kind"] for name, row in rows.items()} == {
            name: "answer" if name == sure else "loser" for name in looking.specialists
        }
        assert rows[sure]["status"] == "ok"
        assert rows[sure]["cost"] == nanodollars((20 + 10 * len(SURE)) / 1e6)  # nothing is paid twice
        assert talking.calls.total() == len(looking.specialists)
        lost = sum(row["cost"] for row in rows.values() if row["kind"] == "loser")
        decision = served.decision(headers)
        assert decision["inspection_cost"] == lost
        assert decision["cost"] == lost + rows[sure]["cost"]
        assert float(headers["x-pandora-inspection-cost"]) == pytest.approx(lost / 1e9)
        assert served.gateway.open_at_start == ([1] if stream else [0])


def test_the_gateway_decides_as_the_library_does_with_the_same_contexts(
    talking: Talking, looking: Router, tmp_path: Path
) -> None:
    router = listening()  # its own policy: some boxes stay sealed
    script(talking, router, "lawyer")
    contexts = {name: "".join(talking.says[name].words)[:12] for name in router.specialists}
    with closing(Served(talking, router, tmp_path)) as served:
        for number in range(6):
            prompt = f"{'count' if number % 2 else 'tell about'} the planet code price sum number {number}"
            status, headers, _ = served.ask("chat", prompt=prompt)
            assert status == 200
            detail = served.decision(headers)["detail"]["decision"]
            prices = [one["inspection_cost"] for one in detail["specialists"].values()]
            refunds = [one["refund"] for one in detail["specialists"].values()]
            assert refunds == prices
            same = replace(router, costs=Costs(prices, refund=refunds)).route(prompt, contexts)
            assert tuple(filter(None, headers["x-pandora-inspected"].split(","))) == same.inspected
            assert headers["x-pandora-specialist"] == same.specialist


def test_a_router_to_which_money_means_nothing_keeps_its_costs(talking: Talking, tmp_path: Path) -> None:
    router = replace(listening(), fee_weight=0.0)
    script(talking, router, "large")
    with closing(Served(talking, router, tmp_path)) as served:
        _, headers, _ = served.ask("chat")
        told = served.decision(headers)["detail"]["decision"]["specialists"].values()
        assert [one["inspection_cost"] for one in told] == router.costs.marginal.tolist()


def test_each_look_is_charged_the_seconds_of_its_own_specialist(
    talking: Talking, looking: Router, tmp_path: Path
) -> None:
    script(talking, looking, "large")
    costs = []
    for second in (0.0, 0.5):
        (tmp_path / str(second)).mkdir()
        with closing(Served(talking, looking, tmp_path / str(second), second=second)) as served:
            served.gateway.measured["small"].first_token.add(0.2)
            _, headers, _ = served.ask("chat")
            known = served.decision(headers)["detail"]["decision"]["specialists"]
            costs.append({name: facts["inspection_cost"] for name, facts in known.items()})
            assert all(facts["refund"] == facts["inspection_cost"] for facts in known.values())
    more = {name: costs[1][name] - costs[0][name] for name in looking.specialists}
    assert more == pytest.approx({**dict.fromkeys(more, 0.0), "small": looking.fee_weight * 0.5 * 0.2})


def test_a_winner_that_died_while_it_was_held_falls_back_to_the_runner_up(
    talking: Talking, looking: Router, tmp_path: Path
) -> None:
    # all begin together; the best breaks after its first words, while the slowest is still being read
    router, slow = replace(looking, policy=Always()), Script(UNSURE, pause=0.35)
    script(talking, router, "large", large=Script(SURE, cut=7, pause=0.06), lawyer=slow)
    with closing(Served(talking, router, tmp_path)) as served:
        status, headers, body = served.ask("chat", stream=True)
        assert status == 200
        assert headers["x-pandora-specialist"] != "large"
        assert b"[DONE]" in body
        rows = served.rows(headers)
        assert (rows["large"]["kind"], rows["large"]["status"]) == ("inspection", "error")
        assert sum(row["kind"] == "answer" for row in rows.values()) == 1
        assert served.decision(headers)["proposed"] == "large"


@pytest.mark.parametrize("fault", [Script(SURE, status=500), Script(SURE, status=400), Script(SURE, cut=1)])
def test_a_look_that_fails_is_an_estimate_that_did_not_arrive(
    talking: Talking, looking: Router, tmp_path: Path, fault: Script
) -> None:
    script(talking, looking, "small", large=fault)
    with closing(Served(talking, looking, tmp_path)) as served:
        status, headers, _ = served.ask("chat")
        assert (status, headers["x-pandora-specialist"]) == (200, "small")
        told = served.decision(headers)["detail"]["decision"]["specialists"]
        assert told["large"]["status"] == "lost"
        assert served.rows(headers)["large"]["kind"] == "inspection"


def test_the_deadline_leaves_boxes_sealed_and_a_late_look_can_still_win(
    talking: Talking, tmp_path: Path
) -> None:
    router = listening().with_policy(Obligatory())  # looks at one after the other
    router.warm()  # so that the deadline is not spent on compiling
    gate = threading.Event()
    script(talking, router, "small", **{name: Script(SURE, gate=gate) for name in router.specialists})
    with closing(Served(talking, router, tmp_path, deadline=3.0)) as served:
        found: list[tuple[int, dict[str, str], bytes]] = []
        asking = threading.Thread(target=lambda: found.append(served.ask("chat", stream=True)))
        asking.start()
        until = time.monotonic() + 60
        decided = "SELECT count(*) FROM decisions WHERE overhead > 0"
        while served.running.rows(decided) == [(0,)] and time.monotonic() < until:
            time.sleep(0.02)
        gate.set()  # nobody says anything before the decision is made
        asking.join(60)
        status, headers, body = found[0]
        assert status == 200
        answered = headers["x-pandora-specialist"]
        assert body == b"".join(
            streamed("chat/completions", answered, talking.says[answered], usage=False, chances=False)
        )
        told = served.decision(headers)["detail"]["decision"]
        assert [one["status"] for one in told["purchases"]] == ["too late"]
        assert "opened" not in {one["status"] for one in told["specialists"].values()}
        looked = told["purchases"][0]["specialists"][0]
        rows = served.rows(headers)
        assert rows[looked]["kind"] == ("answer" if looked == answered else "loser")
        assert rows[answered]["kind"] == "answer"
        assert talking.calls == dict.fromkeys({looked, answered}, 1)


@pytest.mark.parametrize("wire", ["responses", "messages"])
def test_hidden_reasoning_is_not_looked_at(
    talking: Talking, looking: Router, tmp_path: Path, wire: str
) -> None:
    script(talking, looking, "small", large=Script(SURE, hidden=True))
    with closing(Served(talking, looking, tmp_path)) as served:
        _, headers, _ = served.ask(wire)
        assert headers["x-pandora-specialist"] == "small"
        told = served.decision(headers)["detail"]["decision"]["specialists"]
        assert told["large"]["status"] == "lost"
        asks = {"responses": {"reasoning": {"effort": "high"}}, "messages": {"thinking": {"type": "enabled"}}}
        _, headers, _ = served.ask(wire, **asks[wire])
        assert headers["x-pandora-inspected"] == ""
        told = served.decision(headers)["detail"]["decision"]["specialists"]
        assert {one["status"] for one in told.values()} == {"not for sale"}


@pytest.mark.parametrize("asked", [False, True])
def test_log_probabilities_are_asked_for_a_look_and_stripped_for_others(
    talking: Talking, looking: Router, tmp_path: Path, asked: bool
) -> None:
    script(talking, looking, "small")
    for name in looking.specialists:
        talking.says[name].chances = True
    peek = LookLength(tokens=3, chances=True)
    with closing(Served(talking, looking, tmp_path, backend={"peek": peek})) as served:
        more = {"logprobs": True} if asked else {}
        _, headers, body = served.ask("chat", stream=True, **more)
        name = headers["x-pandora-specialist"]
        assert all(json.loads(sent)["logprobs"] is True for sent in talking.bodies)
        whole = streamed("chat/completions", name, talking.says[name], usage=False, chances=asked)
        assert body == b"".join(whole)


@pytest.mark.parametrize(("cancel", "output"), [("stops", None), ("unknown", 8), ("bills_full", 8)])
def test_a_loser_is_charged_as_its_provider_bills_cancelled_streams(
    talking: Talking, looking: Router, tmp_path: Path, cancel: str, output: int | None
) -> None:
    long = Script(UNSURE * 20, pause=0.02)
    script(talking, looking, "small", large=long)
    with closing(Served(talking, looking, tmp_path, backend={"cancel": cancel})) as served:
        served.gateway.measured["large"].output.add(8)
        _, headers, _ = served.ask("messages", stream=True)
        row = served.rows(headers)["large"]
        assert (row["kind"], row["status"], row["usage_complete"]) == ("loser", "cancelled", 0)
        assert row["fresh"] == 20  # as its first event counted
        if output is None:
            assert 3 <= row["output"] < 64
        else:
            assert row["output"] == max(output, 8)
        until = time.monotonic() + 30
        while talking.left["large"] == 0 and time.monotonic() < until:
            time.sleep(0.02)
        assert talking.left["large"] == 1  # the stream was really closed


def test_looks_that_the_budget_does_not_allow_are_not_made(
    talking: Talking, looking: Router, tmp_path: Path
) -> None:
    from pandora_router.store import accounts

    script(talking, looking, "small")
    with closing(Served(talking, looking, tmp_path, keys=True, backend={"max_output": 100})) as served:
        one = served.gateway.site.backend("small").bound(200, 100)

        def make(open_: Any) -> str:
            return accounts.add_key(open_, "team", time.time(), budget=2 * one)[1]

        secret = served.store.submit(make).result()
        status, headers, _ = served.ask("chat", headers={"Authorization": f"Bearer {secret}"})
        assert status == 200
        assert headers["x-pandora-inspected"] == ""
        assert talking.calls.total() == 1
        served.rows(headers)
        spent, reserved = served.running.rows("SELECT spent, reserved FROM budgets")[0]
        assert (spent, reserved) == (nanodollars((20 + 10 * 8) / 1e6), 0)


@pytest.mark.slow
def test_every_attempt_is_settled_once_whatever_happens(
    talking: Talking, looking: Router, tmp_path: Path
) -> None:
    """Many clients, faulty upstreams, clients that leave: one settled row per call, nothing left running."""
    rng = random.Random(5)
    faults = [
        lambda: Script(SURE),
        lambda: Script(UNSURE * 3),
        lambda: Script(SURE, cut=rng.randrange(12)),
        lambda: Script(SURE, status=rng.choice([400, 429, 500])),
        lambda: Script(SURE, hang=rng.randrange(8)),
        lambda: Script(SURE * 4, pause=0.02),
    ]
    count = 240
    for i in range(count):
        for name in looking.specialists:
            talking.says[f"{name}:{i}"] = rng.choices(faults, [4, 3, 2, 2, 1, 2])[0]()
    with closing(Served(talking, looking, tmp_path, second=0.5, deadline=1.0, timeout=2.0)) as served:
        served.gateway.measured["small"].first_token.add(0.1)
        host, port = served.running.url.removeprefix("http://").split(":")
        answered: list[int] = []

        def client(first: int) -> None:
            mine = random.Random(first)
            for i in range(first, count, 12):
                wire = mine.choice(list(PATHS))
                prompt = f"{PROMPT} {i}"
                if mine.random() < 0.25:
                    _leave(host, int(port), wire, prompt, mine.random() * 0.2)
                else:
                    answered.append(served.ask(wire, prompt=prompt, stream=mine.random() < 0.7)[0])

        threads = [threading.Thread(target=client, args=(k,)) for k in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(300)
        until = time.monotonic() + 60
        unsettled = "SELECT count(*) FROM attempts WHERE settled_at IS NULL"
        unclosed = "SELECT count(*) FROM decisions WHERE closed_at IS NULL"
        while time.monotonic() < until:
            left = served.running.rows(unsettled)[0][0] + served.running.rows(unclosed)[0][0]
            if left == 0 and served.gateway.busy == 0:
                break
            time.sleep(0.05)
        assert left == 0
        assert set(answered) <= {200, 400, 502, 504}
        assert answered.count(200) > len(answered) // 2
        assert max(served.gateway.open_at_start) <= 1
        sums = served.running.rows(
            "SELECT count(*) FROM decisions d WHERE d.cost <> "
            "(SELECT coalesce(sum(cost), 0) FROM attempts a WHERE a.decision = d.id)"
        )
        assert sums == [(0,)]
        calls = served.running.rows("SELECT count(*) FROM attempts")[0][0]
        assert calls >= talking.calls.total()
        per_decision = (
            "SELECT count(*) FROM attempts WHERE status = 'ok' AND kind <> 'loser' GROUP BY decision"
        )
        assert {row[0] for row in served.running.rows(per_decision)} == {1}


def _leave(host: str, port: int, wire: str, prompt: str, after: float) -> None:
    """Send a request and go away."""
    body = json.dumps({**saying(wire, prompt), "stream": True, "max_tokens": 64}).encode()
    head = f"POST /v1/{PATHS[wire]} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
    with socket.create_connection((host, port)) as client:
        client.sendall(head.encode() + body)
        time.sleep(after)


def test_a_slow_reader_does_not_grow_memory(talking: Talking, looking: Router, tmp_path: Path) -> None:
    """A client that does not read stops the upstream: it cannot write what nobody takes."""
    big = [*SURE, *(["x" * 60_000] * 1000)]
    script(talking, looking, "small", small=Script(big, pause=0.0))
    with closing(Served(talking, looking, tmp_path)) as served:
        host, port = served.running.url.removeprefix("http://").split(":")
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.connect((host, int(port)))
            body = json.dumps({**saying("chat", PROMPT), "stream": True}).encode()
            lines = ("POST /v1/chat/completions HTTP/1.1", "Host: localhost", f"Content-Length: {len(body)}")
            head = "\r\n".join(lines) + "\r\n\r\n"
            client.sendall(head.encode() + body)
            assert client.recv(1000)
            before = -1
            while talking.written != before:
                before = talking.written
                time.sleep(0.4)
            assert talking.written < 20_000_000  # of 60
            assert not [bill for bill in talking.log if bill.model == "small"]  # it has not ended
