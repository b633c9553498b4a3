"""Laws of the store, over SQLite and a real PostgreSQL."""

from __future__ import annotations

import asyncio
import multiprocessing
import random
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from pandora_router.errors import UpstreamError, UsageError
from pandora_router.store import accounts, budgets, log
from pandora_router.store.database import Database, Transaction, connect
from pandora_router.store.migrations import STEPS, migrate
from pandora_router.store.rows import (
    Attempt,
    DecisionRow,
    Feedback,
    Key,
    Outcome,
    Refusal,
    Session,
    Settlement,
    SharedBudget,
)
from pandora_router.store.worker import Store
from pandora_router.wires.usage import Usage
from tests.store.databases import Server

NOW = 1_800_000_000.0


def opened(id_: str = "d1", key: str | None = None, at: float = NOW) -> DecisionRow:
    return DecisionRow(
        *(id_, at, key, "chat", "route", "KnowledgeGradient()", "abc", 1, "small", "small"),
        inspected=1,
        inspection_cost=5,
        baseline=1000,
        detail={"steps": [1, 2]},
    )


def test_migrating_twice_changes_nothing_and_a_newer_schema_is_refused(database: Database) -> None:
    assert migrate(database) == len(STEPS)
    with database.transaction() as open_:
        open_.run("INSERT INTO migrations (number, at) VALUES (?, ?)", len(STEPS) + 1, NOW)
    with pytest.raises(UsageError, match="Upgrade"):
        migrate(database)


def test_a_key_is_found_by_its_secret_which_is_not_stored(database: Database) -> None:
    with database.transaction() as open_:
        key, secret = accounts.add_key(open_, "team", NOW, budget=100, per_minute=5)
        assert accounts.identify(open_, secret) == key
        stored = str(open_.rows("SELECT * FROM keys"))
        assert secret not in stored
        assert secret.removeprefix(accounts.PREFIX) not in stored
        assert isinstance(accounts.identify(open_, secret + "x"), Refusal)
        with pytest.raises(UsageError, match="not in use"):
            accounts.add_key(open_, "team", NOW)
        accounts.revoke_key(open_, "team", NOW)
        refused = accounts.identify(open_, secret)
        assert isinstance(refused, Refusal)
        assert refused.reason == "revoked key"
        with pytest.raises(UsageError):
            accounts.revoke_key(open_, "nobody", NOW)


def test_a_revoked_name_can_be_used_again_and_limits_can_change(database: Database) -> None:
    with database.transaction() as open_:
        old, first = accounts.add_key(open_, "team", NOW, budget=100)
        accounts.revoke_key(open_, "team", NOW)
        new, second = accounts.add_key(open_, "team", NOW + 1.0, budget=100)
        assert isinstance(accounts.identify(open_, first), Refusal)
        assert accounts.identify(open_, second) == new
        accounts.limit_key(open_, "team", budget=250, per_minute=7)
        assert accounts.identify(open_, second) == replace(new, budget=250, per_minute=7)
        assert accounts.key_of(open_, old.id) == replace(old, revoked_at=NOW)
        accounts.revoke_key(open_, "team", NOW + 2.0)
        assert isinstance(accounts.identify(open_, second), Refusal)
        for budget, per_minute, name in ((1, 1, "team"), (1, 1, "nobody"), (-1, None, "team")):
            with pytest.raises(UsageError):
                accounts.limit_key(open_, name, budget=budget, per_minute=per_minute)


def test_a_prompt_may_have_any_character(database: Database) -> None:
    with database.transaction() as open_:
        log.begin(open_, opened(), prompt="a\0b")
        (prompt,) = open_.rows("SELECT prompt FROM bodies")[0]
        assert prompt.replace("\N{REPLACEMENT CHARACTER}", "\0") == "a\0b"
        assert log.pinned(open_, "response:None:a\0b", NOW) is None


def test_a_clock_that_is_set_back_does_not_lock_a_key_out(database: Database) -> None:
    with database.transaction() as open_:
        key, _ = accounts.add_key(open_, "team", NOW, per_minute=2)
        for now in (NOW, NOW - 3600.0):
            assert [accounts.admit(open_, key, now) is None for _ in range(3)] == [True, True, False]


