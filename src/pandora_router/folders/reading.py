"""Read a folder: every file once into memory, verified there, so that what is parsed is what was checked."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pandora_router.errors import UsageError
from pandora_router.folders.kinds import MANIFEST, Kind, Stored, manifest

RESTARTS = 8  # of a reader whose files were replaced twice while it read
Weigh = Callable[[Path, int], None]


def read(
    path: Path, kind: Kind, needs: frozenset[str], *, weigh: Weigh | None = None, key: bytes | None = None
) -> Stored:
    """Read the folder `path` and return its manifest and the bytes of all its files.

    `needs` are files that must be listed. `weigh(file, bytes)` may refuse a file for its size before it is
    read. With a `key`, a folder that was not signed with it is refused. A publication meanwhile does no harm:
    the files of the old one are still there, and after two publications reading starts again. Raises
    `UsageError` for a folder of another kind or version, unsigned, or damaged.
    """
    for _ in range(RESTARTS):
        facts = manifest(path, kind, key=key)
        if not needs <= set(facts["files"]):
            came = f"no list with {', '.join(sorted(needs))}"
            raise kind.refusal(path / MANIFEST, "a complete manifest", came)
        content = path / facts["content"]
        try:
            files = {
                name: _verified(content / name, entry, kind, weigh) for name, entry in facts["files"].items()
            }
        except FileNotFoundError as error:
            if manifest(path, kind, key=key)["content"] == facts["content"]:
                expected = "the file that the manifest lists"
                raise kind.refusal(Path(error.filename), expected, "no such file") from error
            continue
        return Stored(path, facts, files)
    raise UsageError(
        str(path),
        expected="a folder that is not replaced all the time",
        came=f"one that was replaced {2 * RESTARTS} times while it was read",
        do="Try again when it is no longer being written.",
    )


def _verified(file: Path, entry: Mapping[str, Any], kind: Kind, weigh: Weigh | None) -> bytes:
    """The bytes of a file, which have the size and hash of its entry."""
    handle = os.open(file, os.O_RDONLY | os.O_NONBLOCK)  # a pipe in place of a file must not block
    with os.fdopen(handle, "rb") as source:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise kind.refusal(file, "a regular file", "something else")
        if weigh is not None:
            weigh(file, status.st_size)
        if status.st_size != entry["bytes"]:
            raise kind.refusal(file, f"{entry['bytes']} bytes", f"{status.st_size}")
        content = source.read(status.st_size)
    if hashlib.sha256(content).hexdigest() != entry["sha256"]:
        expected = f"SHA-256 {str(entry['sha256'])[:12]}..."
        raise kind.refusal(file, expected, "another: the file was changed")
    return content
