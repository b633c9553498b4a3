"""RouteLLM's public files: `mmlu_<subject>.csv` and `gsm8k_responses.csv`.

Both have the prompt and a True/False column per model; the latter also has the written answers in
`<model>_response`. Neither has ids, so a prompt is identified by file and row; neither has costs, so fees
must be given.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from pandora_router.data.fees import Fees
from pandora_router.data.importers.formats import CodedColumn
from pandora_router.data.importers.grid import Repeats
from pandora_router.data.importers.sheet import Sheet, read_sheet
from pandora_router.data.importers.wide import WideColumns, table_of
from pandora_router.data.joins import stack
from pandora_router.data.limits import Limits
from pandora_router.data.table import Table
from pandora_router.errors import UsageError
from pandora_router.types import Progress

_ROW = "\0row"


def read_routellm(
    path: Path | str,
    *,
    fees: Fees,
    fee_weight: float = 1.0,
    repeats: Repeats = "refuse",
    limits: Limits | None = None,
    progress: Progress | None = None,
) -> Table:
    """Read a file, or a folder of them; the task is `mmlu/<subject>` or `gsm8k`, from the file name."""
    path, limits = Path(path), limits or Limits()
    files = sorted(path.rglob("*.csv")) if path.is_dir() else [path]
    if not files:
        raise UsageError(str(path), expected="csv files", came="none", do="Check the path.")
    tables = []
    for file in files:
        sheet = _with_rows(read_sheet(file, limits=limits, progress=progress))
        answers = any(name.endswith("_response") for name in sheet.columns)
        columns = WideColumns(prompt_id=_ROW, context="{}_response" if answers else None)
        table = table_of(sheet, columns, fees=fees, fee_weight=fee_weight, repeats=repeats, limits=limits)
        tables.append(replace(table, tasks=(_task(file.stem),) * len(table)))
    return stack(tables)


def _with_rows(sheet: Sheet) -> Sheet:
    """The sheet with an id column made of file and row, so that equal texts stay separate prompts."""
    names = tuple(f"{sheet.path.stem}/{row + 1}" for row in range(sheet.rows))
    column = CodedColumn(np.arange(sheet.rows), names)
    return Sheet(sheet.path, sheet.rows, {**sheet.columns, _ROW: column})


def _task(stem: str) -> str:
    if stem.startswith("mmlu_"):
        return f"mmlu/{stem.removeprefix('mmlu_')}"
    return stem.removesuffix("_responses")
