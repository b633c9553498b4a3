"""The asynchronous edge of the store: one thread per process that commits many operations together.

An operation is a function of an open transaction, free of other effects: it may be run again. Operations that
arrive while a commit is under way are collected and committed with the next one. They are first run straight
after each other; if one fails, all is undone and they are run again, each within a savepoint, so one that
fails harms no other. A caller resumes only after its operation is on disk, and all callers of a commit are
woken together. While many operations arrive, a commit waits `GATHER` seconds for others to join. If the
database goes away, the operations of that commit fail with `UpstreamError`, but those that are `kept` are
tried again until it is back.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, TypeVar

from pandora_router.errors import UpstreamError
from pandora_router.store.database import Database, Transaction, connect
from pandora_router.store.migrations import migrate

T = TypeVar("T")
Operation = Callable[[Transaction], Any]
TOGETHER = 256
"""At most this many operations are committed together."""
GATHER = 0.001
"""Seconds that a commit waits for more operations, if the one before had several."""
KEPT = 100_000
"""At most this many operations wait for a database that is gone; more are given up, the oldest first."""
PAUSE = 0.2
"""Seconds between two tries to reach a database that is gone."""
LAST = 30.0
"""Seconds for which `close` waits for such a database."""


@dataclass(frozen=True, eq=False)
class Job:
    """An operation and who waits for it: a future of an event loop, one of threads, or nobody (None)."""

    operation: Operation
    loop: asyncio.AbstractEventLoop | None
    done: Any
    kept: bool = False


Said = tuple[Job, Any, BaseException | None]


class Store:
    """A store that event loops share; make it after a fork, since a thread does not survive one."""

    def __init__(self, url: str) -> None:
        """Open the database at `url`, bring its schema up to date and start the thread."""
        self._url = url
        self._waiting: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._kept: deque[Job] = deque(maxlen=KEPT)
        self._many = False
        started: Future[None] = Future()
        self._thread = threading.Thread(target=self._serve, args=(started,), name="store", daemon=True)
        self._thread.start()
        started.result()

    async def run(self, operation: Callable[[Transaction], T], *, kept: bool = False) -> T:
        """Run an operation and return its result once it is committed. Cancelling does not undo it.

        Raises `UpstreamError` if the database goes away. An operation that is `kept` is nevertheless tried
        again until it is back; it must be idempotent.
        """
        loop = asyncio.get_running_loop()
        done: asyncio.Future[T] = loop.create_future()
        self._waiting.put(Job(operation, loop, done, kept))
        return await done

    def submit(self, operation: Callable[[Transaction], T]) -> Future[T]:
        """Queue an operation without waiting; the future has its result once it is committed."""
        done: Future[T] = Future()
        self._waiting.put(Job(operation, None, done))
        return done

    def keep(self, operation: Operation) -> None:
        """Queue an operation for whose result nobody waits; it is kept, so it must be idempotent."""
        self._waiting.put(Job(operation, None, None, kept=True))

    def close(self) -> None:
        """Commit what is queued and stop the thread; kept operations are given up after `LAST` seconds."""
        self._waiting.put(None)
        self._thread.join()

    def _serve(self, started: Future[None]) -> None:
        try:
            database = connect(self._url)
            migrate(database)
        except BaseException as error:
            started.set_exception(error)
            return
        started.set_result(None)
        while (batch := self._next()) is not None:
            self._commit(database, batch)
        until = time.monotonic() + LAST
        while self._kept and time.monotonic() < until:
            self._again(database)
        database.close()

    def _next(self) -> list[Job] | None:
        """Wait for an operation and take what else is queued; None when the store is closed."""
        try:
            first = self._waiting.get(timeout=PAUSE if self._kept else None)
        except queue.Empty:
            return []
        if first is None:
            return None
        if self._many:
            time.sleep(GATHER)
        batch = [first]
        while len(batch) < TOGETHER:
            try:
                more = self._waiting.get_nowait()
            except queue.Empty:
                break
            if more is None:
                self._waiting.put(None)
                break
            batch.append(more)
        self._many = len(batch) > 1
        return batch

    def _again(self, database: Database) -> None:
        """Try kept operations once more; waits a little if the database is still away."""
        before = len(self._kept)
        self._commit(database, [])
        if len(self._kept) >= before:
            time.sleep(PAUSE)

    def _commit(self, database: Database, batch: list[Job]) -> None:
        """Commit kept operations and a batch, the kept ones first, since they are older."""
        together = [*(self._kept.popleft() for _ in range(min(len(self._kept), TOGETHER))), *batch]
        try:
            outcomes = _performed(database, together)
        except Exception as error:
            failure = error if isinstance(error, UpstreamError) else _wrapped(error)
            self._kept.extendleft(reversed([job for job in together if job.kept]))
            outcomes = [(job, None, failure) for job in together]
        _tell(outcomes)


def _performed(database: Database, jobs: list[Job]) -> list[Said]:
    """Run all operations in one transaction; raises `UpstreamError`, or what went wrong with the commit."""
    if not jobs:
        return []
    try:
        with database.transaction() as open_:
            return [(job, job.operation(open_), None) for job in jobs]
    except UpstreamError:
        raise  # the connection is gone: nothing of this commit is kept
    except Exception:
        with database.transaction() as open_:
            return [_in_part(database, open_, job) for job in jobs]


def _in_part(database: Database, open_: Transaction, job: Job) -> Said:
    """Run one operation in a savepoint; its failure is told to its caller after the commit."""
    try:
        with database.part(open_):
            return job, job.operation(open_), None
    except UpstreamError:
        raise
    except Exception as error:
        return job, None, error


def _tell(outcomes: list[Said]) -> None:
    """Give every caller its result, with one wake-up for each event loop."""
    loops: dict[asyncio.AbstractEventLoop, list[Said]] = {}
    for said in outcomes:
        if said[0].done is None:
            continue
        if said[0].loop is None:
            _resolve([said])
        else:
            loops.setdefault(said[0].loop, []).append(said)
    for loop, results in loops.items():
        with contextlib.suppress(RuntimeError):  # the loop has ended, and with it whoever waited
            loop.call_soon_threadsafe(_resolve, results)


def _resolve(outcomes: list[Said]) -> None:
    for job, value, error in outcomes:
        if job.done.done():
            continue  # its caller was cancelled
        if error is None:
            job.done.set_result(value)
        else:
            job.done.set_exception(error)


def _wrapped(error: Exception) -> UpstreamError:
    failure = UpstreamError(f"the store did not answer ({type(error).__name__})")
    failure.__cause__ = error
    return failure
