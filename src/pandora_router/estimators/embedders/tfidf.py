"""What is fitted on the training prompts: TF-IDF with a truncated SVD, and the surface of a text.

TF-IDF: words weighted by rarity, reduced to a few directions.
It needs no pretrained weights: vocabulary and directions are fitted on the training prompts. Words that did
not occur there are ignored; a text without known words is a row of zeros. Terms are words and pairs of words,
tf = 1 + log(count), idf = 1 + log((1 + N)/(1 + df)) (Salton & Buckley 1988, with the usual smoothing).

The surface is its length, digits, symbols, lines and options, nothing about its meaning. `surface` gives the
numbers, `Surface` is their part of joined vectors. Two questions of one kind (multiple choice, arithmetic, a
piece of code) are then nearer to each other than the words that they have in common say.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

import numpy as np

from pandora_router.data.splits import SAMPLE, sample
from pandora_router.errors import UsageError
from pandora_router.estimators.embedders.embedder import (
    Embedder,
    Joined,
    Vectors,
    checked_texts,
    default_embedder,
    normalised,
)
from pandora_router.estimators.states import Saved
from pandora_router.types import Matrix, Vector

if TYPE_CHECKING:
    from scipy.sparse import csr_array

WORD = re.compile(r"\w+|[^\w\s]")
WIDTH = 128  # directions of TF-IDF beside the word vectors
_fitted: WeakValueDictionary[str, Joined] = WeakValueDictionary()  # by what each was fitted on

NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
OPTION = re.compile(r"^\s*\(?[A-Za-z][.)]\s", re.MULTILINE)
PLAIN = re.compile(r"[\x00-\x7f]+")
ASCII = [chr(code) for code in range(128)]
DIGITS = "".join(filter(str.isdigit, ASCII)).encode()
CAPITALS = "".join(filter(str.isupper, ASCII)).encode()
WRITTEN = "".join(one for one in ASCII if one.isalnum() or one.isspace()).encode()

SURFACE = 20
"""Numbers that describe a text."""
MOST = 2.0
"""Standard deviations beyond which a text counts as no more unusual."""


@dataclass(frozen=True)
class TfidfSvd:
    """Fitted vocabulary (terms in order), their idf, and the right singular directions (terms, width)."""

    terms: tuple[str, ...] = field(repr=False)
    idf: Vector = field(repr=False)
    directions: Vectors = field(repr=False)
    name: str = "tfidf-svd"

    @classmethod
    def fit(
        cls, texts: Sequence[str], *, width: int = 128, largest: int = 30_000, rarest: int = 2, seed: int = 0
    ) -> TfidfSvd:
        """Fit the `largest` most frequent terms found in at least `rarest` texts, and `width` directions."""
        bags = [_bag(text) for text in checked_texts(texts)]
        seen = Counter(term for bag in bags for term in bag)
        frequent = sorted(
            (term for term, n in seen.items() if n >= rarest), key=lambda term: (-seen[term], term)
        )
        terms = tuple(frequent[:largest])
        if len(terms) < 2 or len(bags) < 2:
            raise UsageError(
                "texts to fit TF-IDF on",
                expected=f"at least two texts sharing two terms that occur in {rarest} texts",
                came=f"{len(bags)} texts, {len(terms)} such terms",
                do="Give more texts, or use the default embedder.",
            )
        idf = 1.0 + np.log((1.0 + len(bags)) / (1.0 + np.array([seen[term] for term in terms])))
        weights = _weights(bags, {term: j for j, term in enumerate(terms)}, idf)
        width = min(width, min(weights.shape) - 1)
        directions = _leading(weights, width, np.random.default_rng(seed))
        digest = hashlib.sha256("\n".join(terms).encode("utf-8", "surrogatepass") + directions.tobytes())
        return cls(terms, idf, directions, f"tfidf-svd-{width}-{digest.hexdigest()[:12]}")

    @functools.cached_property
    def _column(self) -> tuple[dict[str, int], dict[tuple[str, str], int]]:
        """Column of each word, and of each pair of words."""
        words, pairs = {}, {}
        for j, term in enumerate(self.terms):
            first, between, second = term.partition(" ")
            if between:
                pairs[first, second] = j
            else:
                words[term] = j
        return words, pairs

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Projection of each text's weighted terms on the directions, unit length."""
        rows = [self._projected(WORD.findall(text.lower())) for text in checked_texts(texts)]
        return normalised(np.array(rows, dtype=np.float32).reshape(len(rows), self.directions.shape[1]))

    def _projected(self, words: list[str]) -> Vectors:
        """Sum over the terms of one text of weight times direction (width,).

        Words and pairs are looked up and counted without a Python loop.
        """
        number, pair_number = self._column
        known = Counter(map(number.get, words))
        known.update(map(pair_number.get, itertools.pairwise(words)))
        known.pop(None, None)
        if not known:
            return np.zeros(self.directions.shape[1], dtype=np.float32)
        columns = np.fromiter(known, dtype=np.intp, count=len(known))
        counts = np.fromiter(known.values(), dtype=np.float64, count=len(known))
        weights = (1.0 + np.log(counts)) * self.idf[columns]
        length = math.sqrt(float(weights @ weights))
        projected: Vectors = (weights / length).astype(np.float32) @ self.directions[columns]
        return projected

    def state(self) -> Saved:
        """The state to save; `from_state` restores it."""
        return Saved(
            "tfidf-svd",
            {"name": self.name, "terms": list(self.terms)},
            {"idf": self.idf, "directions": self.directions},
        )

    @classmethod
    def from_state(cls, saved: Saved) -> TfidfSvd:
        """Restore the embedder from its `state`."""
        settings = saved.of_kind("tfidf-svd").settings
        return cls(
            tuple(settings["terms"]), saved.arrays["idf"], saved.arrays["directions"], settings["name"]
        )


