r"""A linear estimate of rewards whose specialists share what they learn, and its average with neighbours.

With phi = (1, K principal components of the prompt's unit vector),

    R_m = mu_m + phi' w_m + e_m,    cov(w_m, w_k) = (tc + ts [m = k]) I,    cov(e_m, e_k) = sc + ss [m = k].

Unlike neighbours, it learns from a prompt that has the score of one specialist alone. A prompt whose scores
are known for the specialists O adds inv(Sigma_OO) (x) phi phi' to the precision of the weights. `Pooled`
keeps the mean and the covariance P of the weights; `after` adds one rated answer by a rank-one update.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from pandora_router.errors import UsageError
from pandora_router.estimators.embedders.embedder import Embedder, Vectors
from pandora_router.estimators.estimator import PromptsOnly
from pandora_router.estimators.neighbours import Neighbours
from pandora_router.estimators.states import Saved, once, write
from pandora_router.types import Contexts, Matrix, Vector

COMPONENTS = 32
MOST = 1000
"""Weights of all specialists together, above which fewer components are used: updates take its square."""
SHARED, OWN = 0.1, 0.03
"""Prior variances tc and ts of a weight, where there are too few complete prompts to choose them."""
ENOUGH = 1000
"""Complete prompts from which on tc and ts are chosen by their likelihood."""
FEWEST = 30
"""Complete known prompts below which residuals say nothing about each other."""
LARGEST = 5000
"""Complete known prompts on which residuals are measured."""
GRID = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0)


@dataclass(frozen=True)
class Pooled:
    """The law of the weights. Vectors are unit rows, as `Neighbours.units` returns them.

    middle (width,), axes (width, K): where components are measured from, and along what. level: mu (M,).
    weights (M, 1 + K) and covariance (M (1 + K), M (1 + K)): mean and covariance of w. prior: tc, ts. noise:
    sc, ss.
    """

    middle: Vector = field(repr=False)
    axes: Matrix = field(repr=False)
    level: Vector = field(repr=False)
    weights: Matrix = field(repr=False)
    covariance: Matrix = field(repr=False)
    prior: tuple[float, float]
    noise: tuple[float, float]

    @classmethod
    def fit(cls, units: Vectors, reward: Matrix, noise: tuple[float, float]) -> Pooled:
        """The law of the weights given the rewards (N, M), NaN where missing, at these unit rows (N, width).

        Components, levels and prior are those of the prompts with every reward, of which there must be some.
        """
        complete = np.isfinite(reward).all(axis=1)
        known, specialists = units[complete].astype(np.float64), reward.shape[1]
        middle = known.mean(axis=0)
        count = min(COMPONENTS, max(MOST // specialists - 1, 1), known.shape[1])
        axes = np.linalg.svd(known - middle, full_matrices=False)[2][:count].T
        level = reward[complete].mean(axis=0)
        law = cls(
            middle, axes, level, np.zeros((specialists, axes.shape[1] + 1)), axes[:0], (0.0, 0.0), noise
        )
        prior = likeliest(law.features(units[complete]), reward[complete] - level, noise)
        return replace(law, prior=prior)._given(law.features(units), reward - level)

    @classmethod
    def of(cls, known: Neighbours) -> Pooled:
        """The law given the rewards that `known` has; raises `UsageError` if too few of them are complete."""
        return cls.fit(known.units(), known.reward, noise_parts(residual_covariance(known)))

    def _given(self, phi: Matrix, residual: Matrix) -> Pooled:
        """The law after prompts with these features and rewards minus levels, from the prior."""
        (specialists, width), (tc, ts), (sc, ss) = self.weights.shape, self.prior, self.noise
        every = np.eye(specialists)
        precision = np.kron(np.linalg.inv(tc + ts * every), np.eye(width))
        moment, known = np.zeros((specialists, width)), np.isfinite(residual)
        for pattern in np.unique(known, axis=0):
            seen, rows = np.flatnonzero(pattern), (known == pattern).all(axis=1)
            if len(seen):
                inverse = np.zeros((specialists, specialists))
                inverse[np.ix_(seen, seen)] = np.linalg.inv(sc + ss * np.eye(len(seen)))
                precision += np.kron(inverse, phi[rows].T @ phi[rows])
                moment[seen] += inverse[np.ix_(seen, seen)] @ residual[np.ix_(rows, seen)].T @ phi[rows]
        covariance = np.linalg.inv(precision)
        weights = (covariance @ moment.ravel()).reshape(specialists, width)
        return replace(self, weights=weights, covariance=(covariance + covariance.T) / 2.0)

    def features(self, units: Vectors) -> Matrix:
        """phi (n, 1 + K) of unit rows (n, width)."""
        return np.hstack([np.ones((len(units), 1)), (units - self.middle) @ self.axes])

    def predict(self, units: Vectors) -> Matrix:
        """Expected rewards (n, M) of prompts with these unit rows."""
        return np.asarray(self.level + self.features(units) @ self.weights.T)

    def after(self, unit: Vectors, column: int, reward: float, variance: float | None = None) -> Pooled:
        """The law after the reward of one specialist for a prompt with the unit row `unit` (width,).

        variance: of the reward around its expectation; that of the noise unless given.
        """
        phi = self.features(unit[None])[0]
        news = reward - self.level[column] - phi @ self.weights[column]
        moved, total = self._moved(phi, column, sum(self.noise) if variance is None else variance)
        weights = self.weights + (moved * (news / total)).reshape(self.weights.shape)
        return replace(self, weights=weights, covariance=self.covariance - np.outer(moved / total, moved))

    def observed(self, phi: Vector, column: int, variance: float) -> Pooled:
        """The law with the covariance that it has after an answer at the features `phi`."""
        moved, total = self._moved(phi, column, variance)
        return replace(self, covariance=self.covariance - np.outer(moved / total, moved))

    def _moved(self, phi: Vector, column: int, variance: float) -> tuple[Vector, float]:
        """Covariance of all weights with the reward of `column` at `phi`, and the variance of that reward."""
        width = len(phi)
        block = slice(column * width, (column + 1) * width)
        moved = self.covariance[:, block] @ phi
        return moved, float(phi @ moved[block] + variance)

    def joined(self, level: float) -> Pooled:
        """The law with one more specialist, which has no scores: like its colleagues, at the mean `level`.

        Its weights follow from theirs by the prior: w_new = c sum_k w_k + noise, c = tc / (ts + M tc).
        """
        (specialists, width), (tc, ts) = self.weights.shape, self.prior
        share = tc / (ts + specialists * tc)
        parts = self.covariance.reshape(specialists, width, specialists, width)
        across = share * parts.sum(axis=0)  # (width, M, width): the newcomer with each colleague
        own = share * across.sum(axis=1) + (tc + ts - share * specialists * tc) * np.eye(width)
        side = across.reshape(width, -1)
        covariance = np.block([[self.covariance, side.T], [side, own]])
        weights = np.vstack([self.weights, share * self.weights.sum(axis=0)])
        return replace(self, level=np.append(self.level, level), weights=weights, covariance=covariance)

    def state(self) -> Saved:
        """The state to save; `from_state` restores it."""
        arrays = {
            "middle": self.middle,
            "axes": self.axes,
            "level": self.level,
            "weights": self.weights,
            "covariance": self.covariance,
        }
        return Saved("pooled", {"prior": list(self.prior), "noise": list(self.noise)}, arrays)

    @classmethod
    def from_state(cls, saved: Saved) -> Pooled:
        """What `state` returned."""
        arrays, settings = saved.of_kind("pooled").arrays, saved.settings
        (tc, ts), (sc, ss) = settings["prior"], settings["noise"]
        return cls(
            arrays["middle"],
            arrays["axes"],
            arrays["level"],
            arrays["weights"],
            arrays["covariance"],
            (tc, ts),
            (sc, ss),
        )


def likeliest(phi: Matrix, residual: Matrix, noise: tuple[float, float]) -> tuple[float, float]:
    """The prior variances tc, ts of highest likelihood, over a grid, for complete prompts (N, M).

    The mean over specialists and each contrast between them are separate regressions, with weights of
    variance M tc + ts and ts and noise of M sc + ss and ss. With few prompts (`ENOUGH`): the usual values.
    """
    count, specialists = residual.shape
    if count < ENOUGH or specialists < 2:
        return SHARED, OWN
    left, values, _ = np.linalg.svd(phi, full_matrices=False)
    common = residual.sum(axis=1, keepdims=True) / np.sqrt(specialists)
    contrasts = residual - residual.mean(axis=1, keepdims=True)

    def likelihood(target: Matrix, columns: int, weight: float, error: float) -> float:
        spread = weight * values**2 + error
        return float(
            -0.5 * (columns * np.log(spread).sum() + (((left.T @ target) ** 2).sum(axis=1) / spread).sum())
        )

    sc, ss = noise
    ts = max(GRID, key=lambda own: likelihood(contrasts, specialists - 1, own, ss))
    tc = max(GRID, key=lambda shared: likelihood(common, 1, specialists * shared + ts, specialists * sc + ss))
    return tc, ts


def residual_covariance(cheap: Neighbours) -> Matrix:
    """The covariance (M, M) of rewards around left-out estimates, on known prompts with every reward.

    Of more than `LARGEST` such prompts a sample is taken.
    """
    whole = np.flatnonzero(np.isfinite(cheap.reward).all(axis=1))
    rows = np.sort(np.random.default_rng(0).permutation(whole)[:LARGEST])
    complete = cheap.reward[rows] - cheap.leave_one_out_each([cheap.k], rows)[0]
    if len(complete) < FEWEST:
        raise UsageError(
            "learning from a log",
            expected=f"{FEWEST} or more known prompts with a score of every specialist",
            came=f"{len(complete):,}",
            do="Collect answers of all specialists to some prompts, and fit on them first.",
        )
    return np.asarray(np.cov(complete.T).reshape(len(cheap.specialists), -1))


def noise_parts(covariance: Matrix) -> tuple[float, float]:
    """The shared and the own part (sc, ss) of the residuals of one prompt, from their covariance (M, M)."""
    count = len(covariance)
    own = float(np.trace(covariance)) / count
    if count == 1:
        return 0.0, max(own, 1e-6)
    shared = (float(covariance.sum()) - own * count) / (count * (count - 1))
    return max(shared, 0.0), max(own - max(shared, 0.0), 1e-6)


@dataclass(frozen=True)
class Blended(PromptsOnly):
    """The mean of three estimates: neighbours before a refit, neighbours after it, and a linear one.

    The first gives way to the second in proportion to the share of rated requests among the neighbours: where
    people have rated much, what the fit said without them no longer counts.

    before: neighbours that know the prompts of the fit and, at the end, `labels` prompts that were scored
    completely since. after: the same with rated requests, completed.
    """

    before: Neighbours
    after: Neighbours
    linear: Pooled
    labels: int = 0

    @property
    def embedder(self) -> Embedder:
        """That of the neighbours."""
        return self.before.embedder

    @property
    def specialists(self) -> tuple[str, ...]:
        """Those of the neighbours."""
        return self.before.specialists

    def predict(self, prompts: Sequence[str], contexts: Contexts | None = None) -> Matrix:
        """Estimated rewards (prompts, specialists); `contexts` is ignored."""
        vectors = self.embedder.embed(prompts)
        return self._mixed(self.before.predict_vectors(vectors), vectors, unseen=False)

    def predict_unseen(self, prompts: Sequence[str]) -> Matrix:
        """As `predict`, with neighbours that leave prompts of the same vector out."""
        return self._mixed(self.before.predict_unseen(prompts), self.embedder.embed(prompts), unseen=True)

    def _mixed(self, before: Matrix, vectors: Vectors, *, unseen: bool) -> Matrix:
        after, share = self.after.predict_with_share(vectors, len(self.before.reward), unseen=unseen)
        linear = self.linear.predict(self.before.units(vectors))
        return np.asarray(((1.0 - share) * before + (1.0 + share) * after + linear) / 3.0)

    @property
    def fitted(self) -> Neighbours:
        """The neighbours of the fit, as they were before any refit."""
        if not self.labels:
            return self.before
        before, kept = self.before, len(self.before.reward) - self.labels
        return replace(before, vectors=before.vectors[:kept], reward=before.reward[:kept], edges=None)

    def sharing(self, other: Blended | Neighbours) -> Blended:
        """The same estimate, with the neighbours of before and the embedder of `other` if these are equal.

        What two routers share is held once, and computed once for a prompt that both judge.
        """
        theirs = other.before if isinstance(other, Blended) else other
        if not self.before.same_as(theirs):
            return self
        return replace(self, before=theirs, after=replace(self.after, embedder=theirs.embedder))

    def remember(self, prompts: Sequence[str], reward: ArrayLike) -> Blended:
        """The same estimate with more known prompts in the neighbours after the refit."""
        return replace(self, after=self.after.remember(prompts, reward))

    def state(self) -> Saved:
        """The state to save; `from_state` restores it."""
        before = self.before.state()
        after = once(self.after.state(), frozenset([self.embedder.name]))
        parts = {"before": before, "after": after, "linear": self.linear.state()}
        return Saved(
            "blended", {"labels": self.labels}, {}, parts={**parts, "embedder": before.parts["embedder"]}
        )

    @classmethod
    def from_state(cls, saved: Saved, *, embedder: Embedder | None = None) -> Blended:
        """What `state` returned; `embedder` only if it was a callable or remote."""
        parts = saved.of_kind("blended").parts
        before = Neighbours.from_state(parts["before"], embedder=embedder)
        after = Neighbours.from_state(parts["after"], embedder=embedder)
        linear, labels = Pooled.from_state(parts["linear"]), int(saved.settings.get("labels", 0))
        return cls(before, replace(after, embedder=before.embedder), linear, labels)

    def save(self, folder: Path | str) -> Path:
        """Write the estimator to `folder`, atomically; an estimator already there is replaced."""
        return write(folder, self.state())
