"""Ridge heads and TF-IDF against scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import Ridge as Oracle

from pandora_router.errors import UsageError
from pandora_router.estimators.embedders.tfidf import TfidfSvd
from pandora_router.estimators.linear import fit_ridge, grouped_folds


def test_a_head_is_scikit_learns_ridge_column_by_column_with_missing_cells() -> None:
    rng = np.random.default_rng(0)
    features = rng.standard_normal((80, 6))
    reward = features @ rng.standard_normal((6, 3)) + rng.standard_normal((80, 3))
    reward[rng.random((80, 3)) < 0.2] = np.nan
    folds = grouped_folds(range(80), 4, 0)
    head, outside = fit_ridge(features, reward, folds, [7.0])
    for j in range(3):
        there = ~np.isnan(reward[:, j])
        oracle = Oracle(alpha=7.0).fit(features[there], reward[there, j])
        np.testing.assert_allclose(head.predict(features)[:, j], oracle.predict(features), atol=1e-6)
        for k in range(4):
            learn, held = there & (folds != k), folds == k
            oracle = Oracle(alpha=7.0).fit(features[learn], reward[learn, j])
            np.testing.assert_allclose(outside[held, j], oracle.predict(features[held]), atol=1e-6)


def test_the_penalty_is_the_one_of_least_error_out_of_fold() -> None:
    rng = np.random.default_rng(1)
    features, reward = rng.standard_normal((60, 30)), rng.standard_normal((60, 1))
    folds = grouped_folds(range(60), 5, 0)
    errors = {
        p: np.mean((fit_ridge(features, reward, folds, [p])[1] - reward) ** 2) for p in (0.1, 10.0, 1e4)
    }
    chosen = fit_ridge(features, reward, folds, tuple(errors))[1]
    assert np.mean((chosen - reward) ** 2) == pytest.approx(min(errors.values()))


def test_equal_members_share_a_fold_and_folds_are_balanced() -> None:
    members = [i % 20 for i in range(100)]
    folds = grouped_folds(members, 5, 3)
    assert all(len({folds[i] for i in range(100) if members[i] == member}) == 1 for member in range(20))
    assert np.bincount(folds).tolist() == [20] * 5
    with pytest.raises(UsageError, match="two different prompts"):
        grouped_folds(["a", "a"], 5, 0)


def test_tfidf_spans_what_scikit_learn_spans() -> None:
    rng = np.random.default_rng(2)
    topics = [[f"t{t}w{i}" for i in range(8)] for t in range(10)]
    texts = [" ".join(rng.choice(topics[n % 10], 14)) for n in range(200)]
    ours = TfidfSvd.fit(texts, width=10, rarest=2).embed(texts)
    pattern = r"(?u)\w+|[^\w\s]"
    vectorizer = TfidfVectorizer(ngram_range=(1, 2), min_df=2, sublinear_tf=True, token_pattern=pattern)
    reduced = TruncatedSVD(10, algorithm="arpack").fit_transform(vectorizer.fit_transform(texts))
    reduced /= np.linalg.norm(reduced, axis=1, keepdims=True)
    difference = np.abs(ours @ ours.T - reduced @ reduced.T)
    assert difference.max() < 2e-3


def test_texts_that_share_no_words_cannot_be_fitted() -> None:
    with pytest.raises(UsageError, match="TF-IDF"):
        TfidfSvd.fit(["alpha", "beta"])