@pytest.mark.parametrize("per_minute", [1, 7, 60])
def test_a_rate_limit_is_what_a_list_of_arrivals_says(database: Database, per_minute: int) -> None:
    """Oracle: over any minute at most 2 x the allowance (a burst, then evenly), in the long run the rate."""
    rng = random.Random(per_minute)
    with database.transaction() as open_:
        key, _ = accounts.add_key(open_, "team", NOW, per_minute=per_minute)
        now, let_in = NOW, []
        for _ in range(300):
            now += rng.expovariate(per_minute / 20.0)
            refused = accounts.admit(open_, key, now)
            if refused is None:
                let_in.append(now)
            else:
                assert refused.retry_after is not None
                if refused.retry_after > 2e-3:  # the wait is not longer than it must be
                    assert accounts.admit(open_, key, now + refused.retry_after - 2e-3) is not None
                assert accounts.admit(open_, key, now + refused.retry_after + 1e-6) is None
                let_in.append(now + refused.retry_after)
                now += refused.retry_after + 1e-6
    let_in.sort()
    minutes = (let_in[-1] - let_in[0]) / 60.0
    assert len(let_in) <= per_minute * (minutes + 1) + 1
    # a bucket that holds one minute's allowance and refills evenly, replayed independently
    level, before = float(per_minute), let_in[0]
    for at in let_in:
        level = min(per_minute, level + (at - before) * per_minute / 60.0) - 1.0
        before = at
        assert level >= -1e-3


def test_an_attempt_is_settled_once_and_the_rest_of_the_lease_goes_back(database: Database) -> None:
    with database.transaction() as open_:
        key, _ = accounts.add_key(open_, "team", NOW, budget=1000)
        assert budgets.reserve(open_, key, "d1", 600, NOW, 60.0) is None
        assert budgets.reserve(open_, key, "d1", 600, NOW, 60.0) is None  # the same again
        assert budgets.account(open_, key, NOW) == (0, 600)
        refused = budgets.reserve(open_, key, "d2", 401, NOW, 60.0)
        assert isinstance(refused, Refusal)
        assert "team" in refused.message
        log.begin(open_, opened(key=key.id), [Attempt("a1", "d1", "inspection", "small", NOW, 50)])
        log.attempt(open_, Attempt("a2", "d1", "answer", "small", NOW, 300))
        assert log.settle(open_, Settlement("a1", Outcome("cancelled", 40), NOW))
        assert not log.settle(open_, Settlement("a1", Outcome("ok", 999), NOW))
        assert budgets.account(open_, key, NOW) == (40, 560)
        assert log.settle(open_, Settlement("a2", Outcome("ok", 300, Usage(10, 5, 0, 20)), NOW))
        assert log.close(open_, "d1", NOW, status="ok", seconds=1.5)
        assert not log.close(open_, "d1", NOW, status="error")
        assert budgets.account(open_, key, NOW) == (340, 0)
        row = log.decision(open_, "d1")
        assert row is not None
        assert (row["cost"], row["status"], row["detail"]) == (340, "ok", {"steps": [1, 2]})
        assert [one["cost"] for one in row["attempts"]] == [40, 300]
        assert row["attempts"][1]["cached"] == 5


def test_more_than_was_reserved_is_counted_in_full(database: Database) -> None:
    with database.transaction() as open_:
        key, _ = accounts.add_key(open_, "team", NOW, budget=1000)
        budgets.reserve(open_, key, "d1", 100, NOW, 60.0)
        log.begin(open_, opened(key=key.id), [Attempt("a1", "d1", "answer", "small", NOW, 50)])
        log.settle(open_, Settlement("a1", Outcome("ok", 2000), NOW))
        log.close(open_, "d1", NOW, status="ok")
        assert budgets.account(open_, key, NOW) == (2000, 0)
        assert isinstance(budgets.reserve(open_, key, "d2", 0, NOW, 60.0), Refusal)


