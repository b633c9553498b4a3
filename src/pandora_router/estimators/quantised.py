"""Wide vectors in few bytes: rotated to their leading directions, with eight bits per number.

A vector of 384 single-precision numbers (1,536 bytes) becomes 128 integers from -127 to 127 and one scale
(132 bytes). Squared error and reward of the cheap estimate change by less than their noise:
docs/decisions/0310-vectors-in-eight-bits.md has the measurements. Queries are rounded in the same way, so
every inner product is a sum of integers below 2^24, exact in single precision for any order of summation.
Therefore one prompt and many, compiled code and numpy find the same neighbours.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pandora_router.estimators.embedders.embedder import Vectors
from pandora_router.estimators.nearest import largest
from pandora_router.search import kernels
from pandora_router.types import Matrix, Positions

if TYPE_CHECKING:
    from types import SimpleNamespace

Codes = NDArray[np.int8]
HIGHEST = 127
WIDTH = 128  # numbers kept of a vector
FEW = 8  # queries for which the compiled search is faster than a matrix product


@dataclass(frozen=True)
class Packing:
    """How vectors are packed: a rotation (width, kept) to the leading directions of the known vectors."""

    rotation: Matrix = field(repr=False)

    @classmethod
    def fit(cls, vectors: Vectors, width: int = WIDTH) -> Packing:
        """The `width` leading directions of these vectors (N, more than `width`)."""
        values, directions = np.linalg.eigh(vectors.T.astype(np.float64) @ vectors)
        chosen = directions[:, np.argsort(-values, kind="stable")[:width]]
        signs = np.sign(chosen[np.argmax(np.abs(chosen), axis=0), np.arange(chosen.shape[1])])
        return cls(np.ascontiguousarray(chosen * signs))

    def codes(self, vectors: Vectors) -> Codes:
        """Integers (N, kept), each row scaled so that its largest magnitude is 127; zeros stay zeros."""
        turned = vectors @ self.rotation  # in double precision: alike whether turned alone or with others
        peak = np.abs(turned).max(axis=1, keepdims=True)
        scaled = np.divide(HIGHEST * turned, peak, out=np.zeros_like(turned), where=peak > 0.0)
        return np.rint(scaled).astype(np.int8)


@dataclass(frozen=True)
class Packed:
    """Exact search among packed rows (N, kept) by the cosine of the codes."""

    packing: Packing
    codes: Codes = field(repr=False)
    scale: Vectors = field(repr=False)  # one over the length of each row, 0 for a row of zeros
    cells: int = 4_000_000

    @classmethod
    def of(cls, packing: Packing, codes: Codes) -> Packed:
        """The search among these rows."""
        length = np.linalg.norm(codes.astype(np.float32), axis=1)
        return cls(packing, codes, np.divide(1.0, length, out=np.zeros_like(length), where=length > 0.0))

    def nearest(self, queries: Vectors, k: int) -> Positions:
        """The k rows of largest cosine (queries, min(k, rows)); ties go to the lowest row number."""
        return self.nearest_except(queries, k, None)

    def nearest_except(self, queries: Vectors, k: int, skip: list[Positions] | None) -> Positions:
        """As `nearest`, without the rows `skip[i]` for query i; -1 where fewer than k rows are left."""
        k = min(k, len(self.codes))
        asked = self.packing.codes(queries).astype(np.float32)
        compiled = kernels.ready()
        if compiled is not None and skip is None and len(asked) <= FEW:
            positions = np.empty((len(asked), k), dtype=np.intp)
            compiled.packed_nearest(asked, self.codes, self.scale, positions)
            return positions
        return self._by_products(asked, k, skip, compiled)

    def nearest_to_own(self, k: int, skip: list[Positions]) -> Positions:
        """`nearest_except` with the known rows themselves as queries."""
        own = self.codes.astype(np.float32)
        return self._by_products(own, min(k, len(own)), skip, kernels.ready())

    def _by_products(
        self, asked: Vectors, k: int, skip: list[Positions] | None, compiled: SimpleNamespace | None
    ) -> Positions:
        """The same by matrix products, with at most `cells` similarities in memory at a time."""
        positions = np.empty((len(asked), k), dtype=np.intp)
        rows = self.codes.astype(np.float32).T
        chunk = max(1, self.cells // max(len(self.codes), 1))
        for start in range(0, len(asked), chunk):
            near = asked[start : start + chunk] @ rows
            if compiled is not None and skip is None:
                compiled.largest_rows(near, self.scale, positions[start : start + chunk])
                continue
            near *= self.scale
            for i, left_out in enumerate(skip[start : start + chunk] if skip is not None else ()):
                near[i, left_out] = -np.inf
            positions[start : start + chunk] = largest(near, k)
        return positions
