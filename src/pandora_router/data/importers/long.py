"""Long files: one row per prompt and specialist, in CSV, TSV, JSON lines or Parquet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pandora_router.data.fees import Fees
from pandora_router.data.importers.formats import Codes
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
) -> Table:
    """Read a long file; pairs that do not occur are missing cells.

    Further numeric columns can be used by fee rules (`FromColumn`, `PerToken`).
    """
    columns, limits = columns or LongColumns(), limits or Limits()
    sheet = read_sheet(path, limits=limits, progress=progress)
    prompts, rows = prompts_of(
        sheet, prompt_id=columns.prompt_id, prompt=columns.prompt, task=columns.task, split=columns.split
    )
    answers = answers_of(sheet, rows, len(prompts.ids), columns, repeats=repeats, limits=limits)
    return assemble(prompts, answers, fees=fees, fee_weight=fee_weight, split_meaning=split_meaning)


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
