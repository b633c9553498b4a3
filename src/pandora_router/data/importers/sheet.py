"""One file of rows and named columns: CSV, TSV, JSON lines or Parquet.

Columns are dictionary-encoded (distinct values once, a code per row), so a prompt that is repeated for a
hundred specialists is stored once. Errors name file, row and column; rows count from 1, without the header.
The meaning of columns is not interpreted here, and pickle files are never read.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pandora_router.data.importers.formats import (
    USUAL_DIALECT,
    Batch,
    CodedColumn,
    Codes,
    Dialect,
    csv_batches,
    detected,
    jsonl_batches,
    parquet_batches,
)
from pandora_router.data.storage import Limits
from pandora_router.errors import UsageError
from pandora_router.types import Progress, Vector

"""Called with what is being read, how much is done and the total."""

SUFFIXES = (".csv", ".tsv", ".jsonl", ".ndjson", ".parquet")
_NOTHING = {"", "nan", "none", "null", "na", "n/a"}
_TRUTH = {"true": 1.0, "false": 0.0}


@dataclass(frozen=True, eq=False)
class Sheet:
    """A file as dictionary-encoded columns."""

    path: Path
    rows: int
    columns: dict[str, CodedColumn]
    dialect: Dialect = USUAL_DIALECT

    def spelt(self, name: str) -> str:
        """The name as the header writes it: `name`, or the one column that differs from it in case only."""
        if name in self.columns:
            return name
        folded = [other for other in self.columns if other.strip().casefold() == name.casefold()]
        if len(folded) != 1:
            return name
        self.dialect.note(f"The column {folded[0]!r} of {self.path.name} is read as {name!r}.")
        return folded[0]

    def column(self, name: str) -> CodedColumn:
        """The named column; `UsageError` lists the existing ones."""
        if name not in self.columns:
            raise UsageError(
                f"{self.path.name}",
                expected=f"a column {name!r}",
                came=f"columns {', '.join(self.columns) or '(none)'}",
                do="Name the right column: --prompt-column, --specialist-column, --score-column, "
                "--task-column, --split-column or --context-column (in Python: LongColumns, WideColumns).",
            )
        return self.columns[name]

    def has(self, name: str) -> bool:
        """Whether there is a column of this name with anything in it."""
        return name in self.columns and any(value not in (None, "") for value in self.columns[name].values)

    def text(self, name: str) -> CodedColumn:
        """A column of texts; `UsageError` if one is missing or empty."""
        column = self.column(name)
        values = tuple("" if value is None else str(value) for value in column.values)
        empty = [code for code, value in enumerate(values) if not value]
        if empty:
            row = int(np.flatnonzero(np.isin(column.codes, empty))[0])
            raise self.complaint(row, name, "a text", "nothing", "Fill it in or leave the row out.")
        return CodedColumn(column.codes, values)

    def optional_text(self, name: str) -> npt.NDArray[np.object_]:
        """A text or None for every row."""
        column = self.column(name)
        values = np.empty(len(column.values), dtype=object)
        values[:] = [None if value is None or value == "" else str(value) for value in column.values]
        return values[column.codes]

    def numbers(self, name: str) -> Vector:
        """A number for every row, NaN for empty cells (empty, NaN, null, None, NA).

        true is 1, 85 % is 0.85; if commas do not separate columns, 0,5 is 0.5.
        """
        column = self.column(name)
        values = np.empty(len(column.values))
        plain = [self._plain(value) for value in column.values]
        if any(isinstance(v, str) and v.rstrip().endswith("%") for v in column.values):
            self.dialect.note(f"Column {name!r} of {self.path.name} has percent signs: 85 % is read as 0.85.")
        for code, value in enumerate(plain):
            number = number_of(value)
            if number is None:
                row = int(np.flatnonzero(column.codes == code)[0])
                raise self.complaint(
                    row, name, "a number, true or false", repr(value), "Correct it or leave it empty."
                )
            values[code] = number
        return values[column.codes]

    def _plain(self, value: object) -> object:
        """A decimal comma as a point, where commas do not separate columns."""
        if isinstance(value, str) and self.dialect.delimiter not in (None, ",") and value.count(",") == 1:
            return value.replace(",", ".")
        return value

    def complaint(self, row: int, column: str, expected: str, came: str, do: str) -> UsageError:
        """An error that names file, row (here counted from 0) and column."""
        if len(came) > 80:
            came = came[:77] + "..."
        return UsageError(
            f"{self.path.name}, row {row + 1}, column {column!r}", expected=expected, came=came, do=do
        )


def read_sheet(
    path: Path | str,
    *,
    columns: Sequence[str] | None = None,
    limits: Limits | None = None,
    progress: Progress | None = None,
    dialect: Dialect | None = None,
) -> Sheet:
    """Read all columns of a file, or those of `columns` that it has; `dialect` is for CSV and TSV.

    Raises `UsageError` if it cannot be read.
    """
    path, limits = Path(path), limits or Limits()
    if not path.is_file():
        raise UsageError(str(path), expected="a file", came="no such path", do="Check the path.")
    limits.hold(path.name, "file_bytes", path.stat().st_size)
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise UsageError(
            path.name,
            expected=f"a file ending in {', '.join(SUFFIXES)}",
            came=repr(path.suffix),
            do="Convert it first (a pickle can run any code when it is opened, so none is ever read).",
        )
    try:
        if suffix in (".csv", ".tsv"):
            dialect = detected(path, dialect or USUAL_DIALECT)
            sheet = _gather(path, csv_batches(path, columns, dialect), progress)
            sheet = replace(sheet, dialect=dialect)
        elif suffix == ".parquet":
            sheet = _gather(path, parquet_batches(path, columns, limits), progress)
        else:
            sheet = _gather(path, jsonl_batches(path, columns), progress)
    except UsageError:
        raise
    except (pa.ArrowException, ValueError, OSError, MemoryError, csv.Error) as error:
        raise UsageError(
            path.name,
            expected=f"a {suffix[1:]} file that is whole",
            came=str(error).strip().partition("\n")[0][:200] or type(error).__name__,
            do="The file is damaged or of another format: get it again, or write it again.",
        ) from error
    for name, column in sheet.columns.items():
        lengths = [len(value) if isinstance(value, str) else 0 for value in column.values]
        longest = max(lengths, default=0)
        if longest > limits.text_characters:
            row = int(np.flatnonzero(column.codes == lengths.index(longest))[0]) + 1
            limits.hold(f"{path.name}, row {row}, column {name!r}", "text_characters", longest)
    return sheet


def _gather(path: Path, batches: Iterable[Batch], progress: Progress | None) -> Sheet:
    """Merge the dictionaries of all batches into one per column."""
    size = path.stat().st_size
    books: dict[str, dict[Any, int]] = {}
    codes: dict[str, list[Codes]] = {}
    rows = 0
    for batch, count, done in batches:
        for name, column in batch.items():
            book = books.setdefault(name, {})
            renumber = np.array(
                [book.setdefault(value, len(book)) for value in column.values], dtype=np.int64
            )
            codes.setdefault(name, []).append(renumber[column.codes])
        rows += count
        if progress is not None:
            progress(f"reading {path.name}", min(done, size), size)
    if not rows:
        raise UsageError(path.name, expected="at least one row", came="none", do="Check the file.")
    return Sheet(
        path, rows, {name: CodedColumn(np.concatenate(codes[name]), tuple(books[name])) for name in books}
    )


def number_of(value: object) -> float | None:
    """The number that a value represents, NaN for an empty one, None if it is not a number."""
    if value is None:
        return math.nan
    if isinstance(value, str):
        word = value.strip().lower()
        if word in _NOTHING:
            return math.nan
        if word in _TRUTH:
            return _TRUTH[word]
        if "_" in word:
            return None
        if word.endswith("%"):
            share = number_of(word[:-1])
            return None if share is None or math.isnan(share) else share / 100.0
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None
    return None if math.isinf(number) else number
