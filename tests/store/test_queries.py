"""Queries of the dashboard against the same numbers counted in Python over all rows."""

from __future__ import annotations

import itertools
import math
import random
import sqlite3
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pandora_router.errors import UpstreamError
from pandora_router.store import accounts, log, queries
from pandora_router.store.database import Database, connect
from pandora_router.store.queries import Filter, Window
from pandora_router.store.rollups import LookEffect, look_effect
from pandora_router.store.rows import Attempt, DecisionRow, Feedback, Outcome, Settlement
from pandora_router.store.worker import Reader
from pandora_router.wires.usage import Usage

NOW = 1_800_000_000.0
DAY = 86_400.0
EVIL = "x' OR '1'='1"


def detail(chosen: str, first: str, *, looked: bool) -> dict[str, Any]:
    """The stored form of a decision between two specialists; `first` had the higher mean before looks."""
    names = ("small", "large")
    lines = {name: {"mean": 0.7 if name == first else 0.5, "std": 0.1} for name in names}
    purchases = [{"specialists": ["small"], "values": [0.4]}] if looked else []
    worth = {name: 0.75 if name == chosen else 0.5 for name in names}
    return {
        "decision": {
            "specialist": chosen,
            "purchases": purchases,
            "specialists": lines,
            "worth": worth,
            "declined_because": None,
        }
    }


def fill(database: Database, count: int = 300, seed: int = 1) -> list[DecisionRow]:
    """Random traffic over three days; every tenth decision stays open."""
    rng, made = random.Random(seed), []
    with database.transaction() as open_:
        for i in range(count):
            chosen, first = rng.choice(["small", "large"]), rng.choice(["small", "large"])
            looked = rng.random() < 0.5
            one = DecisionRow(
                *(f"d{i:04}", NOW - rng.uniform(0, 3 * DAY), rng.choice([None, "k1", "k2"]), "chat", "route"),
                *(rng.choice(["p1", "p2"]), "abc", 1, chosen, chosen),
                declined=rng.choice([None, None, "empty"]),
                inspected=int(looked),
                inspection_cost=3 * looked,
                baseline=rng.choice([None, 900]),
                detail=detail(chosen, first, looked=looked),
            )
            made.append(one)
            calls = [Attempt(f"a{i}", one.id, "answer", chosen, one.at, 50)]
            if looked:
                calls.append(Attempt(f"l{i}", one.id, "loser", "large", one.at, 50))
            log.begin(open_, one, calls, prompt=f"Prompt {i} 100% {'NEEDLE' if i % 7 == 0 else 'hay'}")
            for call in calls:
                usage = Usage(10, 2, 1, rng.randrange(30), complete=rng.random() < 0.9)
                log.settle(open_, Settlement(call.id, Outcome("ok", rng.randrange(1000), usage), NOW))
            if i % 10:
                status = rng.choice(["ok", "ok", "ok", "error"])
                log.close(
                    open_, one.id, NOW, status=status, first_token=rng.random(), seconds=rng.expovariate(1.0)
                )
    return made


@pytest.mark.parametrize("days", [0.5, 2.5])
def test_totals_are_the_sums_of_the_closed_decisions(database: Database, days: float) -> None:
    fill(database)
    with database.transaction() as open_:
        window = Window(NOW - days * DAY, NOW)
        first, last = (end * window.span for end in window.ends)
        assert first <= window.since < first + window.span
        assert last - window.span < window.until <= last
        rows = [
            row
            for row in log.recent(open_, most=1000)
            if first <= row["at"] < last and row["closed_at"] is not None
        ]
        assert rows
        found = queries.totals(open_, window)
        assert found["requests"] == len(rows)
        assert found["cost"] == sum(row["cost"] for row in rows)
        assert found["changed"] == sum(row["changed"] for row in rows)
        assert found["gained"] == pytest.approx(sum(row["gained"] for row in rows))
        by_key = queries.totals_by(open_, window, "key")
        assert {key: one["requests"] for key, one in by_key.items()} == {
            key: sum((row["key"] or "") == key for row in rows) for key in ("", "k1", "k2")
        }
        assert queries.totals(open_, window, "k1")["cost"] == by_key["k1"]["cost"]
        step, over_time = queries.series(open_, window, 20)
        assert len(over_time) <= 21
        assert all(b["at"] - a["at"] == step for a, b in itertools.pairwise(over_time))
        for point in over_time:
            inside = [row for row in rows if point["at"] <= row["at"] < point["at"] + step]
            assert (point["requests"], point["cost"]) == (len(inside), sum(row["cost"] for row in inside))
        assert sum(point["requests"] for point in over_time) == len(rows)
        levels = [0.5, 0.95]
        start, end = (edge * 3600 for edge in window.hours)
        ended = [r for r in log.recent(open_, most=1000) if start <= r["at"] < end and r["status"] == "ok"]
        for measure, column in (("first", "first_token"), ("whole", "seconds")):
            told = queries.quantiles(open_, window, measure, levels)  # type: ignore[arg-type]
            for name in ("", "small", "large"):
                times = [row[column] for row in ended if name in ("", row["specialist"])]
                exact = np.quantile(times, levels, method="inverted_cdf")
                np.testing.assert_allclose(told[name], exact, rtol=2 ** (1 / 10) - 1 + 1e-9)
        empty = queries.totals(open_, Window(0.0, DAY))
        assert set(empty.values()) == {0}
        assert queries.quantiles(open_, Window(0.0, DAY), "first", [0.5]) == {}


