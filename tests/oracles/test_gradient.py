"""The knowledge gradient: kernel, plain code, and quadrature over what opening may show."""

from __future__ import annotations

from itertools import pairwise, product

import numpy as np
import pytest
from scipy.integrate import quad

from pandora_router.boxes import Boxes, Costs, Draws, Independent, Joint, LowRank
from pandora_router.boxes.joint import CorrelatedNormal
from pandora_router.search import Inspect, KnowledgeGradient, State, kernels
from pandora_router.search.gradient import envelope_gain, gradient, plain_gradient
from pandora_router.search.groups import (
    compiled_group_gain,
    group_normals,
    has_normal_parts,
    plain_group_gain,
)
from tests.support.instances import make

KINDS = ("independent", "joint", "low rank", "quantiles", "draws", "ladder")


def crossings(a: np.ndarray, b: np.ndarray) -> list[float]:
    """Where two of the lines a + b z meet, within reach: the breakpoints of their maximum."""
    points = {-8.0, 8.0}
    for j in range(len(a)):
        for k in range(j):
            if b[j] != b[k]:
                z = (a[k] - a[j]) / (b[j] - b[k])
                points |= {float(z)} if abs(z) < 8.0 else set()
    return sorted(points)


def by_quadrature(a: np.ndarray, b: np.ndarray) -> float:
    """E[max(a + b Z)] - max a, integrated between the breakpoints."""
    edges = crossings(a, b)
    density = lambda z: np.exp(-0.5 * z * z) / np.sqrt(2.0 * np.pi)  # noqa: E731
    total = 0.0
    for low, high in pairwise(edges):
        total += quad(lambda z: (np.max(a + b * z) - a.max()) * density(z), low, high, epsabs=1e-14)[0]
    return total


@pytest.mark.parametrize("seed", range(10))
def test_envelope_against_quadrature(seed: int) -> None:
    rng = np.random.default_rng(seed)
    lines = int(rng.integers(1, 8))
    a, b = rng.normal(0.5, 0.2, lines), rng.normal(0.0, 0.3, lines)
    if seed % 3 == 0:  # parallels and ties
        a, b = np.round(a, 1), np.round(b, 1)
    assert envelope_gain(a, b) == pytest.approx(by_quadrature(a, b), abs=1e-10)


@pytest.mark.parametrize("outside", [-np.inf, 0.45, 0.9])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(4))
def test_kernel_against_plain_code(kind: str, seed: int, outside: float) -> None:
    spec = make(kind, np.random.default_rng(seed), 2 + seed, cost=0.0)
    boxes = spec.charging(0.0).boxes()  # without cost nothing is skipped
    for step in range(2 + seed):
        truth = plain_gradient(boxes, outside)
        np.testing.assert_allclose(gradient(boxes, outside), truth, rtol=1e-9, atol=1e-14)
        assert (truth >= -1e-15).all()
        assert (truth[~boxes.sealed] == 0.0).all()
        last = spec.values[step] if kind != "ladder" else spec.values[step, -1]
        boxes = boxes.without(step) if step == 1 else boxes.given(step, float(last))


@pytest.mark.parametrize("kind", ["joint", "quantiles"])
def test_a_skipped_box_could_not_have_paid(kind: str) -> None:
    for seed in range(40):
        spec = make(kind, np.random.default_rng(seed), 4, cost=float(np.geomspace(1e-3, 0.3, 40)[seed]))
        boxes = spec.boxes()
        came, truth = gradient(boxes, -np.inf), plain_gradient(boxes, -np.inf)
        skipped = (came == 0.0) & (truth > 0.0)
        assert (truth[skipped] <= boxes.inspection_cost[skipped]).all()
        np.testing.assert_allclose(came[~skipped], truth[~skipped], rtol=1e-9, atol=1e-14)


