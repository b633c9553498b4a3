"""Our own form of a routing table on disk: a folder of Parquet files and a manifest.

`prompts.parquet`, `score.parquet`, `fee.parquet`, `contexts.parquet` (one column per specialist) and
`manifest.json` with format version, hashes of the files and the fingerprint of the content. A folder is
written under a temporary name and renamed, so it is there whole or not at all. No pickle.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from pandora_router.data.limits import Limits
from pandora_router.data.table import Contexts, Matrix, Table
from pandora_router.errors import UsageError

FORMAT = "pandora-router table"
VERSION = 1
MANIFEST = "manifest.json"


def is_stored(path: Path | str) -> bool:
    """Whether a folder looks like a table that `save` wrote."""
    return (Path(path) / MANIFEST).is_file()


def save(table: Table, path: Path | str, *, replace: bool = False) -> None:
    """Write the table to a folder; an existing one is only replaced on request, and only by a whole one."""
    path = Path(path)
    if path.exists() and not (replace and is_stored(path)):
        raise UsageError(
            str(path),
            expected="a folder that does not exist yet",
            came="something is there" if not replace else "something there that is not a routing table",
            do="Choose another name" + ("." if replace else ", or ask to replace the table there."),
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    mark = f"{os.getpid()}-{secrets.token_hex(4)}"
    draft, aside = path.with_name(f".{path.name}.draft-{mark}"), path.with_name(f".{path.name}.old-{mark}")
    try:
        draft.mkdir()
        _write(table, draft)
        if path.exists():
            path.rename(aside)
        draft.rename(path)
        _sync(path.parent)
    except UnicodeEncodeError as error:
        came = f"half of a surrogate pair near {error.object[max(0, error.start - 20) : error.start]!r}"
        raise UsageError("a text", expected="whole characters", came=came, do="Mend the text.") from error
    finally:
        if aside.exists() and not path.exists():
            aside.rename(path)
        shutil.rmtree(draft, ignore_errors=True)
        shutil.rmtree(aside, ignore_errors=True)


def load(path: Path | str, *, limits: Limits | None = None) -> Table:
    """Read a table back; a file that is missing, changed or of a newer format is refused."""
    path, limits = Path(path), limits or Limits()
    manifest = _manifest(path)
    try:
        _verify_files(path, manifest["files"], limits)
        _verify_size(path, manifest, limits)
        table = _read(path, manifest)
    except (KeyError, TypeError, pa.ArrowException) as error:
        raise _refusal(path, "the columns and types of a routing table", str(error)) from error
    if table.fingerprint() != manifest["fingerprint"]:
        raise _refusal(path / MANIFEST, f"the fingerprint {manifest['fingerprint'][:12]}...", "other content")
    return table


def _read(path: Path, manifest: Mapping[str, Any]) -> Table:
    specialists = tuple(manifest["specialists"])
    prompts = pa.parquet.read_table(path / "prompts.parquet")
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


def _write(table: Table, folder: Path) -> None:
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
    entries = {}
    for name, content in files.items():
        pa.parquet.write_table(content, folder / name, compression="zstd")
        _sync(folder / name)
        entries[name] = {"bytes": (folder / name).stat().st_size, "sha256": _hash(folder / name)}
    manifest = {
        "format": FORMAT,
        "version": VERSION,
        "fingerprint": table.fingerprint(),
        "prompts": len(table),
        "specialists": list(table.specialists),
        "missing_cells": int(table.missing.sum()),
        "fee_weight": table.fee_weight,
        "files": entries,
    }
    (folder / MANIFEST).write_text(
        json.dumps(manifest, indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
    )
    _sync(folder / MANIFEST)
    _sync(folder)


def _columns(values: Matrix | Contexts, names: tuple[str, ...], kind: pa.DataType) -> pa.Table:
    return pa.table({name: pa.array(values[:, j], kind, from_pandas=False) for j, name in enumerate(names)})


def _manifest(path: Path) -> dict[str, Any]:
    if not is_stored(path):
        raise UsageError(
            str(path),
            expected=f"a routing table (a folder with {MANIFEST})",
            came="a folder without one" if path.is_dir() else "no such folder",
            do="Make one with `pandora data import`.",
        )
    try:
        manifest = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise _refusal(path / MANIFEST, "JSON", str(error)) from error
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise _refusal(path / MANIFEST, f"format {FORMAT!r}", "another format")
    if manifest.get("version") != VERSION:
        raise UsageError(
            str(path / MANIFEST),
            expected=f"format version {VERSION}",
            came=repr(manifest.get("version")),
            do="Upgrade pandora-router, or import the data anew.",
        )
    absent = {"fingerprint", "specialists", "fee_weight", "files"} - set(manifest)
    if absent or not {"prompts.parquet", "score.parquet", "fee.parquet"} <= set(manifest["files"]):
        raise _refusal(
            path / MANIFEST, "a complete manifest", f"no {', '.join(sorted(absent)) or 'list of all files'}"
        )
    return manifest


def _verify_files(path: Path, files: Mapping[str, Any], limits: Limits) -> None:
    for name, entry in files.items():
        if Path(name).name != name:
            raise _refusal(path / MANIFEST, "plain file names", repr(name))
        file = path / name
        if not file.is_file():
            raise _refusal(file, "the file that the manifest lists", "none")
        limits.hold(str(file), "file_bytes", file.stat().st_size)
        if file.stat().st_size != entry["bytes"]:
            raise _refusal(file, f"{entry['bytes']} bytes", f"{file.stat().st_size}")
        if _hash(file) != entry["sha256"]:
            raise _refusal(file, f"SHA-256 {entry['sha256'][:12]}...", "another: the file was changed")


def _verify_size(path: Path, manifest: Mapping[str, Any], limits: Limits) -> None:
    """Refuse what would unpack to more than is allowed, before it is unpacked."""
    for name in manifest["files"]:
        meta = pa.parquet.read_metadata(path / name)
        unpacked = sum(meta.row_group(i).total_byte_size for i in range(meta.num_row_groups))
        limits.hold(f"{path / name}, unpacked,", "file_bytes", unpacked)
        limits.hold(f"{path}, prompts x specialists,", "cells", meta.num_rows * len(manifest["specialists"]))


def _matrix(path: Path, names: tuple[str, ...], rows: int) -> Matrix:
    table = pa.parquet.read_table(path)
    matrix = np.empty((rows, len(names)))
    for j, name in enumerate(names):
        matrix[:, j] = table[name].to_numpy()
    return matrix


def _texts(path: Path, names: tuple[str, ...]) -> Contexts:
    table = pa.parquet.read_table(path)
    texts = np.empty((table.num_rows, len(names)), dtype=object)
    for j, name in enumerate(names):
        texts[:, j] = table[name].to_pylist()
    return texts


def _hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sync(path: Path) -> None:
    """Have the disk hold what was written before anything is renamed."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _refusal(path: Path, expected: str, came: str) -> UsageError:
    return UsageError(
        str(path),
        expected=expected,
        came=came,
        do="The folder is damaged: restore it or import the data anew.",
    )
