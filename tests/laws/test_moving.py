"""Boxes whose means all move: the contract, agreement with joint normals, batches, and a plain recursion."""

from __future__ import annotations

import numpy as np
import pytest

from pandora_router.boxes import Costs, Joint, Moving
from pandora_router.errors import UsageError
from pandora_router.search import Always, Inspect, KnowledgeGradient, Never, Select, State, drive
from pandora_router.search.drive import replay, reveal_means
from pandora_router.search.gradient import gradient
from pandora_router.search.groups import group_normals, plain_group_gain
from pandora_router.search.moving_batch import MovingBatch, run_moving
from pandora_router.testing import check_boxes, check_policy
from tests.support.movements import JointMovement, MadeUpMovement, standard_outcomes

POLICIES = (KnowledgeGradient(), KnowledgeGradient(depth=1), KnowledgeGradient(width=2), Never(), Always())


def joint(seed: int, boxes: int = 3) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    loading = rng.normal(0.0, 0.2, (boxes, 2))
    return rng.normal(0.5, 0.1, boxes), loading @ loading.T + np.diag(rng.uniform(0.01, 0.03, boxes))


@pytest.mark.parametrize("seed", range(3))
def test_the_contract_of_boxes_holds(seed: int) -> None:
    mean, covariance = joint(seed)
    check_boxes(Moving(mean, JointMovement(covariance), 0.01), draws=1000)


@pytest.mark.parametrize("policy", POLICIES, ids=repr)
def test_policies_keep_their_contract_on_them(policy: object) -> None:
    mean, covariance = joint(1)
    states = [State(Moving(mean, JointMovement(covariance), cost)) for cost in (1e-4, 0.02, 0.5)]
    check_policy(policy, states)  # type: ignore[arg-type]


@pytest.mark.parametrize("refund", [0.0, 0.7])
@pytest.mark.parametrize("depth", [1, 2])
def test_with_the_law_of_a_joint_normal_they_decide_as_joint_boxes(refund: float, depth: int) -> None:
    """`Joint` with the same residual quantiles conditions alike, prices alike and is searched alike."""
    for seed in range(4):
        mean, covariance = joint(seed)
        costs = Costs([0.01, 0.02, 0.015], refund=refund * np.array([0.01, 0.02, 0.015]))
        laws = np.tile(standard_outcomes(16), (3, 1))
        usual, moving = Joint(mean, covariance, costs, laws), Moving(mean, JointMovement(covariance), costs)
        for one, two in ((usual, moving), (usual.given(1, 0.7), moving.given(1, 0.7))):
            np.testing.assert_allclose(one.mean, two.mean, rtol=1e-12)
            np.testing.assert_allclose(one.reservation_price(), two.reservation_price(), rtol=1e-9)
            np.testing.assert_allclose(one.backup_price(), two.backup_price(), rtol=1e-9)
            np.testing.assert_allclose(one.gain(0.55), two.gain(0.55), rtol=1e-9, atol=1e-12)
            np.testing.assert_allclose(gradient(one, 0.3), gradient(two, 0.3), rtol=1e-9, atol=1e-13)
        policy = KnowledgeGradient(depth=depth)
        assert policy.plain_next(State(usual)) == policy.next(State(moving))


def recursion(boxes: Moving, left: int) -> float:
    """Net worth of looking at most `left` openings ahead, by definition and without shortcuts."""
    best = 0.0
    now = float(boxes.mean.max())
    for j in np.flatnonzero(boxes.sealed):
        net = -float(boxes.inspection_cost[j])
        steps = boxes.law.steps(boxes.opened[None], boxes.bare[None], int(j))[0]
        for step in steps:
            then = boxes.given(int(j), (boxes.bare + step).tolist())
            net += (float(then.mean.max()) - now) / len(steps)
            net += (recursion(then, left - 1) if left > 1 else 0.0) / len(steps)
        best = max(best, net)
    return best


@pytest.mark.parametrize("seed", range(5))
def test_two_boxes_are_searched_as_a_plain_recursion_does(seed: int) -> None:
    rng = np.random.default_rng(seed)
    costs = Costs(rng.uniform(0.005, 0.05, 2), refund=rng.uniform(0.0, 0.005, 2))
    for _ in range(10):
        boxes = Moving(rng.normal(0.5, 0.1, 2), MadeUpMovement(2, seed), costs)
        action = KnowledgeGradient().next(State(boxes))
        worth = recursion(boxes, 2)
        assert isinstance(action, Select) == (worth <= 1e-12)


