"""Fitted signal models on disk: `state` and `signal_of` turn a model into a `Saved` and back, bit for bit.

All array shapes are checked against the number of specialists before a model is built.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from pandora_router import folders
from pandora_router.calibrate.means import FittedMean, Linear
from pandora_router.calibrate.residuals import Correlation, Laws, Scale
from pandora_router.calibrate.samples import FittedDraws, FittedNeighbours
from pandora_router.calibrate.set_signal import FittedMovement, SetSignal, kinds
from pandora_router.calibrate.signals import FittedSignal, SignalModel
from pandora_router.errors import UsageError
from pandora_router.folders.saved import NEEDS, Saved, fill, saved_from

KIND = folders.Kind(
    format="pandora-router signal model",
    version=2,
    noun="a signal model",
    make="Fit a signal model and save it.",
    mend="restore it or fit the model anew.",
)


def save(signal: SignalModel, path: Path | str, *, replace: bool = False) -> None:
    """Write the model to the folder `path`, atomically.

    Raises `UsageError` if `path` exists, unless it is a signal model and `replace` is true.
    """
    saved = state(signal)

    def files(folder: Path) -> dict[str, Any]:
        fill(folder, saved)
        return {"model": saved.kind, "specialists": saved.settings["specialists"]}

    folders.write(Path(path), KIND, files, replace=replace)


def load(path: Path | str) -> SignalModel:
    """Read a model written by `save`. Raises `UsageError` if the folder is damaged or of another kind."""
    path = Path(path)
    saved = saved_from(folders.read(path, KIND, NEEDS), KIND)
    try:
        return signal_of(saved)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise KIND.refusal(path, "the parts of a signal model", f"{type(error).__name__}: {error}") from error


def state(signal: SignalModel) -> Saved:
    """The model as plain values. Raises `UsageError` for a model that is not from this package."""
    match signal:
        case FittedNeighbours():
            settings = {"specialists": signal.cheap.shape[1], "neighbours": signal.neighbours}
            return Saved("neighbours", settings, {"cheap": signal.cheap, "costly": signal.costly})
        case FittedDraws():
            arrays = {"residuals": signal.residuals, "edges": signal.edges}
            settings = {"specialists": len(signal.edges)}
            return Saved("draws", settings, arrays, parts={"mean": _mean_state(signal.mean)})
        case FittedSignal():
            parts = {"mean": _mean_state(signal.mean), "scale": Saved("scale", arrays=vars(signal.scale))}
            if signal.decided is not None:
                parts["decided"] = _mean_state(signal.decided)
            if signal.correlation is not None:
                kept = {name: a for name, a in vars(signal.correlation).items() if a is not None}
                parts["correlation"] = Saved("correlation", arrays=kept)
            if signal.laws is not None:
                parts["laws"] = Saved("laws", arrays=vars(signal.laws))
            settings = {"specialists": len(signal.scale.centre), "slope": signal.slope}
            return Saved("calibrated", settings, parts=parts)
        case SetSignal():
            parts = {"base": state(signal.base), "scale": Saved("scale", arrays=vars(signal.movement.scale))}
            arrays = {"weights": signal.weights, "intercept": signal.intercept, "steps": signal.movement.base}
            return Saved("sets", {"specialists": signal.weights.shape[2]}, arrays, parts=parts)
    raise _foreign("signal model", signal)


def signal_of(saved: Saved) -> SignalModel:
    """Restore the model from its `state`; `ValueError` or `KeyError` if arrays are missing or misshapen."""
    boxes, parts = int(saved.settings["specialists"]), saved.parts
    if saved.kind == "neighbours":
        cheap, costly = saved.array("cheap", None, boxes), saved.array("costly", None, boxes, missing=True)
        k = int(saved.settings["neighbours"])
        if cheap.shape != costly.shape or not 1 <= k <= len(cheap):
            raise ValueError(f"{k} neighbours among {len(cheap)} and {len(costly)} prompts")
        return FittedNeighbours(cheap, costly, k)
    if saved.kind == "sets":
        return _sets_of(saved, boxes)
    mean = _mean_of(parts["mean"], boxes)
    if saved.kind == "draws":
        residuals = saved.array("residuals", boxes, None, None)
        return FittedDraws(mean, residuals, saved.array("edges", boxes, residuals.shape[1] - 1))
    if saved.kind != "calibrated":
        raise ValueError(f"no signal model is called {saved.kind!r}")
    slope = float(saved.settings["slope"])
    if not np.isfinite(slope):
        raise ValueError(f"slope {slope}")
    decided = _mean_of(parts["decided"], boxes) if "decided" in parts else None
    return FittedSignal(mean, _scale_of(parts["scale"], boxes), *_laws_of(parts, boxes), slope, decided)


def _sets_of(saved: Saved, boxes: int) -> SetSignal:
    base, count = signal_of(saved.parts["base"]), kinds(boxes)
    if not isinstance(base, FittedSignal):
        raise ValueError("a base that is not a calibrated model")
    steps = saved.array("steps", count, boxes, None, boxes)
    movement = FittedMovement(steps, _scale_of(saved.parts["scale"], count * boxes), np.arange(boxes))
    weights = saved.array("weights", count, 2 * boxes, boxes)
    return SetSignal(base, weights, saved.array("intercept", count, boxes), movement)


def _scale_of(saved: Saved, boxes: int) -> Scale:
    lines = [saved.array(name, boxes) for name in ("centre", "spread", "lowest", "highest")]
    if not (lines[1] > 0.0).all():
        raise ValueError("a scale whose spread is not above zero")
    return Scale(saved.array("coefficients", boxes, 3), *lines)


def _laws_of(parts: Any, boxes: int) -> tuple[Correlation | None, Laws | None]:
    correlation = laws = None
    if "correlation" in parts:
        kept: Saved = parts["correlation"]
        factor = kept.array("factor", boxes, None) if "factor" in kept.arrays else None
        correlation = Correlation(kept.array("matrix", boxes, boxes), factor)
    if "laws" in parts:
        quantiles = parts["laws"].array("quantiles", None, None)
        laws = Laws(quantiles, parts["laws"].array("edges", boxes, None))
        classes = laws.edges.shape[1] + 1
        if len(quantiles) not in (classes, boxes * classes):
            raise ValueError(f"{len(quantiles)} laws for {classes} classes of {boxes} specialists")
    return correlation, laws


def _mean_state(mean: FittedMean) -> Saved:
    if not isinstance(mean, Linear):
        raise _foreign("mean", mean)
    return Saved("linear", arrays=vars(mean))


def _mean_of(saved: Saved, boxes: int) -> Linear:
    weights = saved.of_kind("linear").array("weights", boxes, boxes)
    return Linear(weights, saved.array("intercept", boxes), saved.array("strength", boxes))


def _foreign(what: str, value: object) -> UsageError:
    return UsageError(
        f"the {what} to save",
        expected="a fitted one of this package",
        came=type(value).__name__,
        do="Fit one first; signal models of your own cannot be saved.",
    )
