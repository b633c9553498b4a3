"""One row per prompt and specialist: files in CSV, TSV, JSON lines or Parquet, and data frames."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.parquet

from pandora_router.data.fees import Fees, FromColumn, PerSpecialist
from pandora_router.data.importers.formats import Codes, Dialect
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
from pandora_router.data.importers.sheet import Sheet, read_sheet
from pandora_router.data.limits import Limits
from pandora_router.data.splits import USUAL
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