@pytest.mark.parametrize("kind", ["joint", "low rank", "independent"])
def test_gradient_against_conditioning(kind: str) -> None:
    """E[best posterior mean] - best mean, with `given` doing the conditioning at quadrature nodes."""
    boxes = make(kind, np.random.default_rng(21), 4).boxes()
    nodes, weights = np.polynomial.hermite_e.hermegauss(120)
    weights = weights / weights.sum()
    truth = plain_gradient(boxes, 0.5)
    for j in range(4):
        shown = boxes.mean[j] + boxes.std[j] * nodes  # type: ignore[attr-defined]
        best = [max(0.5, float(boxes.given(j, float(v)).mean.max())) for v in shown]
        assert truth[j] == pytest.approx(weights @ best - max(0.5, boxes.mean.max()), abs=2e-3)


def test_gradient_with_quantiles_is_the_average_over_them() -> None:
    boxes = make("quantiles", np.random.default_rng(22), 3).boxes()
    assert isinstance(boxes, Joint)
    support = boxes.support()
    assert support is not None
    for j in range(3):
        best = [float(boxes.given(j, float(v)).mean.max()) for v in support[j]]
        truth = np.mean(best) - boxes.mean.max()
        assert plain_gradient(boxes, -np.inf)[j] == pytest.approx(truth, abs=1e-12)


def test_gradient_of_draws_is_the_average_over_them() -> None:
    boxes = Draws([[0.1, 0.5, 0.9], [0.2, 0.6, 0.7]], 0.01)
    for j in range(2):
        best = [float(boxes.given(j, v).mean.max()) for v in boxes.samples[j]]
        truth = np.mean(best) - boxes.mean.max()
        assert plain_gradient(boxes, -np.inf)[j] == pytest.approx(truth, abs=1e-15)


def test_common_news_is_worth_nothing() -> None:
    """Perfectly correlated boxes of one scale: opening any changes no decision."""
    boxes = Joint([0.5, 0.6, 0.4], np.full((3, 3), 0.04), 0.001)
    np.testing.assert_allclose(plain_gradient(boxes, -np.inf), 0.0, atol=1e-16)
    assert (plain_gradient(boxes, 0.6) > 0.05).all()
    assert KnowledgeGradient().next(State(boxes)).box == 1  # type: ignore[union-attr]


def test_one_box_alone_is_never_worth_opening() -> None:
    for boxes in (Independent([0.5], [0.3], 0.0), Joint([0.5], [[0.1]], 0.0), Draws([[0.0, 1.0]], 0.0)):
        assert gradient(boxes, -np.inf).tolist() == [0.0]


@pytest.mark.parametrize("digits", [0, 1, 16])
@pytest.mark.parametrize("seed", range(8))
def test_lines_that_are_left_out_are_nowhere_highest(seed: int, digits: int) -> None:
    """Rounded heights and slopes make equal, parallel and meeting lines; the maximum is taken on a grid."""
    kernels.load()
    from pandora_router.search.kernels.gradient import upper_lines

    rng = np.random.default_rng(seed)
    a, b = rng.normal(size=40).round(digits), rng.normal(size=40).round(digits)
    first, last = -rng.uniform(0.1, 3.0), rng.uniform(0.1, 3.0)
    high, steep = np.empty(40), np.empty(40)
    kept = upper_lines(a, b, 40, int(a.argmax()), first, last, high, steep)
    z = np.linspace(first, last, 2001)[:, None]
    np.testing.assert_allclose((high[:kept] + steep[:kept] * z).max(1), (a + b * z).max(1), atol=1e-12)
    assert kept < 40


@pytest.mark.parametrize("seed", range(6))
def test_a_bound_on_a_gain_is_above_it_and_not_far(seed: int) -> None:
    """Against the envelope in plain code, for lines near and far from the leading one."""
    kernels.load()
    from pandora_router.search.kernels.gradient import most_gain

    rng = np.random.default_rng(seed)
    for count in (1, 2, 3, 8, 16):
        for size in (0.01, 0.1, 1.0):
            a, b = rng.normal(size=count), size * rng.normal(size=count)
            most, gained = most_gain(a, b, count, int(a.argmax())), envelope_gain(a, b)
            assert gained <= most + 1e-15
            if count == 2:
                assert most <= 2.5 * gained + 0.00039 * abs(b[0] - b[1])


