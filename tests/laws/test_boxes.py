"""Laws of conditioning and sampling that hold for every kind of box."""

from __future__ import annotations

import dataclasses
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pandora_router.boxes import Boxes, Costs, Independent, Joint, Ladder
from pandora_router.boxes.base import discrete_backup_price
from pandora_router.boxes.joint import CorrelatedNormal
from pandora_router.errors import UsageError
from tests.support.instances import KINDS, ONE_TIER, Spec, make, specs


def first_value(spec: Spec, box: int) -> float:
    return float(np.ravel(spec.values[box])[-1])


@given(specs())
def test_every_kind_keeps_the_protocol(spec: Spec) -> None:
    boxes = spec.boxes()
    assert isinstance(boxes, Boxes)
    assert boxes.sealed.all()
    for part in (boxes.mean, boxes.inspection_cost, boxes.reservation_price(), boxes.backup_price()):
        assert part.shape == (len(spec.mean),)
    with pytest.raises((dataclasses.FrozenInstanceError, AttributeError)):
        boxes.mean = np.zeros(1)  # type: ignore[misc]
    with pytest.raises(ValueError, match="read-only"):
        boxes.mean[0] = 3.0


@given(specs())
def test_conditioning_returns_the_same_type_and_leaves_the_original_alone(spec: Spec) -> None:
    boxes = spec.boxes()
    before = boxes.mean.copy(), boxes.sealed.copy(), boxes.inspection_cost.copy()
    value = first_value(spec, 0)
    after = boxes.given(0, value)
    assert type(after) is type(boxes)
    assert after.mean[0] == value
    lost = boxes.without(0)
    assert type(lost) is type(boxes)
    assert not lost.sealed[0]
    np.testing.assert_array_equal(lost.mean, boxes.mean)
    for now, then in zip((boxes.mean, boxes.sealed, boxes.inspection_cost), before, strict=True):
        np.testing.assert_array_equal(now, then)


@given(specs(ONE_TIER))
def test_an_open_box_is_worth_its_value_and_nothing_else(spec: Spec) -> None:
    boxes = spec.boxes()
    last = len(spec.mean) - 1
    value = first_value(spec, last)
    after = boxes.given(last, value)
    assert not after.sealed[last]
    assert after.sealed[:last].all()
    assert after.reservation_price()[last] == after.backup_price()[last] == value
    assert after.gain(value - 0.5)[last] == pytest.approx(0.5)
    assert after.gain(value + 0.5)[last] == 0.0
    assert (after.sample(5, np.random.default_rng(0))[:, last] == value).all()
    for box, number in ((last, 0.1), (len(spec.mean), 0.1), (-1, 0.1)):
        with pytest.raises(UsageError):
            after.given(box, number)


@given(specs(ONE_TIER))
def test_a_lost_box_is_worth_its_mean(spec: Spec) -> None:
    lost = spec.boxes().without(0)
    assert lost.reservation_price()[0] == lost.backup_price()[0] == lost.mean[0] == spec.boxes().mean[0]
    assert lost.gain(float(lost.mean[0]) + 0.1)[0] == 0.0
    assert lost.gain(float(lost.mean[0]) - 0.1)[0] == pytest.approx(0.1)


