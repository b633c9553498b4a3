"""What holds for every signal model: valid boxes, batches that agree, and no favourite among specialists."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pandora_router.boxes import Boxes, Costs, Draws, Independent, Joint, LowRank
from pandora_router.calibrate import (
    Auto,
    Calibrated,
    Candidate,
    CheapMean,
    EmpiricalDraws,
    FittedSignal,
    GaussianIndependent,
    GaussianJoint,
    NeighbourSignal,
    Unfitted,
    candidates,
    cross_check,
    extend,
    load,
    save,
)
from pandora_router.calibrate.laws import cut, law_of
from pandora_router.calibrate.readings import Readings
from pandora_router.calibrate.residuals import classify
from pandora_router.calibrate.signal_states import signal_of, state
from pandora_router.calibrate.ways import decide
from pandora_router.folders.saved import Saved
from pandora_router.search import Always, KnowledgeGradient, Never, Rollout, drive, reveal, run

SIGNALS: dict[str, Unfitted] = {
    "calibrated": Calibrated(),
    "constant scale": Calibrated(scale="constant"),
    "no correlation": Calibrated(correlation="none"),
    "no slope": Calibrated(slope=False),
    "normal law": Calibrated(law="normal"),
    "law of levels": Calibrated(law="levels"),
    "identity mean": Calibrated(mean=CheapMean()),
    "independent": GaussianIndependent(),
    "joint": GaussianJoint(),
    "neighbours": NeighbourSignal(),
    "draws": EmpiricalDraws(),
}
every_signal = pytest.mark.parametrize("signal", SIGNALS.values(), ids=SIGNALS.keys())


def generate(n: int = 240, m: int = 3, seed: int = 0, missing: float = 0.0) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(seed)
    f = rng.random((n, m))
    mu = 0.1 + 0.6 * f + 0.2 * f.mean(axis=1, keepdims=True)
    e = 0.8 * rng.standard_normal((n, 1)) + 0.6 * rng.standard_normal((n, m))
    g = mu + (0.05 + 0.5 * mu * (1.0 - mu)) * e
    r = mu + 0.6 * (g - mu) + 0.1 * rng.standard_normal((n, m))
    g[rng.random(g.shape) < missing] = np.nan
    r[rng.random(r.shape) < missing] = np.nan
    return f, g, r


@every_signal
@pytest.mark.parametrize("missing", [0.0, 0.2])
def test_boxes_are_valid_and_searchable(signal: Unfitted, missing: float) -> None:
    fitted = signal.fit(Readings(*generate(missing=missing)))
    boxes = fitted.boxes([0.2, 0.5, 0.9], 0.01)
    assert isinstance(boxes, Boxes)
    price = boxes.reservation_price()
    assert np.isfinite(price).all()
    assert (boxes.gain(boxes.mean) > 0.0).all()
    np.testing.assert_allclose(boxes.gain(price), 0.01, atol=1e-9)
    assert (boxes.given(1, 0.5).sealed == [True, False, True]).all()
    assert boxes.sample(5, np.random.default_rng(0)).shape == (5, 3)


def test_each_model_makes_its_own_kind_of_boxes() -> None:
    data = generate()
    made = {name: type(SIGNALS[name].fit(Readings(*data)).boxes([0.2, 0.5, 0.9], 0.01)) for name in SIGNALS}
    assert made["calibrated"] is made["joint"] is made["no correlation"] is Joint
    assert made["independent"] is made["neighbours"] is Independent
    assert made["draws"] is Draws
    many = Calibrated().fit(Readings(*generate(120, 51)))
    assert isinstance(many.boxes(np.full(51, 0.5), 0.01), LowRank)


@every_signal
def test_a_row_of_a_batch_is_the_boxes_of_that_prompt(signal: Unfitted) -> None:
    fitted = signal.fit(Readings(*generate()))
    f, g, _ = generate(30, seed=1)
    costs = Costs([0.01, 0.02, 0.0], shared=[0.03], group=[-1, 0, 0])
    batch = fitted.batch(f, costs)
    values = fitted.values(f, g)
    for i in range(len(f)):
        prior = fitted.prior(f[i], costs)
        alone, row = prior.boxes, batch.state(i).boxes
        np.testing.assert_allclose(row.mean, alone.mean, atol=1e-12)
        np.testing.assert_allclose(row.inspection_cost, alone.inspection_cost)
        np.testing.assert_allclose(row.reservation_price(), alone.reservation_price(), atol=1e-9)
        np.testing.assert_allclose(row.backup_price(), alone.backup_price(), atol=1e-9)
        np.testing.assert_allclose(row.given(0, 0.7).mean, alone.given(0, 0.7).mean, atol=1e-9)
        for j in range(3):
            assert prior.value(j, g[i, j]) == pytest.approx(values[i, j], abs=1e-12)


def test_low_rank_rows_agree_too() -> None:
    data = generate(120, 55)
    fitted = Calibrated().fit(Readings(*data))
    batch = fitted.batch(data[0][:4], 0.01)
    for i in range(4):
        alone, row = fitted.boxes(data[0][i], 0.01), batch.state(i).boxes
        assert isinstance(alone, LowRank)
        assert isinstance(row, Joint)
        np.testing.assert_allclose(row.covariance, alone.covariance, atol=1e-12)
        np.testing.assert_allclose(row.given(7, 0.2).mean, alone.given(7, 0.2).mean, atol=1e-9)


@every_signal
def test_searching_a_batch_decides_as_driving_each_prompt(signal: Unfitted) -> None:
    fitted = signal.fit(Readings(*generate()))
    f, g, _ = generate(25, seed=2)
    values = fitted.values(f, g)
    done = run(KnowledgeGradient(), fitted.batch(f, 0.02), values, threads=1)
    for i in range(len(f)):
        trace = drive(KnowledgeGradient(), fitted.batch(f, 0.02).state(i), reveal(values[i]))
        assert trace.selected == done.choice[i]
        assert trace.spent == pytest.approx(done.spent[i])


def same(one: FittedSignal, two: FittedSignal) -> None:
    arrays, copies = arrays_of(state(one)), arrays_of(state(two))
    assert state(one).settings == state(two).settings
    assert arrays.keys() == copies.keys()
    for name in arrays:
        np.testing.assert_array_equal(arrays[name], copies[name])


def arrays_of(saved: Saved, prefix: str = "") -> dict[str, np.ndarray]:
    found = {f"{prefix}{name}": array for name, array in saved.arrays.items()}
    for name, part in saved.parts.items():
        found |= arrays_of(part, f"{prefix}{name}.")
    return found


def test_with_every_part_off_it_is_the_papers_model() -> None:
    data = generate(missing=0.1)
    off = Calibrated(scale="constant", slope=False, law="normal")
    same(off.fit(Readings(*data)), GaussianJoint().fit(Readings(*data)))
    same(replace(off, correlation="none").fit(Readings(*data)), GaussianIndependent().fit(Readings(*data)))


def test_the_slope_only_rescales_what_is_shown() -> None:
    data = generate()
    on, off = Calibrated().fit(Readings(*data)), Calibrated(slope=False).fit(Readings(*data))
    assert on.slope != 1.0
    with_slope, without = on.boxes([0.2, 0.5, 0.9], 0.01), off.boxes([0.2, 0.5, 0.9], 0.01)
    assert isinstance(with_slope, Joint)
    assert isinstance(without, Joint)
    np.testing.assert_array_equal(with_slope.mean, without.mean)
    np.testing.assert_allclose(with_slope.covariance, on.slope**2 * without.covariance)
    np.testing.assert_allclose(
        on.values(*data[:2]) - on.expected(data[0]),
        on.slope * (off.values(*data[:2]) - off.expected(data[0])),
        atol=1e-12,
    )


@every_signal
def test_a_saved_model_decides_the_same(signal: Unfitted, tmp_path: Path) -> None:
    fitted = signal.fit(Readings(*generate(missing=0.1)))
    save(fitted, tmp_path / "signal")
    again = load(tmp_path / "signal")
    f, g, _ = generate(200, seed=3)
    before = run(KnowledgeGradient(), fitted.batch(f, 0.01), fitted.values(f, g), threads=1)
    after = run(KnowledgeGradient(), again.batch(f, 0.01), again.values(f, g), threads=1)
    for name in ("choice", "spent", "order", "stage"):
        np.testing.assert_array_equal(getattr(before, name), getattr(after, name))
    np.testing.assert_array_equal(fitted.expected(f), again.expected(f))
    np.testing.assert_array_equal(fitted.spread(f), again.spread(f))


def test_packing_forgets_nothing() -> None:
    for m in (3, 52):
        fitted = Calibrated().fit(Readings(*generate(150, m)))
        again = signal_of(state(fitted))
        assert isinstance(again, FittedSignal)
        same(fitted, again)


@every_signal
def test_permuting_specialists_permutes_everything(signal: Unfitted) -> None:
    f, g, r = generate(missing=0.1)
    order = np.array([2, 0, 1])
    plain, moved = signal.fit(Readings(f, g, r)), signal.fit(Readings(f[:, order], g[:, order], r[:, order]))
    rows, shown, _ = generate(60, seed=4)
    np.testing.assert_allclose(moved.expected(rows[:, order]), plain.expected(rows)[:, order], atol=1e-9)
    np.testing.assert_allclose(moved.spread(rows[:, order]), plain.spread(rows)[:, order], atol=1e-8)
    a = run(KnowledgeGradient(), plain.batch(rows, 0.01), plain.values(rows, shown), threads=1)
    b = run(
        KnowledgeGradient(),
        moved.batch(rows[:, order], 0.01),
        moved.values(rows[:, order], shown[:, order]),
        threads=1,
    )
    np.testing.assert_array_equal(a.choice, order[b.choice])
    np.testing.assert_allclose(a.spent, b.spent)


@settings(deadline=None, max_examples=40)
@given(st.integers(8, 60), st.integers(1, 5), st.integers(0, 10**6), st.floats(0.0, 0.3), st.booleans())
def test_any_data_gives_finite_boxes(n: int, m: int, seed: int, missing: float, coarse: bool) -> None:
    rng = np.random.default_rng(seed)
    f = rng.integers(0, 4, (n, m)) / 3.0 if coarse else rng.random((n, m))
    g = rng.integers(0, 2, (n, m)).astype(float) if coarse else f + 0.1 * rng.standard_normal((n, m))
    g[8:][rng.random((n - 8, m)) < missing] = np.nan
    fitted = Calibrated().fit(Readings(f, g, g))
    for row in f[:5]:
        boxes = fitted.boxes(row, 0.01)
        assert np.isfinite(boxes.reservation_price()).all()
        assert np.isfinite(boxes.given(0, 0.3).mean).all()


def test_perfect_and_constant_estimates_do_not_break_a_fit() -> None:
    rng = np.random.default_rng(5)
    f = rng.random((50, 2))
    for g in (f, np.full((50, 2), 0.4), np.round(f)):
        assert np.isfinite(
            Calibrated().fit(Readings(f, g, g)).boxes([0.1, 0.2], 0.01).reservation_price()
        ).all()
    constant = Calibrated().fit(Readings(np.full((50, 2), 0.5), f, f))
    np.testing.assert_allclose(constant.expected([[0.5, 0.5]])[0], f.mean(axis=0))


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=300))
def test_a_law_is_standardised_and_sorted(residuals: list[float]) -> None:
    law = law_of(np.array(residuals))
    assert len(law) == 32
    assert (np.diff(law) >= 0.0).all()
    assert law.mean() == pytest.approx(0.0, abs=1e-9)
    assert law.std() == pytest.approx(1.0)


@given(st.lists(st.integers(0, 6), min_size=1, max_size=60), st.integers(1, 5))
def test_edges_never_fall_on_a_mean(means: list[int], classes: int) -> None:
    mean = np.array(means, dtype=float)[:, None]
    edges = cut(mean, np.ones(mean.shape, dtype=bool), classes)
    near = np.abs(mean - edges[0][None])
    if len(set(means)) > 1:
        assert near.size == 0 or near.min() > 0.1
    assert classify(mean, edges).max() < classes


def test_adding_a_specialist_changes_no_colleague() -> None:
    for part in (Calibrated(), GaussianJoint(), GaussianIndependent(), Calibrated(mean=CheapMean())):
        known = part.fit(Readings(*generate(300, 3)))
        f, g, _ = generate(40, 4, seed=6)
        g[::2, 1] = np.nan
        grown = extend(known, Readings(f, g))
        before, after = arrays_of(state(known)), arrays_of(state(grown))
        assert before.keys() == after.keys()
        for name, old in before.items():
            if name != "laws.quantiles":
                assert after[name].shape != old.shape
            corner = tuple(slice(size) for size in old.shape)
            np.testing.assert_array_equal(after[name][corner], old, err_msg=name)
        assert grown.slope == known.slope
        np.testing.assert_allclose(grown.expected(f)[:, :3], known.expected(f[:, :3]), atol=1e-12)
        boxes = grown.boxes([0.1, 0.5, 0.7, 0.6], 0.01)
        assert np.isfinite(boxes.reservation_price()).all()


def test_adding_to_many_specialists_keeps_the_factors() -> None:
    known = Calibrated().fit(Readings(*generate(200, 52)))
    f, g, _ = generate(40, 53, seed=7)
    grown = extend(known, Readings(f, g))
    assert known.correlation is not None
    assert grown.correlation is not None
    assert grown.correlation.factor is not None
    np.testing.assert_array_equal(grown.correlation.factor[:-1], known.correlation.factor)
    np.testing.assert_array_equal(grown.correlation.matrix[:-1, :-1], known.correlation.matrix)
    assert isinstance(grown.boxes(f[0], 0.01), LowRank)


def test_static_policies_are_what_a_search_with_them_does() -> None:
    fitted = Calibrated().fit(Readings(*generate()))
    f, g, _ = generate(20, seed=8)
    for costs in (Costs([0.01, 0.02, 0.03]), Costs([0.01, 0.0, 0.0], shared=[0.05], group=[-1, 0, 0])):
        for policy in (Never(), Always()):
            batch, values = fitted.batch(f, costs), fitted.values(f, g)
            routed = decide(policy, batch, values)
            plain = run(policy, batch, values)
            np.testing.assert_array_equal(routed.choice, plain.choice)
            np.testing.assert_allclose(routed.spent, plain.spent)
            np.testing.assert_array_equal(routed.inspections, plain.inspections)


def test_auto_never_inspects_when_it_is_dear_and_keeps_its_evidence() -> None:
    data = generate(200, missing=0.02)
    telling = (data[0], data[2] + 0.3 * np.random.default_rng(9).standard_normal(data[2].shape))
    dear, free = Auto().choose(Readings(*data), 1.0), Auto().choose(Readings(*telling, telling[1]), 0.0)
    by_name = {one.name: one for one in dear.evidence}
    assert {one.inspections for one in dear.evidence if one.name != "always inspect"} == {0.0}
    assert by_name[dear.candidate.name].loss == min(one.loss for one in dear.evidence)
    assert by_name["always inspect"].inspection_cost == pytest.approx(3.0)
    assert next(one for one in free.evidence if one.name == free.candidate.name).inspections > 0.0
    assert {one.name for one in dear.evidence} == {one.name for one in candidates()}
    assert dear.prompts + dear.incomplete == 200
    assert dear.incomplete > 0
    told = dear.to_dict()
    assert told["chosen"] == dear.candidate.name
    assert len(told["evidence"]) == len(candidates())


def test_auto_depends_on_nothing_but_data_and_seed() -> None:
    data = generate(120)
    runners = tuple(
        Candidate(name, GaussianJoint(), policy)
        for name, policy in (("never", Never()), ("rollout", Rollout()), ("gradient", KnowledgeGradient()))
    )
    one, two = Auto(runners).choose(Readings(*data), 0.01), Auto(runners).choose(Readings(*data), 0.01)
    assert one.evidence == two.evidence
    thrifty = Auto(runners, rule="one_standard_error").choose(Readings(*data), 0.01)
    taken = {e.name: e for e in thrifty.evidence}[thrifty.candidate.name]
    assert taken.behind <= taken.behind_error
    assert taken.inspections <= {e.name: e for e in one.evidence}[one.candidate.name].inspections


def test_auto_chooses_the_same_with_models_fitted_before() -> None:
    data, fits = generate(120), dict[Any, Any]()
    for cost in (0.001, 0.01, 0.1):
        alone, again = Auto().choose(Readings(*data), cost), Auto().choose(Readings(*data), cost, fits)
        assert alone.evidence == again.evidence
        assert alone.candidate == again.candidate
        np.testing.assert_array_equal(alone.signal.expected(data[0]), again.signal.expected(data[0]))
    assert len({signal for signal, _ in fits}) == len({one.signal for one in candidates()})


def test_a_check_is_plain_data() -> None:
    told = cross_check(Calibrated(), Readings(*generate(missing=0.1))).to_dict()
    assert told["missing_costly"] > 0
    assert set(told["mse"]) == {"training mean", "f", "h(f)", "g"}
    assert len(told["coverage_1_by_specialist"]) == 3
    alone = cross_check(Calibrated(), Readings(*generate(m=1))).to_dict()
    assert alone["residual_correlation"] is None
