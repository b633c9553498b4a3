"""Costly estimates from outside for a whole split: each is on disk before it is used, none is bought twice.

A purchase is a prompt if one call shows all specialists, otherwise a cell. A failed purchase is a missing
cell, and is tried again by the next run.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import numpy as np

from pandora_router.collect.journal import Journal
from pandora_router.data import Table
from pandora_router.estimators.estimator import Query
from pandora_router.router.recipes import External
from pandora_router.specialists.answer import Answer
from pandora_router.types import Matrix, Vector

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
