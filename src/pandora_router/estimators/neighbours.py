"""The cheap estimate f: mean reward of the k nearest known prompts by cosine, averaged over several k.

The default averages over k = 25, 50 and 200 (docs/method.md, section 11). The paper's k = 3 often has a
larger squared error than a constant, because a mean of three has a third of the variance of a single reward.
Missing rewards are left out of a mean; if none of the k neighbours has a reward for a specialist, its mean
over all known prompts is used. Only vectors and rewards are kept and saved, no text of prompts.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pandora_router.data.splits import SAMPLE, sample
from pandora_router.errors import UsageError
from pandora_router.estimators.embedders.embedder import Embedder, Vectors, normalised
from pandora_router.estimators.embedders.tfidf import fitted_embedder
from pandora_router.estimators.estimator import PromptsOnly
from pandora_router.estimators.nearest import (
    EXACT_UP_TO,
    WIDTH,
    Codes,
    Complete,
    Edges,
    Exact,
    Graph,
    Packed,
    Packing,
    can_build,
    unit_rows,
)
from pandora_router.estimators.rewards import checked_reward, filled_mean, with_more
from pandora_router.estimators.states import Saved, embedder_from, embedder_state, read, restorable, write
from pandora_router.run.runner import InPlace, Runner
from pandora_router.search import kernels
from pandora_router.types import Contexts, Matrix, Positions

USUAL = (25, 50, 200)
"""The numbers of neighbours that the default estimate averages over."""
ENOUGH = 512  # prompts from which on wide vectors are packed
CELLS = 2_000_000  # rewards of neighbours in memory at a time
TEXTS = 10_000  # prompts of one shard when many are embedded
MORE = 16  # rows asked of the graph in addition, since equal ones are left out
Count = int | tuple[int, ...]
"""A number of neighbours, or several whose estimates are averaged."""


@dataclass(frozen=True)
class Neighbours(PromptsOnly):
    """Known vectors (N, width) with their rewards (N, M), NaN where missing; predicts by the k nearest.

    With several numbers in `k` the prediction is the average over them. With a `packing`, `vectors` has
    integer codes (N, kept) in place of unit rows. `edges` are those of the graph over the vectors, if there
    is one; otherwise it is built on first use if there are more than `exact_up_to` packed prompts and faiss
    is installed. `runner` embeds prompts where there are many; the result does not depend on it.
    """

    embedder: Embedder
    specialists: tuple[str, ...]
    vectors: Vectors | Codes = field(repr=False)
    reward: Matrix = field(repr=False)
    k: Count = USUAL
    exact_up_to: int = EXACT_UP_TO
    packing: Packing | None = None
    edges: Edges | None = field(default=None, repr=False)
    runner: Runner = field(default=InPlace(), repr=False, compare=False)

    def __post_init__(self) -> None:
        if min(_each(self.k), default=0) < 1:
            raise UsageError("k neighbours", expected="at least 1", came=f"{self.k}", do="The paper uses 3.")

    @classmethod
    def fit(
        cls,
        prompts: Sequence[str],
        reward: ArrayLike,
        specialists: Sequence[str],
        *,
        embedder: Embedder | None = None,
        vectors: ArrayLike | None = None,
        k: Count = USUAL,
        exact_up_to: int = EXACT_UP_TO,
        most: int = SAMPLE,
        runner: Runner | None = None,
    ) -> Neighbours:
        """Keep the prompts' vectors (embedded here, unless `vectors` are given) and their rewards.

        Vectors are packed if there are `ENOUGH` prompts and the vectors are wide, or if there are more than
        `exact_up_to` prompts. With more than `most` prompts the default embedder and the packing are fitted
        on a sample of that size, and all are embedded and packed in blocks, over the `runner` (None: in this
        process).
        """
        matrix = checked_reward(reward, len(prompts), specialists)
        embedder = embedder or fitted_embedder(prompts, most=most)
        streamed = vectors is None and len(prompts) > most
        read = [prompts[i] for i in sample(prompts, most).tolist()] if streamed else prompts
        rows = embedder.embed(read) if vectors is None else normalised(vectors)
        if len(rows) != len(read):
            raise UsageError(
                "vectors", expected=f"{len(matrix)} rows", came=f"{len(rows)}", do="One vector per prompt."
            )
        wide = len(prompts) >= ENOUGH and rows.shape[1] > WIDTH
        packing = Packing.fit(rows) if wide or len(prompts) > exact_up_to else None
        known = cls(embedder, tuple(specialists), rows[:0], matrix, k, exact_up_to, packing)
        if runner is not None:
            known = replace(known, runner=runner)
        return replace(known, vectors=known._embedded(prompts) if streamed else known._stored(rows))

    def remember(self, prompts: Sequence[str], reward: ArrayLike) -> Neighbours:
        """The same estimator with more known prompts, appended to those it has; `reward` as in `fit`.

        The embedder does not change. Unlike in `fit`, a specialist may have no reward on the new prompts.
        A graph that there is, is extended if faiss is installed.
        """
        if not len(prompts):
            return self
        new = self._embedded(prompts) if len(prompts) > SAMPLE else self._stored_here(prompts)
        rows = np.concatenate([self.vectors, new])
        graph = vars(self).get("_edges", self.edges)
        edges = graph.grown(unit_rows(rows)) if graph is not None and can_build() else None
        return replace(self, vectors=rows, reward=with_more(self.reward, reward, len(prompts)), edges=edges)

    def _embedded(self, prompts: Sequence[str]) -> Vectors | Codes:
        """What is stored of many prompts, computed in blocks by the runner."""
        shards = (prompts[start : start + TEXTS] for start in range(0, len(prompts), TEXTS))
        away = not isinstance(self.runner, InPlace) and restorable(self.embedder)
        if not away:
            return np.concatenate(list(InPlace().map(self._stored_here, shards)))
        work = partial(_stored_away, embedder_state(self.embedder), self.packing)
        return np.concatenate(list(self.runner.map(work, shards)))

    def _stored_here(self, texts: Sequence[str]) -> Vectors | Codes:
        return self._stored(self.embedder.embed(texts))

    def predict(self, prompts: Sequence[str], contexts: Contexts | None = None) -> Matrix:
        """Estimated rewards (prompts, specialists); `contexts` is ignored."""
        return self.predict_vectors(self.embedder.embed(prompts))

    def predict_vectors(self, vectors: Vectors) -> Matrix:
        """As `predict`, for prompts already embedded.

        The last single prompt is remembered: in a trial two routers ask the same neighbours about it.
        """
        if len(vectors) != 1:
            return self.predict_each(vectors, [self.k])[0]
        asked = vectors.tobytes()
        last, found = vars(self).get("_last", (b"", None))
        if last != asked:
            found = self.predict_each(vectors, [self.k])[0]
            vars(self)["_last"] = asked, found
        return np.array(found)

    def same_as(self, other: Neighbours) -> bool:
        """Whether both know the same prompts and therefore give the same estimates."""
        mine, theirs = ((one.embedder.name, one.specialists, one.k) for one in (self, other))
        return (
            mine == theirs
            and (self.packing is None) == (other.packing is None)
            and np.array_equal(self.vectors, other.vectors)
            and np.array_equal(self.reward, other.reward, equal_nan=True)
        )

    def predict_each(self, vectors: Vectors, ks: Sequence[Count]) -> list[Matrix]:
        """As `predict_vectors` for several choices of `k`, in one search."""
        return self._means(self.search.nearest(vectors, _largest(ks)), ks)

    def leave_one_out(self) -> Matrix:
        """Predictions (N, M) for the known prompts, each computed without its own reward."""
        return self.leave_one_out_each([self.k])[0]

    def leave_one_out_each(self, ks: Sequence[Count], which: Positions | None = None) -> list[Matrix]:
        """As `leave_one_out` for several choices of `k`, in one search, for the known prompts `which`.

        All known prompts of the same vector are left out too, since a prompt to be routed is rarely identical
        to a known one. With the graph these are looked for among the nearest it finds, and if there are many,
        fewer than k are left.
        """
        rows = np.arange(len(self.vectors)) if which is None else which
        search = self.search
        if isinstance(search, Graph):
            return self._means(self._others(search, search.codes[rows], _largest(ks)), ks)
        same = same_rows(self.vectors)
        return self._means(search.nearest_to_own(_largest(ks), [same[i] for i in rows.tolist()], rows), ks)

    def predict_unseen(self, prompts: Sequence[str]) -> Matrix:
        """As `predict`, without known prompts of the same vector: the estimate of a new prompt."""
        return self._means(self._nearest_unseen(self.embedder.embed(prompts)), [self.k])[0]

    def predict_with_share(
        self, vectors: Vectors, first: int, *, unseen: bool = False
    ) -> tuple[Matrix, Matrix]:
        """As `predict_vectors`, and the share (n, 1) of known prompts from number `first` on in the means.

        unseen: as in `predict_unseen`.
        """
        most = _largest([self.k])
        nearest = self._nearest_unseen(vectors) if unseen else self.search.nearest(vectors, most)
        shares = [
            (nearest[:, :k] >= first).sum(axis=1) / np.maximum((nearest[:, :k] >= 0).sum(axis=1), 1)
            for k in _each(self.k)
        ]
        return self._means(nearest, [self.k])[0], np.mean(shares, axis=0)[:, None]

    def _nearest_unseen(self, vectors: Vectors) -> Positions:
        search, most = self.search, _largest([self.k])
        if isinstance(search, Graph):
            return self._others(search, search.packing.codes(vectors), most)
        among = same_rows(np.concatenate([self._stored(vectors), self.vectors]))[: len(vectors)]
        copies = [rows[rows >= len(vectors)] - len(vectors) for rows in among]
        return search.nearest_except(vectors, most, copies)

    def _others(self, graph: Graph, asked: Codes, k: int) -> Positions:
        """The k nearest rows that are not equal to those asked, -1 at the end where there are fewer."""
        nearest = np.empty((len(asked), min(k, len(self.vectors))), dtype=np.intp)
        for start in range(0, len(asked), TEXTS):
            queries = asked[start : start + TEXTS]
            rows = graph.nearest_to(queries, k + MORE)
            for i, (query, found) in enumerate(zip(queries, rows, strict=True)):
                other = (graph.codes[found] != query).any(axis=1) & (found >= 0)
                nearest[start + i] = np.append(found[other], np.full(k, -1))[: nearest.shape[1]]
        return nearest

    @functools.cached_property
    def search(self) -> Complete | Graph:
        """Search through the graph if there is one, otherwise exact search."""
        if self._edges is not None and self.packing is not None:
            return Graph(self.packing, np.asarray(self.vectors, dtype=np.int8), self._edges)
        if self.packing is None:
            return Exact(np.asarray(self.vectors, dtype=np.float32))
        return Packed.of(self.packing, np.array(self.vectors, dtype=np.int8))

    @functools.cached_property
    def _edges(self) -> Edges | None:
        """The edges of the graph over the known prompts: as saved, built now, or None for exact search."""
        if self.packing is None or (self.edges is None and len(self.vectors) <= self.exact_up_to):
            return None
        if self.edges is None and can_build():
            return Edges.build(unit_rows(self.vectors))
        return self.edges

    def _stored(self, vectors: Vectors) -> Vectors | Codes:
        """`vectors` in the form in which known rows are kept (packed or not)."""
        return vectors if self.packing is None else self.packing.codes(vectors)

    def units(self, vectors: Vectors | None = None) -> Vectors:
        """Unit rows of `vectors` in the space that is searched, or of the known prompts if None."""
        rows = self.vectors if vectors is None else self._stored(vectors)
        return np.asarray(rows, dtype=np.float32) if self.packing is None else unit_rows(rows)

    @functools.cached_property
    def mean(self) -> Matrix:
        """Each specialist's mean reward over all known prompts (M,)."""
        return filled_mean(self.reward)

    def _means(self, nearest: Positions, ks: Sequence[Count]) -> list[Matrix]:
        """The predictions for each choice of `k`, given the nearest rows (n, largest k)."""
        counts = sorted({k for several in ks for k in _each(several)})
        parts = dict(zip(counts, self._mean_of_each(nearest, counts), strict=True))
        return [np.mean([parts[k] for k in _each(several)], axis=0) for several in ks]

    def _mean_of_each(self, nearest: Positions, counts: Sequence[int]) -> Matrix:
        """Mean rewards (counts, n, M) of the nearest `count` rows, for each of `counts`."""
        out = np.empty((len(counts), len(nearest), len(self.specialists)))
        compiled = kernels.ready()
        if compiled is not None:
            compiled.neighbour_means(nearest, self._rewards, self.mean, np.array(counts, dtype=np.intp), out)
            return out
        chunk = max(1, CELLS // (max(nearest.shape[1], 1) * len(self.specialists)))
        for start in range(0, len(nearest), chunk):
            for a, k in enumerate(counts):
                out[a, start : start + chunk] = self._mean(nearest[start : start + chunk, :k])
        return out

    @functools.cached_property
    def _rewards(self) -> Matrix:
        """The rewards as compiled code expects them: writable and C-contiguous."""
        return np.array(self.reward, dtype=np.float64, order="C")

    def _mean(self, nearest: Positions) -> Matrix:
        near = np.where(nearest[:, :, None] >= 0, self.reward[nearest], np.nan)
        present = ~np.isnan(near)
        count = present.sum(axis=1)
        total = np.where(present, near, 0.0).sum(axis=1)
        return np.where(count > 0, total / np.maximum(count, 1), self.mean)

    def state(self) -> Saved:
        """The state to save; `from_state` restores it."""
        settings = {
            "k": list(_each(self.k)),
            "exact_up_to": self.exact_up_to,
            "specialists": list(self.specialists),
        }
        arrays: dict[str, NDArray[Any]] = {"vectors": self.vectors, "reward": self.reward}
        if self.packing is not None:
            arrays["rotation"] = self.packing.rotation
        if self._edges is not None:
            arrays |= {"levels": self._edges.levels, "edges": self._edges.neighbours}
            settings["entry"] = self._edges.entry
        return Saved("neighbours", settings, arrays, parts={"embedder": embedder_state(self.embedder)})

    @classmethod
    def from_state(cls, saved: Saved, *, embedder: Embedder | None = None) -> Neighbours:
        """Restore the estimator from its `state`; `embedder` only if it was a callable or remote.

        What was fitted without faiss is searched exactly for good, also where faiss is installed: all hosts
        decide alike, and no request waits until a graph is built.
        """
        settings = saved.of_kind("neighbours").settings
        edges, exact_up_to = None, settings["exact_up_to"]
        if "entry" not in settings and len(saved.arrays["vectors"]) > exact_up_to:
            exact_up_to = sys.maxsize
        if "entry" in settings:
            edges = Edges(saved.arrays["levels"], saved.arrays["edges"], int(settings["entry"]))
            edges.check(len(saved.arrays["vectors"]))
        return cls(
            embedder_from(saved.parts["embedder"], embedder),
            tuple(settings["specialists"]),
            saved.arrays["vectors"],
            saved.arrays["reward"],
            tuple(settings["k"]),
            exact_up_to,
            Packing(saved.arrays["rotation"]) if "rotation" in saved.arrays else None,
            edges,
        )

    def save(self, folder: Path | str) -> Path:
        """Write the estimator to `folder`, atomically; an estimator already there is replaced."""
        return write(folder, self.state())

    @classmethod
    def load(cls, folder: Path | str, *, embedder: Embedder | None = None) -> Neighbours:
        """Read an estimator written by `save`; `UsageError` if the folder is damaged or of another kind."""
        return cls.from_state(read(folder), embedder=embedder)


def _stored_away(embedder: Saved, packing: Packing | None, texts: Sequence[str]) -> Vectors | Codes:
    """What is stored of `texts`, computed by another process from the saved state of the embedder."""
    vectors = embedder_from(embedder, None).embed(texts)
    return vectors if packing is None else packing.codes(vectors)


def _each(k: Count) -> tuple[int, ...]:
    """The numbers of neighbours that an estimate averages over."""
    return k if isinstance(k, tuple) else (k,)


def _largest(ks: Sequence[Count]) -> int:
    return max(max(_each(k)) for k in ks)


def same_rows(vectors: Vectors | Codes) -> list[Positions]:
    """For each row the numbers of all rows equal to it, itself included."""
    groups: dict[bytes, list[int]] = {}
    keys = [row.tobytes() for row in vectors]
    for i, key in enumerate(keys):
        groups.setdefault(key, []).append(i)
    arrays = {key: np.asarray(rows, dtype=np.intp) for key, rows in groups.items()}
    return [arrays[key] for key in keys]
