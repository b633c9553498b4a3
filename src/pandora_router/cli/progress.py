"""A progress bar that appears only when work takes longer than two seconds."""

from __future__ import annotations

import time
from types import TracebackType

from rich.console import Console
from rich.progress import Progress, TaskID


class SlowProgress:
    """Call it with what is being done, how much is done and how much there is.

    It draws on standard error, and only if that is a terminal.
    """

    def __init__(self, patience: float = 2.0, console: Console | None = None) -> None:
        self._patience = patience
        self._console = console or Console(stderr=True)
        self._begun = time.monotonic()
        self._bar: Progress | None = None
        self._task = TaskID(0)

    def __call__(self, what: str, done: int, total: int) -> None:
        """Report progress."""
        if self._bar is None:
            if time.monotonic() - self._begun < self._patience:
                return
            quiet = not self._console.is_terminal
            self._bar = Progress(console=self._console, transient=True, disable=quiet)
            self._bar.start()
            self._task = self._bar.add_task(what)
        self._bar.update(self._task, description=what, completed=done, total=total)

    def __enter__(self) -> SlowProgress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
