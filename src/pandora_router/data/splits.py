"""Train, calibration and test splits: drawn by seed and stratified by task, or taken from the data.

Identical prompts (apart from white space) are never in different splits. The draw is a pure function of seed,
texts and tasks: prompts are sorted by SHA-256(seed, text), so the order of the rows does not matter and no
version of a random generator can change a published split. Scores and specialists are not used.
"""

from __future__ import annotations

import hashlib
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from pandora_router.data.table import Table, normalise
from pandora_router.errors import UsageError
from pandora_router.types import Positions, Texts

NAMES = ("train", "calibration", "test")
SAMPLE, HELD_OUT = 100_000, 30_000
"""Most training prompts, and most of another split, read by a fit apart from its cheap estimate."""

USUAL: Mapping[str, str] = MappingProxyType(
    {
        "train": "train",
        "calibration": "calibration",
        "val": "calibration",
        "valid": "calibration",
        "validation": "calibration",
        "dev": "calibration",
        "test": "test",
        "ood": "",
        "": "",
    }
)
"""Meaning of the usual names. Prompts in `ood` (tasks outside the training data) are in no split."""


@dataclass(frozen=True)
class Fractions:
    """Fractions of the three splits; they sum to one."""

    train: float = 0.6
    calibration: float = 0.2
    test: float = 0.2

    def __post_init__(self) -> None:
        shares = (self.train, self.calibration, self.test)
        if not all(math.isfinite(share) and share >= 0 for share in shares) or abs(sum(shares) - 1) > 1e-9:
            raise UsageError(
                "split fractions",
                expected="three shares, none negative, sum 1",
                came=str(shares),
                do="Try .6, .2, .2.",
            )


def draw(
    prompts: Sequence[str], tasks: Sequence[str], *, seed: int, fractions: Fractions | None = None
) -> Texts:
    """A split for every prompt, stratified by task.

    Each task gives each split its fraction, up to rounding; the rounding error is carried over to the next
    task, so the fractions hold over the whole too, even if every task has one prompt. With g the largest
    number of identical prompts, a split deviates from its fraction by at most g prompts over the whole and 2g
    within a task. Identical prompts in several tasks count for the first task in alphabetical order.
    """
    fractions = fractions or Fractions()
    groups: dict[str, list[int]] = defaultdict(list)
    for i, prompt in enumerate(prompts):
        groups[normalise(prompt)].append(i)
    strata: dict[str, list[tuple[bytes, list[int]]]] = defaultdict(list)
    for text, members in groups.items():
        order = hashlib.sha256(f"{seed}\n{text}".encode("utf-8", "surrogatepass")).digest()
        strata[min(tasks[i] for i in members)].append((order, members))

    split = np.full(len(prompts), "", dtype="<U11")
    shares = np.array([fractions.train, fractions.calibration, fractions.test])
    owed = np.zeros(3)
    for task in sorted(strata):
        owed += shares * sum(len(members) for _, members in strata[task])
        for _, members in sorted(strata[task]):
            where = int(np.argmax(owed))
            split[members] = NAMES[where]
            owed[where] -= len(members)
    return split


def sample(prompts: Sequence[str], most: int) -> Positions:
    """Positions, in ascending order, of at most `most` prompts; all of them if there are no more.

    The prompts with the smallest hashes of their texts are taken (identical ones: the first rows). The sample
    is therefore a function of the texts alone: the order of other rows does not matter, a sample of a sample
    is the smaller sample of the whole, and a few new rows replace only a few of its members.
    """
    if len(prompts) <= most:
        return np.arange(len(prompts))
    hashes = b"".join(
        hashlib.blake2b(
            prompt.encode("utf-8", "surrogatepass"), digest_size=8, person=b"pandora sample"
        ).digest()
        for prompt in prompts
    )
    order = np.argsort(np.frombuffer(hashes, dtype=">u8"), kind="stable")
    return np.sort(order[:most])


def resplit(table: Table, *, seed: int, fractions: Fractions | None = None) -> Table:
    """The table with a fresh split of all its prompts."""
    return table.with_split(draw(table.prompts, table.tasks, seed=seed, fractions=fractions))


def keep(names: Sequence[str], meaning: Mapping[str, str] = USUAL) -> Texts:
    """The split that the data came with, under our names (`val` is calibration, `ood` is in no split)."""
    unknown = sorted({name for name in names if name not in meaning})
    if unknown:
        raise UsageError(
            "the split the data came with",
            expected=f"one of {', '.join(name for name in meaning if name)}",
            came=repr(unknown[0]),
            do="Pass `meaning` to say what it stands for, or draw a new split by seed.",
        )
    return np.array([meaning[name] for name in names], dtype="<U11")


def carve(table: Table, *, seed: int, fraction: float = 0.25) -> Table:
    """Take a `fraction` of the train split as calibration, for data with train and test only."""
    if (table.split == "calibration").any():
        raise UsageError(
            "carving calibration out of train",
            expected="a table without a calibration split",
            came=f"{int((table.split == 'calibration').sum())} calibration prompts",
            do="Use the table as it is, or `resplit` it.",
        )
    train = np.flatnonzero(table.split == "train")
    prompts, tasks = [table.prompts[i] for i in train], [table.tasks[i] for i in train]
    split = table.split.astype("<U11")
    split[train] = draw(prompts, tasks, seed=seed, fractions=Fractions(1 - fraction, fraction, 0.0))
    return table.with_split(split)


def crossing(table: Table) -> tuple[str, ...]:
    """The normalised texts that occur in more than one split, in order of appearance."""
    seen: dict[str, set[str]] = defaultdict(set)
    for prompt, name in zip(table.prompts, table.split.tolist(), strict=True):
        if name:
            seen[normalise(prompt)].add(name)
    return tuple(text for text, names in seen.items() if len(names) > 1)
