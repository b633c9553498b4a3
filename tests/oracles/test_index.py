"""The special functions against mpmath, and the compiled twins against the plain ones."""

from __future__ import annotations

from importlib import import_module

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pandora_router.boxes.checks import locked
from pandora_router.index import normal_density, normal_gain, price_offset, unit_loss, unit_loss_inverse
from pandora_router.search import kernels

kernels.load()  # before a kernel is imported by its name: numba then finds what `warm` has compiled
special = import_module("pandora_router.search.kernels.special")
mpmath.mp.dps = 40
EPS = np.finfo(float).eps


def psi(t: mpmath.mpf) -> mpmath.mpf:
    """The loss function in 40 digits; with enough more where the two terms cancel."""
    with mpmath.workdps(60):
        return mpmath.npdf(t) - t * mpmath.erfc(t / mpmath.sqrt(2)) / 2


def psi_inverse(y: float, start: float) -> mpmath.mpf:
    """Newton's method in 40 digits from our own answer; three steps are enough from ten digits."""
    with mpmath.workdps(60):
        t, target = mpmath.mpf(start), mpmath.mpf(y)
        for _ in range(4):
            t += (psi(t) - target) / (mpmath.erfc(t / mpmath.sqrt(2)) / 2)
        return t


def test_unit_loss_is_exact_to_four_units_in_the_last_place() -> None:
    """From -1e6 to 37 (psi = 3e-300); below that doubles lose digits by themselves."""
    t = np.concatenate(
        [np.linspace(-12, 37, 150), -np.geomspace(1e-12, 1e6, 40), np.geomspace(1e-12, 37, 40)]
    )
    for x, came in zip(t, unit_loss(t), strict=True):
        truth = psi(mpmath.mpf(float(x)))
        assert abs(mpmath.mpf(float(came)) - truth) <= 4 * EPS * abs(truth), float(x)


def test_inverse_is_exact_to_eight_units_in_the_last_place() -> None:
    """From 1e-300 to 1e6, and around the zero at phi(0), where the relative error counts as well."""
    phi_0 = 0.3989422804014327
    y = np.concatenate(
        [
            np.geomspace(1e-300, 1e6, 240),
            np.linspace(5.0, 20.0, 61),  # where the table ends and T(y) = -y begins
            phi_0 * (1.0 + np.geomspace(1e-15, 0.3, 25)),
            phi_0 * (1.0 - np.geomspace(1e-15, 0.3, 25)),
            [0.25, np.nextafter(0.25, 0), 9.0, np.nextafter(9.0, 0), phi_0, 5e-324, 2.3e-308],
        ]
    )
    for x, came in zip(y, unit_loss_inverse(y), strict=True):
        truth = psi_inverse(float(x), float(came))
        assert abs(mpmath.mpf(float(came)) - truth) <= 8 * EPS * abs(truth), float(x)


def test_inverse_at_the_ends() -> None:
    assert unit_loss_inverse(0.0) == np.inf
    assert unit_loss_inverse(np.inf) == -np.inf
    assert unit_loss_inverse(123.0) == -123.0
    assert unit_loss(np.inf) == 0.0
    assert unit_loss(-np.inf) == np.inf
    assert unit_loss_inverse(np.full((2, 3), 0.1)).shape == (2, 3)


@given(st.floats(-30.0, 30.0))
def test_there_and_back(t: float) -> None:
    """T(psi(t)) = t up to what the slope of psi lets through: an error of 4 eps psi in y is that over Phi."""
    y = float(unit_loss(t))
    slope = 0.5 * float(mpmath.erfc(t / mpmath.sqrt(2)))
    assert abs(float(unit_loss_inverse(y)) - t) <= 8 * EPS * (abs(t) + y / slope)


@given(st.floats(-38.0, 38.0))
def test_density(t: float) -> None:
    truth = mpmath.npdf(mpmath.mpf(t))
    assert abs(float(normal_density(np.array(t))) - truth) <= 4 * EPS * truth + 1e-320


def test_compiled_twins() -> None:
    """The same polynomials one number at a time: equal but for the rounding of exp and of the scale."""
    t = np.concatenate([np.linspace(-50, 50, 801), np.geomspace(1e-300, 1e3, 200)])
    came = np.array([special.loss(x) for x in t])
    np.testing.assert_allclose(came, unit_loss(t), rtol=4 * EPS, atol=1e-320)
    y = np.concatenate([np.geomspace(1e-320, 1e300, 900), np.linspace(0.2, 10.0, 400), [0.0]])
    np.testing.assert_array_equal([special.loss_inverse(x) for x in y], unit_loss_inverse(y))
    out = np.empty(len(y))
    special.unit_loss_inverse(y, out)
    np.testing.assert_array_equal(out, unit_loss_inverse(y))


def test_compiled_normal_distribution() -> None:
    """Phi to 2e-16 absolutely, from cell to cell and beyond the table."""
    t = np.concatenate([np.linspace(-9.5, 9.5, 1901), np.arange(-144, 145) / 16])
    for x in t:
        truth = mpmath.ncdf(mpmath.mpf(float(x)))
        assert abs(special.cumulative(x) - truth) <= 2.5e-16, x
        assert special.cumulative(x) > 0.0
    assert special.density(1.5) == pytest.approx(float(normal_density(np.array(1.5))), rel=1e-15)


@given(st.floats(0.0, 10.0), st.floats(0.0, 100.0), st.floats(-5.0, 5.0), st.booleans())
def test_compiled_prices(std: float, cost: float, mean: float, sealed: bool) -> None:
    assert special.offset(std, cost) == float(price_offset(np.array([std]), np.array([cost]))[0])
    out = np.empty(1)
    for back in (0.0, 0.3):
        law = [locked(np.array([value])) for value in (mean, std, cost, back)]  # read-only, as boxes are
        special.normal_prices(*law, locked(np.array([sealed])), out)
        assert out[0] == (mean + (back + special.offset(std, cost)) if sealed else mean)


def test_gain_of_a_normal_box_by_quadrature() -> None:
    for mean, std, v in ((0.5, 0.2, 0.3), (0.5, 0.2, 1.4), (-1.0, 3.0, 0.0)):
        integral = mpmath.quad(
            lambda g, mean=mean, std=std, v=v: (g - v) * mpmath.npdf(g, mean, std),
            [v, max(v, mean) + std, max(v, mean) + 12 * std],
        )
        assert float(normal_gain(np.array(mean), np.array(std), v)) == pytest.approx(
            float(integral), rel=1e-12
        )
    assert float(normal_gain(np.array(0.5), np.array(0.0), 0.2)) == pytest.approx(0.3)
    assert float(normal_gain(np.array(0.5), np.array(0.0), 0.7)) == 0.0
