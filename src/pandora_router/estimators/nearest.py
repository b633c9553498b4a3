"""Nearest known rows by cosine: exact search in bounded memory, or an index above 100,000 rows.

Each search has `nearest(queries, k)`, which returns row numbers (queries, k), nearest first. Exact search
(`Exact`, and `packed.Packed` for wide vectors) resolves ties to the lowest row number. The index is HNSW from
faiss (extra `[index]`); docs/decisions/0011-neighbour-index.md has the measurements behind that choice.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pandora_router.errors import missing_package
from pandora_router.estimators.embedders.embedder import Vectors
from pandora_router.types import Positions

EXACT_UP_TO = 100_000
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

    def nearest_to_own(self, k: int, skip: list[Positions]) -> Positions:
        """`nearest_except` with the known rows themselves as queries."""
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

    def nearest_to_own(self, k: int, skip: list[Positions]) -> Positions:
        """`nearest_except` with the known rows themselves as queries."""
        return self._nearest(self._rows, k, skip)

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


LINKS, EFFORT, CANDIDATES = 24, 80, 96
"""Edges per node of a graph (twice as many at the lowest level), candidates when building and searching."""
HIGHEST = 64
"""Most levels that a node of a saved graph may have; a graph of a billion rows has fewer than 10."""


@dataclass(frozen=True)
class Edges:
    """The edges of a `Graph` as plain arrays, so that a saved graph need not be built again.

    levels: the number of levels of each node (N,). neighbours: for each node in order 2 `LINKS` row numbers
    at its lowest level and `LINKS` at each higher one; -1 where an edge is free. entry: where searches start.
    """

    levels: NDArray[np.int32]
    neighbours: NDArray[np.int32]
    entry: int

    def check(self, rows: int) -> None:
        """Raise `ValueError` unless these are the edges of a graph over so many `rows`."""
        levels, neighbours = self.levels, self.neighbours
        if levels.dtype != np.int32 or levels.shape != (rows,) or not 0 <= self.entry < rows:
            raise ValueError(f"levels of a graph: {levels.dtype} of shape {levels.shape} for {rows} rows")
        if levels.min() < 1 or levels.max() > HIGHEST or levels[self.entry] != levels.max():
            raise ValueError("levels of a graph that cannot be")
        if neighbours.dtype != np.int32 or neighbours.shape != (int(self.offsets[-1]),):
            raise ValueError(f"edges of a graph: {neighbours.dtype} of shape {neighbours.shape}")
        if neighbours.min() < -1 or neighbours.max() >= rows:
            raise ValueError("edges of a graph that lead nowhere")

    @cached_property
    def offsets(self) -> NDArray[np.uint64]:
        """Where the edges of each node begin in `neighbours`, and their number (N + 1,)."""
        counts = LINKS * (self.levels.astype(np.int64) + 1)
        return np.concatenate([[0], np.cumsum(counts)]).astype(np.uint64)


@dataclass(frozen=True)
class Graph:
    """Approximate search in a navigable small-world graph (Malkov & Yashunin 2018) built by faiss."""

    index: Any = field(repr=False)
    rows: int

    @classmethod
    def build(cls, vectors: Vectors) -> Graph:
        """Build the graph over `vectors` (N, width)."""
        index = _empty(vectors)
        index.hnsw.efConstruction = EFFORT
        index.add(np.ascontiguousarray(vectors))
        return cls(index, len(vectors))

    @classmethod
    def of(cls, vectors: Vectors, edges: Edges) -> Graph:
        """The graph over `vectors` with the `edges` that it had when it was saved; searches find the same."""
        index = _empty(vectors)
        import faiss

        index.storage.add(np.ascontiguousarray(vectors))
        graph = index.hnsw
        parts = (
            (graph.levels, edges.levels),
            (graph.offsets, edges.offsets),
            (graph.neighbors, edges.neighbours),
        )
        for vector, array in parts:
            faiss.copy_array_to_vector(np.ascontiguousarray(array), vector)
        graph.entry_point, graph.max_level = edges.entry, int(edges.levels.max()) - 1
        index.ntotal = len(vectors)
        return cls(index, len(vectors))

    @property
    def edges(self) -> Edges:
        """The edges, to be saved."""
        import faiss

        graph = self.index.hnsw
        levels, neighbours = (faiss.vector_to_array(part) for part in (graph.levels, graph.neighbors))
        return Edges(levels, neighbours, int(graph.entry_point))

    def nearest(self, queries: Vectors, k: int) -> Positions:
        """Approximately the k rows of largest inner product (-1 where the graph finds fewer)."""
        _, positions = self.index.search(np.ascontiguousarray(queries), min(k, self.rows))
        return np.asarray(positions, dtype=np.intp)


def _empty(vectors: Vectors) -> Any:
    """A graph of faiss without rows, for rows like `vectors`; `UsageError` if faiss is not installed."""
    try:
        import faiss
    except ImportError as error:
        raise missing_package(f"neighbours among {len(vectors)} prompts", "faiss-cpu", "index") from error
    index = faiss.IndexHNSWFlat(vectors.shape[1], LINKS, faiss.METRIC_INNER_PRODUCT)
    index.hnsw.efSearch = CANDIDATES
    return index


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
