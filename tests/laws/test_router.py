"""What holds for every router: one path, however it is asked, and nothing unopened ever used."""

from __future__ import annotations

import asyncio
import dataclasses
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from pandora_router.boxes import Costs
from pandora_router.calibrate import (
    Auto,
    Calibrated,
    Candidate,
    EmpiricalDraws,
    GaussianIndependent,
    NeighbourSignal,
)
from pandora_router.estimators.estimator import Query, Scorer
from pandora_router.router import Decision, External, NeighbourRecipe, Router, StackRecipe
from pandora_router.search import Always, KnowledgeGradient, Never, Obligatory, Rollout
from tests.support.tables import generate, row_contexts

QUICK = StackRecipe(rounds=20, folds=2)
RUNNERS = (Candidate("n", Calibrated(), Never()), Candidate("k", Calibrated(), KnowledgeGradient()))
ALL = StackRecipe(20, True, rounds=20, folds=2)
CASES = {
    "default": {"inspection_cost": 0.004},
    "per box": {"inspection_cost": [0.002, 0.001, 0.003]},
    "two groups": {"inspection_cost": Costs([0.001, 0.0, 0.0], [0.003], [-1, 0, 0])},
    "free": {"inspection_cost": 0.0},
    "obligatory": {"inspection_cost": [0.002] * 3, "policy": Obligatory()},
    "normal law": {"inspection_cost": [0.002] * 3, "policy": Rollout(), "signal": Calibrated(law="normal")},
    "rollout": {"inspection_cost": [0.002] * 3, "policy": Rollout(), "signal": GaussianIndependent()},
    "draws": {"inspection_cost": [0.002] * 3, "signal": EmpiricalDraws(draws=8)},
    "neighbours": {"inspection_cost": [0.002] * 3, "signal": NeighbourSignal(8)},
    "never": {"inspection_cost": 0.01, "policy": Never()},
    "always": {"inspection_cost": 0.01, "policy": Always()},
    "auto": {
        "inspection_cost": 0.002,
        "policy": Auto(
            (Candidate("n", Calibrated(), Never()), Candidate("k", Calibrated(), KnowledgeGradient())),
            folds=2,
        ),
    },
    "peek": {"inspection_cost": 0.002, "contexts": True},
    "agreement": {
        "inspection_cost": 0.002,
        "contexts": True,
        "costly": StackRecipe(20, True, rounds=20, folds=2),
    },
}
every_case = pytest.mark.parametrize("case", CASES)


@cache
def fitted(case: str) -> Router:
    options = dict(CASES[case])
    table = generate(contexts=bool(options.pop("contexts", False)))
    return Router.fit(table, **{"costly": QUICK, "cheap": NeighbourRecipe(10), **options})  # type: ignore[arg-type]


def asked(case: str) -> list[tuple[str, dict[str, str] | None]]:
    """Test prompts; with contexts for all, some or none of the specialists where the case has them."""
    table = generate(contexts="contexts" in CASES[case]).in_split("test")
    if table.contexts is None:
        return [(prompt, None) for prompt in table.prompts[:25]]
    told = [row_contexts(table, i) for i in range(25)]
    for i in range(0, 25, 3):
        told[i].pop("large")
    told[1] = {}
    return list(zip(table.prompts[:25], told, strict=True))


def essence(decision: Decision) -> tuple[object, ...]:
    """What a decision says, without its name and time; numbers to twelve digits."""
    told = decision.to_dict()
    numbers = [
        (name, key, None if value is None or isinstance(value, str) else round(value, 12))
        for name, parts in told["specialists"].items()
        for key, value in parts.items()
    ]
    status = [parts["status"] for parts in told["specialists"].values()]
    purchases = [
        {key: rounded(value) for key, value in one.items() if key != "seconds"} for one in told["purchases"]
    ]
    return (
        decision.specialist,
        decision.declined_because,
        decision.artifact,
        decision.trace.actions,
        numbers,
        status,
        purchases,
    )


def rounded(value: object) -> object:
    if isinstance(value, list):
        return [rounded(one) for one in value]
    return round(value, 12) if isinstance(value, float) else value


@every_case
def test_batch_and_async_decide_as_one_by_one(case: str) -> None:
    router, prompts = fitted(case), asked(case)
    one = [essence(router.route(*pair)) for pair in prompts]
    many = router.route_batch([p for p, _ in prompts], [c for _, c in prompts])
    assert [essence(decision) for decision in many] == one

    async def side_by_side() -> list[Decision]:
        return list(await asyncio.gather(*(router.aroute(*pair) for pair in prompts)))

    assert [essence(decision) for decision in asyncio.run(side_by_side())] == one


@every_case
def test_an_artifact_decides_as_the_router_it_was_written_from(case: str, tmp_path: Path) -> None:
    router, prompts = fitted(case), asked(case)
    router.save(tmp_path / "router")
    again = Router.load(tmp_path / "router")
    assert repr(again) == repr(router)
    assert [essence(again.route(*pair)) for pair in prompts] == [
        essence(router.route(*pair)) for pair in prompts
    ]


@every_case
def test_the_bill_is_what_was_opened(case: str) -> None:
    router = fitted(case)
    for prompt, told in asked(case):
        decision = router.route(prompt, told)
        costs, bill = router.costs, 0.0
        for box in decision.trace.inspected:
            bill += float(costs.marginal[box])
            costs = costs.paid(box)
        assert decision.trace.spent == pytest.approx(bill)
        assert set(decision.costly) == set(decision.inspected)
        assert sum(one.cost for one in decision.purchases) == pytest.approx(bill)


def test_the_cases_buy_something_and_hold_something() -> None:
    counts = [len(fitted(case).route(*pair).inspected) for case in CASES for pair in asked(case)]
    assert 0 in counts
    assert max(counts) == 3
    some = [len(fitted("per box").route(*pair).inspected) for pair in asked("per box")]
    assert 0 < np.mean(some) < 3


def test_no_decision_uses_a_value_that_was_not_opened() -> None:
    """A costly estimator that raises for boxes not paid for, and lies differently about those never asked."""
    asked_for: dict[str, list[str]] = {}

    def score(query: Query, name: str) -> float:
        asked_for.setdefault(query.prompt, []).append(name)
        return 0.3 + (len(query.prompt) * 7 + len(name) * 3) % 10 / 25

    table = generate()
    costs = [0.002, 0.001, 0.003]
    ready = External(Scorer(score), "lengths")
    router = Router.fit(table, cheap=NeighbourRecipe(10), costly=ready, inspection_cost=costs)
    for prompt in table.in_split("test").prompts[:20]:
        asked_for.clear()
        decision = router.route(prompt)
        allowed = set(decision.inspected)
        assert asked_for.get(prompt, []) == list(decision.inspected)

        def strict(query: Query, name: str, allowed: set[str] = allowed) -> float:
            if name not in allowed:
                raise AssertionError(f"{name} was looked at but not opened")
            return score(query, name)

        guarded = dataclasses.replace(router, costly=Scorer(strict))
        assert essence(guarded.route(prompt)) == essence(decision)
        assert essence(guarded.route_batch([prompt])[0]) == essence(decision)
