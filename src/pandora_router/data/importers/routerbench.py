"""RouterBench's public layout: one row per sample, three columns per model.

sample_id, prompt, eval_name, then per model `<model>` (score), `<model>|model_response` and
`<model>|total_cost` (USD). Prompts and responses are often the printed form of a Python list; they are
unwrapped. The published file is a pickle, which is never read here: convert it to CSV or Parquet.
"""

from __future__ import annotations

import ast
import warnings
from pathlib import Path

from pandora_router.data.fees import Fees, FromColumn
from pandora_router.data.importers.grid import Repeats
from pandora_router.data.importers.sheet import read_sheet
from pandora_router.data.importers.wide import WideColumns, find_specialists, reworded, table_of
from pandora_router.data.joins import stack
from pandora_router.data.limits import Limits
from pandora_router.data.table import Table
from pandora_router.errors import UsageError
from pandora_router.types import Progress

_COLUMNS = WideColumns(
    prompt_id="sample_id",
    prompt="prompt",
    task="eval_name",
    numbers={"total_cost": "{}|total_cost"},
    context="{}|model_response",
)
_PARTS = {"train": "train", "val": "calibration", "valid": "calibration", "test": "test"}


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
        names = find_specialists(sheet, _COLUMNS)
        listed = ["prompt", *(f"{name}|model_response" for name in names)]
        table = table_of(
            reworded(sheet, listed, unwrap),
            _COLUMNS,
            fees=fees or FromColumn("total_cost"),
            fee_weight=fee_weight,
            repeats=repeats,
            limits=limits,
        )
        split = _PARTS.get(file.stem.rsplit("_", 1)[-1], "")
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
