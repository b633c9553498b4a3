"""Cheap and costly estimates of one fresh split of an experiment, cached by content.

Both are fitted by the recipes and on the splits that `Router.fit` uses, so that an evaluation measures the
router that `pandora fit` would write: the cheap estimate knows training and calibration prompts, the costly
one is fitted on training prompts, and neither uses a test prompt. The cache has only numbers, under a hash of
the table (texts, scores, fees, split) and of every relevant setting, so that stale files are never used.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path

import numpy as np

from pandora_router.calibrate.ways import Standing
from pandora_router.data import Free, FromColumn, PerParameter, Table, resplit, storage
from pandora_router.data.fees import Facts, Fees
from pandora_router.data.importers import read_folder
from pandora_router.data.joins import beside
from pandora_router.errors import UsageError
from pandora_router.evaluate.experiments import USUAL, Experiment
from pandora_router.evaluate.trials import sign_names, signs_of
from pandora_router.folders.saved import read_arrays, write_arrays
from pandora_router.router.out_of_fold import Part, ask, cheap_estimates, knowing, out_of_fold
from pandora_router.router.recipes import NeighbourRecipe, SetRecipe, StackRecipe
from pandora_router.router.table_fit import parted
from pandora_router.text import did_you_mean
from pandora_router.types import Advance, Matrix, Progress, Vector, silent


def read(experiment: Experiment, root: Path) -> Table:
    """All specialists of the data with their fees, for the selected tasks, with the split of the data."""
    tables = [_folder(experiment, root / name) for name in experiment.folders]
    if len(tables) > 1:
        joined = reduce(lambda left, right: beside(left, right, shared=True), tables)
        tables = [joined.only(joined.answered)]
    for name in experiment.parameters:
        if name not in tables[0].specialists:
            raise UsageError(
                f"{experiment.name}: parameters",
                expected="specialists of the data",
                came=repr(name),
                do="Check the spelling: names are compared exactly.",
            )
    return _only_tasks(experiment, tables[0])


@dataclass(frozen=True)
class _Sized:
    """Price by model size, with some sizes stated; a folder may have only some of those specialists."""

    price_per_trillion: float
    stated: Mapping[str, float]
    wanted: Mapping[str, float] | None

    def of(self, facts: Facts) -> Matrix:
        """Fees (N, M); NaN for specialists of unknown size, 0 for those that do not take part."""
        here = {name: size for name, size in self.stated.items() if name in facts.specialists}
        fee = PerParameter(self.price_per_trillion, stated=here).of(facts)
        if self.wanted is None:
            return fee
        out = np.array([name not in self.wanted for name in facts.specialists])
        return np.where(out & np.isnan(fee), 0.0, fee)


def _folder(experiment: Experiment, place: Path) -> Table:
    """A table written by `pandora data import`, with its fees, or a folder of files and a fee rule."""
    weight = experiment.fee_weight
    if not storage.is_stored(place):
        return read_folder(place, fees=_rule(experiment), fee_weight=1.0 if weight is None else weight)
    for key in ("fee_per_trillion", "fee_column"):
        if getattr(experiment, key):
            raise UsageError(
                f"{experiment.name}: {key}",
                expected="none: a stored table has its fees",
                came=repr(getattr(experiment, key)),
                do="Leave it out, or say it when importing.",
            )
    table = storage.load(place)
    return table if weight is None else table.with_fee_weight(weight)


def _rule(experiment: Experiment) -> Fees:
    if experiment.fee_column:
        return FromColumn(experiment.fee_column)
    if experiment.fee_per_trillion <= 0.0:
        return Free()
    return _Sized(experiment.fee_per_trillion, experiment.parameters, experiment.specialists)


def _only_tasks(experiment: Experiment, table: Table) -> Table:
    if not experiment.tasks:
        return table
    tasks = sorted(set(table.tasks))
    keep = np.zeros(len(table), dtype=np.bool_)
    for wanted in experiment.tasks:
        hit = [task == wanted or (wanted.endswith("/") and task.startswith(wanted)) for task in table.tasks]
        if not any(hit):
            raise UsageError(
                f"{experiment.name}: task {wanted!r}",
                expected=f"one of {', '.join(tasks[:8])}" + (" ..." if len(tasks) > 8 else ""),
                came="no such task",
                do=did_you_mean(wanted, tasks, "See `pandora data check`."),
            )
        keep |= hit
    return table.rows(keep)


VERSION = 8  # increase when the predictions of the estimators change
Made = dict[str, Vector]
PARTS = ("train", "calibration", "test")


def table_of(experiment: Experiment, root: Path) -> Table:
    """The participating specialists with their fees; the split is still that of the data."""
    table = read(experiment, root)
    if experiment.specialists is not None:
        table = table.only(tuple(experiment.specialists))
    share = (~table.missing).mean(axis=0)
    names = [
        name for name, s in zip(table.specialists, share, strict=True) if s >= max(experiment.complete, 1e-9)
    ]
    table = table.only(names)
    if experiment.specialists is not None:
        stated = np.array([experiment.specialists[name] for name in table.specialists])
        table = replace(table, fee=table.fee + stated)
    return table


def split_of(experiment: Experiment, table: Table, seed: int) -> Table:
    """At most the configured number of prompts, with a new split drawn by `seed`."""
    keep = np.sort(np.random.default_rng(seed).permutation(len(table))[: experiment.prompts])
    return resplit(table.rows(keep), seed=seed, fractions=experiment.split)


def estimates(
    experiment: Experiment,
    table: Table,
    seed: int,
    cache: Path | None = None,
    progress: Progress | None = None,
    paraphrases: Mapping[str, str] | None = None,
) -> Made:
    """The arrays of one seed, from the cache if possible; see `trials.trial_of`.

    With `paraphrases` of prompts, those of test prompts are estimated, too.
    """
    pairs = paraphrases or {}
    split = split_of(experiment, table, seed)
    if cache is None:
        return _make(experiment, split, table, seed, progress, pairs)
    key = _key(experiment, split, seed, pairs)
    named = f"-{seed}-{key}.safetensors"  # other experiments on the same table share the cache
    path = next(cache.glob(f"*{named}"), cache / f"{experiment.name}{named}")
    arrays = _kept(path, experiment, split)
    if arrays is None:
        arrays = _make(experiment, split, table, seed, progress, pairs)
        write_arrays(path, arrays)
    return arrays


def _kept(path: Path, experiment: Experiment, split: Table) -> Made | None:
    """The arrays in the cache; None if the file is missing, damaged, or not that of this split."""
    try:
        arrays = read_arrays(path)
        rows = dict(zip(PARTS, map(len, parted(split)[:3]), strict=True))
        wanted = {"standing": (2,), "together": (), "repeated": (), "seconds": ()}
        for part, count in rows.items():
            names = ("g", "score", "fee", *(f"f{k}" for k in experiment.ks))
            wanted |= {f"{part}_{name}": (count, len(split.specialists)) for name in names}
        fits = all(arrays[name].shape == shape for name, shape in wanted.items())
        fits &= not experiment.opened or arrays.keys() >= {
            n for part in PARTS for n in sign_names(part).values()
        }
        fits &= all(len(a) == rows[name.partition("_")[0]] for name, a in arrays.items() if "_" in name)
    except (OSError, ValueError, KeyError, TypeError, MemoryError):
        return None
    return arrays if fits and all(a.dtype.kind == "f" for a in arrays.values()) else None


def recipe_of(experiment: Experiment) -> StackRecipe:
    """The costly estimate of an experiment; raises `UsageError` for agreement without a peek."""
    if experiment.agreement and not experiment.peek:
        raise UsageError(
            f"{experiment.name}: agreement",
            expected="a peek as well: agreement compares what specialists have begun to say",
            came="peek: 0",
            do="Say how many characters are seen, for example `peek: 400`.",
        )
    return StackRecipe(peek=experiment.peek, agreement=experiment.agreement)


def _key(experiment: Experiment, split: Table, seed: int, pairs: Mapping[str, str]) -> str:
    settings = [VERSION, seed, repr(NeighbourRecipe()), repr(recipe_of(experiment)), sorted(experiment.ks)]
    settings += [repr(SetRecipe())] * experiment.opened
    settings += [sorted(pairs.items())] * bool(pairs)
    content = json.dumps([split.fingerprint(), settings])
    return hashlib.sha256(content.encode()).hexdigest()[:20]


def _make(
    experiment: Experiment,
    split: Table,
    whole: Table,
    seed: int,
    progress: Progress | None,
    pairs: Mapping[str, str],
) -> Made:
    begun = time.process_time()
    say = _steps(progress)
    train, calibration, test, repeated = parted(split)
    cheap = knowing(NeighbourRecipe().fit(train, say), calibration)
    costly = recipe_of(experiment).fit(train, say)
    standing = Standing.of(train.reward, train.fee)
    arrays: Made = {
        "standing": np.array([standing.single, standing.cheapest], dtype=np.float64),
        "together": np.array(float(costly.together)),
        "repeated": np.array(float(repeated)),
    }
    number = {name: i for i, name in enumerate(whole.prompt_ids)}
    each = {f"f{k}": None if k == USUAL else k for k in experiment.ks}
    splits = {"train": train, "calibration": calibration, "test": test}
    again = np.array([i for i, prompt in enumerate(test.prompts) if prompt in pairs], dtype=np.intp)
    reworded = {"test_again": _reworded(test.rows(again), pairs)} if len(again) else {}
    each_part = {name: Part.of(t, len(t)) for name, t in (splits | reworded).items()}
    cheap_arrays = cheap_estimates(cheap, each_part, each)
    arrays |= {name.replace(".", "_"): f for name, f in cheap_arrays.items()}
    arrays |= {f"{name}_g": ask(costly, part) for name, part in reworded.items()}
    for name in [name for name in arrays if name.startswith("test_again")]:
        known, arrays[name] = arrays[name], np.full((len(test), len(test.specialists)), np.nan)
        arrays[name][again] = known
    for name, part in (("calibration", calibration), ("test", test)):
        arrays[f"{name}_g"] = ask(costly, part)
        arrays[f"{name}_score"] = part.score
        arrays[f"{name}_fee"] = split.fee_weight * part.fee
        arrays[f"{name}_prompt"] = np.array([number[i] for i in part.prompt_ids], dtype=np.float64)
    arrays["train_g"] = out_of_fold(costly, np.full(train.reward.shape, np.nan))
    arrays["train_score"], arrays["train_fee"] = train.score, split.fee_weight * train.fee
    if experiment.opened:
        arrays |= signs_of(costly, splits, SetRecipe())
    arrays["seconds"] = np.array(time.process_time() - begun)
    return arrays


def _reworded(test: Table, pairs: Mapping[str, str]) -> Table:
    """The paraphrases of these prompts; what specialists begin to say to them is not known."""
    return replace(test, prompts=tuple(pairs[prompt] for prompt in test.prompts), contexts=None)


def _steps(progress: Progress | None) -> Advance:
    """Progress of a recipe (share done) as that of a campaign (done, total)."""
    if progress is None:
        return silent
    return lambda what, share: progress(what, round(100 * share), 100)