def _bag(text: str) -> Counter[str]:
    words = WORD.findall(text.lower())
    return Counter([*words, *(f"{a} {b}" for a, b in itertools.pairwise(words))])


def _leading(weights: csr_array, width: int, rng: np.random.Generator) -> Vectors:
    """Leading right singular directions by randomised subspace iteration (Halko et al. 2011, alg. 4.4)."""
    from scipy.sparse import csr_array

    across = csr_array(weights.T)
    extra = min(width + 16, min(weights.shape))
    basis = np.linalg.qr(weights @ rng.standard_normal((weights.shape[1], extra)))[0]
    for _ in range(4):
        basis = np.linalg.qr(weights @ (across @ basis))[0]
    tall, small = np.linalg.qr(across @ basis)  # the SVD of a small square matrix instead of a tall one
    right = (tall @ np.linalg.svd(small)[0])[:, :width]
    signs = np.sign(right[np.argmax(np.abs(right), axis=0), np.arange(width)])
    return np.ascontiguousarray(right * signs, dtype=np.float32)


def _weights(bags: Iterable[Counter[str]], column: dict[str, int], idf: Vector) -> csr_array:
    from scipy.sparse import csr_array

    starts: list[int] = [0]
    columns: list[int] = []
    counts: list[int] = []
    for bag in bags:
        terms = sorted((column[term], n) for term, n in bag.items() if term in column)
        columns.extend(j for j, _ in terms)
        counts.extend(n for _, n in terms)
        starts.append(len(columns))
    where = np.asarray(columns, dtype=np.int64)
    values = (1.0 + np.log(np.asarray(counts, dtype=np.float64))) * idf[where]
    rows = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    length = np.sqrt(np.bincount(rows, values**2, minlength=len(starts) - 1))
    values /= length[rows]
    return csr_array((values, where, np.asarray(starts)), shape=(len(starts) - 1, len(idf)))


def surface(texts: Sequence[str]) -> Matrix:
    """Features (texts, SURFACE) of each text; finite for every text, including the empty one."""
    return np.asarray([of_text(text) for text in texts], dtype=np.float64).reshape(len(texts), SURFACE)


