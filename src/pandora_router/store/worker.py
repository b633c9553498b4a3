"""The asynchronous interface of the store: one thread per process, with group commit.

An operation is a function of an open transaction. It must have no other side effects, because it may be run
more than once. Operations that arrive during a commit are collected and committed together afterwards. They
are first run one after another; if one fails, the transaction is rolled back and they are run again, each in
its own savepoint, so that the others succeed. A caller gets its result only after the commit. Under load a
commit waits `GATHER` seconds for more operations. If the connection to the database fails, all operations of
the commit fail with `UpstreamError`; those that are `kept` are also retried until the database is back. A
database server that has gone away may be restarting: for `PATIENCE` seconds operations wait for it.

Operations that are `short` are committed from the thread of their event loop instead: by `loop_writer` if the
database is SQLite, by `pipeline_writer` if it is PostgreSQL.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import queue
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from pandora_router.errors import UpstreamError
from pandora_router.store.database import Database, Transaction, connect, connect_without_waiting, no_room
from pandora_router.store.loop_writer import GATHER, Job, LoopWriter, Operation
from pandora_router.store.migrations import migrate
from pandora_router.store.pipeline_writer import PipelineWriter

T = TypeVar("T")
logger = logging.getLogger("pandora_router.store")
TOGETHER = 256
"""At most this many operations are committed together."""
KEPT = 100_000
"""At most this many kept operations wait for an unreachable database; beyond that the oldest are dropped."""
PATIENCE = 5.0
"""Seconds for which operations wait for a database server that has gone away, for it may be restarting."""
PAUSE = 0.2
"""Seconds between two attempts to reach an unreachable database."""
LAST = 30.0
"""Seconds for which `close` waits for an unreachable database."""


Said = tuple[Job, Any, BaseException | None]


class Store:
    """A store that several event loops can use. Create it after a fork: threads do not survive a fork."""

    def __init__(self, url: str) -> None:
        """Open the database at `url`, bring its schema up to date and start the thread."""
        self._url = url
        self._waiting: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._kept: deque[Job] = deque(maxlen=KEPT)
        self._many = False
        self._failing_since: float | None = None
        self._near: LoopWriter | PipelineWriter | None = None
        started: Future[None] = Future()
        self._thread = threading.Thread(target=self._serve, args=(started,), name="store", daemon=True)
        self._thread.start()
        started.result()

    async def run(
        self,
        operation: Callable[[Transaction], T],
        *,
        kept: bool = False,
        short: bool = False,
        of: str = "",
        budgets: tuple[tuple[str, str], ...] = (),
    ) -> T:
        """Run an operation and return its result after the commit. Cancellation does not undo it.

        Raises `UpstreamError` if the database is unreachable. If `kept` is true, the operation is still
        retried until the database is back, so it must be idempotent. `short`: the operation is idempotent and
        reads and writes a few rows by their keys. Short operations `of` one decision are committed in the
        order of their calls, and so are all that are not short, but a short one may overtake another.
        `budgets` must be given by a short one that takes from a budget or a rate (`budgets.taking`).
        """
        loop = asyncio.get_running_loop()
        done: asyncio.Future[T] = loop.create_future()
        job = Job(operation, loop, done, kept, short, of, budgets)
        near = self._writer(loop) if short and not self._kept else None  # after those that are kept
        if near is None:
            self._waiting.put(job)
        else:
            near.add(job)
        return await done

    def submit(self, operation: Callable[[Transaction], T]) -> Future[T]:
        """Queue an operation and return a future, which gets the result after the commit."""
        done: Future[T] = Future()
        self._waiting.put(Job(operation, None, done))
        return done

    def keep(self, operation: Operation, *, short: bool = False, of: str = "") -> None:
        """Queue an operation whose result is not needed; it is retried, so it must be idempotent.

        `short` and `of` as in `run`: an operation that has to come after a short one is short as well.
        """
        job = Job(operation, None, None, kept=True, again=True, of=of)
        near = self._near if short and not self._kept else None
        if near is not None and near.thread == threading.get_ident() and not near.loop.is_closed():
            near.add(job)
        else:
            self._waiting.put(job)

    def close(self) -> None:
        """Commit what is queued and stop the thread; kept operations are dropped after `LAST` seconds."""
        if self._near is not None:
            self._hand_over(self._near.take())
        self._waiting.put(None)
        self._thread.join()
        if self._near is not None:
            self._near.close()

    def _writer(self, loop: asyncio.AbstractEventLoop) -> LoopWriter | PipelineWriter | None:
        """The writer of an event loop; None if another loop has it, or for PostgreSQL on Windows."""
        if self._near is None or (self._near.loop is not loop and self._near.loop.is_closed()):
            if self._near is not None:
                self._hand_over(self._near.take())
                self._near.close()
            database = connect_without_waiting(self._url)
            if database is not None:
                self._near = LoopWriter(database, self._hand_over)
            elif sys.platform != "win32":  # its event loop cannot watch the socket of a driver
                self._near = PipelineWriter(self._url, self._hand_over)
            else:
                return None
        return self._near if self._near.loop is loop else None

    def _hand_over(self, jobs: Sequence[Job]) -> None:
        for job in jobs:
            self._waiting.put(job)

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
        """Wait for an operation and return all that are queued; None if the store is closed."""
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
        """Retry kept operations; wait `PAUSE` seconds if the database is still unreachable."""
        before = len(self._kept)
        self._commit(database, [])
        if len(self._kept) >= before:
            time.sleep(PAUSE)

    def _commit(self, database: Database, batch: list[Job]) -> None:
        """Commit kept operations and then those of `batch`, which may depend on them, in this order.

        If a file cannot take the kept ones (its disk is full), the others are tried without them: what only
        reads succeeds.
        """
        failure: UpstreamError | None = None
        while failure is None and self._kept:
            failure = self._committed(database, [self._kept.popleft() for _ in self._first()])
        if failure is not None and not database.restarts:
            self._kept.extend(job for job in batch if job.kept)
            _tell([(job, None, failure) for job in batch if job.kept])
            batch, failure = [job for job in batch if not job.kept], None
        if failure is None and batch:
            self._committed(database, batch)
        elif failure is not None:
            self._kept.extend(job for job in batch if job.kept)
            _tell([(job, None, failure) for job in batch])

    def _first(self) -> range:
        return range(min(len(self._kept), TOGETHER))

    def _committed(self, database: Database, together: list[Job]) -> UpstreamError | None:
        """Commit operations in one transaction and tell their callers; returns why the database failed.

        If it did, those that are kept wait for the next attempt, before all others.
        """
        failure: UpstreamError | None = None
        outcomes: list[Said] = []
        while together:
            try:
                outcomes += _performed(database, together)
                self._works()
                failure = None
                break
            except Exception as error:
                failure = error if isinstance(error, UpstreamError) else _wrapped(error)
                waits = self._may_return(failure, database)
                lost = [job for job in together if not waits or (database.uncertain and not job.again)]
                together = [job for job in together if waits and (job.again or not database.uncertain)]
                self._kept.extendleft(reversed([job for job in lost if job.kept]))
                outcomes += [(job, None, failure) for job in lost]
                time.sleep(PAUSE / 4 if together else 0.0)
        _tell(outcomes)
        return failure

    def _works(self) -> None:
        """Note that the database has committed; says so if it had failed and nothing is kept for it."""
        if self._failing_since is not None and not self._kept:
            logger.warning("the store works again after %.0f s", time.monotonic() - self._failing_since)
            self._failing_since = None

    def _may_return(self, failure: UpstreamError, database: Database) -> bool:
        """Note that the database failed; whether to wait for it: a server may be restarting."""
        now = time.monotonic()
        if self._failing_since is None:
            self._failing_since = now
            logger.error("%s; operations wait or fail until it is back", failure)
        return database.restarts and now < self._failing_since + PATIENCE


def _performed(database: Database, jobs: list[Job]) -> list[Said]:
    """Run all operations in one transaction; raises `UpstreamError`, or the error of the commit."""
    if not jobs:
        return []
    try:
        with database.transaction() as open_:
            return [(job, job.operation(open_), None) for job in jobs]
    except UpstreamError:
        raise  # the connection failed, or the disk is full: nothing of this transaction was committed
    except Exception:
        with database.transaction() as open_:
            return [_in_part(database, open_, job) for job in jobs]


def _in_part(database: Database, open_: Transaction, job: Job) -> Said:
    """Run one operation in a savepoint; its error is returned, for its caller."""
    try:
        with database.part(open_):
            return job, job.operation(open_), None
    except UpstreamError:
        raise
    except Exception as error:
        if no_room(error) is not None:
            raise
        return job, None, error


def _tell(outcomes: list[Said]) -> None:
    """Set the result of every job, with one wake-up per event loop."""
    loops: dict[asyncio.AbstractEventLoop, list[Said]] = {}
    for said in outcomes:
        if said[0].done is None:
            continue
        if said[0].loop is None:
            _resolve([said])
        else:
            loops.setdefault(said[0].loop, []).append(said)
    for loop, results in loops.items():
        with contextlib.suppress(RuntimeError):  # the event loop is closed, so nobody waits any more
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


class Reader:
    """Runs queries one at a time, each in a read-only transaction with a timeout of `seconds`.

    Connects to the database at `url` at the first query; `Store` must have created the schema. After a failed
    connection the next query connects again.
    """

    def __init__(self, url: str, seconds: float = 5.0) -> None:
        self._url = url
        self._seconds = seconds
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="reader")
        self._database: Database | None = None

    async def run(self, query: Callable[[Transaction], T]) -> T:
        """Run a query; raises `UpstreamError` if the database does not answer in time."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, self._run, query)

    def _run(self, query: Callable[[Transaction], T]) -> T:
        if self._database is None:
            self._database = connect(self._url)
        with self._database.reading(self._seconds) as open_:
            return query(open_)

    def close(self) -> None:
        """Close the connection and stop the thread."""
        self._pool.submit(self._close).result()
        self._pool.shutdown()

    def _close(self) -> None:
        if self._database is not None:
            self._database.close()
            self._database = None
