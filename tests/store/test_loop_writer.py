"""Short operations on the thread of an event loop: in order, never behind a lock, none lost."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from pandora_router.store import log, loop_writer
from pandora_router.store.database import Transaction
from pandora_router.store.worker import Store
from tests.store.test_laws import opened


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.sqlite"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    with closing(Store(str(path))) as made:
        yield made


def ids(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as reader:
        return [row[0] for row in reader.execute("SELECT id FROM decisions ORDER BY rowid")]


async def begin(store: Store, id_: str) -> None:
    await store.run(lambda open_: log.begin(open_, opened(id_)), short=True)


def where(_: Transaction) -> int:
    return threading.get_ident()


def test_short_operations_run_on_the_thread_of_their_loop_and_others_do_not(store: Store) -> None:
    async def main() -> tuple[int, int]:
        return await store.run(where, short=True), await store.run(where)

    short, other = asyncio.run(main())
    assert short == threading.get_ident() != other
    assert asyncio.run(main())[0] == threading.get_ident()  # on the next loop as well


def test_what_was_committed_is_readable_by_others_at_once(store: Store, path: Path) -> None:
    async def main() -> list[str]:
        await begin(store, "d1")
        return ids(path)

    assert asyncio.run(main()) == ["d1"]


def test_a_lock_of_another_process_does_not_hold_up_the_loop(store: Store, path: Path) -> None:
    async def main() -> int:
        await begin(store, "d0")
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            waiting = [asyncio.ensure_future(begin(store, f"d{i}")) for i in range(1, 6)]
            for _ in range(20):  # the loop runs on while the lock is held
                await asyncio.sleep(0.001)
            waiting += [asyncio.ensure_future(begin(store, f"d{i}")) for i in range(6, 10)]
            await asyncio.sleep(0.001)
            done = sum(one.done() for one in waiting)
            other.execute("COMMIT")
        await asyncio.gather(*waiting)
        assert await store.run(where, short=True) == threading.get_ident()
        return done

    assert asyncio.run(main()) == 0
    assert ids(path) == [f"d{i}" for i in range(10)]


def test_a_failure_stays_with_its_operation(store: Store, path: Path) -> None:
    def fail(open_: Transaction) -> None:
        log.begin(open_, opened("undone"))
        raise ValueError("no")

    async def main() -> list[object]:
        work = [begin(store, f"d{i}") for i in range(6)]
        failing = store.run(fail, short=True)
        return await asyncio.gather(*work[:3], failing, *work[3:], return_exceptions=True)

    results = asyncio.run(main())
    assert [type(result) for result in results if result is not None] == [ValueError]
    assert ids(path) == [f"d{i}" for i in range(6)]


def test_closing_comes_after_a_beginning_whose_caller_was_cancelled(store: Store, path: Path) -> None:
    async def main() -> None:
        for lock in (False, True):
            other = sqlite3.connect(path, isolation_level=None)
            if lock:
                other.execute("BEGIN IMMEDIATE")
            beginning = asyncio.ensure_future(begin(store, f"locked {lock}"))
            await asyncio.sleep(0)
            beginning.cancel()
            store.keep(
                lambda open_, id_=f"locked {lock}": log.close(open_, id_, 1.0, status="ok"), short=True
            )
            await asyncio.sleep(0)
            if lock:
                other.execute("COMMIT")
            other.close()
        await begin(store, "last")

    asyncio.run(main())
    with closing(sqlite3.connect(path)) as reader:
        rows = reader.execute("SELECT id, status FROM decisions ORDER BY rowid").fetchall()
    assert rows == [("locked False", "ok"), ("locked True", "ok"), ("last", "open")]


def test_what_waits_when_the_loop_ends_is_committed_by_the_thread(path: Path) -> None:
    store = Store(str(path))

    async def main() -> None:
        await begin(store, "d1")
        store.keep(lambda open_: log.close(open_, "d1", 1.0, status="ok"), short=True)

    asyncio.run(main())
    store.close()
    with closing(sqlite3.connect(path)) as reader:
        assert reader.execute("SELECT status FROM decisions").fetchall() == [("ok",)]


def test_the_log_of_writes_is_checkpointed(store: Store, path: Path) -> None:
    async def main() -> None:
        for start in range(0, 3000, 10):
            await asyncio.gather(*(begin(store, f"d{i:05}") for i in range(start, start + 10)))

    asyncio.run(main())
    assert len(ids(path)) == 3000
    assert path.with_name(path.name + "-wal").stat().st_size < 3 * 1000 * 4096


def test_after_a_slow_commit_the_thread_takes_over(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_writer, "SLOW", -1.0)

    async def main() -> list[bool]:
        return [await store.run(where, short=True) == threading.get_ident() for _ in range(3)]

    assert asyncio.run(main()) == [True, False, False]
