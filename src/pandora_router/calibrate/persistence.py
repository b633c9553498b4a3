"""Fitted signal models on disk: a manifest, `signal.json` and `arrays.npz`; no pickle.

`pack` and `unpack` turn a fitted model into plain facts and named arrays and back, for artifacts that hold
more than a signal model; `save` and `load` keep one in a folder of its own. Numbers come back bit for bit.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from pandora_router import folders
from pandora_router.calibrate.correlations import Correlation
from pandora_router.calibrate.laws import Laws
from pandora_router.calibrate.means import FittedMean, FittedTrees, Linear
from pandora_router.calibrate.samples import FittedDraws, FittedNeighbours
from pandora_router.calibrate.scales import Scale
from pandora_router.calibrate.signals import FittedSignal, SignalModel
from pandora_router.errors import UsageError
from pandora_router.types import Matrix

KIND = folders.Kind(
    format="pandora-router signal model",
    version=1,
    noun="a signal model",
    make="Fit one and save it.",
    mend="restore it or fit the model anew.",
)
FACTS, ARRAYS = "signal.json", "arrays.npz"
LINEAR = ("weights", "intercept", "strength")
SCALE = ("coefficients", "centre", "spread", "lowest", "highest")

Arrays = dict[str, Matrix]


def save(signal: SignalModel, path: Path | str, *, replace: bool = False) -> None:
    """Write the model to a folder; an existing one is only replaced on request."""
    facts, arrays = pack(signal)

    def fill(folder: Path) -> dict[str, Any]:
        text = json.dumps(facts, indent=1, ensure_ascii=False, allow_nan=False)
        (folder / FACTS).write_text(text + "\n", encoding="utf-8")
        np.savez(folder / ARRAYS, allow_pickle=False, **arrays)
        return {"model": facts["model"], "specialists": facts["specialists"]}

    folders.write(Path(path), KIND, fill, replace=replace)


def load(path: Path | str) -> SignalModel:
    """Read a model back; a file that is missing, changed, truncated or of another version is refused."""
    path = Path(path)
    folders.read(path, KIND, frozenset({FACTS, ARRAYS}))
    try:
        facts = json.loads((path / FACTS).read_text(encoding="utf-8"))
        with zipfile.ZipFile(path / ARRAYS) as archive:
            if any(part.compress_type != zipfile.ZIP_STORED for part in archive.infolist()):
                raise KIND.refusal(path / ARRAYS, "arrays that are not compressed", "compressed ones")
        with np.load(path / ARRAYS, allow_pickle=False) as stored:
            return unpack(facts, {name: stored[name] for name in stored.files})
    except UsageError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, zipfile.BadZipFile) as error:
        raise KIND.refusal(path, "the parts of a signal model", f"{type(error).__name__}: {error}") from error


def pack(signal: SignalModel) -> tuple[dict[str, Any], Arrays]:
    """Return the model as facts for JSON and named arrays."""
    if isinstance(signal, FittedNeighbours):
        facts = {"model": "neighbours", "neighbours": signal.neighbours}
        return _counted(facts, signal.cheap), {"cheap": signal.cheap, "costly": signal.costly}
    if isinstance(signal, FittedDraws):
        mean, arrays = _pack_mean(signal.mean)
        arrays |= {"draws.residuals": signal.residuals, "draws.edges": signal.edges}
        return _counted({"model": "draws", "mean": mean}, signal.edges.T), arrays
    if isinstance(signal, FittedSignal):
        mean, arrays = _pack_mean(signal.mean)
        arrays |= {f"scale.{name}": getattr(signal.scale, name) for name in SCALE}
        if signal.correlation is not None:
            arrays["correlation.matrix"] = signal.correlation.matrix
            if signal.correlation.factor is not None:
                arrays["correlation.factor"] = signal.correlation.factor
        if signal.laws is not None:
            arrays |= {"laws.quantiles": signal.laws.quantiles, "laws.edges": signal.laws.edges}
        facts = {"model": "calibrated", "mean": mean, "slope": signal.slope}
        return _counted(facts, signal.scale.centre), arrays
    raise UsageError(
        "the signal model to keep",
        expected="a fitted model of this package",
        came=type(signal).__name__,
        do="Fit one first; models of your own need a form of their own on disk.",
    )


def unpack(facts: Mapping[str, Any], arrays: Mapping[str, Matrix]) -> SignalModel:
    """Return the model that `pack` took apart."""
    if facts["model"] == "neighbours":
        return FittedNeighbours(arrays["cheap"], arrays["costly"], int(facts["neighbours"]))
    mean = _unpack_mean(facts["mean"], arrays)
    if facts["model"] == "draws":
        return FittedDraws(mean, arrays["draws.residuals"], arrays["draws.edges"])
    if facts["model"] != "calibrated":
        raise ValueError(f"no signal model is called {facts['model']!r}")
    correlation = laws = None
    if "correlation.matrix" in arrays:
        correlation = Correlation(arrays["correlation.matrix"], arrays.get("correlation.factor"))
    if "laws.quantiles" in arrays:
        laws = Laws(arrays["laws.quantiles"], arrays["laws.edges"])
    scale = Scale(*(arrays[f"scale.{name}"] for name in SCALE))
    return FittedSignal(mean, scale, correlation, laws, float(facts["slope"]))


def _pack_mean(mean: FittedMean) -> tuple[dict[str, Any], Arrays]:
    if isinstance(mean, Linear):
        return {"kind": "linear"}, {f"mean.{name}": getattr(mean, name) for name in LINEAR}
    if isinstance(mean, FittedTrees):
        return {"kind": "trees", "models": list(mean.models)}, {}
    raise UsageError(
        "the mean to keep",
        expected="a fitted RidgeMean, CheapMean or TreeMean",
        came=type(mean).__name__,
        do="Means of your own need a form of their own on disk.",
    )


def _unpack_mean(facts: Mapping[str, Any], arrays: Mapping[str, Matrix]) -> FittedMean:
    if facts["kind"] == "trees":
        return FittedTrees(tuple(facts["models"]))
    return Linear(*(arrays[f"mean.{name}"] for name in LINEAR))


def _counted(facts: dict[str, Any], columns: Matrix) -> dict[str, Any]:
    return {**facts, "specialists": int(columns.shape[-1])}
