"""Graders that compute a score from 0 to 1 from an answer and its reference.

With several references the highest score counts. Scores are computed whenever a table is assembled, so a
changed grader costs nothing. Grading by a language model costs money and is in `estimators.judge`; its
verdicts are bought once, like answers.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction

from pandora_router.collect.mathematics import boxed, equal
from pandora_router.errors import UsageError
from pandora_router.estimators.judge import Judge

Compare = Callable[[str, str], float]

_NUMBER = re.compile(r"[-+]?(?:\d[\d,]*\.?\d*|\.\d+)(?:[eE][-+]?\d+)?(?:\s*/\s*\d[\d,]*(?:\.\d+)?)?")
_LEAD = re.compile(r"(?:answer|result|choice|option)\s*(?:is|was|:|=)|####", re.IGNORECASE)
# A single letter, unless it is the word "I" or the article "A" at the beginning of a clause.
_LETTER = re.compile(
    r"(?<![A-Za-z0-9'])(?!I\s+[a-z])(?!A\s+(?!or\b|and\b|is\b|because\b)[a-z])"
    r"\(?\[?\*{0,2}([A-J])\*{0,2}\]?\)?(?![A-Za-z0-9'’])"
)
_ARTICLES = {"a", "an", "the"}


def exact(answer: str, reference: str) -> float:
    """1 if the texts are equal, apart from white space at the ends."""
    return float(answer.strip() == reference.strip())


def words(text: str) -> list[str]:
    """The words of a text in lower case, without punctuation and English articles; accents are kept."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    plain = "".join(c if c.isalnum() else " " if c not in "'’" else "" for c in folded)
    return [word for word in plain.split() if word not in _ARTICLES]


def normalised(answer: str, reference: str) -> float:
    """1 if the texts have the same `words`."""
    return float(words(answer) == words(reference) != [])


def contains(answer: str, reference: str) -> float:
    """1 if the `words` of the reference occur in the answer, consecutively and in order."""
    spoken, wanted = words(answer), words(reference)
    spans = range(len(spoken) - len(wanted) + 1)
    return float(bool(wanted) and any(spoken[i : i + len(wanted)] == wanted for i in spans))


def final(text: str) -> str:
    r"""The part of a text with its result: the last \boxed{}, else after the last "answer is", else all."""
    inside = boxed(text)
    if inside is not None:
        return inside
    leads = list(_LEAD.finditer(text))
    return text[leads[-1].end() :] if leads and text[leads[-1].end() :].strip() else text


def number(text: str) -> Fraction | None:
    """The last number of a text, or None; after "answer is" the first. 1,000 and 3/4 and 2e-3 are numbers."""
    place = final(text)
    numbers = [digits for digits in _NUMBER.findall(place) if any(c.isdigit() for c in digits)]
    if not numbers:
        return None
    top, _, bottom = (numbers[0] if place is not text else numbers[-1]).replace(",", "").partition("/")
    if len(top) > 60 or re.search(r"[eE][-+]?\d{4,}", top):
        return None
    value = Fraction(top.strip().rstrip("."))
    under = Fraction(bottom.strip()) if bottom else Fraction(1)
    return value / under if under else None


def numeric(answer: str, reference: str) -> float:
    """1 if answer and reference have the same `number`, compared exactly."""
    stated, wanted = number(answer), number(reference)
    return float(stated is not None and stated == wanted)


def symbolic(answer: str, reference: str) -> float:
    """1 if the results are mathematically equal: boxed, after "answer is", or on the last line."""
    place, wanted = final(answer), boxed(reference) or reference
    if place is answer:
        lines = [line for line in answer.splitlines() if line.strip()]
        place = lines[-1] if lines else ""
    return float(equal(place, wanted))


def letter(answer: str, reference: str) -> float:
    """1 if the choices (A to J) are equal; an answer with several choices and no conclusion is wrong."""
    wanted = _choice(reference.strip().upper())
    return float(wanted is not None and _choice(answer) == wanted)


def _choice(text: str) -> str | None:
    place = final(text)
    letters = _LETTER.findall(place if place is not text else text)
    if place is not text and letters:
        return str(letters[0])
    opening = re.match(r"\s*\(?\*{0,2}([A-J])\*{0,2}\s*(?:[).:,\n]|$)", text)
    if opening:
        return opening[1]
    return str(letters[0]) if len(set(letters)) == 1 else None


NAMED: dict[str, Compare] = {
    "exact": exact,
    "normalised": normalised,
    "contains": contains,
    "numeric": numeric,
    "symbolic": symbolic,
    "letter": letter,
}
"""Comparisons by their name in a configuration."""


@dataclass(frozen=True)
class ReferenceGrader:
    """A grader from any callable (answer, reference) -> number from 0 to 1; the best reference counts."""

    compare: Compare = field(repr=False)

    def score(self, answer: str, references: tuple[str, ...]) -> float:
        """The highest score over all references; `UsageError` without a reference or a finite number."""
        scores = [float(self.compare(answer, reference)) for reference in references]
        if not scores or not all(math.isfinite(score) for score in scores):
            raise UsageError(
                "a grader",
                expected="a finite number for each of at least one reference",
                came=str(scores),
                do="Give every prompt an answer to compare with, and return a number.",
            )
        return max(scores)


Grader = ReferenceGrader | Judge
