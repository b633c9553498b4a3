"""One file of rows and named columns: CSV, TSV, JSON lines or Parquet.

Every column is kept coded (the distinct values once, a code per row), so a prompt repeated for a
hundred specialists is held once. Errors name file, row and column; rows count from 1 and the header is
not counted. It refuses to know what the columns mean, and reads no pickle.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from pandora_router.data.limits import Limits
from pandora_router.errors import UsageError

Codes = npt.NDArray[np.int64]
Progress = Callable[[str, int, int], None]
"""Told what is being read, how much is done and how much there is."""

SUFFIXES = (".csv", ".tsv", ".jsonl", ".ndjson", ".parquet")
_NOTHING = {"", "nan", "none", "null", "na", "n/a"}
_TRUTH = {"true": 1.0, "false": 0.0}
_BLOCK = 2**25


@dataclass(frozen=True, eq=False)
class Column:
    """Distinct values in order of appearance and a code per row."""

    codes: Codes
    values: tuple[Any, ...]


@dataclass(frozen=True, eq=False)
class Sheet:
    """A file as coded columns."""

    path: Path
    rows: int
    columns: dict[str, Column]

    def column(self, name: str) -> Column:
        """The named column, or an error that lists those there are."""
        if name not in self.columns:
            raise UsageError(
                f"{self.path.name}",
                expected=f"a column {name!r}",
                came=f"columns {', '.join(self.columns) or '(none)'}",
                do="Say in the column mapping which column holds it.",
            )
        return self.columns[name]

    def text(self, name: str) -> Column:
        """A column of texts, none missing or empty."""
        column = self.column(name)
        values = tuple("" if value is None else str(value) for value in column.values)
        empty = [code for code, value in enumerate(values) if not value]
        if empty:
            row = int(np.flatnonzero(np.isin(column.codes, empty))[0])
            raise self.complaint(row, name, "a text", "nothing", "Fill it in or leave the row out.")
        return Column(column.codes, values)

    def optional_text(self, name: str) -> npt.NDArray[np.object_]:
        """A text or None for every row."""
        column = self.column(name)
        values = np.empty(len(column.values), dtype=object)
        values[:] = [None if value is None or value == "" else str(value) for value in column.values]
        return values[column.codes]

    def numbers(self, name: str) -> npt.NDArray[np.float64]:
        """A number for every row, NaN where nothing stands (empty, NaN, null, None, NA); true is 1."""
        column = self.column(name)
        values = np.empty(len(column.values))
        for code, value in enumerate(column.values):
            number = number_of(value)
            if number is None:
                row = int(np.flatnonzero(column.codes == code)[0])
                raise self.complaint(
                    row, name, "a number, true or false", repr(value), "Correct it or leave it empty."
                )
            values[code] = number
        return values[column.codes]

    def complaint(self, row: int, column: str, expected: str, came: str, do: str) -> UsageError:
        """An error that names file, row (here from 0) and column."""
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
) -> Sheet:
    """The file's columns, or those of them that are asked for and there."""
    path, limits = Path(path), limits or Limits()
    if not path.is_file():
        raise UsageError(str(path), expected="a file", came="nothing there", do="Check the path.")
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
            sheet = _gather(path, _csv(path, columns, "\t" if suffix == ".tsv" else ","), progress)
        elif suffix == ".parquet":
            sheet = _gather(path, _parquet(path, columns, limits), progress)
        else:
            sheet = _gather(path, _jsonl(path, columns), progress)
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise UsageError(
            path.name, expected=f"a readable {suffix[1:]} file", came=str(error), do="Mend the file."
        ) from error
    for name, column in sheet.columns.items():
        longest = max((len(value) for value in column.values if isinstance(value, str)), default=0)
        limits.hold(f"{path.name}, the longest text in column {name!r}", "text_characters", longest)
    return sheet


Batch = tuple[dict[str, Column], int, int]
"""Coded columns of some rows, how many rows, and how much of the file is behind us in bytes."""


def _gather(path: Path, batches: Iterable[Batch], progress: Progress | None) -> Sheet:
    """Many small code books into one per column."""
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
        path, rows, {name: Column(np.concatenate(codes[name]), tuple(books[name])) for name in books}
    )


def _arrow(batch: pa.RecordBatch, names: Sequence[str]) -> dict[str, Column]:
    coded = {}
    for name, array in zip(names, batch.columns, strict=True):
        if pa.types.is_nested(array.type):
            raise pa.ArrowInvalid(f"column {name!r} holds {array.type}, not texts or numbers")
        plain = array.dictionary_decode() if pa.types.is_dictionary(array.type) else array
        book = plain.dictionary_encode(null_encoding="encode")
        coded[name] = Column(book.indices.to_numpy().astype(np.int64), tuple(book.dictionary.to_pylist()))
    return coded


