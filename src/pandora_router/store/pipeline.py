"""Short operations on PostgreSQL, many in one transaction and without a turn, on the thread of an event loop.

An operation is a function that asks a statement, reads its result and asks the next one. Here the first
statements of many operations are sent together, then the second ones of those that need a second, so that a
commit takes as many round trips as its longest operation and not as all of them. An operation that needs a
result which has not come is left by an exception, and run again from its start when the result is there: what
it asked before is answered from memory. So it must ask the same again; if not, the thread runs it.

Transactions of several processes overlap, and none waits for another in a circle, because all lock rows in
one order: first those of budgets from which something is taken, sorted (`Job.budgets`); then rows of their
own decisions, of which nobody else writes; at the end sums, sorted (`Transaction.grow`). So operations that
take from budgets must not share a commit with others (`pipeline_writer`). The thread's operations lock rows
in any order: its transactions wait until these have ended, and these for them (`database.TURN`).

If an operation fails, or the connection does, all of its commit are run again by the thread. They may have
been committed then, which is why a short operation must be idempotent.
"""

from __future__ import annotations

import asyncio
import os
import select
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from typing import Any

from pandora_router.errors import UpstreamError
from pandora_router.store.database import TURN, Row, storable
from pandora_router.store.loop_writer import Job
from pandora_router.store.rows import Sums

Statement = tuple[Any, ...]
Result = tuple[int, list[Row]]
_BEGIN: tuple[Statement, ...] = (("BEGIN",), (f"SELECT pg_advisory_xact_lock_shared({TURN})",))
_LOCKS = (
    "SELECT pg_advisory_xact_lock(hashtextextended(name, 0)) FROM unnest(?::text[]) AS name",
    "SELECT 1 FROM budgets WHERE (key, period) IN (SELECT * FROM unnest(?::text[], ?::text[])) "
    'ORDER BY key COLLATE "C", period COLLATE "C" FOR UPDATE',
)
_TYPES = {int: 20, float: 701}
_READERS: dict[int, Callable[[str], Any]] = {
    **dict.fromkeys((20, 21, 23), int),
    **dict.fromkeys((700, 701), float),
    1700: Decimal,
}


class _Waiting(BaseException):
    """An operation needs a result that has not come."""


class _Unfit(Exception):
    """An operation did what only the thread can do for it."""


