"""Any saved estimator, opened by what its manifest says it is.

The heavy libraries of an estimator are imported only when that estimator is opened.
"""

from __future__ import annotations

from pathlib import Path

from pandora_router.errors import UsageError
from pandora_router.estimators.embedders import Embedder
from pandora_router.estimators.estimator import Predictor
from pandora_router.estimators.extended import Extended
from pandora_router.estimators.heads import Ridge
from pandora_router.estimators.neighbours import Neighbours
from pandora_router.estimators.persistence import Saved, read


def load_estimator(folder: Path | str, *, embedder: Embedder | None = None) -> Predictor:
    """Reads what any `save` of this room wrote; `embedder` only if it was a callable or an endpoint."""
    return estimator_of(read(folder), embedder=embedder)


def estimator_of(saved: Saved, *, embedder: Embedder | None = None) -> Predictor:
    """The estimator a `state` described, whatever its kind."""
    match saved.kind:
        case "neighbours":
            return Neighbours.from_state(saved, embedder=embedder)
        case "boosted":
            from pandora_router.estimators.boosted import Boosted

            return Boosted.from_state(saved, embedder=embedder)
        case "beginnings":
            from .beginnings import Beginnings

            return Beginnings.from_state(saved, embedder=embedder)
        case "transformer":
            from pandora_router.estimators.served import Served

            return Served.from_state(saved)
        case "extended":
            head = Ridge(saved.arrays["weights"], saved.arrays["intercept"])
            base = estimator_of(saved.parts["base"], embedder=embedder)
            return Extended(base, str(saved.settings["newcomer"]), head)
    raise UsageError(
        "saved estimator",
        expected="neighbours, boosted, beginnings, transformer or extended",
        came=f"{saved.kind!r}",
        do="It may have been written by a newer version: upgrade, or fit and save it again.",
    )
