"""One SQL dialect over two drivers: SQLite, embedded, and PostgreSQL, for several hosts.

Statements are written once, with `?` for parameters and only SQL that both databases support (INSERT ... ON
CONFLICT, conditional UPDATE, TEXT / BIGINT / DOUBLE PRECISION columns). Concurrent writers are safe, because
they take turns: SQLite takes its write lock at BEGIN, and a transaction on PostgreSQL begins with an advisory
lock. Operations of many keys are committed together, in any order, and would deadlock on the rows that they
lock. Short operations on PostgreSQL lock rows in one order and share the turn (`pipeline`).
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Protocol

from pandora_router.errors import UpstreamError, UsageError, missing_package
from pandora_router.store.rows import Sums

Row = tuple[Any, ...]
BUSY_SECONDS = 30.0
"""Time that a SQLite writer waits for the lock of another process."""
TURN = 0x70616E64
"""Name of the advisory lock of PostgreSQL that a writer holds until its transaction ends; see `pipeline`."""
SILENT_SECONDS = 20.0
"""Time after which a PostgreSQL host that vanished from the network is given up, instead of many minutes."""
IDLE = "30s"
"""PostgreSQL ends a writer that is silent for this long, so that a host that is cut off blocks no other."""


class Transaction(Protocol):
    """An open transaction."""

    def run(self, sql: str, *values: Any) -> int:
        """Execute a statement and return the number of rows it changed."""
        ...

    def rows(self, sql: str, *values: Any) -> list[Row]:
        """Execute a query and return all its rows."""
        ...

    def stream(self, sql: str, *values: Any) -> Iterator[Row]:
        """Execute a query and yield its rows without holding all of them in memory."""
        ...

    def changed(self, sql: str, *values: Any) -> list[Row]:
        """Execute a statement that ends in RETURNING and return its rows."""
        ...

    def put(self, sql: str, *values: Any) -> None:
        """Execute a statement whose result is not needed; it takes effect before every later one."""
        ...

    def insert(self, sql: str, *values: Any) -> bool:
        """Insert a row that is nearly always new, and return whether it was; `sql` ends in DO NOTHING."""
        ...

    def together(self, *statements: tuple[Any, ...]) -> list[tuple[int, list[Row]]]:
        """Execute statements, each (sql, *values), one after another; none needs the result of another.

        Returns for each the number of rows it changed, and the rows that its RETURNING gave.
        """
        ...

    def grow(self, sql: str, key: Sequence[Any], amounts: Sequence[float]) -> None:
        """Add `amounts` to the counters of one row, with the parameters of `sql` being (*key, *amounts).

        Amounts of the same statement and key are added up in memory and written once: before the next
        query of this transaction, or before its commit. The statement must add what it is given, so that
        writing a sum is the same as writing its parts.
        """
        ...

    def replace(self, sql: str, key: Sequence[Any], values: Sequence[Any]) -> None:
        """Write one row, as `grow` does, but the last values count; the parameters are (*key, *values)."""
        ...

    def flush(self, sql: str) -> None:
        """Write what `grow` and `replace` have gathered for a statement, because the next one depends on it.

        In a commit of short operations on PostgreSQL this is not done for other operations.
        """
        ...


class Database(Protocol):
    """A connection that belongs to one thread.

    restarts: whether a failed transaction may succeed a moment later, because a server has restarted.
    uncertain: whether the last transaction failed during its commit, which may have succeeded.
    """

    restarts: bool
    uncertain: bool

    def transaction(self) -> Any:
        """Return a context manager that yields a `Transaction`; it commits, or rolls back on an exception."""
        ...

    def reading(self, seconds: float) -> Any:
        """A context manager for reading without locks; `UpstreamError` if a query runs for `seconds`."""
        ...

    def part(self, transaction: Any) -> Any:
        """Return a context manager for a part of `transaction`: an exception rolls back only that part."""
        ...

    def close(self) -> None:
        """Close the connection."""
        ...


def connect(url: str) -> Database:
    """Open the database at `url`: `postgresql://...`, `sqlite:///path`, or a plain path for SQLite.

    Raises `UsageError` for another scheme or a missing driver, `UpstreamError` if it cannot be reached.
    """
    if url.startswith(("postgresql://", "postgres://")):
        return PostgreSQL(url)
    if "://" in url and not url.startswith("sqlite:///"):
        raise UsageError(
            "the store",
            expected="a path, sqlite:///path or postgresql://user@host/name",
            came=url.split("://")[0] + "://...",
            do="Change `store` in pandora.yaml.",
        )
    return SQLite(Path(url.removeprefix("sqlite:///")))


def connect_without_waiting(url: str) -> Database | None:
    """A second connection to a SQLite database, for short transactions; None for another database.

    They raise `sqlite3.OperationalError` at once if another connection holds the lock, and no checkpoints are
    made.
    """
    far = url.startswith(("postgresql://", "postgres://"))
    return None if far else SQLite(Path(url.removeprefix("sqlite:///")), waits=False)


def no_room(error: BaseException) -> str | None:
    """What to say of an error of a driver if it means that the disk cannot be written; else None."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code == sqlite3.SQLITE_FULL or getattr(error, "sqlstate", None) == "53100":
        return "the disk of the store is full"
    if code in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY):
        return "the disk of the store cannot be written, it may be full"
    return None


