"""What every kind of box checks about its input, with errors that say what to do."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pandora_router.errors import UsageError
from pandora_router.types import Mask, Matrix, Positions, Vector

T = TypeVar("T", bound=np.generic)
TOLERANCE = 1e-9  # how far a covariance may be from symmetric and positive semi-definite: rounding


def locked(array: NDArray[T]) -> NDArray[T]:
    """Make an array of our own read-only: boxes never change, and kernels compile for one kind of array."""
    array.setflags(write=False)
    return array


def unlocked(array: NDArray[Any]) -> NDArray[Any]:
    """A copy that may be written to, as the kernels take the state of a search.

    Compiled code depends on whether an array may be written. Loops over many queries change their arrays as
    boxes open, so a single decision hands over copies of the same kind, and every kernel is compiled once.
    """
    return array.copy()


def finite(name: str, values: ArrayLike, *, ndim: int) -> Vector:
    """Return a read-only float64 copy of `values` in C order, refusing other shapes, NaN and infinities."""
    try:
        array = np.array(values, dtype=np.float64, order="C")  # kernels are compiled for one order
    except (TypeError, ValueError) as problem:
        raise UsageError(
            name,
            expected="an array of numbers",
            came=str(problem),
            do="Give rows of one length, numbers only.",
        ) from None
    if array.ndim != ndim:
        raise UsageError(
            name,
            expected=f"an array of {ndim} dimension{'s' if ndim > 1 else ''}",
            came=f"shape {array.shape}",
            do="One entry per box; reshape the input.",
        )
    if array.size == 0:
        raise UsageError(
            name, expected="at least one box", came="an empty array", do="Give one entry per box."
        )
    bad = ~np.isfinite(array)
    if bad.any():
        where = tuple(int(i) for i in np.argwhere(bad)[0])
        raise UsageError(
            name,
            expected="finite numbers",
            came=f"{array[where]} at position {where if ndim > 1 else where[0]}",
            do="Replace or drop the missing estimate before the search.",
        )
    return locked(array)


def whole(name: str, values: ArrayLike, *, ndim: int) -> Positions:
    """Return `values` as integers, refusing numbers that are not whole."""
    array = finite(name, values, ndim=ndim)
    if (array != np.floor(array)).any():
        raise UsageError(
            name, expected="whole numbers", came=f"{array[array != np.floor(array)][0]}", do="Count from 0."
        )
    numbers = array.astype(np.intp)
    numbers.setflags(write=False)
    return numbers


def not_negative(name: str, values: ArrayLike, *, boxes: int | None = None) -> Vector:
    """Return `values` as a checked vector with no entry below zero, one for each of `boxes`."""
    array = finite(name, values, ndim=1)
    same_length(name, len(array), boxes)
    if (array < 0.0).any():
        j = int(np.argmax(array < 0.0))
        raise UsageError(
            name, expected="numbers from 0 upward", came=f"{array[j]} for box {j}", do="Check its sign."
        )
    return array


def same_length(name: str, came: int, boxes: int | None) -> None:
    """Refuse a vector whose length is not the number of boxes."""
    if boxes is not None and came != boxes:
        raise UsageError(
            name, expected=f"{boxes} entries, one per box", came=f"{came}", do="Align it with the means."
        )


def covariance_matrix(name: str, values: ArrayLike, boxes: int) -> Matrix:
    """Return a checked symmetric positive semi-definite matrix, saying by how much it fails to be one."""
    array = finite(name, values, ndim=2)
    if array.shape != (boxes, boxes):
        raise UsageError(
            name, expected=f"shape ({boxes}, {boxes})", came=f"{array.shape}", do="Align it with the means."
        )
    size = float(np.abs(array).max())
    # judged in units of each box's own scale: a large box must not hide what is wrong with small ones
    scale = np.sqrt(np.maximum(array.diagonal(), 1e-12 * size)) if size > 0.0 else np.ones(boxes)
    scaled = array / scale / scale[:, None]
    if float(np.abs(scaled - scaled.T).max()) > TOLERANCE:
        raise UsageError(
            name,
            expected="a symmetric matrix",
            came=f"entries that differ from their mirror image by up to {np.abs(array - array.T).max():.3g}",
            do="Symmetrise it: (C + C.T) / 2.",
        )
    try:  # ten times cheaper than the eigenvalues, which are only needed to say how bad it is
        np.linalg.cholesky(scaled + TOLERANCE * np.eye(boxes))
    except np.linalg.LinAlgError:
        if float(np.linalg.eigvalsh(scaled)[0]) < -TOLERANCE:
            lowest = float(np.linalg.eigvalsh(array)[0])
            raise UsageError(
                name,
                expected="a positive semi-definite matrix",
                came=f"a smallest eigenvalue of {lowest:.3g} (largest entry {size:.3g})",
                do=f"Shrink it, for instance by adding {-lowest:.3g} to the diagonal.",
            ) from None
    return array


def sealed_box(sealed: Mask, box: int, value: float) -> None:
    """Refuse a value for a box that does not exist or has nothing left to open, and refuse NaN."""
    if not isinstance(box, int | np.integer) or not 0 <= box < len(sealed):
        raise UsageError(
            "box", expected=f"an index from 0 to {len(sealed) - 1}", came=f"{box}", do="Count boxes from 0."
        )
    if not sealed[box]:
        raise UsageError(
            f"a value for box {box}",
            expected="a box with an inspection left to buy",
            came="a box already open (or one whose inspection failed)",
            do="Open each box at most once; ask `boxes.sealed` first.",
        )
    if not np.isfinite(value):
        raise UsageError(
            f"the value of box {box}",
            expected="a finite number",
            came=f"{value}",
            do="Report a failed inspection with `State.lose(box)` instead.",
        )