class Replay:
    """A transaction as one operation sees it; see `Transaction` for its methods."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.value: Any = None
        self.done = False
        self.sums = Sums()
        self._said: list[Statement] = []
        self._results: list[Result] = []
        self._place = 0

    def step(self) -> list[Statement]:
        """Run the operation until it needs a result, or to its end; returns what it has newly asked."""
        if self.done:
            return []
        self._place, self.sums, before = 0, Sums(), len(self._said)
        try:
            self.value = self.job.operation(self)
            self.done = True
        except _Waiting:
            pass
        return self._said[before:]

    def hear(self, results: Sequence[Result]) -> None:
        """Take the results of what was asked."""
        self._results.extend(results)

    def together(self, *statements: Statement) -> list[Result]:
        """Ask statements and return their results, once they are there."""
        first = self._place
        for statement in statements:
            self.put(*statement)
        if self._place > len(self._results):
            raise _Waiting
        return self._results[first : self._place]

    def put(self, sql: str, *values: Any) -> None:
        """Ask a statement whose result is not needed."""
        statement, place = (sql, *values), self._place
        self._place += 1
        if place == len(self._said):
            self._said.append(statement)
        elif self._said[place] != statement:
            raise _Unfit("an operation did not ask the same again")

    def insert(self, sql: str, *values: Any) -> bool:
        """Insert a row that is new; if it is not, PostgreSQL refuses the commit, and the thread runs it."""
        self.put(sql.removesuffix(" DO NOTHING").rpartition(" ON CONFLICT ")[0], *values)
        return True

    def run(self, sql: str, *values: Any) -> int:
        """Ask a statement and return the number of rows it changed."""
        return self.together((sql, *values))[0][0]

    def changed(self, sql: str, *values: Any) -> list[Row]:
        """Ask a statement and return its rows."""
        return self.together((sql, *values))[0][1]

    def rows(self, sql: str, *values: Any) -> list[Row]:
        """Ask a query and return its rows; not after `grow` or `replace`."""
        if self.sums:
            raise _Unfit("an operation reads what it has added to sums")
        return self.changed(sql, *values)

    def stream(self, sql: str, *values: Any) -> Iterator[Row]:
        """Not here: short operations read a few rows."""
        raise _Unfit("an operation reads rows in blocks")

    def grow(self, sql: str, key: Sequence[Any], amounts: Sequence[float]) -> None:
        """Add to a row that is written with the commit."""
        self.sums.add(sql, key, amounts)

    def replace(self, sql: str, key: Sequence[Any], values: Sequence[Any]) -> None:
        """Set a row that is written with the commit."""
        self.sums.replace(sql, key, values)

    def flush(self, sql: str) -> None:
        """Check that the operation has nothing to write that its next statement depends on."""
        if any(name == sql for name, _ in self.sums):
            raise _Unfit("an operation reads what it has added to sums")


class Pipeline:
    """A connection in pipeline mode that runs one commit at a time.

    `told` gets what became of the commit: its operations, and the error that made it fail or None.
    `connection` is that of psycopg, which must not be used otherwise.
    """

    def __init__(
        self, connection: Any, loop: asyncio.AbstractEventLoop, told: Callable[[Pipeline, Any], None]
    ) -> None:
        self._connection, self._pg, self._loop, self._told = connection, connection.pgconn, loop, told
        self.asking: list[Replay] = []
        self.busy = False
        self.closed = False
        self._names: dict[tuple[str, tuple[int, ...]], bytes] = {}
        self._count = 0
        self._expected: deque[bool] = deque()
        self._results: list[Result] = []
        self._spans: list[tuple[Replay | None, int]] = []
        self._begun = self._committing = False
        self._error: Exception | None = None
        self._pg.nonblocking = 1
        self._pg.enter_pipeline_mode()
        self._socket = os.dup(self._pg.socket)  # the driver may close its own before it is no longer watched
        self._errors = select.poll()
        self._errors.register(self._socket, 0)  # reports errors and hang-ups only
        loop.add_reader(self._socket, self._readable)

    def start(self, jobs: Sequence[Job]) -> None:
        """Commit operations; those of one decision must not be among them twice."""
        self.asking = [Replay(job) for job in jobs]
        self.busy, self._begun, self._committing, self._error = True, False, False, None
        self._round()

    def drive(self, until: float) -> None:
        """Finish the commit that is under way without the event loop, which has ended or is ending."""
        while self.busy and not self.closed:
            if time.monotonic() > until:
                self._lost(UpstreamError("PostgreSQL did not answer"))
                break
            select.select([self._socket], [], [], 0.1)
            self._flush()
            self._read()

    def close(self) -> None:
        """Close the connection."""
        if not self.closed:
            self.closed = True
            if not self._loop.is_closed():
                self._loop.remove_reader(self._socket)
                self._loop.remove_writer(self._socket)
            os.close(self._socket)
            self._connection.close()

    def _round(self) -> None:
        """Run every operation until it needs a result, and send what they ask."""
        try:
            new = [(asking, asking.step()) for asking in self.asking]
            writes = any(not sql.startswith("SELECT") for _, said in new for sql, *_ in said)
            sums = Sums(asking.sums for asking in self.asking)
            done = all(asking.done for asking in self.asking)
            head: list[Statement] = []
            if not self._begun and (writes or sums):
                head = [*_BEGIN, *_locks(self.asking)]
                self._begun = True
            self._spans = [(None, len(head)), *((asking, len(said)) for asking, said in new if said)]
            statements = [*head, *(statement for _, said in new for statement in said)]
            if done and self._begun:
                statements += [*sums.taken(), ("COMMIT",)]
                self._committing = True
            if statements:
                self._send(statements)
            else:
                self._end(None)
        except Exception as error:  # of an operation, or a value that cannot be sent
            self._fail(error)

    def _send(self, statements: Sequence[Statement]) -> None:
        encoded = [(sql, *_encoded(values)) for sql, *values in statements]
        for sql, types, parameters in encoded:
            name = self._names.get((sql, types))
            if name is None:
                self._count += 1
                name = self._names[sql, types] = f"p{self._count}".encode()
                self._pg.send_prepare(name, _numbered(sql), types)
                self._expected.append(False)
            self._pg.send_query_prepared(name, parameters)
            self._expected.append(True)
        self._pg.pipeline_sync()
        self._results = []
        self._flush()

    def _flush(self) -> None:
        try:
            left = not self.closed and self._pg.flush()
        except Exception as error:
            self._lost(error)
        else:
            if not self.closed and not self._loop.is_closed():
                if left:
                    self._loop.add_writer(self._socket, self._flush)
                else:
                    self._loop.remove_writer(self._socket)

    def _readable(self) -> None:
        """Read what has come. A socket with an error is read to its end, and so is found to be lost.

        uvloop announces such a socket once and watches it no longer, even if there is more to read.
        """
        self._read()
        while not self.closed and self._errors.poll(0):
            self._read()

    def _read(self) -> None:
        """Take the results that have come; after the last of a round go on with the next."""
        from psycopg.pq import ConnStatus, ExecStatus

        pg = self._pg
        try:
            pg.consume_input()
            while not pg.is_busy():
                result = pg.get_result()
                if result is None:
                    if pg.status != ConnStatus.OK:
                        raise UpstreamError("PostgreSQL has closed the connection")
                    if not self._expected and not self.busy:
                        return
                    continue
                if result.status == ExecStatus.PIPELINE_SYNC:
                    self._expected.clear()
                    self._heard()
                    return
                matters = self._expected.popleft() if self._expected else False
                if result.status in (ExecStatus.COMMAND_OK, ExecStatus.TUPLES_OK):
                    if matters:
                        self._results.append(_decoded(result))
                elif self._error is None:
                    self._error = UpstreamError(
                        f"PostgreSQL: {result.error_message.decode(errors='replace')}"
                    )
        except Exception as error:
            self._lost(error)

    def _heard(self) -> None:
        """All results of a round are there."""
        if self._error is not None:
            if self.asking:
                self._fail(self._error)
            else:  # not even the transaction could be taken back
                self._lost(self._error)
        elif not self.asking or self._committing:
            self._end(None)
        else:
            place = 0
            for asking, count in self._spans:
                if asking is not None:
                    asking.hear(self._results[place : place + count])
                place += count
            self._round()

    def _fail(self, error: Exception) -> None:
        """Take the transaction back; its operations are the caller's to run."""
        asking, self.asking, self._error = self.asking, [], None
        self._names.clear()  # some may not have been prepared
        self._told(self, (asking, error))
        if not self._begun:
            self._end(None)
            return
        try:
            self._send([("ROLLBACK",)])
        except Exception as lost:
            self._lost(lost)

    def _end(self, error: Exception | None) -> None:
        asking, self.asking, self.busy = self.asking, [], False
        self._told(self, (asking, error))

    def _lost(self, error: Exception) -> None:
        self.close()
        self._end(error)


