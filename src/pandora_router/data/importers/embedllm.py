"""EmbedLLM's public files: `train.csv`, `val.csv`, `test.csv`, with `question_order.csv` beside them.

Each row is a prompt and a model: prompt_id, model_id, category, label (0 or 1), model_name, prompt. The
prompt is repeated for each of the 112 models, so if `question_order.csv` (prompt_id, prompt) exists the texts
are taken from it and skipped in the large files. `model_order.csv` (model_id, model_name) provides names if
the large files have none. If a pair occurs twice it counts as right if either row does, as in EmbedLLM's
code.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from pandora_router.data.fees import Facts, Fees, Free, price
from pandora_router.data.importers.formats import CodedColumn
from pandora_router.data.importers.grid import Repeats, assemble, prompts_of
from pandora_router.data.importers.long import LongColumns, answers_of
from pandora_router.data.importers.sheet import Sheet, read_sheet
from pandora_router.data.joins import stack
from pandora_router.data.limits import Limits
from pandora_router.data.table import Table
from pandora_router.errors import UsageError
from pandora_router.types import Progress

_PARTS = {"train": "train", "val": "calibration", "test": "test"}
_COLUMNS = ("prompt_id", "model_id", "category", "label", "model_name", "prompt")


def read_embedllm(
    path: Path | str,
    *,
    fees: Fees,
    fee_weight: float = 1.0,
    repeats: Repeats = "max",
    limits: Limits | None = None,
    progress: Progress | None = None,
) -> Table:
    """Read the folder with the csv files, or one of them; `val.csv` becomes the calibration split."""
    path, limits = Path(path), limits or Limits()
    home = path if path.is_dir() else path.parent
    parts = [home / f"{name}.csv" for name in _PARTS] if path.is_dir() else [path]
    parts = [part for part in parts if part.is_file()]
    if not parts:
        raise UsageError(
            str(path), expected="train.csv, val.csv or test.csv", came="none of them", do="Check the path."
        )
    texts = _order(home / "question_order.csv", "prompt_id", "prompt", limits)
    names = _order(home / "model_order.csv", "model_id", "model_name", limits)
    tables = []
    for part in parts:
        wanted = _COLUMNS[:-1] if texts else _COLUMNS
        sheet = read_sheet(part, columns=wanted, limits=limits, progress=progress)
        tables.append(_unpriced(sheet, texts, names, repeats, limits))
    everyone = tuple(dict.fromkeys(name for table in tables for name in table.specialists))
    whole = stack([_widened(table, everyone) for table in tables])
    characters = np.array([len(text) for text in whole.prompts], dtype=np.float64)
    fee = price(fees, Facts(everyone, characters, ~whole.missing))
    return replace(whole, fee=fee, fee_weight=fee_weight)


def _unpriced(
    sheet: Sheet, texts: Mapping[str, str], names: Mapping[str, str], repeats: Repeats, limits: Limits
) -> Table:
    """One part, without fees: these are computed for all parts together, as a part may lack a specialist."""
    if texts:
        sheet = _translated(sheet, "prompt_id", "prompt", texts, "question_order.csv")
    if names and "model_name" not in sheet.columns:
        sheet = _translated(sheet, "model_id", "model_name", names, "model_order.csv")
    prompts, rows = prompts_of(
        sheet,
        prompt_id="prompt_id",
        prompt="prompt",
        task="category" if "category" in sheet.columns else None,
        split=None,
    )
    columns = LongColumns(
        specialist="model_name", score="label", prompt_id="prompt_id", task="category", split="model_id"
    )
    answers = answers_of(sheet, rows, len(prompts.ids), columns, repeats=repeats, limits=limits)
    split = _PARTS.get(sheet.path.stem, "")
    return assemble(replace(prompts, split=(split,) * len(prompts.ids)), answers, fees=Free(), fee_weight=0.0)


def _order(path: Path, key: str, value: str, limits: Limits) -> dict[str, str]:
    """The content of an order file; empty if there is none."""
    if not path.is_file():
        return {}
    sheet = read_sheet(path, columns=(key, value), limits=limits)
    keys, values = sheet.text(key), sheet.text(value)
    return {
        keys.values[k]: values.values[v]
        for k, v in zip(keys.codes.tolist(), values.codes.tolist(), strict=True)
    }


def _translated(sheet: Sheet, key: str, value: str, book: Mapping[str, str], source: str) -> Sheet:
    """The sheet with an additional column, looked up in an order file."""
    keys = sheet.text(key)
    for code, name in enumerate(keys.values):
        if name not in book:
            row = int(np.flatnonzero(keys.codes == code)[0])
            raise sheet.complaint(
                row, key, f"an id that {source} has", repr(name), "Fetch the matching file."
            )
    code_of = {text: code for code, text in enumerate(dict.fromkeys(book[name] for name in keys.values))}
    codes = np.array([code_of[book[name]] for name in keys.values], dtype=np.int64)[keys.codes]
    return Sheet(sheet.path, sheet.rows, {**sheet.columns, value: CodedColumn(codes, tuple(code_of))})


def _widened(table: Table, everyone: tuple[str, ...]) -> Table:
    """The table with a column for every specialist; added columns are missing."""
    silent = [name for name in everyone if name not in table.specialists]
    if not silent:
        return table.only(everyone)
    blank = np.full((len(table), len(silent)), np.nan)
    wide = replace(
        table,
        specialists=table.specialists + tuple(silent),
        score=np.hstack([table.score, blank]),
        fee=np.hstack([table.fee, blank]),
    )
    return wide.only(everyone)
