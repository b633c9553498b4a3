"""A fitted thing as plain values, and those values as files of a folder: the one way models reach the disk.

    state.json            kind, settings and parts, as a tree
    arrays.safetensors    all arrays of the tree, equal ones once: parts that were fitted on the same prompts
                          share vectors and vocabulary, on disk and in memory
    *.txt, *.bin          texts and bytes that another library reads (trees, graphs)

Whoever is saved turns itself into a `Saved` and comes back from one. Which files are whole and unchanged is
the business of `kinds`; here every size and type is checked before anything is parsed.

Named arrays are bytes in the layout of the safetensors format, without pickle or compression:

    8 bytes     length of the header, little-endian
    header      JSON: {name: {"dtype": "F64", "shape": [3, 2], "data_offsets": [0, 48]}}, padded with spaces
    data        the arrays one after the other, C order, little-endian, without gaps

Reading checks every number of the header against the bytes that are there, and returns views of them: nothing
is copied, nothing is executed, and no size is believed that the file does not have. `write_arrays` and
`read_arrays` do the same with one file, for caches.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pandora_router.errors import UsageError
from pandora_router.folders.kinds import Content, Kind, Stored, parsed
from pandora_router.folders.publication import replace_file
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
    files: Mapping[str, Content], tree: Mapping[str, Any], prefix: str, arrays: Mapping[str, NDArray[Any]]
) -> Saved:
    parts = dict(tree["parts"])
    return Saved(
        str(tree["kind"]),
        dict(tree["settings"]),
        {name: arrays[key] for name, key in tree["arrays"].items()},
        {name: files[f"{prefix}{name}.txt"][:].decode("utf-8") for name in tree["texts"]},
        {name: _saved(files, part, f"{prefix}{name}.", arrays) for name, part in parts.items()},
        {name: files[f"{prefix}{name}.bin"][:] for name in tree["blobs"]},
    )


TYPES = {
    "F64": "<f8", "F32": "<f4", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "|i1",
    "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "|u1", "BOOL": "|b1",
}  # fmt: skip
NAMES = {np.dtype(code): name for name, code in TYPES.items()}
LARGEST_HEADER = 16 * 2**20
LARGEST_FILE = 16 * 2**30
MOST_AXES = 8
ALIGN = 64

Array = NDArray[Any]


def packed(arrays: Mapping[str, Array]) -> bytes:
    """The arrays as bytes. Raises `TypeError` for texts, objects and other types that have no form here."""
    header: dict[str, Any] = {}
    parts: list[bytes] = []
    at = 0
    for name, array in sorted(arrays.items(), key=lambda item: (-np.asarray(item[1]).itemsize, item[0])):
        values = np.asarray(array)
        values = values.astype(values.dtype.newbyteorder("<"), copy=False)
        if values.dtype not in NAMES:
            raise TypeError(f"array {name!r} of type {values.dtype} cannot be written")
        raw = values.tobytes()
        header[name] = {
            "dtype": NAMES[values.dtype],
            "shape": list(values.shape),
            "data_offsets": [at, at + len(raw)],
        }
        parts.append(raw)
        at += len(raw)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % ALIGN)
    return b"".join([len(text).to_bytes(8, "little"), text, *parts])


def unpacked(content: Content) -> dict[str, Array]:
    """The arrays in `content` as read-only views of it. Raises `ValueError` if anything does not fit."""
    length = int.from_bytes(content[:8], "little")
    start = 8 + length
    if length > LARGEST_HEADER or start > len(content):
        raise ValueError(f"a header of {length} bytes in a file of {len(content)}")
    try:
        header = json.loads(content[8:start])
        entries = [
            (name, str(e["dtype"]), [*e["shape"]], *map(int, e["data_offsets"])) for name, e in header.items()
        ]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ValueError("a header that is not a list of arrays") from error
    arrays: dict[str, Array] = {}
    at = 0
    for name, dtype, shape, begin, end in sorted(entries, key=lambda entry: entry[3:]):
        if dtype not in TYPES or len(shape) > MOST_AXES:
            raise ValueError(f"array {name!r} of unknown type {dtype!r} or of {len(shape)} axes")
        if any(type(side) is not int or side < 0 for side in shape):
            raise ValueError(f"array {name!r} with a shape that is not made of counts")
        kind = np.dtype(TYPES[dtype])
        if begin != at or end - begin != math.prod(shape) * kind.itemsize or start + end > len(content):
            raise ValueError(f"array {name!r} whose size does not match its shape or the file")
        flat = np.frombuffer(content, kind, count=math.prod(shape), offset=start + begin)
        if dtype == "BOOL" and flat.view(np.uint8).max(initial=0) > 1:
            raise ValueError(f"array {name!r} with truth values other than 0 and 1")
        arrays[name] = flat.reshape(shape)
        at = end
    if start + at != len(content):
        raise ValueError(f"{len(content) - start - at} bytes that belong to no array")
    return arrays


def write_arrays(path: Path, arrays: Mapping[str, Array]) -> None:
    """Write the arrays to the file `path`, atomically."""
    replace_file(path, packed(arrays))


def read_arrays(path: Path) -> dict[str, Array]:
    """The arrays in the file `path`, as `unpacked`.

    Raises `ValueError` if it is not a regular file, is larger than `LARGEST_FILE` or does not hold arrays,
    and `OSError` if it cannot be read.
    """
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # a pipe in place of a file must not block
    with os.fdopen(handle, "rb") as source:
        there = os.fstat(handle)
        if not stat.S_ISREG(there.st_mode) or there.st_size > LARGEST_FILE:
            raise ValueError("not a regular file of an acceptable size")
        return unpacked(source.read(there.st_size))
