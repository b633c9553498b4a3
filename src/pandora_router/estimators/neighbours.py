"""The cheap estimate f: mean reward of the k nearest training prompts by cosine.

The paper's f is k = 3. A constant often beats its squared error (its own variance is a third of the noise),
so k = 50 is reported beside it everywhere. Missing rewards are left out of a mean; where none of the k
neighbours has a reward for a specialist, that specialist's training mean stands in. Knows vectors and
rewards, no prompts: nothing of the training texts is kept or saved.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pandora_router.errors import UsageError
from pandora_router.estimators.embedders.embedder import Embedder, Vectors, normalised
from pandora_router.estimators.embedders.joined import fitted_embedder
from pandora_router.estimators.nearest import EXACT_UP_TO, Exact, Graph, Nearest
from pandora_router.estimators.rewards import checked_reward, filled_mean
from pandora_router.estimators.saved import Saved, embedder_from, embedder_state, read, write
from pandora_router.types import Contexts, Matrix, Positions


@dataclass(frozen=True)
class Neighbours:
    """Training vectors (N, width) with their rewards (N, M), NaN where missing; predicts by k of them."""

    embedder: Embedder
    specialists: tuple[str, ...]
    vectors: Vectors = field(repr=False)
    reward: Matrix = field(repr=False)
    k: int = 3
    exact_up_to: int = EXACT_UP_TO

    def __post_init__(self) -> None:
        if self.k < 1:
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
        k: int = 3,
        exact_up_to: int = EXACT_UP_TO,
    ) -> Neighbours:
        """Remembers the prompts' vectors (embedded here, unless given) and their rewards."""
        matrix = checked_reward(reward, len(prompts), specialists)
        embedder = embedder or fitted_embedder(prompts)
        rows = embedder.embed(prompts) if vectors is None else normalised(vectors)
        if len(rows) != len(matrix):
            raise UsageError(
                "vectors", expected=f"{len(matrix)} rows", came=f"{len(rows)}", do="One vector per prompt."
            )
        return cls(embedder, tuple(specialists), rows, matrix, k, exact_up_to)

    @property
    def needs(self) -> frozenset[str]:
        """No specialist's context is read."""
        return frozenset()

    @property
    def together(self) -> bool:
        """One search for neighbours shows all specialists."""
        return True

    def predict(self, prompts: Sequence[str], contexts: Contexts | None = None) -> Matrix:
        """Estimated rewards (prompts, specialists); contexts are not looked at."""
        return self.predict_vectors(self.embedder.embed(prompts))

    def predict_vectors(self, vectors: Vectors) -> Matrix:
        """As `predict`, for prompts already embedded."""
        return self.predict_each(vectors, [self.k])[0]

    def predict_each(self, vectors: Vectors, ks: Sequence[int]) -> list[Matrix]:
        """As `predict_vectors` for several numbers of neighbours, in one search."""
        found = self.search.nearest(vectors, max(ks))
        return [self._mean(found[:, :k]) for k in ks]

    def leave_one_out(self) -> Matrix:
        """Predictions on the training prompts themselves, none seeing its own reward, shape (N, M)."""
        return self.leave_one_out_each([self.k])[0]

    def leave_one_out_each(self, ks: Sequence[int]) -> list[Matrix]:
        """As `leave_one_out` for several numbers of neighbours, in one search.

        With exact search every training prompt with the very same vector is left out as well, since a prompt
        to be routed is rarely word for word a training prompt; with the graph only the prompt itself is.
        """
        if isinstance(self.search, Exact):
            found = self.search.nearest_except(self.vectors, max(ks), same_rows(self.vectors))
        else:
            found = self.search.nearest(self.vectors, max(ks) + 1)
            itself = found == np.arange(len(found))[:, None]
            order = np.argsort(itself, axis=1, kind="stable")
            found = np.take_along_axis(np.where(itself, -1, found), order, axis=1)
        return [self._mean(found[:, :k]) for k in ks]

    def with_k(self, k: int) -> Neighbours:
        """The same training prompts with another number of neighbours."""
        return replace(self, k=k)

    @functools.cached_property
    def search(self) -> Nearest:
        """Exact up to `exact_up_to` training prompts, a graph above; built on first use."""
        if len(self.vectors) <= self.exact_up_to:
            return Exact(self.vectors)
        return Graph.build(self.vectors)

    @functools.cached_property
    def mean(self) -> Matrix:
        """Each specialist's training mean (M,)."""
        return filled_mean(self.reward)

    def _mean(self, found: Positions) -> Matrix:
        near = np.where(found[:, :, None] >= 0, self.reward[found], np.nan)
        there = ~np.isnan(near)
        count = there.sum(axis=1)
        total = np.where(there, near, 0.0).sum(axis=1)
        return np.where(count > 0, total / np.maximum(count, 1), self.mean)

    def state(self) -> Saved:
        """What is written to disk."""
        settings = {"k": self.k, "exact_up_to": self.exact_up_to, "specialists": list(self.specialists)}
        arrays: dict[str, NDArray[Any]] = {"vectors": self.vectors, "reward": self.reward}
        return Saved("neighbours", settings, arrays, parts={"embedder": embedder_state(self.embedder)})

    @classmethod
    def from_state(cls, saved: Saved, *, embedder: Embedder | None = None) -> Neighbours:
        """The estimator that `state` described; `embedder` is needed only if it was a callable or remote."""
        settings = saved.of_kind("neighbours").settings
        return cls(
            embedder_from(saved.parts["embedder"], embedder),
            tuple(settings["specialists"]),
            saved.arrays["vectors"],
            saved.arrays["reward"],
            settings["k"],
            settings["exact_up_to"],
        )

    def save(self, folder: Path | str) -> Path:
        """Writes the estimator to a folder, whole or not at all."""
        return write(folder, self.state())

    @classmethod
    def load(cls, folder: Path | str, *, embedder: Embedder | None = None) -> Neighbours:
        """Reads what `save` wrote."""
        return cls.from_state(read(folder), embedder=embedder)


def same_rows(vectors: Vectors) -> list[Positions]:
    """For each row the numbers of all rows equal to it, itself included."""
    groups: dict[bytes, list[int]] = {}
    keys = [row.tobytes() for row in vectors]
    for i, key in enumerate(keys):
        groups.setdefault(key, []).append(i)
    arrays = {key: np.asarray(rows, dtype=np.intp) for key, rows in groups.items()}
    return [arrays[key] for key in keys]
