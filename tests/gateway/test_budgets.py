"""The tree of budgets over HTTP: every level is a hard stop with a name, against the sums of the provider."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from pandora_router.cli.main import main
from pandora_router.config.gateway import ServePlan, paced_router
from pandora_router.config.worth import worth_of
from pandora_router.gateway.generation import Profile
from pandora_router.gateway.http.chores import keep_pace
from pandora_router.router import Router
from pandora_router.store import accounts, budgets
from pandora_router.store.database import Transaction
from pandora_router.store.money import UNIT, nanodollars
from pandora_router.store.rows import SharedBudget
from tests.gateway.conftest import Running, Serve
from tests.gateway.stub import Stub
from tests.gateway.test_routing import stubbed
from tests.gateway.test_wires import post, request


def limited(gateway: Running, router: Router, budget: float, profile: float | None = None) -> None:
    """Give the gateway a budget for all, and one for the profile `frugal`."""
    everybody = SharedBudget.named("all", "", nanodollars(budget), "month")
    profiles = {}
    if profile is not None:
        own = SharedBudget.named("profile", "frugal", nanodollars(profile), "day")
        profiles["frugal"] = Profile(router, paced=paced_router(router, profile, own))
    paced = paced_router(router, budget, everybody)
    gateway.gateway.site = replace(gateway.gateway.site, paced=paced, profiles=profiles)


def ask(gateway: Running, model: str, secret: str | None = None) -> tuple[int, dict[str, str], bytes]:
    headers = {} if secret is None else {"Authorization": f"Bearer {secret}"}
    body = request("chat", model, max_tokens=20)
    body["messages"] = [{"role": "user", "content": "count the river king number 7"}]
    status, told, answer = post(gateway, "chat/completions", body, **headers)
    if status == 200:
        gateway.settled(told["x-pandora-decision-id"])
    return status, told, answer


def until_refused(gateway: Running, model: str, secret: str | None = None) -> tuple[int, str]:
    """Ask until the budget is spent; the number of answers and the message of the refusal."""
    for count in range(100):
        status, headers, answer = ask(gateway, model, secret)
        if status != 200:
            assert status == 429, answer
            assert headers["x-should-retry"] == "false"
            return count, str(json.loads(answer)["error"]["message"])
    raise AssertionError("never refused")


def test_a_goal_for_all_is_a_hard_stop_without_keys(serve: Serve, stub: Stub, router: Router) -> None:
    gateway = serve(*stubbed(stub, router), router=router)
    limited(gateway, router, 0.003)
    answered, message = until_refused(gateway, "auto")
    assert answered > 3
    assert "The budget of all requests is $0.003" in message
    spent = gateway.rows("SELECT sum(cost) FROM decisions")[0][0]
    shared = gateway.gateway.site.budgets("auto")[0]
    counted = gateway.rows("SELECT spent, reserved, requests FROM budgets WHERE key = ?", shared.id)
    assert counted[0] == counted[1] == (spent, 0, answered)  # of the month and of the hour
    assert spent <= nanodollars(0.003)
    assert until_refused(gateway, router.specialists[0])[0] == 0  # whoever is named


def test_the_level_that_is_spent_is_named_and_others_go_on(serve: Serve, stub: Stub, router: Router) -> None:
    gateway = serve(*stubbed(stub, router), router=router, keys=True)
    limited(gateway, router, 1.0, profile=0.002)

    def make(open_: Any) -> list[str]:
        accounts.set_group(open_, "research", budget=nanodollars(0.004), period="week")
        named = (("alice", None, "research"), ("bob", 0.001, "research"), ("carol", None, None))
        return [
            accounts.add_key(
                open_, name, time.time(), budget=None if most is None else nanodollars(most), group=group
            )[1]
            for name, most, group in named
        ]

    alice, bob, carol = gateway.gateway.store.submit(make).result()
    assert "the key bob" in until_refused(gateway, "auto", bob)[1]
    assert "the group research" in until_refused(gateway, "auto", alice)[1]
    assert "the profile frugal" in until_refused(gateway, "auto@frugal", carol)[1]
    assert ask(gateway, "auto", carol)[0] == 200
    by_key = dict(
        gateway.rows("SELECT k.name, sum(d.cost) FROM decisions d JOIN keys k ON k.id = d.key GROUP BY 1")
    )
    group = SharedBudget.named("group", "research", None, "week")
    (everybody,) = gateway.gateway.site.budgets("auto")
    kept = {
        name: gateway.gateway.store.submit(
            lambda open_, level=level: budgets.account(open_, level, time.time())
        ).result()
        for name, level in (("group", group), ("all", everybody))
    }
    assert kept["group"] == (by_key["alice"] + by_key["bob"], 0)
    assert kept["all"] == (sum(by_key.values()), 0)


FILE = """
goal: {{budget: {budget}, per: month}}
endpoints: {{here: {{base_url: "{url}"}}}}
specialists:
  small: {{kind: chat, endpoint: here, model: small, prices: {{in: 10, out: 20}}, looks: false}}
  large: {{kind: chat, endpoint: here, model: large, prices: {{in: 100, out: 200}}, looks: false}}
  lawyer: {{kind: chat, endpoint: here, model: lawyer, prices: {{in: 100, out: 200}}, looks: false}}
