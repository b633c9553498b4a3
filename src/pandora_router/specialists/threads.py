"""Threads beside event loops: blocking calls in threads of their own, computing in a few, one with a loop.

A decision computes for some milliseconds (embedding, neighbours, search, trees). On an event loop that would
stall everything else, so it is handed to a `Worker`: a bounded pool of threads that somebody owns (a router,
a scorer), never one per call.

The other way round, code that runs on no event loop (fitting with remote embeddings) calls `wait_for`: one
daemon thread with an event loop of its own serves all such calls, so that connections are reused. It starts
with the first call and ends with the process.
"""

from __future__ import annotations

import asyncio
import atexit
import functools
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, ParamSpec, Protocol, TypeVar

R = TypeVar("R")
P = ParamSpec("P")


async def in_thread(call: Callable[[], R]) -> R:
    """Run `call` in a new daemon thread and return its result; the thread never delays the program's exit.

    Callers limit how many run at the same time. If the waiting task is cancelled, the thread continues and
    its result is dropped.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[R] = loop.create_future()

    def settle(value: R | None, error: BaseException | None) -> None:
        if not future.done():
            future.set_exception(error) if error is not None else future.set_result(value)  # type: ignore[arg-type]

    def work() -> None:
        value, error = None, None
        try:
            value = call()
        except BaseException as caught:
            error = caught
        if not loop.is_closed():
            try:
                loop.call_soon_threadsafe(settle, value, error)
            except RuntimeError:  # the loop was closed meanwhile: nobody waits for this any more
                return

    threading.Thread(target=work, daemon=True).start()
    return await future


THREADS = 1
"""Default number of threads. Python runs one thread at a time, and an event loop waits for the others.
`python -m benchmarks.loop` measures these delays; on a loaded machine they were longer with two threads where
nothing was bought, and no different elsewhere. A worker whose functions wait for a network, such as a remote
embedder, should have more."""


class Work(Protocol):
    """How a function is called: `await work(function, *arguments)`."""

    async def __call__(self, function: Callable[P, R], *args: P.args, **options: P.kwargs) -> R:
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

    def submit(self, function: Callable[P, R], *args: P.args, **options: P.kwargs) -> Future[R]:
        """Run the function in a thread of the pool, as soon as one is free."""
        if self._pool is None or self._pool[0] != os.getpid():
            self._pool = os.getpid(), ThreadPoolExecutor(self.threads, "pandora")
        return self._pool[1].submit(functools.partial(function, *args, **options))

    async def __call__(self, function: Callable[P, R], *args: P.args, **options: P.kwargs) -> R:
        """Run the function in a thread of the pool and await its result."""
        return await asyncio.wrap_future(self.submit(function, *args, **options))


_starting = threading.Lock()
_running: dict[int, asyncio.AbstractEventLoop] = {}


def wait_for(work: Coroutine[Any, Any, R]) -> R:
    """The result of the coroutine `work`, run on the background loop; blocks the calling thread.

    Call it from a worker thread, never from a coroutine: there, await `work` itself.
    """
    return asyncio.run_coroutine_threadsafe(work, _loop()).result()


def _loop() -> asyncio.AbstractEventLoop:
    """The background event loop of this process; a forked child gets its own."""
    with _starting:
        if os.getpid() not in _running:
            _running.clear()
            ready: list[asyncio.AbstractEventLoop] = []
            started = threading.Event()
            thread = threading.Thread(target=_serve, args=(ready, started), name="pandora-http", daemon=True)
            thread.start()
            started.wait()
            _running[os.getpid()] = ready[0]
            atexit.register(_stop, ready[0], thread)
        return _running[os.getpid()]


def _after_fork() -> None:
    """In a forked child: renew the lock, which another thread of the parent may have held."""
    global _starting
    _starting = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)


def _serve(ready: list[asyncio.AbstractEventLoop], started: threading.Event) -> None:
    async def idle() -> None:
        ready.append(asyncio.get_running_loop())
        started.set()
        await asyncio.get_running_loop().create_future()

    try:
        asyncio.run(idle())
    except asyncio.CancelledError:
        return


def _stop(loop: asyncio.AbstractEventLoop, thread: threading.Thread) -> None:
    def cancel() -> None:
        for task in asyncio.all_tasks(loop):
            task.cancel()

    if os.getpid() in _running and not loop.is_closed():
        loop.call_soon_threadsafe(cancel)
        thread.join(2.0)
