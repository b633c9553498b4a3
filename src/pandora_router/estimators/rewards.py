"""Arrays on which estimators are fitted: rewards with missing cells, contexts; weights of a blend."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from pandora_router.errors import UsageError
from pandora_router.types import Contexts, Matrix, Vector


def checked_reward(reward: ArrayLike, prompts: int, specialists: Sequence[str]) -> Matrix:
    """Rewards (prompts, specialists) as float64, NaN for a missing cell.

    `UsageError` if a column is empty.
    """
    if len(set(specialists)) != len(specialists) or not specialists or prompts == 0:
        raise UsageError(
            "training data",
            expected="at least one prompt and specialists with distinct names",
            came=f"{prompts} prompts, specialists {list(specialists)}",
            do="Name every specialist once.",
        )
    matrix = np.array(reward, dtype=np.float64)
    if matrix.shape != (prompts, len(specialists)):
        raise UsageError(
            "rewards",
            expected=f"shape ({prompts}, {len(specialists)}), prompts x specialists",
            came=f"shape {matrix.shape}",
            do="Give one row per prompt and one column per specialist; NaN where a reward is missing.",
        )
    empty = np.atleast_1d(np.isnan(matrix).all(axis=0))
    if np.isinf(matrix).any() or empty.any():
        names = [name for name, gone in zip(specialists, empty, strict=True) if gone]
        raise UsageError(
            "rewards",
            expected="finite numbers or NaN, and at least one reward per specialist",
            came=f"no reward at all for {names}" if names else "infinite values",
            do="Leave such specialists out.",
        )
    return matrix


def checked_contexts(contexts: Contexts | None, shape: tuple[int, int]) -> Contexts | None:
    """Contexts (prompts, specialists) of str or None, checked; None if `contexts` is None."""
    if contexts is None:
        return None
    matrix = np.asarray(contexts, dtype=object)
    if matrix.shape != shape or any(not (cell is None or isinstance(cell, str)) for cell in matrix.flat):
        raise UsageError(
            "contexts",
            expected=f"an object array of str or None with shape {shape}",
            came=f"shape {matrix.shape}" if matrix.shape != shape else "a cell that is neither",
            do="Give one row per prompt and one column per specialist.",
        )
    return matrix


def told_of(specialists: Sequence[str], contexts: Contexts | None) -> frozenset[str]:
    """The specialists that have at least one context in `contexts` (N, M)."""
    if contexts is None:
        return frozenset()
    return frozenset(
        name for j, name in enumerate(specialists) if any(text is not None for text in contexts[:, j])
    )


def filled_mean(reward: Matrix) -> Matrix:
    """Mean reward of each specialist over its cells that are not missing, shape (specialists,)."""
    mean: Matrix = np.nanmean(reward, axis=0)
    return mean


def blend_weights(estimates: Sequence[Matrix], reward: Matrix, mean: Matrix) -> Vector:
    """Non-negative weights w that minimise the squared error of mean + sum_k w_k (estimates_k - mean).

    Over the cells (N, M) that have a reward and every estimate. By QR: the normal equations would minimise
    another error where a weight is held at 0, and double the digits lost to rounding.
    """
    from scipy.optimize import nnls  # half a second to import, and only a fit needs it

    present = np.isfinite(reward) & np.isfinite(estimates).all(axis=0)
    design = np.column_stack([(part - mean)[present] for part in estimates])
    turned, small = np.linalg.qr(design)  # the same least squares with as many rows as estimates
    weights, _ = nnls(small, turned.T @ (reward - mean)[present])
    return np.asarray(weights, dtype=np.float64)


def with_more(reward: Matrix, more: ArrayLike, prompts: int) -> Matrix:
    """Rewards (N, M) followed by those of `prompts` further prompts, NaN where missing."""
    rows = np.asarray(more, dtype=np.float64).reshape(prompts, reward.shape[1])
    return np.concatenate([reward, rows])
