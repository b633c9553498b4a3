"""A cache of embeddings on disk, keyed by the SHA-256 of each text; the texts themselves are never written.

Every call with new texts adds one file with keys and vectors (`folders.tensors`), written atomically, so that
several processes can share a folder and a killed one leaves no half-written file. A file that cannot be read
is skipped and its texts are embedded again. Meant for fitting and batches; a live router embeds its one
prompt directly.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pandora_router.estimators.embedders.embedder import Embedder, Vectors, checked_texts
from pandora_router.folders import tensors

KEY_BYTES = 32
SEGMENTS = 64
ENDING = ".safetensors"


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
        for path in sorted(self.shelf.glob(f"*{ENDING}")):
            if path.name in self._read:
                continue
            try:
                arrays = tensors.stored(path)
                keys, vectors = arrays["keys"], arrays["vectors"]
            except (OSError, ValueError, KeyError, MemoryError):
                continue
            if _fit_together(keys, vectors):
                self._read.add(path.name)
                self._known.update(zip((key.tobytes() for key in keys), vectors, strict=True))

    def _write_segment(self, keys: list[bytes], vectors: Vectors) -> None:
        old = sorted(self.shelf.glob(f"*{ENDING}"))
        if len(old) >= SEGMENTS:
            keys, vectors = list(self._known), np.stack(list(self._known.values()))
        rows = np.frombuffer(b"".join(keys), dtype=np.uint8).reshape(-1, KEY_BYTES)
        name = hashlib.sha256(rows.tobytes()).hexdigest()[:32] + ENDING
        tensors.store(self.shelf / name, {"keys": rows, "vectors": vectors})
        self._read.add(name)
        if len(old) >= SEGMENTS:
            for path in old:
                if path.name in self._read and path.name != name:
                    with contextlib.suppress(OSError):
                        path.unlink()


def _fit_together(keys: NDArray[Any], vectors: NDArray[Any]) -> bool:
    """Whether these are keys and as many finite vectors."""
    typed = keys.dtype == np.uint8 and vectors.dtype == np.float32 and vectors.ndim == 2
    return typed and keys.shape == (len(vectors), KEY_BYTES) and bool(np.isfinite(vectors).all())
