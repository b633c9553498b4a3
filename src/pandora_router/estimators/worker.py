"""Where computations run: in the calling thread, or in a few threads beside an event loop.

A decision computes for some milliseconds (embedding, neighbours, search, trees). On an event loop that would
stall everything else, so it is handed to a `Worker`: a bounded thread pool owned by a router or a scorer.
"""

from __future__ import annotations

import asyncio
import functools
import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, ParamSpec, Protocol, TypeVar

T = TypeVar("T")
P = ParamSpec("P")
THREADS = 1
"""Default number of threads. Python runs one thread at a time, and an event loop waits for the others.
`python -m benchmarks.loop` measures these delays; on a loaded machine they were longer with two threads where
nothing was bought, and no different elsewhere. A worker whose functions wait for a network, such as a remote
embedder, should have more."""


class Work(Protocol):
    """How a function is called: `await work(function, *arguments)`."""

    async def __call__(self, function: Callable[P, T], *args: P.args, **options: P.kwargs) -> T:
        """The result of `function(*args, **options)`."""
        ...


class Worker:
    """A bounded thread pool that is started on first use, in each process separately.

    A process forked from one that used a worker starts its own threads; a pickled worker arrives unstarted.
    """

    def __init__(self, threads: int = THREADS) -> None:
        self.threads = threads
        self._pool: tuple[int, ThreadPoolExecutor] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return Worker, (self.threads,)

    def submit(self, function: Callable[P, T], *args: P.args, **options: P.kwargs) -> Future[T]:
        """Run the function in a thread of the pool, as soon as one is free."""
        if self._pool is None or self._pool[0] != os.getpid():
            self._pool = os.getpid(), ThreadPoolExecutor(self.threads, "pandora")
        return self._pool[1].submit(functools.partial(function, *args, **options))

    async def __call__(self, function: Callable[P, T], *args: P.args, **options: P.kwargs) -> T:
        """Run the function in a thread of the pool and await its result."""
        return await asyncio.wrap_future(self.submit(function, *args, **options))
