"""Laws of the metrics and of the arms, on generated instances and the reference vectors."""

from __future__ import annotations

from dataclasses import astuple
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pandora_router.boxes import Costs
from pandora_router.calibrate import Calibrated
from pandora_router.calibrate.readings import Readings
from pandora_router.calibrate.ways import Routed, Standing, bill
from pandora_router.errors import UsageError
from pandora_router.evaluate.arms import ARMS, DEFAULT, Baseline, Fixed, named
from pandora_router.evaluate.outcomes import Outcomes, sweep
from pandora_router.evaluate.trials import Trial
from pandora_router.router.inspection import Inspection
from tests.conftest import of_kind

seeds = st.integers(0, 2**32 - 1)


def arrays(rng: np.random.Generator, prompts: int, boxes: int) -> Readings:
    hard = rng.uniform(0.2, 0.8, (prompts, 1))
    truth = np.clip(hard + rng.normal(0.0, 0.2, (prompts, boxes)), 0.0, 1.0)
    score = (rng.random((prompts, boxes)) < truth).astype(float)
    f = np.clip(truth + rng.normal(0.0, 0.2, truth.shape), 0.0, 1.0)
    g = np.clip(truth + rng.normal(0.0, 0.05, truth.shape), 0.0, 1.0)
    fee = np.broadcast_to(rng.uniform(0.0, 0.2, boxes), truth.shape)
    return Readings(f, g, score - fee, fee)


def instance(seed: int, prompts: int = 60, boxes: int = 3) -> Trial:
    rng = np.random.default_rng(seed)
    return Trial(arrays(rng, 80, boxes), arrays(rng, prompts, boxes), Standing(0, 0))


def routed(seed: int, prompts: int, boxes: int) -> Routed:
    rng = np.random.default_rng(seed)
    queries = rng.integers(0, boxes + 1, prompts).astype(float)
    return Routed(rng.integers(0, boxes, prompts), 0.01 * queries, queries)


def outcomes(seed: int, prompts: int, boxes: int = 3) -> Outcomes:
    return Outcomes.of(routed(seed, prompts, boxes), arrays(np.random.default_rng(seed), prompts, boxes), 0)


def near(a: Outcomes, b: Outcomes) -> bool:
    return bool(np.allclose(astuple(a), astuple(b), rtol=1e-12, atol=1e-12))


@given(seeds, seeds, seeds, st.integers(1, 30))
def test_outcomes_are_a_commutative_monoid(a: int, b: int, c: int, prompts: int) -> None:
    x, y, z = outcomes(a, prompts), outcomes(b, prompts + 1), outcomes(c, 2 * prompts)
    assert x + y == y + x
    assert near((x + y) + z, x + (y + z))
    assert x + Outcomes.none() == x == sum([x])


@given(seeds, st.integers(2, 40), st.integers(1, 39))
def test_the_sum_of_shards_is_the_whole(seed: int, prompts: int, cut: int) -> None:
    cut = min(cut, prompts - 1)
    every, decided = arrays(np.random.default_rng(seed), prompts, 3), routed(seed, prompts, 3)

    def shard(rows: slice) -> Outcomes:
        part = every.rows(rows)
        return Outcomes.of(
            Routed(decided.choice[rows], decided.spent[rows], decided.inspections[rows]), part, 1
        )

    assert near(shard(slice(0, cut)) + shard(slice(cut, None)), shard(slice(None)))


@given(seeds)
def test_standard_error_is_that_of_the_prompts(seed: int) -> None:
    every, decided = arrays(np.random.default_rng(seed), 50, 3), routed(seed, 50, 3)
    total = decided.total(every)
    means = Outcomes.of(decided, every, 0).means()
    assert means["total"] == pytest.approx(total.mean())
    assert means["total_error"] == pytest.approx(total.std(ddof=1) / np.sqrt(50))


@given(seeds, st.integers(1, 5), st.floats(0.0, 0.5), st.floats(0.0, 0.5))
def test_inspecting_all_costs_exactly_m_per_unit(seed: int, boxes: int, low: float, high: float) -> None:
    one = instance(seed, 20, boxes)
    runs = sweep(one, named(["always inspect, raw g"]), [low, high], lambda c: Costs([c] * boxes), 0)
    totals = [run.outcomes.means()["total"] for run in runs if run.arm == "always inspect, raw g"]
    assert totals[1] - totals[0] == pytest.approx(boxes * (high - low), abs=1e-12)


