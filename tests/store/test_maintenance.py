"""Chores are done by one process at a time; retention deletes old decisions and keeps their sums."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

from pandora_router.store import accounts, auctions, budgets, log, maintenance
from pandora_router.store.database import Transaction, connect
from pandora_router.store.worker import Store
from tests.store.test_laws import opened


def test_of_several_workers_exactly_one_is_told(url: str) -> None:
    Store(url).close()

    together = threading.Barrier(4, timeout=60)

    def worker(_: int) -> int:
        database = connect(url)
        told = 0
        for now in range(20):
            together.wait()
            with database.transaction() as open_:
                told += maintenance.due(open_, "sweep", float(now), 1.0)
        database.close()
        return told

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(worker, range(4))) == 20
    database = connect(url)
    with database.transaction() as open_:
        assert not maintenance.due(open_, "sweep", 19.5, 1.0)
        assert maintenance.due(open_, "sweep", 20.5, 1.0)
        assert maintenance.due(open_, "another", 0.0, 1.0)
    database.close()


def test_old_decisions_go_and_their_sums_stay(url: str) -> None:
    store, day = Store(url), maintenance.DAY
    for id_, at in (("old", 1.0), ("new", 10 * day)):
        store.submit(lambda open_, id_=id_, at=at: log.begin(open_, opened(id_, at=at))).result()
        store.submit(lambda open_, id_=id_, at=at: log.close(open_, id_, at, status="ok")).result()
    now = 12 * day
    assert store.submit(lambda open_: maintenance.prune(open_, now, 5.0, 60.0)).result() == 1
    assert store.submit(lambda open_: maintenance.prune(open_, now, 5.0, 60.0)).result() == 0
    assert store.submit(lambda open_: open_.rows("SELECT id FROM decisions")).result() == [("new",)]
    assert store.submit(lambda open_: open_.rows("SELECT sum(requests) FROM minutes")).result() == [(2,)]
    store.close()


def test_many_old_decisions_go_in_blocks_between_which_others_are_served(url: str) -> None:
    store = Store(url)

    def write(open_: Transaction) -> None:
        key, _ = accounts.add_key(open_, "team", 0.0)
        for i in range(2 * log.BLOCK + 5):
            budgets.reserve(open_, key, f"d{i}", 1, 0.0, 60.0)
            log.begin(open_, opened(f"d{i}", key.id, at=float(i)), prompt="hi")
            log.close(open_, f"d{i}", float(i), status="ok")

    store.submit(write).result()
    now = 12 * maintenance.DAY
    deleted = [
        store.submit(lambda open_: maintenance.prune(open_, now, 5.0, 60.0)).result() for _ in range(4)
    ]
    assert deleted == [log.BLOCK, log.BLOCK, 5, 0]
    for table in ("decisions", "bodies", "leases"):
        assert store.submit(lambda open_, t=table: open_.rows(f"SELECT count(*) FROM {t}")).result() == [(0,)]
    store.close()


def test_many_old_auctions_go_in_blocks_between_which_others_are_served(url: str) -> None:
    store = Store(url)

    def write(open_: Transaction) -> None:
        call = auctions.AskedRow("near", 0, 0.5, "bid", 0.6, 1, 0.0, 0.01, None)
        for i in range(2 * auctions.BLOCK + 5):
            row = auctions.AuctionRow(
                f"a{i}", float(i), "sequential", "", "awarded", 0, "near", 0.5, 0.6, None
            )
            auctions.award(open_, row, [call], float(i))
            auctions.deliver(open_, f"a{i}", 0)

    store.submit(write).result()
    now = 12 * maintenance.DAY
    deleted = [
        store.submit(lambda open_: maintenance.prune(open_, now, 5.0, 60.0)).result() for _ in range(4)
    ]
    assert deleted == [auctions.BLOCK, auctions.BLOCK, 5, 0]
    for table in ("market_auctions", "market_calls", "market_entries"):
        assert store.submit(lambda open_, t=table: open_.rows(f"SELECT count(*) FROM {t}")).result() == [(0,)]
    balances = store.submit(auctions.balances).result()
    paid = 0.5 * (2 * auctions.BLOCK + 5)
    assert balances == {"bidder near": -paid, "platform": paid}
    store.close()
