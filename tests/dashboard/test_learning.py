"""The page Learning: empty, while a trial runs, after a promotion; and its form."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pandora_router.gateway.http.learner import promote
from pandora_router.learn.drift import DriftState
from pandora_router.learn.evidence import Evidence
from pandora_router.store import accounts, alerts, versions
from pandora_router.store.alerts import Alert
from pandora_router.store.database import Transaction
from pandora_router.store.money import in_dollars, period_bounds
from pandora_router.store.rows import LiveTrial
from tests.dashboard.conftest import Running
from tests.support.traffic import fill

NOW = time.time()
TRIAL = LiveTrial("t", "/routers/b", "B", "/routers/a", "A", "A", "veto", 0.5, False, NOW - 6 * 86_400)
FORM = "/dashboard/learning/back"


def run_trial(open_: Transaction, d: float = 0.1) -> Evidence:
    """A trial with 400 rated disagreements, and one specialist that has changed."""
    versions.begin(open_, TRIAL, Evidence.start().to_dict())
    evidence = Evidence.start()
    for i in range(400):
        evidence = evidence.after(d + (0.8 if i % 2 else -0.8), 3.0)
        if i % 4 == 3:
            point = evidence.rated, evidence.mean, evidence.standard_error, evidence.promote, evidence.drop
            versions.count(open_, "t", {}, evidence.to_dict(), point, TRIAL.started + 1200.0 * i)
    state = DriftState(answers=120, shift=-0.21, alarms=1, recent=(-0.2,), total=3.0)
    alerts.write_drift(open_, "A", "small", state.to_dict(), NOW)
    alerts.write_drift(open_, "A", "<b>large</b>", DriftState(answers=900).to_dict(), NOW)
    alerts.raise_alert(open_, Alert("drift", "small", "1", NOW, "small earns -0.21 of a right answer"))
    return evidence


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    made = Running(tmp_path / "store.sqlite")
    made.store.submit(lambda open_: fill(open_, 600, NOW - 60 * 86_400, NOW - 60, feedback=0.8)).result()
    yield made
    made.close()


def test_an_empty_page_says_how_to_begin(running: Running) -> None:
    text = running.ask("/dashboard/learning").text
    assert "No candidate was tried yet: pandora learn trial FOLDER" in text
    assert "Score by week" in text
    assert "Go back" not in text


def test_the_page_says_what_was_asked_for_its_lesson_this_month_and_at_what_cost(running: Running) -> None:
    assert "Asked for what they teach" not in running.ask("/dashboard/learning").text
    since = period_bounds("month", NOW)[0]
    store = running.store
    store.submit(
        lambda open_: open_.run("UPDATE decisions SET mode = 'explore' WHERE declined IS NULL")
    ).result()
    mine = "FROM decisions WHERE mode = 'explore' AND closed_at IS NOT NULL AND at >= ?"
    rows = store.submit(lambda open_: open_.rows(f"SELECT cost {mine}", since)).result()
    assert 0 < len(rows) < 600  # those of earlier months are left out
    text = running.ask("/dashboard/learning").text
    assert "Asked for what they teach" in text
    assert in_dollars(sum(cost for (cost,) in rows)) in text


def test_a_running_trial_has_its_curve_and_lines(running: Running) -> None:
    evidence = running.store.submit(run_trial).result()
    text = running.ask("/dashboard/learning").text
    assert f"{evidence.promote:,.3g}" in text
    assert "400" in text
    assert "Evidence for b" in text
    assert "proven better" in text
    assert "proven worse" in text
    assert "changed</span>" in text
    assert "<b>large</b>" not in text
    csv = running.ask("/dashboard/learning?csv=trials").text
    assert "/routers/b,veto" in csv


def test_the_button_goes_back_once_and_only_from_this_page(running: Running) -> None:
    def change(open_: Transaction) -> None:
        run_trial(open_)
        promote(open_, TRIAL, "better", NOW)

    running.store.submit(change).result()
    assert 'name="confirm" value="2"' in running.ask("/dashboard/learning").text
    own = {"origin": running.origin, "sec_fetch_site": "same-origin"}
    assert running.ask(FORM, "POST", "confirm=2", origin="http://evil.example").status == 403
    assert running.ask(FORM, "POST", "", **own).status == 409
    assert running.ask(FORM, "POST", "confirm=1", **own).status == 409
    assert running.ask(FORM, "POST", "confirm=2", **own).status == 303
    lineup = running.store.submit(versions.lineup).result()
    assert lineup.version is not None
    assert (lineup.version.number, lineup.version.artifact, lineup.trial) == (3, "A", None)
    assert running.ask(FORM, "POST", "confirm=2", **own).status == 409


def test_with_keys_nobody_goes_back_without_an_admin_key(tmp_path: Path) -> None:
    running = Running(tmp_path / "store.sqlite", keys=True)
    try:
        running.store.submit(lambda open_: promote(open_, TRIAL, "better", NOW)).result()
        running.store.submit(lambda open_: accounts.add_key(open_, "team", NOW)).result()
        answer = running.ask(FORM, "POST", "confirm=2", origin=running.origin)
        assert (answer.status, answer.headers["location"]) == (303, "/dashboard/login")
        lineup = running.store.submit(versions.lineup).result()
        assert lineup.version is not None
        assert lineup.version.artifact == "B"
    finally:
        running.close()
