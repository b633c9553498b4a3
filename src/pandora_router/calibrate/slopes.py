"""How much of a difference between costly estimates is a difference between rewards.

What matters for a decision is differences between specialists, and there g is over-dispersed: rewards differ
by .5 to .7 of what g says (METHOD section 8). One slope for all, on what an inspection adds to the mean:

    R_ij - mu_ij - (their mean over j) = slope (g_ij - mu_ij - (their mean over j)) + noise

over the cells of a prompt that have both. It enters a search only through the shown value
v = mu + slope (g - mu), whose covariance is slope^2 times that of g.
"""

from __future__ import annotations

import numpy as np

from pandora_router.types import Matrix

LOWEST, HIGHEST = 0.0, 1.5
PRIOR = (1.0, 0.2)  # before any data g is taken at its word, give or take (decision 0030)


def fit_slope(mean: Matrix, costly: Matrix, reward: Matrix) -> float:
    """The pooled slope, drawn to 1 by its standard error (clustered by prompt), within [0, 1.5].

    Inputs are (N, M); prompts with fewer than two complete cells say nothing.
    """
    news, surprise = centred(costly - mean, reward - mean)
    weight = float((news**2).sum())
    if weight <= 0.0:
        return PRIOR[0]
    raw = float((news * surprise).sum()) / weight
    by_prompt = (news * (surprise - raw * news)).sum(axis=1)
    variance = float((by_prompt**2).sum()) / weight**2
    told = 1.0 / max(variance, 1e-12)
    believed = 1.0 / PRIOR[1] ** 2
    slope = (told * raw + believed * PRIOR[0]) / (told + believed)
    return float(np.clip(slope, LOWEST, HIGHEST))


def centred(x: Matrix, y: Matrix) -> tuple[Matrix, Matrix]:
    """Both less their mean over the cells of a prompt that have both; 0 where either is missing."""
    both = ~(np.isnan(x) | np.isnan(y))
    counts = np.maximum(both.sum(axis=1, keepdims=True), 1)
    filled = [np.where(both, a, 0.0) for a in (x, y)]
    left = [np.where(both, a - a.sum(axis=1, keepdims=True) / counts, 0.0) for a in filled]
    return left[0], left[1]
