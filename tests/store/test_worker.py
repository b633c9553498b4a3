"""The thread that commits: a failure stays with its operation, kept ones outlive a lost database."""

from __future__ import annotations

import asyncio
import select
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest
from benchmarks.bidding_partition import cables, can_partition

from pandora_router.errors import UpstreamError
from pandora_router.store import accounts, budgets, log
from pandora_router.store.database import Transaction, connect
from pandora_router.store.rows import Key
from pandora_router.store.worker import Store
from tests.store.databases import Server
from tests.store.test_laws import opened


def test_an_operation_that_fails_harms_no_other(tmp_path: Path) -> None:
    store = Store(str(tmp_path / "store.sqlite"))

    async def main() -> list[object]:
        def fail(open_: Transaction) -> None:
            log.begin(open_, opened("undone"))
            raise ValueError("no")

        work = [store.run(lambda open_, i=i: log.begin(open_, opened(f"d{i}"))) for i in range(20)]
        return await asyncio.gather(*work[:10], store.run(fail), *work[10:], return_exceptions=True)

    results = asyncio.run(main())
    assert [type(one) for one in results if one is not None] == [ValueError]
    found = store.submit(lambda open_: open_.rows("SELECT id FROM decisions")).result()
    assert {row[0] for row in found} == {f"d{i}" for i in range(20)}
    store.close()


def test_a_caller_that_was_cancelled_disturbs_nobody(tmp_path: Path) -> None:
    store = Store(str(tmp_path / "store.sqlite"))

    async def main() -> None:
        waiting = asyncio.ensure_future(store.run(lambda open_: log.begin(open_, opened("d1"))))
        await asyncio.sleep(0)
        waiting.cancel()
        await store.run(lambda open_: log.begin(open_, opened("d2")))

    asyncio.run(main())
    found = store.submit(lambda open_: open_.rows("SELECT id FROM decisions ORDER BY id")).result()
    assert found == [("d1",), ("d2",)]
    store.close()


def _closed(store: Store) -> bool:
    try:
        return bool(
            store.submit(lambda open_: open_.rows("SELECT 1 FROM decisions WHERE status <> 'open'")).result()
        )
    except UpstreamError:
        return False


def test_kept_operations_wait_for_a_database_that_is_gone(server: Server, url: str) -> None:
    if not url.startswith("postgresql"):
        pytest.skip("an embedded database does not go away")
    store = Store(url)
    store.submit(lambda open_: log.begin(open_, opened("d1"))).result()
    server.kill()
    try:
        lost = store.submit(lambda open_: log.begin(open_, opened("d2")))
        store.keep(lambda open_: log.close(open_, "d1", 1.0, status="ok"))
        with pytest.raises(UpstreamError):
            lost.result(120)
        close = store.run(lambda open_: log.close(open_, "d1", 2.0, status="error"), kept=True)
        with pytest.raises(UpstreamError):  # whoever waits is told, and the operation is kept all the same
            asyncio.run(close)
    finally:
        server.start()
    until = time.monotonic() + 120
    while time.monotonic() < until and not _closed(store):
        time.sleep(0.05)
    rows = store.submit(lambda open_: open_.rows("SELECT id, status FROM decisions")).result(120)
    assert rows == [("d1", "ok")]
    store.close()


def test_processes_that_commit_many_keys_together_do_not_block_each_other(url: str) -> None:
    stores = [Store(url) for _ in range(2)]
    names = [f"team {i}" for i in range(5)]
    keys = [
        stores[0].submit(lambda open_, n=name: accounts.add_key(open_, n, 0.0)).result() for name in names
    ]

    def begin(open_: Transaction, id_: str, key: Key) -> None:
        budgets.reserve(open_, key, id_, 10, 0.0, 60.0)
        log.begin(open_, opened(id_, key.id))

    begun = []
    for i in range(200):
        for number, store in enumerate(stores):
            id_, key = f"{number} {i}", keys[(i if number else -i) % len(keys)][0]
            begun.append(store.submit(lambda open_, id_=id_, key=key: begin(open_, id_, key)))
            store.keep(lambda open_, id_=id_: log.close(open_, id_, 1.0, status="ok"))
    assert [future.exception(120) for future in begun] == [None] * len(begun)
    for store in stores:
        store.close()
    database = connect(url)
    with database.transaction() as open_:
        assert open_.rows("SELECT count(*) FROM decisions WHERE closed_at IS NOT NULL") == [(400,)]
        assert open_.rows("SELECT sum(reserved) FROM budgets") == [(0,)]
    database.close()


def test_processes_that_start_together_find_one_schema(url: str) -> None:
    with ThreadPoolExecutor(6) as threads:
        starting = [threads.submit(Store, url) for _ in range(6)]
        for future in starting:
            future.result(120).close()


def _forward(listening: socket.socket, port: int) -> None:
    """Pass one connection on to a port of this host, until either end closes it."""
    client, _ = listening.accept()
    with suppress(OSError), client, socket.create_connection(("127.0.0.1", port)) as server:
        while ready := select.select([client, server], [], [])[0]:
            for end in ready:
                data = end.recv(2**16)
                if not data:
                    return
                (server if end is client else client).sendall(data)


@pytest.mark.skipif(not can_partition(), reason="network namespaces need Linux, root and ip")
def test_a_database_that_vanishes_from_the_network_is_given_up(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pandora_router.store.database.SILENT_SECONDS", 2.0)
    with cables(1) as net, net.socket(0) as listening:
        host, port = listening.getsockname()
        threading.Thread(target=_forward, args=(listening, server.port), daemon=True).start()
        database = connect(f"postgresql://pandora@{host}:{port}/postgres")
        with database.transaction() as open_:
            assert open_.rows("SELECT 1") == [(1,)]
        net.cut(0)
        begun = time.monotonic()
        with pytest.raises(UpstreamError), database.transaction() as open_:
            open_.rows("SELECT 1")
        assert time.monotonic() - begun < 60.0
        net.mend(0)
        database.close()
