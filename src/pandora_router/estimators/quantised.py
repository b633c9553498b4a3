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

from pandora_router.boxes.checks import locked
from pandora_router.estimators.embedders.embedder import Vectors, normalised
from pandora_router.estimators.nearest import LINKS, Edges, largest
from pandora_router.search import kernels
from pandora_router.types import Matrix, Positions

if TYPE_CHECKING:
    from types import SimpleNamespace

Codes = NDArray[np.int8]
HIGHEST = 127
WIDTH = 128  # numbers kept of a vector
CANDIDATES = 96  # rows that a search through a graph keeps at least
BLOCK = 65_536  # rows in single precision at a time
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
        return cls(packing, codes, inverse_lengths(codes))

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

    def nearest_to_own(self, k: int, skip: list[Positions], which: Positions) -> Positions:
        """`nearest_except` with the known rows `which` as queries."""
        own = self.codes[which].astype(np.float32)
        return self._by_products(own, min(k, len(self.codes)), skip, kernels.ready())

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


@dataclass(frozen=True)
class Graph:
    """Approximate search among packed rows through the edges of a graph; codes and edges stay where they are.

    Best first: of the `pool` most similar rows seen so far, the most similar one whose edges have not been
    followed is next, until there is none. `pool` is a quarter more than the number of neighbours wanted, and
    at least `CANDIDATES`. The search starts at the lowest level where a greedy walk through the higher levels
    ends. Of equally similar rows the lower number comes first, so compiled and plain code agree.
    """

    packing: Packing
    codes: Codes = field(repr=False)
    edges: Edges = field(repr=False)

    def nearest(self, queries: Vectors, k: int) -> Positions:
        """Approximately the k rows of largest cosine (-1 where the graph finds fewer)."""
        return self.nearest_to(self.packing.codes(queries), k)

    def nearest_to(self, asked: Codes, k: int) -> Positions:
        """As `nearest`, for queries that are packed already."""
        k = min(k, len(self.codes))
        pool = max(CANDIDATES, k + k // 4)
        queries = asked.astype(np.float32)
        positions = np.full((len(asked), k), -1, dtype=np.intp)
        compiled = kernels.ready()
        if compiled is not None:
            edges = self.edges  # as compiled for a mapped file, which is read-only
            top = int(edges.levels[edges.entry]) - 1
            codes, neighbours = locked(self.codes.view()), locked(edges.neighbours.view())
            compiled.graph_nearest(
                queries, codes, edges.starts, neighbours, edges.entry, top, LINKS, pool, positions
            )
            return positions
        for i, query in enumerate(queries):
            rows = self._search(query, pool)[:k]
            positions[i, : len(rows)] = rows
        return positions

    def _search(self, query: Vectors, pool: int) -> Positions:
        """The plain form of `graph_nearest` for one query: the rows of the pool, most similar first."""
        rows = np.array([self._walk(query)], dtype=np.intp)
        near, followed = self._similarity(query, rows), np.zeros(1, dtype=np.bool_)
        seen = set(rows.tolist())
        while not followed.all():
            at = int(np.argmin(followed))
            followed[at] = True
            new = [row for row in self.edges.at(int(rows[at]), 0).tolist() if row not in seen]
            seen.update(new)
            rows = np.concatenate([rows, np.array(new, dtype=np.intp)])
            near = np.concatenate([near, self._similarity(query, rows[len(near) :])])
            followed = np.concatenate([followed, np.zeros(len(new), dtype=np.bool_)])
            order = np.lexsort((rows, -near))[:pool]
            rows, near, followed = rows[order], near[order], followed[order]
        return rows

    def _walk(self, query: Vectors) -> int:
        """The row at which a greedy walk from the entry through the higher levels ends."""
        at = self.edges.entry
        for level in range(int(self.edges.levels[at]) - 1, 0, -1):
            before = -1
            while at != before:
                before = at
                rows = np.append(self.edges.at(at, level), at)
                at = int(rows[np.lexsort((rows, -self._similarity(query, rows)))[0]])
        return at

    def _similarity(self, query: Vectors, rows: Positions) -> Vectors:
        some = self.codes[rows]
        similarity: Vectors = (some.astype(np.float32) @ query) * inverse_lengths(some)
        return similarity


def inverse_lengths(codes: Codes) -> Vectors:
    """One over the length of each row in single precision, 0 for a row of zeros (N,)."""
    inverse = np.zeros(len(codes), dtype=np.float32)
    for start in range(0, len(codes), BLOCK):
        length = np.linalg.norm(codes[start : start + BLOCK].astype(np.float32), axis=1)
        np.divide(1.0, length, out=inverse[start : start + BLOCK], where=length > 0.0)
    return inverse


def unit_rows(codes: Codes | Vectors) -> Vectors:
    """Rows of codes scaled to length one, in single precision, made in blocks."""
    rows = np.empty(codes.shape, dtype=np.float32)
    for start in range(0, len(codes), BLOCK):
        rows[start : start + BLOCK] = normalised(codes[start : start + BLOCK])
    return rows
