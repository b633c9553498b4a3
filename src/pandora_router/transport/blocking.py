"""Calls for code without an event loop, such as fitting with remote embeddings.

One daemon thread with its own event loop serves all of them, so that connections are reused. It starts with
the first call and ends with the process.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

_starting = threading.Lock()
_running: dict[int, asyncio.AbstractEventLoop] = {}


def wait_for(work: Coroutine[Any, Any, T]) -> T:
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
