"""Finished parts of a long fit, so that one that was killed goes on where it stopped.

A stage is a `Saved` in a folder of its own, there whole or not at all. All stages lie under a name made of
everything they depend on: other data, settings or versions never find them.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from pandora_router import folders
from pandora_router.estimators.persistence import Saved, read, write


@dataclass(frozen=True)
class Stages:
    """Stages under a folder; without one nothing is kept."""

    folder: Path | None = None

    @classmethod
    def of(cls, work: Path | str | None, *depends_on: Any) -> Stages:
        """The stages of a fit that depends on these values: arrays, texts, anything with a plain repr."""
        if work is None:
            return cls()
        mark = hashlib.sha256(metadata.version("pandora-router").encode())
        for value in depends_on:
            numbers = isinstance(value, np.ndarray) and value.dtype != object
            told = value.tolist() if isinstance(value, np.ndarray) and not numbers else value
            mark.update(value.tobytes() if numbers else repr(told).encode())
        return cls(Path(work) / mark.hexdigest()[:16])

    def get(self, name: str) -> Saved | None:
        """A stage that was finished before."""
        if self.folder is None:
            return None
        folders.restore(self.folder / name)
        return read(self.folder / name) if folders.is_stored(self.folder / name) else None

    def put(self, name: str, saved: Saved) -> None:
        """Keep a finished stage."""
        if self.folder is not None:
            write(self.folder / name, saved)
