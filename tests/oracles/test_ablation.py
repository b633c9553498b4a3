"""What parts of the signal model are worth: against scipy's density and against the driver."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from pandora_router.boxes import Costs
from pandora_router.calibrate import Calibrated, CheapMean, FittedSignal, ablate
from pandora_router.calibrate.ablation import without
from pandora_router.calibrate.diagnostics import folds_of
from pandora_router.calibrate.readings import Readings
from pandora_router.errors import UsageError
from pandora_router.search import Inspect, KnowledgeGradient, State, drive
from tests.oracles.test_calibrate_fits import generate

COST = 0.01


def readings(n: int = 60) -> Readings:
    world = generate(n, 3, seed=3)
    return Readings(world.f, world.g, world.r)


def opener(fitted: FittedSignal, f: np.ndarray, g: np.ndarray) -> Callable[[State, Inspect], list[float]]:
    prior = fitted.prior(f, COST)
    return lambda state, inspect: [prior.value(box, float(g[box])) for box in inspect.boxes]


def test_every_number_against_scipy_and_the_driver() -> None:
    told, policy = readings(), KnowledgeGradient(depth=1)
    costs = Costs(np.full(3, COST))
    found = ablate(Calibrated(), policy, told, costs)
    assert [one.off for one in found] == [None, "mean", "scale", "correlation", "slope", "law"]
    losses = {}
    off = without(Calibrated())
    del off["pooled"]  # there are no training prompts here
    for one, model in zip(found, [Calibrated(), *off.values()], strict=True):
        loss, nll, inside = [], [], []
        for held in folds_of(len(told), 5, 0):
            rest = told.rows(~held)
            fitted = model.fit(rest)
            matrix = np.eye(3) if fitted.correlation is None else fitted.correlation.matrix
            for i in np.flatnonzero(held):
                f, g, r = told.cheap[i], told.costly[i], told.reward[i]

                trace = drive(policy, State(fitted.boxes(f, costs)), opener(fitted, f, g))
                loss.append(r.max() - r[trace.selected] + trace.spent)
                mean, std = fitted.expected(f[None])[0], fitted.spread(f[None])[0]
                nll.append(-multivariate_normal(mean, std[:, None] * std * matrix).logpdf(g) / 3)
                inside.append(np.mean(np.abs(g - mean) <= std))
        losses[one.off] = np.array(loss)
        assert one.loss == pytest.approx(np.mean(loss), abs=1e-9)
        assert one.nll == pytest.approx(np.mean(nll), rel=1e-9)
        assert one.coverage_1 == pytest.approx(np.mean(inside))
        gap = losses[one.off] - losses[None]
        if one.off:
            assert one.worth == pytest.approx(gap.mean(), abs=1e-9)
            assert one.standard_error == pytest.approx(gap.std(ddof=1) / np.sqrt(len(gap)), abs=1e-9)


def test_specialists_that_are_always_wrong_alike_have_a_likelihood() -> None:
    """Their residuals are two values of equal size: nothing shrinks their correlation of one."""
    rng = np.random.default_rng(0)
    wrong = np.where(np.arange(200) % 2, 0.1, -0.1)[:, None]
    cheap = np.tile(rng.random((200, 1)), 2)
    model = Calibrated(CheapMean(), "constant", law="normal", slope=False)
    told = Readings(cheap, cheap + wrong, cheap + wrong)
    found = ablate(model, KnowledgeGradient(), told, Costs(np.full(2, COST)))
    assert all(np.isfinite(one.nll) for one in found)
    assert found[0].nll < found[1].nll


def test_parts_that_the_world_has_are_worth_something() -> None:
    found = {
        one.off: one
        for one in ablate(Calibrated(), KnowledgeGradient(), readings(1200), Costs(np.full(3, COST)))
    }
    whole = found[None]
    assert found["correlation"].nll > whole.nll + 0.05
    assert found["scale"].nll > whole.nll
    assert found["mean"].nll > whole.nll
    assert found["slope"].worth is not None
    assert found["slope"].worth > -0.002
    assert abs(whole.coverage_1 - 0.683) < 0.03
    assert abs(whole.central_90 - 0.9) < 0.03


def test_a_part_that_is_off_is_not_weighed_and_few_prompts_are_refused() -> None:
    paper = Calibrated(CheapMean(), "constant", "none", False, "normal", False)
    assert without(paper) == {}
    with pytest.raises(UsageError, match="20 or more"):
        ablate(Calibrated(), KnowledgeGradient(), readings(12), Costs(np.full(3, COST)))