@given(specs(ONE_TIER, smallest=2, largest=4))
def test_the_order_of_conditioning_is_irrelevant(spec: Spec) -> None:
    ends = []
    for order in list(permutations(range(min(3, len(spec.mean)))))[:4]:
        boxes = spec.boxes()
        for j in order:
            boxes = boxes.given(j, first_value(spec, j))
        ends.append(boxes)
    for other in ends[1:]:
        np.testing.assert_allclose(other.mean, ends[0].mean, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(
            other.reservation_price(), ends[0].reservation_price(), rtol=1e-8, atol=1e-8
        )
        np.testing.assert_array_equal(other.sealed, ends[0].sealed)
        np.testing.assert_allclose(other.inspection_cost, ends[0].inspection_cost)


@given(specs(("joint", "low rank")))
def test_news_is_the_only_thing_that_moves_a_mean_and_variances_only_fall(spec: Spec) -> None:
    boxes = spec.boxes()
    assert isinstance(boxes, CorrelatedNormal)
    same = boxes.given(0, float(boxes.mean[0]))
    assert isinstance(same, CorrelatedNormal)
    np.testing.assert_allclose(same.mean, boxes.mean, rtol=1e-14)
    assert (same.std <= boxes.std + 1e-15).all()
    assert same.std[0] == 0.0
    np.testing.assert_allclose(np.sqrt(np.diag(same.covariance)), same.std, atol=1e-9)
    np.testing.assert_allclose(same.column(0), 0.0, atol=1e-15)


# Samples: 4,000 outcomes; each comparison allows 5 standard errors, a false alarm of 6e-7 a comparison and
# below 1e-4 for all of a run, with fixed seeds on top.
N = 4000


@pytest.mark.parametrize("opened", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_samples_have_the_mean_and_the_gain_the_boxes_claim(kind: str, opened: bool) -> None:
    spec = make(kind, np.random.default_rng(11), 4)
    boxes = spec.boxes()
    if opened:
        boxes = boxes.given(1, first_value(spec, 1))
    draws = boxes.sample(N, np.random.default_rng(1))
    assert draws.shape == (N, 4)
    error = draws.std(axis=0) / np.sqrt(N)
    assert (np.abs(draws.mean(axis=0) - boxes.mean) <= 5.0 * error + 1e-9).all()
    if kind != "ladder":  # a ladder gains on the next purchase, not on the last tier
        over = np.maximum(draws - 0.55, 0.0)
        slack = 5.0 * over.std(axis=0) / np.sqrt(N) + 1e-9
        assert (np.abs(over.mean(axis=0) - boxes.gain(0.55)) <= slack).all()


@pytest.mark.parametrize("kind", ["joint", "low rank"])
def test_samples_have_the_covariance_the_boxes_claim(kind: str) -> None:
    boxes = make(kind, np.random.default_rng(2), 4).boxes().given(2, 0.9)
    assert isinstance(boxes, CorrelatedNormal)
    draws = boxes.sample(N, np.random.default_rng(3))
    truth = boxes.covariance
    size = np.sqrt(np.outer(np.diag(truth), np.diag(truth)))
    assert (np.abs(np.cov(draws.T) - truth) <= 5.0 * np.sqrt(2.0 / N) * size + 1e-12).all()


@pytest.mark.parametrize("kind", KINDS)
def test_total_expectation(kind: str) -> None:
    """Averaged over what box 0 may show, the posterior means are the prior means."""
    spec = make(kind, np.random.default_rng(4), 3)
    boxes = spec.boxes()
    rng = np.random.default_rng(5)
    if isinstance(boxes, Ladder):
        shown = boxes.paths(N, rng)[:, 0, boxes.next_tier[0] - 1]
    else:
        shown = boxes.sample(N, rng)[:, 0]
    means = np.stack([boxes.given(0, float(v)).mean for v in shown])
    error = means.std(axis=0) / np.sqrt(N)
    assert (np.abs(means.mean(axis=0) - boxes.mean) <= 5.0 * error + 1e-9).all()


def test_draws_condition_on_any_value_and_sampling_stays_on_the_draws() -> None:
    spec = make("draws", np.random.default_rng(6), 2)
    boxes = spec.boxes()
    draws = boxes.sample(200, np.random.default_rng(7))
    for j in range(2):
        assert set(draws[:, j]) == set(boxes.samples[j])  # type: ignore[attr-defined]
    assert boxes.given(0, 77.0).mean[0] == 77.0


# --- ladders ----------------------------------------------------------------------------------------------


def test_a_ladder_stays_sealed_until_its_last_tier() -> None:
    boxes = Ladder([0.5, 0.4], [[0.1, 0.2], [0.1, 0.2]], [[0.01, 0.03], [0.01, 0.03]], skip=False)
    assert boxes.next_tier.tolist() == [1, 1]
    assert boxes.inspection_cost.tolist() == [0.01, 0.01]
    np.testing.assert_allclose(boxes.std, [0.1, 0.1])
    one = boxes.given(0, 0.6)
    assert one.sealed.tolist() == [True, True]
    assert one.inspection_cost.tolist() == [0.03, 0.01]
    np.testing.assert_allclose(one.std, [0.2, 0.1])
    two = one.given(0, 0.3)
    assert two.sealed.tolist() == [False, True]
    assert two.std[0] == 0.0
    assert two.reservation_price()[0] == two.mean[0] == 0.3
    with pytest.raises(UsageError):
        two.given(0, 0.1)


def test_climbs_repeat_what_is_known() -> None:
    boxes = Ladder([0.5, 0.4], [[0.1, 0.2]] * 2, [[0.01, 0.03]] * 2, skip=False).given(0, 0.6)
    paths = boxes.paths(500, np.random.default_rng(0))
    assert paths.shape == (500, 2, 2)
    assert (paths[:, 0, 0] == 0.6).all()
    assert paths[:, 0, 1].std() == pytest.approx(0.2, rel=0.2)
    assert paths[:, 1, 1].std() == pytest.approx(np.hypot(0.1, 0.2), rel=0.2)
    assert (boxes.without(0).paths(5, np.random.default_rng(0))[:, 0] == 0.6).all()
    top = boxes.given(0, 0.7)
    assert (top.paths(5, np.random.default_rng(0))[:, 0] == 0.7).all()
    assert (top.sample(5, np.random.default_rng(0))[:, 0] == 0.7).all()


def test_a_ladder_that_lost_its_inspection_has_nothing_left_to_tell() -> None:
    """Lost half way up: worth its last estimate, at every price, for every outside option."""
    boxes = Ladder([0.5, 0.4], [[0.1, 0.2]] * 2, [[0.01, 0.03]] * 2, skip=False).given(0, 0.6).without(0)
    assert boxes.sealed.tolist() == [False, True]
    assert boxes.std[0] == 0.0
    assert boxes.gain(0.5)[0] == pytest.approx(0.1)
    assert boxes.reservation_price()[0] == boxes.backup_price()[0] == 0.6


# --- costs ------------------------------------------------------------------------------------------------


@given(specs(("independent",), grouped=True, smallest=2), st.randoms(use_true_random=False))
def test_the_shared_part_is_paid_once_per_group(spec: Spec, random: object) -> None:
    boxes = spec.boxes()
    order = np.random.default_rng(random.getrandbits(32)).permutation(len(spec.mean))  # type: ignore[attr-defined]
    bill = 0.0
    for j in order:
        bill += float(boxes.inspection_cost[j])
        boxes = boxes.given(int(j), 0.5)
    groups = {int(g) for g in spec.group if g >= 0}
    assert bill == pytest.approx(spec.own.sum() + sum(spec.shared[g] for g in groups))


def test_only_the_group_of_a_box_is_settled() -> None:
    costs = Costs([0.01, 0.02, 0.03, 0.04], [0.5, 0.7], [0, 1, 0, -1])
    assert costs.paid(0).marginal.tolist() == [0.01, 0.72, 0.03, 0.04]
    assert costs.paid(1).paid(3).marginal.tolist() == [0.51, 0.02, 0.53, 0.04]
    assert costs.marginal.tolist() == [0.51, 0.72, 0.53, 0.04]
    assert costs.mates(0).tolist() == [0, 2]
    assert costs.paid(2).mates(0).tolist() == [0]
    assert costs.mates(3).tolist() == [3]


def test_a_failed_inspection_also_pays_for_its_group() -> None:
    boxes = Independent([0.5, 0.4, 0.3], [0.1] * 3, Costs([0.01, 0.0, 0.02], [0.05], [0, 0, -1]))
    np.testing.assert_allclose(boxes.inspection_cost, [0.06, 0.05, 0.02])
    np.testing.assert_allclose(boxes.without(0).inspection_cost, [0.01, 0.0, 0.02])


def test_a_covariance_is_symmetric_but_for_rounding() -> None:
    """Judged in units of each box's own standard deviation: 1e-3 here, so an entry may be off by 1e-15."""
    for off, accepted in ((5e-16, True), (2e-15, False), (5e-14, False)):
        matrix = [[1e-6, 5e-7], [5e-7 + off, 1e-6]]
        if accepted:
            Joint([0.0, 0.0], matrix, 0.1)
        else:
            with pytest.raises(UsageError, match="a symmetric matrix"):
                Joint([0.0, 0.0], matrix, 0.1)


def test_the_backup_price_of_a_free_look_is_the_least_value_and_of_a_refunded_one_nothing() -> None:
    """E[(b - G)+] = 0 for b up to the least value; a look that is wholly refunded is free at any b."""
    support = np.array([[1.0, 2.0, 3.0]])
    assert discrete_backup_price(support, np.zeros(1)).tolist() == [1.0]
    assert discrete_backup_price(support, np.array([0.5]), 0.5).tolist() == [-np.inf]
