"""Pages of docs/ that hold measured numbers between two marks; the text around them is written by hand."""

from __future__ import annotations

from pathlib import Path

from pandora_router.errors import UsageError
from pandora_router.folders.writing import replace_text

BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"


def put(measured: str, page: Path) -> None:
    """Replace what stands between the marks of `page`; raises `UsageError` if it has none."""
    text = page.read_text()
    if BEGIN not in text or END not in text:
        raise UsageError(str(page), expected=f"the marks {BEGIN} and {END}", came="none", do="Add them.")
    before, _, rest = text.partition(BEGIN)
    after = rest.partition(END)[2]
    replace_text(page, f"{before}{BEGIN}\n{measured}{END}{after}")
