"""Readers of CSV, TSV, Parquet and JSON lines, each as batches of dictionary-encoded columns.

They check the format of a file, not the meaning of its columns. Rows count from 1, without the header.
"""

from __future__ import annotations

import codecs
import csv
import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from pandora_router.data.storage import Limits
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


@dataclass(frozen=True)
class Dialect:
    """How a CSV or TSV file is written; what is None is detected by `detected`.

    `say` is called with a sentence for everything about a file that is not as usual and was detected.
    """

    delimiter: str | None = None
    encoding: str | None = None
    say: Callable[[str], None] | None = None

    def note(self, text: str) -> None:
        """Tell the caller what was detected."""
        if self.say is not None:
            self.say(text)


USUAL_DIALECT = Dialect()


def detected(path: Path, dialect: Dialect) -> Dialect:
    """The dialect with its encoding and its delimiter.

    The encoding is UTF-8 (with or without byte order mark) if all bytes are, UTF-16 if the file begins with
    its byte order mark, else Windows-1252, which contains Latin-1; both are only guesses, so `UsageError` is
    raised if there is no `say` to tell the caller. The delimiter of a .tsv file is a tab;
    that of others is the one of , ; tab | that gives the first line most fields, in doubt the comma.
    """
    encoding = dialect.encoding or _encoding(path)
    if dialect.encoding is None and encoding != "utf-8":
        if dialect.say is None:
            raise UsageError(
                path.name,
                expected="text in UTF-8",
                came=f"other bytes, perhaps {encoding}",
                do=f"Name the encoding, Dialect(encoding={encoding!r}), or save the file as UTF-8.",
            )
        dialect.note(f"{path.name} is not UTF-8: read as {encoding}. Another: --encoding NAME")
    if dialect.delimiter is not None:
        return Dialect(dialect.delimiter, encoding, dialect.say)
    if path.suffix.lower() == ".tsv":
        return Dialect("\t", encoding, dialect.say)
    first = _first_line(path, encoding)
    counts = {sign: len(next(csv.reader([first], delimiter=sign), [])) for sign in ",;\t|"}
    delimiter = max(counts, key=lambda sign: counts[sign])
    if delimiter != ",":
        named = {";": "semicolons", "\t": "tabs", "|": "bars"}[delimiter]
        dialect.note(f"The columns of {path.name} are separated by {named}. Another sign: --delimiter SIGN")
    return Dialect(delimiter, encoding, dialect.say)


def _encoding(path: Path) -> str:
    """Name of the encoding of a text file."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    with path.open("rb") as file:
        if file.read(2) in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
            return "utf-16"
        file.seek(0)
        try:
            while block := file.read(_BLOCK):
                decoder.decode(block)
            decoder.decode(b"", final=True)
        except UnicodeDecodeError:
            return "windows-1252"
    return "utf-8"


def _first_line(path: Path, encoding: str) -> str:
    """The first line of a text file, without a byte order mark; `UsageError` if it cannot be decoded."""
    try:
        with path.open(encoding=encoding) as file:
            return file.readline(_BLOCK).removeprefix("\ufeff")
    except (UnicodeError, LookupError) as error:
        raise UsageError(
            path.name,
            expected=f"text in the encoding {encoding}",
            came=str(error),
            do="Name the encoding of the file (--encoding), or save it as UTF-8.",
        ) from error


def csv_batches(path: Path, columns: Sequence[str] | None, dialect: Dialect) -> Iterator[Batch]:
    """Read CSV or TSV in a `detected` dialect, every field as text; quoted fields may contain line breaks."""
    delimiter, encoding = dialect.delimiter or ",", dialect.encoding or "utf-8"
    with path.open(encoding="utf-8-sig" if encoding == "utf-8" else encoding, newline="") as file:
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
            read_options=pa.csv.ReadOptions(use_threads=False, block_size=_BLOCK, encoding=encoding),
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
