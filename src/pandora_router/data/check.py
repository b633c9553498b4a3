"""Summary of a routing table before anything is fitted: counts, missing cells, duplicates, baselines.

Only numbers; the command line prints them.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from pandora_router.data.splits import crossing
from pandora_router.data.table import Table, normalise
from pandora_router.types import Vector


@dataclass(frozen=True)
class Mean:
    """A mean over prompts with its standard error s / sqrt(n) (None below two prompts)."""

    mean: float
    standard_error: float | None
    n: int


@dataclass(frozen=True)
class Pick:
    """Always asking the same specialist."""

    specialist: str
    tied: int
    """Number of further specialists with the same result."""
    reward: Mean


@dataclass(frozen=True)
class Baselines:
    """Rewards per prompt of simple ways to route.

    Best and cheapest single are chosen on the prompts on which they are measured, so best single is slightly
    optimistic. Random is the mean over specialists of each prompt, oracle the maximum.
    """

    prompts: int
    best_single: Pick
    cheapest: Pick
    random: Mean
    oracle: Mean


@dataclass(frozen=True)
class SpecialistSummary:
    """One specialist: number of missing cells, and means over the others (None if all are missing)."""

    specialist: str
    missing: int
    score: float | None
    fee: float | None
    reward: float | None


@dataclass(frozen=True)
class Summary:
    """Everything that `pandora data check` prints."""

    prompts: int
    fingerprint: str
    fee_weight: float
    scores: int
    missing_cells: int
    filled: float
    """Fraction of the cells that have a score."""
    contexts: int
    tasks: dict[str, int]
    splits: dict[str, int]
    specialists: tuple[SpecialistSummary, ...]
    duplicate_prompts: int
    """Prompts whose text, apart from white space, occurred before."""
    texts_across_splits: int
    prompts_across_splits: int
    complete: Baselines | None
    """On the prompts that every specialist answered, so that specialists are comparable."""
    available: Baselines | None
    """On all prompts; where cells are missing, specialists are measured on different prompts."""

    def to_dict(self) -> dict[str, Any]:
        """Plain dictionaries, lists and numbers."""
        return asdict(self)


def summarise(table: Table) -> Summary:
    """The summary of a table."""
    missing = table.missing
    texts = [normalise(prompt) for prompt in table.prompts]
    across = crossing(table)
    crossers = set(across)
    return Summary(
        prompts=len(table),
        fingerprint=table.fingerprint(),
        fee_weight=table.fee_weight,
        scores=int((~missing).sum()),
        missing_cells=int(missing.sum()),
        filled=float((~missing).mean()) if missing.size else 0.0,
        contexts=0
        if table.contexts is None
        else int(sum(text is not None for text in table.contexts.ravel())),
        tasks=dict(sorted(Counter(table.tasks).items())),
        splits={name or "none": n for name, n in sorted(Counter(table.split.tolist()).items(), reverse=True)},
        specialists=tuple(_column(table, j) for j in range(len(table.specialists))),
        duplicate_prompts=len(texts) - len(set(texts)),
        texts_across_splits=len(across),
        prompts_across_splits=sum(
            text in crossers and bool(name) for text, name in zip(texts, table.split.tolist(), strict=True)
        ),
        complete=baselines(table.rows(~missing.any(axis=1))),
        available=baselines(table),
    )


def baselines(table: Table) -> Baselines | None:
    """Rewards of simple ways to route; None if the table has no score."""
    reward, missing = table.reward, table.missing
    some = ~missing.all(axis=1)
    if not some.any():
        return None
    reward, present = reward[some], ~missing[some]
    fee = np.where(present, table.fee[some], 0.0)
    counts = present.sum(axis=0)
    answered = counts > 0
    total = np.maximum(counts, 1)
    means = np.where(answered, np.where(present, reward, 0.0).sum(axis=0) / total, -np.inf)
    fees = np.where(answered, fee.sum(axis=0) / total, np.inf)
    return Baselines(
        prompts=int(some.sum()),
        best_single=_pick(table, reward, means),
        cheapest=_pick(table, reward, -fees),
        random=_mean(np.nanmean(reward, axis=1)),
        oracle=_mean(np.nanmax(reward, axis=1)),
    )


def _pick(table: Table, reward: Vector, merit: Vector) -> Pick:
    j = int(np.argmax(merit))
    tied = int(np.isclose(merit, merit[j], rtol=1e-12, atol=0.0).sum()) - 1
    return Pick(table.specialists[j], tied, _mean(reward[~np.isnan(reward[:, j]), j]))


def _mean(values: Vector) -> Mean:
    n = len(values)
    error = float(values.std(ddof=1) / np.sqrt(n)) if n > 1 else None
    return Mean(float(values.mean()), error, n)


def _column(table: Table, j: int) -> SpecialistSummary:
    present = ~table.missing[:, j]

    def mean(values: Vector) -> float | None:
        return float(values[present, j].mean()) if present.any() else None

    return SpecialistSummary(
        table.specialists[j], int((~present).sum()), mean(table.score), mean(table.fee), mean(table.reward)
    )
