"""Neighbours against scikit-learn, a loop in plain Python, and each other."""

from __future__ import annotations

import sys
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.neighbors import NearestNeighbors

from pandora_router.errors import UsageError
from pandora_router.estimators.embedders.embedder import normalised
from pandora_router.estimators.nearest import (
    CANDIDATES,
    EFFORT,
    LINKS,
    Edges,
    Exact,
    Graph,
    Packed,
    Packing,
    unit_rows,
)
from pandora_router.estimators.neighbours import Neighbours
from pandora_router.search import kernels
from tests.support.embedders import CallableEmbedder

GIVEN = CallableEmbedder("given", lambda texts: np.zeros((len(texts), 1)))


def made(vectors: np.ndarray, reward: np.ndarray, k: int) -> Neighbours:
    names = [f"s{j}" for j in range(reward.shape[1])]
    return Neighbours.fit([""] * len(vectors), reward, names, embedder=GIVEN, vectors=vectors, k=k)


@pytest.mark.parametrize("cells", [7, 1000, 16_000_000])
def test_exact_search_is_that_of_scikit_learn_whatever_the_chunk(cells: int) -> None:
    rng = np.random.default_rng(1)
    rows, queries = normalised(rng.standard_normal((300, 8))), normalised(rng.standard_normal((40, 8)))
    oracle = NearestNeighbors(n_neighbors=9, metric="cosine", algorithm="brute").fit(rows)
    expected = oracle.kneighbors(queries, return_distance=False)
    np.testing.assert_array_equal(Exact(rows, cells).nearest(queries, 9), expected)


@pytest.mark.parametrize("width", [48, 384])
def test_equally_near_rows_come_in_order_for_a_query_alone_and_among_others(width: int) -> None:
    """Rows that are permutations of one row are equally near to a constant query."""
    rng = np.random.default_rng(3)
    rows = normalised(rng.permuted(np.tile(rng.standard_normal(width), (400, 1)), axis=1))
    queries = normalised(np.vstack([np.ones((33, width)), rng.standard_normal((40, width))]))
    together = Exact(rows).nearest(queries, 25)
    assert together[0].tolist() == list(range(25))
    for i in range(len(queries)):
        np.testing.assert_array_equal(Exact(rows).nearest(queries[i : i + 1], 25)[0], together[i])


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10_000), total=st.integers(1, 12), k=st.integers(1, 14))
def test_predictions_are_those_of_a_plain_loop_with_ties_and_missing_cells(
    seed: int, total: int, k: int
) -> None:
    rng = np.random.default_rng(seed)
    rows, asked = rng.integers(-1, 2, (total, 3)), rng.integers(-1, 2, (5, 3))
    reward = np.where(rng.random((total, 2)) < 0.3, np.nan, rng.integers(0, 2, (total, 2)).astype(float))
    reward[0] = [0.0, 1.0]
    predicted = made(normalised(rows), reward, k).predict_vectors(normalised(asked))

    def near(i: int, row: int) -> Fraction:
        """The squared cosine with its sign, exactly."""
        product, lengths = int(asked[i] @ rows[row]), int((asked[i] ** 2).sum() * (rows[row] ** 2).sum())
        return Fraction(product * abs(product), max(lengths, 1))

    for i in range(5):
        order = sorted(range(total), key=lambda row, i=i: (-near(i, row), row))[:k]
        for j in range(2):
            there = [reward[row, j] for row in order if not np.isnan(reward[row, j])]
            column = reward[:, j]
            expected = np.mean(there) if there else column[~np.isnan(column)].mean()
            assert predicted[i, j] == pytest.approx(expected)


def test_leave_one_out_is_a_refit_without_the_prompt_and_its_copies() -> None:
    rng = np.random.default_rng(2)
    vectors = normalised(rng.standard_normal((30, 4)))
    vectors[7] = vectors[3]
    reward = rng.random((30, 3))
    left_out = made(vectors, reward, 4).leave_one_out()
    for i in range(30):
        keep = [row for row in range(30) if not np.array_equal(vectors[row], vectors[i])]
        expected = made(vectors[keep], reward[keep], 4).predict_vectors(vectors[i : i + 1])[0]
        np.testing.assert_allclose(left_out[i], expected, atol=1e-12)


def test_a_prompt_with_only_copies_of_itself_falls_back_to_the_mean() -> None:
    vectors = np.ones((3, 2)) / np.sqrt(2)
    reward = np.array([[0.0], [1.0], [1.0]])
    np.testing.assert_allclose(made(vectors, reward, 2).leave_one_out(), 2 / 3)


