"""A trial in a gateway on a real socket: whom the coin asks, what is logged, what ratings do."""

from __future__ import annotations

import asyncio
import json
import time
import urllib.error
import urllib.request
import uuid
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from pandora_router.gateway.generation import Challenger, LearningRules
from pandora_router.gateway.http.learner import learn, send
from pandora_router.gateway.http.openapi import REMARK
from pandora_router.learn.evidence import Evidence
from pandora_router.store import alerts, log, versions
from pandora_router.store.alerts import Alert
from pandora_router.store.rows import LiveTrial
from pandora_router.store.versions import RATINGS
from tests.gateway.conftest import Running, Serve, backend
from tests.gateway.stub import Stub
from tests.support.disputes import NAMES, prompt, router
from tests.support.raw_server import raw_server

RULES = LearningRules(promote="proof", delay=0.0)


def trial(share: float = 0.5) -> LiveTrial:
    a, b = router("large"), router("small")
    return LiveTrial(uuid.uuid4().hex, "b", b.id, "a", a.id, a.id, "proof", share, False, time.time() - 10.0)


@pytest.fixture
def tried(serve: Serve, stub: Stub) -> Running:
    """A gateway that serves a believer in `large`, with a believer in `small` on trial."""
    running = serve(*(backend(stub, name) for name in NAMES), router=router("large"))
    begun = trial()
    running.gateway.store.submit(
        lambda open_: versions.begin(open_, begun, Evidence.start().to_dict())
    ).result()
    candidate = Challenger(begun.id, router("small"), begun.share)
    running.gateway.site = replace(running.gateway.site, candidate=candidate)
    return running


def post(running: Running, path: str, body: object, **headers: str) -> tuple[int, dict[str, Any], Any]:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    named = {"Content-Type": "application/json"} | {k.replace("_", "-"): v for k, v in headers.items()}
    sent = urllib.request.Request(f"{running.url}{path}", data, named)
    try:
        with urllib.request.urlopen(sent, timeout=60) as answer:
            return answer.status, json.loads(answer.read()), answer.headers
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read()), error.headers


def ask(running: Running, text: str, model: str = "auto", **headers: str) -> tuple[str, str]:
    """Who answered, and the id of the decision."""
    body = {"model": model, "messages": [{"role": "user", "content": text}]}
    status, _, sent = post(running, "/v1/chat/completions", body, **headers)
    assert status == 200
    return sent["x-pandora-specialist"], sent["x-pandora-decision-id"]


def rate(running: Running, decision: str, reward: object) -> tuple[int, dict[str, Any]]:
    return post(running, "/v1/feedback", {"decision_id": decision, "reward": reward})[:2]


def test_a_coin_decides_what_is_disputed_and_nothing_else(tried: Running) -> None:
    counted = Counter(ask(tried, prompt("count", i))[0] for i in range(60))
    assert set(counted) == {"small", "large"}
    assert 12 <= counted["small"] <= 48  # a fair coin is outside with a chance of 1e-6
    assert {ask(tried, prompt("tell", i))[0] for i in range(10)} == {"echo"}
    assert ask(tried, prompt("count", 1), model="large")[0] == "large"
    assert ask(tried, prompt("count", 1), x_pandora_router="off")[0] == "small"  # the default
    rows = tried.rows(
        "SELECT r.candidate, r.share, r.choice_a, r.choice_b, d.asked, d.propensity, d.randomised, "
        "d.artifact FROM draws r JOIN decisions d ON d.id = r.decision"
    )
    assert len(rows) == 60
    for candidate, *rest in rows:
        chosen = ("small", router("small").id) if candidate else ("large", router("large").id)
        assert rest == [0.5, "large", "small", chosen[0], 0.5, 1, chosen[1]]


def test_a_conversation_is_not_on_trial(tried: Running) -> None:
    first, headers = prompt("count", 3), {"x_pandora_session": "one"}
    name, _ = ask(tried, first, **headers)
    turns = [{"role": "user", "content": first}, {"role": "assistant", "content": "Hello"}]
    body = {"model": "auto", "messages": [*turns, {"role": "user", "content": prompt("count", 4)}]}
    _, _, sent = post(tried, "/v1/chat/completions", body, x_pandora_session="one")
    rows = tried.rows("SELECT decision FROM draws")
    assert name in NAMES
    assert (sent["x-pandora-decision-id"],) not in rows
    assert len(rows) == 1


