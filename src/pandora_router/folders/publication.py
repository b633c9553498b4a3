"""Write files and folders atomically, one writer at a time, and read folders back verified."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import mmap
import os
import secrets
import shutil
import stat
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from pandora_router.errors import UsageError
from pandora_router.folders.kinds import (
    LOCK,
    MANIFEST,
    Content,
    Kind,
    Stored,
    check_output,
    is_leftover,
    manifest,
    seal_of,
    sign,
)

ABANDONED = 24 * 3600.0  # seconds after which a draft is removed where the file system has no locks
WITHOUT_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)
MAPPED = 64 * 2**20  # bytes from which on a file is mapped
RESTARTS = 8  # of a reader whose files were replaced twice while it read
Fill = Callable[[Path], Mapping[str, Any]]
Weigh = Callable[[Path, int], None]


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Replace one file atomically: after a crash `path` holds the old content or the new one.

    Yields the path of a draft beside it, for the caller to write; when the block ends without an exception,
    the draft is synced to disk and renamed to `path`. Missing parent folders are made. An `OSError` about
    the draft or a folder above it names `path` instead.
    """
    draft = path.with_name(f".{path.name}.draft-{secrets.token_hex(8)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield draft
        sync(draft)
        draft.replace(path)
        sync(path.parent)
    except OSError as error:
        if Path(str(error.filename)) not in (draft, *path.parents):
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        with suppress(OSError):
            draft.unlink()


def replace_file(path: Path, content: bytes) -> None:
    """Write `content` to one file atomically; see `replacing`."""
    with replacing(path) as draft:
        draft.write_bytes(content)


def replace_text(path: Path, text: str) -> None:
    """As `replace_file`, for a text, which is written as UTF-8."""
    replace_file(path, text.encode("utf-8"))


def write(
    path: Path,
    kind: Kind,
    fill: Fill,
    *,
    replace: bool = False,
    inputs: Iterable[Path] = (),
    key: bytes | None = None,
) -> None:
    """Write the folder `path` atomically: after a crash it holds the old content or the new one.

    `fill(folder)` writes the files into an empty folder and returns what else the manifest says. `replace`
    and `inputs` are as in `check_output`. With a `key` the manifest is signed. Raises `UsageError` if `path`
    may not or cannot be written; what was there is then unchanged.
    """
    inputs = tuple(inputs)
    check_output(path, kind, replace=replace, inputs=inputs)
    try:
        target = path.resolve()
        target.parent.mkdir(parents=True, exist_ok=True)
        with _only_writer(target) as locked:
            check_output(path, kind, replace=replace, inputs=inputs)
            _sweep(target, locked)
            _publish(target, kind, fill, key)
    except UnicodeEncodeError as error:
        near = str(error.object)[max(0, error.start - 20) : error.start]
        raise UsageError(
            "a text",
            expected="whole characters",
            came=f"half of a surrogate pair after {near!r}",
            do="The text was cut inside a character: correct it.",
        ) from error
    except OSError as error:
        raise UsageError(
            str(path),
            expected="a place where a folder can be written",
            came=error.strerror or str(error),
            do=f"Check the permissions of {path.parent} and the space left there, or choose another place.",
        ) from error


def _publish(path: Path, kind: Kind, fill: Fill, key: bytes | None) -> None:
    """Write a new subfolder and have the manifest name it; a new folder is made beside `path` and renamed."""
    token = secrets.token_hex(8)
    new = not path.is_dir()
    home = path.with_name(f".{path.name}.draft-{token}") if new else path
    content = home / f"data-{token}"
    try:
        content.mkdir(parents=True)
        facts = {"format": kind.format, "version": kind.version, **fill(content), "content": content.name}
        facts["files"] = _entries(content)
        facts["seal"] = seal_of(facts)
        if key is not None:
            facts["signature"] = sign(key, facts["seal"])
        text = json.dumps(facts, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
        replace_text(home / MANIFEST, text)
        if new:
            home.rename(path)
            sync(path.parent)
    except BaseException:
        shutil.rmtree(home if new else content, ignore_errors=True)
        raise


def _entries(folder: Path) -> dict[str, dict[str, Any]]:
    """Size and SHA-256 of every file, each synced to disk."""
    entries = {}
    for file in sorted(folder.rglob("*")):
        sync(file)
        if file.is_file():
            name = file.relative_to(folder).as_posix()
            entries[name] = {"bytes": file.stat().st_size, "sha256": sha256(file)}
    sync(folder)
    return entries


@contextmanager
def _only_writer(path: Path) -> Iterator[bool]:
    """Exclude other writers of `path`, here and on other hosts; false if the file system has no locks.

    The lock is a file inside `path`, or beside it while it does not exist. It is removed at the end; whoever
    waited for it then holds a file without a name and starts again.
    """
    while True:
        inside = path.is_dir()
        file = path / LOCK if inside else _beside(path)
        handle = os.open(file, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            locked = _lock(handle)
            if _is(file, handle) and path.is_dir() == inside:
                break
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)
    try:
        yield locked
    finally:
        file.unlink(missing_ok=True)
        os.close(handle)


def _beside(path: Path) -> Path:
    return path.with_name(f".{path.name}{LOCK}")


def _lock(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
    except OSError as error:
        if error.errno not in WITHOUT_LOCKS:
            raise
        return False
    return True


def _is(file: Path, handle: int) -> bool:
    """Whether the open file still bears this name."""
    try:
        return os.path.samestat(file.stat(), os.fstat(handle))
    except FileNotFoundError:
        return False


def _sweep(path: Path, locked: bool) -> None:
    """Remove what earlier writers of `path` left: drafts, and all subfolders but the current one.

    The only writer may remove everything; without a lock only what nobody has touched for `ABANDONED`
    seconds.
    """
    left = [p for p in path.parent.iterdir() if p.name.startswith(f".{path.name}.draft-")]
    if path.is_dir():
        named = (path / MANIFEST).is_file()
        current = json.loads((path / MANIFEST).read_bytes())["content"] if named else None
        left += [p for p in path.iterdir() if is_leftover(p) and p.name != current]
        left += [p for p in [_beside(path)] if p.exists()]  # of a writer killed right after the first rename
    for stale in left:
        with suppress(FileNotFoundError):
            if locked or time.time() - stale.stat().st_mtime > ABANDONED:
                shutil.rmtree(stale, ignore_errors=True) if stale.is_dir() else stale.unlink()


def sha256(path: Path) -> str:
    """The SHA-256 of a file in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sync(path: Path) -> None:
    """Return once the disk holds a file, or the names in a folder (fsync)."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def read(
    path: Path, kind: Kind, needs: frozenset[str], *, weigh: Weigh | None = None, key: bytes | None = None
) -> Stored:
    """Read the folder `path` and return its manifest and the content of all its files, each read once.

    Files of `MAPPED` bytes or more are mapped instead of read, unless there is a `key`: a mapped file that
    somebody changes in place afterwards (pandora-router never does) changes what was verified.
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
                name: _verified(content / name, entry, kind, weigh, MAPPED if key is None else sys.maxsize)
                for name, entry in facts["files"].items()
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


def _verified(file: Path, entry: Mapping[str, Any], kind: Kind, weigh: Weigh | None, mapped: int) -> Content:
    """The content of a file, which has the size and hash of its entry; mapped from `mapped` bytes on."""
    handle = os.open(file, os.O_RDONLY | os.O_NONBLOCK)  # a pipe in place of a file must not block
    with os.fdopen(handle, "rb") as source:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise kind.refusal(file, "a regular file", "something else")
        if weigh is not None:
            weigh(file, status.st_size)
        if status.st_size != entry["bytes"]:
            raise kind.refusal(file, f"{entry['bytes']} bytes", f"{status.st_size}")
        content: Content
        if status.st_size >= mapped:
            content = mmap.mmap(handle, status.st_size, access=mmap.ACCESS_READ)
        else:
            content = source.read(status.st_size)
    if hashlib.sha256(content).hexdigest() != entry["sha256"]:
        expected = f"SHA-256 {str(entry['sha256'])[:12]}..."
        raise kind.refusal(file, expected, "another: the file was changed")
    return content