def test_several_k_in_one_search_are_what_each_alone_says() -> None:
    rng = np.random.default_rng(3)
    fitted = made(normalised(rng.standard_normal((50, 5))), rng.random((50, 2)), 3)
    queries = normalised(rng.standard_normal((9, 5)))
    for k, one in zip((2, 8), fitted.predict_each(queries, [2, 8]), strict=True):
        np.testing.assert_array_equal(one, replace(fitted, k=k).predict_vectors(queries))


def packed(rows: np.ndarray) -> tuple[Packing, np.ndarray]:
    packing = Packing.fit(rows)
    return packing, packing.codes(rows)


def test_the_graph_finds_nearly_what_exact_search_finds() -> None:
    pytest.importorskip("faiss", reason="extra [index] is not installed")
    rng = np.random.default_rng(4)
    rows = normalised(rng.standard_normal((3000, 16)))
    queries = normalised(rows[:200] + 0.3 * rng.standard_normal((200, 16)))
    packing, codes = packed(rows)
    exact = Packed.of(packing, codes).nearest(queries, 3)
    near = Graph(packing, codes, Edges.build(unit_rows(codes))).nearest(queries, 3)
    assert np.mean([len(set(a) & set(b)) / 3 for a, b in zip(exact, near, strict=True)]) > 0.97
    reward = rng.random((3000, 1))
    fitted = Neighbours(GIVEN, ("a",), codes, reward, 3, exact_up_to=100, packing=packing)
    assert isinstance(fitted.search, Graph)
    whole = Neighbours(GIVEN, ("a",), codes, reward, 3, packing=packing)
    assert not isinstance(whole.search, Graph)
    for which in (None, np.array([5, 2999, 17])):
        ours, theirs = (n.leave_one_out_each([3], which)[0] for n in (fitted, whole))
        assert np.mean(np.abs(ours - theirs) < 1e-12) > 0.95


def test_a_search_through_the_graph_finds_what_faiss_finds_in_it() -> None:
    """The same edges and as many candidates: faiss stops a little earlier, so ours is at least as good."""
    faiss = pytest.importorskip("faiss", reason="extra [index] is not installed")
    rng = np.random.default_rng(6)
    packing, codes = packed(normalised(rng.standard_normal((4000, 24))))
    rows = unit_rows(codes)
    index = faiss.IndexHNSWFlat(24, LINKS, faiss.METRIC_INNER_PRODUCT)
    index.hnsw.efConstruction, index.hnsw.efSearch = EFFORT, CANDIDATES
    faiss.omp_set_num_threads(1)
    index.add(rows)
    edges = Edges.build(rows)
    np.testing.assert_array_equal(edges.neighbours, faiss.vector_to_array(index.hnsw.neighbors))
    asked = rows[rng.integers(4000, size=200)] + 0.2 * rng.standard_normal((200, 24)).astype(np.float32)
    queries = np.rint(127 * asked / np.abs(asked).max(axis=1, keepdims=True)).astype(np.int8)
    theirs = index.search(unit_rows(queries), 10)[1]
    ours = Graph(packing, codes, edges).nearest_to(queries, 10)
    truth = Packed.of(packing, codes)._by_products(queries.astype(np.float32), 10, None, None)
    recall = [
        np.mean([len(set(a) & set(b)) / 10 for a, b in zip(n, truth, strict=True)]) for n in (ours, theirs)
    ]
    assert recall[0] >= recall[1] - 0.002
    assert recall[0] > 0.9


@pytest.mark.parametrize("read_only", [False, True])
def test_compiled_and_plain_search_through_a_graph_agree(
    monkeypatch: pytest.MonkeyPatch, read_only: bool
) -> None:
    pytest.importorskip("faiss", reason="extra [index] is not installed")
    rng = np.random.default_rng(7)
    rows = normalised(np.vstack([rng.integers(-1, 2, (1500, 12)), np.zeros((3, 12))]))  # with many ties
    packing, codes = packed(rows)
    edges = Edges.build(unit_rows(codes))
    if read_only:
        codes.setflags(write=False)
        edges.neighbours.setflags(write=False)
    graph = Graph(packing, codes, edges)
    queries = normalised(np.vstack([rng.standard_normal((60, 12)), np.zeros((1, 12))]))
    assert kernels.ready() is not None or kernels.warm() is not None
    compiled = graph.nearest(queries, 120)
    monkeypatch.setattr(kernels, "ready", lambda: None)
    np.testing.assert_array_equal(graph.nearest(queries, 120), compiled)
    np.testing.assert_array_equal(graph.nearest(queries[7:8], 120)[0], compiled[7])


