"""A folder that is there whole or not at all, and says when it is no longer what was written.

`write` fills a draft under a temporary name, records bytes and SHA-256 of every file, subfolders included, in
`manifest.json`, has the disk hold it, and renames. `read` checks format, version, names, sizes and hashes
before anybody looks at the content. It refuses to know what the files mean.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from pandora_router.errors import UsageError

MANIFEST = "manifest.json"


@dataclass(frozen=True)
class Kind:
    """What a folder holds: its format and version, its name in messages, how to get one and to mend one."""

    format: str
    version: int
    noun: str
    make: str
    mend: str

    def refusal(self, path: Path, expected: str, came: str) -> UsageError:
        """The error for a folder that is damaged."""
        return UsageError(str(path), expected=expected, came=came, do=f"The folder is damaged: {self.mend}")


def replace_text(path: Path, text: str) -> None:
    """Write one text file whole or not at all, whatever was there before."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}")
    try:
        draft.write_text(text, encoding="utf-8")
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def is_stored(path: Path) -> bool:
    """Whether a folder looks like one that `write` wrote."""
    return (path / MANIFEST).is_file()


def write(
    path: Path, kind: Kind, fill: Callable[[Path], Mapping[str, Any]], *, replace: bool = False
) -> None:
    """Have `fill` write files into a draft folder and return what the manifest says beside them; then rename.

    An existing folder is only replaced on request, and only by a whole one. What a process that was killed
    left behind is put back (the old folder, if it died between two renames) or removed.
    """
    restore(path)
    if path.exists() and not (replace and is_stored(path)):
        raise UsageError(
            str(path),
            expected="a folder that does not exist yet",
            came="something is there" if not replace else f"something there that is not {kind.noun}",
            do="Choose another name" + ("." if replace else ", or ask to replace what is there."),
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    _sweep(path)
    mark = f"{os.getpid()}-{secrets.token_hex(4)}"
    draft, aside = path.with_name(f".{path.name}.draft-{mark}"), path.with_name(f".{path.name}.old-{mark}")
    try:
        draft.mkdir()
        _seal(draft, kind, fill(draft))
        if path.exists():
            path.rename(aside)
        draft.rename(path)
        sync(path.parent)
    finally:
        if aside.exists() and not path.exists():
            aside.rename(path)
        shutil.rmtree(draft, ignore_errors=True)
        shutil.rmtree(aside, ignore_errors=True)


def read(
    path: Path, kind: Kind, needs: frozenset[str], *, weigh: Callable[[Path, int], None] | None = None
) -> dict[str, Any]:
    """Return the manifest once everything it lists is there unchanged; `needs` are files it must list.

    `weigh(file, bytes)` may refuse a file for its size before it is read.
    """
    told = manifest(path, kind)
    files = told.get("files")
    if not isinstance(files, dict) or not needs <= set(files):
        raise kind.refusal(path / MANIFEST, "a complete manifest", f"no list with {', '.join(sorted(needs))}")
    for name, entry in files.items():
        _verify(path, name, entry, kind, weigh)
    return told


def restore(path: Path) -> None:
    """Put the old folder back if a process died after moving it aside and before the new one was in place."""
    if not path.exists():
        for aside in _left(path, "old"):
            aside.rename(path)
            return


def _sweep(path: Path) -> None:
    for stale in (*_left(path, "draft"), *_left(path, "old")):
        shutil.rmtree(stale, ignore_errors=True)


def _left(path: Path, what: str) -> list[Path]:
    """Folders of processes that are no longer there."""
    start = f".{path.name}.{what}-"
    found = path.parent.iterdir() if path.parent.is_dir() else iter(())
    return sorted(p for p in found if p.name.startswith(start) and not _alive(p.name[len(start) :]))


def _alive(mark: str) -> bool:
    try:
        os.kill(int(mark.partition("-")[0]), 0)
    except (ProcessLookupError, ValueError):
        return False
    except PermissionError:
        return True
    return True


def _seal(folder: Path, kind: Kind, facts: Mapping[str, Any]) -> None:
    entries = {}
    for file in sorted(folder.rglob("*")):
        sync(file)
        if file.is_file():
            name = file.relative_to(folder).as_posix()
            entries[name] = {"bytes": file.stat().st_size, "sha256": sha256(file)}
    manifest = {"format": kind.format, "version": kind.version, **facts, "files": entries}
    text = json.dumps(manifest, indent=1, ensure_ascii=False, allow_nan=False)
    (folder / MANIFEST).write_text(text + "\n", encoding="utf-8")
    sync(folder / MANIFEST)
    sync(folder)


def manifest(path: Path, kind: Kind) -> dict[str, Any]:
    """The manifest of a folder, checked for format and version; its files are not looked at."""
    restore(path)
    if not is_stored(path):
        raise UsageError(
            str(path),
            expected=f"{kind.noun} (a folder with {MANIFEST})",
            came="a folder without one" if path.is_dir() else "no such folder",
            do=kind.make,
        )
    try:
        told = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise kind.refusal(path / MANIFEST, "JSON", str(error)) from error
    if not isinstance(told, dict) or told.get("format") != kind.format:
        raise kind.refusal(path / MANIFEST, f"format {kind.format!r}", "another format")
    if told.get("version") != kind.version:
        raise UsageError(
            str(path / MANIFEST),
            expected=f"format version {kind.version}",
            came=repr(told.get("version")),
            do=f"Upgrade pandora-router, or {kind.mend}",
        )
    return told


def _verify(path: Path, name: str, entry: Any, kind: Kind, weigh: Callable[[Path, int], None] | None) -> None:
    inside = PurePosixPath(name)
    stays = not inside.is_absolute() and ".." not in inside.parts and inside.as_posix() == name
    if not stays or name == MANIFEST or not isinstance(entry, dict):
        raise kind.refusal(path / MANIFEST, "plain file names with their hashes", repr(name))
    file = path / name
    if not file.is_file():
        raise kind.refusal(file, "the file that the manifest lists", "none")
    size = file.stat().st_size
    if weigh is not None:
        weigh(file, size)
    if size != entry.get("bytes"):
        raise kind.refusal(file, f"{entry.get('bytes')} bytes", f"{size}")
    recorded = str(entry.get("sha256"))
    if sha256(file) != recorded:
        raise kind.refusal(file, f"SHA-256 {recorded[:12]}...", "another: the file was changed")


def sha256(path: Path) -> str:
    """The SHA-256 of a file in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sync(path: Path) -> None:
    """Have the disk hold what was written before anything is renamed."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
