"""pandora-router: which estimates are worth buying, and which specialist should answer.

>>> import pandora_router as pr
>>> boxes = pr.Joint(mean=[0.62, 0.55], covariance=[[0.02, 0.005], [0.005, 0.06]], inspection_cost=0.01)
>>> trace = pr.drive(pr.KnowledgeGradient(), pr.State(boxes), pr.reveal([0.58, 0.95]))
>>> trace.actions
(Inspect(boxes=(1,)), Select(box=1))

`pr.Router` fits, loads and routes; `pr.Table` is what it is fitted on. The names in `__all__` are the public
interface. Each is imported from its package the first time it is used, so `import pandora_router` alone
imports no other library.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pandora_router.boxes import Boxes, Costs, Draws, Independent, Joint, Ladder, LowRank
    from pandora_router.calibrate import Auto, Calibrated, Readings
    from pandora_router.data import Table, resplit
    from pandora_router.errors import PandoraError, UpstreamError, UsageError
    from pandora_router.estimators.estimator import Estimator, Predictor
    from pandora_router.router import (
        Decision,
        Explanation,
        External,
        LinearRecipe,
        NeighbourRecipe,
        Router,
        SetRecipe,
        StackRecipe,
        TransformerRecipe,
        explain,
    )
    from pandora_router.search import (
        OUTSIDE,
        Always,
        Batch,
        Committing,
        Decisions,
        Held,
        Inspect,
        KnowledgeGradient,
        Never,
        Obligatory,
        Optimal,
        Policy,
        Rollout,
        Select,
        SideBySide,
        State,
        Trace,
        committing_payoffs,
    )
    from pandora_router.search.drive import adrive, drive, replay, reveal
    from pandora_router.specialists.specialist import Answer, Request, Specialist

__version__ = "0.1.0"

__all__ = [
    "OUTSIDE",
    "Always",
    "Answer",
    "Auto",
    "Batch",
    "Boxes",
    "Calibrated",
    "Committing",
    "Costs",
    "Decision",
    "Decisions",
    "Draws",
    "Estimator",
    "Explanation",
    "External",
    "Held",
    "Independent",
    "Inspect",
    "Joint",
    "KnowledgeGradient",
    "Ladder",
    "LinearRecipe",
    "LowRank",
    "NeighbourRecipe",
    "Never",
    "Obligatory",
    "Optimal",
    "PandoraError",
    "Policy",
    "Predictor",
    "Readings",
    "Request",
    "Rollout",
    "Router",
    "Select",
    "SetRecipe",
    "SideBySide",
    "Specialist",
    "StackRecipe",
    "State",
    "Table",
    "Trace",
    "TransformerRecipe",
    "UpstreamError",
    "UsageError",
    "adrive",
    "committing_payoffs",
    "drive",
    "explain",
    "replay",
    "resplit",
    "reveal",
]

# module -> the public names it holds; every name that is missing here is held by `search`
_HOMES = {
    "boxes": ("Boxes", "Costs", "Draws", "Independent", "Joint", "Ladder", "LowRank"),
    "calibrate": ("Auto", "Calibrated", "Readings"),
    "data": ("Table", "resplit"),
    "errors": ("PandoraError", "UpstreamError", "UsageError"),
    "estimators.estimator": ("Estimator", "Predictor"),
    "router": ("Decision", "Explanation", "Router", "explain"),
    "router.recipes": (
        "External",
        "LinearRecipe",
        "NeighbourRecipe",
        "SetRecipe",
        "StackRecipe",
        "TransformerRecipe",
    ),
    "specialists.specialist": ("Answer", "Request", "Specialist"),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> object:
    """Import a public name the first time it is used, and keep it."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(f"{__name__}.{_HOME.get(name, 'search')}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """List the public names, also those that were not used yet."""
    return sorted({*globals(), *__all__})
