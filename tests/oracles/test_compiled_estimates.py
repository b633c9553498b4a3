"""Compiled estimates against numpy and LightGBM, bit for bit; packed vectors against vectors as they are."""

from __future__ import annotations

import lightgbm
import numpy as np
import pytest

from pandora_router.estimators import nearest
from pandora_router.estimators.embedders.embedder import WordVectors, default_embedder, normalised
from pandora_router.estimators.nearest import Exact, Packed, Packing
from pandora_router.estimators.neighbours import Neighbours
from pandora_router.estimators.stack.ensemble import Ensemble
from pandora_router.search import kernels
from tests.support.embedders import CallableEmbedder

LETTERS = "abcdefghijklmnopqrstuvwxyz"
GIVEN = CallableEmbedder("given", lambda texts: np.zeros((len(texts), 1)))


def clouds(rows: int, width: int, seed: int = 0) -> np.ndarray:
    """Unit rows that lie, up to noise, in thirty directions."""
    rng = np.random.default_rng(seed)
    inside = rng.standard_normal((rows, 30)) @ np.random.default_rng(99).standard_normal((30, width))
    return normalised(inside + 0.3 * rng.standard_normal((rows, width)))


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch):
    """A switch: inside it the compiled kernels are not ready."""

    def switch() -> None:
        monkeypatch.setattr(kernels, "_kernels", None)
        monkeypatch.setattr(kernels, "_looked", True)

    kernels.load()
    return switch


def test_compiled_word_vectors_are_those_of_numpy_bit_for_bit(plain) -> None:
    rng = np.random.default_rng(3)
    table = (rng.standard_normal((len(LETTERS), 40)) * 10.0 ** rng.integers(-8, 4, 40)).astype(np.float16)
    table[2] = 0.0
    assert 0.0 < np.abs(table[table != 0.0]).min() < 2.0**-14  # numbers below the normal range of half
    texts = ["", *("".join(rng.choice(list(LETTERS), size)) for size in (1, 2, 7, 300))]
    made = WordVectors(table, default_embedder().tokenizer)
    ours = WordVectors(default_embedder().table, default_embedder().tokenizer)
    encoded = [[LETTERS.index(letter) for letter in text] for text in texts]
    vectors = made._mean_rows(encoded), ours.embed(texts)
    ours.forget()
    plain()
    assert kernels.ready() is None
    np.testing.assert_array_equal(vectors[0], made._mean_rows(encoded))
    np.testing.assert_array_equal(vectors[1], ours.embed(texts))


def test_packed_search_is_exact_over_whole_numbers_for_one_query_and_for_many(plain) -> None:
    rows, queries = clouds(700, 200), clouds(20, 200, 1)
    rows[41] = rows[5]  # a tie: the lower number first
    packing = Packing.fit(rows)
    search = Packed.of(packing, packing.codes(rows))
    codes = packing.codes(rows).astype(np.int64)
    asked = packing.codes(queries).astype(np.int64)
    length = np.sqrt((codes**2).sum(axis=1).astype(np.float32))
    near = (asked @ codes.T).astype(np.float32) * (np.float32(1.0) / length)
    expected = np.argsort(-near, axis=1, kind="stable")[:, :90]
    np.testing.assert_array_equal(search.nearest(queries, 90), expected)
    one_by_one = np.concatenate([search.nearest(queries[i : i + 1], 90) for i in range(20)])
    np.testing.assert_array_equal(one_by_one, expected)
    plain()
    assert kernels.ready() is None
    np.testing.assert_array_equal(search.nearest(queries, 90), expected)
    np.testing.assert_array_equal(search.nearest(queries[:1], 90), expected[:1])


@pytest.mark.parametrize("k", [1, 3, 200, 600, 1500])
@pytest.mark.parametrize("kind", ["usual", "equal", "below zero", "zero", "in few classes"])
def test_the_largest_entries_are_those_of_a_stable_sort(kind: str, k: int) -> None:
    rng = np.random.default_rng(8)
    entries = rng.normal(0.3, 1.0, (6, 1500)).astype(np.float32)
    if kind == "equal":
        entries = entries.round(1)
    elif kind == "below zero":
        entries = -np.abs(entries)
    elif kind == "zero":
        entries[:] = 0.0
    elif kind == "in few classes":  # all large entries share three classes
        entries = np.where(np.arange(1500) % 512 < 3, entries + 9.0, entries)
    scale = rng.uniform(0.5, 2.0, 1500).astype(np.float32)
    rows = np.empty((6, k), dtype=np.intp)
    kernels.load().largest_rows(entries, scale, rows)
    np.testing.assert_array_equal(rows, np.argsort(-(entries * scale), axis=1, kind="stable")[:, :k])


