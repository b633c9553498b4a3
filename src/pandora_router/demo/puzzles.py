"""Puzzles of five families of reasoning-gym.

`puzzles.parquet` is made by `python -m tools.make_reasoning`; the licence is in `NOTICE.txt` beside it. Which
of them are recorded is decided in `questions`.

    basic_arithmetic         a whole number      calculate an expression of two to four terms
    products                 a whole number      multiply two numbers of up to three digits
    fraction_simplification  a fraction          in its lowest terms
    gcd                      a whole number      the greatest common divisor of two numbers
    calendar_arithmetic      Yes or No           is this a leap year
"""

from __future__ import annotations

import functools
from pathlib import Path

FILE = Path(__file__).with_name("puzzles.parquet")


@functools.cache
def families() -> dict[str, tuple[tuple[str, str], ...]]:
    """Texts with their answers by family, in the order of the file."""
    import pyarrow.parquet

    by_family: dict[str, list[tuple[str, str]]] = {}
    for row in pyarrow.parquet.read_table(FILE).to_pylist():
        by_family.setdefault(row["family"], []).append((row["text"], row["answer"]))
    return {family: tuple(rows) for family, rows in by_family.items()}