def of_text(text: str) -> list[float]:
    """The features (SURFACE,) of one text."""
    size, words, lines = len(text) + 1, text.split(), text.split("\n")
    numbers = NUMBER.findall(text)
    longest = max((len(number) for number in numbers), default=0)
    digits, capitals, marks, foreign = characters(text)
    counts = (text.count(mark) for mark in "?$\\=,(+")
    return [
        float(np.log(size)),
        float(np.log1p(len(words))),
        float(np.log1p(len(lines))),
        size / (len(words) + 1),
        digits / size,
        capitals / size,
        marks / size,
        foreign / size,
        len(set(words)) / (len(words) + 1),
        float(np.log1p(len(numbers))),
        float(longest),
        float(np.log1p(len(OPTION.findall(text)))),
        len(lines[-1]) / size,
        *(float(np.log1p(count)) for count in counts),
    ]


def characters(text: str) -> tuple[int, int, int, int]:
    """Counts of digits, capitals, symbols (neither letter, digit nor space) and characters beyond ASCII.

    ASCII characters are counted by deleting bytes, which is many times faster than a loop over characters.
    """
    plain = text.encode("ascii", "ignore")
    rest = "" if len(plain) == len(text) else PLAIN.sub("", text)
    return (
        len(plain) - len(plain.translate(None, DIGITS)) + sum(map(str.isdigit, rest)),
        len(plain) - len(plain.translate(None, CAPITALS)) + sum(map(str.isupper, rest)),
        len(plain.translate(None, WRITTEN))
        + sum(1 for character in rest if not (character.isalnum() or character.isspace())),
        len(rest),
    )


@dataclass(frozen=True)
class Surface:
    """The surface of texts as a part of joined vectors: standardised on known prompts, within `MOST`.

    Rows have a mean square length of about one on those prompts, so that beside unit rows this part counts as
    much as another; a text that is more unusual has a longer row.
    """

    centre: Vector = field(repr=False)
    spread: Vector = field(repr=False)
    name: str = "surface"

    @classmethod
    def fit(cls, texts: Sequence[str]) -> Surface:
        """Mean and standard deviation of each number over the texts."""
        raw = surface(checked_texts(texts))
        centre, spread = raw.mean(axis=0), raw.std(axis=0) + 1e-9
        return cls(centre, spread, _name(centre, spread))

    def embed(self, texts: Sequence[str]) -> Vectors:
        """The standardised surface of each text (texts, SURFACE), divided by the root of their number."""
        scaled = (surface(checked_texts(texts)) - self.centre) / self.spread
        rows: Vectors = (np.clip(scaled, -MOST, MOST) / np.sqrt(SURFACE)).astype(np.float32)
        return rows

    def state(self) -> Saved:
        """The state to save; `from_state` restores it."""
        return Saved("surface", {"name": self.name}, {"centre": self.centre, "spread": self.spread})

    @classmethod
    def from_state(cls, saved: Saved) -> Surface:
        """Restore it from its `state`."""
        arrays = saved.of_kind("surface").arrays
        return cls(arrays["centre"], arrays["spread"], str(saved.settings["name"]))


def _name(centre: Vector, spread: Vector) -> str:
    return f"surface-{hashlib.sha256(centre.tobytes() + spread.tobytes()).hexdigest()[:12]}"


def fitted_embedder(prompts: Sequence[str], *, width: int = WIDTH, most: int = SAMPLE) -> Embedder:
    """The default for fitting: word vectors, TF-IDF and surface; word vectors alone with too few prompts.

    TF-IDF and surface are fitted on a sample of `most` prompts if there are more (`data.splits.sample`).

    Word vectors know the meaning of words, TF-IDF the wording of the training prompts
    (docs/decisions/0010-default-embedder.md), and the surface how a task is put: its length, numbers, code,
    options (docs/decisions/0720-the-surface-of-a-prompt.md).
    Returns the same object for the same prompts while an earlier one is still in use.
    """
    prompts = [prompts[i] for i in sample(prompts, most).tolist()]
    mark = hashlib.sha256(repr(width).encode())
    for prompt in prompts:
        mark.update(hashlib.sha256(prompt.encode("utf-8", "surrogatepass")).digest())
    cached = _fitted.get(mark.hexdigest())
    if cached is not None:
        return cached
    try:
        parts = default_embedder(), TfidfSvd.fit(prompts, width=width), Surface.fit(prompts)
        embedder = Joined(parts)
    except UsageError:
        return default_embedder()
    _fitted[mark.hexdigest()] = embedder
    return embedder
