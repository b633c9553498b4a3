"""`pandora learn label` and `shadow`: logged prompts are answered by others, scored and paid once."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pandora_router.config.worth import shared_budget
from pandora_router.data import storage
from pandora_router.store import budgets, log
from pandora_router.store.database import connect
from pandora_router.store.export import sampled_prompts
from pandora_router.store.migrations import migrate
from pandora_router.store.money import nanodollars
from tests.cli.test_collect_cli import PLAN
from tests.store.test_laws import opened
from tests.support.command import pandora
from tests.support.upstream import SECRET, Upstream

BUDGET = 63.5
LABELS = (
    PLAN.replace("{sums: numeric, other: exact}", "{judge: judge}")
    .replace("prompts: questions.jsonl", "learn: {labels: {budget: BUDGET}}")
    .replace("collect: {budget: 500}\n", "")
    + "  judge: {kind: chat, hidden: true, endpoint: here, model: judge, "
    + "prices: {in: 1000, out: 2000}, tokens: 32}\n"
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A log of 12 sums, of which two have the same text."""
    monkeypatch.setenv("TEST_KEY", SECRET)
    now = time.time()
    database = connect(str(tmp_path / "pandora.sqlite"))
    migrate(database)
    with database.transaction() as open_:
        for i in range(12):
            log.begin(open_, opened(f"d{i}", at=now - 60 + i), prompt=f"Add {i % 11} and {(i % 11) ** 2}")
            log.close(open_, f"d{i}", now, status="ok")
    database.close()
    return tmp_path


def write(folder: Path, url: str, budget: float) -> Path:
    (folder / "pandora.yaml").write_text(LABELS.replace("URL", url).replace("BUDGET", str(budget)))
    return folder / "pandora.yaml"


def test_logged_prompts_are_scored_completely_and_bought_once(folder: Path) -> None:
    with Upstream() as upstream:
        asked = ("learn", "label", write(folder, upstream.url, 500.0), "-o", folder / "labels")
        store = ("--store", folder / "pandora.sqlite")
        first = pandora(*asked, *store, "--most", 4)
        assert first.exit_code == 0, first.output
        table = storage.load(folder / "labels")
        assert len(table) == 4
        assert table.specialists == ("good", "poor", "three")
        assert np.isfinite(table.score).all()
        charged = upstream.charged
        assert f"${charged:.4f} spent" in first.output
        pandora(*asked, *store, "--most", 4)
        assert upstream.charged == charged  # nothing is bought twice
        pandora(*asked, *store, "--most", 8)
    more = storage.load(folder / "labels")
    assert set(table.prompts) < set(more.prompts)
    assert len(more) == 8


def test_the_budget_of_the_month_holds(folder: Path) -> None:
    """The worst case of one prompt fits, that of two at once does not; a budget too small buys nothing."""
    store = ("--store", folder / "pandora.sqlite")
    with Upstream() as upstream:
        small = pandora("learn", "label", write(folder, upstream.url, 1.0), "-o", folder / "none", *store)
        assert small.exit_code == 2
        assert "learn.labels" in small.output
        assert upstream.charged == 0.0
        asked = ("learn", "label", write(folder, upstream.url, BUDGET), "-o", folder / "labels")
        pandora(*asked, *store)
        assert 0.0 < upstream.charged <= BUDGET
    assert np.isnan(storage.load(folder / "labels").score).any()  # it did not last for all


