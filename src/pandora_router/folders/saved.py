"""A fitted thing as plain values, and those values as files of a folder: the one way models reach the disk.

    state.json            kind, settings and parts, as a tree
    arrays.safetensors    all arrays of the tree, equal ones once: parts that were fitted on the same prompts
                          share vectors and vocabulary, on disk and in memory
    *.txt, *.bin          texts and bytes that another library reads (trees, graphs)

Whoever is saved turns itself into a `Saved` and comes back from one. Which files are whole and unchanged is
the business of `reading`; here every size and type is checked before anything is parsed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pandora_router.errors import UsageError
from pandora_router.folders.kinds import Kind, Stored, parsed
from pandora_router.folders.tensors import packed, unpacked
from pandora_router.types import Vector

STATE, ARRAYS = "state.json", "arrays.safetensors"
NEEDS = frozenset({STATE, ARRAYS})


@dataclass(frozen=True)
class Saved:
    """A fitted thing at rest: what it is, its settings (JSON), arrays, texts, blobs, and parts of its own."""

    kind: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    arrays: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict)
    parts: Mapping[str, Saved] = field(default_factory=dict)
    blobs: Mapping[str, bytes] = field(default_factory=dict)

    def of_kind(self, kind: str) -> Saved:
        """Itself, if it is of this kind; otherwise `UsageError`."""
        if self.kind != kind:
            raise UsageError(
                "what was saved",
                expected=f"the kind {kind!r}",
                came=repr(self.kind),
                do="Load another folder.",
            )
        return self

    def array(self, name: str, *shape: int | None, missing: bool = False) -> Vector:
        """An array of floats of this shape (None: any length), finite unless NaN may stand for `missing`.

        Raises `KeyError` if there is none of this name and `ValueError` if it is another.
        """
        array = self.arrays[name]
        if array.dtype != np.float64 or len(shape) != array.ndim:
            raise ValueError(f"array {name!r} is {array.dtype} of shape {array.shape}")
        if any(want not in (None, have) for want, have in zip(shape, array.shape, strict=True)):
            raise ValueError(f"array {name!r} has shape {array.shape} where {shape} was expected")
        if np.isinf(array).any() or (not missing and np.isnan(array).any()):
            raise ValueError(f"array {name!r} holds numbers that are not finite")
        return array


def fill(folder: Path, saved: Saved) -> None:
    """Write the files of `saved` into an empty folder."""
    arrays: dict[str, NDArray[Any]] = {}
    tree = _tree(folder, saved, "", arrays, {})
    text = json.dumps(tree, ensure_ascii=False, allow_nan=False)
    (folder / STATE).write_text(text + "\n", encoding="utf-8")
    (folder / ARRAYS).write_bytes(packed(arrays))


def saved_from(stored: Stored, kind: Kind) -> Saved:
    """What `fill` wrote, from files that were read and verified; `UsageError` if they do not fit together."""
    tree = parsed(stored.files[STATE], stored.path / STATE, kind)
    try:
        return _saved(stored.files, tree, "", unpacked(stored.files[ARRAYS]))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        came = f"{type(error).__name__}: {error}"
        raise kind.refusal(stored.path, f"the parts of {kind.noun}", came) from error


def _tree(
    folder: Path, saved: Saved, prefix: str, arrays: dict[str, NDArray[Any]], known: dict[Any, str]
) -> dict[str, Any]:
    """Describe `saved` and write its texts and blobs; put its arrays into `arrays`, equal ones once.

    `known` says under which name an array with a given content is there already.
    """
    stored = {}
    for name, value in saved.arrays.items():
        array = np.asarray(value)
        content = (array.dtype.str, array.shape, hashlib.sha256(array.tobytes()).digest())
        stored[name] = known.setdefault(content, f"{prefix}{name}")
        arrays.setdefault(stored[name], array)
    for name, text in saved.texts.items():
        (folder / f"{prefix}{name}.txt").write_text(text, "utf-8", newline="\n")
    for name, blob in saved.blobs.items():
        (folder / f"{prefix}{name}.bin").write_bytes(blob)
    parts = {
        name: _tree(folder, part, f"{prefix}{name}.", arrays, known) for name, part in saved.parts.items()
    }
    named = {"arrays": stored, "texts": [*saved.texts], "blobs": [*saved.blobs]}
    return {"kind": saved.kind, "settings": dict(saved.settings), **named, "parts": parts}


def _saved(
    files: Mapping[str, bytes], tree: Mapping[str, Any], prefix: str, arrays: Mapping[str, NDArray[Any]]
) -> Saved:
    parts = dict(tree["parts"])
    return Saved(
        str(tree["kind"]),
        dict(tree["settings"]),
        {name: arrays[key] for name, key in tree["arrays"].items()},
        {name: str(files[f"{prefix}{name}.txt"], "utf-8") for name in tree["texts"]},
        {name: _saved(files, part, f"{prefix}{name}.", arrays) for name, part in parts.items()},
        {name: files[f"{prefix}{name}.bin"] for name in tree["blobs"]},
    )
