"""Offsets of ladders against a dense grid and against simulation, with and without skipping."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import pytest
from scipy.integrate import quad

from pandora_router.boxes import Independent, Ladder
from pandora_router.index import ladder_offsets, price_offset, unit_loss

LADDERS = (
    ([0.1, 0.2], [0.01, 0.03]),
    ([0.2, 0.1], [0.02, 0.02]),
    ([0.15, 0.1, 0.2], [0.005, 0.01, 0.03]),
    ([0.2, 0.2, 0.05], [0.01, 0.04, 0.041]),
    ([0.1, 0.1], [0.5, 0.4]),
)


def worth_on_a_grid(
    s: list[float], c: list[float], skip: bool
) -> tuple[np.ndarray, list[np.ndarray], np.ndarray]:
    """V_t on a dense grid of d by brute-force dynamic programming: expectation by summing normal weights."""
    total = float(np.sqrt(np.sum(np.square(s))) + sum(c))
    d = np.linspace(-6.0 * total, 6.0 * total, 4001)
    h = d[1] - d[0]
    worth = [np.zeros(0)] * len(s) + [np.maximum(d, 0.0)]
    offsets = np.empty(len(s))
    for t in reversed(range(len(s))):
        best = np.full(len(d), -np.inf)
        for k in range(t + 1, len(s) + 1) if skip else (t + 1,):
            std = float(np.sqrt(np.sum(np.square(s[t:k]))))
            reach = int(np.ceil(8.0 * std / h))
            weights = np.exp(-0.5 * (np.arange(-reach, reach + 1) * h / std) ** 2)
            weights /= weights.sum()
            padded = np.concatenate([np.zeros(reach), worth[k], worth[k][-1] + h * np.arange(1, reach + 1)])
            best = np.maximum(best, np.convolve(padded, weights, mode="valid") - c[k - 1])
        crossing = int(np.argmax(best > 0.0))
        offsets[t] = -(d[crossing] - h * best[crossing] / (best[crossing] - best[crossing - 1]))
        worth[t] = np.maximum(best, 0.0)
    return d, worth, offsets


@pytest.mark.parametrize("skip", [False, True])
@pytest.mark.parametrize(("stds", "costs"), LADDERS)
def test_offsets_against_a_dense_grid(stds: list[float], costs: list[float], skip: bool) -> None:
    """A grid of 4,001 points is good to about 1e-4 of the range; it sees the same offsets and plan."""
    offsets, plan = ladder_offsets(stds, costs, skip=skip)
    _, _, grid = worth_on_a_grid(stds, costs, skip)
    np.testing.assert_allclose(offsets, grid, atol=2e-4)
    assert (plan > np.arange(len(stds))).all()
    assert (plan <= len(stds)).all()
    if not skip:
        assert plan.tolist() == list(range(1, len(stds) + 1))


def test_two_tiers_by_monte_carlo() -> None:
    """At the indifference point the expected gain of the first purchase is its cost.

    See docs/method.md, section 6.
    """
    s, c = [0.1, 0.2], [0.01, 0.03]
    (w0, _), _ = ladder_offsets(s, c, skip=False)
    m1 = s[0] * np.random.default_rng(0).standard_normal(400_000) - w0
    gain = np.maximum(s[1] * unit_loss(-m1 / s[1]) - c[1], 0.0)
    assert abs(gain.mean() - c[0]) <= 5.0 * gain.std() / np.sqrt(len(gain))


def test_skipping_never_lowers_an_offset_and_takes_the_better_way() -> None:
    for s, c in LADDERS:
        plain, _ = ladder_offsets(s, c, skip=False)
        free, plan = ladder_offsets(s, c)
        assert (free >= plain - 1e-12).all()
        straight = float(price_offset(np.array([np.linalg.norm(s)]), np.array([c[-1]]))[0])
        assert free[0] >= straight - 1e-9
        if plan[0] == len(s):
            assert free[0] == pytest.approx(straight, rel=1e-9)


def test_a_ladder_of_one_tier_is_a_box() -> None:
    ladder = Ladder([0.5, 0.4], [[0.2], [0.3]], [[0.01], [0.05]])
    box = Independent([0.5, 0.4], [0.2, 0.3], [0.01, 0.05])
    np.testing.assert_allclose(ladder.reservation_price(), box.reservation_price(), rtol=1e-14)
    np.testing.assert_allclose(ladder.backup_price(), box.backup_price(), rtol=1e-14)
    np.testing.assert_allclose(ladder.gain(0.6), box.gain(0.6), rtol=1e-14)


def test_a_tier_that_is_nearly_free_and_nearly_perfect_makes_the_rest_worthless() -> None:
    offsets, plan = ladder_offsets([0.3, 0.001], [1e-6, 0.2])
    assert plan[0] == 1
    assert offsets[0] < ladder_offsets([0.3], [1e-6])[0][0]


@pytest.mark.parametrize(
    ("stds", "costs", "expected"),
    [
        ([0.1, 0.2], [10.0, 10.0], [-20.0, -10.0]),
        ([0.1, 0.2], [1e6, 1e6], [-2e6, -1e6]),
        ([0.1, 0.2], [0.0, 1e3], [np.inf, -1e3]),
        ([0.1, 0.2], [0.0, 0.0], [np.inf, np.inf]),
        ([1e-3, 0.3, 0.3], [1e4, 1e4, 1e4], [-3e4, -2e4, -1e4]),
    ],
)
def test_prohibitive_and_free_tiers(stds: list[float], costs: list[float], expected: list[float]) -> None:
    """Costs far beyond the steps add up; a free tier is always bought. In little memory."""
    offsets, _ = ladder_offsets(stds, costs, skip=False)
    np.testing.assert_allclose(offsets, expected, rtol=1e-9)


def test_of_tiers_that_are_free_the_last_is_bought_at_once() -> None:
    """It reveals all that the others would; a free tier before one that costs something is bought first."""
    assert ladder_offsets([0.1, 0.2, 0.3], [0.0, 0.0, 0.0])[1].tolist() == [3, 3, 3]
    assert ladder_offsets([0.1, 0.2, 0.3], [0.0, 0.0, 0.01])[1].tolist() == [2, 2, 3]


def test_steps_of_very_different_size() -> None:
    """Ten digits where one step is a thousandth of the other."""
    offsets, _ = ladder_offsets([1e-3, 0.3], [1e-9, 0.01], skip=False)
    alone = float(price_offset(np.array([0.3]), np.array([0.01]))[0])
    assert offsets[1] == pytest.approx(alone, rel=1e-14)
    assert abs(offsets[0] - alone) < 5e-3
    scaled, _ = ladder_offsets([1e-9, 3e-7], [1e-15, 1e-8], skip=False)
    np.testing.assert_allclose(scaled * 1e6, offsets, rtol=1e-10)


@pytest.mark.parametrize("skip", [False, True])
def test_searching_one_ladder_against_an_outside_option_earns_the_worth_of_the_grid(skip: bool) -> None:
    """Driving the box itself earns V_0: 4,000 climbs, 5 standard errors, and the grid's own 1e-3."""
    from pandora_router.search import Obligatory, State, drive, reveal

    s, c = [0.1, 0.2], [0.008, 0.03]
    d, worth, _ = worth_on_a_grid(s, c, skip)
    boxes = Ladder([0.5], [s], [c], skip=skip)
    state = State(boxes, 0.45)
    earned = []
    for path in boxes.paths(4000, np.random.default_rng(6)):
        trace = drive(Obligatory(), state, reveal(path))
        earned.append((0.45 if trace.selected < 0 else path[0, -1]) - trace.spent)
    truth = 0.45 + float(np.interp(0.05, d, worth[0]))
    slack = 5.0 * np.std(earned) / np.sqrt(len(earned)) + 1e-3
    if skip:  # the plan is the one that is best where the box is marginal, not everywhere
        assert np.mean(earned) <= truth + slack
    else:
        assert abs(np.mean(earned) - truth) <= slack


