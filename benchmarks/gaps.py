"""How far each policy is from the optimum on small instances, where the optimum can be computed.

A policy's gap is the expected sum, over the states it visits, of what its action gives away there:
V(state) - Q(state, action). That is exact for the difference in value, and has almost no noise, because it
is zero wherever the policy does what the optimum does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pandora_router.boxes import Independent
from pandora_router.index import normal_gain
from pandora_router.search import (
    Batch,
    Committing,
    Decisions,
    KnowledgeGradient,
    Obligatory,
    Optimal,
    Policy,
    Rollout,
    State,
    run,
)
from pandora_router.search.baselines import Tabulated

POLICIES: dict[str, Policy] = {
    "Obligatory (Weitzman)": Obligatory(),
    "Committing, paper (backup, S=100)": Committing(),
    "Committing (backup, exact)": Committing("backup", "exact"),
    "Committing (mean, exact)": Committing("mean", "exact"),
    "Rollout": Rollout(),
    "KnowledgeGradient, one deep": KnowledgeGradient(depth=1),
    "KnowledgeGradient": KnowledgeGradient(),
}
COSTS = (0.003, 0.01, 0.03)
Loss = Callable[[Decisions, np.ndarray], np.ndarray]  # what each row's actions gave away


@dataclass(frozen=True)
class Instance:
    """One problem: means, standard deviations, a common correlation and a common inspection cost."""

    mean: np.ndarray
    std: np.ndarray
    rho: float
    cost: float

    @property
    def correlation(self) -> np.ndarray:
        boxes = len(self.mean)
        return self.rho + (1.0 - self.rho) * np.eye(boxes)

    def outcomes(self, n: int, rng: np.random.Generator) -> np.ndarray:
        root = np.linalg.cholesky(self.correlation)
        return self.mean + self.std * (rng.standard_normal((n, len(self.mean))) @ root.T)

    def batch(self, n: int) -> Batch:
        return Batch(
            np.tile(self.mean, (n, 1)),
            np.tile(self.std, (n, 1)),
            self.cost,
            correlation=self.correlation if self.rho else None,
        )


def instances(boxes: int, rho: float, cost: float, n: int, rng: np.random.Generator) -> list[Instance]:
    return [Instance(rng.normal(0.5, 0.1, boxes), rng.uniform(0.1, 0.3, boxes), rho, cost) for _ in range(n)]


def independent_loss(case: Instance) -> Loss:
    """V - Q along each row's path, from the tables of `Optimal`."""
    plan = Optimal().start(State(Independent(case.mean, case.std, case.cost)))
    assert isinstance(plan, Tabulated)
    table = plan.table
    opening = {(s, j): table.opening(s, j) for s in table.rows for j in s}

    def loss(done: Decisions, values: np.ndarray) -> np.ndarray:
        total = np.zeros(len(values))
        for i, order in enumerate(done.order):
            sealed, best = frozenset(range(len(case.mean))), table.grid[0]
            for box in order[order >= 0]:
                total[i] += _at(table.grid, table.rows[sealed], best)
                total[i] -= _at(table.grid, opening[sealed, int(box)], best)
                sealed, best = sealed - {int(box)}, max(best, values[i, box])
            choice = int(done.choice[i])
            taken = case.mean[choice] if choice in sealed else values[i, choice]
            total[i] += max(_at(table.grid, table.rows[sealed], best), best) - taken
        return total

    return loss


def _at(grid: np.ndarray, row: np.ndarray, x: float) -> float:
    return float(np.interp(x, grid, row))