def test_labels_count_against_the_budget_of_the_goal(folder: Path) -> None:
    """Of 200 dollars a month 100 are spent: the cost of labels is charged exactly, and no more fits."""
    database, month = connect(str(folder / "pandora.sqlite")), shared_budget("", 200.0, "month")
    with database.transaction() as open_:
        budgets.reserve(open_, None, "early", nanodollars(100.0), time.time(), 60.0, (month,))
        budgets.charge(open_, "early", nanodollars(100.0))
    store = ("--store", folder / "pandora.sqlite")
    with Upstream() as upstream:
        path = write(folder, upstream.url, 500.0)
        path.write_text("goal: {budget: 200, per: month}\n" + path.read_text())
        asked = ("learn", "label", path, "-o", folder / "labels", *store)
        for _ in range(2):
            done = pandora(*asked)
            assert done.exit_code == 0, done.output
            with database.transaction() as open_:
                spent, reserved = budgets.account(open_, month, time.time())
            assert reserved == 0
            assert spent == pytest.approx(nanodollars(100.0 + upstream.charged), abs=1)
            assert 0.0 < upstream.charged <= 100.0
        with database.transaction() as open_:
            rest = budgets.left(open_, [month], time.time())
            assert rest is not None
            budgets.reserve(open_, None, "late", rest, time.time(), 60.0, (month,))
        charged = upstream.charged
        (folder / "labels-again").mkdir()
        refused = pandora("learn", "label", path, "-o", folder / "labels-again" / "table", *store)
        assert refused.exit_code == 2
        assert "nothing left of 200 per month" in refused.output
        assert upstream.charged == charged
    database.close()


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("learn: {labels: {budget: 500.0}}", "learn: {}", "learn.labels"),
        ("{judge: judge}", "numeric", "a judge or a function"),
    ],
)
def test_without_budget_or_judge_it_says_what_to_write(
    folder: Path, before: str, after: str, said: str
) -> None:
    path = write(folder, "http://127.0.0.1:9", 500.0)
    path.write_text(path.read_text().replace(before, after))
    found = pandora("learn", "label", path, "-o", folder / "x", "--store", folder / "pandora.sqlite")
    assert found.exit_code == 2
    assert said in found.output


def test_the_sample_is_the_same_again_and_part_of_a_larger_one(folder: Path) -> None:
    database = connect(str(folder / "pandora.sqlite"))
    with database.transaction() as open_:
        few, many = (sampled_prompts(open_, most, 0.0, 1e12) for most in (4, 100))
        assert few == many[:4] == sampled_prompts(open_, 4, 0.0, 1e12)
    assert len(many) == 11  # the same text once
    database.close()


def observed(folder: Path, asked: str, proposed: str, many: int = 120) -> None:
    """A log of observed requests, of which every second one is disputed."""
    now = time.time()
    database = connect(str(folder / "pandora.sqlite"))
    with database.transaction() as open_:
        for i in range(many):
            row = replace(
                opened(f"o{i}", at=now - 60 + i / 100.0), mode="observe", asked=asked, specialist=asked,
                proposed=proposed if i % 2 else asked,
            )  # fmt: skip
            log.begin(open_, row, prompt=f"Add {i} and {i * i}")
            log.close(open_, f"o{i}", now, status="ok")
    database.close()


@pytest.mark.parametrize(
    ("asked", "proposed", "said"), [("poor", "good", "better"), ("good", "poor", "worse")]
)
def test_a_shadow_buys_disputed_answers_until_one_side_is_proven(
    folder: Path, asked: str, proposed: str, said: str
) -> None:
    observed(folder, asked, proposed, 400)
    with Upstream() as upstream:
        path = write(folder, upstream.url, 0.0)
        path.write_text(path.read_text().replace("labels: {budget: 0.0}", "shadow: {budget: 5000}"))
        command = ("learn", "shadow", path, "--store", folder / "pandora.sqlite")
        first = pandora(*command)
        assert first.exit_code == 0, first.output
        assert "disputes 200 of 400 observed requests (50%)" in first.output
        assert f"proven {said}" in first.output
        bought = {prompt for model, prompt in upstream.answered if model == "good"}
        assert 20 <= len(bought) < 200  # no more than it took
        assert "three" not in {model for model, _ in upstream.answered}
        charged = upstream.charged
        assert f"${charged:.4f} spent" in first.output
        again = pandora(*command)
        assert upstream.charged == charged  # nothing is bought twice
        assert again.output.splitlines()[-1] == first.output.splitlines()[-1]


def test_a_shadow_keeps_its_budget_and_needs_disputes(folder: Path) -> None:
    with Upstream() as upstream:
        path = write(folder, upstream.url, 0.0)
        path.write_text(path.read_text().replace("labels: {budget: 0.0}", "shadow: {budget: 42.5}"))
        command = ("learn", "shadow", path, "--store", folder / "pandora.sqlite")
        nothing = pandora(*command)
        assert nothing.exit_code == 2
        assert "mode: observe" in nothing.output
        observed(folder, "poor", "good")
        ended = pandora(*command)
        assert ended.exit_code == 0, ended.output
        assert 0.0 < upstream.charged <= 42.5
        assert "more requests or budget" in ended.output
        path.write_text(path.read_text().replace("shadow: {budget: 42.5}", "labels: {budget: 1}"))
        assert "learn.shadow" in pandora(*command).output
