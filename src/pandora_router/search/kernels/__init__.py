"""Compiled twins of the plain code, loaded on first use: `import pandora_router` never imports numba."""

from __future__ import annotations

import gc
from functools import cache
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from pandora_router.boxes.checks import locked

ENTRIES = {
    "special": ("unit_loss_inverse", "normal_prices"),
    "payoffs": ("committing_payoffs",),
    "gradient": ("knowledge_gradient", "best_inspection", "gradient_step", "group_gain"),
    "simulate": ("simulated_payoffs",),
    "rows": ("held_rows", "exact_holdouts", "rollout_step", "rollout_rows", "gradient_rows"),
}


@cache
def load() -> SimpleNamespace:
    """Import the kernels (numba comes along) and return their entry points."""
    here = Path(__file__).parent
    room = here.parent
    drop_stale(here / "__pycache__", [*here.glob("*.py"), *room.glob("*.py"), *room.parent.glob("index*.py")])
    collecting = gc.isenabled()
    gc.disable()  # numba makes so many objects that the collector takes a tenth of a second over them
    try:
        names: dict[str, object] = {}
        for module, entries in ENTRIES.items():
            loaded = import_module(f"pandora_router.search.kernels.{module}")
            names.update({entry: getattr(loaded, entry) for entry in entries})
        kernels = SimpleNamespace(**names)
        one = locked(np.ones(1))  # a first call: the slowest part of starting numba
        kernels.normal_prices(one, one, one, locked(np.ones(1, dtype=np.bool_)), np.empty(1))
    finally:
        if collecting:
            gc.enable()
    return kernels


def drop_stale(cached: Path, sources: list[Path]) -> None:
    """Remove compiled code older than any source it may hold.

    numba looks only at the file a kernel stands in, but a compiled kernel contains those it calls, and
    constants from other files: after a change there it would go on computing what it did before.
    """
    newest = max(source.stat().st_mtime for source in sources)
    for file in [*cached.glob("*.nbi"), *cached.glob("*.nbc")]:
        try:
            if file.stat().st_mtime < newest:
                file.unlink()
        except OSError:  # another process was faster, or the folder is read-only
            continue
