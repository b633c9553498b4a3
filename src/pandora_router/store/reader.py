"""Read-only queries on a connection and a thread of their own, so that dashboard pages delay no request."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from pandora_router.store.database import Database, Transaction, connect

T = TypeVar("T")


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