@given(seeds, st.floats(0.0, 3.0), st.lists(st.floats(0.0, 3.0), min_size=2, max_size=4))
def test_inspecting_all_pays_every_own_part_and_the_shared_one_once(
    seed: int, shared: float, own: list[float]
) -> None:
    names = tuple(str(j) for j in range(len(own)))
    inspection = Inspection(shared, dict(zip(names, own, strict=True)))
    one, plan, rng = instance(seed, 10, len(own)), Baseline("", "always"), np.random.default_rng(0)
    done = [plan.route(one, inspection.costs(c, names), 0, rng) for c in (0.01, 0.02)]
    totals = [Outcomes.of(routed, one.test, 0).means()["total"] for routed in done]
    assert totals[1] - totals[0] == pytest.approx(0.01 * (shared + sum(own)), abs=1e-12)


@settings(max_examples=5)
@given(seeds)
def test_every_arm_that_is_no_oracle_ignores_rewards_of_test_prompts(seed: int) -> None:
    """Other rewards on the test prompts, same decisions."""
    one = instance(seed, 12, 2)
    test = one.test
    changed = Readings(test.cheap, test.costly, 1 - test.reward, test.fee)
    other = Trial(one.calibration, changed, Standing(0, 0))
    for arm in (arm for arm in ARMS if arm.name != "oracle"):
        runs = [arm.route(x, Costs([0.01] * 2), 7, np.random.default_rng(3)) for x in (one, other)]
        assert np.array_equal(runs[0].choice, runs[1].choice), arm.name
        assert np.array_equal(runs[0].spent, runs[1].spent), arm.name


def test_fewer_calibration_prompts_lie_inside_more() -> None:
    one = instance(0)
    small, same = one.signal(prompts=20), one.signal(prompts=len(one.calibration))
    assert same is one.signal()
    assert small is one.signal(prompts=20)
    rows = np.random.default_rng(0).permutation(80)[:20]
    known = one.calibration
    again = Calibrated().fit(Readings(known.cheap[rows], known.costly[rows], known.reward[rows]))
    assert np.array_equal(small.expected(one.test.cheap), again.expected(one.test.cheap))


@given(seeds)
def test_top_two_of_two_is_inspecting_all(seed: int) -> None:
    one, costs, rng = instance(seed, 30, 2), Costs([0.01, 0.03]), np.random.default_rng(0)
    top, every = (Baseline("", kind).route(one, costs, 0, rng) for kind in ("top", "always"))  # type: ignore[arg-type]
    assert np.array_equal(top.choice, every.choice)
    assert np.array_equal(top.spent, every.spent)


def test_a_coin_flip_pays_half_of_everything() -> None:
    """4,000 x 3 fair coins: six standard errors, so a false alarm once in 5e8."""
    one = instance(1, 4000, 3)
    cost = Baseline("", "coin").route(one, Costs([0.02] * 3), 0, np.random.default_rng(5)).spent.mean()
    error = 0.02 * np.sqrt(3 * 0.25 / 4000)
    assert abs(cost - 3 * 0.02 / 2) < 6 * error


@given(seeds)
def test_the_oracle_has_no_regret_and_nobody_has_less(seed: int) -> None:
    one = instance(seed, 15)
    runs = sweep(
        one, named(["oracle", "random", "coin flip", "margin on f"]), [0.01], lambda c: Costs([c] * 3), 0
    )
    for run in runs:
        assert run.outcomes.regret >= 0.0
        if run.arm == "oracle":
            assert run.outcomes.regret == run.outcomes.inspection_cost == 0.0


@given(seeds)
def test_the_best_single_gains_nothing_over_itself(seed: int) -> None:
    one = instance(seed, 15)
    done = Fixed("best single").route(one, Costs([0.01] * 3), 0, np.random.default_rng(0))
    means = Outcomes.of(done, one.test, one.standing.single).means()
    assert means["gain"] == means["fee_saving"] == 0.0


