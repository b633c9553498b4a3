"""Correlated normal boxes, dense or low-rank plus diagonal, conditioned by rank-one updates.

What one inspection shows moves the means of all others (paper, section 4, "correlated values"). Prices and
gains are those of the marginals; policies that care about the dependence read `column` and `correlate`.

Both kinds may carry `quantiles`, a sorted (M, Q) table of equally likely standardised residuals of mean 0
that takes the place of the normal law of each box's next value (docs/method.md, section 9). Conditioning
stays linear.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from pandora_router.boxes.base import (
    discrete_backup_price,
    discrete_gain,
    discrete_reservation_price,
    opened_worths,
)
from pandora_router.boxes.checks import covariance_matrix, finite, locked, not_negative
from pandora_router.boxes.costs import Costs, as_costs
from pandora_router.boxes.independent import NormalPrices
from pandora_router.errors import UsageError
from pandora_router.index import normal_cdf
from pandora_router.types import Mask, Matrix, Positions, Vector

# What is left of a variance below this share of what it was is rounding, and dividing by it makes up news.
NOTHING = 1e-12


def live_std(variance: Vector, floor: Vector) -> Vector:
    """The square root of a variance; 0 where all that is left of it is rounding, of either sign."""
    return np.sqrt(np.where(variance > floor, variance, 0.0))


class CorrelatedNormal(NormalPrices):
    """Prices under the normal law or under residual quantiles, and sampling, from `std` and `covariance`."""

    quantiles: Matrix | None

    @property
    def covariance(self) -> Matrix:
        """The present covariance of all values (M, M)."""
        raise NotImplementedError

    def column(self, box: int) -> Vector:
        """The present covariance of all values with that of `box` (M,)."""
        raise NotImplementedError

    def support(self) -> Matrix | None:
        """The equally likely next values of each box (M, Q) where quantiles are carried, else None."""
        if self.quantiles is None:
            return None
        std = np.where(self.sealed, self.std, 0.0)
        return self.mean[:, None] + std[:, None] * self.quantiles

    def gain(self, outside: ArrayLike) -> Vector:
        """E[(G + r - v)+] under the law the boxes carry."""
        if self.quantiles is None:
            return super().gain(outside)
        return discrete_gain(opened_worths(self), outside)

    def reservation_price(self) -> Vector:
        """The u with E[(G + r - u)+] = c under the law the boxes carry."""
        if self.quantiles is None:
            return super().reservation_price()
        price = discrete_reservation_price(opened_worths(self), self.inspection_cost)
        return np.where(self.sealed, price, self.mean)

    def backup_price(self) -> Vector:
        """The b with E[(b - r - G)+] = c - r under the law the boxes carry."""
        if self.quantiles is None:
            return super().backup_price()
        price = discrete_backup_price(opened_worths(self), self.inspection_cost, self.refund)
        return np.where(self.sealed, price, self.mean)

    def correlate(self, normals: Matrix) -> Matrix:
        """Turn independent standard normals (n, M) into joint outcomes of all values (n, M)."""
        draws = normals @ root(self.covariance).T
        if self.quantiles is None:
            return self.mean + draws
        live = self.std > 0.0
        z = np.where(live, draws / np.where(live, self.std, 1.0), 0.0)
        steps = self.quantiles.shape[1]
        rank = np.minimum((normal_cdf(z) * steps).astype(np.intp), steps - 1)
        return self.mean + self.std * self.quantiles[np.arange(len(self)), rank]

    def sample(self, n: int, rng: np.random.Generator) -> Matrix:
        """Draw n joint outcomes (n, M); with quantiles, through a normal copula."""
        return self.correlate(rng.standard_normal((n, len(self))))


def root(covariance: Matrix) -> Matrix:
    """Return L with L L^T = covariance; rows of zeros (opened boxes) stay zero."""
    live = np.flatnonzero(np.diag(covariance) > 0.0)
    result = np.zeros_like(covariance)
    block = covariance[np.ix_(live, live)]
    try:
        result[np.ix_(live, live)] = np.linalg.cholesky(block)
    except np.linalg.LinAlgError:  # singular, as after opening one of two equal boxes
        values, vectors = np.linalg.eigh(block)
        result[np.ix_(live, live)] = vectors * np.sqrt(np.maximum(values, 0.0))
    return result


def checked_quantiles(quantiles: ArrayLike | None, boxes: int) -> Matrix | None:
    """Return residual quantiles as sorted rows, one per box, each moved to have mean 0.

    A residual is measured from the mean of its box: a law whose mean is not 0 would contradict that mean.
    """
    if quantiles is None:
        return None
    table = finite("quantiles", quantiles, ndim=2)
    if len(table) != boxes or (np.diff(table, axis=1) < 0.0).any():
        raise UsageError(
            "quantiles",
            expected=f"{boxes} rows of standardised residuals in ascending order",
            came=f"shape {table.shape}" + ("" if len(table) != boxes else " with a row out of order"),
            do="Sort each row; one row per box.",
        )
    centre = table.mean(axis=1, keepdims=True)
    off = np.abs(centre) > NOTHING * np.abs(table).max(axis=1, keepdims=True)  # more than rounding
    return locked(np.where(off, table - centre, table)) if off.any() else table


@dataclass(frozen=True, eq=False)
class Joint(CorrelatedNormal):
    """M jointly normal boxes with a dense covariance.

    >>> boxes = Joint([0.5, 0.4], [[0.04, 0.02], [0.02, 0.05]], inspection_cost=0.01)
    >>> boxes.given(1, 0.7).mean.round(6).tolist()
    [0.62, 0.7]
    """

    PER_BOX: ClassVar[tuple[str, ...]] = ("mean", "sealed", "std", "quantiles", "floor")
    mean: Vector
    std: Vector
    costs: Costs
    sealed: Mask
    quantiles: Matrix | None
    floor: Vector

    def __init__(
        self,
        mean: ArrayLike,
        covariance: ArrayLike,
        inspection_cost: ArrayLike | Costs,
        quantiles: ArrayLike | None = None,
    ) -> None:
        means = finite("mean", mean, ndim=1)
        matrix = covariance_matrix("covariance", covariance, len(means))
        laws = checked_quantiles(quantiles, len(means))
        self._begin(means, matrix, as_costs(inspection_cost, len(means)), laws)

    @classmethod
    def known(
        cls,
        mean: Vector,
        covariance: Matrix,
        inspection_cost: ArrayLike | Costs,
        quantiles: Matrix | None,
    ) -> Self:
        """Return boxes made of checked parts; here only numbers that are not finite are refused.

        `covariance` must come from a checked correlation: D C D with D diagonal. `quantiles` are rows that
        `checked_quantiles` returned.
        """
        boxes = object.__new__(cls)
        costs = as_costs(inspection_cost, len(mean))
        boxes._begin(finite("mean", mean, ndim=1), finite("covariance", covariance, ndim=2), costs, quantiles)
        return boxes

    def _begin(self, mean: Vector, covariance: Matrix, costs: Costs, quantiles: Matrix | None) -> None:
        """Set all fields, with every box sealed."""
        variance = covariance.diagonal()
        self._fill(
            mean=mean,
            _covariance=covariance,
            floor=NOTHING * variance,
            std=np.sqrt(np.maximum(variance, 0.0)),
            costs=costs,
            sealed=np.ones(len(mean), dtype=np.bool_),
            quantiles=quantiles,
        )

    @property
    def covariance(self) -> Matrix:
        """The present covariance of all values (M, M)."""
        matrix: Matrix = self.__dict__["_covariance"]
        return matrix

    def only(self, boxes: Positions) -> Self:
        """Return some of the boxes, in this order, with their part of the covariance."""
        return super().only(boxes)._changed(_covariance=self.covariance[np.ix_(boxes, boxes)])

    def column(self, box: int) -> Vector:
        """The present covariance of all values with that of `box` (M,)."""
        return self.covariance[:, box]

    def given(self, box: int, value: float) -> Self:
        """Condition on G_box = value: mu += P_j (value - mu_j)/P_jj, P -= P_j P_j^T/P_jj."""
        fields = self._opened(box, value)
        column = self.covariance[:, box]
        variance = column[box]
        if variance > self.floor[box]:
            ratio = column / variance
            fields["mean"] = self.mean + ratio * (value - self.mean[box])
            fields["mean"][box] = value + self.refund[box]
            covariance = self.covariance - ratio[:, None] * column
            covariance[box] = 0.0
            covariance[:, box] = 0.0
            fields["std"] = live_std(covariance.diagonal(), self.floor)
            fields["_covariance"] = covariance
        return self._changed(**fields)


@dataclass(frozen=True, eq=False)
class LowRank(CorrelatedNormal):
    """M jointly normal boxes with covariance factor factor^T + diag(diagonal), for many boxes.

    G = mean + factor z + e with z a standard normal of K factors; opening a box updates the law of z in
    O(K^2) and the marginals in O(M K).
    """

    PER_BOX: ClassVar[tuple[str, ...]] = (
        "mean", "sealed", "std", "quantiles", "floor", "factor", "diagonal",
    )  # fmt: skip
    mean: Vector
    std: Vector
    costs: Costs
    sealed: Mask
    quantiles: Matrix | None
    factor: Matrix
    diagonal: Vector
    spread: Matrix
    floor: Vector

    def __init__(
        self,
        mean: ArrayLike,
        factor: ArrayLike,
        diagonal: ArrayLike,
        inspection_cost: ArrayLike | Costs,
        quantiles: ArrayLike | None = None,
    ) -> None:
        means = finite("mean", mean, ndim=1)
        loadings = finite("factor", factor, ndim=2)
        if len(loadings) != len(means):
            raise UsageError(
                "factor",
                expected=f"{len(means)} rows, one per box",
                came=f"shape {loadings.shape}",
                do="Give it as (boxes, factors).",
            )
        noise = not_negative("diagonal", diagonal, boxes=len(means))
        self._fill(
            mean=means,
            factor=loadings,
            diagonal=noise,
            spread=np.eye(loadings.shape[1]),
            floor=NOTHING * ((loadings**2).sum(axis=1) + noise),
            std=np.sqrt((loadings**2).sum(axis=1) + noise),
            costs=as_costs(inspection_cost, len(means)),
            sealed=np.ones(len(means), dtype=np.bool_),
            quantiles=checked_quantiles(quantiles, len(means)),
        )

    @property
    def covariance(self) -> Matrix:
        """The present covariance of all values (M, M)."""
        return locked(self.factor @ self.spread @ self.factor.T + np.diag(self.diagonal))

    def column(self, box: int) -> Vector:
        """The present covariance of all values with that of `box` (M,)."""
        column: Vector = self.factor @ (self.spread @ self.factor[box])
        column[box] += self.diagonal[box]
        return column

    def given(self, box: int, value: float) -> Self:
        """Condition on G_box = value: the factors learn, the box itself is known."""
        fields = self._opened(box, value)
        column = self.column(box)
        variance = column[box]
        if variance > self.floor[box]:
            fields["mean"] = self.mean + column / variance * (value - self.mean[box])
            fields["mean"][box] = value + self.refund[box]
            towards = self.spread @ self.factor[box]
            spread = self.spread - np.outer(towards, towards) / variance
            factor, diagonal = self.factor.copy(), self.diagonal.copy()
            factor[box] = 0.0
            diagonal[box] = 0.0
            explained = np.einsum("mk,kl,ml->m", factor, spread, factor)
            fields.update(factor=factor, diagonal=diagonal, spread=spread)
            fields["std"] = live_std(explained + diagonal, self.floor)
        return self._changed(**fields)
