"""`goal: {keep: ..., of: ...}`: fitted for, shown by `pandora curve`, served, and never silently ignored."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import shutil
import time
import urllib.request
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from pandora_router.cli.main import main
from pandora_router.config import read_config
from pandora_router.config.experiments import read_experiment
from pandora_router.config.gateway import ServePlan
from pandora_router.data import save
from pandora_router.evaluate.campaign import settings_of
from pandora_router.evaluate.results import read
from pandora_router.gateway.http.app import Gateway
from pandora_router.gateway.http.chores import keep_pace
from pandora_router.report.summary import earned
from pandora_router.router import Router
from pandora_router.store import budgets, log
from pandora_router.store.database import Transaction
from pandora_router.store.rows import Attempt, Outcome, Settlement
from pandora_router.store.worker import Store
from tests.gateway.conftest import Running
from tests.gateway.test_wires import post, request
from tests.store.test_laws import opened
from tests.support.pages import ROOT, blocks
from tests.support.provider import Provider
from tests.support.provider_models import Model
from tests.support.provider_replies import Said
from tests.support.tables import generate

SPECIALISTS = "".join(
    f"  {name}: {{kind: chat, endpoint: here, model: m, prices: {{call: {fee}}}}}\n"
    for name, fee in (("small", 0.01), ("large", 0.05), ("lawyer", 0.02))
)
FILE = (
    'endpoints: {here: {base_url: "http://127.0.0.1:9/v1"}}\nspecialists:\n' + SPECIALISTS
    + "fit: {costly: {rounds: 20, folds: 2}}\nserve: {router: router, store: log.sqlite%s}\n"
)  # fmt: skip


def pandora(*words: str | Path) -> Result:
    return CliRunner().invoke(main, [str(word) for word in words])


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("goal")
    save(generate(n=600), folder / "table")
    (folder / "pandora.yaml").write_text("goal: {keep: 0.8, of: large}\n" + FILE % "")
    result = pandora("fit", folder / "pandora.yaml", "-o", folder / "router")
    assert result.exit_code == 0, result.output
    assert "of the right answers of large (goal: 80%" in result.stdout
    return folder


def test_the_curve_shows_the_point_of_the_goal(place: Path) -> None:
    shown = pandora("curve", "-r", place / "router", "--keep", "0.8", "--of", "large")
    assert shown.exit_code == 0, shown.output
    assert "always large" in shown.stdout
    facts = json.loads(
        pandora("curve", "-r", place / "router", "--keep", "0.8", "--of", "large", "--json").stdout
    )
    assert facts["goal"]["sure"]
    worths = [point["worth"] for point in facts["points"]]
    assert facts["goal"]["worth"] in worths
    assert min(abs(worth / facts["fitted_worth"] - 1.0) for worth in worths) < 1e-9
    half = pandora("curve", "-r", place / "router", "--keep", "0.8")
    assert half.exit_code == 2
    assert "--keep and --of together" in half.output


def test_the_goal_of_the_fit_is_served_at_the_worth_of_the_fit(place: Path) -> None:
    site = ServePlan(place / "pandora.yaml").site()
    assert site.router is not None
    assert "@" not in site.router.id


def test_another_goal_is_served_without_a_fit(place: Path, caplog: pytest.LogCaptureFixture) -> None:
    low = ", profiles: {frugal: {keep: 0.3, of: large}}"
    (place / "other.yaml").write_text("goal: {keep: 0.97, of: large}\n" + FILE % low)
    site = ServePlan(place / "other.yaml").site()
    assert site.router is not None
    profile = site.profiles["frugal"].router
    assert profile is not None
    assert profile.fee_weight > site.router.fee_weight  # money counts more where less must be kept
    assert "in the fit" in caplog.text


def test_an_evaluation_measures_at_the_worth_that_meets_the_goal(place: Path) -> None:
    lines = "table: table\n" + FILE.replace("fit: {costly: {rounds: 20, folds: 2}}\n", "") % ""
    fitted = Router.load(place / "router")
    for name, share in (("same", 0.8), ("other", 0.5)):
        (place / f"{name}.yaml").write_text(f"goal: {{keep: {share}, of: large}}\n" + lines)
    same, other = (read_experiment(place / f"{name}.yaml") for name in ("same", "other"))
    assert same.fee_weight == pytest.approx(fitted.fee_weight)
    assert "keeps 80% of large, by the router in router" in same.title
    site = ServePlan(place / "other.yaml").site()
    assert site.router is not None
    assert other.fee_weight == pytest.approx(site.router.fee_weight)
    assert other.fee_weight != pytest.approx(same.fee_weight)
    assert settings_of(other) != settings_of(same)  # so splits measured for one goal are none of the other's
    (place / "early.yaml").write_text(
        "goal: {keep: 0.8, of: large}\n" + lines.replace("router: router", "router: no")
    )
    result = pandora("evaluate", place / "early.yaml", "-o", place / "results")
    assert result.exit_code == 2
    assert "pandora fit early.yaml -o no" in result.output


def test_an_evaluation_follows_a_changed_worth(place: Path) -> None:
    lines = "table: table\n" + FILE.replace("fit: {costly: {rounds: 20, folds: 2}}\n", "") % ""
    (place / "worth.yaml").write_text("value: {right_answer: 0.25}\n" + lines)
    experiment = read_experiment(place / "worth.yaml")
    assert experiment.fee_weight == 4.0
    assert "worth $0.25 (value.right_answer)" in experiment.title


def test_an_evaluation_speaks_as_a_fit_does(place: Path) -> None:
    """Every specialist and the mix of two, in money and net; the mix against all pairs of specialists."""
    lines = "table: table\n" + FILE.replace("fit: {costly: {rounds: 20, folds: 2}}\n", "") % ""
    (place / "said.yaml").write_text("value: {right_answer: 0.25}\n" + lines)
    shown = pandora(
        "evaluate", place / "said.yaml", "-o", place / "measured", "--seeds", "2", "--workers", "1"
    )
    assert shown.exit_code == 0, shown.output
    assert "The best static way, " in shown.stdout
    rows = {row.way: row for row in earned(read(place / "measured" / "said"))}
    router, mix = rows["the router"], rows["mix of two at that cost"]
    singles = [row for name, row in rows.items() if name.startswith("always ")]
    assert sorted(row.way for row in singles) == ["always large", "always lawyer", "always small"]
    for row in rows.values():
        assert row.way in shown.stdout
        assert row.net == pytest.approx(1e3 * 0.25 * row.accuracy - row.money)
        assert row.behind == pytest.approx(router.net - row.net, abs=1e-4)  # totals are kept as 32 bits
    scores = [max((s.accuracy for s in singles if s.money <= router.money), default=0.0)]
    for a, b in itertools.permutations(singles, 2):
        if a.money <= router.money < b.money:
            share = (router.money - a.money) / (b.money - a.money)
            scores.append((1.0 - share) * a.accuracy + share * b.accuracy)
    assert mix.accuracy == pytest.approx(max(scores))
    assert mix.money <= router.money + 1e-9


@pytest.mark.parametrize("line", ["value: {right_answer: 0.02}\n", "goal: {keep: 0.3, of: large}\n"])
def test_a_changed_file_counts_without_a_fit_wherever_the_router_decides(
    place: Path, tmp_path: Path, line: str, caplog: pytest.LogCaptureFixture
) -> None:
    """`route`, `explain` and files of prompts decide as the gateway does, and say that they do."""
    shutil.copytree(place / "router", tmp_path / "router")
    (tmp_path / "pandora.yaml").write_text(line + FILE % "")
    served = ServePlan(tmp_path / "pandora.yaml").site().router
    assert served is not None
    assert served.fee_weight != pytest.approx(Router.load(tmp_path / "router").fee_weight)
    text = "count the river king number 7"
    caplog.clear()
    made = json.loads(pandora("route", "-r", tmp_path / "router", text, "--json").stdout)
    assert "in the fit" in caplog.text
    assert made["artifact"] == served.id
    assert made["specialist"] == served.route(text).specialist
    told = json.loads(pandora("explain", "-r", tmp_path / "router", text, "--json").stdout)
    assert told["right_answer"] == pytest.approx(1.0 / served.fee_weight)
    (tmp_path / "in.jsonl").write_text(json.dumps({"prompt": text}) + "\n")
    many = pandora("route", "-r", tmp_path / "router", "--batch", tmp_path / "in.jsonl", "--workers", "1")
    assert json.loads(many.stdout)["specialist"] == made["specialist"], many.output


def test_a_goal_that_the_router_does_not_know_is_refused(place: Path, tmp_path: Path) -> None:
    shutil.copytree(place / "router", tmp_path / "router")
    (tmp_path / "pandora.yaml").write_text("goal: {keep: 0.9, of: other}\nserve: {router: router}\n")
    result = pandora("route", "-r", tmp_path / "router", "text")
    assert result.exit_code == 2
    assert "goal.of" in result.output


def test_a_fit_for_a_budget_says_at_which_worth(place: Path) -> None:
    (place / "money.yaml").write_text("goal: {budget: 10, per: day}\n" + FILE % "")
    result = pandora("fit", place / "money.yaml", "-o", place / "steered")
    assert result.exit_code == 0, result.output
    assert "until a gateway follows the budget" in result.output


def test_the_blocks_of_the_guide_are_read(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "goals.md").read_text("utf-8")
    written = blocks(page, "yaml")
    assert len(written) == 5
    for block in written:
        (tmp_path / "pandora.yaml").write_text(f"{block}\n" + FILE.partition("fit:")[0])
        read_config(tmp_path / "pandora.yaml")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("goal: {keep: 0.9, of: large}\nvalue: {right_answer: 1.0}\n", "a goal, or value.right_answer"),
        ("goal: {keep: 0.9, of: huge}\n", "huge"),
        ("goal: {keep: 0.9}\n", "of"),
        ("goal: {budget: 5, keep: 0.9, of: large}\n", "per: month"),
        ("goal: {keep: 95, of: large}\n", "a share like 0.95"),
    ],
)
def test_unclear_goals_are_refused(place: Path, line: str, said: str) -> None:
    (place / "unclear.yaml").write_text(line + FILE % "")
    result = pandora("fit", place / "unclear.yaml", "-o", place / "never")
    assert result.exit_code == 2
    assert said in result.output


@pytest.mark.parametrize("command", [("init",), ("curve", "-r", "router")])
def test_a_percentage_is_not_taken_for_a_share(tmp_path: Path, command: tuple[str, ...]) -> None:
    """`--keep 95` would ask for 95 times the score of the strong model, and so for the dearest answers."""
    result = pandora(*command, "--keep", "95", "--of", "large")
    assert result.exit_code == 2
    assert "0<x<=2" in result.output


def test_a_budget_moves_the_worth_as_it_is_spent(place: Path) -> None:
    """The sums that requests leave in the store decide, whoever wrote them."""
    (place / "budget.yaml").write_text("goal: {budget: 10, per: day}\n" + FILE % "")
    store = Store(str(place / "budget.sqlite"))
    gateway = Gateway(ServePlan(place / "budget.yaml").site(), store)
    noon = 1_800_000_000.0 // 86_400 * 86_400 + 43_200.0

    def worth(now: float) -> float:
        asyncio.run(keep_pace(gateway, now))
        assert gateway.site.router is not None
        return 1.0 / gateway.site.router.fee_weight

    fitted = worth(noon - 3600.0)
    assert gateway.site.paced is not None
    assert fitted == pytest.approx(gateway.site.paced.router.fee_weight**-1)  # nothing is known yet

    def write(open_: Transaction) -> None:
        for i in range(400):  # four dollars in the last hour of the morning: 40 would be spent until midnight
            row = replace(opened(f"d{i}", at=noon - 3000.0 + i), specialist="small")
            assert budgets.reserve(open_, None, row.id, 1, row.at, 60.0, gateway.site.budgets("auto")) is None
            log.begin(open_, row, [Attempt(f"a{i}", row.id, "answer", "small", row.at, 1)])
            log.settle(open_, Settlement(f"a{i}", Outcome("ok", 10_000_000), row.at))
            log.close(open_, row.id, row.at, status="ok")

    store.submit(write).result()
    dear = worth(noon)
    assert dear < fitted
    assert worth(noon + 43_260.0) > dear  # a new day has its own budget
    store.close()


HARD = ("prove the theorem of", "derive the integral of")
ASKED_FOR = (
    ("init",), ("doctor",), ("collect",), ("fit",), ("curve",), ("route",), ("explain",), ("evaluate",),
    ("serve",), ("keys",), ("keys", "add"), ("log",), ("log", "status"), ("log", "tail"), ("data", "check"),
)  # fmt: skip


def words(page: str) -> str:
    """The text of an HTML page, without its markup."""
    return re.sub(r"<[^>]*>", " ", page)


@pytest.mark.slow
@pytest.mark.parametrize("goal", [("--budget", "500"), ("--keep", "0.95", "--of", "gpt-large")])
def test_a_newcomer_never_meets_the_word_reward(tmp_path: Path, goal: tuple[str, ...]) -> None:
    """From `pandora init` with nothing but a goal to the pages of a running gateway."""

    def answering(name: str) -> Model:
        known = name == "gpt-large"
        return Model(
            lambda asked: Said(("right",) if known or not asked.prompt.startswith(HARD) else ("no",))
        )

    large = goal[-1] if "--of" in goal else "large"
    models = {"small-model": answering("small"), f"{large}-model": answering("gpt-large")}
    models["gpt-large"] = models[f"{large}-model"]
    met = [pandora(*verb, "--help") for verb in ASKED_FOR]
    kinds = (*HARD, "name the colour of", "spell the word")
    rows = [{"prompt": f"{kinds[i % 4]} thing number {i}", "answer": "right"} for i in range(240)]
    (tmp_path / "questions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    file, router = tmp_path / "pandora.yaml", tmp_path / "router"
    met.append(pandora("init", file, *goal))
    assert "right_answer" not in file.read_text()
    with closing(Provider(models)) as books, ExitStack() as closing_:
        stated = file.read_text().replace("http://127.0.0.1:8000/v1", books.url)
        stated = stated.replace("  # router: router ", "  router: router ").replace("  default: small", "  #")
        file.write_text(stated.replace("  # keys: required", "  keys: none"))
        for verb in (
            ("doctor", file, "--yes"),
            ("collect", file, "--dry-run"),
            ("collect", file),
            ("data", "check", tmp_path / "table"),
            ("fit", file, "-o", router),
            ("curve", "-r", router),
            ("route", "-r", router, "prove the theorem of chairs"),
            ("explain", "-r", router, "prove the theorem of chairs"),
        ):
            met.append(pandora(*verb))
            assert met[-1].exit_code == 0, met[-1].output
        fitted = met[-4].output
        assert "o router at different worths" in fitted
        assert ("$500.00 per month pays for about" in fitted) == ("--budget" in goal)
        store = Store(str(tmp_path / "pandora.sqlite"))
        plan = ServePlan(file)
        gateway = Running(Gateway(plan.site(), store))
        plan.mount(gateway.gateway, closing_)
        for i in range(30):
            body = request("chat", "auto", max_tokens=50)
            body["messages"] = [{"role": "user", "content": f"{kinds[i % 4]} cup number {i}"}]
            status, headers, _ = post(gateway, "chat/completions", body)
            assert status == 200
            told = {"decision_id": headers["x-pandora-decision-id"], "score": 1.0}
            assert post(gateway, "feedback", told)[0] == 200
        asyncio.run(keep_pace(gateway.gateway, time.time()))
        pages = {}
        for name in ("", "/decisions", "/specialists", "/looks", "/calibration", "/learning", "/keys"):
            with urllib.request.urlopen(f"{gateway.url}/dashboard{name}", timeout=60) as answer:
                pages[name] = words(answer.read().decode())
        shown = (("log", "status"), ("log", "tail"), ("keys", "list"))
        met += [pandora(*verb, "--store", tmp_path / "pandora.sqlite") for verb in shown]
        gateway.close()
        store.close()
    assert ("will end at" in pages[""]) == (
        "--budget" in goal
    )  # what is left of the money is on the first page
    every = [one.output for one in met] + [file.read_text(), *pages.values()]
    assert len(every) > 30
    for text in every:
        assert "reward" not in text.lower(), text
