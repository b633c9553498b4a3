"""A trial, priced lessons and a budget in one gateway: each coin has its chance in the log."""

from __future__ import annotations

import asyncio
import time
import uuid
from dataclasses import replace

import numpy as np
import pytest

from pandora_router import Never, Router
from pandora_router.config.gateway import paced_router
from pandora_router.gateway.generation import Challenger, LearningRules
from pandora_router.gateway.http.chores import keep_pace
from pandora_router.gateway.http.learner import learn
from pandora_router.learn.evidence import Evidence
from pandora_router.router.decision import base_id
from pandora_router.store import versions
from pandora_router.store.money import UNIT, nanodollars
from pandora_router.store.rows import LiveTrial, SharedBudget
from tests.gateway.conftest import Running, Serve
from tests.gateway.stub import Stub
from tests.gateway.test_lessons import TABLE, eager
from tests.gateway.test_routing import stubbed
from tests.gateway.test_wires import post, request
from tests.support.routers import QUICK

SHARE, BUDGET = 0.3, 0.02


@pytest.fixture(scope="module")
def both() -> tuple[Router, Router]:
    """Two routers that dispute much: the second was fitted on scores whose columns are in another order."""
    fees = np.array([0.00001, 0.00003, 0.00002])  # what the stub's answers cost, about
    other = replace(TABLE, score=np.roll(TABLE.score, 1, axis=1))
    made = [Router.fit(table, costly=QUICK, policy=Never()) for table in (TABLE, other)]
    serving, candidate = (replace(router, fees=fees, fee_weight=1.0) for router in made)
    return serving, candidate


def start(serve: Serve, stub: Stub, both: tuple[Router, Router]) -> tuple[Running, LiveTrial]:
    serving, candidate = both
    running = serve(*stubbed(stub, serving), router=serving)
    names = ("b", candidate.id, "a", serving.id, serving.id, "proof")
    begun = LiveTrial(uuid.uuid4().hex, *names, SHARE, False, time.time() - 10.0)
    running.gateway.store.submit(
        lambda open_: versions.begin(open_, begun, Evidence.start().to_dict())
    ).result()
    everybody = SharedBudget.named("all", "", nanodollars(BUDGET), "month")
    site = replace(
        running.gateway.site,
        candidate=Challenger(begun.id, candidate, SHARE),
        lessons=eager(serving),
        paced=paced_router(serving, BUDGET, everybody),
        hash="everything",
    )
    running.gateway.install(site)
    return running, begun


def ask(running: Running, text: str) -> str | None:
    """The decision's id once it is closed; None if the budget is spent."""
    body = {**request("chat", "auto", max_tokens=20), "messages": [{"role": "user", "content": text}]}
    status, told, answer = post(running, "chat/completions", body)
    if status == 429:
        assert b"The budget of all requests" in answer
        return None
    assert status == 200, answer
    running.settled(told["x-pandora-decision-id"])
    return str(told["x-pandora-decision-id"])


def test_a_trial_lessons_and_a_budget_together(serve: Serve, stub: Stub, both: tuple[Router, Router]) -> None:
    gateway, trial = start(serve, stub, both)
    served = []
    for number in range(1000):
        decision = ask(gateway, f"{TABLE.prompts[number % len(TABLE)]} number {number}")
        if decision is None:
            break
        served.append(decision)
        if number % 40 == 0:
            asyncio.run(keep_pace(gateway.gateway, time.time()))
    rows = gateway.rows(
        "SELECT d.id, d.mode, d.asked, d.proposed, d.propensity, d.randomised, d.artifact, d.cost, "
        "r.candidate, r.choice_a, r.choice_b, r.expected_a, r.expected_b, r.right_answer "
        "FROM decisions d LEFT JOIN draws r ON r.decision = d.id ORDER BY d.at"
    )
    assert sorted(row[0] for row in rows) == sorted(served)  # what was refused left nothing behind
    drawn = [row for row in rows if row[8] is not None]
    lessons = [row for row in rows if row[1] == "explore"]
    assert len(drawn) >= 10
    assert lessons  # coins decide how many: about ten
    assert not {row[0] for row in drawn} & {row[0] for row in lessons}
    for row in rows:
        _, mode, asked, proposed, chance, tossed, artifact, _, fell, first, second, *_ = row
        if fell is not None:  # the coin of the trial alone decides
            assert (mode, asked, tossed) == ("route", second if fell else first, 1)
            assert chance == pytest.approx(SHARE if fell else 1.0 - SHARE, abs=1e-12)
            assert base_id(artifact) == both[fell].id
            assert first != second
        else:  # both agree: the coin of a lesson, or none
            assert base_id(artifact) == both[0].id
            assert (chance, tossed) in ((0.5, 1), (1.0, 0))
            assert (mode == "explore") == (asked != proposed)
    sent = sum(row[7] for row in rows)
    everybody = gateway.gateway.site.budgets("auto")[0]
    counted = gateway.rows("SELECT spent, reserved FROM budgets WHERE key = ?", everybody.id)
    assert max(counted) == (sent, 0)  # of the month; the others are of hours
    assert sent <= nanodollars(BUDGET)
    assert len({row[13] for row in drawn}) > 1  # the worth of a right answer followed the budget

    for number, decision in enumerate(served):  # everything is rated, the lessons too
        body = {"decision_id": decision, "reward": float(number % 3 == 0)}
        assert post(gateway, "feedback", body)[0] == 200
    rules = LearningRules(promote="hand", delay=0.0)
    gateway.gateway.store.submit(lambda open_: learn(open_, rules, time.time() + 5.0)).result()
    state = gateway.gateway.store.submit(lambda open_: versions.evidence(open_, trial.id)).result()
    evidence = Evidence.from_dict(state)
    expected = []
    for row in drawn:
        score = float(served.index(row[0]) % 3 == 0)
        reward = score - row[7] / UNIT / row[13]
        weight = 1.0 / SHARE if row[8] else -1.0 / (1.0 - SHARE)
        expected.append(row[12] - row[11] + weight * (reward - (row[12] if row[8] else row[11])))
    assert evidence.rated == len(drawn)
    assert evidence.mean == pytest.approx(np.mean(expected), abs=1e-9)