@given(seeds)
def test_gains_and_savings_are_what_is_left_after_looks(seed: int) -> None:
    """Prompt by prompt, in the words of the module: score, fee and what was spent of who was chosen."""
    readings, made = arrays(np.random.default_rng(seed), 20, 3), routed(seed, 20, 3)
    gained = saved = lost = 0.0
    for i, choice in enumerate(made.choice.tolist()):
        score, fee = float(readings.score[i, choice]), float(readings.fee[i, choice])
        kept = score - fee - float(made.spent[i])
        gained += kept - float(readings.reward[i, 1])
        saved += float(readings.fee[i, 1]) - fee - float(made.spent[i])
        lost += float(readings.reward[i].max()) - kept
    means = Outcomes.of(made, readings, 1).means()
    assert (20 * means["gain"], 20 * means["fee_saving"], 20 * means["total"]) == pytest.approx(
        (gained, saved, lost), abs=1e-12
    )


@given(seeds, st.integers(0, 60))
def test_budgets_are_kept(seed: int, budget: int) -> None:
    one = instance(seed, 20)
    for kind in ("random", "margin"):
        done = Baseline("", kind).route(one, Costs([0.01] * 3), budget, np.random.default_rng(0))  # type: ignore[arg-type]
        assert budget - 1 <= done.inspections.sum() <= budget or kind == "margin"
        assert done.inspections.sum() <= budget


@given(seeds)
def test_shared_costs_are_paid_once_a_group(seed: int) -> None:
    opened = np.random.default_rng(seed).random((12, 3)) < 0.5
    costs = Costs([0.01, 0.02, 0.0], shared=[0.1], group=[-1, 0, 0])
    expected = [0.01 * a + 0.02 * b + 0.1 * (b or c) for a, b, c in opened]
    assert bill(opened, costs) == pytest.approx(expected)


def test_adding_an_arm_changes_no_other() -> None:
    one = instance(3)
    few = sweep(one, named(["random"]), [0.01], lambda c: Costs([c] * 3), 7)
    more = sweep(
        one, named(["random", "coin flip", "random inspections on f"]), [0.01], lambda c: Costs([c] * 3), 7
    )
    assert {r.arm: r.outcomes for r in few}.items() <= {r.arm: r.outcomes for r in more}.items()
    assert few[0].arm == DEFAULT


@pytest.mark.parametrize("vector", of_kind("baseline"))
def test_baseline_vectors_through_this_room(vector: dict[str, Any]) -> None:
    given, out = vector["input"], vector["output"]
    f, g, r = (np.array(given[name], dtype=float) for name in ("F", "G", "R"))
    test = Readings(f, g, r)
    plan = Baseline("", "margin" if given["name"] == "margin" else "always")
    costs = Costs([given["cg"]] * f.shape[1])
    done = plan.route(Trial(test, test, Standing(0, 0)), costs, given.get("Npr", 0), np.random.default_rng(0))
    assert done.choice.tolist() == out["choice"]
    assert done.inspections.tolist() == out["queries"]
    means = Outcomes.of(done, test, 0).means()
    assert means["regret"] == pytest.approx(out["regret"])
    assert means["inspection_cost"] == pytest.approx(out["cost"])


def test_bad_input_is_told_plainly() -> None:
    with pytest.raises(UsageError, match="Did you mean 'never inspect'"):
        named(["never inspects"])
    with pytest.raises(UsageError, match="decisions on 4 prompts"):
        Outcomes.of(routed(0, 3, 2), arrays(np.random.default_rng(0), 4, 2), 0)
    with pytest.raises(UsageError, match="sets the budget"):
        sweep(instance(0), [Fixed("oracle")], [0.1], lambda c: Costs([c] * 3), 0)


def test_of_equally_cheap_specialists_the_better_one_is_called_the_cheapest() -> None:
    reward = np.array([[0.9, 0.2, 0.6, np.nan], [0.9, 0.4, 0.6, 0.5]])
    fee = np.array([[0.3, 0.1, 0.1, 0.1], [0.3, 0.1, 0.1, 0.1]])
    assert Standing.of(reward, fee) == Standing(single=0, cheapest=2)
    assert Standing.of(reward[:, ::-1], fee[:, ::-1]) == Standing(single=3, cheapest=1)
