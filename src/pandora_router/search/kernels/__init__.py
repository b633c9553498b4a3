"""Compiled twins of the plain code, loaded on first use: `import pandora_router` never imports numba."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from types import SimpleNamespace


@cache
def load() -> SimpleNamespace:
    """Import the kernels (numba comes along) and return their entry points."""
    names: dict[str, object] = {}
    for module, entries in {
        "special": ("unit_loss_inverse", "normal_prices"),
        "payoffs": ("committing_payoffs",),
        "gradient": ("knowledge_gradient", "best_inspection"),
        "simulate": ("simulated_payoffs",),
        "rows": ("held_rows", "exact_holdouts", "rollout_step", "rollout_rows", "gradient_rows"),
    }.items():
        loaded = import_module(f"pandora_router.search.kernels.{module}")
        names.update({entry: getattr(loaded, entry) for entry in entries})
    return SimpleNamespace(**names)
