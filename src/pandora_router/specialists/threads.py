"""Blocking work off the event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

R = TypeVar("R")


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
