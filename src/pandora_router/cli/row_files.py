"""Files of rows: CSV, JSON lines and Parquet, distinguished by the suffix of the name.

A source is read in chunks of rows (dictionaries) and can be read repeatedly. A file is written under a
temporary name and renamed when it is complete. Parquet needs pyarrow (extra `fit`).
"""

from __future__ import annotations

import csv
import json
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import IO, Any, Literal, TypeVar

from pandora_router import folders
from pandora_router.errors import UsageError
from pandora_router.text import json_values

Row = dict[str, Any]
Columns = Mapping[str, Literal["text", "number", "texts"]]
T = TypeVar("T")
ENDINGS = {".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet"}
LONGEST_LINE = 16_000_000  # most characters of one line of JSON, or of one field of CSV


def kind_of(path: Path) -> str:
    """The format "csv", "jsonl" or "parquet", by the suffix of `path`.

    Raises `UsageError` for another suffix, and `ModuleNotFoundError` for Parquet without pyarrow, so that
    both are found before any work is done.
    """
    kind = ENDINGS.get(path.suffix.lower())
    if kind is None:
        raise UsageError(
            str(path),
            expected=f"a name that ends in {', '.join(ENDINGS)}",
            came=f"the ending {path.suffix!r}" if path.suffix else "no ending",
            do="Rename the file, or convert it.",
        )
    if kind == "parquet":
        import_module("pyarrow")
    return kind


class RowSource(ABC):
    """Rows that can be read from the beginning repeatedly."""

    @abstractmethod
    def rows(self) -> Iterator[Row]:
        """Yield the rows in order; raises `UsageError` for one that cannot be read."""

    def chunks(self, size: int) -> Iterator[list[Row]]:
        """Yield the rows as lists of `size`; the last one may be shorter."""
        return chunked(self.rows(), size)


