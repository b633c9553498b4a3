"""Parts of a Markdown page that commands write; the text around them is written by hand.

The part `load` stands between the lines `<!-- load: begin -->` and `<!-- load: end -->`.
"""

from __future__ import annotations

from pathlib import Path

from pandora_router.errors import UsageError
from pandora_router.folders.writing import replace_text


def write_part(page: Path, name: str, text: str) -> None:
    """Replace what stands between the marks of the part `name`; raises `UsageError` if `page` lacks them."""
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    whole = page.read_text()
    before, opened, rest = whole.partition(begin)
    _, closed, after = rest.partition(end)
    if not opened or not closed:
        raise UsageError(str(page), expected=f"the marks {begin} and {end}", came="none", do="Add them.")
    replace_text(page, f"{before}{begin}\n{text.strip()}\n{end}{after}")
