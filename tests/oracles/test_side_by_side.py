"""Boxes opened side by side: what a set costs, and how near policies come to the exact optimum."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from pandora_router.boxes import Boxes, Costs, Draws, Independent, Joint
from pandora_router.boxes.moving import Moving
from pandora_router.calibrate.ways import decide
from pandora_router.errors import UsageError
from pandora_router.search import (
    Always,
    Inspect,
    KnowledgeGradient,
    Obligatory,
    Optimal,
    Policy,
    Rollout,
    SideBySide,
    State,
    drive,
    reveal,
    run,
)
from pandora_router.search.batch import Batch
from pandora_router.search.drive import reveal_means
from pandora_router.search.moving_batch import MovingBatch, run_moving
from pandora_router.search.prefixes import laws, maxima, set_costs
from tests.oracles.sets_optimum import Lattice
from tests.support.movements import JointMovement, MadeUpMovement, standard_outcomes

COSTS = Costs([0.03, 0.05, 0.04], refund=[0.0, 0.02, 0.0], wait=[0.02, 0.04, 0.01])


def instance(seed: int, second: float, rho: float = 0.0, back: float = 0.0, k: int = 10) -> Lattice:
    rng = np.random.default_rng(seed)
    mean, std = rng.normal(0.5, 0.1, 3), rng.uniform(0.1, 0.3, 3)
    wait = second * np.exp(rng.uniform(np.log(0.3), np.log(3.0), 3))
    money = np.full(3, 0.01)
    refund = back * (money + wait)
    if rho:
        covariance = np.outer(std, std) * (rho + (1.0 - rho) * np.eye(3))
        return Lattice.joint(mean, covariance, money, wait, refund, k)
    return Lattice.independent(mean, std, money, wait, refund, k)


def losses(policy: Policy, cases: Sequence[Lattice]) -> np.ndarray:
    return np.array([case.optimum() - case.value(policy) for case in cases])


def test_a_set_costs_its_longest_wait() -> None:
    """0.01 + 0.01 + 0.03 of money and 0.04 of waiting; box 1 gives back what it cost itself."""
    boxes = Independent([0.5, 0.6, 0.4], [0.2, 0.2, 0.2], COSTS)
    state = State(boxes)
    assert state.bill((0, 1, 2)) == pytest.approx(0.09)
    assert state.bill((0,)) + state.bill((1,)) + state.bill((2,)) == pytest.approx(0.12)
    trace = drive(Always(), state, reveal([0.1, 0.9, 0.2]))
    assert trace.selected == 1
    assert trace.spent == pytest.approx(0.09 - 0.02)
    lost = drive(Always(), state, {0: 0.1, 1: None, 2: 0.2})
    assert lost.spent == pytest.approx(0.09)
    assert run(Always(), Batch(boxes.mean[None], boxes.std[None], COSTS), [[0.1, 0.9, 0.2]]).spent == (
        pytest.approx([0.07])
    )


def test_waiting_is_part_of_the_own_cost() -> None:
    with pytest.raises(UsageError, match="wait"):
        Costs([0.01, 0.02], wait=[0.02, 0.0])
    some = COSTS.only(np.array([2, 1]))
    assert (some.wait.tolist(), some.spared([0, 1])) == ([0.01, 0.04], pytest.approx(0.01))
    assert COSTS.scaled(2.0).spared([0, 1]) == pytest.approx(0.04)
    assert not len(Costs([0.1], wait=0.0).wait)


@pytest.mark.parametrize("policy", [KnowledgeGradient(), Rollout(), Obligatory(), Always()])
def test_costs_without_waiting_decide_as_before(policy: Policy) -> None:
    rng = np.random.default_rng(3)
    for _ in range(20):
        mean, std = rng.normal(0.5, 0.1, 3), rng.uniform(0.1, 0.3, 3)
        one, two = (State(Joint(mean, np.diag(std**2), c)) for c in (0.02, Costs([0.02] * 3, wait=0.0)))
        shown = reveal(rng.normal(mean, std))
        assert drive(policy, one, shown) == drive(policy, two, shown)


def test_the_optimum_without_waiting_is_that_of_single_openings() -> None:
    """Together costs as much as one by one then, so sets gain nothing; 60 draws come near the normal law."""
    case = instance(4, 0.0, k=60)
    assert case.optimum() == pytest.approx(case.optimum("single"), abs=1e-12)
    boxes = case.start
    normal = Independent(boxes.mean, boxes.std, 0.01)
    assert case.optimum() == pytest.approx(Optimal().value(State(normal)), abs=2e-3)


@pytest.mark.parametrize("policy", [SideBySide(), KnowledgeGradient(), Always()])
@pytest.mark.parametrize("back", [0.0, 1.0])
def test_the_value_of_a_policy_is_what_driving_it_earns(policy: Policy, back: float) -> None:
    """All outcomes of three boxes of five values, driven one by one with the bills of the search."""
    case = instance(2, 0.02, back=back, k=5)
    earned = 0.0
    for place in np.ndindex(case.chance.shape):
        shown = case.values[np.arange(3), place]
        trace = drive(policy, State(case.start), reveal(shown))
        worth = shown if trace.selected in trace.inspected else case.start.mean
        earned += float(case.chance[place]) * (float(worth[trace.selected]) - trace.spent)
    assert case.value(policy) == pytest.approx(earned, abs=1e-12)


@pytest.mark.parametrize("kind", ["normal", "draws", "quantiles"])
def test_what_a_prefix_is_worth_against_sampling(kind: str) -> None:
    """E[max(floor, G + r of a prefix, min(G + r, u) of the rest)], 5 standard errors."""
    rng = np.random.default_rng(1)
    mean, std = np.array([0.5, 0.45, 0.6]), np.array([0.2, 0.3, 0.1])
    table = np.sort(rng.standard_normal((3, 9)), axis=1)
    table = (table - table.mean(axis=1, keepdims=True)) / table.std(axis=1, keepdims=True)
    boxes: Boxes = {
        "normal": Independent(mean, std, COSTS),
        "draws": Draws(mean[:, None] + std[:, None] * table, COSTS),
        "quantiles": Joint(mean, np.diag(std**2), COSTS, table),
    }[kind]
    price, order = boxes.reservation_price(), np.array([1, 0, 2])
    edges, opened = laws(boxes, order, price, 0.4)
    capped = np.where(edges[:-1] >= price[order, None], 1.0, opened)
    worth = maxima(edges, opened, capped, 0.4)
    values = boxes.sample(200_000, rng) + boxes.refund
    for k in (1, 2, 3):
        first, rest = values[:, order[:k]], np.minimum(values, price)[:, order[k:]]
        best = np.maximum(np.concatenate([first, rest], axis=1).max(axis=1), 0.4)
        assert abs(worth[k - 1] - best.mean()) <= 5.0 * best.std() / np.sqrt(len(best))
    assert set_costs(COSTS, order) == pytest.approx([State(boxes).bill(order[:k]) for k in (1, 2, 3)])


def test_side_by_side_is_near_the_optimum_of_independent_boxes() -> None:
    cases = [
        instance(seed, second, back=back) for seed in range(6) for second, back in ((0.03, 0), (0.03, 1))
    ]
    alone = np.array([case.optimum() - case.optimum("single") for case in cases])
    at_once = np.array([case.optimum() - case.optimum("all") for case in cases])
    gap = losses(SideBySide(), cases)
    assert gap.min() > -1e-12
    assert gap.mean() < 0.2 * min(alone.mean(), at_once.mean())


def test_the_knowledge_gradient_opens_sets_of_correlated_boxes() -> None:
    cases = [instance(seed, 0.03, rho=0.5, k=9) for seed in range(6)]
    alone = np.array([case.optimum() - case.optimum("single") for case in cases])
    gap = losses(KnowledgeGradient(), cases)
    assert alone.mean() > 5e-4
    assert gap.mean() < 0.2 * alone.mean()
    assert gap.mean() < losses(SideBySide(), cases).mean()  # which takes them for independent


def test_what_side_by_side_opens() -> None:
    """Where a wait is nearly all of a cost the second and third come almost free; else one is enough."""
    mean, std = [0.5, 0.45, 0.4], [0.2, 0.2, 0.2]
    waiting = Independent(mean, std, Costs([0.04] * 3, wait=[0.035] * 3))
    assert SideBySide().next(State(waiting)) == Inspect((0, 1, 2))
    assert SideBySide().next(State(Independent(mean, std, 0.04))) == Inspect((0,))
    assert len(KnowledgeGradient().next(State(waiting)).boxes) > 1  # type: ignore[union-attr]


@pytest.mark.parametrize("policy", [KnowledgeGradient(), SideBySide(), Always()])
def test_the_money_of_a_routed_prompt_is_its_bill_without_waiting(policy: Policy) -> None:
    """Counted by hand from the trace of each query: what each opening costs, less what comes back."""
    rng = np.random.default_rng(5)
    mean, std = rng.normal(0.5, 0.1, (12, 3)), rng.uniform(0.1, 0.3, (12, 3))
    batch, values = Batch(mean, std, COSTS), rng.normal(mean, std)
    routed = decide(policy, batch, values)
    money = COSTS.own - COSTS.wait
    for i in range(len(mean)):
        trace = drive(policy, batch.state(i), reveal(values[i]))
        opened = [box for action in trace.actions[:-1] for box in action.boxes]
        back = COSTS.refund[1] / COSTS.own[1] * money[1] if trace.selected == 1 and 1 in opened else 0.0
        assert routed.money(COSTS)[i] == pytest.approx(money[opened].sum() - back)
        assert routed.spent[i] == pytest.approx(trace.spent)
    assert routed.inspections.sum() > 0


def test_sets_are_found_at_speed_as_in_plain_code() -> None:
    """Compiled or batched single steps, with the set weighed beside them, decide as the plain twin."""
    rng, policy, sets = np.random.default_rng(9), KnowledgeGradient(), 0
    for _ in range(40):
        mean, std = rng.normal(0.5, 0.05, 3), rng.uniform(0.1, 0.3, 3)
        wait = 10.0 ** rng.uniform(-2.5, -1.0, 3)
        costs = Costs(0.002 + wait, refund=rng.choice([0.0, 1.0]) * (0.002 + wait), wait=wait)
        covariance = np.outer(std, std) * (0.4 + 0.6 * np.eye(3))
        laws_: list[Boxes] = [
            Joint(mean, covariance, costs),
            Draws(mean[:, None] + std[:, None] * standard_outcomes(8), costs),
            Moving(mean, JointMovement(covariance, 8), costs),
        ]
        for boxes in laws_:
            state = State(boxes)
            action = policy.next(state)
            assert action == policy.plain_next(state)
            sets += isinstance(action, Inspect) and len(action.boxes) > 1
    assert sets > 20


def test_a_batch_of_moving_boxes_opens_the_sets_of_each_search() -> None:
    rng = np.random.default_rng(2)
    law, mean = MadeUpMovement(3), rng.normal(0.5, 0.05, (15, 3))
    told = {(i, code): rng.normal(0.5, 0.2, 3) for i in range(15) for code in range(8)}

    def means_of(rows: np.ndarray, opened: np.ndarray) -> np.ndarray:
        return np.array([told[i, int(o @ [1, 2, 4])] for i, o in zip(rows.tolist(), opened, strict=True)])

    costs = Costs([0.012, 0.022, 0.032], refund=[0.0, 0.022, 0.01], wait=[0.01, 0.02, 0.03])
    batch = MovingBatch(mean, law, costs)
    done = run_moving(KnowledgeGradient(), batch, means_of)
    together = 0
    for i in range(15):
        opener = reveal_means(lambda opened, i=i: means_of(np.array([i]), opened[None])[0])
        trace = drive(KnowledgeGradient(), batch.state(i), opener)
        bought = [action.boxes for action in trace.actions[:-1] if isinstance(action, Inspect)]
        assert [tuple(done.order[i][done.stage[i] == s].tolist()) for s in range(len(bought))] == bought
        assert (done.choice[i], done.order[i].max() >= 0) == (trace.selected, bool(bought))
        assert done.spent[i] == pytest.approx(trace.spent)
        together += any(len(boxes) > 1 for boxes in bought)
    assert together > 2
