"""Cheap and costly estimates of the prompts that trained nothing, kept between two starts of a fit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from pandora_router import folders
from pandora_router.calibrate.readings import Readings
from pandora_router.data import Table
from pandora_router.estimators.estimator import Predictor
from pandora_router.estimators.neighbours import Neighbours
from pandora_router.folders.saved import NEEDS, Saved, fill, saved_from
from pandora_router.router.bought import buy
from pandora_router.router.opening import finish
from pandora_router.router.recipes import External
from pandora_router.types import Matrix

READINGS = folders.Kind(
    format="pandora-router readings",
    version=2,
    noun="readings of a fit",
    make="Start the fit again.",
    mend="remove the work folder and start the fit again.",
)
JOURNAL = "judgements.journal"


def readings(
    cheap: Predictor,
    costly: Predictor | External,
    parts: Mapping[str, Table],
    kept: Path | None,
    say: Callable[[int, int], None] = lambda done, total: None,
) -> tuple[dict[str, Readings], dict[str, dict[str, Matrix]]]:
    """F, G and R of each part, and the cheap estimates of 3 and of 50 neighbours where f is of neighbours.

    Read from the folder `kept` if it is there, otherwise computed and written to it. External estimates are
    kept one by one in a journal beside that folder.
    """
    if kept is not None and folders.is_stored(kept, READINGS):
        arrays = dict(saved_from(folders.read(kept, READINGS, NEEDS), READINGS).arrays)
    else:
        arrays = {}
        for name, part in parts.items():
            arrays |= {f"{name}.{what}": values for what, values in _cheap(cheap, part).items()}
            journal = None if kept is None else kept.parent / JOURNAL
            arrays[f"{name}.g"] = ask(costly, part, journal, say)
        if kept is not None:
            folders.write(kept, READINGS, lambda folder: _fill(folder, arrays))
    held, others = {}, {}
    for name, part in parts.items():
        own = {key.removeprefix(f"{name}."): a for key, a in arrays.items() if key.startswith(f"{name}.")}
        held[name] = Readings(own.pop("f"), own.pop("g"), part.reward, part.fee_weight * part.fee)
        others[name] = own
    return held, others


def _fill(folder: Path, arrays: Mapping[str, Any]) -> dict[str, Any]:
    fill(folder, Saved("readings", arrays=arrays))
    return {}


def _cheap(cheap: Predictor, part: Table) -> dict[str, Matrix]:
    """The cheap estimates, and those of 3 and of 50 neighbours beside them."""
    if not isinstance(cheap, Neighbours):
        return {"f": cheap.predict(part.prompts)}
    vectors = cheap.embedder.embed(part.prompts)
    f, three, fifty = cheap.predict_each(vectors, [cheap.k, 3, 50])
    return {"f": f, "kNN-3": three, "kNN-50": fifty}


def ask(
    costly: Predictor | External,
    part: Table,
    journal: Path | None = None,
    say: Callable[[int, int], None] = lambda done, total: None,
) -> Matrix:
    """Costly estimates (N, M); NaN where the estimator needs a context and the table has none."""
    if isinstance(costly, External):
        return finish(buy(costly, part, journal, say), waits=True)
    found = np.array(costly.predict(part.prompts, part.contexts))
    for j, name in enumerate(part.specialists):
        if name in costly.needs:
            there = [part.contexts is not None and part.contexts[i, j] is not None for i in range(len(part))]
            found[~np.array(there, dtype=np.bool_), j] = np.nan
    return found


def left_out(cheap: Predictor, costly: Predictor | External, train: Table) -> Readings | None:
    """Readings of the training prompts that no prompt influenced itself: left-out f and out-of-fold g.

    None where f cannot leave a prompt out (it is not of neighbours); g is NaN where it was not fitted here.
    """
    if not isinstance(cheap, Neighbours):
        return None
    outside = np.full(train.reward.shape, np.nan)
    if not isinstance(costly, External):
        outside = out_of_fold(costly, outside)
    return Readings(cheap.leave_one_out(), outside, train.reward, train.fee_weight * train.fee)


def out_of_fold(costly: Predictor, unknown: Matrix) -> Matrix:
    """What the trees of other folds said of each training prompt; `unknown` for other estimators."""
    from pandora_router.estimators.stack.boosted import Boosted

    return costly.out_of_fold if isinstance(costly, Boosted) else unknown
