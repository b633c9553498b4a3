"""From rows of a file to cells of the table: which row fills which cell, and the table with its fees.

Independent of file formats and of fee rules; every importer ends here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from pandora_router.data.fees import Facts, Fees, price
from pandora_router.data.importers.formats import CodedColumn, Codes
from pandora_router.data.importers.sheet import Sheet
from pandora_router.data.splits import USUAL, keep
from pandora_router.data.storage import Limits
from pandora_router.data.table import Table
from pandora_router.errors import UsageError
from pandora_router.types import Contexts, Matrix, Vector

Repeats = Literal["refuse", "first", "max"]
"""What to do if a cell occurs twice: refuse, take the first, or take the highest score."""


@dataclass(frozen=True, eq=False)
class Prompts:
    """The rows of the table: one entry per prompt."""

    ids: tuple[str, ...]
    texts: tuple[str, ...]
    tasks: tuple[str, ...]
    split: tuple[str, ...]
    """As in the source; empty where it names none."""


@dataclass(frozen=True, eq=False)
class Answers:
    """The cells of the table."""

    specialists: tuple[str, ...]
    score: Matrix
    per_cell: Mapping[str, Matrix] = field(default_factory=dict)
    per_specialist: Mapping[str, Vector] = field(default_factory=dict)
    unreadable: Mapping[str, UsageError] = field(default_factory=dict)
    contexts: Contexts | None = None


def assemble(
    prompts: Prompts,
    answers: Answers,
    *,
    fees: Fees,
    fee_weight: float,
    split_meaning: Mapping[str, str] = USUAL,
) -> Table:
    """The table, with fees computed by `fees` from the numbers found beside the scores."""
    facts = Facts(
        specialists=answers.specialists,
        prompt_characters=np.array([len(text) for text in prompts.texts], dtype=np.float64),
        scored=~np.isnan(answers.score),
        per_specialist=answers.per_specialist,
        per_cell=answers.per_cell,
        unreadable=answers.unreadable,
    )
    return Table(
        prompt_ids=prompts.ids,
        prompts=prompts.texts,
        tasks=prompts.tasks,
        split=keep(prompts.split, split_meaning),
        specialists=answers.specialists,
        score=answers.score,
        fee=price(fees, facts),
        contexts=answers.contexts,
        fee_weight=fee_weight,
    )


def prompts_of(
    sheet: Sheet, *, prompt_id: str | None, prompt: str, task: str | None, split: str | None
) -> tuple[Prompts, Codes]:
    """The distinct prompts of a sheet in order of appearance, and the prompt number of each row.

    Without an id column, prompts are distinguished by their text.
    """
    ids = sheet.text(prompt_id or prompt)
    first = _first_rows(ids)
    texts = _constant(sheet, sheet.text(prompt), prompt, ids, first)
    tasks = _constant(sheet, sheet.text(task), task, ids, first) if task else ("",) * len(first)
    given = _constant(sheet, sheet.text(split), split, ids, first) if split else ("",) * len(first)
    names = ids.values if prompt_id else tuple(f"{sheet.path.stem}/{row + 1}" for row in first.tolist())
    return Prompts(names, texts, tasks, given), ids.codes


def place(
    sheet: Sheet,
    rows: Codes,
    columns: Codes,
    score: Vector,
    shape: tuple[int, int],
    *,
    repeats: Repeats,
    named: str,
    limits: Limits,
) -> npt.NDArray[np.int64]:
    """The number of the row that fills each cell, -1 for none; (N, M)."""
    if repeats not in get_args(Repeats):
        raise UsageError(
            "repeats", expected=f"one of {', '.join(get_args(Repeats))}", came=repr(repeats), do="Pick one."
        )
    limits.hold(f"{sheet.path.name}, prompts x specialists,", "cells", shape[0] * shape[1])
    cell = rows * shape[1] + columns
    chosen = np.full(shape[0] * shape[1], -1, dtype=np.int64)
    at = np.arange(len(cell))
    if repeats == "max":
        order = np.argsort(np.where(np.isnan(score), -np.inf, score), kind="stable")
    else:
        order = at[::-1]
    chosen[cell[order]] = order  # the last assignment wins
    if repeats == "refuse":
        again = np.flatnonzero(chosen[cell] != at)
        if again.size:
            row = int(again[0])
            earlier = int(chosen[cell[row]]) + 1
            raise sheet.complaint(
                row,
                named,
                "every prompt and specialist once",
                f"the same pair as in row {earlier} ({again.size} such rows)",
                "Remove the repeats, or ask for repeats='first' or 'max' (--repeats).",
            )
    return chosen.reshape(shape)


def gather(values: Vector, chosen: npt.NDArray[np.int64]) -> Matrix:
    """The numbers of the chosen rows, NaN where there is none."""
    return np.where(chosen < 0, np.nan, values[chosen])


def gather_texts(values: npt.NDArray[np.object_], chosen: npt.NDArray[np.int64]) -> Contexts:
    """The texts of the chosen rows, None where there is none."""
    texts = values[chosen]
    texts[chosen < 0] = None
    return texts


def number_columns(
    sheet: Sheet, besides: Sequence[str | None]
) -> tuple[dict[str, Vector], dict[str, UsageError]]:
    """All other columns that have only numbers, and for the rest an error that says where they do not."""
    readable, unreadable = {}, {}
    for name in sheet.columns:
        if name not in besides:
            try:
                readable[name] = sheet.numbers(name)
            except UsageError as error:
                unreadable[name] = error
    return readable, unreadable


def _first_rows(column: CodedColumn) -> Codes:
    first = np.full(len(column.values), len(column.codes), dtype=np.int64)
    np.minimum.at(first, column.codes, np.arange(len(column.codes)))
    return first


def _constant(
    sheet: Sheet, column: CodedColumn, name: str, ids: CodedColumn, first: Codes
) -> tuple[str, ...]:
    """The value of a column for each prompt; `UsageError` if rows of one prompt differ."""
    odd = np.flatnonzero(column.codes != column.codes[first][ids.codes])
    if odd.size:
        row = int(odd[0])
        code = ids.codes[row]
        raise sheet.complaint(
            row,
            name,
            f"the same as in row {int(first[code]) + 1} for prompt {ids.values[code][:40]!r}",
            repr(column.values[column.codes[row]]),
            "One id means one prompt.",
        )
    return tuple(column.values[code] for code in column.codes[first].tolist())
