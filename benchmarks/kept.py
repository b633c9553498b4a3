"""Predictions of one estimator on one test set, kept on disk so that a run that is broken off goes on.

A cell is `CACHE/SET/LABEL.npz`: predictions as float32, CPU-seconds, and the settings it was made with; other
settings are another cell, made anew. Written under a temporary name and renamed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pandora_router.folders import replace_text, replacing

CACHE = Path("build/measured")
Made = tuple[Any, float, dict[str, Any]]


@dataclass(frozen=True)
class Cell:
    """What one estimator said of the test prompts (n, M), and what it took."""

    predicted: NDArray[np.float64]
    seconds: float
    told: Mapping[str, Any]


def kept(
    folder: Path,
    label: str,
    settings: Mapping[str, Any],
    make: Callable[[], Made] | None,
) -> Cell | None:
    """The cell from the disk, or made now and kept; None if it is not there and `make` is None.

    `make` gives predictions, CPU-seconds and remarks.
    """
    path = folder / f"{re.sub(r'[^a-z0-9]+', '-', label.lower())}.npz"
    wanted = json.dumps(settings, sort_keys=True)
    if path.exists():
        with np.load(path, allow_pickle=False) as found:
            if str(found["settings"]) == wanted:
                told = json.loads(str(found["told"]))
                return Cell(found["predicted"].astype(np.float64), float(found["seconds"]), told)
    if make is None:
        return None
    predicted, seconds, told = make()
    with replacing(path) as draft, draft.open("wb") as sink:
        np.savez(
            sink,
            predicted=np.asarray(predicted, dtype=np.float32),
            seconds=seconds,
            settings=wanted,
            told=json.dumps(told),
        )
    return Cell(np.asarray(predicted, dtype=np.float32).astype(np.float64), seconds, told)


def write_json(path: Path, value: Any) -> None:
    """Write the value as JSON, atomically."""
    replace_text(path, json.dumps(value, indent=1, sort_keys=True) + "\n")


def per_prompt(predicted: NDArray[Any], reward: NDArray[Any]) -> NDArray[Any]:
    """Squared error of each prompt, averaged over the specialists that have a reward; NaN without any."""
    square = (predicted - reward) ** 2
    there = np.isfinite(square)
    counts = there.sum(axis=1)
    total = np.where(there, square, 0.0).sum(axis=1)
    return np.where(counts > 0, total / np.maximum(counts, 1), np.nan)


def paired(error: NDArray[Any], base: NDArray[Any]) -> dict[str, float]:
    """Mean of error - base over prompts and its standard error."""
    gap = (error - base)[np.isfinite(error - base)]
    return {"gap": float(gap.mean()), "error": float(gap.std(ddof=1) / np.sqrt(len(gap)))}