class _Cursor:
    """A transaction over a DB-API connection; `mark` is the driver's parameter placeholder."""

    def __init__(self, connection: Any, mark: str) -> None:
        self._connection = connection
        self._mark = mark
        self.sums = Sums()

    def _execute(self, sql: str, values: Sequence[Any]) -> Any:
        cursor = self._connection.cursor()
        if self._mark != "?":
            sql, values = sql.replace("?", self._mark), [storable(value) for value in values]
        cursor.execute(sql, values)
        return cursor

    def run(self, sql: str, *values: Any) -> int:
        """Execute a statement and return the number of rows it changed."""
        return int(self._execute(sql, values).rowcount)

    def put(self, sql: str, *values: Any) -> None:
        """Execute a statement whose result is not needed."""
        self._execute(sql, values)

    def insert(self, sql: str, *values: Any) -> bool:
        """Insert a row and return whether it was new; see `Transaction.insert`."""
        return self.run(sql, *values) > 0

    def together(self, *statements: tuple[Any, ...]) -> list[tuple[int, list[Row]]]:
        """Execute statements one after another; see `Transaction.together`."""
        done = [self._execute(sql, values) for sql, *values in statements]
        return [(done_.rowcount, done_.fetchall() if done_.description else []) for done_ in done]

    def rows(self, sql: str, *values: Any) -> list[Row]:
        """Execute a query and return all its rows."""
        self.write_sums()
        return self.changed(sql, *values)

    def changed(self, sql: str, *values: Any) -> list[Row]:
        """Execute a statement that ends in RETURNING and return its rows."""
        return self.together((sql, *values))[0][1]

    def grow(self, sql: str, key: Sequence[Any], amounts: Sequence[float]) -> None:
        """Add amounts to what `sql` will write for `key`; see `Transaction.grow`."""
        self.sums.add(sql, key, amounts)

    def replace(self, sql: str, key: Sequence[Any], values: Sequence[Any]) -> None:
        """Set what `sql` will write for `key`; see `Transaction.replace`."""
        self.sums.replace(sql, key, values)

    def flush(self, sql: str) -> None:
        """Write the pending rows of one statement."""
        if self.sums:
            for statement, *values in self.sums.taken(sql):
                self._execute(statement, values)

    def write_sums(self) -> None:
        """Write all pending rows."""
        if self.sums:
            for statement, *values in self.sums.taken():
                self._execute(statement, values)

    def stream(self, sql: str, *values: Any) -> Iterator[Row]:
        """Execute a query and yield its rows in blocks of a thousand."""
        self.write_sums()
        cursor = self._execute(sql, values)
        while block := cursor.fetchmany(1000):
            yield from (tuple(row) for row in block)


def storable(value: Any) -> Any:
    """A text without the character NUL, which a prompt may have and a text in PostgreSQL may not."""
    return value.replace("\0", "\N{REPLACEMENT CHARACTER}") if isinstance(value, str) else value