def test_inner_products_of_codes_stay_exact_in_single_precision() -> None:
    assert nearest.WIDTH * nearest.HIGHEST**2 < 2**24


def test_packed_neighbours_are_nearly_those_of_the_vectors_themselves() -> None:
    rows, queries = clouds(3000, 300), clouds(50, 300, 2)
    packing = Packing.fit(rows)
    assert packing.rotation.T @ packing.rotation == pytest.approx(np.eye(128), abs=1e-9)
    found = Packed.of(packing, packing.codes(rows)).nearest(queries, 50)
    exact = Exact(rows).nearest(queries, 50)
    share = np.mean([len(set(a) & set(b)) / 50 for a, b in zip(found, exact, strict=True)])
    assert share > 0.85


def test_means_of_neighbours_are_those_of_numpy(plain) -> None:
    rng = np.random.default_rng(3)
    rows, queries = clouds(600, 200), clouds(30, 200, 4)
    reward = np.where(rng.random((600, 3)) < 0.4, np.nan, rng.random((600, 3)))
    reward[:, 2] = np.nan
    reward[7, 2] = 0.25  # hardly anybody has one: the mean stands in
    fitted = Neighbours.fit([""] * 600, reward, ["a", "b", "c"], embedder=GIVEN, vectors=rows, k=(3, 20))
    assert fitted.packing is not None
    compiled = fitted.predict_vectors(queries), fitted.leave_one_out()
    plain()
    np.testing.assert_array_equal(fitted.predict_vectors(queries), compiled[0])
    np.testing.assert_array_equal(fitted.leave_one_out(), compiled[1])
    i = 11
    keep = np.arange(600) != i
    codes = fitted.packing.codes(rows)
    search = Packed.of(fitted.packing, codes[keep])
    found = search.nearest(rows[i : i + 1], 20)[0]
    near = reward[keep][found]
    expected = [
        np.nanmean(np.where(np.isnan(near[:k]).all(axis=0), fitted.mean, near[:k]), axis=0) for k in (3, 20)
    ]
    assert compiled[1][i] == pytest.approx(np.mean(expected, axis=0))


@pytest.mark.parametrize("missing", ["nan", "zero", "none"])
def test_sums_of_trees_are_those_of_lightgbm_bit_for_bit(missing: str) -> None:
    kernels.load()
    rng = np.random.default_rng(5)
    table = rng.standard_normal((3000, 6))
    table[:, 0] = rng.integers(0, 70, 3000)  # categories beyond one word of a set
    table[rng.random((3000, 6)) < 0.1] = 0.0
    target = (table[:, 0] % 7 == 3) + np.where(table[:, 1] > 0.2, table[:, 2], -table[:, 3])
    if missing != "none":
        table[:, 1:][rng.random((3000, 5)) < 0.15] = np.nan
    settings = {"verbosity": -1, "num_leaves": 31, "seed": 1, "num_threads": 1, "min_data_per_group": 5}
    settings["zero_as_missing"] = missing == "zero"
    data = lightgbm.Dataset(table, target, categorical_feature=[0], params=settings)
    booster = lightgbm.train(settings, data, 40)
    trees = Ensemble.of(booster)
    assert trees.sets.sum() > 0
    new = np.concatenate([table[:500], rng.standard_normal((200, 6)) * 40.0])
    new[500:, 0] = np.r_[rng.integers(-3, 200, 198), np.nan, 1e6]
    single = new.astype(np.float32)
    for rows in (new, single, new[:1], new[:0], np.tile(new, (12, 1))):  # the last is more than one block
        expected = booster.predict(rows, num_threads=1) if len(rows) else np.empty(0)
        np.testing.assert_array_equal(trees.predict(rows), expected)
        np.testing.assert_array_equal(trees.plain_predict(rows), expected)
