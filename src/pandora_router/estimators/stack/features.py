"""Features of the boosted stack: of the beginning of an answer, and those that depend on the prompt alone.

`peeked` describes the beginning of an answer (or passages) together with the prompt. It uses no tasks,
specialists or rewards.

For every prompt: surface features, the leading directions of its embedding, and two independent predictions
of every specialist's reward (a ridge regression on the embedding, and neighbours at two sizes). In training,
each prediction is made without the prompt's own reward, so that the stack learns how reliable it is.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pandora_router.estimators.embedders.embedder import Embedder, Vectors
from pandora_router.estimators.embedders.tfidf import (
    NUMBER,
    SURFACE,
    fitted_embedder,
    of_text,
    surface,
)
from pandora_router.estimators.linear import Ridge, fit_ridge
from pandora_router.estimators.neighbours import Neighbours
from pandora_router.estimators.states import Saved
from pandora_router.types import Matrix, Positions

WORD = re.compile(r"\w+")
LETTER = re.compile(r"\b[A-J]\b")
DOUBT = re.compile(
    r"\b(?:not sure|unclear|cannot|can't|unknown|however|but|no information|not (?:mentioned|provided|stated)"
    r"|sorry|assum\w+|perhaps|maybe|might|likely|actually|wait)\b",
    re.IGNORECASE,
)
DONE = re.compile(r"\b(?:answer|therefore|thus|hence|so the|final|total)\b|####", re.IGNORECASE)

PEEKED = SURFACE + 9


def asked_for(prompt: str) -> tuple[set[str], set[str]]:
    """The words and the numbers of a prompt, as an argument of `peeked`."""
    return set(WORD.findall(prompt.lower())), set(NUMBER.findall(prompt))


def peeked(prompt: tuple[set[str], set[str]], context: str) -> list[float]:
    """Features (PEEKED,) of a context: its surface, and what it has in common with the prompt."""
    asked, given = prompt
    words, used = WORD.findall(context.lower()), NUMBER.findall(context)
    marked = [match.start() for match in DONE.finditer(context)]
    return [
        *of_text(context),
        len(asked.intersection(words)) / (len(asked) + 1),
        sum(1 for word in words if word in asked) / (len(words) + 1),
        len(given.intersection(used)) / (len(given) + 1),
        float(sum(1 for number in used if number not in given)),
        float(len(LETTER.findall(context))),
        float(len(DOUBT.findall(context))),
        float(len(marked)),
        (marked[0] if marked else len(context)) / (len(context) + 1),
        float(context.rstrip()[-1:] in {".", "}", "]", "*"}),
    ]


NEAR, FAR = 15, 50
DIRECTIONS = 24
SURFACE_WEIGHT = 0.2


@dataclass(frozen=True)
class Layer:
    """Features of n prompts: shared by all specialists (n, S) and per specialist (n, M, P).

    `ridge` and `far` (n, M) are the two predictions among them that the final blend uses too.
    """

    shared: Matrix
    own: Matrix
    ridge: Matrix
    far: Matrix


@dataclass(frozen=True)
class PromptEvidence:
    """The fitted parts: neighbours (with the embedder), ridge head, scaling and directions of features."""

    neighbours: Neighbours
    head: Ridge = field(repr=False)
    centre: Matrix = field(repr=False)
    spread: Matrix = field(repr=False)
    middle: Vectors = field(repr=False)
    directions: Vectors = field(repr=False)

    @classmethod
    def fit(
        cls,
        prompts: Sequence[str],
        reward: Matrix,
        specialists: Sequence[str],
        folds: Positions,
        embedder: Embedder | None,
    ) -> tuple[PromptEvidence, Layer]:
        """The evidence, and the layer of the training prompts (out-of-fold and leave-one-out predictions)."""
        embedder = embedder or fitted_embedder(prompts)
        vectors = embedder.embed(prompts)
        neighbours = Neighbours.fit(prompts, reward, specialists, embedder=embedder, vectors=vectors, k=FAR)
        outside = surface(prompts)
        centre, spread = outside.mean(axis=0), outside.std(axis=0) + 1e-9
        middle = vectors.mean(axis=0)
        directions = leading_directions(vectors - middle, DIRECTIONS)
        features = np.hstack([vectors, SURFACE_WEIGHT * (outside - centre) / spread])
        head, ridge = fit_ridge(features, reward, folds)
        fitted = cls(neighbours, head, centre, spread, middle, directions)
        near, far = neighbours.leave_one_out_each([NEAR, FAR])
        return fitted, fitted._layer(outside, vectors, ridge, near, far)

    def layer(self, prompts: Sequence[str]) -> Layer:
        """The layer of new prompts."""
        vectors = self.neighbours.embedder.embed(prompts)
        outside = surface(prompts)
        scaled = SURFACE_WEIGHT * (outside - self.centre) / self.spread
        ridge = self.head.predict(np.hstack([vectors, scaled]))
        near, far = self.neighbours.predict_each(vectors, [NEAR, FAR])
        return self._layer(outside, vectors, ridge, near, far)

    def _layer(self, outside: Matrix, vectors: Vectors, ridge: Matrix, near: Matrix, far: Matrix) -> Layer:
        means = [part.mean(axis=1, keepdims=True) for part in (ridge, near, far)]
        shared = np.hstack([outside, components(vectors, self.middle, self.directions), *means])
        usual = np.broadcast_to(self.neighbours.mean, ridge.shape)
        return Layer(shared, np.stack([ridge, near, far, usual], axis=2), ridge, far)

    def state(self) -> Saved:
        """The state to save; `from_state` restores it."""
        arrays: dict[str, NDArray[Any]] = {
            "weights": self.head.weights,
            "intercept": self.head.intercept,
            "centre": self.centre,
            "spread": self.spread,
            "middle": self.middle,
            "directions": self.directions,
        }
        return Saved("prompt-evidence", {}, arrays, parts={"neighbours": self.neighbours.state()})

    @classmethod
    def from_state(cls, saved: Saved, *, embedder: Embedder | None = None) -> PromptEvidence:
        """Restore the evidence from its `state`."""
        arrays = saved.of_kind("prompt-evidence").arrays
        return cls(
            Neighbours.from_state(saved.parts["neighbours"], embedder=embedder),
            Ridge(arrays["weights"], arrays["intercept"]),
            arrays["centre"],
            arrays["spread"],
            arrays["middle"],
            arrays["directions"],
        )


def leading_directions(rows: Vectors, count: int) -> Vectors:
    """The `count` directions (width, count) of largest variance of centred rows, in descending order."""
    values, vectors = np.linalg.eigh(rows.T.astype(np.float64) @ rows)
    chosen = vectors[:, np.argsort(-values, kind="stable")[:count]]
    signs = np.sign(chosen[np.argmax(np.abs(chosen), axis=0), np.arange(chosen.shape[1])])
    return np.ascontiguousarray(chosen * signs, dtype=np.float32)


def components(rows: Vectors, middle: Vectors, directions: Vectors) -> Matrix:
    """The components (n, count) of rows, less their `middle`, along `directions`.

    In double precision, so that trees read the same of a row alone and among others. Where prompts vary in
    few directions, the components along the others are small, and trees split them at small numbers too.
    """
    return (rows.astype(np.float64) - middle) @ directions
