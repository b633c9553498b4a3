"""Two general layouts of files: a row per answer (long), or a row per prompt (wide).

One row per prompt and specialist: files in CSV, TSV, JSON lines or Parquet, and data frames.

Wide files: one row per prompt, one or more columns per specialist.

The names of a specialist's columns are patterns with `{}` in place of its name: `score="{}"`,
`numbers={"total_cost": "{}|total_cost"}`, `context="{}_response"`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from pandora_router.data.fees import Fees, FromColumn, PerSpecialist
from pandora_router.data.importers.formats import CodedColumn, Codes, Dialect
from pandora_router.data.importers.grid import (
    Answers,
    Repeats,
    assemble,
    gather,
    gather_texts,
    number_columns,
    place,
    prompts_of,
)
from pandora_router.data.importers.sheet import Sheet, number_of, read_sheet
from pandora_router.data.splits import USUAL
from pandora_router.data.storage import Limits
from pandora_router.data.table import Table
from pandora_router.errors import UsageError
from pandora_router.types import Progress


@dataclass(frozen=True)
class LongColumns:
    """The name of each column; None if the file does not have it."""

    specialist: str = "model"
    score: str = "score"
    prompt: str = "prompt"
    prompt_id: str | None = None
    task: str | None = None
    split: str | None = None
    context: str | None = None

    @property
    def named(self) -> tuple[str | None, ...]:
        """The columns used above; other numeric columns can be used by fee rules."""
        return (self.specialist, self.score, self.prompt, self.prompt_id, self.task, self.split, self.context)


def read_long(
    path: Path | str,
    *,
    fees: Fees,
    columns: LongColumns | None = None,
    fee_weight: float = 1.0,
    repeats: Repeats = "refuse",
    split_meaning: Mapping[str, str] = USUAL,
    limits: Limits | None = None,
    progress: Progress | None = None,
    dialect: Dialect | None = None,
) -> Table:
    """Read a long file; pairs that do not occur are missing cells.

    Further numeric columns can be used by fee rules (`FromColumn`, `PerToken`).
    """
    columns, limits = columns or LongColumns(), limits or Limits()
    sheet = read_sheet(path, limits=limits, progress=progress, dialect=dialect)
    columns = spelt(sheet, columns)
    prompts, rows = prompts_of(
        sheet, prompt_id=columns.prompt_id, prompt=columns.prompt, task=columns.task, split=columns.split
    )
    answers = answers_of(sheet, rows, len(prompts.ids), columns, repeats=repeats, limits=limits)
    return assemble(prompts, answers, fees=fees, fee_weight=fee_weight, split_meaning=split_meaning)


def read_frame(
    frame: object, names: Mapping[str, str], *, fee: str | Mapping[str, float], fee_weight: float
) -> Table:
    """Read a data frame; see `Table.from_frame`. `names` has the columns by kind, as in `LongColumns`.

    The frame is written to a temporary Parquet file, so that frames and files are checked alike.
    """
    unknown = sorted(set(names) - set(LongColumns.__dataclass_fields__))
    try:
        content = pa.table(frame)
    except (TypeError, ValueError, pa.ArrowException) as error:
        raise UsageError(
            "a data frame",
            expected="one of pandas, polars or Arrow, with columns of texts and numbers",
            came=f"{type(frame).__name__} ({str(error)[:100]})",
            do="Convert it to one of them.",
        ) from None
    if unknown:
        raise UsageError(
            "the columns of a data frame",
            expected=f"columns for {', '.join(LongColumns.__dataclass_fields__)}",
            came=unknown[0],
            do="Rename it.",
        )
    with TemporaryDirectory() as folder:
        path = Path(folder) / "frame.parquet"
        pa.parquet.write_table(content, path)
        fees = FromColumn(fee) if isinstance(fee, str) else PerSpecialist(dict(fee))
        return read_long(path, fees=fees, columns=LongColumns(**names), fee_weight=fee_weight)


def spelt(sheet: Sheet, columns: LongColumns) -> LongColumns:
    """The columns as the header of the file writes them, in upper or lower case."""
    names = {kind: name for kind, name in vars(columns).items() if name is not None}
    return LongColumns(**{kind: sheet.spelt(name) for kind, name in names.items()})


def answers_of(
    sheet: Sheet, rows: Codes, n: int, columns: LongColumns, *, repeats: Repeats, limits: Limits
) -> Answers:
    """The cells of a long sheet; `rows` has the prompt number of each row."""
    names = sheet.text(columns.specialist)
    score = sheet.numbers(columns.score)
    shape = (n, len(names.values))
    chosen = place(
        sheet, rows, names.codes, score, shape, repeats=repeats, named=columns.specialist, limits=limits
    )
    numbers, unreadable = number_columns(sheet, columns.named)
    return Answers(
        specialists=names.values,
        score=gather(score, chosen),
        unreadable=unreadable,
        per_cell={name: gather(values, chosen) for name, values in numbers.items()},
        contexts=gather_texts(sheet.optional_text(columns.context), chosen) if columns.context else None,
    )


Reword = Callable[[str], str]


@dataclass(frozen=True)
class WideColumns:
    """Names and patterns of the columns.

    Without `specialists` they are detected: every column that matches the score pattern and contains a
    number, except columns with another meaning.
    """

    specialists: tuple[str, ...] = ()
    prompt: str = "prompt"
    prompt_id: str | None = None
    task: str | None = None
    split: str | None = None
    score: str = "{}"
    context: str | None = None
    numbers: Mapping[str, str] = field(default_factory=dict)
    """Further numbers per specialist, by the name that a fee rule uses."""

    @property
    def named(self) -> tuple[str | None, ...]:
        """The columns of the prompt."""
        return (self.prompt, self.prompt_id, self.task, self.split)

    def of(self, specialist: str) -> list[str]:
        """The columns of a specialist, the score first."""
        patterns = [self.score, *self.numbers.values(), *([self.context] if self.context else [])]
        return [pattern.replace("{}", specialist) for pattern in patterns]


def read_wide(
    path: Path | str,
    *,
    fees: Fees,
    columns: WideColumns | None = None,
    fee_weight: float = 1.0,
    repeats: Repeats = "refuse",
    split_meaning: Mapping[str, str] = USUAL,
    limits: Limits | None = None,
    progress: Progress | None = None,
    dialect: Dialect | None = None,
) -> Table:
    """Read a wide file; an empty field is a missing cell."""
    columns, limits = columns or WideColumns(), limits or Limits()
    sheet = read_sheet(path, limits=limits, progress=progress, dialect=dialect)
    named = zip(("prompt", "prompt_id", "task", "split"), columns.named, strict=True)
    spelt: dict[str, Any] = {kind: sheet.spelt(name) for kind, name in named if name is not None}
    return table_of(
        sheet,
        replace(columns, **spelt),
        fees=fees,
        fee_weight=fee_weight,
        repeats=repeats,
        split_meaning=split_meaning,
        limits=limits,
    )


def table_of(
    sheet: Sheet,
    columns: WideColumns,
    *,
    fees: Fees,
    fee_weight: float,
    repeats: Repeats,
    limits: Limits,
    split_meaning: Mapping[str, str] = USUAL,
) -> Table:
    """A sheet in memory as a table."""
    if "{}" not in columns.score:
        raise UsageError(
            "the score columns",
            expected="a pattern with {}",
            came=repr(columns.score),
            do="Try '{}' or '{}_score'.",
        )
    specialists = columns.specialists or find_specialists(sheet, columns)
    prompts, rows = prompts_of(
        sheet, prompt_id=columns.prompt_id, prompt=columns.prompt, task=columns.task, split=columns.split
    )
    limits.hold(f"{sheet.path.name}, prompts x specialists,", "cells", len(prompts.ids) * len(specialists))
    answers = _answers(sheet, rows, len(prompts.ids), specialists, columns, repeats, limits)
    return assemble(prompts, answers, fees=fees, fee_weight=fee_weight, split_meaning=split_meaning)


def find_specialists(sheet: Sheet, columns: WideColumns) -> tuple[str, ...]:
    """The specialists of a file, in its order: every score column that contains a number.

    Raises `UsageError` for a specialist without its further columns (a cost, an answer).
    """
    before, after = columns.score.split("{}", 1)
    candidates = []
    for name in sheet.columns:
        inner = name[len(before) : len(name) - len(after)]
        if not inner or name in columns.named or not (name.startswith(before) and name.endswith(after)):
            continue
        if not name.startswith("Unnamed:") and _has_numbers(sheet, name):
            candidates.append(inner)
    # a column that belongs to another specialist (its cost, its answer) is not a specialist
    theirs = {other for name in candidates for other in columns.of(name)[1:]}
    specialists = tuple(name for name in candidates if columns.of(name)[0] not in theirs)
    lacking = [
        (name, other) for name in specialists for other in columns.of(name) if other not in sheet.columns
    ]
    if lacking or not specialists:
        name, other = lacking[0] if lacking else ("NAME", columns.of("NAME")[0])
        raise UsageError(
            sheet.path.name,
            expected=f"a column {other!r} for specialist {name!r}",
            came=f"columns {', '.join(sheet.columns)}",
            do="Say how score columns are called, {} standing for the name (--score-column '{}_correct'), or "
            "name the specialists (--specialist NAME, once for each).",
        )
    return specialists


def reworded(sheet: Sheet, names: Sequence[str], reword: Reword) -> Sheet:
    """The sheet with `reword` applied to the texts of some columns."""
    changed = dict(sheet.columns)
    for name in names:
        column = sheet.column(name)
        values = tuple(reword(value) if isinstance(value, str) else value for value in column.values)
        book = {value: code for code, value in enumerate(dict.fromkeys(values))}
        renumber = np.array([book[value] for value in values], dtype=np.int64)
        changed[name] = CodedColumn(renumber[column.codes], tuple(book))
    return Sheet(sheet.path, sheet.rows, changed)


def _answers(
    sheet: Sheet,
    rows: Codes,
    n: int,
    specialists: tuple[str, ...],
    columns: WideColumns,
    repeats: Repeats,
    limits: Limits,
) -> Answers:
    score = np.empty((n, len(specialists)))
    per_cell = {name: np.empty_like(score) for name in columns.numbers}
    contexts = np.full(score.shape, None, dtype=object) if columns.context else None
    for j, name in enumerate(specialists):
        own = columns.of(name)
        values = sheet.numbers(own[0])
        chosen = place(
            sheet,
            rows,
            np.zeros_like(rows),
            values,
            (n, 1),
            repeats=repeats,
            named=columns.named[1] or columns.prompt,
            limits=limits,
        )
        score[:, j] = gather(values, chosen)[:, 0]
        for label, pattern in columns.numbers.items():
            per_cell[label][:, j] = gather(sheet.numbers(pattern.replace("{}", name)), chosen)[:, 0]
        if contexts is not None:
            contexts[:, j] = gather_texts(sheet.optional_text(own[-1]), chosen)[:, 0]
    return Answers(specialists, score, per_cell=per_cell, contexts=contexts)


def _has_numbers(sheet: Sheet, name: str) -> bool:
    numbers = (number_of(value) for value in sheet.columns[name].values)
    return any(number is not None and not math.isnan(number) for number in numbers)
