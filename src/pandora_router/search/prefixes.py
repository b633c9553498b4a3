"""Several boxes opened side by side, where waiting is part of what they cost (docs/method.md, section 13).

Of boxes that are opened together only the longest wait is paid, so opening them one after the other may cost
more than opening a few for nothing. With kappa_j = min(G_j + r_j, u_j), r the refunds and u the reservation
prices at the full cost of each box alone, opening the set B while box m is held is worth about

    V(B, m) = E[max(v, mu_m, max over B of G + r, max over the rest of kappa)] - cost of B together

which counts what the rest may still be opened for, one by one. B runs over the prefixes of the boxes in the
order of u, m over all sealed boxes and none.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pandora_router.boxes import Boxes, Costs, Draws
from pandora_router.boxes.base import opened_worths
from pandora_router.boxes.joint import CorrelatedNormal
from pandora_router.errors import UsageError
from pandora_router.index import normal_cdf
from pandora_router.search.payoffs import normal_law, reservation_prices
from pandora_router.search.policies import NOBODY
from pandora_router.search.state import Action, Inspect, Memoryless, Select, State, margin
from pandora_router.types import Matrix, Positions, Vector

REACH = 8.0  # standard deviations to which a normal law is integrated
CELLS = 257  # edges of the cells of that integral


@dataclass(frozen=True)
class SideBySide(Memoryless):
    """Open the best prefix of the boxes in the order of their reservation prices, then plan again.

    Correlation is ignored, as in `Rollout`. On small independent instances it is near the optimum (`python -m
    benchmarks.parallel`); with correlated boxes it opens too much: prefer `KnowledgeGradient`, which opens
    sets too.
    """

    def next(self, state: State) -> Action:
        """Open the set that is worth most, or stop where none is worth more than the best in hand."""
        boxes, stop = state.boxes, state.richest
        sealed = np.flatnonzero(boxes.sealed)
        if not len(sealed):
            return Select(stop.box)
        price = reservation_prices(boxes)
        ranked = sealed[np.argsort(-price[sealed], kind="stable")]
        edges, opened = laws(boxes, sealed, price, state.best.value)
        capped = np.where(edges[:-1] >= price[sealed, None], 1.0, opened)
        least = margin(boxes.mean)[0]
        best = stop.value + least
        action: Action = Select(stop.box)
        for held in (NOBODY, *sealed):
            floor = max(state.best.value, float(boxes.mean[held]) if held != NOBODY else -np.inf)
            order = ranked[ranked != held]
            if not len(order):
                continue
            at = np.searchsorted(sealed, order)
            worth = maxima(edges, opened[at], capped[at], floor) - set_costs(boxes.costs, order)
            k = int(np.argmax(worth >= worth.max() - least))
            if worth[k] > best:
                best, action = worth[k] + least, Inspect(tuple(int(j) for j in order[: k + 1]))
        return action


def laws(boxes: Boxes, order: Positions, price: Vector, best: float) -> tuple[Vector, Matrix]:
    """Edges of cells (P + 1,), and P(G + r <= x) in the middle of each (n, P) for the boxes of `order`.

    Draws and prices are edges, so that within a cell every law is constant or smooth.
    """
    mean, std = boxes.mean[order] + boxes.refund[order], boxes.std[order]
    floors = np.append(boxes.mean[order], best)
    if normal_law(boxes):
        points = np.linspace((mean - REACH * std).min(), (mean + REACH * std).max(), CELLS)
        edges = np.unique(np.concatenate([points, price[order], floors[np.isfinite(floors)], mean]))
        middle = 0.5 * (edges[:-1] + edges[1:])
        z = (middle - mean[:, None]) / np.where(std > 0.0, std, 1.0)[:, None]
        return edges, np.where(std[:, None] > 0.0, normal_cdf(z), middle >= mean[:, None])
    if not isinstance(boxes, Draws | CorrelatedNormal):
        raise UsageError(
            "SideBySide",
            expected="normal boxes or boxes known by draws, with one inspection each",
            came=type(boxes).__name__,
            do="Use KnowledgeGradient on these boxes.",
        )
    worths = np.sort(opened_worths(boxes)[order], axis=1)
    edges = np.unique(np.concatenate([worths.ravel(), price[order], floors[np.isfinite(floors)]]))
    below = [np.searchsorted(row, edges[:-1], side="right") for row in worths]
    return edges, np.array(below) / worths.shape[1]


def maxima(edges: Vector, opened: Matrix, capped: Matrix, floor: float) -> Vector:
    """E[max(floor, G of the first k, kappa of the rest)] for k = 1 to n, from their laws (n, P) in cells."""
    first = np.cumprod(opened, axis=0)
    rest = np.cumprod(capped[::-1], axis=0)[::-1]
    together = first * np.concatenate([rest[1:], np.ones((1, first.shape[1]))])
    start = max(floor, float(edges[0]))
    width = np.where(edges[:-1] >= start, np.diff(edges), 0.0)
    means: Vector = start + (1.0 - together) @ width
    return means


def set_costs(costs: Costs, order: Positions) -> Vector:
    """What opening the first k boxes of `order` together costs, for k = 1 to n."""
    total = np.cumsum(costs.own[order])
    if len(costs.wait):
        wait = costs.wait[order]
        total = total - np.cumsum(wait) + np.maximum.accumulate(wait)
    if len(costs.shared):
        group = costs.group[order]
        first = [g >= 0 and g not in group[:i] for i, g in enumerate(group)]
        total = total + np.cumsum(np.where(first, costs.shared[group], 0.0))
    return total
