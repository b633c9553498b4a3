"""The slope: expected difference in reward per unit of difference in costly estimates.

Decisions depend on differences between specialists, and these are too large in g: rewards differ by .5 to .8
of what g says (docs/method.md, sections 8 and 11). One slope for all specialists is fitted, on what an
inspection adds to the mean. For each prompt, with news x = g - h(f) and surprise y = R - h(f), each minus its
mean over the specialists that have both,

    k = sum_j x_j y_j        v = sum_j x_j^2        slope = mean(k) / mean_calibration(v)

Means are per contrast: a prompt with n complete cells has n - 1 of them, so mean(k) = sum k / sum (n - 1). A
prompt with one score has none: it says nothing about differences, and does not count against the news.

k is averaged over training and calibration prompts. v is taken from calibration prompts alone: out-of-fold g
of training prompts is noisier than g of new prompts, which inflates v but not k.
"""

from __future__ import annotations

import numpy as np

from pandora_router.types import Matrix, Vector

LOWEST, HIGHEST = 0.0, 1.5
PRIOR = (0.75, 0.2)  # mean and standard deviation of the slope over data sets (docs/method.md, section 11)

Cells = tuple[Matrix, Matrix, Matrix]  # mean h(f), costly estimates, rewards, each (N, M)


def fit_slope(mean: Matrix, costly: Matrix, reward: Matrix, train: Cells | None = None) -> float:
    """The pooled slope, shrunk to the prior by its standard error (clustered by prompt), within [0, 1.5].

    Inputs are (N, M) for calibration prompts, `train` the same for training prompts with out-of-fold g.
    Prompts with fewer than two complete cells are ignored. Without any news the prior's mean is returned.
    """
    k, v, contrasts = _moments(mean, costly, reward)
    k_train, v_train, more = (np.zeros(0), np.zeros(0), 0) if train is None else _moments(*train)
    if not v.sum() > 0.0:
        return PRIOR[0]
    count, spread = contrasts + more, float(v.sum()) / contrasts
    slope = float(k.sum() + k_train.sum()) / count / spread
    own = float(k_train.sum() / v_train.sum()) if v_train.sum() > 0.0 else 0.0
    squares = float(((k - slope * v) ** 2).sum() + ((k_train - own * v_train) ** 2).sum())
    variance = squares / count**2 / spread**2
    precision, prior = 1.0 / max(variance, 1e-12), 1.0 / PRIOR[1] ** 2
    return float(np.clip((precision * slope + prior * PRIOR[0]) / (precision + prior), LOWEST, HIGHEST))


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
