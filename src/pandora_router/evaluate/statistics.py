"""Are differences significant? Paired, clustered and replicated tests.

There are two sources of uncertainty, and a star requires both tests to agree:

- the choice of prompts: a paired bootstrap that resamples clusters, not prompts. With k=3 neighbours, two
  specialists and binary rewards there are at most 16 distinct f vectors, so decisions are a table of 16 rows
  and prompts are far from independent (docs/method.md, section 5). Over several splits the cluster is the
  prompt, which may be in several test sets, and the standard error is multiplied by the design effect: the
  factor by which clustering by f vector increases it within a split.
- the choice of split, and so of estimators and signal model: Student's t over the differences of the splits.
  Splits share prompts, so this test alone understates the error; with one split there is no such test and no
  star.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from pandora_router.errors import UsageError
from pandora_router.types import Mask, Matrix, Positions, Vector

DRAWS = 1000
LEVEL = 0.05
Clusters = Positions | NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Interval:
    """Means (A,) of A paired differences with standard errors and a confidence interval."""

    mean: Vector
    error: Vector
    low: Vector
    high: Vector


def quantile(level: float, degrees: float) -> float:
    """The 1 - level / 2 quantile of Student's t; the normal distribution's where `degrees` is infinite."""
    from scipy.special import ndtri, stdtrit  # scipy.stats takes a second to import

    return float(ndtri(1.0 - level / 2.0) if np.isinf(degrees) else stdtrit(degrees, 1.0 - level / 2.0))


def bootstrap(
    differences: Matrix, cluster: Clusters, seed: int = 0, draws: int = DRAWS, level: float = LEVEL
) -> Interval:
    """Resample clusters of rows; differences (N, A) share the draws, so columns are comparable.

    The mean of a draw is the sum over its rows divided by their number. The interval is mean +- t x error
    with t for clusters - 1 degrees of freedom, because percentiles of a bootstrap are too narrow with few
    clusters.
    """
    values = np.asarray(differences, dtype=np.float64)
    if values.ndim != 2 or len(values) != len(cluster) or len(values) < 2:
        raise UsageError(
            "differences",
            expected=f"two or more rows, one per cluster number ({len(cluster)})",
            came=f"shape {values.shape}",
            do="Give one row per prompt and one column per comparison.",
        )
    _, code, size = np.unique(cluster, return_inverse=True, return_counts=True)
    sums = _by_cluster(values, code)
    mean = values.mean(axis=0)
    count = len(size)
    if count < 2:
        nothing = np.full_like(mean, np.inf)
        return Interval(mean, nothing, mean - nothing, mean + nothing)
    spread = np.zeros(values.shape[1])
    # centred, so that the error of a draw is its weighted sum divided by its size
    residual, size = (sums - size[:, None] * mean).astype(np.float32), size.astype(np.float32)
    for weights in _resampled(count, draws, seed):
        error = (weights @ residual) / (weights @ size)[:, None]
        spread += np.einsum("da,da->a", error, error, dtype=np.float64)
    error = np.sqrt(spread / draws * count / (count - 1))
    half = quantile(level, count - 1) * error
    return Interval(mean, error, mean - half, mean + half)


@lru_cache(maxsize=16)
def _resampled(count: int, draws: int, seed: int) -> tuple[NDArray[np.float32], ...]:
    """Number of times each of `count` clusters is drawn in each draw, in blocks of draws (multinomial).

    Cached, since a report makes hundreds of comparisons on the same prompts and drawing takes most of the
    time. Single precision is enough for a standard error.
    """
    rng = np.random.Generator(np.random.Philox(key=[seed, count]))
    blocks = []
    for first in range(0, draws, 100):
        rows = min(100, draws - first)
        drawn = rng.integers(0, count, size=(rows, count)) + count * np.arange(rows)[:, None]
        often = np.bincount(drawn.ravel(), minlength=rows * count).reshape(rows, count)
        blocks.append(often.astype(np.float32))
    return tuple(blocks)


@dataclass(frozen=True, eq=False)
class Split:
    """Paired differences of one split (N, A), the prompt behind each row and its f vector's number."""

    differences: Matrix
    prompt: Clusters
    cluster: Clusters


@dataclass(frozen=True, eq=False)
class Comparison:
    """Differences over splits (A,): mean, standard error over prompts, standard error over splits, stars.

    `error` is from the clustered bootstrap; `split_error` is the standard deviation over splits divided by
    the root of their number (NaN for one split); `star` if both tests reject "no difference" at the level.
    """

    mean: Vector
    error: Vector
    split_error: Vector
    star: Mask
    splits: int

    @property
    def doubt(self) -> Vector:
        """The larger of the two standard errors."""
        return np.fmax(self.error, self.split_error)


@dataclass(frozen=True)
class Estimate:
    """A mean with standard errors over prompts and over splits (NaN for one); a star if both tests agree."""

    mean: float
    error: float
    split_error: float
    star: bool

    @property
    def doubt(self) -> float:
        """The larger of the two standard errors."""
        return float(np.fmax(self.error, self.split_error))


def compare(
    splits: Sequence[Split], *, seed: int = 0, draws: int = DRAWS, level: float = LEVEL
) -> Comparison:
    """Compare over fresh splits; all splits have the same A comparisons."""
    if not splits:
        raise UsageError("splits to compare", expected="one or more", came="none", do="Run some seeds first.")
    means = np.stack([split.differences.mean(axis=0) for split in splits])
    effect = np.mean([_design_effect(split) for split in splits], axis=0)
    stacked = np.concatenate([split.differences for split in splits])
    prompts = np.concatenate([split.prompt for split in splits])
    error = bootstrap(stacked, prompts, seed, draws, level).error * effect
    mean = means.mean(axis=0)
    by_prompt = np.abs(mean) > quantile(level, np.inf) * error
    count = len(splits)
    if count < 2:
        missing = np.full_like(mean, np.nan)
        return Comparison(mean, error, missing, np.zeros(mean.shape, dtype=np.bool_), count)
    split_error = means.std(axis=0, ddof=1) / np.sqrt(count)
    by_split = np.abs(mean) > quantile(level, count - 1) * split_error
    return Comparison(mean, error, split_error, by_prompt & by_split & (np.abs(mean) > 0.0), count)


def _design_effect(split: Split) -> Vector:
    """Factor by which clustering by f vector increases the standard error of a mean; at least 1.

    The square root of the sum over clusters of (sum of residuals)^2 divided by the sum of their squares: the
    limit of `bootstrap` with many draws, clustered divided by not clustered.
    """
    residual = split.differences - split.differences.mean(axis=0)
    _, code = np.unique(split.cluster, return_inverse=True)
    sums = _by_cluster(residual, code)
    if len(sums) == 1:  # not defined for one cluster
        return np.full(residual.shape[1], np.inf)
    wide, plain = (len(x) / (len(x) - 1) * (x**2).sum(axis=0) for x in (sums, residual))
    return np.sqrt(np.maximum(1.0, np.divide(wide, plain, out=np.ones_like(plain), where=plain > 0.0)))


def _by_cluster(values: Matrix, code: Clusters) -> Matrix:
    """The sum of the rows of each cluster; clusters are numbered from 0."""
    order = np.argsort(code.ravel(), kind="stable")
    starts = np.flatnonzero(np.diff(code.ravel()[order], prepend=-1))
    return np.add.reduceat(values[order], starts, axis=0)
