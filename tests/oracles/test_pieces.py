"""Token ids put together from pieces against the tokenizer itself, which encodes whole texts."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from pandora_router.estimators.embedders import embedder
from pandora_router.estimators.embedders.embedder import SPACE, Pieces, default_embedder

CUTS = st.text(alphabet=f"aeThx .,'\"()\n\t12²_-{SPACE}é漢🙂<s>/", max_size=80)


@pytest.fixture(scope="module")
def default() -> Pieces:
    found = Pieces.of(default_embedder().tokenizer)
    assert found is not None
    return found


@settings(max_examples=300, deadline=None)
@given(text=CUTS | st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=80))
def test_ids_are_those_of_the_whole_text(default: Pieces, text: str) -> None:
    assert default.ids(text) == default.tokenizer.encode(text, add_special_tokens=False).ids


@pytest.mark.parametrize(
    "text",
    ["", " ", "a ", "  two  spaces ", "<s> a </s>", "a<unk>b", "x" * 5000, "The cat.\nThe cat, 12.50!"],
)
def test_ids_of_texts_at_the_edges(default: Pieces, text: str) -> None:
    for _ in range(2):  # the second time from memory
        assert default.ids(text) == default.tokenizer.encode(text, add_special_tokens=False).ids


def test_memory_is_bounded(default: Pieces, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedder, "PIECES", 10)
    few = Pieces(default.tokenizer, default.special)
    text = " ".join(f"w{'abcdefgh'[i % 8] * (i // 8 + 1)}" for i in range(64)) + " " + "y" * 100
    assert few.ids(text) == default.tokenizer.encode(text, add_special_tokens=False).ids
    assert 0 < len(few.known) <= 10
    assert max(map(len, few.known)) <= embedder.LONGEST_PIECE


def tokenizer(*joined: tuple[str, str]) -> Tokenizer:
    """A byte-pair encoding of three characters with these merges, spaces written as in SentencePiece."""
    tokens = ["<unk>", SPACE, "a", ".", *("".join(pair) for pair in joined)]
    vocabulary = {token: number for number, token in enumerate(tokens)}
    made = Tokenizer(models.BPE(vocab=vocabulary, merges=list(joined), unk_token="<unk>"))
    made.add_special_tokens(["<unk>"])
    made.normalizer = normalizers.Sequence([normalizers.Prepend(SPACE), normalizers.Replace(" ", SPACE)])
    return made


def test_only_vocabularies_that_end_at_words_are_cut() -> None:
    allowed = Pieces.of(tokenizer((SPACE, "a"), ("a", "a"), (SPACE, SPACE)))
    assert allowed is not None
    whole = allowed.tokenizer.encode("aa. a  aaa .", add_special_tokens=False).ids
    assert allowed.ids("aa. a  aaa .") == whole
    assert Pieces.of(tokenizer(("a", "."))) is None
    assert Pieces.of(tokenizer((".", SPACE))) is None


def test_other_kinds_of_tokenizers_are_not_cut() -> None:
    words = tokenizer()
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    bare = tokenizer()
    bare.normalizer = normalizers.Lowercase()
    random = Tokenizer(models.BPE(vocab={"a": 0}, merges=[], dropout=0.5))
    random.normalizer = words.normalizer
    for refused in (words, bare, random, Tokenizer(models.WordLevel({"a": 0}, unk_token="a"))):
        assert Pieces.of(refused) is None