serve:
  keys: none
  {who}
  profiles: {{plain: {{exclude: [large]}}, dear: {{right_answer: 3.0}}, team: {{budget: {team}, per: month}}}}
"""


@pytest.mark.parametrize("who", ["default: large", "router: flat"])
def test_a_goal_is_a_hard_stop_where_no_router_follows_it(
    serve: Serve, stub: Stub, router: Router, tmp_path: Path, who: str
) -> None:
    """`default`, as `pandora serve` proposes to somebody who has fitted none; a fit without a curve."""
    report = {**router.record.report, "routing": {**router.record.report["routing"], "curve": None}}
    replace(router, record=replace(router.record, report=report)).save(tmp_path / "flat")
    path = tmp_path / "pandora.yaml"
    path.write_text(FILE.format(budget=0.05, url=stub.url, who=who, team=0.02))
    site = ServePlan(path).site()
    gateway = serve(*site.backends)
    gateway.gateway.install(site)
    answered, message = until_refused(gateway, "auto@team")
    assert "The budget of the profile team is $0.02" in message
    more, message = until_refused(gateway, "auto")
    assert "The budget of all requests is $0.05" in message
    assert min(answered, more) > 0
    assert until_refused(gateway, "small")[0] == 0  # nothing that `auto` refused would have fitted
    spent = gateway.rows("SELECT sum(cost) FROM decisions")[0][0]
    assert 0 < spent <= nanodollars(0.05)
    asyncio.run(keep_pace(gateway.gateway, time.time()))
    shown = gateway.gateway.store.submit(lambda open_: budgets.status(open_, [], time.time())).result()
    assert [(level.name, level.worth) for level in shown] == [
        ("all requests", None),
        ("the profile team", None),
    ]
    assert shown[0].spent == spent
    assert shown[0].expected is not None
    assert shown[0].expected * UNIT > spent


def test_a_profile_follows_the_budget_of_all_unless_it_states_a_worth(
    serve: Serve, stub: Stub, saved_router: Path, tmp_path: Path
) -> None:
    """Money runs out for all: so it does for `plain`, which has no worth of its own, and for a rich team."""
    path = tmp_path / "pandora.yaml"
    path.write_text(FILE.format(budget=10.0, url=stub.url, who=f"router: {saved_router}", team=1e6))
    site = ServePlan(path).site()
    gateway = serve(*site.backends)
    gateway.gateway.install(site)
    (everybody,) = gateway.gateway.site.budgets("auto@plain")
    assert (everybody,) == gateway.gateway.site.budgets("auto") == gateway.gateway.site.budgets("auto@dear")
    assert [level.kind for level in gateway.gateway.site.budgets("auto@team")] == ["profile", "all"]

    def spend(open_: Transaction) -> None:
        for number in range(40):
            budgets.reserve(open_, None, f"d{number}", nanodollars(0.2), time.time(), 60.0, (everybody,))
            budgets.charge(open_, f"d{number}", nanodollars(0.2))

    gateway.gateway.store.submit(spend).result()
    asyncio.run(keep_pace(gateway.gateway, time.time()))
    now = gateway.gateway.site
    worths = {name: worth_of(profile.router) for name, profile in now.profiles.items()}
    assert worths["dear"] == pytest.approx(3.0)
    assert worths["plain"] == worths["team"] == worth_of(now.router)
    assert worths["plain"] == pytest.approx(now.paced.pace.curve.points[-1].worth if now.paced else None)
    shown = gateway.gateway.store.submit(lambda open_: budgets.status(open_, [], time.time())).result()
    assert [level.name for level in shown] == ["all requests", "the profile team"]
    assert shown[0].worth == shown[1].worth == pytest.approx(worths["team"])


def test_status_tells_the_price_and_the_end_of_the_period(serve: Serve, stub: Stub, router: Router) -> None:
    gateway = serve(*stubbed(stub, router), router=router)
    limited(gateway, router, 50.0, profile=2.0)
    for model in ("auto", "auto@frugal", "auto@frugal"):
        assert ask(gateway, model)[0] == 200
    asyncio.run(keep_pace(gateway.gateway, time.time()))
    shown = gateway.gateway.store.submit(lambda open_: budgets.status(open_, [], time.time())).result()
    costs = [cost for (cost,) in gateway.rows("SELECT cost FROM decisions ORDER BY at")]
    assert [(level.name, level.spent) for level in shown] == [
        ("all requests", sum(costs)),
        ("the profile frugal", sum(costs[1:])),
    ]
    for level in shown:
        assert level.worth is not None
        assert level.expected is not None
        assert level.expected * UNIT >= level.spent
    site = gateway.gateway.site
    assert site.router is not None
    assert 1.0 / site.router.fee_weight == pytest.approx(shown[0].worth)
    assert site.profiles["frugal"].router is not None
    assert 1.0 / site.profiles["frugal"].router.fee_weight == pytest.approx(shown[1].worth)


def test_the_command_knows_the_goal_before_a_gateway_follows_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing was served in the last hour: it must not say that there is no budget."""
    monkeypatch.chdir(tmp_path)
    who = "default: large"
    (tmp_path / "pandora.yaml").write_text(FILE.format(budget=500, url="http://127.0.0.1:9", who=who, team=5))
    runner = CliRunner()
    assert runner.invoke(main, ["keys", "add", "alice", "--budget", "7"]).exit_code == 0
    result = runner.invoke(main, ["log", "status", "--json"])
    shown = [json.loads(line) for line in result.output.splitlines()]
    assert [(level["name"], level["budget"], level["spent"]) for level in shown] == [
        ("all requests", 500.0, 0.0),
        ("the profile team", 5.0, 0.0),
        ("the key alice", 7.0, 0.0),
    ]


def test_the_command_shows_groups_and_budgets(tmp_path: Any) -> None:
    store = str(tmp_path / "store.sqlite")

    def run(*words: str) -> str:
        result = CliRunner().invoke(main, [*words, "--store", store])
        assert result.exit_code == 0, result.output
        return result.output

    run("keys", "group", "research", "--budget", "500", "--period", "week")
    run("keys", "add", "alice", "--group", "research")
    run("keys", "add", "bob", "--budget", "5")
    listed = json.loads(run("keys", "list", "--json"))
    assert [(key["name"], key["group"]) for key in listed] == [("alice", "research"), ("bob", None)]
    shown = [json.loads(line) for line in run("log", "status", "--json").splitlines()]
    assert [(level["name"], level["budget"]) for level in shown] == [
        ("the group research", 500.0),
        ("the key bob", 5.0),
    ]
    assert "the group research" in run("log", "status")
    run("keys", "set", "alice", "--group", "none")
    assert json.loads(run("keys", "list", "--json"))[0]["group"] is None
