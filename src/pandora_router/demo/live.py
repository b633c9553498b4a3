"""Fresh questions through the running specialists: looks are made when the router buys them, and billed.

`Looks` is the costly estimate of a live router: asked about a specialist it really has that one begin, and
hands what it saw to the fitted estimate. Every look is told as it happens. Without the model the
recorded answers of held-out questions stand in (`Replayed`), and whoever prints says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from pandora_router.specialists.answer import Answer
from pandora_router.specialists.request import Request
from pandora_router.specialists.specialist import Specialist

from ..collect.assemble import Question, shown
from ..errors import UpstreamError
from ..estimators.beginnings import Beginnings
from ..estimators.estimator import Fitted, Named, Query, names
from ..router import Decision, Router
from .grading import graded
from .people import look

Tell = Callable[[str, Answer, float], None]
"""Called after each look with the specialist, what was seen and the estimate that came of it."""


@dataclass(frozen=True)
class Running:
    """Specialists that answer now."""

    people: Mapping[str, Specialist]

    async def look(self, question: Question, name: str) -> Answer:
        """Look at the beginning of an answer."""
        return await look(self.people[name], question.text)

    async def answer(self, question: Question, name: str) -> Answer:
        """Buy the answer."""
        return await self.people[name].answer(Request.of(question.text))


@dataclass(frozen=True)
class Replayed:
    """What specialists said when they were recorded."""

    answers: Mapping[tuple[str, str], Answer]

    async def look(self, question: Question, name: str) -> Answer:
        """What was seen then, with the seconds that the look took then."""
        said = await self.answer(question, name)
        return replace(said, seconds=said.context_seconds or 0.0)

    async def answer(self, question: Question, name: str) -> Answer:
        """What was answered then."""
        if (question.id, name) not in self.answers:
            raise UpstreamError(f"{name} was not recorded on question {question.id}")
        return self.answers[question.id, name]


@dataclass
class Looks:
    """The costly estimate that looks for itself; `seconds` adds up what the looks took."""

    question: Question
    source: Running | Replayed
    fitted: Beginnings
    tell: Tell
    seen: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    needs: frozenset[str] = frozenset()
    together: bool = False

    async def estimate(self, query: Query, specialists: Sequence[Named | str]) -> NDArray[np.float64]:
        """One look per specialist asked for, then the fitted estimate of what was seen."""
        found = []
        for name in names(specialists):
            said = await self.source.look(self.question, name)
            self.seconds += said.seconds
            self.seen[name] = shown(said)
            value = await Fitted(self.fitted).estimate(Query(query.prompt, self.seen), [name])
            self.tell(name, said, float(value[0]))
            found.append(float(value[0]))
        return np.asarray(found, dtype=np.float64)


@dataclass(frozen=True, eq=False)
class Routed:
    """One question routed: the decision, the answer bought, whether it is right, seconds of looks."""

    question: Question
    decision: Decision
    answer: Answer
    right: float
    look_seconds: float


async def route(router: Router, question: Question, source: Running | Replayed, tell: Tell) -> Routed:
    """Decide with live looks, then buy the answer of whoever was chosen."""
    assert isinstance(router.costly, Beginnings)
    looks = Looks(question, source, router.costly, tell)
    decision = await replace(router, costly=looks).aroute(question.text)
    answer = await source.answer(question, decision.specialist)
    return Routed(question, decision, answer, graded(question, answer), looks.seconds)