# --- groups -----------------------------------------------------------------------------------------------


def group_gain(boxes: Boxes, members: np.ndarray, outside: float, samples: int, seed: int) -> float:
    """The worth of a group by the kernel, which must be that of the plain code."""
    normals = group_normals(seed, samples, len(boxes.mean))
    plain = plain_group_gain(boxes, members, outside, normals)
    if has_normal_parts(boxes):
        compiled = compiled_group_gain(kernels.load(), boxes, members, outside, normals)
        assert compiled == pytest.approx(plain, rel=1e-10, abs=1e-13)
    return plain


def test_worth_of_a_group_against_dense_conditioning() -> None:
    """20,000 outcomes of three of four boxes, conditioned by the text-book formula; within 5 errors."""
    spec = make("joint", np.random.default_rng(30), 4)
    rng = np.random.default_rng(31)
    boxes = spec.boxes()
    assert isinstance(boxes, CorrelatedNormal)
    members = np.array([0, 2, 3])
    p = boxes.covariance
    y = rng.multivariate_normal(boxes.mean[members], p[np.ix_(members, members)], 20000)
    gain = p[:, members] @ np.linalg.inv(p[np.ix_(members, members)])
    best = (boxes.mean + (y - boxes.mean[members]) @ gain.T).max(axis=1)
    truth, error = best.mean() - boxes.mean.max(), best.std() / np.sqrt(len(best))
    came = group_gain(boxes, members, -np.inf, 20000, 0)
    assert abs(came - truth) <= 5.0 * np.sqrt(2.0) * error
    low = LowRank(spec.mean, spec.factor, spec.noise, spec.costs)
    assert group_gain(low, members, -np.inf, 2000, 0) == pytest.approx(came, abs=0.02)


def test_worth_of_a_group_of_draws_by_enumeration() -> None:
    boxes = Draws([[0.0, 1.0], [0.3, 0.8], [0.5, 0.6]], 0.01)
    outcomes = np.array([[a, b, 0.55] for a, b in product(*boxes.samples[:2])])
    truth = outcomes.max(axis=1).mean() - 0.55
    assert group_gain(boxes, np.array([0, 1]), -np.inf, 20000, 0) == pytest.approx(truth, abs=0.01)


def test_worth_of_a_group_follows_the_residual_law() -> None:
    """Two-valued residuals, uncorrelated: enumerated, and far from what a normal law would say."""
    law = np.array([-1.0, 1.0])
    mean, std = np.array([0.5, 0.45]), np.array([0.1, 0.2])
    boxes = Joint(mean, np.diag(std**2), 0.01, np.tile(law, (2, 1)))
    outcomes = np.array(list(product(*(mean[:, None] + std[:, None] * law))))
    truth = outcomes.max(axis=1).mean() - 0.5
    came = group_gain(boxes, np.arange(2), -np.inf, 40000, 0)
    assert came == pytest.approx(truth, abs=2e-3)
    normal = group_gain(Joint(mean, np.diag(std**2), 0.01), np.arange(2), -np.inf, 40000, 0)
    assert abs(normal - truth) > 5e-3


@pytest.mark.parametrize("seed", range(6))
def test_worth_of_a_correlated_group_with_quantiles_through_the_copula(seed: int) -> None:
    """All boxes open: E[max] over `sample`, which draws from the same law by numpy's own factor."""
    boxes = make("quantiles", np.random.default_rng(seed), 4).boxes()
    drawn = boxes.sample(40000, np.random.default_rng(99))
    lead = int(boxes.mean.argmax())
    won = drawn.max(axis=1) - drawn[:, lead]
    came = group_gain(boxes, np.arange(4), -np.inf, 40000, 1)
    assert abs(came - won.mean()) <= 5.0 * np.sqrt(2.0) * won.std() / np.sqrt(len(won))