# --- against mpmath ---------------------------------------------------------------------------------------


def psi(t: Any) -> Any:
    return mpmath.npdf(t) - t * mpmath.ncdf(-t)


def price(std: float, cost: float) -> Any:
    """s T(c/s) by Newton's method on the convex, falling psi, from the left of its root."""
    y = mpmath.mpf(cost) / std
    t = -1 - y
    for _ in range(200):
        step = (psi(t) - y) / mpmath.ncdf(-t)
        t += step
        if abs(step) < mpmath.mpf(10) ** (3 - mpmath.mp.dps):
            return std * t
    raise AssertionError("no root")


def off_by(surplus: Callable[[Any], Any], w: float) -> float:
    """How far w is from the root of `surplus`, by one Newton step."""
    h = mpmath.mpf(10) ** -9
    slope = (surplus(mpmath.mpf(w) + h) - surplus(mpmath.mpf(w) - h)) / (2 * h)
    return abs(float(surplus(mpmath.mpf(w)) / slope))


def expectation(f: Callable[[Any], Any], start: Any, width: float) -> Any:
    """E[f(Z) 1{Z > start}] for a standard normal Z and an f that bends within `width` above `start`."""
    inner = [start + width * k for k in (0, 1, 3, 9, 27)]
    edges = sorted({*inner, *(mpmath.mpf(z) for z in range(-12, 13, 3))})
    edges = [e for e in edges if start <= e <= 12]
    return mpmath.quad(lambda z: f(z) * mpmath.npdf(z), edges) if len(edges) > 1 else mpmath.mpf(0)


