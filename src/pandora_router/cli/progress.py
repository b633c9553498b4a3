"""A progress bar that appears only when work takes longer than two seconds."""

from __future__ import annotations

import threading
from types import TracebackType

from rich.console import Console
from rich.progress import Progress


class SlowProgress:
    """Call it with what is being done, how much is done and how much there is.

    It draws on standard error, and only if that is a terminal. It appears by itself once work takes longer
    than `patience` seconds from the first call, even if nothing new is reported until then.
    """

    def __init__(self, patience: float = 2.0, console: Console | None = None) -> None:
        self._patience = patience
        shown = console or Console(stderr=True)
        self._bar = Progress(console=shown, transient=True, disable=not shown.is_terminal)
        self._task = self._bar.add_task("")
        self._timer: threading.Timer | None = None

    def __call__(self, what: str, done: int, total: int) -> None:
        """Report progress."""
        self._bar.update(self._task, description=what, completed=done, total=total)
        if self._patience <= 0.0:
            self._bar.start()
        elif self._timer is None:
            self._timer = threading.Timer(self._patience, self._bar.start)
            self._timer.daemon = True
            self._timer.start()

    def __enter__(self) -> SlowProgress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer.join()
        self._bar.stop()
