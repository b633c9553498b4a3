"""Every fitted part against scikit-learn or against the parameters the data was generated with."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
from sklearn.covariance import ledoit_wolf as reference_ledoit_wolf
from sklearn.linear_model import RidgeCV
from sklearn.model_selection import LeaveOneOut, cross_val_predict
from sklearn.neighbors import NearestNeighbors

from pandora_router.calibrate import (
    Calibrated,
    CheapMean,
    EmpiricalDraws,
    GaussianJoint,
    NeighbourSignal,
    check,
    cross_check,
    extend,
)
from pandora_router.calibrate.means import STRENGTHS, fit_ridge
from pandora_router.calibrate.readings import Readings
from pandora_router.calibrate.residuals import fit_correlation, fit_scale, ledoit_wolf
from pandora_router.calibrate.reward_mean import fit_slope


class World(NamedTuple):
    f: np.ndarray
    g: np.ndarray
    r: np.ndarray
    weights: np.ndarray
    correlation: np.ndarray


def sigma(mu: np.ndarray) -> np.ndarray:
    """Less room near the ends: .05 to .2."""
    return 0.05 + 0.6 * np.clip(mu * (1.0 - mu), 0.0, 0.25)


def generate(n: int = 3000, m: int = 4, seed: int = 0, rho: float = 0.6, slope: float = 0.6) -> World:
    rng = np.random.default_rng(seed)
    f = rng.uniform(0.0, 1.0, (n, m))
    weights = 0.7 * np.eye(m) + 0.2 / m
    mu = f @ weights + np.linspace(-0.05, 0.15, m)
    correlation = (1.0 - rho) * np.eye(m) + rho
    e = rng.standard_normal((n, m)) @ np.linalg.cholesky(correlation).T
    g = mu + sigma(mu) * e
    common = 0.1 * rng.standard_normal((n, 1))
    r = mu + slope * (g - mu) + common + 0.1 * rng.standard_normal((n, m))
    return World(f, g, r, weights, correlation)


def test_ledoit_wolf_is_scikit_learns() -> None:
    rng = np.random.default_rng(1)
    for n, m in ((10, 3), (40, 40), (500, 7), (30, 60)):
        x = rng.standard_normal((n, m)) @ rng.standard_normal((m, m)) + 3.0
        ours, weight = ledoit_wolf(x)
        theirs, expected = reference_ledoit_wolf(x)
        assert weight == pytest.approx(expected, rel=1e-10)
        np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=1e-12)


def test_ledoit_wolf_with_missing_cells_is_close_to_the_truth_and_valid() -> None:
    rng = np.random.default_rng(2)
    truth = 0.5 * np.eye(5) + 0.5
    x = rng.standard_normal((4000, 5)) @ np.linalg.cholesky(truth).T
    x[rng.random(x.shape) < 0.3] = np.nan
    fitted = fit_correlation(x, "ledoit_wolf")
    assert fitted is not None
    np.testing.assert_allclose(fitted.matrix, truth, atol=0.06)
    assert np.linalg.eigvalsh(fitted.matrix)[0] > 0.0


def test_low_rank_correlation_recovers_factors() -> None:
    rng = np.random.default_rng(3)
    loadings = rng.uniform(0.3, 0.6, (60, 2)) * np.array([1.0, -1.0]) ** rng.integers(0, 2, (60, 2))
    own = 1.0 - (loadings**2).sum(axis=1)
    x = rng.standard_normal((3000, 2)) @ loadings.T + np.sqrt(own) * rng.standard_normal((3000, 60))
    fitted = fit_correlation(x, "ledoit_wolf")
    assert fitted is not None
    assert fitted.factor is not None
    assert fitted.factor.shape == (60, 2)
    truth = loadings @ loadings.T + np.diag(own)
    np.testing.assert_allclose(fitted.matrix, truth, atol=0.08)
    np.testing.assert_allclose(
        fitted.factor @ fitted.factor.T + np.diag(fitted.own), fitted.matrix, atol=1e-12
    )


def test_ridge_is_scikit_learns_with_its_leave_one_out_strength() -> None:
    rng = np.random.default_rng(4)
    x = rng.standard_normal((80, 6)) @ rng.standard_normal((6, 6)) * 3.0 + 1.0
    y = x[:, :3] * 0.2 + rng.standard_normal((80, 3)) * np.array([0.1, 2.0, 30.0])
    weights, intercept, strength, errors = fit_ridge(x, y, STRENGTHS)
    scaled = (x - x.mean(axis=0)) / x.std(axis=0)
    reference = RidgeCV(80 * STRENGTHS, alpha_per_target=True).fit(scaled, y)
    np.testing.assert_allclose(80 * strength, reference.alpha_, rtol=1e-9)
    np.testing.assert_allclose(x @ weights + intercept, reference.predict(scaled), atol=1e-9)
    for k in range(3):
        plain = RidgeCV([80 * strength[k]])
        # scaling is not refitted without the prompt left out, neither here nor there
        left_out = cross_val_predict(plain, scaled, y[:, k], cv=LeaveOneOut())
        np.testing.assert_allclose(y[:, k] - left_out, errors[:, k], atol=1e-8 * np.abs(y).max())


def test_neighbours_are_scikit_learns() -> None:
    world = generate(300)
    fitted = NeighbourSignal().fit(Readings(world.f, world.g))
    rows = np.random.default_rng(5).random((50, 4))
    near = NearestNeighbors(n_neighbors=16).fit(world.f).kneighbors(rows, return_distance=False)
    np.testing.assert_allclose(fitted.expected(rows), world.g[near].mean(axis=1))
    np.testing.assert_allclose(fitted.spread(rows), world.g[near].std(axis=1, ddof=1))


@pytest.mark.parametrize("missing", [0.0, 0.25])
def test_known_parameters_are_recovered(missing: float) -> None:
    world = generate(6000)
    g, r = world.g.copy(), world.r.copy()
    rng = np.random.default_rng(6)
    g[rng.random(g.shape) < missing] = np.nan
    r[rng.random(r.shape) < missing] = np.nan
    fitted = Calibrated(law="quantiles").fit(Readings(world.f, g, r))
    rows = rng.uniform(0.1, 0.9, (200, 4))
    mu = rows @ world.weights + np.linspace(-0.05, 0.15, 4)
    np.testing.assert_allclose(fitted.expected(rows), mu, atol=0.02)
    np.testing.assert_allclose(fitted.spread(rows), sigma(mu), rtol=0.12)
    assert fitted.correlation is not None
    np.testing.assert_allclose(fitted.correlation.matrix, world.correlation, atol=0.05)
    assert fitted.slope == pytest.approx(0.6, abs=0.03)
    assert fitted.laws is not None
    normal = np.quantile(rng.standard_normal(100_000), (np.arange(32) + 0.5) / 32)
    np.testing.assert_allclose(fitted.laws.quantiles, np.tile(normal, (3, 1)), atol=0.2)


@pytest.mark.parametrize(("slope", "expected"), [(0.0, 0.0), (0.3, 0.3), (1.0, 1.0), (3.0, 1.5)])
def test_slope_is_recovered_within_its_bounds(slope: float, expected: float) -> None:
    world = generate(4000, slope=slope)
    assert Calibrated().fit(Readings(*world[:3])).slope == pytest.approx(expected, abs=0.05)


def test_prompts_are_the_unit_of_evidence_for_the_slope() -> None:
    """A prompt with ten specialists that all say the same thing twice is one prompt, not twenty cells."""
    rng = np.random.default_rng(3)
    g = rng.standard_normal((12, 1)) * np.array([1.0, -1.0])
    r = rng.choice([-1.0, 2.0], (12, 1)) * g  # the slope differs from prompt to prompt
    one = fit_slope(np.zeros((12, 2)), g, r)
    ten = fit_slope(np.zeros((12, 20)), np.tile(g, 10), np.tile(r, 10))
    assert ten == pytest.approx(one, abs=1e-9)
    many = fit_slope(np.zeros((120, 2)), np.tile(g, (10, 1)), np.tile(r, (10, 1)))
    assert abs(many - one) > 1e-3  # ten times the prompts do say more


@pytest.mark.parametrize("scored", ["all", "half of the cells", "half of the prompts once"])
def test_the_slope_does_not_fall_with_missing_scores(scored: str) -> None:
    """A true slope of .9 stays near .9: a prompt with one score has no contrast and says nothing."""
    rng = np.random.default_rng(11)
    news = rng.standard_normal((6000, 4))
    reward = 0.9 * news + 0.5 * rng.standard_normal(news.shape)
    if scored == "half of the cells":
        reward[rng.random(reward.shape) < 0.5] = np.nan
    elif scored == "half of the prompts once":
        reward[:3000, 1:] = np.nan
    cells = [np.zeros_like(news), news, reward]
    train, calibration = ([a[part] for a in cells] for part in (slice(4000), slice(4000, None)))
    assert fit_slope(*calibration, train=tuple(train)) == pytest.approx(0.9, abs=0.03)


def test_a_scale_stops_bending_where_the_means_end() -> None:
    """Beyond the range of the calibration means the scale is that of the end, not the curve's."""
    rng = np.random.default_rng(4)
    mu = rng.uniform(0.3, 0.7, (4000, 1))
    scale = fit_scale(mu, (0.02 + 0.5 * (mu - 0.3)) * rng.standard_normal(mu.shape))
    low, high = float(scale.lowest[0]), float(scale.highest[0])
    assert 0.3 < low < 0.31
    assert 0.69 < high < 0.7
    ends = scale.of(np.array([[low], [high]]))
    np.testing.assert_allclose(scale.of(np.array([[-1.0], [2.0]])), ends, rtol=1e-12)
    assert ends[1, 0] > 3.0 * ends[0, 0]


