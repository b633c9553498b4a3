"""Any callable as an estimator: in time, late, failing, or wrong."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

import numpy as np
import pytest

from pandora_router.errors import UpstreamError, UsageError
from pandora_router.estimators.estimator import Estimator, Fitted, Query, Scorer
from pandora_router.estimators.neighbours import Neighbours
from tests.support.embedders import CallableEmbedder


@dataclass(frozen=True)
class Specialist:
    name: str


def test_plain_and_async_callables_score_specialists_by_name_or_object() -> None:
    async def later(query: Query, name: str) -> float:
        await asyncio.sleep(0)
        return len(name) / 10

    for score in (later, lambda query, name: len(name) / 10):
        scorer = Scorer(score)
        assert isinstance(scorer, Estimator)
        found = asyncio.run(scorer.estimate(Query("p"), [Specialist("ab"), "abc"]))
        np.testing.assert_allclose(found, [0.2, 0.3])


def test_late_and_failing_scores_are_missing_the_others_are_not() -> None:
    tries: list[str] = []

    async def score(query: Query, name: str) -> float:
        tries.append(name)
        if name == "late":
            await asyncio.sleep(5)
        if name == "down":
            raise UpstreamError("down")
        if name == "once" and tries.count("once") == 1:
            raise UpstreamError("for a moment")
        return float("inf") if name == "odd" else 0.5

    start = time.monotonic()
    found = asyncio.run(
        Scorer(score, timeout=0.1, retries=1).estimate(Query("p"), ["late", "down", "once", "odd", "fine"])
    )
    assert time.monotonic() - start < 2
    np.testing.assert_array_equal(np.isnan(found), [True, True, False, True, False])
    assert tries.count("late") == tries.count("down") == 2


def test_a_bug_in_a_callable_is_raised() -> None:
    def score(query: Query, name: str) -> float:
        raise KeyError("bug")

    with pytest.raises(KeyError):
        asyncio.run(Scorer(score).estimate(Query("p"), ["a"]))


def test_no_more_than_agreed_are_asked_at_once() -> None:
    running, most = 0, 0

    async def score(query: Query, name: str) -> float:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.01)
        running -= 1
        return 0.0

    asyncio.run(Scorer(score, at_once=3).estimate(Query("p"), [str(i) for i in range(12)]))
    assert most == 3


def test_a_fitted_estimator_answers_for_the_specialists_asked_in_their_order() -> None:
    lengths = CallableEmbedder("lengths", lambda texts: [[1.0, float(len(t))] for t in texts])
    fitted = Neighbours.fit(["a", "bbbbbbbb"], [[0.1, 0.2], [0.3, 0.4]], ["x", "y"], embedder=lengths, k=1)
    found = asyncio.run(Fitted(fitted).estimate(Query("b"), ["y", Specialist("x")]))
    np.testing.assert_allclose(found, [0.2, 0.1])
    with pytest.raises(UsageError, match="'z'"):
        asyncio.run(Fitted(fitted).estimate(Query("b"), ["z"]))