def test_calls_and_spending_are_the_sums_of_the_attempts(database: Database) -> None:
    fill(database)
    with database.transaction() as open_:
        window = Window(NOW - 3 * DAY, NOW)
        everything = open_.rows("SELECT specialist, kind, cost, output, usage_complete, at FROM attempts")
        found = queries.calls(open_, window)
        for row in found:
            mine = [a for a in everything if (a[0], a[1]) == (row["specialist"], row["kind"])]
            assert row["calls"] == len(mine)
            assert row["cost"] == sum(a[2] for a in mine)
            assert row["output"] == sum(a[3] for a in mine)
            assert row["estimated"] == sum(1 - a[4] for a in mine)
        assert sum(row["calls"] for row in found) == len(everything)
        looks = queries.looked(open_, window)
        decided = [r for r in log.recent(open_, most=1000) if r["inspected"] and r["closed_at"] is not None]
        assert looks == {"small": (len(decided), sum(row["specialist"] == "small" for row in decided))}
        days = queries.spending(open_, window)
        assert sum(row["cost"] for row in days) == sum(a[2] for a in everything)
        for row in days:
            mine = [a for a in everything if a[0] == row["specialist"] and a[5] // DAY == row["day"]]
            assert row["cost"] == sum(a[2] for a in mine)


@pytest.mark.parametrize(
    ("wanted", "lets"),
    [
        (Filter(), lambda row, i: True),
        (Filter(specialist="small"), lambda row, i: row["specialist"] == "small"),
        (
            Filter(policy="p1", key="k2", status="ok"),
            lambda row, i: (row["policy"], row["key"], row["status"]) == ("p1", "k2", "ok"),
        ),
        (Filter(declined=True), lambda row, i: row["declined"] is not None),
        (Filter(declined=False, inspected=True), lambda row, i: row["declined"] is None and row["inspected"]),
        (
            Filter(inspected=False, least=400, most=800),
            lambda row, i: not row["inspected"] and 400 <= row["cost"] <= 800,
        ),
        (Filter(changed=True), lambda row, i: row["changed"]),
        (Filter(text="needle", inspected=True), lambda row, i: i % 7 == 0 and row["inspected"]),
        (Filter(text="100%"), lambda row, i: True),
        (Filter(text="1_0%"), lambda row, i: False),
        (Filter(specialist=EVIL), lambda row, i: False),
        (Filter(policy=EVIL, key=EVIL, status=EVIL), lambda row, i: False),
        (Filter(text=EVIL), lambda row, i: False),
    ],
)
def test_a_filter_lets_through_what_it_says_page_by_page(
    database: Database, wanted: Filter, lets: Any
) -> None:
    fill(database)
    window = Window(NOW - 2 * DAY, NOW - 0.5 * DAY)
    with database.transaction() as open_:
        expected = [
            row["id"]
            for row in log.recent(open_, most=1000)
            if window.since <= row["at"] < window.until and lets(row, int(row["id"][1:]))
        ]
        met: list[str] = []
        before = None
        while page := queries.listed(open_, window, wanted, most=7, before=before):
            met += [row["id"] for row in page]
            before = (page[-1]["at"], page[-1]["id"])
        assert met == expected


def test_feedback_that_replaces_feedback_is_counted_once(database: Database) -> None:
    made = fill(database, 60)
    rng = random.Random(2)
    last: dict[str, float] = {}
    with database.transaction() as open_:
        for k in range(150):
            one, value = rng.choice(made), rng.choice([0.0, 0.5, 1.0])
            log.give_feedback(open_, Feedback(f"f{k}", one.id, NOW + k, "reward", value), None)
            log.give_feedback(
                open_, Feedback(f"f{k}", one.id, NOW + k, "reward", 9.0), None
            )  # known: ignored
            last[one.id] = value
        log.give_feedback(open_, Feedback("late", made[0].id, NOW - 1, "reward", 7.0), None)
        last.setdefault(made[0].id, 7.0)
        sums = queries.judged(open_, Window(NOW - 3 * DAY, NOW), "reward")
        assert sum(row["judgements"] for row in sums) == len(last)
        assert sum(row["total"] for row in sums) == pytest.approx(sum(last.values()))
        assert sum(row["squares"] for row in sums) == pytest.approx(sum(v * v for v in last.values()))
        over_time = queries.judged_over_time(open_, Window(NOW - 3 * DAY, NOW), "reward")
        assert sum(row["total"] for row in over_time) == pytest.approx(sum(last.values()))
        assert queries.metrics(open_) == ["reward"]
        newest = queries.judged_details(open_, "reward", 10)
        assert len(newest) == 10
        assert "decision" in newest[0][0]


def test_news_is_the_choice_that_looks_changed() -> None:
    assert look_effect(detail("small", "large", looked=True)) == LookEffect(True, 0.25)
    assert look_effect(detail("large", "large", looked=True)) == LookEffect(False, 0.0)
    assert look_effect(detail("small", "large", looked=False)) == LookEffect()
    assert look_effect({}) == LookEffect()
    assert look_effect({"decision": {}}) == LookEffect()


def test_reading_sees_one_state_writes_nothing_and_ends_in_time(url: str, database: Database) -> None:
    made = fill(database, 20)
    reader = connect(url)
    with reader.reading(60.0) as quiet:
        before = quiet.rows("SELECT count(*) FROM decisions")
        with database.transaction() as open_:  # nobody waits for a reader
            log.begin(open_, replace(made[0], id="new"))
        assert quiet.rows("SELECT count(*) FROM decisions") == before
    refused: tuple[type[Exception], ...] = (sqlite3.Error, UpstreamError)
    if url.startswith("postgresql"):
        import psycopg

        refused = (psycopg.Error,)
    with pytest.raises(refused), reader.reading(60.0) as quiet:
        quiet.run("DELETE FROM decisions")
    with database.transaction() as open_:
        assert open_.rows("SELECT count(*) FROM decisions") == [(21,)]
    endless = (
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2000000000) "
        "SELECT count(*) FROM n"
    )
    with pytest.raises(UpstreamError), reader.reading(0.2) as quiet:
        quiet.rows(endless)
    with reader.reading(60.0) as quiet:
        assert quiet.rows("SELECT 1") == [(1,)]
    reader.close()


def test_a_reader_answers_from_its_own_thread(url: str, database: Database) -> None:
    import asyncio

    fill(database, 20)
    reader = Reader(url)
    try:
        found = asyncio.run(reader.run(lambda open_: queries.listed(open_, Window(0, NOW), Filter())))
        assert len(found) == 20
        assert not math.isnan(found[0]["at"])
    finally:
        reader.close()


def test_an_admin_key_and_the_shared_secret(database: Database) -> None:
    with database.transaction() as open_:
        key, secret = accounts.add_key(open_, "operator", NOW, admin=True)
        plain, _ = accounts.add_key(open_, "team", NOW)
        assert accounts.identify(open_, secret) == key
        assert (key.admin, plain.admin) == (True, False)
        assert accounts.key_of(open_, plain.id) == plain
        assert accounts.key_of(open_, "nobody") is None
        one = accounts.shared_secret(open_, "dashboard")
        assert accounts.shared_secret(open_, "dashboard") == one
        assert len(one) == 64
