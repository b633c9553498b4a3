"""Pages of docs/ that hold measured numbers between two marks; the text around them is written by hand."""

from __future__ import annotations

from pathlib import Path

from pandora_router.errors import UsageError
from pandora_router.folders.writing import replace_text

BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"


def measured(page: Path) -> tuple[str, str, str]:
    """The text before the marks of `page`, between and after them; raises `UsageError` if it has none."""
    text = page.read_text()
    if BEGIN not in text or END not in text:
        raise UsageError(str(page), expected=f"the marks {BEGIN} and {END}", came="none", do="Add them.")
    before, _, rest = text.partition(BEGIN)
    between, _, after = rest.partition(END)
    return before, between, after


def table_rows(page: Path) -> list[list[str]]:
    """The cells of the table between the marks of `page`, row by row, without its head."""
    lines = [line.strip("| ") for line in measured(page)[1].splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.split("|")] for line in lines[2:]]


def put(new: str, page: Path) -> None:
    """Replace what stands between the marks of `page`; raises `UsageError` if it has none.

    Blank lines keep the marks apart from a table, which would take a mark for one of its rows.
    """
    before, _, after = measured(page)
    replace_text(page, f"{before}{BEGIN}\n\n{new.strip()}\n\n{END}{after}")
