"""A cache of embeddings on disk, keyed by the SHA-256 of each text; the texts themselves are never written.

Every call with new texts adds one file (.npz: keys and vectors), written under a temporary name and renamed,
so that several processes can share a folder and a killed one leaves no half-written file. A file that cannot
be read is skipped and its texts are embedded again. Meant for fitting and batches; a live router embeds its
one prompt directly.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from pandora_router.estimators.embedders.embedder import Embedder, Vectors, checked_texts

KEY_BYTES = 32
SEGMENTS = 64


@dataclass(frozen=True)
class Cached:
    """The embedder `inner` with a cache in `folder`: same name, same vectors."""

    inner: Embedder
    folder: Path
    _known: dict[bytes, Vectors] = field(default_factory=dict, repr=False, compare=False)
    _read: set[str] = field(default_factory=set, repr=False, compare=False)

    @property
    def name(self) -> str:
        """The name of `inner`."""
        return self.inner.name

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Vectors of the texts; those not on disk are computed, each distinct text once, and written."""
        given = checked_texts(texts)
        keys = [hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest() for text in given]
        if any(key not in self._known for key in keys):
            self._read_segments()
        new = {key: text for key, text in zip(keys, given, strict=True) if key not in self._known}
        if new:
            vectors = self.inner.embed(list(new.values()))
            self._known.update(zip(new, vectors, strict=True))
            self._write_segment(list(new), vectors)
        if not keys:
            return self.inner.embed([])
        return np.stack([self._known[key] for key in keys])

    @property
    def shelf(self) -> Path:
        """The subfolder for embeddings of this name."""
        return Path(self.folder) / hashlib.sha256(self.name.encode()).hexdigest()[:16]

    def _read_segments(self) -> None:
        for path in sorted(self.shelf.glob("*.npz")):
            if path.name in self._read:
                continue
            try:
                with open(path, "rb") as source:
                    keys, vectors = _segment(source)
            except (OSError, ValueError, KeyError, EOFError, MemoryError, zipfile.BadZipFile):
                continue
            if keys.shape == (len(vectors), KEY_BYTES) and keys.dtype == np.uint8 and vectors.ndim == 2:
                self._read.add(path.name)
                self._known.update(zip((key.tobytes() for key in keys), vectors, strict=True))

    def _write_segment(self, keys: list[bytes], vectors: Vectors) -> None:
        self.shelf.mkdir(parents=True, exist_ok=True)
        old = sorted(self.shelf.glob("*.npz"))
        if len(old) >= SEGMENTS:
            keys, vectors = list(self._known), np.stack(list(self._known.values()))
        packed = np.frombuffer(b"".join(keys), dtype=np.uint8).reshape(-1, KEY_BYTES)
        handle, scratch = tempfile.mkstemp(dir=self.shelf, suffix=".part")
        try:
            with os.fdopen(handle, "wb") as sink:
                np.savez(sink, allow_pickle=False, keys=packed, vectors=vectors)
            name = hashlib.sha256(packed.tobytes()).hexdigest()[:32] + ".npz"
            os.replace(scratch, self.shelf / name)
            self._read.add(name)
        finally:
            Path(scratch).unlink(missing_ok=True)
        if len(old) >= SEGMENTS:
            for path in old:
                if path.name in self._read and path.name != name:
                    with contextlib.suppress(OSError):
                        path.unlink()


def _segment(source: IO[bytes]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Keys and vectors in a file; raises `ValueError` for a compressed one.

    We write no compressed files, and a small one could fill the memory when it is expanded.
    """
    with zipfile.ZipFile(source) as entries:
        if any(entry.compress_type != zipfile.ZIP_STORED for entry in entries.infolist()):
            raise ValueError("a compressed file")
    source.seek(0)
    with np.load(source, allow_pickle=False) as bundle:
        return bundle["keys"], bundle["vectors"]
