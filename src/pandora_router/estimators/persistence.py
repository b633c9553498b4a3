"""A fitted estimator on disk: a manifest, arrays, texts, ONNX graphs, and parts in subfolders; no pickle.

`Saved` is the value every estimator turns into and comes back from. Wholeness, hashes and versions are the
business of `folders`; here is only what the files mean. A part is a subfolder whose `part.json` says what the
manifest says of the whole.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pandora_router import folders
from pandora_router.errors import UsageError

KIND = folders.Kind(
    format="pandora-router estimator",
    version=2,
    noun="a saved estimator",
    make="Fit and save one.",
    mend="fit and save it again.",
)
ARRAYS, PART = "arrays.npz", "part.json"


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
            raise UsageError(
                "saved estimator", expected=f"one of kind {kind!r}", came=f"{self.kind!r}", do=KIND.make
            )
        return self


def write(folder: Path | str, saved: Saved) -> Path:
    """Writes `saved` to `folder`, whole or not at all; replaces what this function wrote there before."""
    folders.write(Path(folder), KIND, lambda draft: _fill(draft, saved), replace=True)
    return Path(folder)


def read(folder: Path | str) -> Saved:
    """Reads what `write` wrote, refusing changed, truncated or newer files."""
    source = Path(folder)
    told = folders.read(source, KIND, frozenset())
    try:
        return _saved(source, told)
    except (KeyError, TypeError, ValueError, OSError, zipfile.BadZipFile) as error:
        raise KIND.refusal(source, "the parts of an estimator", f"{type(error).__name__}: {error}") from error


def _fill(folder: Path, saved: Saved) -> dict[str, Any]:
    """The files of an estimator and of its parts; what is to be said of it beside them."""
    if saved.arrays:
        arrays = {name: np.asarray(value) for name, value in saved.arrays.items()}
        np.savez(folder / ARRAYS, allow_pickle=False, **arrays)
    for name, text in saved.texts.items():
        (folder / f"{name}.txt").write_text(text, "utf-8", newline="\n")
    for name, graph in saved.graphs.items():
        (folder / f"{name}.onnx").write_bytes(graph)
    for name, part in saved.parts.items():
        inside = folder / name
        inside.mkdir()
        (inside / PART).write_text(json.dumps(_fill(inside, part), allow_nan=False) + "\n", "utf-8")
    return {
        "kind": saved.kind,
        "settings": dict(saved.settings),
        "arrays": bool(saved.arrays),
        "texts": list(saved.texts),
        "graphs": list(saved.graphs),
        "parts": list(saved.parts),
    }


def _saved(folder: Path, told: Mapping[str, Any]) -> Saved:
    arrays: dict[str, NDArray[Any]] = {}
    if told["arrays"]:
        with np.load(folder / ARRAYS, allow_pickle=False) as bundle:
            arrays = {name: bundle[name] for name in bundle.files}
    parts = {name: json.loads((folder / name / PART).read_text("utf-8")) for name in told["parts"]}
    return Saved(
        str(told["kind"]),
        dict(told["settings"]),
        arrays,
        {name: (folder / f"{name}.txt").read_text("utf-8") for name in told["texts"]},
        {name: _saved(folder / name, part) for name, part in parts.items()},
        {name: (folder / f"{name}.onnx").read_bytes() for name in told["graphs"]},
    )
