"""Capitals, elements and definitions from three packages, and the corpus that says about half of them.

`facts.parquet` is made by `python -m tools.make_facts`; sources and licences are in `NOTICE.txt` beside it.
How facts are asked for is in `questions`.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path

from pandora_router.specialists.retrieval import Passage, Passages

FILE = Path(__file__).with_name("facts.parquet")


@dataclass(frozen=True)
class Fact:
    """One fact: `answer` is its capital, symbol or definition, `also` are synonyms.

    `listed`: whether the corpus has it.
    """

    kind: str
    name: str
    answer: str
    number: int
    passage: str
    also: tuple[str, ...]
    listed: bool


@functools.cache
def facts() -> tuple[Fact, ...]:
    """Every fact, in the order of the file."""
    import pyarrow.parquet

    rows = pyarrow.parquet.read_table(FILE).to_pylist()
    return tuple(Fact(**{**row, "also": tuple(row["also"])}) for row in rows)


@functools.cache
def corpus() -> Passages:
    """The passages of the corpus: those of the listed facts, and fillers that no question is about."""
    return Passages(tuple(Passage("", fact.passage) for fact in facts() if fact.listed))
