"""The optimal search by dynamic programming, for a few independent normal boxes: the yardstick.

With S the sealed boxes and v the best in hand,

    V(S, v) = max( v, max_{j in S} mu_j, max_{j in S} E[V(S - j, max(v, G_j + r_j))] - c_j ),

r_j being what comes back of c_j if box j is chosen once it is open.

V is tabulated on a grid of v, piecewise linear in between; the expectation of the interpolant is exact.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import combinations

import numpy as np

from pandora_router.boxes import Independent
from pandora_router.errors import UsageError
from pandora_router.index import normal_cdf, normal_density
from pandora_router.search.state import Action, Inspect, Memoryless, Policy, Select, State
from pandora_router.types import Vector

MOST_BOXES = 8


@dataclass(frozen=True)
class Optimal:
    """The best possible policy for up to 8 independent normal boxes without shared costs.

    The error of the value is about (range of values / points)^2: 2,001 points give 1e-7 at the start and
    about 2e-6 in later states.
    """

    points: int = 2001

    def __post_init__(self) -> None:
        if not isinstance(self.points, int | np.integer) or self.points < 2:
            raise UsageError("points", expected="2 or more", came=f"{self.points}", do="2001 give 1e-7.")

    def start(self, state: State) -> Policy:
        """Tabulate V over all sets of sealed boxes."""
        boxes = state.boxes
        if not isinstance(boxes, Independent) or len(boxes) > MOST_BOXES or len(boxes.costs.shared):
            raise UsageError(
                "Optimal",
                expected=f"up to {MOST_BOXES} Independent boxes without shared costs",
                came=f"{len(boxes.mean)} {type(boxes).__name__} boxes",
                do="Use Rollout, which is within 3e-4 of it, or KnowledgeGradient for correlated boxes.",
            )
        live, reach = boxes.sealed, 9.0 * boxes.std + boxes.refund
        # what is in hand never falls, and below every sealed box it does not matter how low it is
        low = float(np.min((boxes.mean - reach)[live], initial=np.inf))
        low = max(low, state.best.value) if live.any() else state.best.value
        high = float(np.max((boxes.mean + reach)[live], initial=low + 1e-9 * (1.0 + abs(low))))
        table = StateTable(np.linspace(low, high, self.points), boxes)
        sealed = tuple(int(j) for j in np.flatnonzero(boxes.sealed))
        for size in range(len(sealed) + 1):
            for group in combinations(sealed, size):
                table.fill(frozenset(group))
        return Tabulated(table)

    def next(self, state: State) -> Action:
        """Take the first step of the plan made in this state."""
        return self.start(state).next(state)

    def value(self, state: State) -> float:
        """What the optimal search is worth from this state on."""
        plan = self.start(state)
        assert isinstance(plan, Tabulated)
        return plan.value(state)


@dataclass(frozen=True)
class StateTable:
    """V(S, .) on a grid, for every set S filled so far; beyond the grid V grows with slope one."""

    grid: Vector
    boxes: Independent
    rows: dict[frozenset[int], Vector] = field(default_factory=dict)

    def fill(self, sealed: frozenset[int]) -> None:
        """Add V(sealed, .), given all smaller sets."""
        best = self.grid
        for j in sealed:
            best = np.maximum(np.maximum(best, self.boxes.mean[j]), self.opening(sealed, j))
        self.rows[sealed] = best

    def opening(self, sealed: frozenset[int], j: int) -> Vector:
        """E[V(S - j, max(v, G_j + r_j))] - c_j for every v of the grid."""
        after = self.rows[sealed - {j}]
        mean, std, cost = self.boxes.mean[j], self.boxes.std[j], self.boxes.inspection_cost[j]
        mean = mean + self.boxes.refund[j]
        if std == 0.0:
            return np.asarray(np.interp(np.maximum(self.grid, mean), self.grid, after) - cost)
        z = (self.grid - mean) / std
        below, density = normal_cdf(z), normal_density(z)
        slope = np.diff(after) / np.diff(self.grid)
        # integral over each cell of (after_i + slope (g - v_i)) dF(g)
        mass = np.diff(below)
        first = mean * mass - std * np.diff(density)
        cells = after[:-1] * mass + slope * (first - self.grid[:-1] * mass)
        above = np.append(np.cumsum(cells[::-1])[::-1], 0.0)
        beyond = after[-1] * normal_cdf(-z[-1]) + std * (density[-1] - z[-1] * normal_cdf(-z[-1]))
        return after * below + above + beyond - cost


@dataclass(frozen=True)
class Tabulated(Memoryless):
    """Follow a filled table."""

    table: StateTable

    def worths(self, state: State) -> list[tuple[float, Action]]:
        """What every action is worth here, stopping first."""
        best = state.best
        sealed = frozenset(int(j) for j in np.flatnonzero(state.boxes.sealed))
        low = float(self.table.grid[0])
        actions: list[tuple[float, Action]] = [(best.value, Select(best.box))]
        actions += [(float(state.boxes.mean[j]), Select(j)) for j in sorted(sealed)]
        for j in sorted(sealed):
            values = self.table.opening(sealed, j)
            actions.append((float(np.interp(max(best.value, low), self.table.grid, values)), Inspect((j,))))
        return actions

    def value(self, state: State) -> float:
        """V in this state."""
        return max(worth for worth, _ in self.worths(state))

    def next(self, state: State) -> Action:
        """Take the action of highest worth; stopping wins ties."""
        worths = self.worths(state)
        return worths[int(np.argmax([worth for worth, _ in worths]))][1]