@pytest.mark.parametrize("policy", POLICIES, ids=repr)
@pytest.mark.parametrize("boxes", [2, 4, 7])
def test_a_batch_decides_as_driving_does(policy: object, boxes: int) -> None:
    rng = np.random.default_rng(boxes)
    means = rng.normal(0.5, 0.1, (28 // boxes, boxes))
    own = rng.uniform(0.005, 0.04, boxes)
    law = MadeUpMovement(boxes, count=5)
    for share in (0.0, 1.0):
        batch = MovingBatch(means, law, Costs(own, refund=share * own))

        def told(rows: np.ndarray, opened: np.ndarray) -> np.ndarray:
            return np.stack(
                [
                    np.random.default_rng([i, *o.astype(int)]).normal(0.5, 0.2, boxes)
                    for i, o in zip(rows, opened, strict=True)
                ]
            )

        done = run_moving(policy, batch, told)  # type: ignore[arg-type]
        bought = 0
        for i in range(len(means)):
            opener = reveal_means(lambda opened, i=i: told(np.array([i]), opened[None])[0])
            trace = drive(policy, batch.state(i), opener)  # type: ignore[arg-type]
            order = [int(b) for b in done.order[i] if b >= 0]
            assert (order, int(done.choice[i])) == (list(trace.inspected), trace.selected)
            assert done.spent[i] == pytest.approx(trace.spent)
            assert done.refunded[i] == pytest.approx(trace.refunded)
            assert replay(policy, batch.state(i), trace) == trace  # type: ignore[arg-type]
            bought += len(order)
        assert bought > 0 or isinstance(policy, Never)


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("boxes", [2, 4, 8])
def test_the_fast_step_is_that_of_plain_code(depth: int, boxes: int) -> None:
    """With nothing and something opened, with a look that was lost, and with something better outside."""
    rng = np.random.default_rng(boxes)
    policy, bought = KnowledgeGradient(depth), 0
    for _ in range(12):
        own = rng.uniform(0.002, 0.03, boxes)
        costs = Costs(own, refund=own * rng.uniform(0.0, 1.0, boxes))
        start = Moving(rng.normal(0.5, 0.1, boxes), MadeUpMovement(boxes, count=5), costs)
        later = start.given(1, rng.normal(0.5, 0.1, boxes).tolist())
        for state in (State(start), State(later), State(later.without(0)), State(start, outside=0.55)):
            action = policy.next(state)
            assert action == policy.plain_next(state)
            bought += not isinstance(action, Select)
    assert bought > 6


def test_prices_of_a_batch_are_those_of_its_boxes() -> None:
    rng = np.random.default_rng(0)
    costs = Costs(rng.uniform(0.01, 0.05, 3), refund=0.005)
    batch = MovingBatch(rng.normal(0.5, 0.1, (5, 3)), MadeUpMovement(3), costs)
    above, below = batch.prices()
    for i in range(5):
        boxes = batch.state(i).boxes
        np.testing.assert_allclose(above[i], boxes.reservation_price(), rtol=1e-12)
        np.testing.assert_allclose(below[i], boxes.backup_price(), rtol=1e-12)
        np.testing.assert_allclose(batch.std[i], boxes.std, rtol=1e-12)  # type: ignore[attr-defined]


def test_opened_boxes_move_on_and_keep_their_refund() -> None:
    boxes = Moving([0.5, 0.4], MadeUpMovement(2), Costs([0.02, 0.03], refund=[0.02, 0.01]))
    first = boxes.given(0, (0.6, 0.45))
    assert first.mean.tolist() == [0.6 + 0.02, 0.45]
    second = first.given(1, (0.3, 0.7))
    assert second.mean.tolist() == pytest.approx([0.3 + 0.02, 0.7 + 0.01])
    state = State(boxes).observe(0, (0.6, 0.45)).observe(1, (0.3, 0.7))
    assert state.spent == pytest.approx(0.05)
    assert state.refund(1) == 0.01
    lost = boxes.without(0).given(1, (0.5, 0.7))
    assert lost.mean.tolist() == pytest.approx([0.5, 0.71])


def test_a_group_bought_at_once_is_worth_what_its_outcomes_average_to() -> None:
    mean, covariance = joint(3)
    costs = Costs(np.zeros(3), [0.03], [0, 0, 0])
    normals = group_normals(0, 1000, 3)
    usual = Joint(mean, covariance, costs)
    moving = Moving(mean, JointMovement(covariance, 100), costs)
    members = np.arange(3)
    want, came = (plain_group_gain(one, members, -np.inf, normals) for one in (usual, moving))
    assert came == pytest.approx(want, rel=0.08)
    action = KnowledgeGradient().next(State(moving))
    assert isinstance(action, Inspect)
    assert len(action.boxes) == 3


@pytest.mark.parametrize("news", [(0.5,), (0.5, float("nan")), float("nan")])
def test_wrong_news_are_refused(news: object) -> None:
    boxes = Moving([0.5, 0.4], MadeUpMovement(2), 0.01)
    with pytest.raises(UsageError):
        boxes.given(0, news)  # type: ignore[arg-type]
    with pytest.raises(UsageError):
        boxes.given(0, (0.5, 0.5)).given(0, (0.5, 0.5))