def test_a_correction_gives_back_money_and_no_reservation(database: Database) -> None:
    """An estimate of 60 was 20 too high: 40 are spent, and 40 of the 100 stay reserved, not 60."""
    with database.transaction() as open_:
        key, _ = accounts.add_key(open_, "team", NOW, budget=1000)
        budgets.reserve(open_, key, "d1", 100, NOW, 60.0)
        budgets.charge(open_, "d1", 60)
        budgets.charge(open_, "d1", -20)
        assert budgets.account(open_, key, NOW) == (40, 40)


def test_another_call_reserves_only_what_is_missing(database: Database) -> None:
    with database.transaction() as open_:
        key, _ = accounts.add_key(open_, "team", NOW, budget=1000)
        budgets.reserve(open_, key, "d1", 300, NOW, 60.0)
        budgets.charge(open_, "d1", 100)
        assert budgets.extend(open_, key, "d1", 250) is None
        assert budgets.account(open_, key, NOW) == (100, 250)
        assert budgets.extend(open_, key, "d1", 900) is None  # all of the budget, and not a nanodollar more
        assert budgets.account(open_, key, NOW) == (100, 900)
        assert isinstance(budgets.extend(open_, key, "d1", 901), Refusal)
        assert budgets.account(open_, key, NOW) == (100, 900)


def test_a_new_period_starts_empty_and_old_leases_settle_in_their_own(database: Database) -> None:
    later = NOW + 86_400.0
    with database.transaction() as open_:
        key, _ = accounts.add_key(open_, "team", NOW, budget=100, period="day")
        budgets.reserve(open_, key, "d1", 100, NOW, 60.0)
        log.begin(open_, opened(key=key.id), [Attempt("a1", "d1", "answer", "small", NOW, 50)])
        assert budgets.account(open_, key, later) == (0, 0)
        assert budgets.reserve(open_, key, "d2", 100, later, 60.0) is None
        log.settle(open_, Settlement("a1", Outcome("ok", 90), later))
        log.close(open_, "d1", later, status="ok")
        assert budgets.account(open_, key, later) == (0, 100)
        assert budgets.account(open_, key, NOW) == (90, 0)


def test_what_a_dead_process_left_is_settled_at_its_estimate(database: Database) -> None:
    with database.transaction() as open_:
        key, _ = accounts.add_key(open_, "team", NOW, budget=1000)
        budgets.reserve(open_, key, "d1", 600, NOW, 10.0)
        budgets.reserve(open_, key, "never begun", 200, NOW, 10.0)
        log.begin(open_, opened(key=key.id), [Attempt("a1", "d1", "answer", "small", NOW, 250)])
        assert log.recover(open_, NOW + 11.0) == 0  # not yet
        assert log.recover(open_, NOW + 11.0 + log.LATE) == 1
        assert log.recover(open_, NOW + 11.0 + log.LATE) == 0
        assert budgets.account(open_, key, NOW) == (250, 0)
        row = log.decision(open_, "d1")
        assert row is not None
        assert row["status"] == "lost"


def test_feedback_is_idempotent_and_only_for_the_owner(database: Database) -> None:
    with database.transaction() as open_:
        log.begin(open_, opened(key="k1"))
        said = Feedback("f1", "d1", NOW, "reward", 0.5)
        assert log.give_feedback(open_, said, "k2") == "foreign"
        assert log.give_feedback(open_, said, "k1") == "added"
        assert log.give_feedback(open_, said, "k1") == "known"
        assert log.give_feedback(open_, replace(said, decision="none"), "k1") == "unknown"


def test_sessions_expire_and_generations_count_contents(database: Database) -> None:
    with database.transaction() as open_:
        log.pin(open_, "s", Session("small"), NOW, 10.0)
        log.pin(open_, "s", Session("large", NOW, tokens=2000, held=1500), NOW, 10.0)
        assert log.pinned(open_, "s", NOW + 9.0) == Session("large", NOW, tokens=2000, held=1500)
        assert log.pinned(open_, "s", NOW + 10.0) is None
        numbers = [log.generation(open_, name, "a", NOW) for name in ("x", "y", "x", "z")]
        assert numbers == [1, 2, 1, 3]