def graph_of_a_thousand_prompts(tmp_path: Path) -> tuple[Neighbours, np.ndarray, Path]:
    pytest.importorskip("faiss", reason="extra [index] is not installed")
    return a_thousand_prompts(tmp_path)


def a_thousand_prompts(tmp_path: Path) -> tuple[Neighbours, np.ndarray, Path]:
    rng = np.random.default_rng(5)
    rows = normalised(rng.standard_normal((1000, 16)))
    embedder = CallableEmbedder("first", lambda texts: np.repeat(rows[:1], len(texts), axis=0))
    fitted = Neighbours.fit(
        [""] * 1000, rng.random((1000, 2)), ("a", "b"), embedder=embedder, vectors=rows, k=5, exact_up_to=100
    )
    return fitted, normalised(rng.standard_normal((40, 16))), fitted.save(tmp_path / "saved")


def test_a_saved_graph_is_searched_without_faiss_and_not_built_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fitted, queries, folder = graph_of_a_thousand_prompts(tmp_path)
    monkeypatch.setitem(sys.modules, "faiss", None)
    loaded = Neighbours.load(folder, embedder=fitted.embedder)
    assert isinstance(loaded.search, Graph)
    np.testing.assert_array_equal(loaded.predict_vectors(queries), fitted.predict_vectors(queries))
    more = loaded.remember(["prompt 0"], np.ones((1, 2)))
    assert more.edges is None  # a graph over other rows cannot be made: exact search
    assert isinstance(more.search, Packed)


def test_what_was_fitted_without_faiss_is_served_by_exact_search_where_faiss_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise its first request would wait until a graph is built, and hosts would decide differently."""
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "faiss", None)
        fitted, queries, folder = a_thousand_prompts(tmp_path)
    loaded = Neighbours.load(folder, embedder=fitted.embedder)
    assert isinstance(loaded.search, Packed)
    np.testing.assert_array_equal(loaded.predict_vectors(queries), fitted.predict_vectors(queries))
    assert isinstance(loaded.remember(["prompt 0"], np.ones((1, 2))).search, Packed)


def test_a_graph_that_has_been_built_grows_with_what_is_remembered(tmp_path: Path) -> None:
    fitted, queries, folder = graph_of_a_thousand_prompts(tmp_path)
    loaded = Neighbours.load(folder, embedder=fitted.embedder)
    more = loaded.remember(["prompt 0"] * 3, np.ones((3, 2)))
    assert more.edges is not None
    more.edges.check(1003)
    whole = replace(more, exact_up_to=10**6, edges=None)
    assert isinstance(whole.search, Packed)
    same = np.abs(more.predict_vectors(queries) - whole.predict_vectors(queries)) < 1e-12
    assert np.mean(same) > 0.9
    copies = loaded.embedder.embed(["one of the copies"])
    assert set(more.search.nearest(copies, 4)[0]) == {0, 1000, 1001, 1002}
    np.testing.assert_allclose(more.predict_unseen(["prompt 0"]), whole.predict_unseen(["prompt 0"]))


@pytest.mark.parametrize("damage", ["levels", "edges", "entry", "short"])
def test_a_damaged_graph_is_refused(tmp_path: Path, damage: str) -> None:
    """Row numbers that do not exist would let the index read anywhere in memory."""
    fitted, _, _ = graph_of_a_thousand_prompts(tmp_path)
    state = fitted.state()
    arrays, settings = {name: np.array(a) for name, a in state.arrays.items()}, dict(state.settings)
    if damage == "levels":
        arrays["levels"][3] += 1
    elif damage == "edges":
        arrays["edges"][7] = 1000
    elif damage == "entry":
        settings["entry"] = 1000
    else:
        arrays["edges"] = arrays["edges"][:-1]
    with pytest.raises(ValueError, match="of a graph"):
        Neighbours.from_state(replace(state, arrays=arrays, settings=settings), embedder=fitted.embedder)


@pytest.mark.parametrize(
    ("reward", "names", "message"),
    [
        ([[1.0, 2.0]], ["a"], "prompts x specialists"),
        ([[np.nan]], ["a"], "no reward at all"),
        ([[np.inf]], ["a"], "infinite"),
        ([[1.0, 1.0]], ["a", "a"], "distinct names"),
    ],
)
def test_rewards_that_cannot_be_used_are_refused(reward: list, names: list, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Neighbours.fit(["p"], reward, names, embedder=GIVEN, vectors=[[1.0]])


def test_k_below_one_is_refused() -> None:
    with pytest.raises(UsageError, match="k neighbours"):
        made(np.ones((2, 1)), np.ones((2, 1)), 0)
