"""Tables in folders, and limits on the size of what comes from outside.

Limits on the size of files from outside.

A routing table on disk: a folder of Parquet files with a manifest (see `folders`). No pickle.

`prompts.parquet`, `score.parquet`, `fee.parquet`, and where there are some `contexts.parquet`,
`seconds.parquet` and `first_seconds.parquet` (one column per specialist); the manifest also has the
fingerprint of the content.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pandora_router import folders
from pandora_router.data.table import Table
from pandora_router.errors import UsageError
from pandora_router.types import Contexts, Matrix

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class Limits:
    """Limits on data from outside; pass larger numbers to allow more."""

    file_bytes: int = 4 * 2**30
    """Size of one file, and its decompressed size."""
    cells: int = 50_000_000
    """Prompts x specialists."""
    text_characters: int = 1_000_000
    """Length of one prompt or context."""

    def hold(self, what: str, bound: str, came: int) -> None:
        """Raise `UsageError` if the count `came` exceeds the named limit."""
        most: int = getattr(self, bound)
        if came > most:
            unit = bound.rsplit("_", 1)[-1]
            raise UsageError(
                what,
                expected=f"at most {most:,} {unit}",
                came=f"{came:,}",
                do=f"To allow it: Limits({bound}={came}) or --max-{bound.replace('_', '-')} {came}.",
            )


KIND = folders.Kind(
    format="pandora-router table",
    version=2,
    noun="a routing table",
    make="Make one with `pandora data import` or `pandora collect`.",
    mend="restore it or import the data anew.",
)
NEEDED = frozenset({"prompts.parquet", "score.parquet", "fee.parquet"})


def is_stored(path: Path | str) -> bool:
    """Whether `path` is a folder that claims to be a routing table of this package."""
    return folders.is_stored(Path(path), KIND)


def save(table: Table, path: Path | str, *, replace: bool = False, inputs: Iterable[Path] = ()) -> None:
    """Write the table to the folder `path`, atomically.

    Raises `UsageError` if `path` exists, unless it is a routing table and `replace` is true, and if `path`
    is, contains or lies within one of the `inputs`.
    """
    folders.write(Path(path), KIND, lambda folder: _write(table, folder), replace=replace, inputs=inputs)


def load(path: Path | str, *, limits: Limits | None = None) -> Table:
    """Read a table written by `save`.

    Raises `UsageError` if the folder is not a routing table, of another version, damaged or above `limits`.
    """
    import pyarrow as pa

    path, limits = Path(path), limits or Limits()
    stored = folders.read(path, KIND, NEEDED, weigh=lambda f, size: limits.hold(str(f), "file_bytes", size))
    try:
        _verify_size(stored, limits)
        table = _read(stored)
        recorded = stored.manifest["fingerprint"]
    except UsageError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, OSError, pa.ArrowException) as error:
        raise KIND.refusal(path, "the columns and types of a routing table", str(error)) from error
    if table.fingerprint() != recorded:
        raise KIND.refusal(
            path / folders.MANIFEST, f"the fingerprint {str(recorded)[:12]}...", "other content"
        )
    return table


def _read(stored: folders.Stored) -> Table:
    import pyarrow as pa
    from pyarrow import parquet

    specialists = tuple(stored.manifest["specialists"])
    files = {name: parquet.read_table(pa.BufferReader(content)) for name, content in stored.files.items()}
    prompts = files["prompts.parquet"]
    contexts = files.get("contexts.parquet")
    return Table(
        prompt_ids=tuple(prompts["prompt_id"].to_pylist()),
        prompts=tuple(prompts["prompt"].to_pylist()),
        tasks=tuple(prompts["task"].to_pylist()),
        split=np.array(prompts["split"].to_pylist(), dtype=np.str_),
        specialists=specialists,
        score=_matrix(files["score.parquet"], specialists),
        fee=_matrix(files["fee.parquet"], specialists),
        contexts=None if contexts is None else _texts(contexts, specialists),
        fee_weight=float(stored.manifest["fee_weight"]),
        lengths={
            str(name): {str(kind): float(mean) for kind, mean in means.items()}
            for name, means in stored.manifest.get("lengths", {}).items()
        },
        **{
            name: _matrix(files[f"{name}.parquet"], specialists)
            for name in ("seconds", "first_seconds")
            if f"{name}.parquet" in files
        },
    )


def _write(table: Table, folder: Path) -> dict[str, Any]:
    import pyarrow as pa
    from pyarrow import parquet

    files = {
        "prompts.parquet": pa.table(
            {
                "prompt_id": pa.array(table.prompt_ids, pa.large_string()),
                "prompt": pa.array(table.prompts, pa.large_string()),
                "task": pa.array(table.tasks, pa.large_string()),
                "split": pa.array(table.split.tolist(), pa.large_string()),
            }
        ),
        "score.parquet": _columns(table.score, table.specialists, pa.float64()),
        "fee.parquet": _columns(table.fee, table.specialists, pa.float64()),
    }
    if table.contexts is not None:
        files["contexts.parquet"] = _columns(table.contexts, table.specialists, pa.large_string())
    for name, values in table.times.items():
        files[f"{name}.parquet"] = _columns(values, table.specialists, pa.float64())
    for name, content in files.items():
        parquet.write_table(content, folder / name, compression="zstd")
    return {
        "fingerprint": table.fingerprint(),
        "prompts": len(table),
        "specialists": list(table.specialists),
        "missing_cells": int(table.missing.sum()),
        "fee_weight": table.fee_weight,
        "lengths": {name: dict(means) for name, means in table.lengths.items()},
    }


def _columns(values: Matrix | Contexts, names: tuple[str, ...], kind: pa.DataType) -> pa.Table:
    import pyarrow as pa

    return pa.table({name: pa.array(values[:, j], kind, from_pandas=False) for j, name in enumerate(names)})


def _verify_size(stored: folders.Stored, limits: Limits) -> None:
    """Raise `UsageError` before decompressing if the decompressed size exceeds the limits."""
    import pyarrow as pa
    from pyarrow import parquet

    specialists = len(stored.manifest["specialists"])
    for name, content in stored.files.items():
        meta = parquet.read_metadata(pa.BufferReader(content))
        unpacked = sum(meta.row_group(i).total_byte_size for i in range(meta.num_row_groups))
        limits.hold(f"{stored.path / name}, unpacked,", "file_bytes", unpacked)
        limits.hold(f"{stored.path}, prompts x specialists,", "cells", meta.num_rows * specialists)


def _matrix(table: pa.Table, names: tuple[str, ...]) -> Matrix:
    return np.column_stack([table[name].to_numpy() for name in names]) if names else np.empty((len(table), 0))


def _texts(table: pa.Table, names: tuple[str, ...]) -> Contexts:
    texts = np.empty((table.num_rows, len(names)), dtype=object)
    for j, name in enumerate(names):
        texts[:, j] = table[name].to_pylist()
    return texts
