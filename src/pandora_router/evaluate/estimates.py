"""Cheap and costly estimates of one fresh split of an experiment, kept by content.

f is the mean reward of the k nearest training prompts, g the boosted stack, with a peek where the experiment
has one; both see training prompts only. What is kept are numbers, under a name that is the hash of the table
(texts, scores, fees, split) and of every setting that matters, so a stale file cannot be read by mistake.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pandora_router.calibrate.ways import Standing
from pandora_router.data import Table, resplit
from pandora_router.estimators.boosted import Boosted
from pandora_router.estimators.neighbours import Neighbours
from pandora_router.estimators.peek import Peek
from pandora_router.evaluate import domains
from pandora_router.evaluate.experiments import Experiment

VERSION = 2  # raise when the estimators change what they predict
Made = dict[str, NDArray[np.float64]]
Progress = Callable[[str, int, int], None]


def table_of(experiment: Experiment, root: Path) -> Table:
    """The specialists that take part, with their fees; the split is still that of the data."""
    table = domains.read(experiment, root)
    if experiment.specialists is not None:
        table = table.only(tuple(experiment.specialists))
    share = (~table.missing).mean(axis=0)
    kept = [
        name for name, s in zip(table.specialists, share, strict=True) if s >= max(experiment.complete, 1e-9)
    ]
    table = table.only(kept)
    if experiment.specialists is not None:
        stated = np.array([experiment.specialists[name] for name in table.specialists])
        table = replace(table, fee=table.fee + stated)
    return table


def split_of(experiment: Experiment, table: Table, seed: int) -> Table:
    """At most the wanted number of prompts, freshly split by seed."""
    keep = np.sort(np.random.default_rng(seed).permutation(len(table))[: experiment.prompts])
    return resplit(table.rows(keep), seed=seed, fractions=experiment.split)


def estimates(
    experiment: Experiment,
    table: Table,
    seed: int,
    cache: Path | None = None,
    progress: Progress | None = None,
) -> Made:
    """The arrays of one seed, from the cache if they are there; see `trials.trial_of`."""
    split = split_of(experiment, table, seed)
    if cache is None:
        return _make(experiment, split, table, seed, progress)
    key = _key(experiment, split, seed)  # other experiments on the same table share what is kept
    path = next(cache.glob(f"*-{seed}-{key}.npz"), cache / f"{experiment.name}-{seed}-{key}.npz")
    if not path.is_file():
        made = _make(experiment, split, table, seed, progress)
        cache.mkdir(parents=True, exist_ok=True)
        draft = cache / f".{path.stem}.{os.getpid()}-{secrets.token_hex(4)}.npz"
        with draft.open("wb") as sink:
            np.savez_compressed(sink, allow_pickle=False, **made)
        draft.replace(path)
    with np.load(path, allow_pickle=False) as stored:
        return {name: stored[name] for name in stored.files}


def _key(experiment: Experiment, split: Table, seed: int) -> str:
    settings = [VERSION, seed, experiment.peek, experiment.agreement, sorted(experiment.neighbours)]
    content = json.dumps([split.fingerprint(), settings])
    return hashlib.sha256(content.encode()).hexdigest()[:20]


def _make(experiment: Experiment, split: Table, whole: Table, seed: int, progress: Progress | None) -> Made:
    begun = time.process_time()
    train = split.in_split("train")
    say = None if progress is None else (lambda what, done: progress(what, round(100 * done), 100))
    cheap = Neighbours.fit(train.prompts, train.reward, train.specialists)
    peek = Peek(experiment.peek, experiment.agreement) if experiment.peek else None
    contexts = train.contexts if peek is not None else None
    costly = Boosted.fit(
        train.prompts, train.reward, train.specialists, contexts=contexts, peek=peek, seed=seed, progress=say
    )
    known = split.rows(split.split != "test")
    standing = Standing.of(known.reward, known.fee)
    made: Made = {"standing": np.array([standing.single, standing.cheapest], dtype=np.float64)}
    number = {name: i for i, name in enumerate(whole.prompt_ids)}
    for name in ("calibration", "test"):
        part = split.in_split(name)
        vectors = cheap.embedder.embed(part.prompts)
        for k, f in zip(
            experiment.neighbours, cheap.predict_each(vectors, experiment.neighbours), strict=True
        ):
            made[f"{name}_f{k}"] = f
        made[f"{name}_g"] = costly.predict(part.prompts, part.contexts if peek is not None else None)
        made[f"{name}_score"] = part.score
        made[f"{name}_fee"] = split.fee_weight * part.fee
        made[f"{name}_prompt"] = np.array([number[i] for i in part.prompt_ids], dtype=np.float64)
    made["seconds"] = np.array(time.process_time() - begun)
    return made
