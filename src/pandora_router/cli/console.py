"""Output of verbs: text and JSON without terminal escapes, tables that never truncate a number, progress.

Results go to standard output, everything else to standard error, so that `pandora ... | next` and
`pandora ... --json > file` contain only results.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Sequence
from types import TracebackType
from typing import IO, Any

import click
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress
from rich.table import Column
from rich.table import Table as Grid
from rich.text import Text

from pandora_router.text import printable

CONTINUE = "Finished work is kept: run the same command again to continue."
WIDEST = 10_000  # characters of a line in a pipe
FOLDED = 16  # characters to which a column of words may shrink
LINE_EVERY = 10.0  # seconds between progress lines if standard error is not a terminal


def echo(text: str, *, err: bool = False) -> None:
    """Print a text, to standard error if `err`; control characters in it are shown escaped."""
    click.echo(printable(text), err=err)


def echo_json(value: Any) -> None:
    """Print `value` as JSON; non-ASCII letters are kept, control characters are escaped."""
    text = json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False)
    click.echo("".join(map(_escaped, text)) if printable(text) != text else text)


def _escaped(character: str) -> str:
    return character if printable(character) == character else f"\\u{ord(character):04x}"


class Screen(Console):
    """Standard output for rich: no colours unless it is a terminal, and lines are never folded in a pipe."""

    def __init__(
        self, *, file: IO[str] | None = None, terminal: bool | None = None, width: int | None = None
    ) -> None:
        super().__init__(
            file=file,
            force_terminal=terminal,
            width=width,
            highlight=False,
            markup=False,
            emoji=False,
            soft_wrap=True,
        )

    def on_broken_pipe(self) -> None:
        """Leave the handling of a closed pipe to `cli.main`."""
        raise BrokenPipeError

    def say(self, text: str) -> None:
        """Print a text; control characters in it are shown escaped."""
        self.print(printable(text))

    def show(self, grid: Grid) -> None:
        """Print a table, as wide as the terminal if all numbers fit, otherwise wider."""
        terminal = self.width
        self.width = WIDEST
        frame = 3 * len(grid.columns) + 1
        whole = frame + sum(self._widest(column) for column in grid.columns)
        least = frame + sum(
            self._widest(column) if column.no_wrap else min(self._widest(column), FOLDED)
            for column in grid.columns
        )
        self.width = min(max(terminal, least), whole) if self.is_terminal else whole
        self.print(grid, soft_wrap=False, crop=False)
        self.width = terminal

    def _widest(self, column: Column) -> int:
        return max(self.measure(cell).maximum for cell in (column.header, *column.cells))


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], *, words: int = 1) -> Grid:
    """A table of `rows`, to be printed by `Screen.show`.

    The first `words` columns are text: left-aligned, folded if the terminal is narrow. All others are
    numbers: right-aligned, never folded or truncated.
    """
    grid = Grid(title=Text(printable(title)), title_justify="left")
    for j, name in enumerate(columns):
        if j < words:
            grid.add_column(Text(printable(name)), overflow="fold")
        else:
            grid.add_column(Text(printable(name)), justify="right", no_wrap=True)
    for row in rows:
        grid.add_row(*(Text(printable(cell)) for cell in row))
    return grid


class Interrupted(KeyboardInterrupt):
    """Ctrl-C in a command that keeps finished work; the text says how to continue."""


class SlowProgress:
    """Progress of long work on standard error; call it with a description, steps done and total steps.

    On a terminal a bar appears once the work has taken `patience` seconds. Otherwise a line with the last
    report and the seconds since the start is printed after `patience` seconds, then every `every` seconds.
    Neither waits for a new report. With `resumes`, the message after Ctrl-C says that the same command
    continues the work.
    """

    def __init__(
        self,
        patience: float = 2.0,
        console: Console | None = None,
        *,
        every: float = LINE_EVERY,
        resumes: bool = False,
    ) -> None:
        self._patience = patience
        self._every = every
        self._resumes = resumes
        self._console = console or Console(stderr=True)
        self._bar = Progress(console=self._console, transient=True, disable=not self._console.is_terminal)
        self._task = self._bar.add_task("")
        self._timer: threading.Timer | None = None
        self._begun = time.monotonic()
        self._next_line = self._begun + patience
        self._last = ""
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._ticker: threading.Thread | None = None

    def __call__(self, what: str, done: int, total: int) -> None:
        """Report that `done` of `total` steps of `what` are finished."""
        what = escape(printable(what))
        if not self._console.is_terminal:
            share = f" ({done / total:.0%})" if total else ""
            self._last = f"{what}: {done:,} of {total:,}{share}"
            self._line()
            if self._ticker is None:
                self._ticker = threading.Thread(target=self._tick, daemon=True)
                self._ticker.start()
            return
        self._bar.update(self._task, description=what, completed=done, total=total)
        if self._patience <= 0.0:
            self._bar.start()
        elif self._timer is None:
            self._timer = threading.Timer(self._patience, self._bar.start)
            self._timer.daemon = True
            self._timer.start()

    def _line(self) -> None:
        """Print the last report if a line is due."""
        with self._lock:
            now = time.monotonic()
            if now >= self._next_line:
                self._next_line = now + self._every
                text = f"{self._last}, {now - self._begun:.0f} s"
                self._console.print(text, highlight=False, soft_wrap=True)

    def _tick(self) -> None:
        """Print lines when they are due, until the work ends."""
        while not self._ended.wait(max(0.0, self._next_line - time.monotonic())):
            self._line()

    def __enter__(self) -> SlowProgress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        if self._ticker is not None:
            self._ticker.join()
        if self._timer is not None:
            self._timer.cancel()
            self._timer.join()
        self._bar.stop()
        if self._resumes and kind is KeyboardInterrupt:
            raise Interrupted(CONTINUE) from error
