"""Estimates in Parquet, read chunk by chunk.

A file has a row per prompt and in each row a list with one number per specialist in the columns

    f, g         cheap and costly estimates
    reward       what really happened; or `score` and, if there are fees, `fee` (already weighted)

A row group is read in chunks of CHUNK rows, so memory does not grow with the file. Prompts that miss
a costly estimate or a reward are left out, since regret needs the best specialist in hindsight.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pandora_router.calibrate.readings import Readings
from pandora_router.errors import UsageError
from pandora_router.types import Matrix

CHUNK = 1 << 14
NAMES = ("cheap", "costly", "reward", "fee")
MOST = 1_000_000  # rows that are read whole


def chunks(path: Path, group: int | None = None, boxes: int | None = None) -> Iterator[Readings]:
    """The rows of a row group (None: of the file) in chunks; `boxes`: how many specialists."""
    with _opened(path) as file:
        names = _columns(path, file.schema_arrow.names)
        groups = None if group is None else [group]
        for part in file.iter_batches(CHUNK, row_groups=groups, columns=list(names), use_threads=False):
            made = {}
            for name in names:
                made[name] = _matrix(path, name, part.column(name), boxes)
                boxes = made[name].shape[1]
            score = made.get("reward", made.get("score"))
            assert score is not None
            fee = made.get("fee", np.zeros_like(score))
            readings = Readings(made["f"], made["g"], score - fee, fee)
            if readings.complete.any():
                yield readings.rows(readings.complete)


def whole(path: Path) -> Readings:
    """All rows of a file that is not large."""
    with _opened(path) as file:
        rows = file.metadata.num_rows
    if not 0 < rows <= MOST:
        raise UsageError(
            str(path),
            expected=f"1 to {MOST:,} rows of calibration",
            came=f"{rows:,}",
            do="Take a sample of prompts that are not among those to be judged.",
        )
    parts = list(chunks(path))
    if not parts:
        raise UsageError(str(path), expected="rows with every reward", came="none", do="Measure some.")
    f, g, reward, fee = (np.concatenate([getattr(part, name) for part in parts]) for name in NAMES)
    return Readings(f, g, reward, fee)


def groups(path: Path) -> list[int]:
    """The number of rows of each row group."""
    with _opened(path) as file:
        _columns(path, file.schema_arrow.names)
        return [file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)]


def _opened(path: Path) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(path, pre_buffer=False)
    except pa.ArrowInvalid as error:
        raise UsageError(str(path), expected="Parquet", came=str(error), do="Name a Parquet file.") from error


def _columns(path: Path, names: Sequence[str]) -> tuple[str, ...]:
    rewards = ("reward",) if "reward" in names else ("score", "fee") if "fee" in names else ("score",)
    wanted = ("f", "g", *rewards)
    if missing := [name for name in wanted if name not in names]:
        raise UsageError(
            f"{path}: columns",
            expected="f, g, and reward (or score, and fee where there are fees), lists of numbers",
            came=f"no {', '.join(missing)}",
            do="Write one row per prompt and in each list one number per specialist.",
        )
    return wanted


def _matrix(path: Path, name: str, column: Any, boxes: int | None) -> Matrix:
    """A list column as (N, M) doubles; every list has the same length."""
    is_list = pa.types.is_list(column.type) or pa.types.is_large_list(column.type)
    if is_list or pa.types.is_fixed_size_list(column.type):
        lengths = pc.unique(pc.list_value_length(column)).to_pylist()
        wide = lengths[0] if boxes is None else boxes
        if lengths == [wide] and wide:
            values = column.flatten()
            if pa.types.is_floating(values.type) or pa.types.is_integer(values.type):
                numbers = values.cast(pa.float64()).to_numpy(zero_copy_only=False)
                return np.asarray(numbers, dtype=np.float64).reshape(-1, wide)
    raise UsageError(
        f"{path}: column {name!r}",
        expected=f"lists of {boxes or 'equally many'} numbers",
        came=f"{column.type}" if not is_list else "lists of other lengths, or of no numbers",
        do="Give every specialist one number in every row.",
    )
