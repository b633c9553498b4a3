"""Short operations committed on the thread of an event loop, for SQLite.

A commit of SQLite with a write-ahead log appends to a file in the page cache, which takes less time than to
hand it to another thread and back. What could hold up the event loop does not happen on its thread:

- a lock of another connection: the writer does not wait for it, and hands its operations to the thread;
- a checkpoint, which syncs files: this connection makes none. After `CHECKPOINT` commits the operations go to
  the thread once, whose commit makes the checkpoint;
- a slow disk: after a commit of more than `SLOW` seconds the thread is used for `PAUSE` seconds;
- an operation that fails: all of its commit go to the thread, which separates them.

Operations are committed in the order in which they came: while some are with the thread, later ones wait.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pandora_router.store.database import Database, Transaction

Operation = Callable[[Transaction], Any]
GATHER = 0.001
"""Seconds that a commit waits for more operations, if the one before had several."""
CHECKPOINT = 64
"""Every commit of this number is made by the thread. One writes about 15 pages; a checkpoint needs 1,000."""
SLOW = 0.02
"""Seconds of a commit after which the disk counts as slow."""
PAUSE = 1.0
"""Seconds for which the thread is used after a slow commit."""


@dataclass(frozen=True, eq=False)
class Job:
    """An operation and the future that gets its result.

    loop: the event loop of an asyncio future; None for a concurrent future.
    done: the future; None if nobody waits for the result.
    kept: retry the operation until the database is reachable again.
    again: the operation is idempotent: it may be run again although it may have been committed.
    of: the decision whose operations are committed in the order of their calls; "" if it has none.
    budgets: account and period of each budget that the operation takes from, if it does, or counts against a
        rate of.
    """

    operation: Operation
    loop: asyncio.AbstractEventLoop | None
    done: Any
    kept: bool = False
    again: bool = False
    of: str = ""
    budgets: tuple[tuple[str, str], ...] = ()


class LoopWriter:
    """Commits operations on the thread of the running event loop.

    `database` does not wait for locks and makes no checkpoints. `hand_over` queues jobs for the thread.
    """

    def __init__(self, database: Database, hand_over: Callable[[Sequence[Job]], None]) -> None:
        self.loop = asyncio.get_running_loop()
        self.thread = threading.get_ident()
        self._database = database
        self._hand_over = hand_over
        self._waiting: list[Job] = []
        self._scheduled = False
        self._many = False
        self._commits = 0
        self._away = False
        self._not_before = 0.0

    def add(self, job: Job) -> None:
        """Commit an operation soon."""
        self._waiting.append(job)
        if not self._scheduled and not self._away:
            self._scheduled = True
            if self._many:
                self.loop.call_later(GATHER, self._commit)
            else:
                self.loop.call_soon(self._commit)

    def take(self) -> list[Job]:
        """The operations that wait, which are now the caller's to commit; for the end of the loop."""
        waiting, self._waiting = self._waiting, []
        return waiting

    def close(self) -> None:
        """Close the connection."""
        self._database.close()

    def _commit(self) -> None:
        self._scheduled = False
        jobs = self.take()
        if not jobs:
            return
        self._many = len(jobs) > 1
        self._commits += 1
        begun = self.loop.time()
        if self._commits % CHECKPOINT == 0 or begun < self._not_before:
            self._send_away(jobs)
            return
        try:
            with self._database.transaction() as open_:
                values = [job.operation(open_) for job in jobs]
        except Exception:  # nothing was committed: the thread waits for locks, and finds whose error it is
            self._send_away(jobs)
            return
        for job, value in zip(jobs, values, strict=True):
            if job.done is not None and not job.done.done():
                job.done.set_result(value)
        ended = self.loop.time()
        if ended - begun > SLOW:
            self._not_before = ended + PAUSE

    def _send_away(self, jobs: Sequence[Job]) -> None:
        """Give operations to the thread; those that come later wait until it has committed them."""
        self._away = True
        done: asyncio.Future[None] = self.loop.create_future()
        done.add_done_callback(self._back)
        self._hand_over([*jobs, Job(nothing, self.loop, done)])

    def _back(self, done: asyncio.Future[None]) -> None:
        done.exception()  # the database may have failed: its operations were told
        self._away = False
        self._commit()


def nothing(_: Transaction) -> None:
    """The operation that marks the end of those that were handed over."""
