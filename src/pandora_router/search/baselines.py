"""Baselines: which boxes to open is planned before anything is seen, then the best opened box is taken.

`Never` and `Always` need no plan and are policies like any other.

A plan covers a batch of queries, because two of the baselines spend one budget over all of them. `scores` are
the cheap estimates f or the means mu (N, M): the paper's "f-only" and margin use f, and part of a router's
lead is the step from f to mu, so both are always reported (docs/method.md, section 5). Ties go to the lowest
index.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pandora_router.boxes.checks import finite
from pandora_router.errors import UsageError
from pandora_router.search.state import Action, Inspect, Memoryless, Select, State
from pandora_router.types import Mask, Matrix, Positions


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