def test_few_prompts_leave_the_slope_near_one() -> None:
    world = generate(8, m=2, slope=0.0)
    noisy = world.r + 2.0 * np.random.default_rng(7).standard_normal(world.r.shape)
    assert 0.5 < Calibrated().fit(Readings(world.f, world.g, noisy)).slope <= 1.5


def test_coverage_is_near_nominal_on_new_prompts() -> None:
    train, test = generate(1500, seed=8), generate(4000, seed=9)
    report = check(Calibrated().fit(Readings(*train[:3])), Readings(*test[:3]))
    assert report.coverage_1 == pytest.approx(0.683, abs=0.03)
    assert report.coverage_2 == pytest.approx(0.954, abs=0.02)
    for one, two in zip(report.coverage_1_by_specialist, report.coverage_2_by_specialist, strict=True):
        assert one == pytest.approx(0.683, abs=0.05)
        assert two == pytest.approx(0.954, abs=0.03)
    assert report.residual_correlation == pytest.approx(0.6, abs=0.05)
    assert report.mse["g"] < report.mse["h(f)"] < report.mse["f"]
    assert report.mse["h(f)"] < report.mse["training mean"]


def test_many_specialists_do_not_make_coverage_too_sure() -> None:
    train, test = generate(150, m=40, seed=10), generate(2000, m=40, seed=11)
    report = check(GaussianJoint().fit(Readings(*train[:3])), Readings(*test[:3]))
    assert report.coverage_1 == pytest.approx(0.69, abs=0.05)


