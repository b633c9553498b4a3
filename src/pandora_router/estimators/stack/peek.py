"""Features of the boosted stack from a peek: how a specialist's answer begins, or its passages.

A peek reads the first `characters` of each context. The specialist's own context gives surface features, its
similarity to the prompt, and two ridge predictions of what a prediction from the prompt alone left
unexplained (one ridge per specialist, one for all). `agreement=True` adds how far the contexts of all
specialists agree, which has another price: see `agreement`. Where a context is missing, its features are NaN.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pandora_router.errors import UsageError
from pandora_router.estimators.embedders.embedder import Embedder, Vectors, default_embedder
from pandora_router.estimators.linear import Features, Ridge, fit_ridge
from pandora_router.estimators.stack.agreement import agreement
from pandora_router.estimators.stack.features import PEEKED, asked_for, components, leading_directions, peeked
from pandora_router.estimators.states import Saved, embedder_from, embedder_state
from pandora_router.types import Contexts, Matrix, Positions

DIRECTIONS = 12
PENALTIES = (10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0)
WEIGHT = 0.2
FEWEST = 50


@dataclass(frozen=True)
class Peek:
    """What is read: the first `characters` of a context; with `agreement`, of all specialists together."""

    characters: int = 400
    agreement: bool = False

    def __post_init__(self) -> None:
        if self.characters < 1:
            raise UsageError(
                "characters of a peek", expected="at least 1", came=f"{self.characters}", do="400 is usual."
            )

    def cut(self, contexts: Contexts) -> Contexts:
        """The contexts, each truncated to the first `characters`; a missing one stays None."""
        short = np.full(contexts.shape, None, dtype=object)
        for at in zip(*present(contexts), strict=True):
            short[at] = str(contexts[at])[: self.characters]
        return short


@dataclass(frozen=True)
class Seen:
    """Contexts as numbers: positions of those that exist, their vectors, and surface features."""

    at: tuple[Positions, Positions]
    vectors: Vectors
    outside: Matrix
    nearness: Matrix
    contexts: Contexts


@dataclass(frozen=True)
class ContextEvidence:
    """Fitted ridges on contexts: one per specialist and a common one, with scaling and directions."""

    peek: Peek
    embedder: Embedder
    each: Ridge = field(repr=False)
    common: Ridge = field(repr=False)
    centre: Matrix = field(repr=False)
    spread: Matrix = field(repr=False)
    middle: Vectors = field(repr=False)
    directions: Vectors = field(repr=False)
    strength: Matrix = field(repr=False)

    @classmethod
    def fit(
        cls,
        peek: Peek,
        prompts: Sequence[str],
        contexts: Contexts,
        unexplained: Matrix,
        strength: Matrix,
        folds: Positions,
        embedder: Embedder | None = None,
    ) -> tuple[ContextEvidence, Matrix]:
        """The evidence, and the training features (n, M, P) with out-of-fold ridge predictions.

        `unexplained` (n, M) is reward minus an out-of-fold prediction from the prompt alone. Raises
        `UsageError` if there is no context at all.
        """
        embedder = embedder or default_embedder()
        seen = _see(peek, prompts, contexts, embedder)
        if len(seen.vectors) == 0:
            raise UsageError("contexts", expected="at least one", came="none", do="Fit without a peek.")
        centre, spread = seen.outside.mean(axis=0), seen.outside.std(axis=0) + 1e-9
        middle = seen.vectors.mean(axis=0)
        directions = leading_directions(seen.vectors - middle, DIRECTIONS)
        features = np.hstack([seen.vectors, (WEIGHT * (seen.outside - centre) / spread).astype(np.float32)])
        rows, columns = seen.at
        target = unexplained[rows, columns]
        common, outside_common = fit_ridge(features, target[:, None], folds[rows], PENALTIES)
        each, outside_each = _heads(features, target, folds[rows], columns, unexplained.shape[1])
        fitted = cls(peek, embedder, each, common, centre, spread, middle, directions, strength)
        return fitted, fitted._columns(prompts, seen, outside_each, outside_common[:, 0])

    def columns(self, prompts: Sequence[str], contexts: Contexts) -> Matrix:
        """Features (n, M, P) of new contexts; NaN where a context is missing."""
        seen = _see(self.peek, prompts, contexts, self.embedder)
        scaled = (WEIGHT * (seen.outside - self.centre) / self.spread).astype(np.float32)
        features = np.hstack([seen.vectors, scaled])
        each = np.einsum("nf,fn->n", features, self.each.weights[:, seen.at[1]])
        each = each + self.each.intercept[seen.at[1]]
        return self._columns(prompts, seen, each, self.common.predict(features)[:, 0])

    def _columns(self, prompts: Sequence[str], seen: Seen, each: Matrix, common: Matrix) -> Matrix:
        parts = components(seen.vectors, self.middle, self.directions)
        filled = np.column_stack([seen.outside, parts, seen.nearness, each, common])
        columns = np.full((*seen.contexts.shape, filled.shape[1]), np.nan)
        columns[seen.at] = filled
        if not self.peek.agreement:
            return columns
        return np.concatenate([columns, agreement(prompts, seen.contexts, self.strength)], axis=2)

    def state(self) -> Saved:
        """The state to save; `from_state` restores it."""
        arrays: dict[str, NDArray[Any]] = {
            "each_weights": self.each.weights,
            "each_intercept": self.each.intercept,
            "common_weights": self.common.weights,
            "common_intercept": self.common.intercept,
            "centre": self.centre,
            "spread": self.spread,
            "middle": self.middle,
            "directions": self.directions,
            "strength": self.strength,
        }
        return Saved(
            "context-evidence", asdict(self.peek), arrays, parts={"embedder": embedder_state(self.embedder)}
        )

    @classmethod
    def from_state(cls, saved: Saved, *, embedder: Embedder | None = None) -> ContextEvidence:
        """Restore the evidence from its `state`."""
        arrays = saved.of_kind("context-evidence").arrays
        return cls(
            Peek(**saved.settings),
            embedder_from(saved.parts["embedder"], embedder),
            Ridge(arrays["each_weights"], arrays["each_intercept"]),
            Ridge(arrays["common_weights"], arrays["common_intercept"]),
            *(arrays[name] for name in ("centre", "spread", "middle", "directions", "strength")),
        )


def _heads(
    features: Features, target: Matrix, folds: Positions, columns: Positions, total: int
) -> tuple[Ridge, Matrix]:
    """One ridge per specialist with at least `FEWEST` scored contexts, zero for the others.

    Also returns their out-of-fold predictions.
    """
    heads = Ridge(np.zeros((features.shape[1], total)), np.zeros(total))
    outside = np.zeros(len(features))
    for column in range(total):
        mine = np.flatnonzero(columns == column)
        if np.isfinite(target[mine]).sum() >= FEWEST:
            ridge, held_out = fit_ridge(features[mine], target[mine, None], folds[mine], PENALTIES)
            heads.weights[:, column], heads.intercept[column] = ridge.weights[:, 0], ridge.intercept[0]
            outside[mine] = held_out[:, 0]
    return heads, outside


def present(contexts: Contexts) -> tuple[Positions, Positions]:
    """Rows and columns of the cells that hold a text."""
    held = np.asarray([[cell is not None for cell in row] for row in contexts], dtype=bool)
    rows, columns = np.nonzero(held.reshape(contexts.shape))
    return rows, columns


def _see(peek: Peek, prompts: Sequence[str], contexts: Contexts, embedder: Embedder) -> Seen:
    short = peek.cut(contexts)
    rows, columns = present(short)
    texts = [str(short[i, j]) for i, j in zip(rows, columns, strict=True)]
    vectors = embedder.embed(texts)
    about = {int(i): asked_for(prompts[int(i)]) for i in np.unique(rows)}
    outside = [peeked(about[int(i)], text) for i, text in zip(rows, texts, strict=True)]
    asked = embedder.embed(prompts)
    nearness = np.einsum("nf,nf->n", vectors, asked[rows]).astype(np.float64)
    matrix = np.asarray(outside, dtype=np.float64).reshape(len(texts), PEEKED)
    return Seen((rows, columns), vectors, matrix, nearness, short)
