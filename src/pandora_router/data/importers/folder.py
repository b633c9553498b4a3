"""The folder layout: `prompts.parquet`, `scores.parquet`, optionally `models.parquet`, `context.parquet`.

prompts: prompt_id, prompt, task, split. scores: prompt_id, model, score, and any numbers per answer.
models: model and any numbers per model. context: prompt_id, model, context.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from pandora_router.data.fees import Fees
from pandora_router.data.importers.formats import Codes
from pandora_router.data.importers.grid import (
    Answers,
    Prompts,
    assemble,
    gather_texts,
    number_columns,
    place,
    prompts_of,
)
from pandora_router.data.importers.layouts import LongColumns, answers_of
from pandora_router.data.importers.sheet import Sheet, read_sheet
from pandora_router.data.splits import USUAL
from pandora_router.data.storage import Limits
from pandora_router.data.table import Table
from pandora_router.errors import UsageError
from pandora_router.types import Contexts, Matrix, Progress

_CELLS = LongColumns(specialist="model", score="score", prompt_id="prompt_id")


def read_folder(
    path: Path | str,
    *,
    fees: Fees,
    fee_weight: float = 1.0,
    split_meaning: Mapping[str, str] = USUAL,
    limits: Limits | None = None,
    progress: Progress | None = None,
) -> Table:
    """Read a folder, with the split it came with; specialists in the order of the models file.

    Numeric columns of the scores file and of the models file can be used by `fees`.
    """
    path, limits = Path(path), limits or Limits()
    sheets = {
        name: read_sheet(path / f"{name}.parquet", limits=limits, progress=progress)
        for name in ("prompts", "scores", "models", "context")
        if name in ("prompts", "scores") or (path / f"{name}.parquet").is_file()
    }
    prompts = _prompts(sheets["prompts"])
    where = {name: i for i, name in enumerate(prompts.ids)}
    scores = sheets["scores"]
    answers = answers_of(scores, _rows(scores, where), len(where), _CELLS, repeats="refuse", limits=limits)
    if "models" in sheets:
        answers = _with_models(answers, sheets["models"])
    if "context" in sheets:
        answers = replace(answers, contexts=_contexts(sheets["context"], where, answers.specialists, limits))
    return assemble(prompts, answers, fees=fees, fee_weight=fee_weight, split_meaning=split_meaning)


def _prompts(sheet: Sheet) -> Prompts:
    prompts, rows = prompts_of(
        sheet,
        prompt_id="prompt_id",
        prompt="prompt",
        task="task" if sheet.has("task") else None,
        split="split" if sheet.has("split") else None,
    )
    if len(prompts.ids) != sheet.rows:
        counts = np.bincount(rows)
        again = np.flatnonzero(counts[rows] > 1)
        raise sheet.complaint(
            int(again[1]),
            "prompt_id",
            "every id once",
            repr(prompts.ids[rows[again[1]]]),
            "Make the ids unique.",
        )
    return prompts


def _rows(sheet: Sheet, where: Mapping[str, int]) -> Codes:
    """The prompt number of each row."""
    ids = sheet.text("prompt_id")
    known = np.array([where.get(name, -1) for name in ids.values], dtype=np.int64)[ids.codes]
    lost = np.flatnonzero(known < 0)
    if lost.size:
        row = int(lost[0])
        raise sheet.complaint(
            row,
            "prompt_id",
            "an id that prompts.parquet has",
            f"{ids.values[ids.codes[row]]!r} ({lost.size} such rows)",
            "Add the prompts or leave these rows out.",
        )
    return known


def _with_models(answers: Answers, models: Sheet) -> Answers:
    """The answers with specialists in the order of the models file, and its numeric columns."""
    listed = models.text("model")
    if len(listed.values) != models.rows:
        row = int(np.flatnonzero(listed.codes != np.arange(models.rows))[0])
        raise models.complaint(
            row, "model", "every model once", repr(listed.values[listed.codes[row]]), "Remove one."
        )
    unlisted = sorted(set(answers.specialists) - set(listed.values))
    if unlisted:
        raise UsageError(
            models.path.name,
            expected="every model of scores.parquet",
            came=f"no {unlisted[0]!r}",
            do="Add it.",
        )
    have = {name: j for j, name in enumerate(answers.specialists)}
    order = np.array([have.get(name, -1) for name in listed.values])
    silent = order < 0

    def spread(matrix: Matrix) -> Matrix:
        return np.where(silent, np.nan, matrix[:, order])

    numbers, unreadable = number_columns(models, ("model",))
    return replace(
        answers,
        specialists=listed.values,
        score=spread(answers.score),
        per_cell={name: spread(values) for name, values in answers.per_cell.items()},
        per_specialist=numbers,
        unreadable={**answers.unreadable, **unreadable},
    )


def _contexts(
    sheet: Sheet, where: Mapping[str, int], specialists: tuple[str, ...], limits: Limits
) -> Contexts:
    names = sheet.text("model")
    unlisted = sorted(set(names.values) - set(specialists))
    if unlisted:
        row = int(np.flatnonzero(names.codes == names.values.index(unlisted[0]))[0])
        raise sheet.complaint(row, "model", "a model with scores", repr(unlisted[0]), "Check the spelling.")
    columns = np.array([specialists.index(name) for name in names.values], dtype=np.int64)[names.codes]
    shape = (len(where), len(specialists))
    chosen = place(
        sheet,
        _rows(sheet, where),
        columns,
        np.zeros(sheet.rows),
        shape,
        repeats="refuse",
        named="model",
        limits=limits,
    )
    return gather_texts(sheet.optional_text("context"), chosen)
