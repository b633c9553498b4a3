"""What standardised residuals look like in place of the normal law, by where the mean lies.

A law is Q equally likely values with mean 0 and standard deviation 1: the sorted residuals of a class cut
into Q equal groups, each replaced by its mean. Classes are terciles of the mean, each specialist against its
own terciles, pooled over specialists (docs/method.md, section 9).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from pandora_router.calibrate.readings import frozen_fields
from pandora_router.errors import UsageError
from pandora_router.types import Matrix, Vector

LawKind = Literal["normal", "quantiles"]
CLASSES = 3
VALUES = 32  # equally likely values per law; also the fewest residuals a law is made of


@dataclass(frozen=True, eq=False)
class Laws:
    """Residual laws (L, Q) and the edges of the mean (M, L - 1) that say which one a box follows."""

    quantiles: Matrix
    edges: Matrix

    def __post_init__(self) -> None:
        frozen_fields(self, "quantiles", "edges")

    def rank(self, mean: Matrix) -> NDArray[np.intp]:
        """Which law each box of each prompt follows (N, M)."""
        return classify(mean, self.edges)


def fit_laws(mean: Matrix, standardised: Matrix, kind: LawKind) -> Laws | None:
    """Fit the laws of standardised residuals (N, M), NaN where missing; None for "normal"."""
    if kind not in ("normal", "quantiles"):
        raise UsageError("law", expected="'normal' or 'quantiles'", came=repr(kind), do="Choose one.")
    if kind == "normal":
        return None
    edges = cut(mean, ~np.isnan(standardised), CLASSES)
    rank = classify(mean, edges)
    known = ~np.isnan(standardised)
    return Laws(np.stack([law_of(standardised[known & (rank == k)]) for k in range(CLASSES)]), edges)


def classify(mean: Matrix, edges: Matrix) -> NDArray[np.intp]:
    """The class of each mean: how many of its specialist's edges lie below it."""
    return (mean[:, :, None] > edges[None]).sum(axis=2)


def cut(mean: Matrix, known: NDArray[np.bool_], classes: int) -> Matrix:
    """Edges (M, classes - 1) that part each specialist's means into equal classes.

    An edge lies midway between two neighbouring means, so rounding never moves a mean across it.
    """
    edges = np.empty((mean.shape[1], classes - 1))
    for j in range(mean.shape[1]):
        values = np.unique(mean[known[:, j], j])
        at = np.quantile(mean[known[:, j], j], np.arange(1, classes) / classes)
        above = np.clip(np.searchsorted(values, at, side="right"), 1, max(len(values) - 1, 1))
        upper = values[np.minimum(above, len(values) - 1)]
        edges[j] = 0.5 * (values[above - 1] + upper)
    return edges


def law_of(residuals: Vector, values: int = VALUES) -> Vector:
    """The Q group means of sorted residuals, with mean 0 and standard deviation 1.

    With fewer residuals than values there is nothing to go by: the normal law, in the same form.
    """
    if len(residuals) >= values and residuals.std() > 0.0:
        ordered = np.sort(residuals)
    else:
        from scipy.special import ndtri

        ordered = ndtri((np.arange(64 * values) + 0.5) / (64 * values))
    groups = np.array([part.mean() for part in np.array_split(ordered, values)])
    centred = groups - groups.mean()
    return np.sort(centred / centred.std())
