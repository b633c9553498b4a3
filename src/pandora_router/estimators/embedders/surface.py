"""Surface of a text: its length, digits, symbols, lines and options, nothing about its meaning.

`surface` gives the numbers; `Surface` is their part of the vectors in which similar prompts are looked for.
Two questions of one kind (multiple choice, arithmetic, a piece of code) are then nearer to each other than
the words they have in common say. Neither uses tasks, specialists or rewards.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from pandora_router.estimators.embedders.embedder import Vectors, checked_texts
from pandora_router.estimators.states import Saved
from pandora_router.types import Matrix, Vector

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