def _csv(path: Path, columns: Sequence[str] | None, delimiter: str) -> Iterator[Batch]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        header = next(csv.reader(file, delimiter=delimiter), [])
    _refuse_twins(path, header)
    wanted = [name for name in header if columns is None or name in columns]
    if not wanted:
        return
    ragged: list[str] = []

    def note(row: Any) -> str:
        ragged.append(
            f"{row.actual_columns} fields instead of {row.expected_columns} in row {row.number - 1}"
        )
        return "error"

    try:
        reader = pa.csv.open_csv(
            path,
            read_options=pa.csv.ReadOptions(use_threads=False, block_size=_BLOCK),
            parse_options=pa.csv.ParseOptions(
                delimiter=delimiter, newlines_in_values=True, invalid_row_handler=note
            ),
            convert_options=pa.csv.ConvertOptions(
                column_types=dict.fromkeys(header, pa.large_string()),
                include_columns=wanted,
                strings_can_be_null=False,
            ),
        )
        done = 0
        for batch in reader:
            done += _BLOCK
            yield _arrow(batch, wanted), batch.num_rows, done
    except pa.ArrowInvalid as error:
        raise UsageError(
            path.name,
            expected=f"{len(header)} fields in every row",
            came=ragged[0] if ragged else str(error),
            do="Quote fields that contain the delimiter, a quote or a line break.",
        ) from error


def _parquet(path: Path, columns: Sequence[str] | None, limits: Limits) -> Iterator[Batch]:
    with pa.parquet.ParquetFile(path) as file:
        meta = file.metadata
        groups = [meta.row_group(i) for i in range(meta.num_row_groups)]
        limits.hold(f"{path.name}, unpacked,", "file_bytes", sum(group.total_byte_size for group in groups))
        header = file.schema_arrow.names
        _refuse_twins(path, header)
        wanted = [name for name in header if columns is None or name in columns]
        if not wanted:
            return
        size, done = path.stat().st_size, 0
        for batch in file.iter_batches(batch_size=65_536, columns=wanted):
            done += batch.num_rows
            # the file may order the columns its own way
            names = batch.schema.names
            yield _arrow(batch, names), batch.num_rows, size * done // max(meta.num_rows, 1)


def _jsonl(path: Path, columns: Sequence[str] | None) -> Iterator[Batch]:
    rows: list[dict[str, Any]] = []
    seen: dict[str, None] = {}
    done = 0
    with path.open(encoding="utf-8-sig") as file:
        for number, line in enumerate(file, start=1):
            done += len(line)
            if not line.strip():
                continue
            rows.append(_object(path, number, line))
            seen.update(dict.fromkeys(rows[-1]))
            if number % 20_000 == 0:
                yield {}, 0, done  # only to say how far it is
    wanted = [name for name in seen if columns is None or name in columns]
    coded = {}
    for name in wanted:
        book: dict[str | None, int] = {}
        codes = []
        for number, row in enumerate(rows, start=1):
            value = row.get(name)
            if isinstance(value, dict | list):
                raise UsageError(
                    f"{path.name}, row {number}, column {name!r}",
                    expected="a text, a number, true, false or null",
                    came=type(value).__name__,
                    do="Flatten it first.",
                )
            text = None if value is None else str(value)
            codes.append(book.setdefault(text, len(book)))
        coded[name] = Column(np.array(codes, dtype=np.int64), tuple(book))
    if coded:
        yield coded, len(rows), path.stat().st_size


def _object(path: Path, number: int, line: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except (json.JSONDecodeError, RecursionError) as error:
        row = error
    if not isinstance(row, dict):
        raise UsageError(
            f"{path.name}, line {number}",
            expected="one JSON object",
            came=str(row)[:80] if isinstance(row, Exception) else type(row).__name__,
            do="Write one object per line.",
        )
    return row


def _refuse_twins(path: Path, header: Sequence[str]) -> None:
    twins = sorted({name for name in header if header.count(name) > 1})
    if twins:
        raise UsageError(path.name, expected="each column once", came=f"{twins[0]!r} twice", do="Rename one.")


def number_of(value: object) -> float | None:
    """The number a value stands for, NaN for nothing, None if it stands for none."""
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
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None
    return None if math.isinf(number) else number