def _locks(asking: Sequence[Replay]) -> list[Statement]:
    """The statements that lock the budgets of operations, in the order in which everybody locks them."""
    budgets = sorted({row for one in asking for row in one.job.budgets})
    if not budgets:
        return []
    keys, periods = (_array(names) for names in zip(*budgets, strict=True))
    return [(_LOCKS[0], keys), (_LOCKS[1], keys, periods)]


def _array(names: Sequence[str]) -> str:
    """An array of names, which are ids of keys or periods and have no quotes."""
    return "{" + ",".join(names) + "}"


def _numbered(sql: str) -> bytes:
    """A statement with $1, $2 ... for its parameters."""
    first, *rest = sql.split("?")
    return (first + "".join(f"${i}{part}" for i, part in enumerate(rest, start=1))).encode()


def _encoded(values: Sequence[Any]) -> tuple[tuple[int, ...], list[bytes | None]]:
    """The types of parameters, 0 where PostgreSQL shall find it, and their texts."""
    types = tuple(_TYPES.get(type(value), 0) for value in values)
    texts = [None if value is None else str(storable(value)).encode() for value in values]
    return types, texts


def _decoded(result: Any) -> Result:
    """The number of rows that a statement changed or found, and its rows."""
    readers = [_READERS.get(result.ftype(i), str) for i in range(result.nfields)]
    rows = [
        tuple(
            None if (value := result.get_value(place, i)) is None else read(value.decode())
            for i, read in enumerate(readers)
        )
        for place in range(result.ntuples)
    ]
    return result.command_tuples or 0, rows
