"""Surface features of a text: lengths, digits, symbols, lines, options; nothing about its meaning.

`surface` describes one text; `peeked` describes the beginning of an answer (or passages) together with the
prompt. Neither uses tasks, specialists or rewards.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from pandora_router.types import Matrix

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

PLAIN = re.compile(r"[\x00-\x7f]+")
ASCII = [chr(code) for code in range(128)]
DIGITS = "".join(filter(str.isdigit, ASCII)).encode()
CAPITALS = "".join(filter(str.isupper, ASCII)).encode()
WRITTEN = "".join(one for one in ASCII if one.isalnum() or one.isspace()).encode()

SURFACE = 20
PEEKED = SURFACE + 9


def surface(texts: Sequence[str]) -> Matrix:
    """Features (texts, SURFACE) of each text; finite for every text, including the empty one."""
    return np.asarray([_one(text) for text in texts], dtype=np.float64).reshape(len(texts), SURFACE)


def _one(text: str) -> list[float]:
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


def asked_for(prompt: str) -> tuple[set[str], set[str]]:
    """The words and the numbers of a prompt, as an argument of `peeked`."""
    return set(WORD.findall(prompt.lower())), set(NUMBER.findall(prompt))


def peeked(prompt: tuple[set[str], set[str]], context: str) -> list[float]:
    """Features (PEEKED,) of a context: its surface, and what it has in common with the prompt."""
    asked, given = prompt
    words, used = WORD.findall(context.lower()), NUMBER.findall(context)
    marked = [match.start() for match in DONE.finditer(context)]
    return [
        *_one(context),
        len(asked.intersection(words)) / (len(asked) + 1),
        sum(1 for word in words if word in asked) / (len(words) + 1),
        len(given.intersection(used)) / (len(given) + 1),
        float(sum(1 for number in used if number not in given)),
        float(len(LETTER.findall(context))),
        float(len(DOUBT.findall(context))),
        float(len(marked)),
        (marked[0] if marked else len(context)) / (len(context) + 1),
        float(context.rstrip()[-1:] in {".", "}", "]", "*"}),
    ]
