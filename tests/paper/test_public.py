"""The arithmetic behind docs/public.md, against definitions written out."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from paper import public


def brute_area(cost: np.ndarray, quality: np.ndarray, low: float, high: float) -> float:
    """The best mixture of at most two points at each cost, on a grid."""
    heights = []
    for at in np.linspace(low, high, 401):
        best = max(
            (q for c, q in zip(cost, quality, strict=True) if c <= at + 1e-15), default=quality[cost.argmin()]
        )
        for i, j in itertools.permutations(range(len(cost)), 2):
            if cost[i] < at < cost[j]:
                share = (at - cost[i]) / (cost[j] - cost[i])
                best = max(best, (1.0 - share) * quality[i] + share * quality[j])
        heights.append(best)
    return float(np.trapezoid(heights, dx=1.0) / 400.0)


@pytest.mark.parametrize("seed", range(5))
def test_the_area_is_that_of_the_best_mixtures(seed: int) -> None:
    rng = np.random.default_rng(seed)
    cost, quality = rng.random(6), rng.random(6)
    low, high = float(cost.min()), float(cost.max())
    assert public.area(cost, quality, low, high) == pytest.approx(
        brute_area(cost, quality, low, high), abs=2e-3
    )


def test_the_mix_of_two_is_the_best_under_its_ceiling() -> None:
    """Three specialists: the middle one lies below the line between the others and is never used."""
    score, fee = np.array([0.2, 0.4, 1.0]), np.array([1.0, 3.0, 5.0])
    for ceiling, expected in ((0.5, [1.0, 0.0, 0.0]), (3.0, [0.5, 0.0, 0.5]), (9.0, [0.0, 0.0, 1.0])):
        np.testing.assert_allclose(public._mix(score, fee, ceiling), expected)


@pytest.mark.parametrize("ceiling", [0.9, 0.3, 0.07, 1e-4])
def test_the_price_of_a_dollar_is_the_lowest_that_keeps_the_ceiling(ceiling: float) -> None:
    """Costs that fall in steps, as choices of specialists do: below the price found the ceiling is broken."""

    def cost(price: float) -> float:
        return float(np.exp(-np.floor(20.0 * np.log1p(price)) / 20.0))

    found = public.lowest_price(cost, ceiling)
    assert cost(found) <= ceiling < cost(0.999 * found)


def test_a_price_is_given_where_nothing_keeps_the_ceiling() -> None:
    assert public.lowest_price(lambda price: 1.0, 0.5) == pytest.approx(1e6)
    assert public.lowest_price(lambda price: 0.0, 0.5) == 0.0


def test_a_gap_stands_where_its_error_puts_it() -> None:
    """Equal to its error is within it; every place is named once."""
    said = public.standing([("a", 1.0, 1.0), ("b", -1.1, 1.0), ("c", 1.1, 1.0), ("d", -1.0, 1.0)])
    assert (
        said == "ahead by more than one standard error at c; within one at a, d; behind by more than one at b"
    )
