"""Nearest known rows by cosine: exact search in bounded memory, and the graph used above 50,000 rows.

Each search has `nearest(queries, k)`, which returns row numbers (queries, k), nearest first. Exact search
(`Exact`, and `Packed` for wide vectors) resolves ties to the lowest row number. The graph (`Edges`)
is HNSW, built by faiss; docs/decisions/0011-neighbour-index.md has the measurements behind that choice.

Wide vectors are kept in few bytes: rotated to their leading directions, with eight bits per number. A vector
of 384 single-precision numbers (1,536 bytes) becomes 128 integers from -127 to 127 and one scale (132 bytes).
Squared error and reward of the cheap estimate change by less than their noise:
docs/decisions/0310-vectors-in-eight-bits.md has the measurements. Queries are rounded in the same way, so
every inner product is a sum of integers below 2^24, exact in single precision for any order of summation.
Therefore one prompt and many, compiled code and numpy find the same neighbours.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pandora_router.boxes.checks import locked
from pandora_router.estimators.embedders.embedder import Vectors, normalised
from pandora_router.search import kernels
from pandora_router.types import Matrix, Positions

if TYPE_CHECKING:
    from types import SimpleNamespace


EXACT_UP_TO = 50_000
STEPS = np.float32(4000.0)  # parts of 1 in which vectors are compared; its square is below 2^24


class Nearest(Protocol):
    """Search for the known rows nearest to each query."""

    def nearest(self, queries: Vectors, k: int) -> Positions:
        """Row numbers (queries, min(k, rows)) in descending order of cosine."""
        ...


class Complete(Nearest, Protocol):
    """An exact search, which can leave rows out."""

    def nearest_except(self, queries: Vectors, k: int, skip: list[Positions] | None) -> Positions:
        """As `nearest`, without the rows `skip[i]` for query i; -1 where fewer than k rows are left."""
        ...

    def nearest_to_own(self, k: int, skip: list[Positions], which: Positions) -> Positions:
        """`nearest_except` with the known rows `which` as queries."""
        ...


@dataclass(frozen=True)
class Exact:
    """Brute force over unit rows (N, width): one matrix product per chunk, at most `cells` numbers at a time.

    Rows and queries are rounded to multiples of 1 / `STEPS`. By Cauchy and Schwarz every partial sum of an
    inner product is then a whole number below 2^24, exact in single precision for any order of summation:
    a query has the same neighbours alone and among others, also where rows are equally near.
    """

    vectors: Vectors = field(repr=False)
    cells: int = 4_000_000

    def nearest(self, queries: Vectors, k: int) -> Positions:
        """The k rows of largest inner product; ties go to the lowest row number."""
        return self.nearest_except(queries, k, None)

    def nearest_except(self, queries: Vectors, k: int, skip: list[Positions] | None) -> Positions:
        """As `nearest`, without the rows `skip[i]` for query i; -1 where fewer than k rows are left."""
        return self._nearest(_rounded(queries), k, skip)

    def nearest_to_own(self, k: int, skip: list[Positions], which: Positions) -> Positions:
        """`nearest_except` with the known rows `which` as queries."""
        return self._nearest(self._rows[which], k, skip)

    @cached_property
    def _rows(self) -> Vectors:
        return _rounded(self.vectors)

    def _nearest(self, queries: Vectors, k: int, skip: list[Positions] | None) -> Positions:
        total = len(self.vectors)
        k = min(k, total)
        positions = np.empty((len(queries), k), dtype=np.intp)
        chunk = max(1, self.cells // max(total, 1))
        for start in range(0, len(queries), chunk):
            near = queries[start : start + chunk] @ self._rows.T
            if skip is not None:
                for i, rows in enumerate(skip[start : start + chunk]):
                    near[i, rows] = -np.inf
            positions[start : start + chunk] = largest(near, k)
        return positions


def _rounded(vectors: Vectors) -> Vectors:
    """Unit rows times `STEPS`, in whole numbers."""
    return np.rint(STEPS * np.asarray(vectors, dtype=np.float32))


LINKS, EFFORT = 24, 80
"""Edges per node of a graph (twice as many at the lowest level), and candidates when it is built."""
MOST_LEVELS = 64
"""Most levels that a node of a saved graph may have; a graph of a billion rows has fewer than 10."""


@dataclass(frozen=True)
class Edges:
    """A navigable small-world graph (HNSW; Malkov & Yashunin 2018) over known rows, as plain arrays.

    faiss builds it (extra `[index]`); it is searched without faiss (`Graph`), where it lies.

    levels: the number of levels of each node (N,). neighbours: for each node in order 2 `LINKS` row numbers
    at its lowest level and `LINKS` at each higher one; -1 where an edge is free. entry: where searches start.
    """

    levels: NDArray[np.int32]
    neighbours: NDArray[np.int32]
    entry: int

    @classmethod
    def build(cls, vectors: Vectors) -> Edges:
        """The graph over `vectors` (N, width); `ImportError` if faiss is not installed (`can_build`).

        Built by one thread, so that the same rows get the same edges.
        """
        nothing = np.zeros(0, dtype=np.int32)
        return cls(nothing, nothing, -1).grown(vectors)

    def grown(self, vectors: Vectors) -> Edges:
        """The graph over all `vectors`, of which this one has the first; the others are added to it."""
        import faiss

        index: Any = faiss.IndexHNSWFlat(vectors.shape[1], LINKS, faiss.METRIC_INNER_PRODUCT)
        index.hnsw.efConstruction = EFFORT
        known, graph = len(self.levels), index.hnsw
        if known:
            index.storage.add(np.ascontiguousarray(vectors[:known]))
            vectors_of_faiss = (graph.levels, graph.offsets, graph.neighbors)
            arrays = (self.levels, self.starts.astype(np.uint64), self.neighbours)
            for vector, array in zip(vectors_of_faiss, arrays, strict=True):
                faiss.copy_array_to_vector(np.ascontiguousarray(array), vector)
            graph.entry_point, graph.max_level = self.entry, int(self.levels.max()) - 1
            index.ntotal = known
        threads = faiss.omp_get_max_threads()
        faiss.omp_set_num_threads(1)
        try:
            index.add(np.ascontiguousarray(vectors[known:]))
        finally:
            faiss.omp_set_num_threads(threads)
        levels, neighbours = (faiss.vector_to_array(part) for part in (graph.levels, graph.neighbors))
        return Edges(levels, neighbours, int(graph.entry_point))

    def check(self, rows: int) -> None:
        """Raise `ValueError` unless these are the edges of a graph over so many `rows`."""
        levels, neighbours = self.levels, self.neighbours
        if levels.dtype != np.int32 or levels.shape != (rows,) or not 0 <= self.entry < rows:
            raise ValueError(f"levels of a graph: {levels.dtype} of shape {levels.shape} for {rows} rows")
        if levels.min() < 1 or levels.max() > MOST_LEVELS or levels[self.entry] != levels.max():
            raise ValueError("levels of a graph that cannot be")
        if neighbours.dtype != np.int32 or neighbours.shape != (int(self.starts[-1]),):
            raise ValueError(f"edges of a graph: {neighbours.dtype} of shape {neighbours.shape}")
        if neighbours.min() < -1 or neighbours.max() >= rows:
            raise ValueError("edges of a graph that lead nowhere")

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        """Where the edges of each node begin in `neighbours`, and their number (N + 1,)."""
        return np.concatenate([[0], np.cumsum(LINKS * (self.levels.astype(np.int64) + 1))])

    def at(self, row: int, level: int) -> NDArray[np.int32]:
        """The rows to which `row` has an edge at `level`; none if the node has no such level."""
        begin = int(self.starts[row]) + (LINKS * (level + 1) if level else 0)
        end = begin + (LINKS if level else 2 * LINKS)
        if end > self.starts[row + 1]:
            return self.neighbours[:0]
        there = self.neighbours[begin:end]
        free = np.flatnonzero(there < 0)
        return there[: free[0]] if len(free) else there


def can_build() -> bool:
    """Whether faiss is installed; without it exact search is used for any number of rows."""
    try:
        import faiss  # noqa: F401
    except ImportError:
        return False
    return True


def largest(near: NDArray[np.float32], k: int) -> Positions:
    """Columns of the k largest entries of each row; ties to the lowest column.

    -1 in place of -inf entries.
    """
    total = near.shape[1]
    if k < total:
        columns = np.sort(np.argpartition(near, total - k, axis=1)[:, total - k :], axis=1)
        least = np.take_along_axis(near, columns, axis=1).min(axis=1)
        tied = np.flatnonzero((near >= least[:, None]).sum(axis=1) > k)
        for row in tied:
            above = np.flatnonzero(near[row] > least[row])
            level = np.flatnonzero(near[row] == least[row])[: k - len(above)]
            columns[row] = np.sort(np.concatenate([above, level]))
    else:
        columns = np.broadcast_to(np.arange(total), near.shape)
    values = np.take_along_axis(near, columns, axis=1)
    order = np.argsort(-values, axis=1, kind="stable")
    columns = np.take_along_axis(columns, order, axis=1)
    return np.where(np.take_along_axis(values, order, axis=1) == -np.inf, -1, columns)


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
