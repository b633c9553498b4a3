"""One SQL dialect over two drivers: SQLite, embedded, and PostgreSQL, for several hosts.

Statements are written once, with `?` for parameters and only what both databases understand (INSERT ... ON
CONFLICT, conditional UPDATE, TEXT / BIGINT / DOUBLE PRECISION columns). A transaction that writes is
serialised where it must be: SQLite takes its write lock at BEGIN; PostgreSQL locks each updated row and
evaluates the condition of an UPDATE again after waiting for it.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from pandora_router.errors import UpstreamError, UsageError

Row = tuple[Any, ...]
BUSY_SECONDS = 30.0
"""How long a SQLite writer waits for the lock of another process before it gives up."""


class Transaction(Protocol):
    """An open transaction."""

    def run(self, sql: str, *values: Any) -> int:
        """Execute a statement and return how many rows it changed."""
        ...

    def rows(self, sql: str, *values: Any) -> list[Row]:
        """Execute a query and return all its rows."""
        ...

    def stream(self, sql: str, *values: Any) -> Iterator[Row]:
        """Execute a query and yield its rows without holding all of them in memory."""
        ...


class Database(Protocol):
    """A connection that belongs to one thread."""

    def transaction(self) -> Any:
        """Return a context manager that yields a `Transaction`; it commits, or rolls back on an exception."""
        ...

    def reading(self, seconds: float) -> Any:
        """Return a context manager that yields a read-only `Transaction` in which no lock is held.

        Raises `UpstreamError` if a query runs for longer than `seconds`.
        """
        ...

    @contextmanager
    def part(self, transaction: Transaction) -> Iterator[None]:
        """Run a part of a transaction; an exception undoes this part only and is raised again."""
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


class _Cursor:
    """A transaction over any DB-API connection; `mark` is the driver's parameter placeholder."""

    def __init__(self, connection: Any, mark: str) -> None:
        self._connection = connection
        self._mark = mark

    def _execute(self, sql: str, values: Sequence[Any]) -> Any:
        cursor = self._connection.cursor()
        cursor.execute(sql if self._mark == "?" else sql.replace("?", self._mark), values)
        return cursor

    def run(self, sql: str, *values: Any) -> int:
        """Execute a statement and return how many rows it changed."""
        return int(self._execute(sql, values).rowcount)

    def rows(self, sql: str, *values: Any) -> list[Row]:
        """Execute a query and return all its rows."""
        return [tuple(row) for row in self._execute(sql, values).fetchall()]

    def stream(self, sql: str, *values: Any) -> Iterator[Row]:
        """Execute a query and yield its rows in blocks of a thousand."""
        cursor = self._execute(sql, values)
        while block := cursor.fetchmany(1000):
            yield from (tuple(row) for row in block)


class SQLite:
    """An embedded database in one file, with a write-ahead log, shared by processes of one host."""

    def __init__(self, path: Path) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._connection = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None)
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute("PRAGMA synchronous = NORMAL")
            self._connection.execute("PRAGMA foreign_keys = ON")
        except (OSError, sqlite3.Error) as error:
            raise UsageError(
                f"the store {path}",
                expected="a SQLite database that this user can write",
                came=str(error),
                do="Name another file, or give this user the right to write it.",
            ) from error

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """Yield a transaction that holds the write lock; commit it, or roll it back on an exception."""
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield _Cursor(self._connection, "?")
        except BaseException:
            self._connection.execute("ROLLBACK")
            raise
        self._connection.execute("COMMIT")

    @contextmanager
    def reading(self, seconds: float) -> Iterator[Transaction]:
        """Yield a read-only transaction: one state of the database, while others go on writing.

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

    @contextmanager
    def part(self, transaction: Transaction) -> Iterator[None]:
        """Run a part of a transaction; an exception undoes this part only and is raised again."""
        with _savepoint(transaction):
            yield

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


class PostgreSQL:
    """A database server shared by several hosts (extra `[postgres]`). A lost connection is opened again."""

    def __init__(self, url: str) -> None:
        try:
            import psycopg
        except ImportError as error:
            raise UsageError(
                "a PostgreSQL store",
                expected="the package psycopg",
                came="none",
                do="Run: pip install 'pandora-router[postgres]'",
            ) from error
        self._psycopg = psycopg
        self._url = url
        self._connection: Any = None
        self._open()

    def _open(self) -> Any:
        if self._connection is None or self._connection.closed:
            try:
                self._connection = self._psycopg.connect(self._url, connect_timeout=10)
            except self._psycopg.Error as error:
                # the message of the driver may repeat the URL, and the URL may hold a password
                raise UpstreamError(f"PostgreSQL cannot be reached ({type(error).__name__})") from None
        return self._connection

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """Yield a transaction; commit it, or roll it back on an exception.

        Raises `UpstreamError` if the server goes away; the next transaction connects again.
        """
        connection = self._open()
        try:
            with connection.transaction():
                yield _Cursor(connection, "%s")
        except (self._psycopg.OperationalError, self._psycopg.InterfaceError) as error:
            connection.close()
            raise UpstreamError(f"PostgreSQL did not answer ({type(error).__name__})") from error

    @contextmanager
    def reading(self, seconds: float) -> Iterator[Transaction]:
        """Yield a read-only transaction; raises `UpstreamError` if a query runs longer than `seconds`."""
        with self.transaction() as open_:
            open_.run("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            open_.run(f"SET LOCAL statement_timeout = {int(1000 * seconds)}")
            yield open_

    @contextmanager
    def part(self, transaction: Transaction) -> Iterator[None]:
        """Run a part of a transaction; an exception undoes this part only and is raised again."""
        with _savepoint(transaction):
            yield

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()


@contextmanager
def _savepoint(transaction: Transaction) -> Iterator[None]:
    transaction.run("SAVEPOINT part")
    try:
        yield
    except BaseException:
        transaction.run("ROLLBACK TO SAVEPOINT part")
        transaction.run("RELEASE SAVEPOINT part")
        raise
    transaction.run("RELEASE SAVEPOINT part")
