"""Conditioning by rank-one updates against the text-book formula, and low rank against dense."""

from __future__ import annotations

import numpy as np
import pytest

from pandora_router.boxes import Joint, LowRank
from tests.support.instances import make


def textbook(
    mean: np.ndarray, p: np.ndarray, seen: list[int], values: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """mean + P_.A P_AA^-1 (y - mean_A) and P - P_.A P_AA^-1 P_A. , all at once."""
    gain = np.linalg.solve(p[np.ix_(seen, seen)], p[seen]).T
    return mean + gain @ (values - mean[seen]), p - gain @ p[seen]


@pytest.mark.parametrize("kind", ["joint", "low rank"])
@pytest.mark.parametrize("seed", range(6))
def test_against_the_textbook(kind: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    boxes = 3 + 2 * seed
    spec = make(kind, rng, boxes)
    law = spec.boxes()
    seen: list[int] = []
    for j in rng.permutation(boxes)[:-1]:
        seen.append(int(j))
        law = law.given(int(j), float(spec.values[j]))
        mean, p = textbook(spec.mean, spec.covariance, seen, spec.values[seen])
        np.testing.assert_allclose(law.mean, mean, rtol=1e-9, atol=1e-10)
        assert isinstance(law, Joint | LowRank)
        np.testing.assert_allclose(law.covariance, p, atol=1e-12)
        np.testing.assert_allclose(law.std, np.sqrt(np.maximum(np.diag(p), 0.0)), atol=1e-7)
        for k in range(boxes):
            np.testing.assert_allclose(law.column(k), p[:, k], atol=1e-12)


def test_a_copy_is_known_once_the_original_is() -> None:
    boxes = Joint([0.5, 0.3, 0.4], [[0.04, 0.04, 0.0], [0.04, 0.04, 0.0], [0.0, 0.0, 0.09]], 0.01)
    after = boxes.given(0, 0.8)
    np.testing.assert_allclose(after.mean, [0.8, 0.6, 0.4])
    assert after.std[1] == 0.0
    # a value that contradicts the copy moves nobody else
    np.testing.assert_allclose(after.given(1, 5.0).mean, [0.8, 5.0, 0.4])


@pytest.mark.parametrize("kind", ["joint", "low rank"])
def test_what_rounding_leaves_of_a_variance_is_not_news(kind: str) -> None:
    """Two factors behind five boxes: two openings tell all, and a contradiction stays where it is."""
    rng = np.random.default_rng(1)
    for _ in range(200):
        factor = rng.normal(size=(5, 2))
        matrix = factor @ factor.T
        if np.abs(np.linalg.det(factor[:2])) < 0.05:
            continue  # the first two boxes nearly share one factor: far values are then rightly believed
        zero = np.zeros(5)
        boxes = Joint(zero, matrix, 0.01) if kind == "joint" else LowRank(zero, factor, zero, 0.01)
        known = boxes.given(0, 0.3).given(1, -0.2)
        assert (known.std == 0.0).all()
        after = known.given(2, float(known.mean[2]) + 1.0)
        np.testing.assert_allclose(np.delete(after.mean, 2), np.delete(known.mean, 2), atol=1e-9)


@pytest.mark.parametrize(("left", "news"), [(1e-11, True), (1e-13, False)])
def test_where_rounding_begins(left: float, news: bool) -> None:
    """A variance of 1e-11 of what it was still tells something, one of 1e-13 nothing."""
    share = 1.0 - left  # squared correlation: the second box keeps `left` of its variance
    pair = Joint([0.0, 0.0, 0.0], [[1.0, share**0.5, 0.0], [share**0.5, 1.0, 0.0], [0.0, 0.0, 1.0]], 0.0)
    after = pair.given(0, 0.5)
    assert bool(after.std[1] > 0.0) is news
    assert after.given(1, 1.0).mean[2] == 0.0
    factor = LowRank([0.0, 0.0], [[1.0], [share**0.5]], [0.0, left], 0.0)
    assert bool(factor.given(0, 0.5).std[1] > 0.0) is news


def test_quantiles_do_not_change_conditioning() -> None:
    spec = make("quantiles", np.random.default_rng(3), 4)
    with_law, plain = spec.boxes(), Joint(spec.mean, spec.covariance, spec.costs)
    np.testing.assert_array_equal(with_law.given(2, 0.9).mean, plain.given(2, 0.9).mean)
    assert isinstance(with_law, Joint)
    np.testing.assert_allclose(with_law.support(), spec.mean[:, None] + spec.std[:, None] * spec.residuals)
    after = with_law.given(2, 0.9).support()
    assert after is not None
    assert (after[2] == 0.9).all()
