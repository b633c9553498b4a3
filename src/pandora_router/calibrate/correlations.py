"""How residuals of different specialists move together: Ledoit-Wolf shrinkage, low-rank for many specialists.

Residuals are standardised first, so the shrunk covariance is rescaled to a correlation and carries no scale.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from pandora_router.calibrate.readings import frozen_fields
from pandora_router.errors import UsageError
from pandora_router.types import Matrix, Vector

CorrelationKind = Literal["ledoit_wolf", "none"]
DENSE = 50  # above so many specialists the correlation is kept as factors plus a diagonal
MOST_FACTORS = 16
OWN = 1e-3  # the least share of variance a specialist keeps to itself under the factors


@dataclass(frozen=True, eq=False)
class Correlation:
    """The correlation C (M, M) and, for many specialists, A (M, K) with C = A A' + diag(1 - |A_m|^2)."""

    matrix: Matrix
    factor: Matrix | None = None

    def __post_init__(self) -> None:
        frozen_fields(self, "matrix", *(() if self.factor is None else ("factor",)))

    @property
    def own(self) -> Vector:
        """The share of variance outside the factors (M,)."""
        assert self.factor is not None
        return 1.0 - (self.factor**2).sum(axis=1)


def fit_correlation(standardised: Matrix, kind: CorrelationKind, dense: int = DENSE) -> Correlation | None:
    """Fit the correlation of standardised residuals (N, M), NaN where missing; None for "none"."""
    if kind not in ("ledoit_wolf", "none"):
        raise UsageError("correlation", expected="'ledoit_wolf' or 'none'", came=repr(kind), do="Choose one.")
    if kind == "none":
        return None
    covariance, _ = ledoit_wolf(standardised)
    matrix = to_correlation(covariance)
    if len(matrix) <= dense:
        return Correlation(matrix)
    factor = fit_factor(matrix, len(standardised))
    return Correlation(from_factor(factor), factor)


def ledoit_wolf(x: Matrix) -> tuple[Matrix, float]:
    """Return (1 - d) S + d m I and d, with m = tr(S)/M and d the shrinkage of Ledoit and Wolf (2004).

    S_ij is the mean of centred products over the prompts that have both, d the estimated variance of the
    entries of S over their squared distance to m I. With missing cells S may have slightly negative
    eigenvalues, which are lifted to zero after shrinking.
    """
    present = ~np.isnan(x)
    centred = np.where(present, x - np.nanmean(x, axis=0), 0.0)
    together = present.astype(np.float64).T @ present
    counts = np.maximum(together, 1.0)
    sample = centred.T @ centred / counts
    size = len(sample)
    level = np.trace(sample) / size
    target = level * np.eye(size)
    noise = (((centred**2).T @ (centred**2) / counts - sample**2) / counts).sum()
    distance = ((sample - target) ** 2).sum()
    weight = float(min(noise, distance) / distance) if distance > 0.0 else 0.0
    shrunk = (1.0 - weight) * sample + weight * target
    return (shrunk if present.all() else lift(shrunk)), weight


def lift(matrix: Matrix) -> Matrix:
    """The nearest matrix without negative eigenvalues."""
    values, vectors = np.linalg.eigh(matrix)
    return matrix if values[0] >= 0.0 else (vectors * np.maximum(values, 0.0)) @ vectors.T


def to_correlation(covariance: Matrix) -> Matrix:
    """Rescale to a unit diagonal; a specialist without variance correlates with nobody."""
    std = np.sqrt(np.maximum(np.diag(covariance), 0.0))
    live = std > 0.0
    matrix: Matrix = covariance / np.outer(np.where(live, std, 1.0), np.where(live, std, 1.0))
    matrix = 0.5 * (matrix + matrix.T)
    np.fill_diagonal(matrix, 1.0)
    return matrix


def fit_factor(matrix: Matrix, prompts: int, rounds: int = 20) -> Matrix:
    """A (M, K) with A A' + diag close to `matrix` off the diagonal, by iterated principal axes.

    K counts the eigenvalues above what pure noise would show, (1 + sqrt(M/N))^2 (Marchenko and Pastur).
    """
    noise = (1.0 + np.sqrt(len(matrix) / prompts)) ** 2
    keep = int(np.clip((np.linalg.eigvalsh(matrix) > noise).sum(), 1, MOST_FACTORS))
    shared = 1.0 - 1.0 / np.maximum(np.diag(np.linalg.pinv(matrix, hermitian=True)), 1.0)
    factor = np.zeros((len(matrix), keep))
    for _ in range(rounds):
        reduced = matrix.copy()
        np.fill_diagonal(reduced, shared)
        values, vectors = np.linalg.eigh(reduced)
        factor = vectors[:, -keep:] * np.sqrt(np.maximum(values[-keep:], 0.0))
        factor /= np.sqrt(np.maximum((factor**2).sum(axis=1, keepdims=True) / (1.0 - OWN), 1.0))
        shared = (factor**2).sum(axis=1)
    return factor


def from_factor(factor: Matrix) -> Matrix:
    """A A' with its diagonal set to one."""
    matrix: Matrix = factor @ factor.T
    np.fill_diagonal(matrix, 1.0)
    return matrix
