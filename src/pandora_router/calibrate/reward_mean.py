"""m(f): the mean of the reward that decisions are made on, learnt from left-out f and rewards (N, M).

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
"""

from __future__ import annotations

import numpy as np

from pandora_router.calibrate.means import Linear
from pandora_router.calibrate.readings import same_presence
from pandora_router.calibrate.slopes import centred
from pandora_router.types import Mask, Matrix, Vector

PRIOR = (1.0, 0.5)  # mean and standard deviation of b and b0: f is taken at its word, give or take a half
HALF = 400  # prompts at which plain regressions get half of the share that they get with very many
STRENGTHS = np.logspace(-3.0, 3.0, 19)  # penalties per prompt that are tried for W, ascending


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
