"""Ridge regressions of rewards: a fast cheap estimate, and predictions on features that others are fitted on.

The fast cheap estimate (`LinearHead`) reads a few whitened components of the embedding. With z the components
of a prompt (principal components of the known vectors, scaled to variance one) the estimate is f = z W + a: a
few hundred multiplications, whereas `Neighbours` compares the prompt with all known ones. The penalty
minimises the exact leave-one-out error, from hat values. Missing rewards (NaN) are left out for their
specialist. Components are fitted once; `remember` refits W and a.

`fit_ridge` regresses rewards on any features, with out-of-fold predictions: one closed-form solution per
penalty and fold, from sums of squares computed once per fold. Missing rewards (NaN) are left out; specialists
with the same missing rows share one solution. The intercept is not penalised.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pandora_router.errors import UsageError
from pandora_router.estimators.embedders.embedder import Embedder, Vectors
from pandora_router.estimators.embedders.tfidf import fitted_embedder
from pandora_router.estimators.estimator import PromptsOnly
from pandora_router.estimators.neighbours import same_rows
from pandora_router.estimators.rewards import checked_reward, with_more
from pandora_router.estimators.states import Saved, embedder_from, embedder_state
from pandora_router.types import Contexts, Mask, Matrix, Positions, Vector

COMPONENTS = 25
PENALTIES = tuple(np.logspace(-4.0, 1.0, 11).tolist())  # per known prompt


@dataclass(frozen=True)
class LinearHead(PromptsOnly):
    """Known components (N, K) with their rewards (N, M), NaN where missing, and the ridge fitted on them.

    A vector x has components (x - `middle`) @ `whitening`.
    """

    embedder: Embedder
    specialists: tuple[str, ...]
    middle: Vectors = field(repr=False)
    whitening: Vectors = field(repr=False)
    components: Vectors = field(repr=False)
    reward: Matrix = field(repr=False)

    @classmethod
    def fit(
        cls,
        prompts: Sequence[str],
        reward: ArrayLike,
        specialists: Sequence[str],
        *,
        embedder: Embedder | None = None,
        count: int = COMPONENTS,
    ) -> LinearHead:
        """Fit `count` components on the prompts (fewer if there are fewer), and the ridge regression."""
        if count < 1:
            raise UsageError("components", expected="at least 1", came=f"{count}", do="Try 25.")
        matrix = checked_reward(reward, len(prompts), specialists)
        embedder = embedder or fitted_embedder(prompts)
        vectors = embedder.embed(prompts)
        middle = vectors.mean(axis=0)
        centred = (vectors - middle).astype(np.float64)
        values, directions = np.linalg.eigh(centred.T @ centred / len(centred))
        live = np.flatnonzero(values > 1e-9 * max(float(values[-1]), 1e-300))[::-1][:count]
        signs = np.sign(directions[np.argmax(np.abs(directions), axis=0), np.arange(len(values))])
        whitening = (directions * signs)[:, live] / np.sqrt(values[live])
        head = cls(embedder, tuple(specialists), middle, whitening.astype(np.float32), middle[:0], matrix)
        return replace(head, components=head._components(vectors))

    def remember(self, prompts: Sequence[str], reward: ArrayLike) -> LinearHead:
        """The same components with more known prompts; `reward` (n, M) as in `fit`."""
        if not len(prompts):
            return self
        rows = np.concatenate([self.components, self._components(self.embedder.embed(prompts))])
        return replace(self, components=rows, reward=with_more(self.reward, reward, len(prompts)))

    def predict(self, prompts: Sequence[str], contexts: Contexts | None = None) -> Matrix:
        """Estimated rewards (prompts, specialists); `contexts` is ignored."""
        weights = self.weights
        return self._components(self.embedder.embed(prompts)) @ weights[:-1] + weights[-1]

    def leave_one_out(self) -> Matrix:
        """Predictions (N, M) for the known prompts, each by a ridge fitted without it and its duplicates."""
        left: Matrix = self.components @ self.weights[:-1] + self.weights[-1]
        copies = [rows for i, rows in enumerate(same_rows(self.components)) if rows[0] == i]
        for column, solution in enumerate(self._ridges):
            left[:, column] = solution.left_out(self._design, self.reward[:, column], copies)
        return left

    def predict_unseen(self, prompts: Sequence[str]) -> Matrix:
        """As `predict`; a prompt whose components are known is predicted by a ridge fitted without it."""
        rows = self._components(self.embedder.embed(prompts))
        estimates: Matrix = rows @ self.weights[:-1] + self.weights[-1]
        first = {row.tobytes(): i for i, row in reversed(list(enumerate(self.components)))}
        known = [(i, first[row.tobytes()]) for i, row in enumerate(rows) if row.tobytes() in first]
        if known:
            at, where = np.array(known).T
            estimates[at] = self.leave_one_out()[where]
        return estimates

    @functools.cached_property
    def weights(self) -> Matrix:
        """W and, in the last row, a (K + 1, M)."""
        return np.column_stack([solution.weights for solution in self._ridges])

    @functools.cached_property
    def _design(self) -> Matrix:
        ones = np.ones((len(self.components), 1))
        return np.hstack([self.components.astype(np.float64), ones])

    @functools.cached_property
    def _ridges(self) -> list[_Solution]:
        """The ridge of each specialist; specialists with the same missing rewards share a decomposition."""
        shared: dict[bytes, list[Matrix]] = {}
        solutions = []
        for column in self.reward.T:
            present = ~np.isnan(column)
            rows = self._design[present]
            if present.tobytes() not in shared:
                gram = rows.T @ rows
                penalty = np.diag(np.append(np.full(len(gram) - 1, float(len(rows))), 0.0))
                shared[present.tobytes()] = [np.linalg.pinv(gram + p * penalty) for p in PENALTIES]
            solutions.append(_best(rows, column[present], present, shared[present.tobytes()]))
        return solutions

    def _components(self, vectors: Vectors) -> Vectors:
        # in double precision: the same result for one prompt and for many
        inside: Vectors = ((vectors - self.middle).astype(np.float64) @ self.whitening).astype(np.float32)
        return inside

    def state(self) -> Saved:
        """The state to save; `from_state` restores it."""
        arrays: dict[str, NDArray[Any]] = {
            "middle": self.middle,
            "whitening": self.whitening,
            "components": self.components,
            "reward": self.reward,
        }
        settings = {"specialists": list(self.specialists)}
        return Saved("linear", settings, arrays, parts={"embedder": embedder_state(self.embedder)})

    @classmethod
    def from_state(cls, saved: Saved, *, embedder: Embedder | None = None) -> LinearHead:
        """The estimator whose `state` is `saved`; `embedder` as in `saved.load_estimator`."""
        arrays = saved.of_kind("linear").arrays
        names = ("middle", "whitening", "components", "reward")
        embedder_ = embedder_from(saved.parts["embedder"], embedder)
        return cls(embedder_, tuple(saved.settings["specialists"]), *(arrays[name] for name in names))


@dataclass(frozen=True, eq=False)
class _Solution:
    """The ridge of one specialist: weights (K + 1,), (X'X + penalty)^-1, mask of prompts with a reward."""

    weights: Vector
    inverse: Matrix
    there: Mask

    def left_out(self, design: Matrix, reward: Vector, copies: list[Positions]) -> Vector:
        """Predictions (N,) without the prompt and its copies G: r_G + (I - H_GG)^-1 (prediction - r)_G."""
        predicted = design @ self.weights
        hat = np.einsum("ij,jk,ik->i", design, self.inverse, design)
        gap = np.where(self.there, predicted - reward, 0.0)
        left = np.where(self.there, reward + gap / np.maximum(1.0 - hat, 1e-9), predicted)
        for rows in copies:
            if len(rows) > 1:
                inside = rows[self.there[rows]]
                block = design[inside] @ self.inverse @ design[inside].T
                moved = np.linalg.solve(np.eye(len(inside)) - block, gap[inside])
                left[rows] = predicted[rows] + design[rows] @ self.inverse @ design[inside].T @ moved
        return np.asarray(left)


def _best(rows: Matrix, reward: Vector, present: Mask, inverses: list[Matrix]) -> _Solution:
    """The solution whose penalty has the least leave-one-out error."""
    best: tuple[float, Vector, Matrix] | None = None
    for inverse in inverses:
        weights = inverse @ (rows.T @ reward)
        hat = np.einsum("ij,jk,ik->i", rows, inverse, rows)
        error = float((((reward - rows @ weights) / np.maximum(1.0 - hat, 1e-9)) ** 2).mean())
        if best is None or error < best[0]:
            best = error, weights, inverse
    assert best is not None
    return _Solution(best[1], best[2], present)


Features = NDArray[np.float32] | Vector
FEATURE_PENALTIES = (1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0)
CHUNK = 8192


@dataclass(frozen=True)
class Ridge:
    """Weights (features, outputs) and intercept (outputs,): predicts features @ weights + intercept."""

    weights: Matrix = field(repr=False)
    intercept: Matrix = field(repr=False)

    def predict(self, features: Features) -> Matrix:
        """Predictions (rows, outputs)."""
        return features @ self.weights + self.intercept


def fit_ridge(
    features: Features, reward: Matrix, folds: Positions, penalties: Sequence[float] = FEATURE_PENALTIES
) -> tuple[Ridge, Matrix]:
    """The ridge with the penalty of lowest cross-validated error, and its out-of-fold predictions.

    Minimises sum (R - Xw - a)^2 + penalty |w|^2 per output. `folds` (rows,) is the fold number of each row.
    One penalty is chosen for each group of outputs with the same missing rows.
    """
    width = features.shape[1]
    weights = np.zeros((width, reward.shape[1]))
    intercept = np.zeros(reward.shape[1])
    held_out = np.zeros(reward.shape)
    patterns: dict[bytes, list[int]] = {}
    for column in range(reward.shape[1]):
        patterns.setdefault(np.isnan(reward[:, column]).tobytes(), []).append(column)
    for columns in patterns.values():
        solution, outside = _fit_complete(features, reward[:, columns], folds, penalties)
        weights[:, columns] = solution[:-1]
        intercept[columns] = solution[-1]
        held_out[:, columns] = outside
    return Ridge(weights, intercept), held_out


def _fit_complete(
    features: Features, reward: Matrix, folds: Positions, penalties: Sequence[float]
) -> tuple[Matrix, Matrix]:
    present = ~np.isnan(reward[:, 0])
    count = int(folds.max()) + 1
    sums = [_sums(features, reward, np.flatnonzero(present & (folds == k))) for k in range(count)]
    gram = np.sum([s[0] for s in sums], axis=0)
    cross = np.sum([s[1] for s in sums], axis=0)
    best: tuple[float, float, Matrix] | None = None
    for penalty in penalties:
        outside = np.empty(reward.shape)
        for k in range(count):
            solution = _solve(gram - sums[k][0], cross - sums[k][1], penalty)
            rows = folds == k
            outside[rows] = features[rows] @ solution[:-1] + solution[-1]
        error = float(np.mean((outside[present] - reward[present]) ** 2))
        if best is None or error < best[0]:
            best = error, penalty, outside
    if best is None:
        raise UsageError(
            "penalties of a ridge head", expected="at least one", came="none", do="Pass a penalty."
        )
    return _solve(gram, cross, best[1]), best[2]


def _sums(features: Features, reward: Matrix, rows: Positions) -> tuple[Matrix, Matrix]:
    width = features.shape[1] + 1
    gram, cross = np.zeros((width, width)), np.zeros((width, reward.shape[1]))
    for start in range(0, len(rows), CHUNK):
        chunk = rows[start : start + CHUNK]
        block = np.column_stack([features[chunk].astype(np.float64), np.ones(len(chunk))])
        gram += block.T @ block
        cross += block.T @ reward[chunk]
    return gram, cross


def _solve(gram: Matrix, cross: Matrix, penalty: float) -> Matrix:
    ridge = np.full(len(gram), penalty)
    ridge[-1] = 1e-9 * (1.0 + gram[-1, -1])
    solution: Matrix = np.linalg.solve(gram + np.diag(ridge), cross).astype(np.float64)
    return solution


def grouped_folds(groups: Sequence[object], count: int, seed: int) -> Positions:
    """Fold numbers, balanced over the distinct elements of `groups`; equal elements share a fold."""
    members = {member: i for i, member in enumerate(dict.fromkeys(groups))}
    if len(members) < 2:
        raise UsageError(
            "prompts to fit on",
            expected="at least two different prompts",
            came=f"{len(members)}",
            do="Collect more scored prompts.",
        )
    numbers = np.random.default_rng(seed).permutation(len(members)) % min(count, len(members))
    return np.asarray([numbers[members[member]] for member in groups], dtype=np.intp)
