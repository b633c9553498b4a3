"""What a folder is: its kind, and the manifest that says so, sealed and optionally signed."""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from mmap import mmap
from pathlib import Path, PurePosixPath
from typing import Any

from pandora_router.errors import UsageError

MANIFEST = "manifest.json"
LARGEST_MANIFEST = 64 * 2**20
DEEPEST = 60  # levels of nesting in JSON
CONTENT = re.compile(r"data-[0-9a-f]{16}")
"""The name of a subfolder with the files of one publication."""


Content = bytes | mmap


@dataclass(frozen=True)
class Kind:
    """What a folder holds: format and version in the manifest, and what messages say about such folders.

    `noun` names it ("a fitted router"), `make` says how to get one, `mend` what to do with a damaged one.
    """

    format: str
    version: int
    noun: str
    make: str
    mend: str

    def refusal(self, path: Path, expected: str, came: str) -> UsageError:
        """The error for a folder of this kind that is damaged."""
        return UsageError(str(path), expected=expected, came=came, do=f"The folder is damaged: {self.mend}")


@dataclass(frozen=True)
class Stored:
    """A folder as it was read: its manifest, and the content of every file, which matches the manifest.

    A large file may be mapped: its content is then in memory only where it is used, and processes share it.
    """

    path: Path
    manifest: Mapping[str, Any]
    files: Mapping[str, Content]


def is_stored(path: Path, kind: Kind) -> bool:
    """Whether `path` is a folder with a manifest of this kind; version and files are not checked."""
    return format_of(path) == kind.format


def format_of(path: Path) -> str | None:
    """The format that the manifest of a folder names; None if there is no manifest of ours."""
    file = path / MANIFEST
    if not file.is_file() or file.stat().st_size > LARGEST_MANIFEST:
        return None
    try:
        manifest_ = json.loads(file.read_bytes())
    except (ValueError, RecursionError):
        return None
    named = manifest_.get("format") if isinstance(manifest_, dict) else None
    return named if isinstance(named, str) and named.startswith("pandora-router ") else None


def manifest(path: Path, kind: Kind, *, key: bytes | None = None) -> dict[str, Any]:
    """The manifest of the folder `path`, checked for kind, version, seal and signature; files are not read.

    Raises `UsageError` for no folder of ours, one of another kind or version, an edited manifest and, if a
    `key` is given, for a folder that was not signed with it.
    """
    format_ = format_of(path)
    if format_ != kind.format:
        came = "no such folder" if not path.is_dir() else f"a folder without a {MANIFEST} of pandora-router"
        raise UsageError(
            str(path),
            expected=f"{kind.noun} (a folder with {MANIFEST})",
            came=came if format_ is None else f"a folder of another kind ({format_})",
            do=kind.make,
        )
    facts = parsed((path / MANIFEST).read_bytes(), path / MANIFEST, kind)
    if facts.get("version") != kind.version:
        raise UsageError(
            str(path / MANIFEST),
            expected=f"format version {kind.version}",
            came=repr(facts.get("version")),
            do=f"Another version of pandora-router wrote it: use that one, or {kind.mend}",
        )
    seal = seal_of(facts)
    if facts.get("seal") != seal:
        raise kind.refusal(path / MANIFEST, "the manifest as it was written", "an edited one")
    _check(path / MANIFEST, facts, kind)
    signature = facts.get("signature")
    if key is not None and not hmac.compare_digest(str(signature).encode(), sign(key, seal).encode()):
        raise UsageError(
            str(path / MANIFEST),
            expected="a signature made with the key that is set",
            came="none" if signature is None else "one made with another key",
            do="Use it only if you know who wrote it: have it signed, or write it with the key set.",
        )
    return facts


def parsed(content: Content, path: Path, kind: Kind) -> dict[str, Any]:
    """The JSON object in `content`, the bytes of the file `path`.

    Raises `UsageError` if it is no JSON object or is nested more than `DEEPEST` levels deep.
    """
    try:
        document = json.loads(content[:])
    except (ValueError, RecursionError) as error:
        raise kind.refusal(path, "JSON", str(error)) from error
    level = [document]
    for _ in range(DEEPEST):
        inner = [value.values() if isinstance(value, dict) else value for value in level]
        level = [part for parts in inner for part in parts if isinstance(part, dict | list)]
        if not level:
            break
    if level or not isinstance(document, dict):
        raise kind.refusal(path, f"a JSON object at most {DEEPEST} levels deep", "something else")
    return document


def seal_of(facts: Mapping[str, Any]) -> str:
    """A SHA-256 over everything a manifest says, its seal and signature apart."""
    sealed = {name: value for name, value in facts.items() if name not in ("seal", "signature")}
    text = json.dumps(sealed, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def sign(key: bytes, seal: str) -> str:
    """The signature of a manifest: HMAC-SHA-256 of its seal."""
    return hmac.new(key, seal.encode(), hashlib.sha256).hexdigest()


def _check(path: Path, facts: Mapping[str, Any], kind: Kind) -> None:
    """Refuse names that lead out of the folder and entries without size and hash."""
    content, files = facts.get("content"), facts.get("files")
    if not isinstance(content, str) or not CONTENT.fullmatch(content) or not isinstance(files, dict):
        raise kind.refusal(path, "a complete manifest", "one without its list of files")
    for name, entry in files.items():
        inside = PurePosixPath(name)
        stays = not inside.is_absolute() and ".." not in inside.parts and inside.as_posix() == name
        if not stays or "\0" in name or not isinstance(entry, dict) or set(entry) != {"bytes", "sha256"}:
            raise kind.refusal(path, "plain file names with their sizes and hashes", repr(name))
