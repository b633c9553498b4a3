"""Named arrays as bytes and back, in the layout of the safetensors format; no pickle, no compression.

    8 bytes     length of the header, little-endian
    header      JSON: {name: {"dtype": "F64", "shape": [3, 2], "data_offsets": [0, 48]}}, padded with spaces
    data        the arrays one after the other, C order, little-endian, without gaps

Reading checks every number of the header against the bytes that are there, and returns views of them: nothing
is copied, nothing is executed, and no size is believed that the file does not have. `store` and `stored` do
the same with one file, for caches.
"""

from __future__ import annotations

import json
import math
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pandora_router.folders.publication import replace_file

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


def unpacked(content: bytes) -> dict[str, Array]:
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


def store(path: Path, arrays: Mapping[str, Array]) -> None:
    """Write the arrays to the file `path`, atomically."""
    replace_file(path, packed(arrays))


def stored(path: Path) -> dict[str, Array]:
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
