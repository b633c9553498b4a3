"""Cheap and costly estimates for fitting, none influenced by its own prompt; kept for resumed fits.

The cheap estimate knows training and calibration prompts; both get left-out estimates. The costly estimate is
out of fold for training prompts and was not fitted on the others.

Costly estimates from outside are bought with `buy`. Each is written to disk before it is used, and none is
bought twice. Where one call rates all specialists, a purchase is a prompt, otherwise a cell. A purchase that
failed leaves a missing cell and is tried again at the next start.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pandora_router import folders
from pandora_router.calibrate.readings import Readings
from pandora_router.collect.journal import Journal
from pandora_router.data import Table
from pandora_router.data.splits import sample
from pandora_router.estimators.estimator import CrossFitted, Predictor, Query, Remembering
from pandora_router.estimators.neighbours import Count, Neighbours
from pandora_router.folders.saved import NEEDS, Saved, fill, saved_from
from pandora_router.router.driver import finish
from pandora_router.router.recipes import External
from pandora_router.specialists.specialist import Answer
from pandora_router.types import Matrix, Positions, Vector, silent

READINGS = folders.Kind(
    format="pandora-router readings",
    version=3,
    noun="readings of a fit",
    make="Start the fit again.",
    mend="remove the work folder and start the fit again.",
)
JOURNAL = "judgements.journal"
COMPARED: Mapping[str, Count | None] = {"f": None, "kNN-3": 3, "kNN-50": 50}
"""The cheap estimate, and those whose squared errors are reported for comparison."""


@dataclass(frozen=True, eq=False)
class Estimated:
    """The estimates on which a router is fitted and measured; no prompt influenced its own.

    cheap: the cheap estimate with known training and calibration prompts (training alone, if prompts cannot
        be added).
    train: left-out f and out-of-fold g of (a sample of) the training prompts; None if f cannot leave a
        prompt out.
    held: the readings of (samples of) the other splits.
    others: estimates by 3 and by 50 neighbours of the same prompts, if f uses neighbours.
    """

    cheap: Predictor
    train: Readings | None
    held: dict[str, Readings]
    others: dict[str, dict[str, Matrix]]


@dataclass(frozen=True, eq=False)
class Part:
    """A split: all its prompts, and the sample of them that estimates are made for (`rows`, ascending)."""

    whole: Table
    rows: Positions
    table: Table

    @classmethod
    def of(cls, whole: Table, most: int) -> Part:
        """The split with a sample of at most `most` prompts: the table itself if it has no more."""
        rows = sample(whole.prompts, most)
        return cls(whole, rows, whole if len(rows) == len(whole) else whole.rows(rows))


def estimated(
    cheap: Predictor,
    costly: Predictor | External,
    splits: Mapping[str, Part],
    kept: Path | None = None,
    say: Callable[[int, int], None] = silent,
) -> Estimated:
    """F, G and R of `splits`: "train", "calibration" and possibly "test".

    The cheap estimate knows all prompts of train and calibration; estimates are made for the samples. F and G
    are read from the folder `kept` if it exists, otherwise computed and written to it. External estimates
    are written one by one to a journal beside that folder.
    """
    known = knowing(cheap, splits["calibration"].whole)
    train = splits["train"].table
    parts = {name: part.table for name, part in splits.items() if name != "train"}
    if kept is not None and folders.is_stored(kept, READINGS):
        arrays = dict(saved_from(folders.read(kept, READINGS, NEEDS), READINGS).arrays)
    else:
        arrays = cheap_estimates(known, splits, COMPARED)
        for name, part in parts.items():
            journal = None if kept is None else kept.parent / JOURNAL
            arrays[f"{name}.g"] = ask(costly, part, journal, say)
        if kept is not None:
            folders.write(kept, READINGS, lambda folder: _fill(folder, arrays))
    held, others = {}, {}
    for name, part in parts.items():
        own = {key.removeprefix(f"{name}."): a for key, a in arrays.items() if key.startswith(f"{name}.")}
        held[name] = Readings(own.pop("f"), own.pop("g"), part.reward, part.fee_weight * part.fee)
        others[name] = own
    learnt = None
    if "train.f" in arrays:
        outside = np.full(train.reward.shape, np.nan)
        if not isinstance(costly, External):
            outside = out_of_fold(costly, outside)
        learnt = Readings(arrays["train.f"], outside, train.reward, train.fee_weight * train.fee)
    return Estimated(known, learnt, held, others)


def knowing(cheap: Predictor, calibration: Table) -> Predictor:
    """The cheap estimate with the calibration prompts added, if prompts can be added."""
    if not isinstance(cheap, Remembering):
        return cheap
    return cheap.remember(calibration.prompts, calibration.reward)


def cheap_estimates(
    known: Predictor, parts: Mapping[str, Part], each: Mapping[str, Count | None]
) -> dict[str, Matrix]:
    """Cheap estimates of the samples of train, calibration and others, by "part.name"; see `Estimated`.

    `known` has the training prompts, then the calibration prompts, which both get left-out estimates; prompts
    of other parts must be new to it. `each` has numbers of neighbours, None for those that `known` uses; if
    `known` does not use neighbours, only the latter are computed.
    """
    if not isinstance(known, Remembering):
        return {
            f"{name}.f": known.predict(part.table.prompts) for name, part in parts.items() if name != "train"
        }
    counts = {name: k for name, k in each.items() if k is None or isinstance(known, Neighbours)}
    by_name: dict[str, Matrix] = {}
    train, calibration = parts["train"], parts["calibration"]
    first = len(train.rows)
    which = np.concatenate([train.rows, len(train.whole) + calibration.rows])
    reward = np.concatenate([train.whole.reward, calibration.whole.reward])
    for name, outside in zip(counts, _left_out(known, list(counts.values()), which), strict=True):
        left = recentred(outside, reward, which)
        by_name[f"train.{name}"], by_name[f"calibration.{name}"] = left[:first], left[first:]
    for part in [part for part in parts if part not in ("train", "calibration")]:
        estimates = _predicted(known, parts[part].table.prompts, list(counts.values()))
        by_name |= {f"{part}.{name}": f for name, f in zip(counts, estimates, strict=True)}
    return by_name


def recentred(left: Matrix, reward: Matrix, which: Positions | None = None) -> Matrix:
    """Left-out estimates (n, M), corrected for the effect of leaving the prompt out on the mean reward.

    `reward` (N, M) are those of all known prompts, `which` (n,) the prompts estimated (None: all of them).

    Without prompt i the mean of the others is lower by (R_i - mean) / (N - 1) than the mean of all. Estimates
    that average over a large part of the prompts follow it, so a prompt of high reward gets a low estimate,
    and with few prompts a regression of rewards on left-out estimates would have the wrong sign.
    """
    count = np.maximum((~np.isnan(reward)).sum(axis=0), 2)
    own = reward if which is None else reward[which]
    moved: Matrix = left + np.nan_to_num((own - np.nanmean(reward, axis=0)) / (count - 1))
    return moved


def _left_out(known: Remembering, counts: Sequence[Count | None], which: Positions) -> list[Matrix]:
    if isinstance(known, Neighbours):
        return known.leave_one_out_each([k or known.k for k in counts], which)
    return [known.leave_one_out()[which] for _ in counts]


def _predicted(known: Remembering, prompts: Sequence[str], counts: Sequence[Count | None]) -> list[Matrix]:
    if isinstance(known, Neighbours):
        return known.predict_each(known.embedder.embed(prompts), [k or known.k for k in counts])
    return [known.predict(prompts) for _ in counts]


def _fill(folder: Path, arrays: Mapping[str, Any]) -> dict[str, Any]:
    fill(folder, Saved("readings", arrays=arrays))
    return {}


def ask(
    costly: Predictor | External,
    part: Table,
    journal: Path | None = None,
    say: Callable[[int, int], None] = silent,
) -> Matrix:
    """Costly estimates (N, M); NaN where the estimator needs a context and the table has none."""
    if isinstance(costly, External):
        return finish(buy(costly, part, journal, say), waits=True)
    estimates = np.array(costly.predict(part.prompts, part.contexts))
    for j, name in enumerate(part.specialists):
        if name in costly.needs:
            present = [
                part.contexts is not None and part.contexts[i, j] is not None for i in range(len(part))
            ]
            estimates[~np.array(present, dtype=np.bool_), j] = np.nan
    return estimates


def out_of_fold(costly: Predictor, unknown: Matrix) -> Matrix:
    """The out-of-fold predictions of `costly` for its training prompts, or `unknown` if it has none."""
    return costly.out_of_fold if isinstance(costly, CrossFitted) else unknown


AT_ONCE = 32  # concurrent purchases; an estimator may have a lower limit of its own


async def buy(external: External, part: Table, kept: Path | None, say: Callable[[int, int], None]) -> Matrix:
    """Costly estimates (N, M), NaN where there is none; calls `say(done, all)` after each purchase.

    `kept` is the journal of earlier purchases; None: nothing is kept.
    """
    names = part.specialists
    columns = [tuple(range(len(names)))] if external.estimator.together else [(j,) for j in range(len(names))]
    estimates = np.full((len(part), len(names)), np.nan)
    gate = asyncio.Semaphore(AT_ONCE)
    done = 0

    async def one(i: int, which: tuple[int, ...], journal: Journal | None) -> None:
        nonlocal done
        query = query_of(part, i)
        keys = [key_of(external.name, query, names[j]) for j in which]
        async with gate:
            if journal is not None and all(key in journal.grades for key in keys):
                estimates[i, which] = [journal.grades[key] for key in keys]
            else:
                arrived = await external.estimator.estimate(query, [names[j] for j in which])
                await _keep(journal, keys, arrived)
                estimates[i, which] = arrived
        done += 1
        say(done, len(part) * len(columns))

    with nullcontext() if kept is None else Journal(kept) as journal:
        try:
            async with asyncio.TaskGroup() as group:
                for i in range(len(part)):
                    for which in columns:
                        group.create_task(one(i, which, journal))
        except BaseExceptionGroup as failed:
            raise failed.exceptions[0] from failed
    return estimates


async def _keep(journal: Journal | None, keys: list[str], estimates: Vector) -> None:
    """Write what arrived to disk before it is used."""
    if journal is not None:
        nothing = Answer("", None, None, seconds=0.0, fee=0.0)
        arrived = [(key, float(g)) for key, g in zip(keys, estimates, strict=True) if np.isfinite(g)]
        await asyncio.gather(*(journal.grade(key, g, nothing) for key, g in arrived))


def query_of(part: Table, i: int) -> Query:
    """The query for row i: its prompt and all its contexts."""
    texts = [] if part.contexts is None else zip(part.specialists, part.contexts[i].tolist(), strict=True)
    return Query(part.prompts[i], {name: text for name, text in texts if text is not None})


def key_of(estimator: str, query: Query, specialist: str) -> str:
    """Key of a purchase: equal for the same estimator and the same texts."""
    identity = json.dumps([estimator, query.prompt, sorted(query.contexts.items()), specialist])
    return hashlib.sha256(identity.encode("utf-8", "surrogatepass")).hexdigest()
