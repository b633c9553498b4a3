"""Files and folders on disk: written whole or not at all, verified when read, never anybody else's replaced.

    kinds        what a folder is (`Kind`), its manifest, seal and signature; what may be written where
    publication  `write` and `read` for folders, `replacing` and `replace_file` for files: whole or not at all
    saved        a fitted model as plain values, those values as files, and named arrays as bytes

A folder of ours holds `manifest.json` and a subfolder `data-TOKEN` with the files. The manifest says what the
folder is (format, version), which subfolder is current, and the size and SHA-256 of every file in it.
Publishing writes a new subfolder, syncs it, and replaces `manifest.json` in one atomic rename: the manifest
is the pointer (docs/decisions/0110-published-folders.md). This package does not know what the files mean.
"""

from pandora_router.folders.kinds import (
    MANIFEST,
    Kind,
    Stored,
    check_file,
    check_output,
    format_of,
    is_stored,
    keep_apart,
    manifest,
    parsed,
)
from pandora_router.folders.publication import (
    read,
    replace_file,
    replace_text,
    replacing,
    sha256,
    sync,
    write,
)

__all__ = [
    "MANIFEST",
    "Kind",
    "Stored",
    "check_file",
    "check_output",
    "format_of",
    "is_stored",
    "keep_apart",
    "manifest",
    "parsed",
    "read",
    "replace_file",
    "replace_text",
    "replacing",
    "sha256",
    "sync",
    "write",
]
