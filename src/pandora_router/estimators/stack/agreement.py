"""Do specialists begin to say the same? Features of one beginning compared with those of all specialists.

Results with these features are always labelled, for two reasons: they need the beginnings of all specialists,
which are paid for at once; and part of the gain is that answers may already be visible in the beginnings
(docs/method.md, section 9). Only texts and each specialist's mean training reward are used, never an answer
key.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pandora_router.estimators.embedders.tfidf import NUMBER
from pandora_router.estimators.stack.features import WORD
from pandora_router.types import Contexts, Matrix

LETTER = re.compile(r"\(([A-J])\)|\b(?:answer|option|choice)\W+(?:is\W+)?(?:option\W+)?([A-J])\b")
NAME = re.compile(r"\b[A-Z][\w'-]+|\b\d[\d.,]*")
AGREEMENT = 13


def agreement(prompts: Sequence[str], contexts: Contexts, strength: Matrix) -> Matrix:
    """Features (prompts, specialists, AGREEMENT); NaN where the specialist has no context.

    For the last number, the last option letter, and the sets of numbers, names and words not in the prompt:
    the fraction of other specialists with the same, plain and weighted by `strength` (specialists,), their
    mean training reward; for numbers and letters also the frequency of the most common one.
    """
    features = np.full((*contexts.shape, AGREEMENT), np.nan)
    pull = np.exp(4.0 * (strength - strength.max()))
    for row, prompt in enumerate(prompts):
        present = [j for j, text in enumerate(contexts[row]) if text is not None]
        if present:
            texts = [str(contexts[row, j]) for j in present]
            features[row, present] = _among(prompt, texts, pull[present])
    return features


@dataclass(frozen=True)
class Saying:
    """The parts of a text that are compared: last number, last option letter, numbers, names and words."""

    number: str | None
    letter: str | None
    numbers: frozenset[str]
    names: frozenset[str]
    words: frozenset[str]


def saying(prompt: str, texts: Sequence[str]) -> list[Saying]:
    """The parts of each text that are compared, without numbers, names and words of the prompt."""
    prompt_words = set(WORD.findall(prompt.lower()))
    return [
        Saying(
            _last_number(text),
            _last_letter(text),
            frozenset(_numbers(text) - prompt_words),
            frozenset(_names(text) - prompt_words),
            frozenset(_words(text) - prompt_words),
        )
        for text in texts
    ]


def said_alike(texts: Mapping[str, str]) -> list[str]:
    """Sentences on agreement: last numbers and option letters that two or more texts have in common.

    >>> said_alike({"small": "so it is 42", "large": "that makes 42.", "poet": "maybe 7"})
    ['small and large both say 42']
    """
    sentences = []
    for read in (_last_number, _last_letter):
        groups: dict[str, list[str]] = {}
        for name, text in texts.items():
            what = read(text)
            if what is not None:
                groups.setdefault(what, []).append(name)
        for what, names in groups.items():
            if len(names) > 1:
                who = f"{', '.join(names[:-1])} and {names[-1]} {'both' if len(names) == 2 else 'all'}"
                sentences.append(f"{who} say {what}")
    return sentences


def _among(prompt: str, texts: list[str], pull: Matrix) -> Matrix:
    prompt_words = set(WORD.findall(prompt.lower()))
    columns: list[Matrix] = []
    for read in (_last_number, _last_letter):
        columns.extend(_same([read(text) for text in texts], pull))
    readers: tuple[Callable[[str], set[str]], ...] = (_numbers, _names, _words)
    for reader in readers:
        columns.extend(_shared([reader(text) - prompt_words for text in texts], pull))
    size = np.asarray([len(text) for text in texts], dtype=np.float64)
    columns.append(size / max(size.mean(), 1.0))
    return np.column_stack(columns)


def _same(said: list[str | None], pull: Matrix) -> list[Matrix]:
    """Fraction of the others that say the same, weighted fraction, frequency of the most common statement."""
    plain: Counter[str] = Counter(word for word in said if word is not None)
    weighted: dict[str, float] = {}
    for word, weight in zip(said, pull, strict=True):
        if word is not None:
            weighted[word] = weighted.get(word, 0.0) + float(weight)
    heard, mass = sum(plain.values()), sum(weighted.values())
    share = [np.nan if w is None else (plain[w] - 1) / max(heard - 1, 1) for w in said]
    heavy = [
        np.nan if w is None else (weighted[w] - p) / max(mass - p, 1e-12)
        for w, p in zip(said, pull, strict=True)
    ]
    most = max(plain.values()) / heard if heard else np.nan
    return [np.asarray(share), np.asarray(heavy), np.full(len(said), most)]


def _shared(said: list[set[str]], pull: Matrix) -> list[Matrix]:
    """How many of the others contain what this one contains: mean over its elements, plain and weighted."""
    plain: Counter[str] = Counter()
    weighted: dict[str, float] = {}
    for members, weight in zip(said, pull, strict=True):
        plain.update(members)
        for member in members:
            weighted[member] = weighted.get(member, 0.0) + float(weight)
    others, mass = max(len(said) - 1, 1), float(pull.sum())
    share = [np.mean([plain[m] - 1 for m in members]) / others if members else np.nan for members in said]
    heavy = [
        np.mean([weighted[m] - w for m in members]) / max(mass - w, 1e-12) if members else np.nan
        for members, w in zip(said, pull, strict=True)
    ]
    return [np.asarray(share, dtype=np.float64), np.asarray(heavy, dtype=np.float64)]


def _last_number(text: str) -> str | None:
    numbers = NUMBER.findall(text)
    return numbers[-1].replace(",", "") if numbers else None


def _last_letter(text: str) -> str | None:
    letters = LETTER.findall(text)
    return "".join(letters[-1]) if letters else None


def _numbers(text: str) -> set[str]:
    return set(NUMBER.findall(text))


def _names(text: str) -> set[str]:
    return {name.lower() for name in NAME.findall(text)}


def _words(text: str) -> set[str]:
    return {word for word in WORD.findall(text.lower()) if len(word) > 3}
