"""A language model as judge: it grades answers, and predicts how good an answer will be.

The texts to be judged come from users and models and may contain instructions, or imitate the tags around
them. They are therefore written as JSON strings with `<`, `>` and `&` escaped: no text can end its own string
or look like a tag. The judge must reply with a JSON object; `read_verdict` says what is accepted.

The judge is a specialist: its fee follows from its prices, and its calls are subject to the rate limit of its
endpoint, over all prompts that are judged at the same time.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from pandora_router.errors import UsageError
from pandora_router.estimators.estimator import Named, Query, names
from pandora_router.specialists.specialist import Answer, Request, Specialist, Unanswered
from pandora_router.specialists.templates import ESTIMATE, ESTIMATE_FROM_BEGINNING, JUDGE, Template
from pandora_router.types import Vector

VERDICT = (
    'Reply with nothing but one of these two JSON objects: {"verdict": "correct"} or {"verdict": "wrong"}'
)
PERCENT = (
    'Reply with nothing but a JSON object {"percent": N}, '
    "where N is a number from 0 (surely not) to 100 (surely)"
)
LONGEST = 4096
"""Characters; a longer reply is not a verdict."""
_FENCE = re.compile(r"```(?:json)?\s*\n(.*)\n\s*```", re.DOTALL)
_WORD = re.compile(r"(correct|wrong|incorrect)[.!]?", re.IGNORECASE)
_PERCENT = re.compile(r"(\d{1,3}(?:\.\d{1,6})?) ?%")
_SCORES = {"correct": 1.0, "wrong": 0.0, "incorrect": 0.0}


def quoted(text: str) -> str:
    """`text` as an ASCII JSON string with `<`, `>` and `&` escaped, so it cannot end or imitate a tag."""
    plain = json.dumps(text)
    for mark in "<>&":
        plain = plain.replace(mark, f"\\u{ord(mark):04x}")
    return plain


def read_verdict(text: str) -> float | None:
    """The score from 0 to 1 in a judge's reply, or None if the reply is not a verdict.

    The whole reply must be one JSON object (possibly in a code fence) with "verdict": "correct" or "wrong",
    or with "percent": a number from 0 to 100, and optionally a "reason". Also accepted is a reply that
    consists of one of the words correct, wrong and incorrect, or of a number with a percent sign. Words
    inside a longer text are never used.

    >>> read_verdict('{"verdict": "wrong"}'), read_verdict("80%"), read_verdict("It is not correct.")
    (0.0, 0.8, None)
    """
    verdict = text.strip()
    if len(verdict) > LONGEST:
        return None
    fence = _FENCE.fullmatch(verdict)
    verdict = fence[1].strip() if fence else verdict
    if verdict.startswith("{"):
        return _from_object(verdict)
    word, percent = _WORD.fullmatch(verdict), _PERCENT.fullmatch(verdict)
    if word:
        return _SCORES[word[1].lower()]
    return _share(float(percent[1])) if percent else None


def _from_object(text: str) -> float | None:
    try:
        pairs = json.loads(text, object_pairs_hook=list, parse_int=float)
    except (ValueError, RecursionError):
        return None
    members = dict(pairs)
    if len(members) < len(pairs) or len({"verdict", "percent"} & set(members)) != 1:
        return None
    if not set(members) <= {"verdict", "percent", "reason"}:
        return None
    if "verdict" in members:
        verdict = members["verdict"]
        return _SCORES.get(verdict.lower()) if isinstance(verdict, str) else None
    percent = members["percent"]
    return _share(percent) if isinstance(percent, float) else None


def _share(percent: float) -> float | None:
    return percent / 100.0 if math.isfinite(percent) and 0.0 <= percent <= 100.0 else None


@dataclass(frozen=True)
class Judge:
    """A judge, with the prices and limits of the specialist that it asks.

    specialist: the model that judges; 32 tokens are enough for a verdict.
    template: question for grading an answer, with {question}, {reference} and {answer}.
    before: question about an answer that has not begun, with {question} and {specialist}.
    begun: the same if the beginning of the answer is known, with {context} too.

    The fields are filled in as JSON strings, and the required form of the reply is appended. As an
    `Estimator` a judge is asked about each specialist separately and estimates the probability that its
    answer is right.
    """

    specialist: Specialist
    template: Template = JUDGE
    before: Template = ESTIMATE
    begun: Template = ESTIMATE_FROM_BEGINNING
    needs: frozenset[str] = frozenset()
    together: bool = False

    def __post_init__(self) -> None:
        wanted = {"question", "answer", "reference"}
        if not {"question", "answer"} <= self.template.fields <= wanted:
            raise UsageError(
                "the template of a judge",
                expected="the fields {question} and {answer}, perhaps {reference}, and no other",
                came=", ".join(sorted(self.template.fields)) or "no field",
                do="Change the template.",
            )

    @property
    def identity(self) -> str:
        """Identifies specialist and templates: judges with equal identities give the same verdicts."""
        texts = (self.template.text, self.before.text, self.begun.text, VERDICT, PERCENT)
        return (
            f"judge {hashlib.sha256(json.dumps(texts).encode()).hexdigest()[:16]} {self.specialist.identity}"
        )

    @property
    def at_once(self) -> int:
        """Most verdicts that may be requested at the same time."""
        return self.specialist.at_once

    def asked(self, question: str, answer: str, references: Sequence[str]) -> Request:
        """The request to grade `answer`, given the reference answers that count as right."""
        right = "[" + ", ".join(quoted(text) for text in references) + "]"
        fields = {"question": quoted(question), "answer": quoted(answer), "reference": right}
        return Request.of(f"{self.template.fill(**fields)}\n\n{VERDICT}")

    def asked_before(self, prompt: str, specialist: str, context: str | None) -> Request:
        """The request to predict how good an answer will be, from its beginning if there is one."""
        fields = {"question": quoted(prompt), "specialist": quoted(specialist)}
        template = self.before
        if context is not None:
            template, fields["context"] = self.begun, quoted(context)
        return Request.of(f"{template.fill(**fields)}\n\n{PERCENT}")

    def most(self, request: Request) -> float:
        """An upper bound on what one verdict can cost."""
        return self.specialist.most(request)

    async def verdict(self, request: Request) -> tuple[float, Answer]:
        """The score from 0 to 1, and the judge's own answer, which has the fee.

        Raises `Unanswered` if the judge did not answer or its answer is not a verdict; the exception says
        what was lost.
        """
        answer = await self.specialist.answer(request)
        score = read_verdict(answer.text)
        if score is None:
            lost = answer.fee + answer.lost
            raise Unanswered("the judge gave no verdict", failure="invalid reply", lost=lost)
        return score, replace(answer, context=None, logprobs=None)

    async def estimate(self, query: Query, specialists: Sequence[Named | str]) -> Vector:
        """The probability that each specialist's answer is right; NaN without a verdict."""
        scores = await asyncio.gather(*(self._score(query, name) for name in names(specialists)))
        return np.asarray(scores, dtype=np.float64)

    async def _score(self, query: Query, name: str) -> float:
        try:
            score, _ = await self.verdict(self.asked_before(query.prompt, name, query.contexts.get(name)))
        except Unanswered:
            return math.nan
        return score