def test_sums_per_minute_equal_sums_over_the_log(database: Database) -> None:
    rng = random.Random(1)
    with database.transaction() as open_:
        for i in range(60):
            one = replace(
                opened(f"d{i}", at=NOW + rng.uniform(0, 300)),
                specialist=rng.choice(["small", "large"]),
                inspected=rng.randrange(3),
                baseline=rng.choice([None, 700]),
                declined=rng.choice([None, "empty"]),
            )
            log.begin(open_, one, [Attempt(f"a{i}", one.id, "answer", one.specialist, NOW, 50)])
            log.settle(open_, Settlement(f"a{i}", Outcome("ok", rng.randrange(1000)), NOW))
            log.close(open_, one.id, NOW, status=rng.choice(["ok", "error"]), seconds=rng.random())
        sums = log.minutes(open_, NOW, NOW + 400)
        for specialist in ("small", "large"):
            rows = log.recent(open_, most=100, specialist=specialist)
            mine = [minute for minute in sums if minute["specialist"] == specialist]
            assert sum(m["requests"] for m in mine) == len(rows)
            assert sum(m["cost"] for m in mine) == sum(row["cost"] for row in rows)
            assert sum(m["looks"] for m in mine) == sum(row["inspected"] for row in rows)
            assert sum(m["errors"] for m in mine) == sum(row["status"] != "ok" for row in rows)
            compared = [row for row in rows if row["baseline"] is not None]
            assert sum(m["baseline"] for m in mine) == 700 * len(compared)
            assert sum(m["compared"] for m in mine) == sum(row["cost"] for row in compared)


