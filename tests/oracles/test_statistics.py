"""The statistics against data with a known answer; each test states how often it would fail by chance."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from scipy.stats import binom

from pandora_router.errors import UsageError
from pandora_router.evaluate.statistics import Comparison, Estimate, Split, bootstrap, compare


def clustered(
    rng: np.random.Generator, clusters: int, each: int, mean: float
) -> tuple[np.ndarray, np.ndarray]:
    """Rows that share half of their variance within a cluster."""
    code = np.repeat(np.arange(clusters), each)
    common = rng.standard_normal(clusters)[code]
    return (mean + common + rng.standard_normal(len(code)))[:, None], code


def test_intervals_cover_the_truth() -> None:
    """200 intervals of 95 %: fewer than 177 cover in one of 1e5 runs if coverage is nominal (binomial)."""
    rng = np.random.default_rng(0)
    hits = 0
    for _ in range(200):
        values, code = clustered(rng, 40, 5, 0.3)
        found = bootstrap(values, code, draws=300)
        hits += bool(found.low[0] <= 0.3 <= found.high[0])
    low, high = binom.ppf([1e-5, 1 - 1e-5], 200, 0.95)
    assert low <= hits <= high


def test_taking_rows_as_independent_covers_too_rarely() -> None:
    """The reason for clustering: the naive interval covers at most 90 % here (true value about 74 %)."""
    rng = np.random.default_rng(1)
    hits = 0
    for _ in range(200):
        values, code = clustered(rng, 40, 5, 0.3)
        found = bootstrap(values, np.arange(len(code)), draws=200)
        hits += bool(found.low[0] <= 0.3 <= found.high[0])
    assert hits <= 180


def test_repeated_clusters_widen_the_interval() -> None:
    """Every row five times: the naive error shrinks by the root of 5, the clustered one stays."""
    rng = np.random.default_rng(2)
    once = rng.standard_normal((200, 1))
    code = np.repeat(np.arange(200), 5)
    naive = bootstrap(np.repeat(once, 5, axis=0), np.arange(1000)).error[0]
    honest = bootstrap(np.repeat(once, 5, axis=0), code).error[0]
    alone = bootstrap(once, np.arange(200)).error[0]
    assert honest == pytest.approx(alone, rel=0.12)  # 1,000 draws: five standard errors of a deviation
    assert honest / naive == pytest.approx(np.sqrt(5), rel=0.15)


def test_the_error_is_the_textbook_one_when_rows_are_alone() -> None:
    rng = np.random.default_rng(3)
    values = rng.standard_normal((500, 2)) * [1.0, 3.0]
    found = bootstrap(values, np.arange(500), draws=4000)
    assert found.error == pytest.approx(values.std(axis=0, ddof=1) / np.sqrt(500), rel=0.06)
    assert found.mean == pytest.approx(values.mean(axis=0))


def splits(rng: np.random.Generator, mean: float, count: int = 5, wobble: float = 0.0) -> list[Split]:
    """Splits that share prompts, as fresh splits of one data set do."""
    prompts = rng.standard_normal(1000)
    made = []
    for _ in range(count):
        chosen = rng.permutation(1000)[:300]
        noise = 0.3 * rng.standard_normal(300)
        difference = mean + wobble * rng.standard_normal() + prompts[chosen] + noise
        made.append(Split(difference[:, None], chosen, np.arange(300)))
    return made


def test_false_stars_are_rare() -> None:
    """No true difference, 200 tries at 5 %: more than 24 stars in one of 1e5 runs, both tests being exact."""
    rng = np.random.default_rng(4)
    stars = sum(bool(compare(splits(rng, 0.0), draws=200).star[0]) for _ in range(200))
    assert stars <= binom.ppf(1 - 1e-5, 200, 0.05)


def test_a_large_difference_gets_its_star() -> None:
    """Ten standard errors."""
    assert compare(splits(np.random.default_rng(5), 0.5)).star[0]


def test_a_difference_that_does_not_replicate_gets_none() -> None:
    """Large on average, but the splits disagree by ten times that."""
    made = [Split(np.full((300, 1), m), np.arange(300), np.arange(300)) for m in (3.0, -2.0, 0.5)]
    found = compare(made)
    assert found.mean[0] == pytest.approx(0.5)
    assert not found.star[0]


def test_one_split_alone_gets_no_star() -> None:
    found = compare(splits(np.random.default_rng(6), 0.5, count=1))
    assert not found.star.any()
    assert np.isnan(found.split_error[0])
    assert found.doubt[0] == found.error[0]


def test_few_distinct_f_vectors_widen_the_doubt() -> None:
    rng = np.random.default_rng(7)
    values, code = clustered(rng, 16, 40, 0.3)
    few = compare([Split(values, np.arange(640), code)] * 3).error[0]
    many = compare([Split(values, np.arange(640), np.arange(640))] * 3).error[0]
    assert few > 2 * many


def test_the_doubt_of_one_split_is_that_of_its_clustered_bootstrap() -> None:
    """Widening by a design effect and resampling the clusters themselves are two ways to one number."""
    rng = np.random.default_rng(8)
    values, code = clustered(rng, 60, 10, 0.3)
    values, code = values[:-7], code[:-7]  # of unequal sizes
    widened = compare([Split(values, np.arange(len(values)), code)], draws=4000).error[0]
    resampled = bootstrap(values, code, draws=4000).error[0]
    assert widened == pytest.approx(resampled, rel=0.06)  # 4,000 draws: 1.1 % each


def test_a_single_f_vector_leaves_all_in_doubt() -> None:
    values = np.random.default_rng(9).standard_normal((50, 1))
    assert np.isinf(compare([Split(values, np.arange(50), np.zeros(50, dtype=int))]).error[0])


def test_bad_input_is_told_plainly() -> None:
    with pytest.raises(UsageError, match="one row per prompt"):
        bootstrap(np.zeros((3, 1)), np.zeros(4, dtype=int))
    with pytest.raises(UsageError, match="one or more"):
        compare([])


def test_with_few_clusters_the_interval_is_that_of_student() -> None:
    """Four rows, each a cluster of its own: s / sqrt(4), and t with three degrees of freedom."""
    values = np.array([[0.0], [1.0], [3.0], [4.0]])
    found = bootstrap(values, np.arange(4), draws=20_000)
    assert found.error[0] == pytest.approx(values.std(ddof=1) / 2.0, rel=0.02)
    half = stats.t.ppf(0.975, 3) * found.error[0]
    assert (found.low[0], found.high[0]) == pytest.approx((2.0 - half, 2.0 + half))


@pytest.mark.parametrize(("between", "star"), [(0.1, False), (0.06, True)])
def test_a_star_of_two_splits_needs_students_many_standard_errors(between: float, star: bool) -> None:
    """Means 1 -+ d have the standard error d; with one degree of freedom 12.7 of them are needed, not two."""
    noise = 0.01 * np.random.default_rng(0).standard_normal((400, 1))
    splits = [
        Split(1.0 + sign * between + noise - noise.mean(), np.arange(400), np.arange(400))
        for sign in (-1.0, 1.0)
    ]
    found = compare(splits)
    assert found.split_error[0] == pytest.approx(between)
    assert found.star.tolist() == [star]


def test_clusters_whose_rows_cancel_do_not_narrow_the_doubt() -> None:
    """Pairs of +1 and -1 with the same f vector: rows of prompts drawn anew would not come in such pairs."""
    differences = np.tile([[1.0], [-1.0]], (50, 1))
    found = compare([Split(differences, np.arange(100), np.repeat(np.arange(50), 2))], draws=4000)
    assert found.error[0] == pytest.approx(differences.std(ddof=1) / 10.0, rel=0.05)


@pytest.mark.parametrize(
    ("error", "split_error", "doubt"), [(0.2, 0.3, 0.3), (0.3, 0.2, 0.3), (0.2, float("nan"), 0.2)]
)
def test_the_doubt_is_the_larger_of_both_errors(error: float, split_error: float, doubt: float) -> None:
    """A difference that varies over splits must not be called sure because it is narrow over prompts."""
    assert Estimate(1.0, error, split_error, star=True).doubt == doubt
    both = Comparison(np.array([1.0]), np.array([error]), np.array([split_error]), np.array([True]), 2)
    assert both.doubt.tolist() == [doubt]
