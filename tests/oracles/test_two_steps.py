"""The knowledge gradient two inspections deep: kernel against plain code, and against the optimum.

With two boxes there are no more than two inspections, so looking two ahead is the optimum itself, up to the
16-node rule for the first outcome.
"""

from __future__ import annotations

import numpy as np
import pytest

from pandora_router.boxes import Boxes, Costs, Independent, Joint
from pandora_router.boxes.checks import unlocked
from pandora_router.search import KnowledgeGradient, Optimal, State, kernels, run
from pandora_router.search.batch import Batch
from pandora_router.search.gradient import plain_inspection
from pandora_router.search.groups import normal_parts
from tests.oracles.correlated_optimum import correlated_optimum
from tests.support.instances import make

KINDS = ("independent", "joint", "low rank", "quantiles")


def best_inspection(boxes: Boxes, outside: float, depth: int, width: int) -> tuple[int, float]:
    """The best next inspection and its net worth by the compiled code within `gradient_step`."""
    kernels.load()
    from pandora_router.search.kernels import gradient

    covariance, quantiles = normal_parts(boxes)
    mean, std, cost = (unlocked(part) for part in (boxes.mean, boxes.std, boxes.inspection_cost))
    own, group, refund = boxes.costs.own, boxes.costs.group, boxes.costs.refund
    sealed = unlocked(boxes.sealed)
    box, net = gradient.best_inspection(
        mean, covariance, std, cost, own, group, refund, sealed, quantiles, outside, depth, width
    )
    return box, net


@pytest.mark.parametrize("outside", [-np.inf, 0.45, 0.9])
@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(4))
def test_kernel_against_plain_code(kind: str, depth: int, seed: int, outside: float) -> None:
    boxes = make(kind, np.random.default_rng(seed), 2 + seed, cost=0.02).boxes()
    for step in range(1 + seed):
        box, net = best_inspection(boxes, outside, depth, 3)
        plain_box, plain_net = plain_inspection(boxes, outside, depth, 3)
        assert net == pytest.approx(plain_net, abs=1e-12)
        assert box == plain_box
        boxes = boxes.without(step) if step == 1 else boxes.given(step, 0.4 + 0.1 * step)


def test_a_second_purchase_in_the_group_does_not_pay_the_shared_part_again() -> None:
    covariance = 0.03 * np.eye(2) + 0.02
    boxes = Joint([0.5, 0.52], covariance, Costs([0.005, 0.005], shared=[0.02], group=[0, 0]))
    box, net = best_inspection(boxes, -np.inf, 2, 2)
    assert (box, net) == pytest.approx(plain_inspection(boxes, -np.inf, 2, 2))
    twice = best_inspection(Joint([0.5, 0.52], covariance, 0.025), -np.inf, 2, 2)[1]
    assert net > twice + 1e-3


@pytest.mark.parametrize("seed", range(12))
def test_two_independent_boxes_two_deep_is_the_optimum(seed: int) -> None:
    rng = np.random.default_rng(seed)
    boxes = Independent(rng.normal(0.5, 0.1, 2), rng.uniform(0.1, 0.3, 2), rng.choice([0.003, 0.01, 0.03]))
    worth = boxes.mean.max() + max(0.0, best_inspection(boxes, -np.inf, 2, 2)[1])
    assert worth == pytest.approx(Optimal().value(State(boxes)), abs=1e-3)


@pytest.mark.parametrize("seed", range(12))
def test_two_correlated_boxes_two_deep_is_the_optimum(seed: int) -> None:
    rng = np.random.default_rng(100 + seed)
    mean, std = rng.normal(0.5, 0.05, 2), rng.uniform(0.1, 0.3, 2)
    rho, cost = rng.choice([0.3, 0.6, 0.9]), rng.choice([0.003, 0.01, 0.03])
    covariance = np.outer(std, std) * np.array([[1.0, rho], [rho, 1.0]])
    worth = mean.max() + max(0.0, best_inspection(Joint(mean, covariance, cost), -np.inf, 2, 2)[1])
    assert worth == pytest.approx(correlated_optimum(mean, covariance, np.full(2, cost), 801), abs=1e-3)


def test_two_deep_sees_what_one_deep_misses() -> None:
    """Opening one of two strongly correlated boxes says little, opening both says which is better."""
    std, rho, cost = 0.25, 0.9, 0.01
    boxes = Joint([0.5, 0.5], std**2 * np.array([[1.0, rho], [rho, 1.0]]), cost)
    assert best_inspection(boxes, -np.inf, 1, 2)[1] < 0.0
    gap = std * np.sqrt(2.0 * (1.0 - rho))  # standard deviation of the difference
    both = gap / np.sqrt(2.0 * np.pi) - 2.0 * cost
    assert both > 0.0
    assert best_inspection(boxes, -np.inf, 2, 2)[1] >= both - 1e-3


def test_looking_deeper_pays_on_strongly_correlated_boxes() -> None:
    """Realised value net of cost over generated outcomes: the difference exceeds 5 standard errors."""
    rng = np.random.default_rng(5)
    queries, boxes, rho = 20_000, 3, 0.8
    std = rng.uniform(0.15, 0.3, (queries, boxes))
    correlation = rho + (1.0 - rho) * np.eye(boxes)
    batch = Batch(rng.normal(0.5, 0.03, (queries, boxes)), std, 0.012, correlation=correlation)
    values = batch.mean + std * (rng.standard_normal((queries, boxes)) @ np.linalg.cholesky(correlation).T)
    earned = [
        values[np.arange(queries), done.choice] - done.spent
        for done in (run(KnowledgeGradient(depth=d), batch, values) for d in (1, 2))
    ]
    lead = earned[1] - earned[0]
    assert lead.mean() > 5.0 * lead.std(ddof=1) / np.sqrt(queries)


def test_the_leading_box_is_among_those_looked_at() -> None:
    """Its own news is worth nothing, so six boxes of no promise, but cheap, come before it by net worth.

    Opening the contender pays only because the leader can be opened next.
    """
    mean = np.array([0.55, 0.5, *np.full(6, -9.0)])
    std = np.array([0.2, 0.2, *np.full(6, 1e-3)])
    correlation = np.eye(8)
    correlation[0, 1] = correlation[1, 0] = 0.95
    cost = np.array([0.003, 5e-7, *np.full(6, 1e-6)])
    boxes = Joint(mean, np.outer(std, std) * correlation, cost)
    pair = Joint(mean[:2], boxes.covariance[:2, :2], cost[:2])
    truth = best_inspection(pair, -np.inf, 2, 2)
    assert truth[1] > 1e-3
    assert best_inspection(pair, -np.inf, 1, 2)[1] < truth[1] - 1e-3
    assert best_inspection(boxes, -np.inf, 2, 6) == pytest.approx(truth)
    assert plain_inspection(boxes, -np.inf, 2, 6) == pytest.approx(truth)