def test_pages_of_decisions_hold_each_once(database: Database) -> None:
    with database.transaction() as open_:
        for i in range(25):
            log.begin(open_, opened(f"d{i:02}", at=NOW + i // 3))
        met: list[str] = []
        before = None
        while page := log.recent(open_, most=4, before=before):
            met += [row["id"] for row in page]
            before = (page[-1]["at"], page[-1]["id"])
        assert sorted(met) == [f"d{i:02}" for i in range(25)]
        assert len(log.recent(open_, most=100, specialist="nobody")) == 0


def test_old_rows_go_and_sums_stay(database: Database) -> None:
    with database.transaction() as open_:
        log.begin(open_, opened("old", at=NOW - 100), prompt="a secret")
        log.begin(open_, opened("new"), prompt="kept")
        log.close(open_, "old", NOW, status="ok")
        log.close(open_, "new", NOW, status="ok")
        assert log.prune(open_, before=NOW - 50, bodies_before=NOW - 50) == 1
        assert log.decision(open_, "old") is None
        assert open_.rows("SELECT prompt FROM bodies") == [("kept",)]
        assert sum(m["requests"] for m in log.minutes(open_, NOW - 200, NOW + 60)) == 2


def _spend(url: str, key: Key, worker: int, done: object) -> None:
    """One process that reserves, settles or dies, as fast as it can, on a key that others use too."""
    database = connect(url)
    rng = random.Random(worker)
    for i in range(60):
        id_ = f"{worker}-{i}"
        worst = rng.randrange(1, 400)
        with database.transaction() as open_:
            if budgets.reserve(open_, key, id_, worst, NOW, 10.0) is not None:
                continue
            log.begin(open_, opened(id_, key.id), [Attempt(id_, id_, "answer", "small", NOW, worst)])
        if rng.random() < 0.2:
            continue  # as if killed: nobody settles
        with database.transaction() as open_:
            log.settle(open_, Settlement(id_, Outcome("ok", rng.randrange(worst + 1)), NOW))
            log.close(open_, id_, NOW, status="ok")
    database.close()


def test_racing_processes_never_exceed_a_budget(url: str, database: Database) -> None:
    with database.transaction() as open_:
        key, _ = accounts.add_key(open_, "team", NOW, budget=5000)
    spawn = multiprocessing.get_context("spawn")
    workers = [spawn.Process(target=_spend, args=(url, key, worker, None)) for worker in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(120)
        assert worker.exitcode == 0
    with database.transaction() as open_:
        spent, reserved = budgets.account(open_, key, NOW)
        assert spent + reserved <= 5000
        costs = open_.rows("SELECT coalesce(sum(cost), 0) FROM attempts WHERE settled_at IS NOT NULL")
        assert spent == int(costs[0][0])
        log.recover(open_, NOW + 60.0)
        spent, reserved = budgets.account(open_, key, NOW)
        assert reserved == 0
        assert spent <= 5000
        assert open_.rows("SELECT count(*) FROM decisions WHERE closed_at IS NULL") == [(0,)]


@pytest.mark.parametrize("short", [False, True])
def test_operations_committed_together_fail_alone(url: str, short: bool) -> None:
    store = Store(url)

    async def many() -> list[object]:
        def begin(i: int) -> object:
            return lambda open_: log.begin(open_, opened(f"d{i}"))

        def fail(i: int) -> object:  # a call of a decision that was never begun
            return lambda open_: log.attempt(open_, Attempt(f"a{i}", f"x{i}", "answer", "small", NOW, 1))

        jobs = [store.run((begin, fail)[i % 2](i), short=short, of=f"d{i}") for i in range(80)]  # type: ignore[arg-type]
        return await asyncio.gather(*jobs, return_exceptions=True)

    try:
        results = asyncio.run(many())
        assert sum(isinstance(one, Exception) for one in results) == 40
        ids = store.submit(lambda open_: open_.rows("SELECT count(*) FROM decisions")).result()
        assert ids == [(40,)]
    finally:
        store.close()


def test_threads_share_a_store(url: str) -> None:
    store = Store(url)
    with ThreadPoolExecutor(8) as pool:
        jobs = [
            pool.submit(lambda i=i: store.submit(lambda open_: log.begin(open_, opened(f"d{i}"))).result())
            for i in range(100)
        ]
        for job in jobs:
            job.result()
    assert store.submit(lambda open_: open_.rows("SELECT count(*) FROM decisions")).result() == [(100,)]
    store.close()


def test_a_store_outlives_its_server(server: Server) -> None:
    """Operations fail while PostgreSQL is dead and work again when it is back, without hands."""
    store = Store(server.url)
    try:
        server.kill()
        with pytest.raises(UpstreamError):
            store.submit(lambda open_: open_.rows("SELECT 1")).result(30)
        server.start()
        assert store.submit(lambda open_: open_.rows("SELECT 1")).result(30) == [(1,)]
    finally:
        store.close()


def test_an_unknown_scheme_and_an_unwritable_file_are_refused(tmp_path: object) -> None:
    with pytest.raises(UsageError, match="postgresql://"):
        connect("mysql://root:hunter2@localhost/x")
    with pytest.raises(UsageError) as refused:
        connect("mysql://root:hunter2@localhost/x")
    assert "hunter2" not in str(refused.value)
    with pytest.raises(UsageError, match="SQLite"):
        connect("/proc/nowhere/store.sqlite")


GROUP, EVERYBODY = (
    SharedBudget.named("group", "research", 900, "week"),
    SharedBudget.named("all", "", 2000, "month"),
)


def in_a_group(open_: Transaction, budget: int | None = None) -> Key:
    accounts.set_group(open_, "research", budget=GROUP.budget, period=GROUP.period)
    key, _ = accounts.add_key(open_, "team", NOW, budget=budget, group="research")
    return key


def test_a_level_that_refuses_is_named_and_nothing_stays_reserved_at_the_others(database: Database) -> None:
    with database.transaction() as open_:
        key = in_a_group(open_, 5000)
        profile = SharedBudget.named("profile", "frugal", 400, "day")
        levels = (profile, EVERYBODY)
        assert budgets.reserve(open_, key, "d1", 300, NOW, 60.0, levels) is None
        assert budgets.reserve(open_, key, "d1", 300, NOW, 60.0, levels) is None  # the same again
        for level in (key, GROUP, *levels):
            assert budgets.account(open_, level, NOW) == (0, 300)
        for shared, worst, name in (
            (levels, 101, "the profile frugal"),
            ((EVERYBODY,), 601, "the group research"),
            ((replace(EVERYBODY, budget=500),), 201, "all requests"),
        ):
            refused = budgets.reserve(open_, key, "d2", worst, NOW, 60.0, shared)
            assert isinstance(refused, Refusal)
            assert f"budget of {name}" in refused.message
        for level in (key, GROUP, *levels):
            assert budgets.account(open_, level, NOW) == (0, 300)
        other, _ = accounts.add_key(open_, "plain", NOW, budget=10)
        refused = budgets.reserve(open_, other, "d3", 11, NOW, 60.0, (EVERYBODY,))
        assert isinstance(refused, Refusal)
        assert "the key plain" in refused.message
        assert budgets.account(open_, EVERYBODY, NOW) == (0, 300)


def test_another_call_and_its_cost_count_at_every_level(database: Database) -> None:
    with database.transaction() as open_:
        key = in_a_group(open_)
        levels = (EVERYBODY,)
        assert budgets.reserve(open_, key, "d1", 300, NOW, 60.0, levels) is None
        budgets.charge(open_, "d1", 100)
        assert budgets.extend(open_, key, "d1", 800, levels) is None
        for level in (key, GROUP, EVERYBODY):
            assert budgets.account(open_, level, NOW) == (100, 800)
        refused = budgets.extend(open_, key, "d1", 801, levels)
        assert isinstance(refused, Refusal)
        assert "the group research" in refused.message
        for level in (key, GROUP, EVERYBODY):
            assert budgets.account(open_, level, NOW) == (100, 800)
        log.begin(open_, opened(key=key.id), [Attempt("a1", "d1", "answer", "small", NOW, 50)])
        log.settle(open_, Settlement("a1", Outcome("ok", 250), NOW))
        log.close(open_, "d1", NOW, status="ok")
        for level in (key, GROUP, EVERYBODY):
            assert budgets.account(open_, level, NOW) == (350, 0)
        cost, requests, recent, seconds = budgets.traffic(open_, EVERYBODY, NOW)
        assert (cost, requests, recent) == (350, 1, 1)
        assert seconds >= 0.0


def test_first_requests_are_no_forecast_of_a_month(database: Database) -> None:
    """A budget set after a day of other traffic counts its own time; a burst is spread over an hour."""
    begun = NOW - NOW % 3600.0
    with database.transaction() as open_:
        log.begin(open_, opened("old", at=begun - 80_000.0), [])
        log.close(open_, "old", begun - 80_000.0, status="ok")
        for i in range(30):
            one = opened(f"d{i}", at=begun + 1800.0 + i)
            assert budgets.reserve(open_, None, one.id, 1, one.at, 60.0, (EVERYBODY,)) is None
            log.begin(open_, one, [])
            log.close(open_, one.id, one.at, status="ok")
    for later, seconds in ((1840.0, 3720.0), (3600.0, 3720.0), (9000.0, 7200.0), (172_800.0, 82_800.0)):
        with database.transaction() as open_:
            _, _, recent, over = budgets.traffic(open_, EVERYBODY, begun + later)
            assert over == pytest.approx(seconds, abs=60.0)
            assert recent == (30 if later < 86_400.0 else 0)
            daily = replace(EVERYBODY, period="day")
            if later == 1840.0:
                assert budgets.traffic(open_, daily, begun + later)[3] == pytest.approx(120.0)


def test_requests_without_a_key_count_against_all(database: Database) -> None:
    with database.transaction() as open_:
        assert budgets.reserve(open_, None, "d1", 1500, NOW, 60.0, (EVERYBODY,)) is None
        assert isinstance(budgets.reserve(open_, None, "d2", 501, NOW, 60.0, (EVERYBODY,)), Refusal)
        assert budgets.left(open_, [EVERYBODY], NOW) == 500
        log.begin(open_, opened(), [Attempt("a1", "d1", "answer", "small", NOW, 50)])
        log.settle(open_, Settlement("a1", Outcome("ok", 70), NOW))
        log.close(open_, "d1", NOW, status="ok")
        assert budgets.left(open_, [EVERYBODY], NOW) == 1930


def test_keys_join_and_leave_groups(database: Database) -> None:
    with database.transaction() as open_:
        with pytest.raises(UsageError, match="pandora keys group"):
            accounts.add_key(open_, "lost", NOW, group="nowhere")
        key, secret = accounts.add_key(open_, "team", NOW)
        accounts.set_group(open_, "research", budget=900, period="week")
        accounts.join_group(open_, "team", "research")
        assert accounts.identify(open_, secret) == replace(key, group=GROUP)
        assert accounts.identify_with_budget(open_, secret, NOW)[1] == 900
        accounts.set_group(open_, "research", budget=None, period="week")
        assert accounts.identify_with_budget(open_, secret, NOW)[1] is None
        accounts.join_group(open_, "team", None)
        assert accounts.identify(open_, secret) == key


async def _spend_levels(url: str, keys: list[Key], levels: tuple[SharedBudget, ...], worker: int) -> None:
    """One worker of a host: many requests at once through `Store`, as a gateway makes them."""
    store, rng = Store(url), random.Random(worker)

    async def request(number: int) -> None:
        key, id_, worst = rng.choice(keys), f"{worker}-{number}", rng.randrange(1, 60)
        shared = levels if number % 3 else levels[1:]

        def begin(open_: Transaction) -> Refusal | None:
            refused = budgets.reserve(open_, key, id_, worst, NOW, 60.0, shared)
            if refused is None:
                row = opened(id_, key.id)
                log.begin(open_, row, [Attempt(id_, id_, "answer", "small", NOW, worst)])
            return refused

        taken = budgets.taking(key, NOW, shared)
        if await store.run(begin, short=True, of=id_, budgets=taken) is not None:
            return
        cost, more = rng.randrange(worst + 1), worst + rng.randrange(9)
        await store.run(
            lambda open_: budgets.extend(open_, key, id_, more, shared), short=True, of=id_, budgets=taken
        )
        last = Settlement(id_, Outcome("ok", cost), NOW)
        await store.run(lambda open_: log.close(open_, id_, NOW, status="ok", last=last), short=True, of=id_)

    for block in range(5):
        await asyncio.gather(*(request(12 * block + place) for place in range(12)))
    store.close()


def _worker_of_levels(url: str, keys: list[Key], levels: tuple[SharedBudget, ...], worker: int) -> None:
    asyncio.run(_spend_levels(url, keys, levels, worker))


def test_two_hosts_with_two_workers_never_exceed_any_level_and_lose_no_money(
    url: str, database: Database
) -> None:
    """Four processes, three keys, a group, a profile and all: every level is exact to the nanodollar."""
    profile = SharedBudget.named("profile", "frugal", 1500, "day")
    with database.transaction() as open_:
        accounts.set_group(open_, "research", budget=GROUP.budget, period=GROUP.period)
        keys = [
            accounts.add_key(open_, name, NOW, budget=budget, group=group)[0]
            for name, budget, group in (("a", 700, "research"), ("b", None, "research"), ("c", None, None))
        ]
    spawn = multiprocessing.get_context("spawn")
    levels = (profile, EVERYBODY)
    workers = [
        spawn.Process(target=_worker_of_levels, args=(url, keys, levels, worker)) for worker in range(4)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(120)
        assert worker.exitcode == 0
    with database.transaction() as open_:
        costs = dict(open_.rows("SELECT key, sum(cost) FROM decisions GROUP BY key"))
        spent = {str(level): budgets.account(open_, level, NOW) for level in (GROUP, *levels)}
        for key in keys:
            assert budgets.account(open_, key, NOW) == (int(costs.get(key.id, 0)), 0)
        total = sum(map(int, costs.values()))
        assert spent["all requests"] == (total, 0)
        assert spent["the group research"] == (
            int(costs.get(keys[0].id, 0)) + int(costs.get(keys[1].id, 0)),
            0,
        )
        for level in (GROUP, *levels):
            assert level.budget is not None
            assert spent[str(level)][0] <= level.budget
        assert total > 1000
        assert open_.rows("SELECT count(*) FROM budgets WHERE reserved <> 0") == [(0,)]
