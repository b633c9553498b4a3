"""The dynamic programme against recursions written differently."""

from __future__ import annotations

import numpy as np
import pytest

from pandora_router.boxes import Independent
from pandora_router.search import OUTSIDE, Inspect, Optimal, Select, State, drive, reveal
from tests.oracles.correlated_optimum import correlated_optimum
from tests.support.instances import make

# Values replaced by many equally likely ones: a finite problem that a plain recursion can solve.
Z, W = np.polynomial.hermite_e.hermegauss(41)
W = W / W.sum()


def recursion(
    mean: list[float], std: list[float], cost: list[float], left: frozenset[int], v: float
) -> float:
    """V by direct recursion over Gauss-Hermite outcomes: exponential, no grid, no table."""
    value = max([v, *(mean[j] for j in left)])
    for j in left:
        after = [
            recursion(mean, std, cost, left - {j}, max(v, mean[j] + std[j] * z))
            for z in (Z if std[j] else [0.0])
        ]
        value = max(value, float((W if std[j] else np.ones(1)) @ after) - cost[j])
    return value


@pytest.mark.parametrize("outside", [-np.inf, 0.55])
@pytest.mark.parametrize("seed", range(4))
def test_value_against_a_plain_recursion(seed: int, outside: float) -> None:
    """41 nodes leave about 3e-3 of a standard deviation at the kinks."""
    spec = make("independent", np.random.default_rng(seed), 2, cost=0.03)
    boxes = spec.boxes()
    truth = recursion(list(spec.mean), list(spec.std), list(spec.own), frozenset({0, 1}), outside)
    assert Optimal().value(State(boxes, outside)) == pytest.approx(truth, abs=3e-3)


@pytest.mark.parametrize("boxes", [2, 3])
def test_value_against_nested_quadrature(boxes: int) -> None:
    for seed in range(3):
        spec = make("independent", np.random.default_rng(seed), boxes, cost=0.02)
        truth = correlated_optimum(spec.mean, np.diag(spec.std**2), spec.own, points=301)
        assert Optimal().value(spec.state()) == pytest.approx(truth, abs=2e-5)


def test_one_box_by_hand() -> None:
    """Against an outside option v a single box is worth max(v, mu, v + s psi((v - mu)/s) - c)."""
    from pandora_router.index import unit_loss

    for v in (-np.inf, 0.2, 0.5, 0.58, 0.9):
        state = State(Independent([0.5], [0.2], 0.03), v)
        opened = v + 0.2 * float(unit_loss((v - 0.5) / 0.2)) - 0.03 if np.isfinite(v) else 0.47
        assert Optimal().value(state) == pytest.approx(max(v, 0.5, opened), abs=1e-6)


def test_costs_and_outside_options_far_away_do_not_spoil_the_grid() -> None:
    near = Independent([0.5, 0.5], [0.2, 0.2], [0.01, 0.01])
    truth = Optimal().value(State(near))
    assert Optimal().value(State(near, -1e6)) == pytest.approx(truth, abs=1e-7)
    third = Independent([0.5, 0.5, -1e6], [0.2, 0.2, 0.1], 0.01)
    assert Optimal().value(State(third.given(2, -1e6))) == pytest.approx(truth, abs=1e-7)
    dear = Independent([0.5, 0.5], [0.2, 0.2], [0.01, 1e6])
    assert Optimal().value(State(dear)) == pytest.approx(0.5 + 0.2 * 0.3989422804014327 - 0.01, abs=1e-6)
    assert Optimal().next(State(near, 77.0)) == Select(OUTSIDE)


def test_states_on_the_way_are_worth_what_the_plan_said() -> None:
    """After an opening, planning afresh agrees with following the plan."""
    spec = make("independent", np.random.default_rng(9), 3, cost=0.02)
    state = spec.state()
    plan = Optimal().start(state)
    later = state.observe(1, 0.55)
    assert plan.next(later) == Optimal().next(later)
    assert plan.value(later) == pytest.approx(Optimal().value(later), abs=1e-5)  # type: ignore[attr-defined]


def test_the_plan_earns_its_value() -> None:
    """1,500 searches of the optimal plan; 5 standard errors."""
    spec = make("independent", np.random.default_rng(10), 3, cost=0.03)
    state = spec.state()
    plan = Optimal().start(state)
    earned = []
    for outcome in state.boxes.sample(1500, np.random.default_rng(1)):
        trace = drive(plan, state, reveal(outcome))
        earned.append(outcome[trace.selected] - trace.spent)
    assert abs(np.mean(earned) - Optimal().value(state)) <= 5.0 * np.std(earned) / np.sqrt(len(earned))


def test_nothing_left_to_open_or_to_learn() -> None:
    state = State(Independent([0.5], [0.1], 0.01)).observe(0, 0.8)
    assert Optimal().next(state) == Select(0)
    assert Optimal().value(state) == 0.8
    sure = State(Independent([0.5, 0.6], [0.0, 0.0], 0.0))
    assert Optimal().value(sure) == 0.6
    assert Optimal().next(sure) == Select(1)
    assert Optimal().next(State(Independent([0.5, 0.5], [0.3, 0.2], 0.001))) == Inspect((0,))
