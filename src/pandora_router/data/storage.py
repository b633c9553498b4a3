"""Our own form of a routing table on disk: a folder of Parquet files and a manifest.

`prompts.parquet`, `score.parquet`, `fee.parquet`, `contexts.parquet` (one column per specialist) and
`manifest.json` with format version, hashes of the files and the fingerprint of the content. The folder is
there whole or not at all (`folders`). No pickle.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pandora_router import folders
from pandora_router.data.limits import Limits
from pandora_router.data.table import Table
from pandora_router.errors import UsageError
from pandora_router.types import Contexts, Matrix

if TYPE_CHECKING:
    import pyarrow as pa

KIND = folders.Kind(
    format="pandora-router table",
    version=1,
    noun="a routing table",
    make="Make one with `pandora data import`.",
    mend="restore it or import the data anew.",
)
NEEDED = frozenset({"prompts.parquet", "score.parquet", "fee.parquet"})


def is_stored(path: Path | str) -> bool:
    """Whether a folder looks like a table that `save` wrote."""
    return folders.is_stored(Path(path))


def save(table: Table, path: Path | str, *, replace: bool = False) -> None:
    """Write the table to a folder; an existing one is only replaced on request, and only by a whole one."""
    try:
        folders.write(Path(path), KIND, lambda folder: _write(table, folder), replace=replace)
    except UnicodeEncodeError as error:
        came = f"half of a surrogate pair near {error.object[max(0, error.start - 20) : error.start]!r}"
        raise UsageError("a text", expected="whole characters", came=came, do="Mend the text.") from error


def load(path: Path | str, *, limits: Limits | None = None) -> Table:
    """Read a table back; a file that is missing, changed or of a newer format is refused."""
    import pyarrow as pa

    path, limits = Path(path), limits or Limits()
    manifest = folders.read(path, KIND, NEEDED, weigh=lambda f, size: limits.hold(str(f), "file_bytes", size))
    try:
        _verify_size(path, manifest, limits)
        table = _read(path, manifest)
        recorded = manifest["fingerprint"]
    except (KeyError, TypeError, pa.ArrowException) as error:
        raise KIND.refusal(path, "the columns and types of a routing table", str(error)) from error
    if table.fingerprint() != recorded:
        raise KIND.refusal(path / folders.MANIFEST, f"the fingerprint {recorded[:12]}...", "other content")
    return table


def _read(path: Path, manifest: Mapping[str, Any]) -> Table:
    from pyarrow import parquet

    specialists = tuple(manifest["specialists"])
    prompts = parquet.read_table(path / "prompts.parquet")
    contexts = "contexts.parquet" in manifest["files"]
    return Table(
        prompt_ids=tuple(prompts["prompt_id"].to_pylist()),
        prompts=tuple(prompts["prompt"].to_pylist()),
        tasks=tuple(prompts["task"].to_pylist()),
        split=np.array(prompts["split"].to_pylist(), dtype=np.str_),
        specialists=specialists,
        score=_matrix(path / "score.parquet", specialists, len(prompts)),
        fee=_matrix(path / "fee.parquet", specialists, len(prompts)),
        contexts=_texts(path / "contexts.parquet", specialists) if contexts else None,
        fee_weight=float(manifest["fee_weight"]),
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
    for name, content in files.items():
        parquet.write_table(content, folder / name, compression="zstd")
    return {
        "fingerprint": table.fingerprint(),
        "prompts": len(table),
        "specialists": list(table.specialists),
        "missing_cells": int(table.missing.sum()),
        "fee_weight": table.fee_weight,
    }


def _columns(values: Matrix | Contexts, names: tuple[str, ...], kind: pa.DataType) -> pa.Table:
    import pyarrow as pa

    return pa.table({name: pa.array(values[:, j], kind, from_pandas=False) for j, name in enumerate(names)})


def _verify_size(path: Path, manifest: Mapping[str, Any], limits: Limits) -> None:
    """Refuse what would unpack to more than is allowed, before it is unpacked."""
    from pyarrow import parquet

    for name in manifest["files"]:
        meta = parquet.read_metadata(path / name)
        unpacked = sum(meta.row_group(i).total_byte_size for i in range(meta.num_row_groups))
        limits.hold(f"{path / name}, unpacked,", "file_bytes", unpacked)
        limits.hold(f"{path}, prompts x specialists,", "cells", meta.num_rows * len(manifest["specialists"]))


def _matrix(path: Path, names: tuple[str, ...], rows: int) -> Matrix:
    from pyarrow import parquet

    table = parquet.read_table(path)
    matrix = np.empty((rows, len(names)))
    for j, name in enumerate(names):
        matrix[:, j] = table[name].to_numpy()
    return matrix


def _texts(path: Path, names: tuple[str, ...]) -> Contexts:
    from pyarrow import parquet

    table = parquet.read_table(path)
    texts = np.empty((table.num_rows, len(names)), dtype=object)
    for j, name in enumerate(names):
        texts[:, j] = table[name].to_pylist()
    return texts