def test_cross_check_agrees_with_new_prompts() -> None:
    train, test = generate(2000, seed=12), generate(4000, seed=13)
    crossed = cross_check(Calibrated(), Readings(*train[:3]))
    fresh = check(Calibrated().fit(Readings(*train[:3])), Readings(*test[:3]))
    assert crossed.coverage_1 == pytest.approx(fresh.coverage_1, abs=0.03)
    assert crossed.mse["h(f)"] == pytest.approx(fresh.mse["h(f)"], rel=0.1)


def test_a_skewed_law_is_kept() -> None:
    rng = np.random.default_rng(14)
    f = rng.random((6000, 2))
    g = 0.5 * f + np.where(rng.random(f.shape) < 0.1, 0.9, -0.1)
    laws = Calibrated().fit(Readings(f, g, g)).laws
    assert laws is not None
    np.testing.assert_allclose(laws.quantiles[:, :25], -1.0 / 3.0, atol=0.15)
    np.testing.assert_allclose(laws.quantiles[:, -1], 3.0, atol=0.3)
    draws = EmpiricalDraws().fit(Readings(f, g))
    assert draws.residuals[:, :, 0] == pytest.approx(-0.1, abs=0.05)
    assert draws.residuals[:, :, -1] == pytest.approx(0.9, abs=0.1)


def test_identity_takes_f_at_its_word() -> None:
    world = generate(200)
    fitted, left_out = CheapMean().fit(Readings(world.f, world.g))
    np.testing.assert_array_equal(fitted.of(world.f), world.f)
    np.testing.assert_array_equal(left_out, world.f)


def test_a_newcomer_from_forty_prompts_is_close_to_a_full_fit() -> None:
    world = generate(3000, m=5, seed=16)
    known = Calibrated().fit(Readings(world.f[:2000, :4], world.g[:2000, :4], world.r[:2000, :4]))
    few = slice(2000, 2040)
    grown = extend(known, Readings(world.f[few], world.g[few]))
    full = Calibrated().fit(Readings(*(part[:2000] for part in world[:3])))
    rows = world.f[2040:]
    expected, came = full.expected(rows)[:, -1], grown.expected(rows)[:, -1]
    assert np.sqrt(((expected - came) ** 2).mean()) < 0.05  # a residual is about .15
    ratio = grown.spread(rows)[:, -1] / full.spread(rows)[:, -1]
    assert 0.7 < np.median(ratio) < 1.4
    assert grown.correlation is not None
    np.testing.assert_allclose(grown.correlation.matrix[-1, :-1], 0.6, atol=0.2)
