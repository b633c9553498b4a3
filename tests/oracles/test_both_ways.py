"""An evaluation measures the router that `Router.fit` returns: the same table both ways, prompt by prompt."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pandora_router.data import storage
from pandora_router.evaluate.arms import DEFAULT, named
from pandora_router.evaluate.estimates import estimates, split_of, table_of
from pandora_router.evaluate.experiments import Experiment
from pandora_router.evaluate.trials import trial_of
from pandora_router.router import Router
from pandora_router.run import on_one_core
from tests.support.tables import generate


@pytest.mark.parametrize(("contexts", "price"), [(False, 0.0005), (True, 0.002)])
def test_the_router_arm_decides_as_the_router_that_is_fitted(
    tmp_path: Path, contexts: bool, price: float
) -> None:
    """The prompt-only stack is one purchase for all specialists, the peeking one a purchase each."""
    storage.save(generate(400, 3, contexts=contexts, seed=1), tmp_path / "table")
    experiment = Experiment("both", data="table", peek=400 if contexts else 0)
    table = table_of(experiment, tmp_path)
    made = on_one_core(lambda seed: estimates(experiment, table, seed), 1)
    trial, together = trial_of(made, 0), bool(made["together"])
    costs = experiment.costs_at(price, table.specialists, together=together)
    (arm,) = (arm for arm in named([DEFAULT]) if arm.name == DEFAULT)
    routed = on_one_core(lambda rng: arm.route(trial, costs, 0, rng), np.random.default_rng(0))

    split = split_of(experiment, table, 1)
    router = on_one_core(lambda whole: Router.fit(whole, inspection_cost=price, remember_test=False), split)
    assert together is not contexts
    assert (router.costs.own.tolist(), router.costs.shared.tolist()) == (
        costs.own.tolist(),
        costs.shared.tolist(),
    )
    judged = table.rows(trial.prompt)
    told = None
    if contexts:
        told = [dict(zip(table.specialists, row, strict=True)) for row in judged.contexts]
    decisions = router.route_batch(judged.prompts, told)
    assert [one.specialist for one in decisions] == [table.specialists[j] for j in routed.choice]
    assert [len(one.inspected) for one in decisions] == routed.inspections.astype(int).tolist()
    assert [one.trace.spent for one in decisions] == pytest.approx(routed.spent.tolist())
    assert len(set(routed.inspections.tolist())) > 1  # prompts differ in how much is bought for them
