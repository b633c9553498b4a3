"""The input of a signal model: cheap estimates, costly estimates and rewards of the same prompts.

Shapes: N prompts, M specialists. NaN in `costly` (an estimate that was not bought, or failed) or in `reward`
(an answer that was not graded) is a missing cell; it is left out of the sums that need it, and counted. Cheap
estimates are never missing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import ArrayLike

from pandora_router.boxes.checks import finite, same_length
from pandora_router.errors import UsageError
from pandora_router.types import Mask, Matrix, Positions, Vector

FEWEST = 8  # costly estimates of a specialist below which it cannot be fitted


@dataclass(frozen=True, eq=False)
class Readings:
    """F, G and R of N prompts and M specialists, checked; without rewards all of R is missing.

    `fee` (N, M) is the weighted fee inside the reward (reward = score - fee), 0 by default; it is used only
    in reports of accuracy and money.
    """

    cheap: Matrix
    costly: Matrix
    reward: Matrix
    fee: Matrix

    def __init__(
        self,
        cheap: ArrayLike,
        costly: ArrayLike,
        reward: ArrayLike | None = None,
        fee: ArrayLike | None = None,
    ) -> None:
        f = finite("cheap estimates", cheap, ndim=2)
        object.__setattr__(self, "cheap", f)
        object.__setattr__(self, "costly", cells("costly estimates", costly, f.shape))
        r = np.full(f.shape, np.nan) if reward is None else reward
        object.__setattr__(self, "reward", cells("rewards", r, f.shape))
        object.__setattr__(self, "fee", cells("fees", np.zeros(f.shape) if fee is None else fee, f.shape))

    def __len__(self) -> int:
        return len(self.cheap)

    @property
    def complete(self) -> Mask:
        """The prompts with every costly estimate and every reward (N,)."""
        complete: Mask = np.isfinite((self.costly + self.reward).sum(axis=1))
        return complete

    def rows(self, which: Positions | Mask | slice) -> Self:
        """The prompts picked by position or mask."""
        return type(self)(self.cheap[which], self.costly[which], self.reward[which], self.fee[which])

    def beside(self, other: Readings) -> Self:
        """These prompts followed by those of `other`."""
        pairs = zip(self.parts, other.parts, strict=True)
        return type(self)(*(np.concatenate(pair) for pair in pairs))

    @property
    def parts(self) -> tuple[Matrix, Matrix, Matrix, Matrix]:
        """F, G, R and fees."""
        return self.cheap, self.costly, self.reward, self.fee

    @property
    def score(self) -> Matrix:
        """reward + fee: how good each answer was (N, M)."""
        return self.reward + self.fee

    @cached_property
    def cluster(self) -> Positions:
        """A number per distinct f vector (N,): prompts with equal f have the same first decision."""
        return np.unique(self.cheap, axis=0, return_inverse=True)[1].ravel()

    def enough(self, fewest: int = FEWEST) -> Self:
        """The readings; `UsageError` if a specialist has fewer than `fewest` costly estimates."""
        counts = (~np.isnan(self.costly)).sum(axis=0)
        if counts.min() < fewest:
            j = int(counts.argmin())
            raise UsageError(
                f"costly estimates of specialist {j}",
                expected=f"{fewest} or more prompts that have one",
                came=f"{counts[j]} of {len(self)}",
                do="Buy more costly estimates for calibration, or leave this specialist out.",
            )
        return self


def cells(name: str, values: ArrayLike, shape: tuple[int, ...]) -> Matrix:
    """A read-only (N, M) copy with NaN for missing cells; `UsageError` for infinities or a wrong shape."""
    array = np.array(values, dtype=np.float64)
    if array.shape != shape:
        raise UsageError(
            name,
            expected=f"shape {shape}, as the cheap estimates have",
            came=f"{array.shape}",
            do="Give one row per prompt and one column per specialist, NaN for a missing cell.",
        )
    infinite = np.isinf(array)
    if infinite.any():
        i, j = (int(k) for k in np.argwhere(infinite)[0])
        raise UsageError(
            name,
            expected="finite numbers, or NaN for a missing cell",
            came=f"{array[i, j]} at prompt {i}, specialist {j}",
            do="Replace it by NaN if the cell was never measured.",
        )
    array.setflags(write=False)
    return array


def estimates(values: ArrayLike, boxes: int, *, ndim: int) -> Matrix:
    """Return cheap estimates of one prompt (M,) or of many (N, M) as a checked array."""
    array = finite("estimates", values, ndim=ndim)
    same_length("estimates", array.shape[-1], boxes)
    return array


def same_presence(present: Mask) -> Iterator[tuple[Positions, Positions]]:
    """Group columns with the same missing rows: pairs (columns, rows), so that shared work is done once."""
    columns = np.ascontiguousarray(present.T)
    alike: dict[bytes, list[int]] = {}
    for number, column in enumerate(columns):
        alike.setdefault(column.tobytes(), []).append(number)
    for _, numbers in sorted(alike.items()):
        yield np.array(numbers, dtype=np.intp), np.flatnonzero(columns[numbers[0]])


def frozen(values: ArrayLike) -> Vector:
    """Return a read-only float64 copy: fitted numbers do not change."""
    array = np.array(values, dtype=np.float64)
    array.setflags(write=False)
    return array


def frozen_fields(owner: object, *names: str) -> None:
    """Make the named arrays of a frozen dataclass read-only float64 copies."""
    for name in names:
        object.__setattr__(owner, name, frozen(getattr(owner, name)))
