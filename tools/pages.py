"""Parts of the pages of docs/ that commands write; the text around them is written by hand.

The part `load` stands between `<!-- load: begin -->` and `<!-- load: end -->`. If a page has a single part,
its name is `measured`.
"""

from __future__ import annotations

from pathlib import Path

from pandora_router.errors import UsageError
from pandora_router.folders.publication import replace_text

USUAL = "measured"


def parts(page: Path, name: str = USUAL) -> tuple[str, str, str]:
    """The text of `page` up to the part `name`, the part, and what follows, with the marks in the outer two.

    Raises `UsageError` if the page lacks a mark.
    """
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    before, opened, rest = page.read_text().partition(begin)
    between, closed, after = rest.partition(end)
    if not opened or not closed:
        raise UsageError(str(page), expected=f"the marks {begin} and {end}", came="none", do="Add them.")
    return before + opened, between, closed + after


def table_rows(page: Path) -> list[list[str]]:
    """The cells of the table in the part `measured` of `page`, row by row, without its head."""
    lines = [line.strip("| ") for line in parts(page)[1].splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.split("|")] for line in lines[2:]]


def put(new: str, page: Path, name: str = USUAL) -> None:
    """Replace the part `name` of `page`; raises `UsageError` if the page has no such part.

    A page that does not exist is written with this part alone. Blank lines keep the marks apart from a table,
    which would take a mark for one of its rows.
    """
    if not page.exists():
        replace_text(page, f"<!-- {name}: begin --><!-- {name}: end -->\n")
    before, _, after = parts(page, name)
    replace_text(page, f"{before}\n\n{new.strip()}\n\n{after}")