class CorrelatedThree:
    """The exact optimum of three correlated boxes by nested quadrature (trapezoid, 9 standard deviations)."""

    def __init__(self, case: Instance, points: int = 241) -> None:
        self.mean, self.cost = case.mean, case.cost
        self.covariance = case.correlation * np.outer(case.std, case.std)
        z = np.linspace(-9.0, 9.0, points)
        self.weights = np.exp(-0.5 * z * z) * (z[1] - z[0]) / np.sqrt(2.0 * np.pi)
        self.grid = {i: case.mean[i] + case.std[i] * z for i in range(3)}
        self.z = z
        self.second = {  # Q of opening j second, on the grid of the first box i
            (i, j): self._open_second(i, j, self.grid[i]) for i in range(3) for j in range(3) if i != j
        }
        self.after_one = {i: self.value_one(i, self.grid[i]) for i in range(3)}
        self.first = [float(self.weights @ self.after_one[i]) - self.cost for i in range(3)]
        self.value = max(float(self.mean.max()), *self.first)

    def posterior(self, seen: list[int], values: np.ndarray, j: int) -> tuple[np.ndarray, float]:
        """Mean (n,) and standard deviation of box j given the values (n, len(seen)) of the boxes seen."""
        block = self.covariance[np.ix_(seen, seen)]
        weights = np.linalg.solve(block, self.covariance[seen, j])
        variance = self.covariance[j, j] - weights @ self.covariance[seen, j]
        return self.mean[j] + (values - self.mean[seen]) @ weights, float(np.sqrt(variance))

    def value_two(self, seen: list[int], values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(V, Q of opening the third) after two openings with values (n, 2)."""
        (third,) = set(range(3)) - set(seen)
        best = values.max(axis=1)
        mean, std = self.posterior(seen, values, third)
        opening = best + normal_gain(mean, np.full_like(mean, std), best) - self.cost
        return np.maximum(np.maximum(best, mean), opening), opening

    def _open_second(self, i: int, j: int, first: np.ndarray) -> np.ndarray:
        mean, std = self.posterior([i], first[:, None], j)
        outcomes = mean[:, None] + std * self.z
        pairs = np.stack([np.repeat(first, len(self.z)), outcomes.ravel()], axis=1)
        value, _ = self.value_two([i, j], pairs)
        return value.reshape(len(first), -1) @ self.weights - self.cost

    def value_one(self, i: int, first: np.ndarray) -> np.ndarray:
        others = [j for j in range(3) if j != i]
        worths = [first] + [self.posterior([i], first[:, None], j)[0] for j in others]
        worths += [np.interp(first, self.grid[i], self.second[i, j]) for j in others]
        return np.max(worths, axis=0)

    def loss(self, done: Decisions, values: np.ndarray) -> np.ndarray:
        total = np.empty(len(values))
        for i in range(len(values)):
            order = [int(b) for b in done.order[i] if b >= 0]
            total[i] = self._row(order, int(done.choice[i]), values[i])
        return total

    def _row(self, order: list[int], choice: int, values: np.ndarray) -> float:
        if not order:
            return self.value - self.mean[choice]
        i = order[0]
        given = self.value - self.first[i]
        first = values[[i]]
        here = float(self.value_one(i, first)[0])
        if len(order) == 1:
            worth = values[i] if choice == i else self.posterior([i], first[:, None], choice)[0][0]
            return given + here - float(worth)
        given += here - float(np.interp(values[i], self.grid[i], self.second[i, order[1]]))
        pair = values[order[:2]][None, :]
        value, opening = self.value_two(order[:2], pair)
        if len(order) == 2:
            sealed = choice not in order
            worth = self.posterior(order, pair, choice)[0][0] if sealed else values[choice]
            return given + float(value[0] - worth)
        return given + float(value[0] - opening[0]) + float(values.max() - values[choice])


def gap(case: Instance, policy: Policy, loss: Loss, n: int, rng: np.random.Generator) -> float:
    """The mean loss of one policy on one instance, over n outcomes (and 5 seeds if it simulates)."""
    if isinstance(policy, Committing) and policy.payoff == "monte_carlo":
        parts = []
        for seed in range(5):
            values = case.outcomes(n // 5, rng)
            seeded = Committing(policy.outside, policy.payoff, policy.samples, seed)
            parts.append(loss(run(seeded, case.batch(n // 5), values), values).mean())
        return float(np.mean(parts))
    values = case.outcomes(n, rng)
    return float(loss(run(policy, case.batch(n), values), values).mean())


def table(rho: float, boxes: int, count: int, n: int, seed: int = 7) -> list[dict[str, object]]:
    """Mean gap and its standard error over instances, for every policy and cost."""
    rng = np.random.default_rng(seed)
    rows = []
    for cost in COSTS:
        cases = instances(boxes, rho, cost, count, rng)
        losses = [CorrelatedThree(c).loss if rho else independent_loss(c) for c in cases]
        for name, policy in POLICIES.items():
            gaps = [gap(c, policy, f, n, rng) for c, f in zip(cases, losses, strict=True)]
            rows.append(
                {
                    "policy": name,
                    "boxes": boxes,
                    "rho": rho,
                    "cost": cost,
                    "gap": float(np.mean(gaps)),
                    "se": float(np.std(gaps, ddof=1) / np.sqrt(count)),
                }
            )
    return rows