def test_ratings_promote_the_better_one_and_the_old_one_keeps_a_tenth(tried: Running) -> None:
    store = tried.gateway.store
    ids = [ask(tried, prompt("count", i)) for i in range(90)]
    for name, decision in ids:
        assert rate(tried, decision, float(name == "small"))[1]["status"] == "added"
    lines = store.submit(lambda open_: learn(open_, RULES, time.time() + 5.0)).result()
    assert any("was promoted by the rule proof" in line for line in lines), lines
    stands = store.submit(versions.lineup).result()
    assert stands.version is not None
    assert stands.version.artifact == router("small").id
    assert stands.trial is not None
    assert stands.trial.watch
    assert (stands.trial.artifact, stands.trial.share) == (router("large").id, 0.1)
    again = store.submit(lambda open_: learn(open_, RULES, time.time() + 10.0)).result()
    assert again == []
    assert [alert.kind for alert, _ in store.submit(alerts.newest).result()] == ["trial"]
    status, said = rate(tried, ids[0][1], 0.0)  # an edit after it was counted
    assert (status, said["status"]) == (200, "late")


def test_an_alert_is_sent_again_until_it_arrives(tried: Running) -> None:
    """The webhook is a real server that fails at first; the alert is sent once in the end, and counted."""
    replies = [b"HTTP/1.1 500 no\r\ncontent-length: 0\r\n\r\n", b"HTTP/1.1 204 ok\r\n\r\n"]
    store = tried.gateway.store
    alert = Alert("drift", "small", "1", time.time(), "small has changed")
    store.submit(lambda open_: alerts.raise_alert(open_, alert)).result()
    with raw_server(lambda _: iter([replies.pop(0)])) as server:
        address = server.url.removesuffix("/v1") + "/hooks/here"
        asyncio.run(send(tried.gateway, address))
        assert [sent for _, sent in store.submit(alerts.newest).result()] == [None]
        store.submit(lambda open_: open_.run("UPDATE alerts SET next_at = 0")).result()
        asyncio.run(send(tried.gateway, address))
        asyncio.run(send(tried.gateway, address))
    assert [sent is not None for _, sent in store.submit(alerts.newest).result()] == [True]
    assert len(server.requests) == 2
    head, _, body = server.requests[1].partition(b"\r\n\r\n")
    assert head.startswith(b"POST /hooks/here ")
    assert json.loads(body) == {
        "kind": "drift", "subject": "small", "at": alert.at, "text": "small has changed"
    }  # fmt: skip
    with urllib.request.urlopen(f"{tried.url}/metrics", timeout=60) as answer:
        assert 'pandora_alerts_total{kind="drift"} 1' in answer.read().decode()


def test_hostile_ratings_are_answered_clearly(tried: Running) -> None:
    _, decision = ask(tried, prompt("count", 0))
    for wrong in (b'{"decision_id": "x", "reward": NaN}', b'{"decision_id": "x", "reward": 1e999}'):
        assert post(tried, "/v1/feedback", wrong)[0] == 400
    for reward in (-0.1, 1.1, "1", True, None, [1]):
        assert rate(tried, decision, reward)[0] == 400
    assert rate(tried, "unknown", 1.0)[0] == 404
    body = {"decision_id": decision, "reward": 1.0}
    same = [post(tried, "/v1/feedback", body, idempotency_key="k")[1]["status"] for _ in range(3)]
    assert same == ["added", "known", "known"]
    codes = [rate(tried, decision, 0.5)[0] for _ in range(RATINGS)]
    assert codes == [200] * (RATINGS - 1) + [429]
    assert tried.rows("SELECT count(*) FROM feedback") == [(RATINGS,)]


@pytest.mark.parametrize("bodies", [True, False])
def test_a_comment_and_a_correction_are_kept_where_texts_are(serve: Serve, stub: Stub, bodies: bool) -> None:
    running = serve(backend(stub, "small"), bodies=bodies)
    _, decision = ask(running, "When was the storm of the Bastille?", model="small")
    said = {"comment": "wrong year \0 <b>", "correction": "1789"}
    status, reply, _ = post(running, "/v1/feedback", {"decision_id": decision, "reward": 0, **said})
    assert (status, reply["texts"]) == (200, "kept" if bodies else "not kept")
    assert "texts" not in rate(running, decision, 1.0)[1]
    for wrong in ({"comment": 1}, {"correction": "x" * (REMARK + 1)}, {"comments": "x"}):
        assert post(running, "/v1/feedback", {"decision_id": decision, "reward": 0, **wrong})[0] == 400
    row = running.gateway.store.submit(lambda open_: log.decision(open_, decision)).result()
    assert row is not None
    first, second = row["feedback"]
    assert (first["value"], second["value"]) == (0.0, 1.0)
    assert first["correction"] == ("1789" if bodies else None)
    assert str(first["comment"]).startswith("wrong year") == bodies
    assert (second["comment"], second["correction"]) == (None, None)
    assert running.rows("SELECT count(*) FROM remarks") == [(int(bodies),)]
    running.gateway.store.submit(lambda open_: log.prune(open_, 0.0, time.time() + 1.0)).result()
    assert running.rows("SELECT count(*) FROM remarks") == [(0,)]  # as old as texts may be
    assert running.rows("SELECT count(*) FROM feedback") == [(2,)]
