"""The asynchronous edge of the store: one thread per process that commits many operations together.

An operation is a function of an open transaction. Operations that arrive while a commit is under way are
collected and committed with the next one, each within a savepoint, so one that fails harms no other. A
caller resumes only after its operation is on disk. If the database goes away, the operations of that
commit fail with `UpstreamError`; later ones try again.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from pandora_router.errors import UpstreamError
from pandora_router.store.database import Database, Transaction, connect
from pandora_router.store.migrations import migrate

T = TypeVar("T")
Operation = Callable[[Transaction], Any]
TOGETHER = 256
"""At most this many operations are committed together."""


class Store:
    """A store that event loops share; make it after a fork, since a thread does not survive one."""

    def __init__(self, url: str) -> None:
        """Open the database at `url`, bring its schema up to date and start the thread."""
        self._url = url
        self._waiting: queue.SimpleQueue[tuple[Operation, Future[Any]] | None] = queue.SimpleQueue()
        started: Future[None] = Future()
        self._thread = threading.Thread(target=self._serve, args=(started,), name="store", daemon=True)
        self._thread.start()
        started.result()

    async def run(self, operation: Callable[[Transaction], T]) -> T:
        """Run an operation and return its result once it is committed. Cancelling does not undo it."""
        return await asyncio.shield(asyncio.wrap_future(self.submit(operation)))

    def submit(self, operation: Callable[[Transaction], T]) -> Future[T]:
        """Queue an operation without waiting; the future has its result once it is committed."""
        done: Future[T] = Future()
        self._waiting.put((operation, done))
        return done

    def close(self) -> None:
        """Commit what is queued and stop the thread."""
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
            _commit(database, batch)
        database.close()

    def _next(self) -> list[tuple[Operation, Future[Any]]] | None:
        """Wait for an operation and take what else is queued; None when the store is closed."""
        first = self._waiting.get()
        if first is None:
            return None
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
        return batch


def _commit(database: Database, batch: list[tuple[Operation, Future[Any]]]) -> None:
    results: list[Callable[[], None]] = []
    try:
        with database.transaction() as open_:
            for operation, done in batch:
                results.append(_perform(database, open_, operation, done))
    except Exception as error:
        for _, done in batch:
            done.set_exception(error if isinstance(error, UpstreamError) else _wrapped(error))
        return
    for say in results:
        say()


def _perform(
    database: Database, open_: Transaction, operation: Operation, done: Future[Any]
) -> Callable[[], None]:
    """Run one operation in a savepoint; return what tells its caller after the commit."""
    try:
        with database.part(open_):
            value = operation(open_)
    except UpstreamError:
        raise  # the connection is gone: nothing of this commit is kept
    except Exception as error:
        failure = error
        return lambda: done.set_exception(failure)
    return lambda: done.set_result(value)


def _wrapped(error: Exception) -> UpstreamError:
    failure = UpstreamError(f"the store did not answer ({type(error).__name__})")
    failure.__cause__ = error
    return failure
