"""Laws of prices, gains and committing payoffs that hold for every kind of box."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from pandora_router.boxes import Independent, Joint
from pandora_router.index import PHI_0, price_offset, unit_loss
from pandora_router.search import Optimal, State, committing_payoffs
from tests.support.instances import KINDS, NORMAL, ONE_TIER, Spec, specs

reals = st.floats(-1e3, 1e3, allow_nan=False)
positive = st.floats(1e-6, 1e3)


def close(a: object, b: object, tolerance: float = 1e-12) -> None:
    np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


@given(specs((*NORMAL, "ladder")))
def test_prices_mirror_each_other_around_a_normal_mean(spec: Spec) -> None:
    boxes = spec.boxes()
    close(boxes.backup_price() + boxes.reservation_price(), 2.0 * boxes.mean)


@given(specs(ONE_TIER))
def test_prices_make_the_inspection_worth_its_cost(spec: Spec) -> None:
    """E[(G - u)+] = c and E[(b - G)+] = c, under the law the boxes carry."""
    boxes = spec.boxes()
    cost, u, b = boxes.inspection_cost, boxes.reservation_price(), boxes.backup_price()
    bought = cost > 0.0  # at cost 0 every u above the law will do
    close(boxes.gain(u)[bought], cost[bought], 1e-10)
    # E[(b - G)+] = E[(G - b)+] - (mean of the law - b), and the mean of the law is E[(G - v)+] + v, v low
    low = float(boxes.mean.min()) - 1e3
    close((boxes.gain(b) - (boxes.gain(low) + low - b))[bought], cost[bought], 1e-9)


@given(specs(ONE_TIER, smallest=1), st.floats(-3.0, 3.0))
def test_the_bidders_interval_is_backup_to_reservation_price(spec: Spec, at: float) -> None:
    """The value of information at a posted price p is at least c exactly for p in [b, u]."""
    boxes = spec.boxes()
    cost, u, b = boxes.inspection_cost, boxes.reservation_price(), boxes.backup_price()
    true_mean = boxes.gain(-1e3) - 1e3
    p = true_mean + at * spec.std
    worth = boxes.gain(p) - np.maximum(true_mean - p, 0.0)
    inside = (b <= p) & (p <= u)
    slack = 1e-10
    assert (worth[inside] >= cost[inside] - slack).all()
    assert (worth[~inside] <= cost[~inside] + slack).all()
    if spec.kind in NORMAL:
        empty = cost > boxes.std * PHI_0  # type: ignore[attr-defined]
        clear = np.abs(cost - boxes.std * PHI_0) > 1e-12  # type: ignore[attr-defined]
        assert ((b > u) == empty)[clear].all()


@given(specs(KINDS))
def test_gain_falls_with_the_outside_option_and_no_faster_than_it(spec: Spec) -> None:
    boxes = spec.boxes()
    grid = np.linspace(-1.0, 2.0, 31)
    gains = np.stack([boxes.gain(float(v)) for v in grid])
    assert (gains >= 0.0).all()
    falls = -np.diff(gains, axis=0)
    assert (falls >= -1e-14).all()
    assert (falls <= np.diff(grid)[:, None] + 1e-14).all()
    close(boxes.gain(grid[: len(boxes.mean)]), np.diag(gains[: len(boxes.mean)]))  # one option per box


@given(reals, positive, st.floats(0.0, 1e3))
def test_offsets_scale_and_stay_below_their_bounds(mean: float, std: float, cost: float) -> None:
    s, c = np.array([std]), np.array([cost])
    offset = float(price_offset(s, c)[0])
    assert float(price_offset(4.0 * s, 4.0 * c)[0]) == 4.0 * offset
    assert offset >= -cost  # u >= mean - c
    if np.isfinite(offset):
        assert std * float(unit_loss(offset / std)) == pytest.approx(cost, rel=1e-9, abs=1e-12 * std)
    del mean


@pytest.mark.parametrize(
    ("std", "cost", "u", "b"),
    [
        (0.0, 0.1, 0.4, 0.6),
        (0.2, 0.0, np.inf, -np.inf),
        (0.0, 0.0, 0.5, 0.5),
        (1e-3, 1.0, -0.5, 1.5),
        (1e-320, 1.0, -0.5, 1.5),
    ],
)
def test_edges_of_prices(std: float, cost: float, u: float, b: float) -> None:
    boxes = Independent([0.5], [std], cost)
    assert boxes.reservation_price()[0] == pytest.approx(u, rel=1e-15)
    assert boxes.backup_price()[0] == pytest.approx(b, rel=1e-15)


@given(specs(KINDS), st.floats(-100.0, 100.0))
def test_prices_move_with_the_rewards(spec: Spec, by: float) -> None:
    here, there = spec.boxes(), spec.shifted(by).boxes()
    close(there.reservation_price(), here.reservation_price() + by, 1e-11)
    close(there.backup_price(), here.backup_price() + by, 1e-11)
    close(there.gain(0.3 + by), here.gain(0.3), 1e-11)


@given(specs(KINDS), st.sampled_from([2.0**-20, 0.5, 2.0, 1024.0]))
def test_prices_scale_with_the_rewards(spec: Spec, k: float) -> None:
    here, there = spec.boxes(), spec.scaled(k).boxes()
    tight = 1e-15 if spec.kind != "ladder" else 1e-12
    np.testing.assert_allclose(there.reservation_price(), k * here.reservation_price(), rtol=tight)
    np.testing.assert_allclose(there.backup_price(), k * here.backup_price(), rtol=tight)
    np.testing.assert_allclose(there.gain(k * 0.3), k * here.gain(0.3), rtol=1e-14)


@given(specs(KINDS, largest=4), st.randoms(use_true_random=False))
def test_prices_do_not_care_about_the_order(spec: Spec, random: object) -> None:
    order = np.random.default_rng(random.getrandbits(32)).permutation(len(spec.mean))  # type: ignore[attr-defined]
    here, there = spec.boxes(), spec.permuted(order).boxes()
    close(there.reservation_price(), here.reservation_price()[order])
    close(there.backup_price(), here.backup_price()[order])


@given(specs(("independent",), grouped=False))
def test_a_diagonal_covariance_is_independence(spec: Spec) -> None:
    alone = spec.boxes()
    joint = Joint(spec.mean, np.diag(spec.std**2), spec.costs)
    for name in ("reservation_price", "backup_price"):
        close(getattr(joint, name)(), getattr(alone, name)())
    value = float(spec.values[0])
    close(joint.given(0, value).mean, alone.given(0, value).mean)
    close(committing_payoffs(joint), committing_payoffs(alone))


# --- what committing policies are worth -------------------------------------------------------------------


@given(specs(("independent", "draws"), grouped=False), st.floats(-0.5, 1.5))
def test_holding_at_the_mean_is_never_worse_than_at_the_backup_price(spec: Spec, best: float) -> None:
    boxes = spec.boxes()
    for in_hand in (-np.inf, best):
        by_mean = committing_payoffs(boxes, "mean", in_hand)
        by_backup = committing_payoffs(boxes, "backup", in_hand)
        assert by_mean[0] == pytest.approx(by_backup[0], rel=1e-12)
        assert (by_mean >= by_backup - 1e-12).all()


@given(specs(("independent",), grouped=False, largest=3))
def test_the_optimum_lies_between_committing_and_obligatory_plus_the_highest_cost(spec: Spec) -> None:
    boxes = spec.boxes()
    optimum = Optimal(points=1001).value(State(boxes, spec.outside))
    payoffs = committing_payoffs(boxes, "mean", spec.outside)
    assert payoffs.max() <= optimum + 1e-6
    assert optimum <= payoffs[0] + boxes.inspection_cost.max() + 1e-6
    assert optimum >= max(boxes.mean.max(), spec.outside)
    # every committing policy is worth at most the obligatory one plus the cost it saves
    assert payoffs[1:].max() <= payoffs[0] + boxes.inspection_cost.max() + 1e-12


@given(specs(ONE_TIER, grouped=False), st.floats(-50.0, 50.0), st.sampled_from([0.25, 8.0]))
def test_payoffs_move_and_scale_with_the_rewards(spec: Spec, by: float, k: float) -> None:
    here = committing_payoffs(spec.boxes(), "backup", spec.outside)
    moved = spec.shifted(by)
    close(committing_payoffs(moved.boxes(), "backup", moved.outside), here + by, 1e-11)
    scaled = spec.scaled(k)
    close(committing_payoffs(scaled.boxes(), "backup", scaled.outside), k * here, 1e-13)


@given(specs(ONE_TIER, grouped=False, smallest=2), st.sampled_from(["mean", "backup"]))
def test_payoffs_do_not_care_about_the_order(spec: Spec, outside: str) -> None:
    order = np.arange(len(spec.mean))[::-1]
    here = committing_payoffs(spec.boxes(), outside, spec.outside)  # type: ignore[arg-type]
    there = committing_payoffs(spec.permuted(order).boxes(), outside, spec.outside)  # type: ignore[arg-type]
    close(there, np.append(here[0], here[1:][order]))


@given(specs(ONE_TIER, grouped=False, smallest=2))
def test_what_is_in_hand_never_hurts(spec: Spec) -> None:
    boxes = spec.boxes()
    levels = [-np.inf, *np.linspace(-0.5, 1.5, 9)]
    payoffs = np.stack([committing_payoffs(boxes, "mean", v) for v in levels])
    assert (np.diff(payoffs, axis=0) >= -1e-12).all()
    assume(np.isfinite(payoffs[1:]).all())
    assert (payoffs[1:] >= np.array(levels[1:])[:, None] - 1e-12).all()