@pytest.mark.parametrize("kind", ["independent", "joint", "quantiles", "low rank"])
@pytest.mark.parametrize("seed", range(5))
def test_worth_of_a_group_in_compiled_code(kind: str, seed: int) -> None:
    """Later states, lost boxes, exact copies and outside options: `group_gain` compares both codes."""
    boxes = make(kind, np.random.default_rng(seed), 5).boxes()
    group_gain(boxes, np.array([1, 3]), 0.5, 64, seed)
    later = boxes.given(0, 0.6).without(4)
    group_gain(later, np.array([1, 2, 3]), -np.inf, 64, seed)
    copies = Joint([0.5, 0.5, 0.4], np.full((3, 3), 0.04), 0.01, [[-1.0, 1.0]] * 3)
    assert group_gain(copies, np.arange(3), -np.inf, 64, seed) == pytest.approx(0.0, abs=1e-15)


def test_opposite_outcomes_come_in_pairs() -> None:
    """Of two boxes one wins by |d| in exactly one outcome of each pair: a group is worth E|d|/2."""
    normals = group_normals(7, 64, 3)
    assert normals.shape == (64, 3)
    assert (normals[:32] == -normals[32:]).all()
    boxes = Independent([0.5, 0.5], [0.1, 0.2], 0.01)
    drawn = normals[:32, :2] * [0.2, 0.1]  # descending (mean, std)
    truth = np.abs(drawn[:, 0] - drawn[:, 1]).mean() / 2.0
    assert plain_group_gain(boxes, np.arange(2), -np.inf, normals) == pytest.approx(truth, rel=1e-12)


@pytest.mark.parametrize("kind", ["independent", "joint", "draws"])
def test_a_group_that_changes_no_choice_is_worth_nothing(kind: str) -> None:
    """A leader far ahead: exactly 0, however few the outcomes."""
    mean, cost = [0.5, 0.6, 50.0], Costs([0.0] * 3, [0.001], [0, 0, 0])
    boxes = {
        "independent": Independent(mean, [0.3, 0.3, 1.0], cost),
        "joint": Joint(mean, np.diag([0.09, 0.09, 1.0]), cost),
        "draws": Draws([[0.4, 0.6], [0.5, 0.7], [49.0, 51.0]], cost),
    }[kind]
    for seed in range(20):
        assert group_gain(boxes, np.arange(3), -np.inf, 16, seed) == pytest.approx(0.0, abs=1e-13)
        assert not isinstance(KnowledgeGradient(samples=16, seed=seed).next(State(boxes)), Inspect)
    assert group_gain(boxes, np.array([0, 1]), 60.0, 16, 0) == 0.0


def test_quantiles_are_measured_from_the_mean() -> None:
    """Residuals moved to mean 0: kernel, plain code and prices follow one law."""
    covariance = [[0.04, 0.01], [0.01, 0.09]]
    off = Joint([0.5, 0.45], covariance, 0.01, [[-1.0, 0.0, 2.5], [0.2, 0.3, 4.0]])
    centred = Joint([0.5, 0.45], covariance, 0.01, [[-1.5, -0.5, 2.0], [-1.3, -1.2, 2.5]])
    np.testing.assert_allclose(off.quantiles, centred.quantiles, atol=1e-15)  # type: ignore[arg-type]
    np.testing.assert_allclose(off.support().mean(axis=1), off.mean, atol=1e-15)  # type: ignore[union-attr]
    np.testing.assert_allclose(gradient(off, -np.inf), plain_gradient(off, -np.inf), atol=1e-15)
    np.testing.assert_allclose(off.reservation_price(), centred.reservation_price(), rtol=1e-14)