def chunked(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Yield `items` as lists of `size`; the last one may be shorter."""
    rest = iter(items)
    while chunk := list(islice(rest, size)):
        yield chunk


@dataclass(frozen=True)
class CsvSource(RowSource):
    """A CSV file in UTF-8 whose first line has the column names; every value is a text."""

    path: Path

    def rows(self) -> Iterator[Row]:
        """As `RowSource.rows`."""
        with _long_fields(), self.path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file, strict=True)
            try:
                _check_columns(self.path, reader.fieldnames or [])
                for row in reader:
                    if None in row or None in row.values():
                        raise _unreadable(self.path, reader.line_num, "as many fields as the first line")
                    yield row
            except (csv.Error, UnicodeDecodeError) as error:
                raise _unreadable(self.path, reader.line_num + 1, "CSV in UTF-8", error) from error


@contextmanager
def _long_fields() -> Iterator[None]:
    """Fields may be as long as a line inside; the limit belongs to the whole process and is put back."""
    before = csv.field_size_limit(LONGEST_LINE)
    try:
        yield
    finally:
        csv.field_size_limit(before)


@dataclass(frozen=True)
class JsonSource(RowSource):
    """A file with one JSON object per line; empty lines are skipped."""

    path: Path

    def rows(self) -> Iterator[Row]:
        """As `RowSource.rows`."""
        with self.path.open("rb") as file:
            yield from json_rows(file, self.path)


def json_rows(file: IO[bytes], name: Path) -> Iterator[Row]:
    """Yield the objects in `file`, one per line; `name` is its name in errors."""
    number = 0
    while line := file.readline(LONGEST_LINE):
        number += 1
        if len(line) == LONGEST_LINE:
            raise _unreadable(name, number, f"fewer than {LONGEST_LINE:,} bytes on a line")
        if line.isspace():
            continue
        try:
            row = DECODER.decode(line.decode("utf-8-sig" if number == 1 else "utf-8"))
        except (ValueError, RecursionError) as error:
            raise _unreadable(name, number, "a JSON object on one line", error) from error
        if not isinstance(row, dict):
            raise _unreadable(name, number, "a JSON object on one line")
        yield row


def _once(pairs: list[tuple[str, Any]]) -> Row:
    row = dict(pairs)
    if len(row) < len(pairs):
        raise ValueError("the same name twice in one object")
    return row


def _refused(constant: str) -> Any:
    raise ValueError(f"{constant}, which is no number in JSON")


DECODER = json.JSONDecoder(object_pairs_hook=_once, parse_constant=_refused)


@dataclass(frozen=True)
class ParquetSource(RowSource):
    """A Parquet file."""

    path: Path

    def rows(self) -> Iterator[Row]:
        """As `RowSource.rows`."""
        import pyarrow as pa
        from pyarrow import parquet

        try:
            with parquet.ParquetFile(self.path) as file:
                _check_columns(self.path, file.schema_arrow.names)
                for batch in file.iter_batches(1024):
                    yield from batch.to_pylist()
        except (pa.ArrowException, UnicodeDecodeError, OSError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise
            raise UsageError(
                str(self.path), expected="a Parquet file", came=str(error), do="Write it again."
            ) from error


def _check_columns(path: Path, names: Sequence[str]) -> None:
    """Raise `UsageError` if two columns have the same name: only one of them could be kept."""
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        came = f"{twice[0]!r} more than once"
        raise UsageError(str(path), expected="each column name once", came=came, do="Rename one of them.")


def source_of(path: Path) -> RowSource:
    """The source for a file, by the suffix of its name."""
    match kind_of(path):
        case "csv":
            return CsvSource(path)
        case "jsonl":
            return JsonSource(path)
        case _:
            return ParquetSource(path)


def _unreadable(path: Path, line: int, expected: str, error: Exception | None = None) -> UsageError:
    came = "something else" if error is None else str(error)
    return UsageError(f"{path}, line {line:,}", expected=expected, came=came, do="Correct that line.")


def write_rows(path: Path, columns: Columns, rows: Iterable[Row], *, like: Path | None = None) -> None:
    """Write `rows` to `path`, atomically, in the format of its suffix.

    CSV and Parquet have `columns` in that order. In CSV, lists and maps are written as JSON text. In Parquet,
    a column has the type it has in the Parquet file `like`, if that has the column, and otherwise the type
    given in `columns`; text columns hold lists and maps as JSON text. In JSON lines, NaN and infinities
    become null.
    """
    with folders.replacing(path) as draft:
        WRITERS[kind_of(path)](draft, columns, rows, like)


def json_line(row: Row) -> str:
    """A row as one line of JSON; unpaired surrogates are escaped."""
    try:
        return json.dumps(row, default=str, allow_nan=False) + "\n"
    except ValueError:  # NaN or an infinity, from a Parquet file
        return json.dumps(json_values(row), default=str, allow_nan=False) + "\n"


def _write_json(path: Path, columns: Columns, rows: Iterable[Row], like: Path | None) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.writelines(map(json_line, rows))


def _write_csv(path: Path, columns: Columns, rows: Iterable[Row], like: Path | None) -> None:
    with path.open("w", encoding="utf-8", newline="", errors="backslashreplace") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows([plain(row.get(name)) for name in columns] for row in rows)


def plain(value: Any) -> Any:
    """A value as one cell: texts, numbers and None as they are, lists and maps as JSON, others as `str`."""
    if value is None or isinstance(value, str | int | float):
        return value
    return json.dumps(value, default=str) if isinstance(value, list | dict) else str(value)


def _write_parquet(path: Path, columns: Columns, rows: Iterable[Row], like: Path | None) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    fields = {} if like is None else {field.name: field for field in parquet.read_schema(like)}
    types = {"text": pa.string(), "number": pa.float64(), "texts": pa.list_(pa.string())}
    schema = pa.schema([fields.get(name, pa.field(name, types[kind])) for name, kind in columns.items()])
    texts = [name for name, kind in columns.items() if name not in fields and kind == "text"]
    with parquet.ParquetWriter(path, schema, compression="zstd") as writer:
        for chunk in chunked(rows, 1024):
            cells = [{**row, **{name: _text(row.get(name)) for name in texts}} for row in chunk]
            writer.write_table(pa.Table.from_pylist(cells, schema=schema))


def _text(value: Any) -> str | None:
    cell = plain(value)
    return None if cell is None else str(cell).encode("utf-8", "backslashreplace").decode("utf-8")


WRITERS = {"csv": _write_csv, "jsonl": _write_json, "parquet": _write_parquet}
