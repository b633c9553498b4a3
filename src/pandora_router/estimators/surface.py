"""What a text looks like, without knowing what it is about: lengths, digits, symbols, lines, options.

`surface` describes one text; `peeked` describes the first characters of a specialist's own answer (or its
passages) beside the prompt they belong to. Neither knows tasks, specialists or rewards.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from pandora_router.estimators.rewards import Matrix

NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
OPTION = re.compile(r"^\s*\(?[A-Za-z][.)]\s", re.MULTILINE)
WORD = re.compile(r"\w+")
LETTER = re.compile(r"\b[A-J]\b")
DOUBT = re.compile(
    r"\b(?:not sure|unclear|cannot|can't|unknown|however|but|no information|not (?:mentioned|provided|stated)"
    r"|sorry|assum\w+|perhaps|maybe|might|likely|actually|wait)\b",
    re.IGNORECASE,
)
DONE = re.compile(r"\b(?:answer|therefore|thus|hence|so the|final|total)\b|####", re.IGNORECASE)

SURFACE = 20
PEEKED = SURFACE + 9


def surface(texts: Sequence[str]) -> Matrix:
    """Features (texts, SURFACE) of each text alone; finite for every text, also the empty one."""
    return np.asarray([_one(text) for text in texts], dtype=np.float64).reshape(len(texts), SURFACE)


def _one(text: str) -> list[float]:
    size, words, lines = len(text) + 1, text.split(), text.split("\n")
    numbers = NUMBER.findall(text)
    longest = max((len(number) for number in numbers), default=0)
    marks = sum(1 for letter in text if not letter.isalnum() and not letter.isspace())
    counts = (text.count(mark) for mark in "?$\\=,(+")
    return [
        float(np.log(size)),
        float(np.log1p(len(words))),
        float(np.log1p(len(lines))),
        size / (len(words) + 1),
        sum(map(str.isdigit, text)) / size,
        sum(map(str.isupper, text)) / size,
        marks / size,
        sum(1 for letter in text if ord(letter) > 127) / size,
        len(set(words)) / (len(words) + 1),
        float(np.log1p(len(numbers))),
        float(longest),
        float(np.log1p(len(OPTION.findall(text)))),
        len(lines[-1]) / size,
        *(float(np.log1p(count)) for count in counts),
    ]


def peeked(prompt: str, context: str) -> list[float]:
    """Features (PEEKED,) of a context beside its prompt: its surface, what it has in common with it."""
    asked, told = set(WORD.findall(prompt.lower())), WORD.findall(context.lower())
    given, used = set(NUMBER.findall(prompt)), NUMBER.findall(context)
    marked = [match.start() for match in DONE.finditer(context)]
    return [
        *_one(context),
        len(asked.intersection(told)) / (len(asked) + 1),
        sum(1 for word in told if word in asked) / (len(told) + 1),
        len(given.intersection(used)) / (len(given) + 1),
        float(sum(1 for number in used if number not in given)),
        float(len(LETTER.findall(context))),
        float(len(DOUBT.findall(context))),
        float(len(marked)),
        (marked[0] if marked else len(context)) / (len(context) + 1),
        float(context.rstrip()[-1:] in {".", "}", "]", "*"}),
    ]
