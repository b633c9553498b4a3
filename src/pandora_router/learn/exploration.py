r"""What asking another specialist is worth for what it teaches, against what it costs this prompt.

The linear model (`estimators.pooled`) knows the covariance P of its weights. After n rated answers of
specialist m to prompts like x, with features phi and noise s of one answer, the expected reward of
specialist k at a later prompt x' has moved by a normal variable of standard deviation |b_k|,

    b_k(x') = 1/3 phi(x')' P_km phi / sqrt(phi' P_mm phi + s / n),

where 1/3 is the weight of the linear model in what a router decides on after a refit; for a newcomer that has
no score of a known prompt it is 1, because the linear model alone estimates it. The neighbours of
completed rows move too, so this is rather too little: exploring for knowledge that nobody will use costs.

With a_k(x') the estimates of today, the next prompt gains by that knowledge

    gain_n = mean over recent prompts x' of E max_k (a_k + b_k Z) - max_k a_k,

the envelope of the knowledge gradient (`search.gradient`). If R rated answers are expected while the
knowledge is used, each of the n answers is worth (R - n) / n gain_n: one answer alone often teaches nothing
where sixteen would, so the best n of `COUNTS` is taken. Asking m loses the difference between the best worth
and that of m. `Exploration.lesson` returns the specialist whose lesson exceeds its loss by most, if any does.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from pandora_router.estimators.embedders.embedder import Vectors
from pandora_router.estimators.extended import Unscored, neighbours_of, strange
from pandora_router.estimators.neighbours import Neighbours
from pandora_router.estimators.pooled import Blended, Pooled
from pandora_router.search import kernels
from pandora_router.search.gradient import envelope_gain
from pandora_router.types import Mask, Matrix, Positions, Vector

COUNTS = (1, 4, 16, 64, 256)
"""Numbers of rated answers whose worth is compared."""
RECENT = 64
"""Prompts that stand for those to come."""
NEWEST = 2000
"""Of so many known prompts, the last ones, they are drawn."""
TRIED = 3
"""Specialists whose gain is computed exactly; the others are screened out by an upper bound."""
SHARE = 1.0 / 3.0
"""Of a movement of the linear model so much reaches what a refitted router decides on (`pooled.Blended`)."""
HALF_NORMAL = 0.3989423
"""E max(Z, 0): a gain is at most this times the largest difference between two slopes."""
COIN = 0.5
"""The chance with which a specialist that is worth asking for its lesson is asked."""


@dataclass(frozen=True)
class LessonPrice:
    """A specialist (its column), what asking it teaches, and what it loses; both in units of reward."""

    column: int
    worth: float
    loss: float


@dataclass(frozen=True)
class Exploration:
    """What is known of specialists, and the prompts for which it will be used.

    law: the linear model. features (R, 1 + K) and worth (R, M): of recent prompts, their features and
    expected rewards. share (M,): how much of a movement of the linear model reaches a decision.
    """

    law: Pooled
    features: Matrix
    worth: Matrix
    share: Vector

    @classmethod
    def of(cls, cheap: object, seed: int = 0) -> Exploration:
        """For the cheap estimate of a router, with `RECENT` of its newest known prompts.

        Raises `UsageError` if it is not made of neighbours, or if these know too little.
        """
        base = cheap.base if isinstance(cheap, Unscored) else cheap
        known = base.after if isinstance(base, Blended) else neighbours_of(base)
        if known is None:
            raise strange(cheap)
        law = cheap.linear if isinstance(cheap, Blended | Unscored) else Pooled.of(known)
        newest = np.arange(max(len(known.reward) - NEWEST, 0), len(known.reward))
        rows = np.sort(np.random.default_rng(seed).permutation(newest)[:RECENT])
        units = _units(known, rows)
        worth, old = law.predict(units), len(known.specialists)
        worth[:, :old] = (known.leave_one_out_each([known.k], rows)[0] + worth[:, :old]) / 2.0
        features = np.ascontiguousarray(law.features(units), dtype=np.float64)
        share = np.where(np.arange(worth.shape[1]) < old, SHARE, 1.0)
        return cls(law, features, np.ascontiguousarray(worth, dtype=np.float64), share)

    def moved(self, by: Vector) -> Exploration:
        """The same with `by` (M,) added to the worths: prices that differ from those of the fit."""
        return replace(self, worth=self.worth + by)

    def lesson(
        self, phi: Vector, worth: Vector, ratings: float, allowed: Mask | None = None
    ) -> LessonPrice | None:
        """The specialist to ask instead of the best one at a prompt with the features `phi`, or None.

        worth (M,): expected rewards when the prompt was decided. ratings: rated answers that are expected
        while the knowledge is used (rather too few than too many). allowed (M,): who may be asked.
        """
        counts = np.array([count for count in COUNTS if count < ratings])
        loss = worth.max() - worth if allowed is None else worth[allowed].max() - worth
        if not len(counts):
            return None
        specialists, width = self.law.weights.shape
        parts = self.law.covariance.reshape(specialists * width, specialists, width) @ phi  # (M width, M)
        moved = parts.T.reshape(specialists, specialists, width)  # P_km phi, by m and k
        times = (ratings - counts) / counts
        moves = (self.features @ moved.reshape(-1, width).T).reshape(-1, specialists, specialists)
        moves *= self.share
        own = np.maximum(np.einsum("i,mmi->m", phi, moved), 0.0)
        scales = 1.0 / np.sqrt(own[:, None] + sum(self.law.noise) / counts)
        most = HALF_NORMAL * np.ptp(moves, axis=2).mean(axis=0) * (times * scales).max(axis=1) - loss
        candidates = np.flatnonzero((loss > 0.0) & (most > 0.0) & (True if allowed is None else allowed))
        best = None
        for m in candidates[np.argsort(-most[candidates], kind="stable")][:TRIED].tolist():
            taught = float((times * gains(self.worth, moves[:, m], scales[m])).max())
            if taught > loss[m] and (best is None or taught - loss[m] > best.worth - best.loss):
                best = LessonPrice(m, taught, float(loss[m]))
        return best

    def expecting(self, phi: Vector, column: int, rate: float) -> Exploration:
        """The same after `column` was asked at `phi`, where a share `rate` of answers is rated.

        The covariance of the weights does not depend on what an answer was worth, so that it is known before
        the answer is rated. An answer that may be rated counts as one of more noise, noise / rate.
        """
        if rate <= 0.0:
            return self
        return replace(self, law=self.law.observed(phi, column, sum(self.law.noise) / rate))


def gains(worth: Matrix, moves: Matrix, scales: Vector) -> Vector:
    """gain_n for each of `scales`: `moves` (R, M) times a scale are the slopes b.

    >>> gains(np.array([[0.0, 0.0]]), np.array([[1.0, 0.0]]), np.array([1.0])).round(4).tolist()
    [0.3989]
    """
    out = np.empty(len(scales))
    compiled = kernels.ready()
    if compiled is not None:
        compiled.learning_gains(worth, np.ascontiguousarray(moves), scales, out)
        return out
    for n, scale in enumerate(scales):
        out[n] = np.mean([envelope_gain(a, scale * b) for a, b in zip(worth, moves, strict=True)])
    return out


def _units(known: Neighbours, rows: Positions) -> Vectors:
    some = replace(known, vectors=known.vectors[rows], reward=known.reward[rows], edges=None)
    return some.units()
