"""The optimal search when sets of boxes may be opened together, on boxes with a few values each.

An oracle for tests and a yardstick for benchmarks; nothing of the search room decides here. Box j shows one
of `values[j]` (K,), and `chance` (K, ..., K) is the probability of every joint outcome. A set of boxes costs
the sum of `money` and the longest of `wait`; of what was paid for the box that is taken `refund` comes back.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from math import prod

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from pandora_router.boxes import Boxes, Costs, Draws, Joint
from pandora_router.search import Inspect, Policy, State

Array = NDArray[np.float64]
Set = frozenset[int]


def subsets(boxes: Set) -> Iterator[Set]:
    """All sets of one or more of the boxes."""
    for size in range(1, len(boxes) + 1):
        yield from map(frozenset, combinations(sorted(boxes), size))


@dataclass(frozen=True)
class Lattice:
    """M boxes of K values each, their joint law, and what opening a set costs."""

    values: Array  # (M, K)
    chance: Array  # (K,) * M
    money: Array
    wait: Array
    refund: Array
    start: Boxes  # the same boxes as a search knows them

    @classmethod
    def independent(
        cls, mean: Array, std: Array, money: Array, wait: Array, refund: Array, k: int
    ) -> Lattice:
        """K equally likely values of each box, in the middle of K parts of a normal law."""
        values = mean[:, None] + std[:, None] * norm.ppf((np.arange(k) + 0.5) / k)
        costs = Costs(money + wait, refund=refund, wait=wait)
        chance = np.full((k,) * len(mean), float(k) ** -len(mean))
        return cls(values, chance, money, wait, refund, Draws(values, costs))

    @classmethod
    def joint(
        cls, mean: Array, covariance: Array, money: Array, wait: Array, refund: Array, k: int
    ) -> Lattice:
        """A normal density on K points from -3.5 to 3.5 standard deviations of every box."""
        std, z = np.sqrt(np.diag(covariance)), np.linspace(-3.5, 3.5, k)
        points = np.stack(np.meshgrid(*[z] * len(mean), indexing="ij"), axis=-1)
        inverse = np.linalg.inv(covariance / np.outer(std, std))
        chance = np.exp(-0.5 * np.einsum("...i,ij,...j", points, inverse, points))
        costs = Costs(money + wait, refund=refund, wait=wait)
        values = mean[:, None] + std[:, None] * z
        return cls(values, chance / chance.sum(), money, wait, refund, Joint(mean, covariance, costs))

    @cached_property
    def everything(self) -> Set:
        return frozenset(range(len(self.values)))

    def cost(self, opened: Set) -> float:
        """What opening these boxes together costs."""
        return float(sum(self.money[j] for j in opened) + max(self.wait[j] for j in opened))

    def along(self, j: int) -> Array:
        """The values of box j on its axis of the lattice."""
        shape = [1] * len(self.values)
        shape[j] = -1
        return self.values[j].reshape(shape)

    def known(self, array: Array, opened: Set) -> Array:
        """E[array | values of the opened boxes], an array over their axes."""
        axes = tuple(sorted(self.everything - opened))
        mass = self.chance.sum(axis=axes, keepdims=True)
        return (self.chance * array).sum(axis=axes, keepdims=True) / mass

    def worths(self, opened: Set) -> Array:
        """What each box is worth when these are open (M, ...)."""
        one = np.ones_like(self.chance.sum(axis=tuple(sorted(self.everything - opened)), keepdims=True))
        return np.stack(
            [
                (self.along(j) + self.refund[j] if j in opened else self.known(self.along(j), opened)) * one
                for j in sorted(self.everything)
            ]
        )

    def optimum(self, allowed: str = "sets") -> float:
        """What the best search is worth that opens any "sets", a "single" box at a time, or "all" or none."""
        value: dict[Set, Array] = {}
        for size in range(len(self.everything), -1, -1):
            for opened in map(frozenset, combinations(sorted(self.everything), size)):
                value[opened] = self.worths(opened).max(axis=0)
                left = self.everything - opened
                for more in subsets(left):
                    fits = {"sets": True, "single": len(more) == 1, "all": more == self.everything}[allowed]
                    if fits:
                        then = self.known(value[opened | more], opened) - self.cost(more)
                        value[opened] = np.maximum(value[opened], then)
        return float(value[frozenset()].item())

    def value(self, policy: Policy) -> float:
        """What a policy without memory earns, exactly, by following it through all outcomes."""
        alike = isinstance(self.start, Draws)  # independent: only the best value in hand matters
        seen: dict[tuple[Set, object], float] = {}
        means: dict[Set, Array] = {}

        def follow(state: State, opened: Set, at: tuple[int, ...]) -> float:
            key = (opened, round(state.best.value, 12) if alike else at)
            if key not in seen:
                seen[key] = step(state, opened, at)
            return seen[key]

        def step(state: State, opened: Set, at: tuple[int, ...]) -> float:
            action = policy.next(state)
            if opened not in means:
                means[opened] = self.worths(opened)
            if not isinstance(action, Inspect):
                here = tuple(k if j in opened else 0 for j, k in enumerate(at))
                return float(means[opened][(action.box, *here)])
            total = -self.cost(frozenset(action.boxes))
            then = opened | frozenset(action.boxes)
            law = self.outcomes(opened, at, sorted(action.boxes))
            if then == self.everything:
                worths = [np.array([self.values[j][at[j]]]) + self.refund[j] for j in sorted(opened)]
                best = max((float(w[0]) for w in worths), default=-np.inf)
                grids = np.meshgrid(
                    *[self.values[j] + self.refund[j] for j in sorted(action.boxes)], indexing="ij"
                )
                return total + float((law * np.maximum(np.max(grids, axis=0), best)).sum())
            for shown in np.ndindex(law.shape):
                later, place = state, list(at)
                for j, k in zip(sorted(action.boxes), shown, strict=True):
                    later, place[j] = later.observe(j, float(self.values[j][k])), k
                total += float(law[shown]) * follow(later, then, tuple(place))
            return total

        return follow(State(self.start), frozenset(), (0,) * len(self.values))

    def outcomes(self, opened: Set, at: tuple[int, ...], boxes: list[int]) -> Array:
        """The law of what these boxes show, given what the opened ones showed."""
        part = self.chance[tuple(slice(k, k + 1) if j in opened else slice(None) for j, k in enumerate(at))]
        rest = tuple(j for j in sorted(self.everything) if j not in boxes)
        law: Array = part.sum(axis=rest)
        assert law.size == prod(len(self.values[j]) for j in boxes)
        return law / law.sum()
