"""A file of prompts through a router, chunk by chunk, so that a second start goes on where the first stopped.

Each finished chunk is a Parquet file in a hidden folder beside the output, named by a hash of artifact, input
and options; the output is put together under a temporary name and renamed at the very end.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pandora_router import folders
from pandora_router.errors import UsageError
from pandora_router.router import Decision, Router

CHUNK = 2048
SCHEMA = pa.schema(
    [
        ("decision_id", pa.string()),
        ("specialist", pa.string()),
        ("declined_because", pa.string()),
        ("expected_reward", pa.float64()),
        ("spent", pa.float64()),
        ("inspected", pa.list_(pa.string())),
        ("artifact", pa.string()),
    ]
)
Say = Callable[[str, int, int], None]


def route_file(
    router: Router, source: Path, output: Path, column: str, *, replace: bool, say: Say
) -> dict[str, Any]:
    """Route every prompt of a Parquet file; the output has its columns (contexts apart) and the decisions."""
    if output.exists() and not replace:
        raise UsageError(str(output), expected="a new file", came="one that exists", do="Pass --replace.")
    rows, kept = _inspect(source, column)
    told = f"{router.id}\n{folders.sha256(source)}\n{column}\n{CHUNK}"
    key = hashlib.sha256(told.encode()).hexdigest()[:16]
    work = output.with_name(f".{output.name}.work-{key}")
    work.mkdir(parents=True, exist_ok=True)
    chunks = []
    for number, part in enumerate(_parts(source)):
        say("routing", number * CHUNK, rows)
        chunk = work / f"{number:08d}.parquet"
        if not chunk.exists():
            _write(chunk, _routed(router, part, column, kept))
        chunks.append(chunk)
    say("writing", rows, rows)
    summary = _join(chunks, work / "whole", output, _schema(source, kept))
    shutil.rmtree(work, ignore_errors=True)
    return {"output": str(output), "artifact": router.id, **summary}


def _inspect(source: Path, column: str) -> tuple[int, list[str]]:
    """How many rows, and which columns are carried over."""
    try:
        file = pq.ParquetFile(source)
    except pa.ArrowInvalid as error:
        raise UsageError(str(source), expected="a Parquet file", came=str(error), do="Convert it.") from error
    names = file.schema_arrow.names
    if column not in names:
        raise UsageError(
            str(source),
            expected=f"a column {column!r}",
            came=f"{', '.join(names)}",
            do="Name the column of prompts with --prompt-column.",
        )
    taken = {*SCHEMA.names, "contexts"}
    return file.metadata.num_rows, [name for name in names if name not in taken]


def _schema(source: Path, kept: list[str]) -> pa.Schema:
    whole = pq.read_schema(source)
    return pa.schema([whole.field(name) for name in kept] + list(SCHEMA))


def _parts(source: Path) -> Iterator[pa.Table]:
    for batch in pq.ParquetFile(source).iter_batches(CHUNK):
        yield pa.Table.from_batches([batch])


def _routed(router: Router, part: pa.Table, column: str, kept: list[str]) -> pa.Table:
    prompts = ["" if text is None else str(text) for text in part[column].to_pylist()]
    contexts = None
    if "contexts" in part.column_names:
        contexts = [_contexts(value) for value in part["contexts"].to_pylist()]
    decisions = router.route_batch(prompts, contexts)
    found = pa.Table.from_pylist([_row(decision) for decision in decisions], schema=SCHEMA)
    for name in reversed(kept):
        found = found.add_column(0, part.schema.field(name), part[name])
    return found


def _contexts(value: Any) -> dict[str, str]:
    """A cell of contexts: a map, a record or JSON text from specialist to context."""
    if isinstance(value, str):
        value = json.loads(value)
    pairs = dict(value or {})
    return {name: text for name, text in pairs.items() if text is not None}


def _row(decision: Decision) -> dict[str, Any]:
    declined = decision.declined_because is not None
    box = decision.trace.selected
    shown = dict(zip(decision.trace.inspected, [v for vs in decision.trace.values for v in vs], strict=True))
    value = shown.get(box)
    worth = None if declined else float(decision.estimates.mean[box]) if value is None else value
    return {
        "decision_id": decision.id,
        "specialist": decision.specialist,
        "declined_because": decision.declined_because,
        "expected_reward": worth,
        "spent": decision.trace.spent,
        "inspected": list(decision.inspected),
        "artifact": decision.artifact,
    }


def _write(path: Path, table: pa.Table) -> None:
    draft = path.with_name(f".{path.name}.draft-{os.getpid()}")
    pq.write_table(table, draft, compression="zstd")
    folders.sync(draft)
    draft.rename(path)


def _join(chunks: list[Path], draft: Path, output: Path, schema: pa.Schema) -> dict[str, Any]:
    """Put the chunks together under a temporary name, then rename."""
    prompts = declined = 0
    spent = 0.0
    with pq.ParquetWriter(draft, schema, compression="zstd") as writer:
        for chunk in chunks:
            part = pq.read_table(chunk).cast(schema)
            writer.write_table(part)
            prompts += len(part)
            declined += len(part) - part["declined_because"].null_count
            spent += sum(part["spent"].to_pylist())
    folders.sync(draft)
    draft.rename(output)
    folders.sync(output.parent)
    return {"prompts": prompts, "declined": declined, "mean_spent": spent / max(prompts, 1)}
