"""Published data sets of others: RouteLLM, RouterBench, EmbedLLM.

RouteLLM's public files: `mmlu_<subject>.csv` and `gsm8k_responses.csv`.

Both have the prompt and a True/False column per model; the latter also has the written answers in
`<model>_response`. Neither has ids, so a prompt is identified by file and row; neither has costs, so fees
must be given.

RouterBench's public layout: one row per sample, three columns per model.

sample_id, prompt, eval_name, then per model `<model>` (score), `<model>|model_response` and
`<model>|total_cost` (USD). Prompts and responses are often the printed form of a Python list; they are
unwrapped. The published file is a pickle, which is never read here: convert it to CSV or Parquet.

EmbedLLM's public files: `train.csv`, `val.csv`, `test.csv`, with `question_order.csv` beside them.

Each row is a prompt and a model: prompt_id, model_id, category, label (0 or 1), model_name, prompt. The
prompt is repeated for each of the 112 models, so if `question_order.csv` (prompt_id, prompt) exists the texts
are taken from it and skipped in the large files. `model_order.csv` (model_id, model_name) provides names if
the large files have none. If a pair occurs twice it counts as right if either row does, as in EmbedLLM's
code.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from pandora_router.data.fees import Facts, Fees, Free, FromColumn, price
from pandora_router.data.importers.formats import CodedColumn
from pandora_router.data.importers.grid import Repeats, assemble, prompts_of
from pandora_router.data.importers.layouts import (
    LongColumns,
    WideColumns,
    answers_of,
    find_specialists,
    reworded,
    table_of,
)
from pandora_router.data.importers.sheet import Sheet, read_sheet
from pandora_router.data.joins import stack
from pandora_router.data.storage import Limits
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


_WIDE = WideColumns(
    prompt_id="sample_id",
    prompt="prompt",
    task="eval_name",
    numbers={"total_cost": "{}|total_cost"},
    context="{}|model_response",
)
_SPLIT_OF_ENDING = {"train": "train", "val": "calibration", "valid": "calibration", "test": "test"}


def read_routerbench(
    path: Path | str,
    *,
    fees: Fees | None = None,
    fee_weight: float = 1.0,
    repeats: Repeats = "refuse",
    limits: Limits | None = None,
    progress: Progress | None = None,
) -> Table:
    """Read a file, or a folder of files such as `mbpp_train.csv`.

    Without `fees` the fee of an answer is its `total_cost`.
    A file name that ends in _train, _val or _test sets the split. Responses become the contexts.
    """
    path, limits = Path(path), limits or Limits()
    files = sorted(p for p in path.iterdir() if p.suffix in (".csv", ".parquet")) if path.is_dir() else [path]
    if not files:
        raise UsageError(str(path), expected="csv or parquet files", came="none", do="Check the path.")
    tables = []
    for file in files:
        sheet = read_sheet(file, limits=limits, progress=progress)
        names = find_specialists(sheet, _WIDE)
        listed = ["prompt", *(f"{name}|model_response" for name in names)]
        table = table_of(
            reworded(sheet, listed, unwrap),
            _WIDE,
            fees=fees or FromColumn("total_cost"),
            fee_weight=fee_weight,
            repeats=repeats,
            limits=limits,
        )
        split = _SPLIT_OF_ENDING.get(file.stem.rsplit("_", 1)[-1], "")
        tables.append(table.with_split([split] * len(table)))
    return stack(tables)


def unwrap(text: str) -> str:
    """The text inside a printed list of texts (several are joined by line breaks), else the text itself."""
    if not (text.startswith("[") and text.endswith("]")):
        return text
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escape sequences do not matter here
            inside = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text
    if isinstance(inside, list) and inside and all(isinstance(part, str) for part in inside):
        return "\n".join(inside)
    return text


_SPLIT_OF_PART = {"train": "train", "val": "calibration", "test": "test"}
_LONG = ("prompt_id", "model_id", "category", "label", "model_name", "prompt")


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
    parts = [home / f"{name}.csv" for name in _SPLIT_OF_PART] if path.is_dir() else [path]
    parts = [part for part in parts if part.is_file()]
    if not parts:
        raise UsageError(
            str(path), expected="train.csv, val.csv or test.csv", came="none of them", do="Check the path."
        )
    texts = _order(home / "question_order.csv", "prompt_id", "prompt", limits)
    names = _order(home / "model_order.csv", "model_id", "model_name", limits)
    tables = []
    for part in parts:
        wanted = _LONG[:-1] if texts else _LONG
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
    split = _SPLIT_OF_PART.get(sheet.path.stem, "")
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
