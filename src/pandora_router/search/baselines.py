"""What a policy is measured against: plans made before anything is seen, and the optimum.

Baselines plan which boxes to open before anything is seen; then the best opened box is taken.

`Never` and `Always` need no plan and are policies like any other.

A plan covers a batch of queries, because two of the baselines spend one budget over all of them. `scores` are
the cheap estimates f or the means mu (N, M): the paper's "f-only" and margin use f, and part of a router's
lead is the step from f to mu, so both are always reported (docs/method.md, section 5). Ties go to the lowest
index.

`Optimal` is the other end: the optimal search by dynamic programming, for a few independent normal boxes.
With S the sealed boxes, v the best in hand and r_j what comes back of c_j if box j is chosen once it is open,

    V(S, v) = max( v, max_{j in S} mu_j, max_{j in S} E[V(S - j, max(v, G_j + r_j))] - c_j ).

V is tabulated on a grid of v, piecewise linear in between; the expectation of the interpolant is exact.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import combinations

import numpy as np

from pandora_router.boxes import Independent
from pandora_router.boxes.checks import finite
from pandora_router.errors import UsageError
from pandora_router.index import normal_cdf, normal_density
from pandora_router.search.state import Action, Inspect, Memoryless, Policy, Select, State
from pandora_router.types import Mask, Matrix, Positions, Vector


@dataclass(frozen=True)
class Never(Memoryless):
    """Open nothing and take the argmax of the mean: "never inspect"."""

    def next(self, state: State) -> Action:
        """Stop."""
        return Select(state.richest.box)


@dataclass(frozen=True)
class Always(Memoryless):
    """Open everything in one purchase and take the best: "always inspect"."""

    def next(self, state: State) -> Action:
        """Open what is sealed, then stop."""
        sealed = np.flatnonzero(state.boxes.sealed)
        return Inspect(tuple(int(j) for j in sealed)) if len(sealed) else Select(state.richest.box)


@dataclass(frozen=True)
class Planned(Memoryless):
    """Open these boxes in one purchase, take the best of them; take `default` if there are none."""

    boxes: tuple[int, ...]
    default: int

    def next(self, state: State) -> Action:
        """Open the planned boxes, then stop."""
        left = tuple(j for j in self.boxes if state.boxes.sealed[j])
        if left:
            return Inspect(left)
        seen = sorted({worth.box for worth in state.opened})
        return Select(seen[int(state.boxes.mean[seen].argmax())] if seen else self.default)


@dataclass(frozen=True)
class Plan:
    """Which boxes each query opens (N, M), and which box it takes if it opens none (N,)."""

    opened: Mask
    default: Positions

    def policy(self, query: int) -> Planned:
        """The plan of one query as a policy."""
        return Planned(tuple(int(j) for j in np.flatnonzero(self.opened[query])), int(self.default[query]))

    def choices(self, values: Matrix) -> Positions:
        """The box each query takes, given what its opened boxes show (N, M)."""
        best = np.where(self.opened, values, -np.inf).argmax(axis=1)
        return np.where(self.opened.any(axis=1), best, self.default)


def _checked(scores: Matrix) -> Matrix:
    return finite("scores", scores, ndim=2)


def never(scores: Matrix) -> Plan:
    """Open nothing and take the argmax of the scores: "f-only" on f, "never inspect" on the mean."""
    scores = _checked(scores)
    return Plan(np.zeros(scores.shape, dtype=np.bool_), scores.argmax(axis=1))


def always(scores: Matrix) -> Plan:
    """Open everything: the paper's g-always, our "always inspect"."""
    scores = _checked(scores)
    return Plan(np.ones(scores.shape, dtype=np.bool_), scores.argmax(axis=1))


def top(scores: Matrix, k: int = 2) -> Plan:
    """Open the k boxes of highest score: the paper's Top-2."""
    scores = _checked(scores)
    if not k >= 1:
        raise UsageError("k", expected="1 or more", came=f"{k}", do="The paper uses 2.")
    opened = np.zeros(scores.shape, dtype=np.bool_)
    first = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    np.put_along_axis(opened, first, True, axis=1)
    return Plan(opened, scores.argmax(axis=1))


def coin_flip(scores: Matrix, rng: np.random.Generator) -> Plan:
    """Open each box with probability one half."""
    scores = _checked(scores)
    return Plan(rng.random(scores.shape) < 0.5, scores.argmax(axis=1))


def random_budget(scores: Matrix, budget: int, rng: np.random.Generator) -> Plan:
    """Open `budget` (query, box) pairs drawn at random over the whole batch: the paper's Random-N.

    A query with a single opened box takes it (docs/method.md, section 4).
    """
    scores = _checked(scores)
    opened = np.zeros(scores.size, dtype=np.bool_)
    opened[rng.permutation(scores.size)[: _budget(budget)]] = True
    return Plan(opened.reshape(scores.shape), scores.argmax(axis=1))


def margin_budget(scores: Matrix, budget: int) -> Plan:
    """Spend `budget` inspections on the closest contests: the paper's Margin-N.

    Pairs (query, box) come in ascending gap to the query's best score; the first of a query also pays for
    the best itself; a pair that no longer fits is passed over.
    """
    scores = _checked(scores)
    left = _budget(budget)
    best = scores.argmax(axis=1)
    gap = np.take_along_axis(scores, best[:, None], axis=1) - scores
    opened = np.zeros(scores.shape, dtype=np.bool_)
    boxes = scores.shape[1]
    for flat in np.argsort(gap, axis=None, kind="stable"):
        query, box = divmod(int(flat), boxes)
        if box == best[query]:
            continue
        price = 1 if opened[query, best[query]] else 2
        if price <= left:
            left -= price
            opened[query, box] = opened[query, best[query]] = True
        if left == 0:
            break
    return Plan(opened, best)


def _budget(budget: int) -> int:
    if budget < 0:
        raise UsageError("budget", expected="0 or more inspections", came=f"{budget}", do="Check its sign.")
    return budget


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