@pytest.mark.parametrize("costs", [(0.02, 0.01), (1e-4, 0.05), (0.1, 1e-3)])
@pytest.mark.parametrize("ratio", [0.02, 0.2, 1.0, 6.0, 50.0])
def test_two_tiers_against_mpmath(ratio: float, costs: tuple[float, float]) -> None:
    """A first step much narrower or much wider than the second, skipped or not: 13 digits."""
    s, c = (0.3, 0.3 / ratio), costs
    plain, _ = ladder_offsets(s, c, skip=False)
    free, plan = ladder_offsets(s, c, skip=True)
    with mpmath.workdps(25):
        last, straight = price(s[1], c[1]), price(float(np.hypot(*s)), c[1])

        def surplus(w: Any) -> Any:
            worth = lambda z: s[1] * psi((w - s[0] * z) / s[1]) - c[1]  # noqa: E731
            return expectation(worth, (w - last) / s[0], s[1] / s[0]) - c[0]

        assert off_by(surplus, float(plain[0])) <= 1e-13 * max(s)
    assert plain[1] == free[1] == pytest.approx(float(last), rel=1e-13, abs=0.0)
    assert free[0] == pytest.approx(max(float(plain[0]), float(straight)), rel=1e-13, abs=0.0)
    assert plan[0] == (1 if plain[0] > straight else 2)


def test_a_wide_step_before_a_narrow_one() -> None:
    """The value of mpmath in 18 digits."""
    offsets, _ = ladder_offsets([0.3, 0.05], [0.02, 0.01], skip=False)
    assert offsets[0] == pytest.approx(0.327896140837139722, rel=1e-13, abs=0.0)


def test_three_tiers_against_nested_quadrature() -> None:
    """Ever narrower steps: the gain of the first purchase at its offset is its cost."""
    s, c = (0.3, 0.05, 0.03), (0.02, 0.004, 0.003)
    offsets, _ = ladder_offsets(s, c, skip=False)
    second, third = float(offsets[1]), float(offsets[2])

    def after_two(d: float) -> float:
        return float(s[2] * unit_loss(-d / s[2])) - c[2]

    def after_one(d: float) -> float:
        start = (-third - d) / s[1]
        return expected(lambda z: after_two(d + s[1] * z), start) - c[1]

    def expected(f: Callable[[float], float], start: float) -> float:
        density = lambda z: f(z) * np.exp(-0.5 * z * z) / np.sqrt(2.0 * np.pi)  # noqa: E731
        low = max(start, -9.0)
        return float(quad(density, low, 9.0, epsabs=1e-13, epsrel=1e-11, limit=200)[0]) if low < 9.0 else 0.0

    w = float(offsets[0])
    gain = expected(lambda z: after_one(s[0] * z - w), (w - second) / s[0])
    assert gain == pytest.approx(c[0], rel=1e-9)
