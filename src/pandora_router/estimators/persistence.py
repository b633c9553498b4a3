"""A fitted estimator on disk: a JSON manifest, arrays (.npz), texts, ONNX graphs, parts. Never pickle.

`Saved` is the value every estimator turns into and comes back from. A folder is written under a temporary
name and renamed, so it is either whole or absent; the manifest holds the SHA-256 of every file beside it (and
of the manifests of its parts), so a changed or truncated file is refused.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import UsageError

FORMAT = 1
MANIFEST = "manifest.json"


@dataclass(frozen=True)
class Saved:
    """What is left of an estimator when it is not running: settings, arrays, texts, parts, ONNX graphs."""

    kind: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    arrays: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict)
    parts: Mapping[str, Saved] = field(default_factory=dict)
    graphs: Mapping[str, bytes] = field(default_factory=dict)

    def of_kind(self, kind: str) -> Saved:
        """Itself, if it was saved by `kind`; otherwise an error that names both."""
        if self.kind != kind:
            raise _refusal("saved estimator", f"one of kind {kind!r}", f"{self.kind!r}")
        return self


def write(folder: Path | str, saved: Saved) -> Path:
    """Writes `saved` to `folder`, whole or not at all; replaces what this function wrote there before."""
    target = Path(folder)
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.exists() and any(target.iterdir()) and not (target / MANIFEST).exists():
        raise UsageError(
            f"folder {target}",
            expected="a new name or an earlier saved estimator",
            came="a folder with other files",
            do="Choose another folder.",
        )
    scratch = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        _write_parts(scratch, saved)
        if target.exists():
            stale = Path(tempfile.mkdtemp(prefix=f".{target.name}.old.", dir=target.parent))
            os.replace(target, stale)
            os.replace(scratch, target)
            shutil.rmtree(stale)
        else:
            os.replace(scratch, target)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return target


def read(folder: Path | str) -> Saved:
    """Reads what `write` wrote, refusing changed, truncated or newer files."""
    source = Path(folder)
    if not (source / MANIFEST).is_file():
        raise _refusal(f"saved estimator {source}", f"a folder with {MANIFEST}", "none")
    try:
        manifest = json.loads((source / MANIFEST).read_text("utf-8"))
        version, kind = int(manifest["format"]), str(manifest["kind"])
        files, settings, parts = dict(manifest["files"]), manifest["settings"], list(manifest["parts"])
    except (ValueError, KeyError, TypeError) as error:
        raise _refusal(f"{source / MANIFEST}", "a manifest in JSON", f"{type(error).__name__}") from error
    if version > FORMAT:
        raise _refusal(f"saved estimator {source}", f"format {FORMAT} or older", f"format {version}")
    for name, digest in files.items():
        if not (source / name).is_file() or _digest(source / name) != digest:
            raise _refusal(f"{source / name}", "the file the manifest describes", "a missing or changed file")
    arrays: dict[str, NDArray[Any]] = {}
    if "arrays.npz" in files:
        with open(source / "arrays.npz", "rb") as stored, np.load(stored, allow_pickle=False) as bundle:
            arrays = {name: bundle[name] for name in bundle.files}
    texts = {name[:-4]: (source / name).read_text("utf-8") for name in files if name.endswith(".txt")}
    graphs = {name[:-5]: (source / name).read_bytes() for name in files if name.endswith(".onnx")}
    return Saved(kind, settings, arrays, texts, {name: read(source / name) for name in parts}, graphs)


def _write_parts(folder: Path, saved: Saved) -> None:
    files: list[str] = []
    if saved.arrays:
        with open(folder / "arrays.npz", "wb") as sink:
            np.savez(
                sink, allow_pickle=False, **{name: np.asarray(value) for name, value in saved.arrays.items()}
            )
        files.append("arrays.npz")
    for name, text in saved.texts.items():
        (folder / f"{name}.txt").write_text(text, "utf-8", newline="\n")
        files.append(f"{name}.txt")
    for name, graph in saved.graphs.items():
        (folder / f"{name}.onnx").write_bytes(graph)
        files.append(f"{name}.onnx")
    for name, part in saved.parts.items():
        (folder / name).mkdir()
        _write_parts(folder / name, part)
        files.append(f"{name}/{MANIFEST}")
    manifest = {
        "format": FORMAT,
        "kind": saved.kind,
        "settings": dict(saved.settings),
        "files": {name: _digest(folder / name) for name in files},
        "parts": list(saved.parts),
    }
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=1, allow_nan=False) + "\n", "utf-8")


def _digest(path: Path) -> str:
    with open(path, "rb") as source:
        return hashlib.file_digest(source, "sha256").hexdigest()


def _refusal(what: str, expected: str, came: str) -> UsageError:
    return UsageError(what, expected=expected, came=came, do="Fit and save it again.")
