"""How rewards follow estimates: m(f), the mean on which decisions are made, and the slope of rewards on g.

m(f) is learnt from left-out f and rewards (N, M).

Raw f is hard to beat with few prompts and a regression of R on f beats it with many, so m starts at raw f
and leaves it only as far as the prompts say (docs/method.md, section 11). With c the mean of f over prompts
and "contrast" for what is left of a row once its mean over specialists is taken away,

    contrast of m(f) = contrast of  c + d + b (f - c) + (f - c) W
    mean of m(f)     = mean reward + b0 (mean of f - mean of c)

b, b0  slopes of R on f, between specialists and of the row means; posterior means under a normal PRIOR
d      mean of R - f per specialist, drawn to 0 by its empirical-Bayes weight: left-out f of few prompts is
       off by chance, and a correction would follow the noise
W      (M, M) ridge of what b leaves, one penalty for all specialists: of all penalties whose leave-one-out
       error of contrasts is within one standard error of the least, the largest, which may be "no W at all"

Only contrasts change a decision, so only they choose the penalty. Missing rewards (NaN) are left out. The
default signal model blends m with plain ridge regressions, which are better with very many prompts.

The slope: expected difference in reward per unit of difference in costly estimates. Decisions depend on
differences between specialists, and these are too large in g: rewards differ by .5 to .8 of what g says
(docs/method.md, sections 8 and 11). One slope for all specialists is fitted, on what an inspection adds to
the mean h(f). For each prompt, with news x = g - h(f) and surprise y = R - h(f), each minus its mean over the
specialists that have both,

    k = sum_j x_j y_j        v = sum_j x_j^2        slope = mean(k) / mean_calibration(v)

Means are per contrast: a prompt with n complete cells has n - 1 of them, so mean(k) = sum k / sum (n - 1). A
prompt with one score has none: it says nothing about differences, and does not count against the news.
k is averaged over training and calibration prompts. v is taken from calibration prompts alone: out-of-fold g
of training prompts is noisier than g of new prompts, which inflates v but not k.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Self

import numpy as np

from pandora_router.calibrate.means import Linear
from pandora_router.calibrate.readings import same_presence
from pandora_router.types import Mask, Matrix, Positions, Vector

PRIOR = (1.0, 0.5)  # mean and standard deviation of b and b0: f is taken at its word, give or take a half
HALF = 400  # prompts at which plain regressions get half of the share that they get with very many
STRENGTHS = np.logspace(-3.0, 3.0, 19)  # penalties per prompt that are tried for W, ascending
LOWEST, HIGHEST = 0.0, 1.5  # of the slope of rewards on g
SLOPE = (0.75, 0.2)  # mean and standard deviation over data sets (docs/method.md, section 11)

CONTENDERS = 3  # specialists of the highest mean reward, between which most decisions are made

Cells = tuple[Matrix, Matrix, Matrix]  # mean h(f), costly estimates, rewards, each (N, M)


def fit_reward_mean(cheap: Matrix, reward: Matrix) -> Linear:
    """Fit m on left-out cheap estimates and rewards (N, M); every specialist needs a reward somewhere."""
    some = ~np.isnan(reward).all(axis=1)
    f, r = cheap[some], reward[some]
    boxes = f.shape[1]
    centre, level = f.mean(axis=0), np.nanmean(r, axis=0)
    away, surprise = f - centre, r - level
    x, y = centred(away, surprise)
    b = _slope((x * y).sum(axis=1), (x * x).sum(axis=1))
    present = ~np.isnan(r)
    counts = present.sum(axis=1)
    row_f, row_r = (np.where(present, a, 0.0).sum(axis=1) / counts for a in (away, surprise))
    b_mean = _slope(row_f * row_r, row_f * row_f)
    moved, strength = _ridge(away, np.where(present, y - b * x, np.nan))
    alike = np.full((boxes, boxes), 1.0 / boxes)
    apart = np.eye(boxes) - alike
    weights = b_mean * alike + (b * np.eye(boxes) + moved) @ apart
    value = level @ alike + (centre + _level(f, r)) @ apart  # m at the centre
    return Linear(weights, value - centre @ weights, np.full(boxes, strength))


def _slope(k: Vector, v: Vector) -> float:
    """Posterior mean of the slope sum k / sum v of per-prompt moments, not below 0."""
    if not v.sum() > 0.0:
        return PRIOR[0]
    slope = float(k.sum() / v.sum())
    variance = float(((k - slope * v) ** 2).sum() / v.sum() ** 2)
    precision, prior = 1.0 / max(variance, 1e-12), 1.0 / PRIOR[1] ** 2
    return max((precision * slope + prior * PRIOR[0]) / (precision + prior), 0.0)


def _level(f: Matrix, r: Matrix) -> Vector:
    """d: the contrast of R - f per specialist, times tau^2 / (tau^2 + mean of its squared error)."""
    gap, _ = centred(r - f, r)
    present = ~np.isnan(r)
    counts = np.maximum(present.sum(axis=0), 1)
    mean = gap.sum(axis=0) / counts
    square = np.where(present, (gap - mean) ** 2, 0.0).sum(axis=0) / np.maximum(counts - 1, 1) / counts
    signal = max(float((mean**2 - square).mean()), 0.0)
    return mean * (signal / (signal + float(square.mean()))) if signal > 0.0 else np.zeros(len(mean))


def _ridge(x: Matrix, y: Matrix) -> tuple[Matrix, float]:
    """W (M, M) by ridge of the contrasts y (N, M; NaN where missing) on x, and the penalty (0: W is 0)."""
    spread = float(x.std(axis=0).mean())
    weights = np.zeros((x.shape[1], y.shape[1]))
    if not spread > 1e-12:
        return weights, 0.0
    loss = np.zeros((len(STRENGTHS) + 1, len(x)))  # the last row is for no W at all
    parts = []
    for columns, rows in same_presence(~np.isnan(y)):
        part = x[rows] / spread, y[np.ix_(rows, columns)]
        loss[:, rows] += _left_out(*part)
        parts.append((columns, *part))
    chosen = _largest(loss)
    if chosen == len(STRENGTHS):
        return weights, 0.0
    for columns, z, target in parts:
        u, s, vt = np.linalg.svd(z - z.mean(axis=0), full_matrices=False)
        shrunk = s / (s**2 + len(z) * STRENGTHS[chosen])
        weights[:, columns] = vt.T @ (shrunk[:, None] * (u.T @ (target - target.mean(axis=0)))) / spread
    return weights, float(STRENGTHS[chosen])


def _left_out(x: Matrix, y: Matrix) -> Matrix:
    """Squared leave-one-out error of each prompt (penalties + 1, n), summed over the columns of y."""
    n = len(x)
    u, s, _ = np.linalg.svd(x - x.mean(axis=0), full_matrices=False)
    y = y - y.mean(axis=0)
    along, square = u.T @ y, u**2
    loss = np.empty((len(STRENGTHS) + 1, n))
    for k, strength in enumerate(STRENGTHS):
        shrink = s**2 / (s**2 + n * strength)
        hat = 1.0 / n + square @ shrink
        error = (y - u @ (shrink[:, None] * along)) / np.maximum(1.0 - hat, 1e-9)[:, None]
        loss[k] = (error**2).sum(axis=1)
    loss[-1] = (y**2).sum(axis=1) * (n / max(n - 1, 1)) ** 2
    return loss


def _largest(loss: Matrix) -> int:
    """The last row of losses (penalties + 1, N) whose mean is within one standard error of the least."""
    mean = loss.mean(axis=1)
    best = int(mean.argmin())
    gap = loss - loss[best]
    error = gap.std(axis=1, ddof=1) / np.sqrt(loss.shape[1])
    near: Mask = gap.mean(axis=1) <= error
    return int(np.flatnonzero(near)[-1])


def fit_slope(mean: Matrix, costly: Matrix, reward: Matrix, train: Cells | None = None) -> float:
    """The pooled slope, shrunk to the prior by its standard error (clustered by prompt), within [0, 1.5].

    Inputs are (N, M) for calibration prompts, `train` the same for training prompts with out-of-fold g.
    Prompts with fewer than two complete cells are ignored. Without any news the prior's mean is returned.
    """
    measured = measured_slope(mean, costly, reward, train)
    if measured is None:
        return SLOPE[0]
    slope, error = measured
    precision, prior = 1.0 / max(error**2, 1e-12), 1.0 / SLOPE[1] ** 2
    return float(np.clip((precision * slope + prior * SLOPE[0]) / (precision + prior), LOWEST, HIGHEST))


def measured_slope(
    mean: Matrix, costly: Matrix, reward: Matrix, train: Cells | None = None
) -> tuple[float, float] | None:
    """The slope as measured, and its standard error; None where there is no news. Inputs as `fit_slope`."""
    k, v, contrasts = _moments(mean, costly, reward)
    k_train, v_train, more = (np.zeros(0), np.zeros(0), 0) if train is None else _moments(*train)
    if not v.sum() > 0.0:
        return None
    count, spread = contrasts + more, float(v.sum()) / contrasts
    slope = float(k.sum() + k_train.sum()) / count / spread
    own = float(k_train.sum() / v_train.sum()) if v_train.sum() > 0.0 else 0.0
    squares = float(((k - slope * v) ** 2).sum() + ((k_train - own * v_train) ** 2).sum())
    return slope, float(np.sqrt(squares)) / count / spread


@dataclass(frozen=True)
class NewsSlope:
    """What of a difference between costly estimates comes true in rewards: `measured_slope` and its errors.

    slope, error: over all specialists. best, best_error: between the `contenders` of highest mean reward,
    which decides what a purchase is worth; differences between specialists that are never chosen are worth
    nothing, however well they are estimated.
    """

    slope: float
    error: float
    contenders: int
    best: float
    best_error: float

    @classmethod
    def of(cls, known: Cells, train: Cells | None = None) -> Self | None:
        """Measured on calibration prompts `known` and training prompts; None where there is no news."""
        rewards = known[2] if train is None else np.vstack([known[2], train[2]])
        scored = np.flatnonzero(~np.isnan(rewards).all(axis=0))
        contenders = scored[np.argsort(-np.nanmean(rewards[:, scored], axis=0))[:CONTENDERS]]
        over_all = measured_slope(*known, train)
        best = measured_slope(*_columns(known, contenders), train and _columns(train, contenders))
        if over_all is None or best is None:
            return None
        return cls(*over_all, len(contenders), *best)

    def to_dict(self) -> dict[str, float]:
        """The measurement as plain values, ready for JSON."""
        return asdict(self)


def _columns(part: Cells, which: Positions) -> Cells:
    mean, costly, reward = part
    return mean[:, which], costly[:, which], reward[:, which]


def _moments(mean: Matrix, costly: Matrix, reward: Matrix) -> tuple[Vector, Vector, int]:
    """k and v of the prompts with two or more complete cells (n,), and the number of their contrasts."""
    cells = (~(np.isnan(costly) | np.isnan(reward))).sum(axis=1)
    some = cells > 1
    news, surprise = centred((costly - mean)[some], (reward - mean)[some])
    return (news * surprise).sum(axis=1), (news**2).sum(axis=1), int((cells[some] - 1).sum())


def centred(x: Matrix, y: Matrix) -> tuple[Matrix, Matrix]:
    """Both arrays minus their mean over the cells of a prompt that have both; 0 where either is missing."""
    both = ~(np.isnan(x) | np.isnan(y))
    counts = np.maximum(both.sum(axis=1, keepdims=True), 1)
    filled = [np.where(both, a, 0.0) for a in (x, y)]
    left = [np.where(both, a - a.sum(axis=1, keepdims=True) / counts, 0.0) for a in filled]
    return left[0], left[1]
