"""Exact sums against the fractions module and math.fsum."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from pandora_router.evaluate.outcomes import UNIT, exact_sums, rounded

numbers = st.floats(allow_nan=False, allow_infinity=False)
matrices = st.tuples(st.integers(1, 4), st.integers(0, 30)).flatmap(
    lambda s: arrays(np.float64, s, elements=numbers)
)


@given(matrices)
def test_sums_are_exact_for_every_finite_double(values: np.ndarray) -> None:
    for row, total in zip(values, exact_sums(values), strict=True):
        assert Fraction(total, 1 << UNIT) == sum(map(Fraction, row.tolist()), Fraction(0))


@given(arrays(np.float64, st.integers(1, 60), elements=st.floats(-1e200, 1e200)), st.integers(0, 60))
def test_any_cut_gives_the_sum_rounded_once(values: np.ndarray, cut: int) -> None:
    parts = [exact_sums(part[None])[0] for part in (values[:cut], values[cut:])]
    assert rounded(sum(parts)) == math.fsum(values)


def test_many_rows_of_the_largest_digits() -> None:
    """A chunk full of the double below 1 in either sign: every digit is set, nothing may overflow."""
    values = np.full((2, 1 << 18), np.nextafter(1.0, 0.0))
    values[1] *= -1.0
    assert exact_sums(values) == [(1 << 18) * sign * ((1 << 53) - 1) << (UNIT - 53) for sign in (1, -1)]
