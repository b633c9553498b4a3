"""An evaluation measures the router that `Router.fit` returns: the same table both ways, prompt by prompt."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pandora_router.boxes import Costs
from pandora_router.calibrate import Calibrated
from pandora_router.calibrate.readings import Readings
from pandora_router.data import Table, storage
from pandora_router.estimators.neighbours import Neighbours
from pandora_router.evaluate.arms import DEFAULT, OLD, named
from pandora_router.evaluate.estimates import estimates, split_of, table_of
from pandora_router.evaluate.experiments import Experiment
from pandora_router.evaluate.trials import Trial, trial_of
from pandora_router.router import Router
from pandora_router.router.fitting import parted
from pandora_router.run import on_one_core
from pandora_router.search import KnowledgeGradient, drive, reveal
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
    the_former_default_knows_training_prompts_alone(trial, split, costs)
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


def the_former_default_knows_training_prompts_alone(trial: Trial, split: Table, costs: Costs) -> None:
    """Its f again from a fit on train, its decisions from a model of calibration prompts alone."""
    train, known, test, _ = parted(split)
    f = Neighbours.fit(train.prompts, train.reward, train.specialists, k=50)
    assert trial.former is not None
    assert trial.former.calibration.cheap == pytest.approx(f.predict(known.prompts))
    assert trial.former.test.cheap == pytest.approx(f.predict(test.prompts))
    assert trial.former.test.cheap != pytest.approx(trial.test.cheap)
    model = Calibrated(pooled=False).fit(
        Readings(f.predict(known.prompts), trial.calibration.costly, known.reward)
    )
    batch, values = model.batch(f.predict(test.prompts), costs), trial.test.costly
    expected = [
        drive(KnowledgeGradient(), batch.state(i), reveal(row)).selected
        for i, row in enumerate(model.values(f.predict(test.prompts), values))
    ]
    (arm,) = (arm for arm in named([OLD]) if arm.name == OLD)
    assert arm.route(trial, costs, 0, np.random.default_rng(0)).choice.tolist() == expected
