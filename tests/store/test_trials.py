"""Versions and trials of routers, and alerts, on both databases."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from pandora_router.errors import UsageError
from pandora_router.store import accounts, alerts, budgets, log, versions
from pandora_router.store.alerts import Alert
from pandora_router.store.database import Database, Transaction
from pandora_router.store.rows import Attempt, Draw, Feedback, LiveTrial, Outcome, Settlement, SharedBudget
from pandora_router.store.versions import Lineup
from tests.store.test_laws import opened

NOW = 1_000_000.0
TRIAL = LiveTrial("t", "/b", "B", "/a", "A", "A", "veto", 0.5, False, NOW)


def request(open_: Transaction, id_: str, *, at: float = NOW, failed: bool = False, trial: str = "t") -> None:
    """A finished request of a trial; `failed`: another specialist answered."""
    drawn = Draw(trial, True, 0.5, ("small", "large"), (0.4, 0.6), 0.5)
    row = replace(opened(id_, at=at), specialist="large", asked="large", session=id_, draw=drawn)
    log.begin(open_, row, [Attempt(f"{id_}-1", id_, "answer", "large", at, 1)])
    log.settle(open_, Settlement(f"{id_}-1", Outcome("ok", 100_000_000), at))
    log.close(open_, id_, at, status="ok", specialist="small" if failed else None)


def rate(open_: Transaction, id_: str, value: float, at: float = NOW) -> str:
    return log.give_feedback(open_, Feedback(f"{id_} {value} {at}", id_, at, "reward", value), None)


def test_one_trial_runs_at_a_time_and_survives_the_process(database: Database) -> None:
    with database.transaction() as open_:
        assert versions.lineup(open_) == Lineup()
        versions.begin(open_, TRIAL, {"rated": 0})
    with database.transaction() as open_:
        assert versions.lineup(open_) == Lineup(None, TRIAL)
        with pytest.raises(UsageError, match="no other is running"):
            versions.begin(open_, replace(TRIAL, id="u"), {})
    with database.transaction() as open_:
        assert versions.end(open_, "stopped", NOW)
        assert not versions.end(open_, "stopped", NOW)
        versions.begin(open_, replace(TRIAL, id="u", watch=True), {})
        versions.begin(open_, replace(TRIAL, id="v"), {})  # a watch makes room for a trial
        assert [(one.id, verdict) for one, _, verdict, _ in versions.past(open_)] == [
            ("v", None), ("u", "replaced by another trial"), ("t", "stopped")
        ]  # fmt: skip


def test_promotion_and_return_keep_parents(database: Database) -> None:
    with database.transaction() as open_:
        with pytest.raises(UsageError, match="that was promoted"):
            versions.go_back(open_, "back", NOW)
        versions.promote(open_, TRIAL, "better", NOW)
        second = replace(TRIAL, id="u", path="/c", artifact="C", against_path="/b", against="B")
        versions.promote(open_, second, "better still", NOW)
        made = [(one.number, one.artifact, one.parent) for one in versions.versions(open_)]
        assert made == [(3, "C", 2), (2, "B", 1), (1, "A", None)]
        assert versions.go_back(open_, "worse", NOW).artifact == "B"
        assert versions.go_back(open_, "worse", NOW).artifact == "A"
        with pytest.raises(UsageError):
            versions.go_back(open_, "worse", NOW)


def test_only_old_rated_answers_of_whom_was_asked_wait_and_each_counts_once(database: Database) -> None:
    with database.transaction() as open_:
        versions.begin(open_, TRIAL, {"rated": 0})
        for id_, more in (
            ("a", {}),
            ("b", {"failed": True}),
            ("c", {"at": NOW + 50.0}),
            ("d", {}),
            ("e", {}),
        ):
            request(open_, id_, **more)  # type: ignore[arg-type]
        request(open_, "f", trial="another")
        for id_ in "abcdf":
            assert rate(open_, id_, 1.0) == "added"
        assert rate(open_, "a", 0.25, NOW + 1.0) == "added"
        found = versions.waiting(open_, "t", "reward", NOW + 10.0)
        assert [(one.decision, one.score, one.cost) for one in found] == [
            ("a", 0.25, 100_000_000), ("d", 1.0, 100_000_000)
        ]  # fmt: skip
        versions.count(open_, "t", {"a": 0.5, "d": None}, {"rated": 1}, (1, 0.5, None, 1.1, 0.9), NOW)
        assert versions.waiting(open_, "t", "reward", NOW + 10.0) == []
        assert versions.counted_sessions(open_, "t", ["a", "c", "e"]) == {"a"}
        assert versions.keys_counted(open_, "t")[None] == 1
        assert versions.evidence(open_, "t") == {"rated": 1}
        assert (versions.right_answer(open_, "t"), versions.right_answer(open_, "none")) == (0.5, None)
        assert versions.points(open_, "t") == [(NOW, 1, 0.5, None, 1.1, 0.9)]
        assert rate(open_, "a", 0.75, NOW + 2.0) == "late"
        log.prune(open_, NOW + 1.0, NOW + 1.0)
        assert open_.rows("SELECT decision FROM draws") == [("c",)]
        assert versions.evidence(open_, "t") == {"rated": 1}


def test_an_alert_is_raised_once_and_claimed_by_one(database: Database) -> None:
    alert = Alert("drift", "small", "first", NOW, "small has changed")
    with database.transaction() as open_:
        assert alerts.raise_alert(open_, alert)
        assert not alerts.raise_alert(open_, replace(alert, at=NOW + 1.0))
        assert alerts.claim(open_, NOW) == [alert]
        assert alerts.claim(open_, NOW + 1.0) == []
        again = alerts.claim(open_, NOW + alerts.CLAIMED + 1.0)  # whoever claimed it has died
        assert [one.tries for one in again] == [1]
        alerts.not_sent(open_, again[0], NOW)
        assert alerts.claim(open_, NOW + 5.0) == []
        third = alerts.claim(open_, NOW + 11.0)
        assert [one.tries for one in third] == [2]
        alerts.sent(open_, third[0], NOW)
        assert alerts.claim(open_, NOW + 1e6) == []
        assert alerts.totals(open_) == {"drift": 1}


def test_pauses_between_tries_double_up_to_an_hour_and_end(database: Database) -> None:
    now, pauses = NOW, []
    with database.transaction() as open_:
        alerts.raise_alert(open_, Alert("drift", "small", "first", NOW, "small has changed"))
        while claimed := alerts.claim(open_, now):
            alerts.not_sent(open_, claimed[0], now)
            ((later,),) = open_.rows("SELECT next_at FROM alerts")
            pauses.append(float(later) - now)
            now = float(later)
    assert pauses == [5, 10, 20, 40, 80, 160, 320, 640, 1280, 2560, 3600, 3600]


def test_a_look_at_somebody_who_lost_is_no_part_of_what_an_answer_cost(database: Database) -> None:
    """The same specialist was looked at, lost, and was asked after all: its answer alone is charged to it."""
    now = time.time()
    with database.transaction() as open_:
        row = replace(
            opened("a", at=now - 99.0), specialist="large", asked="large", worth=0.5, artifact="A",
            detail={"value": {"right_answer": 1.0}},
        )  # fmt: skip
        tries = [Attempt(f"a-{kind}", "a", kind, "large", now, 1) for kind in ("loser", "answer")]
        log.begin(open_, row, tries)
        for attempt in tries:
            log.settle(open_, Settlement(attempt.id, Outcome("ok", 100_000_000), now))
        rate(open_, "a", 1.0, now - 50.0)
        (found,) = alerts.surprises(open_, "reward", now)
        assert found.difference == pytest.approx(1.0 - 0.1 - 0.5)


def test_ratings_are_new_once_and_budgets_are_told_twice(database: Database) -> None:
    now = time.time()
    with database.transaction() as open_:
        for id_ in "ab":
            row = replace(
                opened(id_, at=now - 99.0), specialist="large", asked="large", worth=0.5, artifact="A",
                detail={"value": {"right_answer": 0.5}},
            )  # fmt: skip
            log.begin(open_, row, [Attempt(f"{id_}-1", id_, "answer", "large", now, 1)])
            log.settle(open_, Settlement(f"{id_}-1", Outcome("ok", 100_000_000), now))
        rate(open_, "a", 1.0, now - 50.0)
        rate(open_, "a", 0.0, now - 40.0)
        found = alerts.surprises(open_, "reward", now)
        assert [(one.artifact, one.specialist, one.difference) for one in found] == [
            ("A", "large", pytest.approx(1.0 - 0.1 / 0.5 - 0.5))
        ]
        rate(open_, "b", 1.0, now - 30.0)
        assert len(alerts.surprises(open_, "reward", now)) == 1
        assert alerts.surprises(open_, "reward", now) == []
        key, _ = accounts.add_key(open_, "team", now, budget=1000)
        told = []
        for worst in (700, 150, 200):
            budgets.reserve(open_, key, f"r{worst}", worst, now, 60.0)
            budgets.charge(open_, f"r{worst}", worst)
            told.append([one.occasion.split()[-1] for one in alerts.budgets(open_, now)])
        assert told == [[], ["80%"], ["80%"]]
        budgets.reserve(open_, key, "last", 100, now, 60.0)
        budgets.charge(open_, "last", 300)
        assert [one.occasion.split()[-1] for one in alerts.budgets(open_, now)] == ["100%"]


def test_every_level_of_the_tree_has_an_alert_at_80_percent_and_at_all_of_its_budget(
    database: Database,
) -> None:
    with database.transaction() as open_:
        now = time.time()
        accounts.set_group(open_, "lab", budget=1_000, period="week")
        key, _ = accounts.add_key(open_, "ann", now, budget=8_000, group="lab")
        levels = [
            SharedBudget.named("all", "", 2_000, "month"),
            SharedBudget.named("profile", "frugal", 4_000, "day"),
        ]
        for level in levels:
            budgets.note_pace(open_, level, 1.0, 1.0, now)
        assert budgets.reserve(open_, key, "r", 800, now, 60.0, levels) is None
        raised, spent = {}, 0
        for total in (799, 800, 999, 1000, 1599, 1600, 1999, 2000, 3200, 4000, 6400, 8000, 9000):
            budgets.charge(open_, "r", total - spent)
            spent = total
            for alert in alerts.budgets(open_, now):
                if alerts.raise_alert(open_, alert):
                    raised[alert.subject, alert.occasion.split()[-1]] = total
        assert raised == {
            ("the group lab", "80%"): 800,
            ("the group lab", "100%"): 1000,
            ("all requests", "80%"): 1600,
            ("all requests", "100%"): 2000,
            ("the profile frugal", "80%"): 3200,
            ("the profile frugal", "100%"): 4000,
            ("the key ann", "80%"): 6400,
            ("the key ann", "100%"): 8000,
        }
