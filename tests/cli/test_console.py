"""What verbs print: tables on terminals of every width and in pipes."""

from __future__ import annotations

import io
import json
import re
import threading
from pathlib import Path

import pytest
from rich.console import Console

from pandora_router.cli.console import Screen, SlowProgress, echo, echo_json, table
from tests.support.command import pandora

NAMES = ["a-specialist/with-a-very-long-name-of-its-own-2026-11", "b [bold]", "c :smile:"]
NUMBERS = [["0.123456", "-12,345,678.90", "1.5e-12"], ["1", "2", "3"], ["+0.25 (0.01)", "0.5", "-"]]


def shown(width: int | None, terminal: bool) -> str:
    file = io.StringIO()
    rows = [[name, *numbers] for name, numbers in zip(NAMES, NUMBERS, strict=True)]
    columns = ("specialist", "score", "a longer heading", "fee")
    screen = Screen(file=file, terminal=terminal, width=width)
    screen.show(table("Numbers [of] things", columns, rows))
    return re.sub(r"\x1b\[[0-9;]*m", "", file.getvalue())  # colours have no width


@pytest.mark.parametrize("terminal", [True, False])
@pytest.mark.parametrize("width", [None, 10, 40, 80, 200])
def test_no_number_is_cut_at_any_width(width: int | None, terminal: bool) -> None:
    text = shown(width, terminal)
    for number in (cell for row in NUMBERS for cell in row):
        assert number in text
    assert "\u2026" not in text
    assert "[bold]" in text
    assert ":smile:" in text


def test_a_pipe_gets_one_line_per_row_and_a_narrow_terminal_folds_names() -> None:
    assert NAMES[0] in shown(40, terminal=False)
    narrow = shown(60, terminal=True)
    assert NAMES[0] not in narrow
    folded = "".join(line.split("\u2502")[1].strip() for line in narrow.splitlines() if "\u2502" in line)
    assert NAMES[0] in folded


def test_a_terminal_that_is_wide_enough_is_not_exceeded() -> None:
    assert max(map(len, shown(80, terminal=True).splitlines())) <= 80


EVIL = "red \x1b[31m bell \x07 csi \x9b2J back \u202e half \ud800 ü"


def test_no_terminal_escape_is_printed(capfd: pytest.CaptureFixture[str]) -> None:
    echo(EVIL)
    echo(EVIL, err=True)
    echo_json({"name": EVIL})
    screen = Screen(terminal=False)
    screen.say(EVIL)
    screen.show(table(EVIL, [EVIL, "n"], [[EVIL, EVIL]]))
    with SlowProgress(0.0, Console(stderr=True)) as progress:
        progress(EVIL, 1, 2)
    out, said = capfd.readouterr()
    for text in (out, said):
        assert not set(text) & set("\x1b\x07\x9b\u202e\ud800")
        assert "\\x1b[31m" in text
        assert "ü" in text
    start = out.index("{")
    assert json.loads(out[start : out.index("}") + 1])["name"] == EVIL


def test_names_of_files_and_options_reach_no_terminal_as_escapes(tmp_path: Path) -> None:
    for words in (["route", "-r", EVIL[:-9], "x"], ["route", "--batch", f"{EVIL[:-9]}.csv", "-o", "o.csv"]):
        done = pandora(*words)
        assert done.exit_code == 2
        assert not set(done.output) & set("\x1b\x07\x9b\u202e")


class Lines(io.StringIO):
    """A file that says when its third line is complete."""

    def __init__(self) -> None:
        super().__init__()
        self.third = threading.Event()

    def write(self, text: str) -> int:
        written = super().write(text)
        if self.getvalue().count("\n") >= 3:
            self.third.set()
        return written


def test_a_pipe_hears_of_one_long_step_while_it_runs() -> None:
    lines = Lines()
    with SlowProgress(0.01, Console(file=lines), every=0.01) as progress:
        progress("seed 1", 0, 4)
        assert lines.third.wait(60)  # no second report comes
    heard = lines.getvalue().splitlines()
    assert set(heard) == {f"seed 1: 0 of 4 (0%), {n} s" for n in range(60)} & set(heard)
    assert not [thread for thread in threading.enumerate() if "_tick" in thread.name]
