"""Neighbours against scikit-learn, a loop in plain Python, and each other."""

from __future__ import annotations

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
from pandora_router.estimators.nearest import Exact, Graph
from pandora_router.estimators.neighbours import Neighbours
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


def test_the_graph_finds_nearly_what_exact_search_finds() -> None:
    pytest.importorskip("faiss", reason="extra [index] is not installed")
    rng = np.random.default_rng(4)
    rows = normalised(rng.standard_normal((3000, 16)))
    queries = normalised(rows[:200] + 0.3 * rng.standard_normal((200, 16)))
    exact, near = Exact(rows).nearest(queries, 3), Graph.build(rows).nearest(queries, 3)
    share = np.mean([len(set(a) & set(b)) / 3 for a, b in zip(exact, near, strict=True)])
    assert share > 0.97
    fitted = Neighbours(GIVEN, ("a",), rows, rng.random((3000, 1)), 3, exact_up_to=100)
    assert isinstance(fitted.search, Graph)
    whole = Neighbours(GIVEN, ("a",), rows, fitted.reward, 3).leave_one_out()
    assert np.mean(np.abs(fitted.leave_one_out() - whole) < 1e-12) > 0.95


def graph_of_a_thousand_prompts(tmp_path: Path) -> tuple[Neighbours, np.ndarray, Path]:
    pytest.importorskip("faiss", reason="extra [index] is not installed")
    rng = np.random.default_rng(5)
    rows = normalised(rng.standard_normal((1000, 16)))
    embedder = CallableEmbedder("first", lambda texts: np.repeat(rows[:1], len(texts), axis=0))
    fitted = Neighbours(embedder, ("a", "b"), rows, rng.random((1000, 2)), 5, exact_up_to=100)
    return fitted, normalised(rng.standard_normal((40, 16))), fitted.save(tmp_path / "saved")


def test_a_saved_graph_is_the_graph_and_is_not_built_again(tmp_path: Path) -> None:
    """Building twice, on several threads, gives other edges: those of the loaded graph are those saved."""
    fitted, queries, folder = graph_of_a_thousand_prompts(tmp_path)
    loaded = Neighbours.load(folder, embedder=fitted.embedder)
    assert loaded.edges is not None
    assert isinstance(fitted.search, Graph)
    assert isinstance(loaded.search, Graph)
    for name in ("levels", "neighbours"):
        saved, now = (getattr(graph.edges, name) for graph in (fitted.search, loaded.search))
        np.testing.assert_array_equal(saved, now)
        np.testing.assert_array_equal(saved, getattr(loaded.edges, name))
    np.testing.assert_array_equal(loaded.predict_vectors(queries), fitted.predict_vectors(queries))
    more = loaded.remember(["prompt 0"], np.ones((1, 2)))
    assert more.edges is None  # a graph over other rows


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
