"""What may be written where: never over an input, never over what pandora-router did not write."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from pandora_router.errors import UsageError
from pandora_router.folders.kinds import CONTENT, MANIFEST, Kind, format_of, manifest

LOCK = ".lock"
Identity = tuple[int, int] | Path


def check_output(path: Path, kind: Kind, *, replace: bool, inputs: Iterable[Path] = ()) -> None:
    """Raise `UsageError` unless a folder of this kind may be written to `path`.

    Allowed are: nothing there, an empty folder, and, if `replace` is true, a folder of the same kind and
    version in which every file is named by its manifest. The output may not be, contain or lie within one of
    the `inputs`, and it must be possible to write there. Every writer checks this when it writes; a command
    also checks it before its long work.
    """
    keep_apart(path, inputs)
    _check_place(path)
    if not os.path.lexists(path):
        return
    came = _obstacle(path, kind)
    if came is not None:
        raise UsageError(
            str(path),
            expected=f"a folder that does not exist yet, or {kind.noun} to replace",
            came=came,
            do="Choose another name, or remove it yourself.",
        )
    if not replace and (path / MANIFEST).exists():
        raise UsageError(
            str(path),
            expected="a folder that does not exist yet",
            came=f"{kind.noun} that is there already",
            do="Choose another name, or ask to replace it (--replace).",
        )


def check_file(path: Path, *, replace: bool, inputs: Iterable[Path] = ()) -> None:
    """Raise `UsageError` unless a file may be written to `path`: a new one, or any if `replace` is true.

    It may not be or lie within one of the `inputs`, and it must be possible to write there.
    """
    keep_apart(path, inputs)
    _check_place(path)
    if path.is_dir() or (os.path.lexists(path) and not replace):
        raise UsageError(
            str(path),
            expected="a file that does not exist yet",
            came="a folder" if path.is_dir() else "one that is there already",
            do="Choose another name" + ("." if path.is_dir() else ", or add --replace."),
        )


def _check_place(path: Path) -> None:
    """Refuse an output below a file or in a folder that this user may not write to."""
    whole = path.resolve()
    within = next(place for place in (whole.parent, *whole.parents) if place.exists())
    place = path if path.is_dir() else within
    if not place.is_dir() or not os.access(place, os.W_OK | os.X_OK):
        raise UsageError(
            str(path),
            expected="an output in a folder that can be written to",
            came=f"no permission to write to {place}" if place.is_dir() else f"{place}, which is a file",
            do="Choose another place.",
        )


def keep_apart(output: Path, inputs: Iterable[Path]) -> None:
    """Raise `UsageError` if `output` is one of the `inputs`, contains one or lies within one.

    Symlinks are resolved, and what exists is compared by device and inode, so that other names of one place
    (hard links, bind mounts, capitals where they do not matter) count as the same.
    """
    around = _with_parents(output)
    for source in inputs:
        inside = _identity(source.resolve()) in around
        contains = _identity(output.resolve()) in _with_parents(source)
        if inside or contains:
            relation = "the input itself" if inside and contains else "a folder inside it"
            raise UsageError(
                str(output),
                expected=f"an output apart from the input {source}",
                came=relation if inside else "a folder that contains it",
                do="Choose another place for the output.",
            )


def _identity(path: Path) -> Identity:
    try:
        status = path.stat()
    except OSError:
        return path
    return status.st_dev, status.st_ino


def _with_parents(path: Path) -> set[Identity]:
    whole = path.resolve()
    return {_identity(part) for part in (whole, *whole.parents)}


def _obstacle(path: Path, kind: Kind) -> str | None:
    """Why what is at `path` must not be replaced by a folder of this kind, or None."""
    if not path.is_dir():
        return "a symlink that leads nowhere" if path.is_symlink() else "a file"
    if all(entry.name == LOCK or is_leftover(entry) for entry in path.iterdir()):
        return None
    format_ = format_of(path)
    if format_ is None:
        return "a folder that pandora-router did not write"
    if format_ != kind.format:
        return f"a folder of another kind ({format_})"
    try:
        facts = manifest(path, kind)
    except UsageError as error:
        return f"one that cannot be trusted to be ours ({error.expected}: {error.came})"
    strangers = sorted(_strangers(path, facts["content"], set(facts["files"])))
    if strangers:
        more = f" and {len(strangers) - 1} more" if len(strangers) > 1 else ""
        return f"one with a file that pandora-router did not put there ({strangers[0]}{more})"
    return None


def _strangers(path: Path, content: str, listed: set[str]) -> Iterator[str]:
    """Files in `path` that neither the manifest lists nor an earlier or unfinished publication left there."""
    for entry in path.iterdir():
        if entry.name == content:
            inside: list[Path] = []
            with suppress(FileNotFoundError):  # another writer has just published and removed it
                inside = [p for p in entry.rglob("*") if p.is_symlink() or p.is_file()]
            names = (p.relative_to(entry).as_posix() for p in inside)
            yield from (f"{content}/{name}" for name in names if name not in listed)
        elif entry.name not in (MANIFEST, LOCK) and not is_leftover(entry):
            yield entry.name


def is_leftover(entry: Path) -> bool:
    """Whether an entry of a folder is an earlier or unfinished publication, or an unfinished manifest."""
    return CONTENT.fullmatch(entry.name) is not None or entry.name.startswith(f".{MANIFEST}.draft-")
