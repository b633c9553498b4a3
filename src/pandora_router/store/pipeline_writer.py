"""Which short operations are committed together on PostgreSQL, and over which connection.

Operations of one decision are committed in the order of their calls. No two transactions of this process take
from the same budget at once: the operations that wait for it are committed together. Those that take from
budgets have commits of their own, because these wait for other hosts, and so have those that name no
decision, which mostly read. What `pipeline` cannot commit goes to the thread, which separates operations of
which one fails, or waits until the server is back.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from pandora_router.errors import UpstreamError
from pandora_router.store.database import IDLE, PostgreSQL
from pandora_router.store.loop_writer import Job, nothing
from pandora_router.store.pipeline import Pipeline, Replay

LINES = 4
"""At most this many connections of one process; one is opened when all others are in use."""
TOGETHER = 256
"""At most this many operations are committed together."""
PAUSE = 5.0
"""Seconds until another connection is tried after one was refused."""


class PipelineWriter:
    """Commits operations on PostgreSQL from the running event loop. `hand_over` gives some to the thread."""

    def __init__(self, url: str, hand_over: Callable[[Sequence[Job]], None]) -> None:
        self.loop = asyncio.get_running_loop()
        self.thread = threading.get_ident()
        self._url, self._hand_over = url, hand_over
        self._waiting: list[Job] = []
        self._lines: list[Pipeline] = []
        self._decisions: set[str] = set()
        self._budgets: set[tuple[str, str]] = set()
        self._scheduled = self._opening = self._closed = False
        self._not_before = 0.0

    def add(self, job: Job) -> None:
        """Commit an operation soon."""
        self._waiting.append(job)
        self._schedule()

    def take(self) -> list[Job]:
        """Finish the commits under way; returns the operations that wait, now the caller's to commit."""
        until = time.monotonic() + 10.0
        self._closed = True
        for line in [*self._lines]:
            line.drive(until)
        waiting, self._waiting = self._waiting, []
        return waiting

    def close(self) -> None:
        """Close the connections."""
        self._closed = True
        for line in [*self._lines]:
            line.close()

    def _schedule(self) -> None:
        if not self._scheduled and not self._closed:
            self._scheduled = True
            self.loop.call_soon(self._dispatch)

    def _dispatch(self) -> None:
        self._scheduled = False
        while self._waiting and not self._closed:
            line = next((line for line in self._lines if not line.busy), None)
            if line is None:
                self._open()
                return
            jobs = self._next()
            if not jobs:
                return
            self._hold(jobs)
            line.start(jobs)

    def _next(self) -> list[Job]:
        """Take the operations of the next commit off the queue: all of one kind that need not wait."""
        chosen: list[Job] = []
        left: list[Job] = []
        later = set(self._decisions)
        for job in self._waiting:
            waits = job.of in later or not self._budgets.isdisjoint(job.budgets)
            other = chosen and _kind(job) != _kind(chosen[0])
            (left if waits or other or len(chosen) == TOGETHER else chosen).append(job)
            if job.of:
                later.add(job.of)
        self._waiting = left
        return sorted(chosen, key=lambda job: job.of)

    def _told(self, line: Pipeline, outcome: tuple[list[Replay], Exception | None]) -> None:
        asking, error = outcome
        if line.closed:
            self._lines.remove(line)
        jobs = [one.job for one in asking]
        if error is not None and jobs:
            self._send_away(jobs)
        else:
            for one in asking:
                if one.job.done is not None and not one.job.done.done():
                    with contextlib.suppress(RuntimeError):  # the event loop is closed: nobody waits
                        one.job.done.set_result(one.value)
            self._free(jobs)

    def _hold(self, jobs: Sequence[Job]) -> None:
        """Later operations of the same decisions and budgets wait until these have ended."""
        self._decisions.update(job.of for job in jobs if job.of)
        self._budgets.update(row for job in jobs for row in job.budgets)

    def _free(self, jobs: Sequence[Job]) -> None:
        """These operations have ended: those that waited for them may begin."""
        self._decisions.difference_update(job.of for job in jobs)
        self._budgets.difference_update(row for job in jobs for row in job.budgets)
        self._schedule()

    def _send_away(self, jobs: Sequence[Job]) -> None:
        """Give operations to the thread; later ones of the same decisions and budgets wait for them."""
        if self.loop.is_closed() or self._closed:
            self._hand_over(jobs)
            return
        done: asyncio.Future[None] = self.loop.create_future()

        def back(done: asyncio.Future[None]) -> None:
            done.exception()  # the database may have failed: its operations were told
            self._free(jobs)

        done.add_done_callback(back)
        self._hand_over([*jobs, Job(nothing, self.loop, done)])

    def _open(self) -> None:
        """Open another connection, unless enough are open, or one was refused a moment ago."""
        if self._opening or len(self._lines) >= LINES:
            return
        if self.loop.time() < self._not_before:
            self._without_line()
            return
        with contextlib.suppress(RuntimeError):  # the event loop is ending: what waits is taken from here
            opening = self.loop.run_in_executor(None, _opened, self._url)
            self._opening = True
            opening.add_done_callback(self._opened)

    def _opened(self, opening: asyncio.Future[Any]) -> None:
        self._opening = False
        if self._closed:
            if not opening.cancelled() and opening.exception() is None:
                opening.result().close()
            return
        try:
            self._lines.append(Pipeline(opening.result(), self.loop, self._told))
            self._schedule()
        except Exception:  # refused, or lost at once: the thread finds out
            self._not_before = self.loop.time() + PAUSE
            self._without_line()

    def _without_line(self) -> None:
        """If there is no connection at all, the thread waits for the server."""
        if not self._lines and not self._closed and (jobs := self._next()):
            self._hold(jobs)
            self._send_away(jobs)
            self._schedule()  # those of other kinds


def _kind(job: Job) -> tuple[bool, bool]:
    return bool(job.budgets), bool(job.of)


def _opened(url: str) -> Any:
    """A connection for a line; blocks. Raises `UpstreamError` if the server cannot be reached."""
    connection = PostgreSQL(url).take()
    try:
        connection.autocommit = True
        connection.execute(f"SET idle_in_transaction_session_timeout = '{IDLE}'")
    except Exception as error:
        connection.close()
        raise UpstreamError(f"PostgreSQL did not answer ({type(error).__name__})") from error
    return connection
