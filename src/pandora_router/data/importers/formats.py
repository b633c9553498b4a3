"""Readers of CSV, TSV, Parquet and JSON lines, each as batches of dictionary-encoded columns.

They check the format of a file, not the meaning of its columns. Rows count from 1, without the header.
"""

from __future__ import annotations

import codecs
import csv
import json
from collections import Counter
from collections.abc import Iterator, Sequence
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
from pandora_router.text import lone_surrogate, unfit_for_name

Codes = npt.NDArray[np.int64]
_BLOCK = 2**25


@dataclass(frozen=True, eq=False)
class CodedColumn:
    """Dictionary encoding: distinct values in order of appearance, and a code per row."""

    codes: Codes
    values: tuple[Any, ...]


Batch = tuple[dict[str, CodedColumn], int, int]
"""Encoded columns of some rows, the number of rows, and the number of bytes of the file read so far."""


def csv_batches(path: Path, columns: Sequence[str] | None, delimiter: str) -> Iterator[Batch]:
    """Read CSV or TSV, every field as text; quoted fields may contain line breaks."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        header = next(csv.reader(file, delimiter=delimiter), [])
    _check_header(path, header)
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
        rows = 0
        for batch in reader:
            done += _BLOCK
            yield _arrow(batch, wanted, rows), batch.num_rows, done
            rows += batch.num_rows
    except pa.ArrowInvalid as error:
        raise UsageError(
            path.name,
            expected=f"{len(header)} fields in every row",
            came=ragged[0] if ragged else str(error),
            do="Quote fields that contain the delimiter, a quote or a line break.",
        ) from error


def parquet_batches(path: Path, columns: Sequence[str] | None, limits: Limits) -> Iterator[Batch]:
    """Read Parquet, values in their own types; `UsageError` if the decompressed size exceeds the limits."""
    with pa.parquet.ParquetFile(path) as file:
        meta = file.metadata
        groups = [meta.row_group(i) for i in range(meta.num_row_groups)]
        limits.hold(f"{path.name}, unpacked,", "file_bytes", sum(group.total_byte_size for group in groups))
        header = file.schema_arrow.names
        _check_header(path, header)
        wanted = [name for name in header if columns is None or name in columns]
        if not wanted:
            return
        size, done = path.stat().st_size, 0
        for batch in file.iter_batches(batch_size=65_536, columns=wanted):
            done += batch.num_rows
            # the file may order the columns its own way
            names = batch.schema.names
            yield (
                _arrow(batch, names, done - batch.num_rows),
                batch.num_rows,
                size * done // max(meta.num_rows, 1),
            )


def jsonl_batches(path: Path, columns: Sequence[str] | None) -> Iterator[Batch]:
    """Read JSON lines, one object per line; values as text, None where a key is absent.

    Raises `UsageError` with the line number unless a line is one UTF-8 JSON object without duplicate keys.
    """
    rows: list[dict[str, Any]] = []
    seen: dict[str, None] = {}
    done = 0
    with path.open("rb") as file:
        for number, raw in enumerate(file, start=1):
            done += len(raw)
            if not raw.strip():
                continue
            rows.append(_object(path, number, raw.removeprefix(codecs.BOM_UTF8) if number == 1 else raw))
            seen.update(dict.fromkeys(rows[-1]))
            if number % 20_000 == 0:
                yield {}, 0, done  # only to report progress
    wanted = [name for name in seen if columns is None or name in columns]
    coded = {}
    for name in wanted:
        book: dict[str | None, int] = {}
        codes = []
        for number, row in enumerate(rows, start=1):
            text = _text(path, number, name, row.get(name))
            codes.append(book.setdefault(text, len(book)))
        coded[name] = CodedColumn(np.array(codes, dtype=np.int64), tuple(book))
    if coded:
        yield coded, len(rows), path.stat().st_size


def _arrow(batch: pa.RecordBatch, names: Sequence[str], before: int) -> dict[str, CodedColumn]:
    """The columns of a batch that is preceded by `before` rows."""
    coded = {}
    for name, array in zip(names, batch.columns, strict=True):
        if pa.types.is_nested(array.type):
            raise pa.ArrowInvalid(f"column {name!r} holds {array.type}, not texts or numbers")
        plain = array.dictionary_decode() if pa.types.is_dictionary(array.type) else array
        book = plain.dictionary_encode(null_encoding="encode")
        codes = book.indices.to_numpy().astype(np.int64)
        coded[name] = CodedColumn(codes, _texts(name, book.dictionary, codes, before))
    return coded


def _texts(name: str, values: pa.Array, codes: Codes, before: int) -> tuple[Any, ...]:
    """The distinct values of a column; texts, including those stored as bytes, must be UTF-8."""
    binary = pa.types.is_binary(values.type) or pa.types.is_large_binary(values.type)
    try:
        texts = values.to_pylist()
        return (
            tuple(v.decode("utf-8") if isinstance(v, bytes) else v for v in texts) if binary else tuple(texts)
        )
    except UnicodeDecodeError:
        raw = values.cast(pa.large_binary()).to_pylist()
        bad = next(code for code, value in enumerate(raw) if value is not None and not _is_utf8(value))
        row = before + int(np.flatnonzero(codes == bad)[0]) + 1
        raise pa.ArrowInvalid(
            f"row {row}, column {name!r}: bytes that are no UTF-8 text ({raw[bad][:20]!r})"
        ) from None


def _is_utf8(raw: bytes) -> bool:
    try:
        raw.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _text(path: Path, number: int, name: str, value: object) -> str | None:
    """A JSON value as text, None for null."""
    if value is None:
        return None
    place = f"{path.name}, row {number}, column {name!r}"
    if isinstance(value, dict | list):
        expected, do = "a text, a number, true, false or null", "Flatten it first."
        raise UsageError(place, expected=expected, came=type(value).__name__, do=do)
    text = str(value)
    if lone_surrogate(text) is not None:
        do = "The text was cut inside a character: correct it or leave the row out."
        raise UsageError(place, expected="whole characters", came="half of a surrogate pair", do=do)
    return text


def _object(path: Path, number: int, line: bytes) -> dict[str, Any]:
    """The JSON object on a line."""
    try:
        row = json.loads(line.decode("utf-8"), object_pairs_hook=_each_once)
    except (ValueError, RecursionError) as error:  # no UTF-8, no JSON, a number of 5,000 digits, a key twice
        row = error
    if not isinstance(row, dict):
        raise UsageError(
            f"{path.name}, line {number}",
            expected="one JSON object in UTF-8, with every key once",
            came=str(row)[:120] if isinstance(row, Exception) else type(row).__name__,
            do="Correct the line: one object per line.",
        )
    return row


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    unique = dict(pairs)
    if len(unique) != len(pairs):
        twice = next(name for name, count in Counter(name for name, _ in pairs).items() if count > 1)
        raise ValueError(f"the key {twice!r} twice")
    return unique


def _check_header(path: Path, header: Sequence[str]) -> None:
    """Raise `UsageError` for duplicate column names and for names with invisible characters."""
    twins = sorted({name for name in header if header.count(name) > 1})
    if twins:
        raise UsageError(path.name, expected="each column once", came=f"{twins[0]!r} twice", do="Rename one.")
    for name in header:
        fault = unfit_for_name(name.strip())
        if fault is not None:
            raise UsageError(
                f"{path.name}, column {name!r}",
                expected="a name of visible characters",
                came=fault,
                do="Rename the column.",
            )
