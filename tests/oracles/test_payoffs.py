"""What committing policies are worth, computed in several ways: kernels, plain code, enumeration, driving."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from pandora_router.boxes import Costs, Draws, Independent, Joint
from pandora_router.search import Committing, Held, Obligatory, State, committing_payoffs, drive, reveal
from pandora_router.search.payoffs import (
    discrete_payoffs,
    lost_boxes,
    normal_payoffs,
    outside_options,
    plain_payoffs,
    reservation_prices,
    simulated_payoffs,
    stream,
)
from tests.support.instances import make

SEEDS = range(25)


def random_normal(seed: int) -> tuple[Independent, float]:
    rng = np.random.default_rng(seed)
    boxes = int(rng.integers(1, 7))
    std = rng.uniform(0.01, 0.5, boxes) * (rng.random(boxes) < 0.85)
    cost = rng.choice([0.0, 1e-6, 0.01, 0.1, 1.0], boxes)
    law = Independent(np.round(rng.normal(0.5, 0.3, boxes), 2), std, cost)
    for j in range(int(rng.integers(0, boxes))):
        law = law.given(j, float(rng.normal(0.5, 0.3))) if rng.random() < 0.7 else law.without(j)
    return law, float(rng.choice([-np.inf, 0.2, 0.6]))


@pytest.mark.parametrize("outside", ["mean", "backup"])
@pytest.mark.parametrize("seed", SEEDS)
def test_exact_kernel_against_plain_quadrature(seed: int, outside: str) -> None:
    boxes, best = random_normal(seed)
    held, price = outside_options(boxes, outside), reservation_prices(boxes)  # type: ignore[arg-type]
    in_hand = max([best, *boxes.mean[~boxes.sealed]])
    came = committing_payoffs(boxes, outside, best)  # type: ignore[arg-type]
    truth = normal_payoffs(boxes.mean, boxes.std, price, held, boxes.sealed, in_hand)
    np.testing.assert_allclose(came, truth, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("boxes", [20, 40])
def test_exact_kernel_with_many_boxes(boxes: int) -> None:
    rng = np.random.default_rng(boxes)
    law = Independent(rng.normal(0.5, 0.1, boxes), rng.uniform(0.02, 0.3, boxes), 0.01)
    for outside in ("mean", "backup"):
        held, price = outside_options(law, outside), reservation_prices(law)
        truth = normal_payoffs(law.mean, law.std, price, held, law.sealed, -np.inf)
        np.testing.assert_allclose(committing_payoffs(law, outside), truth, rtol=1e-12)


def test_exact_kernel_where_scales_differ_by_a_million() -> None:
    law = Independent([0.5, 0.5001, 40.0, 0.4], [1e-6, 1e-3, 30.0, 0.2], [1e-8, 1e-4, 1.0, 0.01])
    for outside in ("mean", "backup"):
        held, price = outside_options(law, outside), reservation_prices(law)
        truth = normal_payoffs(law.mean, law.std, price, held, law.sealed, -np.inf)
        np.testing.assert_allclose(committing_payoffs(law, outside), truth, rtol=1e-11)


def driven(state: State, outside: str, outcomes: np.ndarray, pays: np.ndarray | None = None) -> np.ndarray:
    """Payoffs of all policies in every outcome (outcomes, M+1); -inf for boxes that cannot be held."""
    boxes = state.boxes
    held = outside_options(boxes, outside)  # type: ignore[arg-type]
    table = np.full((len(outcomes), len(held) + 1), -np.inf)
    for m in [-1, *np.flatnonzero(boxes.sealed)]:
        policy = Obligatory() if m < 0 else Held(int(m), float(held[m]))
        for i, outcome in enumerate(outcomes):
            trace = drive(policy, state, reveal(outcome))
            took = state.outside if trace.selected < 0 else outcome[trace.selected]
            table[i, m + 1] = took - (trace.spent - state.spent)
    return table


@pytest.mark.parametrize("outside", ["mean", "backup"])
def test_exact_payoffs_against_driving_the_policies(outside: str) -> None:
    """3,000 outcomes; 5 standard errors: a false alarm of 6e-7 per payoff, with a fixed seed."""
    spec = make("independent", np.random.default_rng(8), 3, cost=0.03)
    state = State(spec.boxes(), 0.3)
    table = driven(state, outside, state.boxes.sample(3000, np.random.default_rng(9)))
    slack = 5.0 * table.std(axis=0) / np.sqrt(len(table))
    assert (np.abs(table.mean(axis=0) - committing_payoffs(state.boxes, outside, 0.3)) <= slack).all()  # type: ignore[arg-type]


@pytest.mark.parametrize("outside", ["mean", "backup"])
@pytest.mark.parametrize("seed", range(8))
def test_discrete_payoffs_against_enumeration(seed: int, outside: str) -> None:
    """All outcomes of boxes with a few equally likely values, driven one by one: equal to rounding."""
    rng = np.random.default_rng(seed)
    samples = np.round(rng.normal(0.5, 0.3, (3, 4)), 1 if seed % 2 else 3)  # with ties, and without
    cost = rng.choice([0.0, 0.01, 0.1], 3)
    state = State(Draws(samples, cost), float(rng.choice([-np.inf, 0.4])))
    if seed >= 4:
        state = state.observe(1, 0.45)
    rows = [
        row if s else [m] for row, s, m in zip(samples, state.boxes.sealed, state.boxes.mean, strict=True)
    ]
    outcomes = np.array(list(product(*rows)))
    truth = driven(state, outside, outcomes).mean(axis=0)
    came = committing_payoffs(state.boxes, outside, state.outside)  # type: ignore[arg-type]
    # a held box pays its mean: the average of its own outcomes
    np.testing.assert_allclose(came, truth, rtol=1e-12, atol=1e-12)


def test_discrete_payoffs_of_quantile_boxes_are_those_of_their_support() -> None:
    spec = make("quantiles", np.random.default_rng(3), 3)
    joint = spec.boxes()
    assert isinstance(joint, Joint)
    draws = Draws(joint.support(), spec.costs)
    np.testing.assert_allclose(
        committing_payoffs(joint, "mean"), committing_payoffs(draws, "mean"), atol=1e-12
    )


def test_discrete_payoffs_approach_the_normal_ones() -> None:
    z = np.array([float(x) for x in np.linspace(-1, 1, 4001)[1:-1]])
    from scipy.special import ndtri

    grid = ndtri(0.5 * (z + 1.0))
    mean, std = np.array([0.5, 0.45, 0.6]), np.array([0.2, 0.3, 0.1])
    support = mean[:, None] + std[:, None] * grid
    normal = Independent(mean, std, 0.02)
    for outside in ("mean", "backup"):
        price, held = reservation_prices(normal), outside_options(normal, outside)
        came = discrete_payoffs(support, price, held, mean, normal.sealed, -np.inf)
        np.testing.assert_allclose(came, committing_payoffs(normal, outside), atol=2e-4)


def test_with_everything_open_all_is_in_hand() -> None:
    for boxes in (Draws([[0.0, 1.0]], 0.1), Independent([0.5], [0.1], 0.1), Joint([0.5], [[0.01]], 0.1)):
        payoffs = committing_payoffs(boxes.given(0, 0.7))
        assert payoffs.tolist() == [0.7, -np.inf]


# --- simulation -------------------------------------------------------------------------------------------


def joint_state(case: str) -> State:
    rng = np.random.default_rng([len(case), *case.encode()])
    boxes = {"one box": 1, "two boxes": 2, "many boxes": 12}.get(case, 5)
    factor = rng.standard_normal((boxes, 2)) * 0.2
    covariance = factor @ factor.T + np.diag(rng.uniform(0.002, 0.02, boxes))
    mean = rng.normal(0.5, 0.1, boxes)
    cost = rng.uniform(0.001, 0.02, boxes)
    if case == "duplicates":
        mean[1], cost[1] = mean[0], cost[0]
        covariance[1], covariance[:, 1] = covariance[0], covariance[:, 0].copy()
        covariance[1, 1] = covariance[0, 1] = covariance[1, 0] = covariance[0, 0]
    if case == "perfect correlation":
        scale = rng.uniform(0.1, 0.3, boxes) * np.array([1, 1, -1, 1, 1])
        covariance = np.outer(scale, scale)
    if case == "nothing to learn":
        covariance[1], covariance[:, 1] = 0.0, 0.0
    if case == "no cost":
        cost[:3] = 0.0
    state = State(Joint(mean, covariance, cost), 0.55 if case == "outside option" else -np.inf)
    if case == "some open":
        state = state.observe(1, 0.4).observe(3, 0.62)
    if case == "one lost":
        state = state.lose(2).observe(0, 0.3)
    return state


CASES = (
    "plain",
    "one box",
    "two boxes",
    "many boxes",
    "some open",
    "one lost",
    "outside option",
    "duplicates",
    "perfect correlation",
    "nothing to learn",
    "no cost",
)


@pytest.mark.parametrize("outside", ["mean", "backup"])
@pytest.mark.parametrize("case", CASES)
def test_simulation_kernel_against_driving_the_same_outcomes(case: str, outside: str) -> None:
    """The kernel shares paths and covariances; driving every policy through every outcome does not."""
    from pandora_router.search import kernels
    from pandora_router.search.kernels.simulate import joint_outcomes

    state = joint_state(case)
    boxes = state.boxes
    assert isinstance(boxes, Joint)
    held = outside_options(boxes, outside)  # type: ignore[arg-type]
    normals = np.random.default_rng(1).standard_normal((20, len(boxes)))
    out = np.empty(len(boxes) + 1)
    if case == "one lost":  # the kernel is not asked where an inspection failed
        assert simulated_payoffs(state, outside, 20, 0).shape == out.shape  # type: ignore[arg-type]
        boxes = Joint(boxes.mean, boxes.covariance, boxes.costs).given(2, 0.5).given(0, 0.3)
        state = State(boxes)
        held = outside_options(boxes, outside)  # type: ignore[arg-type]
    kernels.load().simulated_payoffs(
        boxes.mean,
        boxes.covariance,
        boxes.inspection_cost,
        boxes.refund,
        boxes.sealed,
        held,
        state.best.value,
        normals,
        out,
    )
    drawn = joint_outcomes(boxes.mean, boxes.covariance, normals)
    np.testing.assert_allclose(out, plain_payoffs(state, held, drawn), rtol=1e-9, atol=1e-9)


def test_a_lost_box_still_moves_with_the_others() -> None:
    """Its payoff when held by nobody: taken at its posterior mean, which other openings move."""
    covariance = 0.04 * np.array([[1.0, 0.95, 0.0], [0.95, 1.0, 0.0], [0.0, 0.0, 1.0]])
    state = State(Joint([0.5, 0.5, 0.4], covariance, 0.005)).lose(0)
    assert lost_boxes(state.boxes)
    assert not lost_boxes(State(Joint([0.5, 0.5, 0.4], covariance, 0.005)).observe(0, 0.5).boxes)
    held = outside_options(state.boxes, "mean")
    drawn = state.boxes.sample(400, stream(state.boxes.mean, 3))
    came = simulated_payoffs(state, "mean", 400, 3)
    np.testing.assert_allclose(came, plain_payoffs(state, held, drawn), rtol=1e-12)
    still = Independent([0.5, 0.5, 0.4], [0.0, 0.2, 0.2], 0.005)  # as if the lost box no longer moved
    frozen = simulated_payoffs(State(still).lose(0), "mean", 400, 3)
    assert abs(came[0] - frozen[0]) > 1e-3


def test_simulation_kernel_beyond_the_nodes_it_keeps() -> None:
    """So many outcomes and boxes that opening sequences outgrow the tree."""
    from pandora_router.search import kernels
    from pandora_router.search.kernels.simulate import NODES, joint_outcomes

    rng = np.random.default_rng(0)
    boxes = 14
    factor = rng.normal(0.0, 0.2, (boxes, 4))
    law = Joint(np.full(boxes, 0.5), factor @ factor.T + 0.04 * np.eye(boxes), 1e-4)
    normals = rng.standard_normal((120, boxes))
    held = outside_options(law, "mean")
    out = np.empty(boxes + 1)
    kernels.load().simulated_payoffs(
        law.mean, law.covariance, law.inspection_cost, law.refund, law.sealed, held, -np.inf, normals, out
    )
    drawn = joint_outcomes(law.mean, law.covariance, normals)
    sequences = set()
    for policy in (Obligatory(), *(Held(m, float(held[m])) for m in range(boxes))):
        for g in drawn:
            inspected = drive(policy, State(law), reveal(g)).inspected
            sequences |= {inspected[:k] for k in range(len(inspected) + 1)}
    assert len(sequences) > NODES
    np.testing.assert_allclose(out, plain_payoffs(State(law), held, drawn), rtol=1e-9)


def test_simulated_outcomes_have_the_law_of_the_boxes() -> None:
    """20,000 outcomes; 5 standard errors, fixed seed."""
    from pandora_router.search.kernels.simulate import joint_outcomes

    for case in ("plain", "perfect correlation", "some open"):
        boxes = joint_state(case).boxes
        assert isinstance(boxes, Joint)
        n = 20000
        drawn = joint_outcomes(
            boxes.mean, boxes.covariance, np.random.default_rng(2).standard_normal((n, len(boxes)))
        )
        assert (np.abs(drawn.mean(axis=0) - boxes.mean) <= 5.0 * boxes.std / np.sqrt(n) + 1e-12).all()
        slack = 5.0 * np.sqrt(2.0 / n) * np.outer(boxes.std, boxes.std) + 1e-12
        assert (np.abs(np.cov(drawn.T) - boxes.covariance) <= slack).all()


@pytest.mark.parametrize("kind", ["independent", "draws", "quantiles"])
def test_simulated_payoffs_approach_the_exact_ones(kind: str) -> None:
    """S outcomes leave an error of about sd/sqrt(S); 6 of them allow a false alarm of 2e-9 a payoff."""
    spec = make(kind, np.random.default_rng(12), 3, cost=0.03)
    if kind == "quantiles":  # exact payoffs are those of the marginals, so without dependence
        spec.factor[:] = 0.0
    state = spec.state()
    count = 20000 if kind == "independent" else 1200
    for outside in ("mean", "backup"):
        came = simulated_payoffs(state, outside, count, 5)
        exact = committing_payoffs(state.boxes, outside)
        assert (np.abs(came - exact) <= 6.0 * 0.45 / np.sqrt(count)).all()
    few = simulated_payoffs(state, "mean", 50, 5)
    assert np.abs(few - committing_payoffs(state.boxes, "mean")).max() < 0.3


def test_simulated_ladders_climb() -> None:
    """Holding nobody, one box of two tiers: E[max(m, G) ...] by hand-driving fresh climbs (6 errors)."""
    spec = make("ladder", np.random.default_rng(2), 2, cost=0.03)
    state = spec.state()
    came = simulated_payoffs(state, "mean", 1500, 0)
    paths = state.boxes.paths(1500, np.random.default_rng(77))  # type: ignore[attr-defined]
    total = []
    for path in paths:
        trace = drive(Obligatory(), state, reveal(path))
        total.append(path[trace.selected, -1] - trace.spent)
    error = np.std(total) / np.sqrt(len(total))
    assert abs(came[0] - np.mean(total)) <= 6.0 * np.sqrt(2.0) * error


def test_a_committing_policy_depends_on_its_seed_and_its_boxes_only() -> None:
    state = joint_state("plain")
    one = simulated_payoffs(state, "backup", 50, 1)
    np.testing.assert_array_equal(one, simulated_payoffs(state, "backup", 50, 1))
    assert (one != simulated_payoffs(state, "backup", 50, 2)).any()
    assert Committing(seed=1).start(state) == Committing(seed=1).start(state)


def test_shared_costs_enter_simulated_payoffs_once() -> None:
    """Two sure boxes of one group: the obligatory policy pays the shared part once, own parts as it opens."""
    boxes = Independent([0.5, 0.4], [0.0, 0.0], Costs([0.01, 0.02], [0.1], [0, 0]))
    came = simulated_payoffs(State(boxes), "mean", 3, 0)
    np.testing.assert_allclose(came, [0.5 - 0.11, 0.5, 0.4], atol=1e-15)


def test_a_box_that_was_opened_before_is_worth_its_value_and_its_refund_once() -> None:
    """By hand: the box in hand beats everything, so every plan that holds nobody ends with it at once."""
    boxes = Joint([0.5, 0.4, 0.3], np.diag([0.04, 0.04, 0.04]), Costs([0.05, 0.05, 0.05], refund=0.03))
    state = State(boxes).observe(0, 2.0)
    drawn = np.array([[2.03, 0.1, 0.2], [2.03, 0.6, 0.4]])
    payoffs = plain_payoffs(state, np.array([-np.inf, -5.0, -5.0]), drawn)
    np.testing.assert_allclose(payoffs[[0, 2, 3]], 2.0 + 0.03)
    assert payoffs[1] == -np.inf
    compiled = simulated_payoffs(state, "backup", 4, 0)
    np.testing.assert_allclose(compiled[[0, 2, 3]], 2.0 + 0.03)