class SQLite:
    """An embedded database in one file, with a write-ahead log, shared by processes of one host.

    waits: whether transactions wait for the lock of another connection, and commits may make a checkpoint.
    """

    restarts = uncertain = False

    def __init__(self, path: Path, *, waits: bool = True) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            seconds = BUSY_SECONDS if waits else 0.0
            self._connection = sqlite3.connect(
                path, timeout=seconds, isolation_level=None, check_same_thread=waits
            )
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute("PRAGMA synchronous = NORMAL")
            self._connection.execute("PRAGMA foreign_keys = ON")
            if not waits:
                self._connection.execute("PRAGMA wal_autocheckpoint = 0")
        except (OSError, sqlite3.Error) as error:
            raise UsageError(
                f"the store {path}",
                expected="a SQLite database that this user can write",
                came=str(error),
                do="Name another file, or give this user the right to write it.",
            ) from error

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """Yield a transaction that holds the write lock; commit it, or roll it back on an exception.

        Raises `UpstreamError` if the disk is full; nothing is committed then.
        """
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            cursor = _Cursor(self._connection, "?")
            yield cursor
            cursor.write_sums()
            self._connection.execute("COMMIT")
        except BaseException as error:
            if self._connection.in_transaction:  # SQLite rolls back by itself after some errors
                self._connection.execute("ROLLBACK")
            if (message := no_room(error)) is not None:
                raise UpstreamError(message) from error
            raise

    @contextmanager
    def reading(self, seconds: float) -> Iterator[Transaction]:
        """Yield a read-only transaction: a snapshot of the database that does not block writers.

        Raises `UpstreamError` if its queries run for longer than `seconds`.
        """
        until = time.monotonic() + seconds
        connection = self._connection
        connection.set_progress_handler(lambda: time.monotonic() > until, 20_000)
        connection.execute("PRAGMA query_only = ON")
        connection.execute("BEGIN")
        try:
            yield _Cursor(connection, "?")
        except sqlite3.OperationalError as error:
            if time.monotonic() > until:
                raise UpstreamError(f"the query took longer than {seconds:g} s") from error
            raise
        finally:
            connection.set_progress_handler(None, 0)
            connection.execute("ROLLBACK")
            connection.execute("PRAGMA query_only = OFF")

    def part(self, transaction: _Cursor) -> AbstractContextManager[None]:
        """Run a part of a transaction; an exception rolls back only this part and is raised again."""
        return _savepoint(transaction)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


class PostgreSQL:
    """A database server shared by several hosts (extra `[postgres]`). A lost connection is opened again."""

    restarts = True

    def __init__(self, url: str) -> None:
        try:
            import psycopg
        except ImportError as error:
            raise missing_package("a PostgreSQL store", "psycopg", "postgres") from error
        self._psycopg = psycopg
        self._url = url
        self._connection: Any = None
        self.uncertain = False
        self._open()

    def _open(self) -> Any:
        if self._connection is None or self._connection.closed:
            try:
                self._connection = self._psycopg.connect(
                    self._url,
                    connect_timeout=10,
                    client_encoding="utf8",
                    keepalives_idle=5,
                    keepalives_interval=5,
                    tcp_user_timeout=round(1000 * SILENT_SECONDS),
                )
            except self._psycopg.Error as error:
                # the message of the driver may repeat the URL, and the URL may hold a password
                raise UpstreamError(f"PostgreSQL cannot be reached ({type(error).__name__})") from None
        return self._connection

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """Yield a transaction that holds the lock of writers; commit it, or roll it back on an exception.

        Raises `UpstreamError` if the connection is lost; the next transaction connects again.
        """
        with self._begun() as cursor:
            cursor.rows(
                "SELECT set_config('idle_in_transaction_session_timeout', ?, true), pg_advisory_xact_lock(?)",
                *(IDLE, TURN),
            )
            yield cursor
            cursor.write_sums()

    @contextmanager
    def reading(self, seconds: float) -> Iterator[Transaction]:
        """Yield a read-only transaction; raises `UpstreamError` if a query runs longer than `seconds`."""
        with self._begun() as open_:
            open_.run("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            open_.run(f"SET LOCAL statement_timeout = {int(1000 * seconds)}")
            yield open_

    @contextmanager
    def _begun(self) -> Iterator[_Cursor]:
        self.uncertain = False
        connection = self._open()
        try:
            with connection.transaction():
                yield _Cursor(connection, "%s")
                self.uncertain = True  # whether a commit was made is not known if its answer is lost
        except (self._psycopg.OperationalError, self._psycopg.InterfaceError) as error:
            connection.close()
            message = no_room(error) or f"PostgreSQL did not answer ({type(error).__name__})"
            raise UpstreamError(message) from error

    def part(self, transaction: _Cursor) -> AbstractContextManager[None]:
        """Run a part of a transaction; an exception rolls back only this part and is raised again."""
        return _savepoint(transaction)

    def take(self) -> Any:
        """The connection of psycopg, which is the caller's to use and to close from now on."""
        connection, self._connection = self._open(), None
        return connection

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()


@contextmanager
def _savepoint(transaction: _Cursor) -> Iterator[None]:
    transaction.write_sums()
    transaction.run("SAVEPOINT part")
    try:
        yield
        transaction.write_sums()
        transaction.run("RELEASE SAVEPOINT part")
    except BaseException as error:
        if isinstance(error, UpstreamError) or no_room(error) is not None:
            raise  # all of the transaction is lost
        transaction.sums.clear()
        transaction.run("ROLLBACK TO SAVEPOINT part")
        transaction.run("RELEASE SAVEPOINT part")
        raise
