"""Several answers of one specialist, of which the majority wins."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from ..errors import UsageError
from .answer import Answer, Specialist, Unanswered


def same(text: str) -> str:
    """What answers that count as one have in common: letters and digits, lower case, single spaces."""
    kept = "".join(c if c.isalnum() or c in ".-/" else " " for c in text.casefold())
    return " ".join(word for word in (one.rstrip(".-/") for one in kept.split()) if word)


@runtime_checkable
class Several(Protocol):
    """Reads a prompt once and answers it n times; the whole bill is with the first answer."""

    async def several(self, prompt: str, n: int) -> list[Answer]:
        """n answers."""
        ...


@dataclass(frozen=True)
class Sampling:
    """`n` answers bought together; those with equal `key(text)` are one vote, ties go to the earliest.

    Empty answers do not vote unless all are empty. The fee is that of all n; seconds are of the slowest. The
    context is how all n begin, one to a line. A specialist that can give `several` for one reading is asked
    so.
    """

    name: str
    inner: Specialist
    n: int = 5
    key: Callable[[str], str] = field(default=same, repr=False)

    def __post_init__(self) -> None:
        if self.n < 1:
            raise UsageError(
                "n of a sampling specialist", expected="at least 1", came=f"{self.n}", do="Try 5."
            )

    @property
    def identity(self) -> str:
        """How many of what."""
        return f"majority of {self.n}, {self.inner.identity}"

    @property
    def at_once(self) -> int:
        """As many as fit beside each other."""
        return max(self.inner.at_once // self.n, 1)

    def most(self, prompt: str) -> float:
        """n answers at their worst."""
        return self.n * self.inner.most(prompt)

    async def answer(self, prompt: str) -> Answer:
        """The majority's answer; if one of the n cannot be had there is none, and the others are lost."""
        if isinstance(self.inner, Several):
            return self._elected(await self.inner.several(prompt, self.n))
        asked = (self.inner.answer(prompt) for _ in range(self.n))
        found = await asyncio.gather(*asked, return_exceptions=True)
        answers = [one for one in found if isinstance(one, Answer)]
        for error in found:
            if isinstance(error, BaseException) and not isinstance(error, Unanswered):
                raise error
        failures = [one for one in found if isinstance(one, Unanswered)]
        if failures:
            gone = sum(one.fee + one.lost for one in answers) + sum(one.lost for one in failures)
            first = failures[0]
            dead = any(one.dead for one in failures)
            raise Unanswered(f"{self.name}: {first}", failure=first.failure, dead=dead, lost=gone) from first
        return self._elected(answers)

    def _elected(self, answers: Sequence[Answer]) -> Answer:
        votes = Counter(key for one in answers if (key := self.key(one.text)))
        winner = max(votes, key=lambda key: votes[key]) if votes else ""
        best = next(one for one in answers if self.key(one.text) == winner)
        counted_in = [one.tokens_in for one in answers if one.tokens_in is not None]
        counted_out = [one.tokens_out for one in answers if one.tokens_out is not None]
        return Answer(
            best.text,
            sum(counted_in) if len(counted_in) == len(answers) else None,
            sum(counted_out) if len(counted_out) == len(answers) else None,
            max(one.seconds for one in answers),
            sum(one.fee for one in answers),
            "\n".join(one.context or "" for one in answers).strip() or None,
            best.finish,
            sum(one.lost for one in answers),
            answers[0].logprobs,
            answers[0].context_seconds,
        )
