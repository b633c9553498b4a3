"""Requests asked for what they teach: who is, by which coin, what it costs, and where nothing is explored."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pandora_router import Never, Router
from pandora_router.config.gateway import ServePlan
from pandora_router.errors import UsageError
from pandora_router.gateway.lessons import Lessons
from pandora_router.prices import Tariff
from pandora_router.store.money import dollars
from tests.gateway.conftest import Running, Serve
from tests.gateway.stub import Stub
from tests.gateway.test_routing import asked, stubbed
from tests.support.routers import QUICK
from tests.support.tables import generate

TABLE = generate(n=160, seed=3)


@pytest.fixture(scope="module")
def router() -> Router:
    made = Router.fit(TABLE, costly=QUICK, policy=Never())
    return replace(made, fees=np.array([0.00001, 0.00003, 0.00002]))  # what the stub's answers cost, about


def eager(router: Router, budget: float = 5.0) -> Lessons:
    """Lessons of a gateway whose store has seen many ratings."""
    made = Lessons.of(router, budget)
    made.ratings, made.rate, made.left = 100_000.0, 0.5, budget
    return made


def start(serve: Serve, stub: Stub, router: Router, lessons: Lessons | None) -> Running:
    prices = Tariff(1.0, 10.0, cached_in=0.1)  # as in the books of the stub
    running = serve(*(replace(one, prices=prices) for one in stubbed(stub, router)), router=router)
    running.gateway.install(replace(running.gateway.site, lessons=lessons, hash="with lessons"))
    return running


def modes(gateway: Running) -> dict[str, int]:
    return dict(gateway.rows("SELECT mode, count(*) FROM decisions GROUP BY mode"))


def test_what_was_asked_for_its_lesson_is_in_the_log_with_what_it_cost(
    serve: Serve, stub: Stub, router: Router
) -> None:
    lessons = eager(router)
    gateway = start(serve, stub, router, lessons)
    ids = {asked(gateway, prompt)[0]["x-pandora-decision-id"]: prompt for prompt in TABLE.prompts[:60]}
    lessons_of = {ids[id_] for (id_,) in gateway.rows("SELECT id FROM decisions WHERE mode = 'explore'")}
    charged = sum(bill.nanodollars for bill in stub.log if bill.prompt in lessons_of)
    rows = gateway.rows("SELECT mode, asked, proposed, propensity, randomised, cost, detail FROM decisions")
    explore = [row for row in rows if row[0] == "explore"]
    tossed = [row for row in rows if row[0] == "route" and row[4]]
    assert explore
    assert tossed  # the coin fell both ways
    assert all(row[1] != row[2] and (row[3], row[4]) == (0.5, 1) for row in explore)
    assert all(row[1] == row[2] and row[3] == 0.5 for row in tossed)
    assert all(row[3] == 1.0 and row[1] == row[2] for row in rows if not row[4])
    for row in explore:
        lesson = json.loads(row[6])["value"]["lesson"]
        assert lesson["specialist"] == row[1]
        assert lesson["worth"] > lesson["loss"] > 0.0
    asyncio.run(lessons.refresh(gateway.gateway.store, time.time()))
    assert lessons.left == pytest.approx(5.0 - dollars(sum(row[5] for row in explore)), abs=1e-12)
    assert sum(row[5] for row in explore) == charged > 0  # by the books of the provider
    assert lessons.ratings == 0.0  # nobody rated anything: nothing is explored from now on
    for prompt in TABLE.prompts[60:80]:
        asked(gateway, prompt)
    assert modes(gateway)["explore"] == len(explore)


@pytest.mark.parametrize(
    "more", [{"x_pandora_router": "off"}, {"x_pandora_allow": "small"}], ids=["off", "allow"]
)
def test_nothing_is_explored_where_the_client_says_who_answers(
    serve: Serve, stub: Stub, router: Router, more: dict[str, str]
) -> None:
    gateway = start(serve, stub, router, eager(router))
    for prompt in TABLE.prompts[:25]:
        asked(gateway, prompt, **more)
    assert modes(gateway) == {"route": 25}
    assert gateway.rows("SELECT count(*) FROM decisions WHERE randomised = 1")[0][0] == 0


def test_a_budget_ends_what_is_explored(router: Router) -> None:
    lessons = eager(router, budget=0.00006)
    worth, asked = dict.fromkeys(router.specialists, 0.5), 0
    for prompt in TABLE.prompts:
        worth["small"] = 0.51
        lesson = lessons.worth_asking(router, prompt, worth, router.specialists)
        if lesson is not None:
            lessons.ask(prompt, router.specialists[lesson.column])
            asked += 1
    assert 1 <= asked <= 6
    assert lessons.left >= 0.0
    assert lessons.worth_asking(router, TABLE.prompts[0], {"small": 0.5}, router.specialists) is None


def test_a_router_without_neighbours_has_no_lessons(router: Router) -> None:
    with pytest.raises(UsageError, match="neighbours"):
        Lessons.of(replace(router, cheap=router.costly), 5.0)  # type: ignore[arg-type]


def test_the_file_says_what_lessons_may_cost(saved_router: Path, tmp_path: Path) -> None:
    loaded = Router.load(saved_router)
    names = [
        f"  {name}: {{kind: chat, endpoint: e, model: m, prices: {{in: 1, out: 2}}, looks: false}}"
        for name in loaded.specialists
    ]
    file = tmp_path / "pandora.yaml"
    file.write_text(
        "endpoints: {e: {base_url: 'http://127.0.0.1:1/v1'}}\nspecialists:\n"
        + "\n".join(names)
        + f"\nserve: {{keys: none, router: {saved_router}}}\n"
        + "learn: {feedback: solved, explore: {budget: 5}}\n"
    )
    lessons = ServePlan(file).site().lessons
    assert lessons is not None
    assert (lessons.budget, lessons.metric, lessons.left) == (5.0, "solved", 0.0)
    file.write_text(file.read_text().replace("learn:", "# learn:"))
    assert ServePlan(file).site().lessons is None
