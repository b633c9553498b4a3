"""Which requests ask another specialist than the best one for what it teaches, and what that may cost.

A request is asked for its lesson only if `learn.exploration` says that the lesson is worth more than what the
request loses, and only while money is left of the month's budget. A coin decides then, so that the
log has a propensity. What the answers cost is in the totals of the gateway like that of all others; they have
the mode "explore" in the store, from which all workers read every few seconds what the month's cost so far.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pandora_router.estimators.extended import neighbours_of
from pandora_router.learn.exploration import Exploration, LessonPrice
from pandora_router.router import Router
from pandora_router.store import explored
from pandora_router.store.money import dollars, period_bounds
from pandora_router.store.worker import Store
from pandora_router.types import Vector

WEEK = 7 * 86_400.0
"""The ratings of so many seconds stand for those that will come while a lesson is used."""


@dataclass(eq=False)
class Lessons:
    """What one worker knows of lessons: the linear model of the router, and what may still be spent.

    budget: dollars a month for answers that are asked for their lesson. metric: the feedback that counts.
    ratings: rated answers of the last week, 0 before the first look into the store. rate: their share of its
    requests. left: dollars that are left this month.
    """

    router: Router
    known: Exploration
    budget: float
    metric: str = "reward"
    ratings: float = 0.0
    rate: float = 0.0
    left: float = 0.0

    @classmethod
    def of(cls, router: Router, budget: float, metric: str = "reward") -> Lessons:
        """For a router whose cheap estimate is made of neighbours; raises `UsageError` for others."""
        return cls(router, Exploration.of(router.cheap), budget, metric)

    async def refresh(self, store: Store, now: float) -> None:
        """Read from the store what was spent this month, and how many answers were rated in the last week."""
        since = period_bounds("month", now)[0]
        read = functools.partial(explored.explored, metric=self.metric, since=since)
        self.left = self.budget - dollars((await store.run(read)).cost)
        read_ratings = functools.partial(explored.ratings, metric=self.metric, since=now - WEEK)
        rated, requests = await store.run(read_ratings)
        self.ratings, self.rate = float(rated), min(rated / max(requests, 1), 1.0)

    def worth_asking(
        self, router: Router, prompt: str, worth: Mapping[str, float], offered: Sequence[str]
    ) -> LessonPrice | None:
        """The lesson of this request, for which one of `offered` may be asked; None if none pays.

        worth: expected rewards at the end of the decision of `router`, which may have other prices than the
        one that was fitted.
        """
        names, fitted = router.specialists, self.router
        if self.ratings <= 1.0 or self.left <= 0.0 or names != fitted.specialists or len(worth) < len(names):
            return None
        by = (fitted.fee_weight - router.fee_weight) * router.fees + router.bonus - fitted.bonus
        known = self.known.moved(by) if np.any(by) else self.known
        allowed = np.array([name in offered and self.affords(name) for name in names])
        values = np.array([worth[name] for name in names])
        return known.lesson(self._features(prompt), values, self.ratings, allowed)

    def affords(self, name: str) -> bool:
        """Whether the usual fee of `name` is left."""
        return float(self.router.fees[self.router.specialists.index(name)]) <= self.left

    def ask(self, prompt: str, name: str) -> None:
        """Note that `name` is asked for its lesson: its fee counts as spent until `refresh`."""
        column = self.router.specialists.index(name)
        self.known = self.known.expecting(self._features(prompt), column, self.rate)
        self.left -= float(self.router.fees[column])

    def _features(self, prompt: str) -> Vector:
        known = neighbours_of(self.router.cheap)
        assert known is not None
        units = known.units(known.embedder.embed([prompt]))
        return np.asarray(self.known.law.features(units)[0], dtype=np.float64)
