"""Every embedder: unit rows, one row per text, and no text's vector depends on its company."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pandora_router.errors import UsageError
from pandora_router.estimators.embedders import embedder as embedders
from pandora_router.estimators.embedders.embedder import (
    Cached,
    Embedder,
    Joined,
    default_embedder,
    normalised,
)
from pandora_router.estimators.embedders.tfidf import (
    SURFACE,
    Surface,
    TfidfSvd,
    fitted_embedder,
    surface,
)
from pandora_router.estimators.states import embedder_from, embedder_state

TEXTS = [
    "How many apples are left in the basket?",
    "How many pears are left in the basket?",
    "Prove that the sum of two odd numbers is even.",
    "Prove that the sum of two even numbers is even.",
    "Which gene is the target of the drug?",
    "Which gene is the cause of the disease?",
]


@pytest.fixture(scope="module", params=["words", "tfidf", "joined", "cached"])
def embedder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Embedder:
    return {
        "words": default_embedder,
        "tfidf": lambda: TfidfSvd.fit(TEXTS, width=4),
        "joined": lambda: fitted_embedder(TEXTS, width=4),
        "cached": lambda: Cached(default_embedder(), tmp_path_factory.mktemp("cache")),
    }[request.param]()


@settings(max_examples=40, deadline=None)
@given(texts=st.lists(st.text(max_size=60), min_size=1, max_size=6))
def test_rows_are_unit_or_zero_and_do_not_depend_on_company(embedder: Embedder, texts: list[str]) -> None:
    together = embedder.embed(texts)
    assert together.dtype == np.float32
    assert together.shape[0] == len(texts)
    lengths = np.linalg.norm(together, axis=1)
    assert np.all((np.abs(lengths - 1) < 1e-5) | (lengths == 0))
    alone = np.vstack([embedder.embed([text]) for text in texts])
    np.testing.assert_allclose(together, alone, atol=2e-6)


def test_a_protocol_is_kept(embedder: Embedder) -> None:
    assert isinstance(embedder, Embedder)
    assert embedder.name


@pytest.mark.parametrize("wrong", ["one text", [1, 2]])
def test_what_is_not_a_list_of_texts_is_refused(embedder: Embedder, wrong: object) -> None:
    with pytest.raises(UsageError, match="texts to embed"):
        embedder.embed(wrong)  # type: ignore[arg-type]


def test_alike_prompts_are_nearer_than_unlike_ones(embedder: Embedder) -> None:
    if embedder.name == "counted":
        pytest.skip("a count of letters knows nothing of meaning")
    near = embedder.embed(TEXTS) @ embedder.embed(TEXTS).T
    assert near[0, 1] > near[0, 2]
    assert near[4, 5] > near[4, 2]


def test_the_cosine_of_a_join_is_the_mean_of_the_cosines() -> None:
    parts = default_embedder(), TfidfSvd.fit(TEXTS, width=4)
    joined = Joined(parts).embed(TEXTS)
    expected = np.mean([part.embed(TEXTS) @ part.embed(TEXTS).T for part in parts], axis=0)
    np.testing.assert_allclose(joined @ joined.T, expected, atol=1e-5)


def test_vectors_that_are_not_finite_are_refused() -> None:
    with pytest.raises(UsageError, match="finite"):
        normalised([[np.nan, 1.0]])


def test_two_prompts_that_share_nothing_still_get_an_embedder() -> None:
    assert fitted_embedder(["one"]).name == default_embedder().name


def test_what_is_remembered_is_what_would_be_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever was asked before, in whatever order, also when the memory overflows."""
    monkeypatch.setattr(embedders, "REMEMBERED", 5)
    remembering = dataclasses.replace(default_embedder(), recent=embedders.Recent())
    rng = np.random.default_rng(0)
    texts = [f"text number {i} {'is long ' * i}" for i in range(12)]
    for size in (0, 1, 3, 7, 12, 4, 4, 9):
        asked = [texts[int(i)] for i in rng.integers(0, len(texts), size)]
        fresh = dataclasses.replace(default_embedder(), recent=embedders.Recent())
        one_by_one = [fresh._pooled([text])[0] for text in asked]
        np.testing.assert_array_equal(remembering.embed(asked), np.reshape(one_by_one, (size, 256)))
        assert len(remembering.recent.known) <= 5


def test_prompts_of_the_same_words_are_told_apart_by_how_they_are_put() -> None:
    words = "Which of these is the name of the river A Nile B Seine C Rhine"
    options = words.replace(" A ", "?\nA) ").replace(" B ", "\nB) ").replace(" C ", "\nC) ")
    sums = [f"What is {i} + {i * 7}?" for i in range(10, 30)]
    known = fitted_embedder([*TEXTS, words, options, *sums], width=4)
    assert isinstance(known, Joined)
    words_alone = Joined(known.parts[:2])

    def lost(first: str, second: str) -> float:
        """How much lower the cosine of two texts is with the surface."""
        pairs = (one.embed([first, second]) for one in (words_alone, known))
        before, after = (float(pair[0] @ pair[1]) for pair in pairs)
        return before - after

    assert lost(words, options) > 0.1  # options on lines of their own are another kind of task
    assert lost(sums[0], "What is 4182 + 913?") < 0.05


def test_the_surface_counts_as_much_as_another_part_and_nothing_is_endlessly_unusual() -> None:
    rng = np.random.default_rng(0)
    texts = ["word " * int(n) + "?" * int(m) for n, m in rng.integers(1, 40, (300, 2))]
    part = Surface.fit(texts)
    raw = surface(texts)
    varied = raw.std(axis=0) > 1e-6
    standard = np.zeros_like(raw)
    standard[:, varied] = ((raw - raw.mean(axis=0)) / np.where(varied, raw.std(axis=0), 1.0))[:, varied]
    np.testing.assert_allclose(part.embed(texts), np.clip(standard, -2, 2) / np.sqrt(SURFACE), atol=1e-5)
    strange = part.embed(["1" * 10_000 + "$" * 500, ""])
    assert np.isfinite(strange).all()
    assert np.linalg.norm(strange, axis=1).max() <= 2.0 + 1e-6
    assert embedder_from(embedder_state(part), None).embed(texts).tobytes() == part.embed(texts).tobytes()
