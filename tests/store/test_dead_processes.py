"""Dead processes: what they left open is settled at once, and corrected if they are alive after all."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

import pytest

from pandora_router.store import accounts, budgets, log, maintenance
from pandora_router.store.database import Database, Transaction
from pandora_router.store.maintenance import Process
from pandora_router.store.rows import Attempt, DecisionRow, Key, Outcome, Settlement
from pandora_router.wires.usage import Usage

NOW = 1_800_000_000.0


def begin(open_: Transaction, worker: Process, number: int = 1) -> Key:
    """A key with a budget and a decision of `worker` whose attempt is expected to cost 250."""
    key, _ = accounts.add_key(open_, f"team {number}", NOW, budget=1000)
    assert budgets.reserve(open_, key, f"d{number}", 600, NOW, 3600.0) is None
    row = DecisionRow(f"d{number}", NOW, key.id, "chat", "route", "named", "", 1, "small", "small")
    attempt = Attempt(f"a{number}", row.id, "answer", "small", NOW, 250)
    log.begin(open_, row, [attempt], worker=worker.id)
    return key


def recover(open_: Transaction, worker: Process, now: float) -> int:
    maintenance.seen(open_, worker, now)
    maintenance.remove_dead(open_, worker, now)
    return log.recover(open_, now)


def test_what_a_killed_process_left_open_is_settled_at_once(database: Database) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        here, other = Process(), replace(Process(), pid=process.pid)
        with database.transaction() as open_:
            maintenance.seen(open_, other, NOW)
            key = begin(open_, other)
            assert recover(open_, here, NOW + 1.0) == 0  # alive
            process.kill()
            process.wait()
            assert recover(open_, here, NOW + 2.0) == 1
            assert recover(open_, here, NOW + 2.0) == 0
            assert budgets.account(open_, key, NOW) == (250, 0)


def test_a_process_of_another_machine_is_dead_when_it_was_not_seen_for_long(database: Database) -> None:
    here, far = Process(), replace(Process(), place="elsewhere", pid=os.getpid())
    with database.transaction() as open_:
        maintenance.seen(open_, far, NOW)
        key = begin(open_, far)
        assert recover(open_, here, NOW + maintenance.SILENT - 1.0) == 0
        maintenance.seen(open_, far, NOW + maintenance.SILENT)
        assert recover(open_, here, NOW + 1.5 * maintenance.SILENT) == 0
        assert recover(open_, here, NOW + 2.5 * maintenance.SILENT) == 1
        assert budgets.account(open_, key, NOW) == (250, 0)


def test_a_process_that_ends_leaves_nothing_open(database: Database) -> None:
    here, other = Process(), replace(Process(), place="elsewhere")
    with database.transaction() as open_:
        maintenance.seen(open_, other, NOW)
        begin(open_, other)
        maintenance.left(open_, other)
        assert recover(open_, here, NOW) == 1


@pytest.mark.parametrize("cost", [100, 250, 400])
def test_an_attempt_given_up_for_lost_is_corrected_by_its_process(database: Database, cost: int) -> None:
    here, far = Process(), replace(Process(), place="elsewhere")
    outcome = Outcome("ok", cost, Usage(10, 0, 0, 5))
    with database.transaction() as open_:
        maintenance.seen(open_, here, NOW)
        key, closed = begin(open_, far), begin(open_, far, 2)
        assert recover(open_, here, NOW) == 2  # never registered: dead
        assert log.settle(open_, Settlement("a1", outcome, NOW))
        assert not log.settle(open_, Settlement("a1", Outcome("ok", 999), NOW))
        assert not log.close(open_, "d2", NOW, status="ok", last=Settlement("a2", outcome, NOW))
        for owner, id_ in ((key, "d1"), (closed, "d2")):
            row = log.decision(open_, id_)
            assert row is not None
            assert (row["cost"], row["attempts"][0]["cost"]) == (cost, cost)
            assert budgets.account(open_, owner, NOW) == (cost, 0)
        assert sum(minute["cost"] for minute in log.minutes(open_, NOW, NOW + 60)) == 2 * cost
        calls = open_.rows("SELECT status, sum(calls), sum(cost) FROM calls GROUP BY status ORDER BY status")
        assert [tuple(map(str, row)) for row in calls] == [("lost", "0", "0"), ("ok", "2", str(2 * cost))]


def test_sums_of_a_commit_are_written_once_and_undone_with_their_part(database: Database) -> None:
    sql = (
        "INSERT INTO looked (hour, specialist, looks, won) VALUES (?, ?, ?, ?) "
        "ON CONFLICT (hour, specialist) DO UPDATE SET looks = looked.looks + excluded.looks, "
        "won = looked.won + excluded.won"
    )
    with database.transaction() as open_:
        for _ in range(3):
            open_.grow(sql, (1, "small"), (2, 1))
        open_.grow(sql, (1, "large"), (1, 0))
        with pytest.raises(RuntimeError), database.part(open_):
            _fail(open_, sql)
        assert open_.rows("SELECT looks, won FROM looked WHERE specialist = 'small'") == [(6, 3)]
        open_.grow(sql, (1, "small"), (1, 1))
    with pytest.raises(RuntimeError), database.transaction() as open_:
        _fail(open_, sql)
    with database.transaction() as open_:
        assert open_.rows("SELECT specialist, looks, won FROM looked ORDER BY specialist") == [
            ("large", 1, 0),
            ("small", 7, 4),
        ]


def _fail(open_: Transaction, sql: str) -> None:
    open_.grow(sql, (1, "small"), (100, 100))
    raise RuntimeError


def test_a_retry_of_a_decision_given_up_for_lost_is_charged_and_reserves_nothing(database: Database) -> None:
    with database.transaction() as open_:
        key = begin(open_, Process())
        assert log.recover(open_, NOW) == 1  # never registered: dead
        log.settle(open_, Settlement("a1", Outcome("error", 0), NOW))  # but it lives, and calls another
        assert budgets.extend(open_, key, "d1", 600) is None
        log.attempt(open_, Attempt("a2", "d1", "retry", "large", NOW, 250))
        log.close(open_, "d1", NOW, status="ok", last=Settlement("a2", Outcome("ok", 30), NOW))
        assert budgets.account(open_, key, NOW) == (30, 0)
        assert sum(minute["cost"] for minute in log.minutes(open_, NOW, NOW + 60)) == 30
