"""Questions routed one by one: looks are made when the router buys them, and billed.

The costly estimate of a live router is `estimators.looking.Looking`: it lets a specialist begin its answer
and passes what it shows to the fitted estimate. If that specialist is chosen it continues its answer, so a
look is never paid twice; other beginnings are cancelled. A specialist that does not run on this machine is
replayed: it answers held-out questions from the record (`Replayed`), and the output says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pandora_router.collect.assemble import Question
from pandora_router.demo.records import graded
from pandora_router.estimators.looking import Looking
from pandora_router.router import Decision, Router
from pandora_router.specialists.specialist import Answer, Beginning, Request, Specialist, Unanswered
from pandora_router.wires.look import shown

Tell = Callable[[Beginning, float], None]
"""Called for each look with the beginning that was seen and the estimate that came of it."""


@dataclass(frozen=True)
class Replayed:
    """A specialist that returns its recorded answers with their recorded times.

    `answers` are recorded answers by the text of the question.
    """

    name: str
    answers: Mapping[str, Answer] = field(repr=False)

    @property
    def identity(self) -> str:
        """The name of the specialist."""
        return f"recorded {self.name}"

    @property
    def at_once(self) -> int:
        """An arbitrary number: replaying needs no limit."""
        return 1

    def most(self, request: Request) -> float:
        """What the recorded answer took; 0 if there is none."""
        answer = self.answers.get(request.prompt)
        return 0.0 if answer is None else answer.fee

    async def begin(self, request: Request) -> Beginning:
        """The recorded context; raises `Unanswered` if this question was not recorded."""
        answer = self._answer(request)
        seconds = answer.context_seconds or 0.0

        async def go_on() -> Answer:
            return answer

        seen, chances = answer.context, answer.logprobs
        return Beginning(
            self.name, request, context=seen, logprobs=chances, seconds=seconds, cost=seconds, go_on=go_on
        )

    async def answer(self, request: Request, begun: Beginning | None = None) -> Answer:
        """The recorded answer; raises `Unanswered` if this question was not recorded."""
        if begun is not None:
            return await begun.finish(self.name, request)
        return self._answer(request)

    def _answer(self, request: Request) -> Answer:
        if request.prompt not in self.answers:
            raise Unanswered(f"{self.name} was not recorded on this question", failure="invalid reply")
        return self.answers[request.prompt]


def cast(
    running: Mapping[str, Specialist],
    answers: Mapping[tuple[str, str], Answer],
    questions: Sequence[Question],
) -> dict[str, Specialist]:
    """The specialists that can answer `questions`, by name: those that run here, and recorded ones.

    `answers` are recorded answers by question id and specialist.
    """
    texts = {question.id: question.text for question in questions}
    by_specialist: dict[str, dict[str, Answer]] = {}
    for (prompt_id, name), answer in answers.items():
        if prompt_id in texts:
            by_specialist.setdefault(name, {})[texts[prompt_id]] = answer
    return {**{name: Replayed(name, known) for name, known in by_specialist.items()}, **running}


@dataclass(frozen=True, eq=False)
class RoutedQuestion:
    """One question routed: the decision, the answer bought, whether it is right.

    `answer.seconds` include a look at the chosen specialist; `lost_seconds` are those of all other looks.
    """

    question: Question
    decision: Decision
    answer: Answer
    right: float
    lost_seconds: float

    @property
    def seconds(self) -> float:
        """Processor seconds of everything that was bought for this question."""
        return self.answer.seconds + self.lost_seconds


async def route(
    router: Router, question: Question, people: Mapping[str, Specialist], tell: Tell
) -> RoutedQuestion:
    """Decide with live looks; then the chosen specialist continues, and other beginnings are cancelled.

    `people` are all specialists of the router, by name. `tell` is called for every look that was bought.
    Raises `Unanswered` if the chosen specialist gives no answer.
    """
    assert router.predictor is not None
    with Looking(Request.of(question.text), router.predictor, people, context_of=_as_recorded) as looking:
        decision = await replace(router, costly=looking).aroute(question.text)
        for name, value in decision.costly.items():
            tell(looking.begun[name], value)
        answer = await looking.answer(decision.specialist)
    return RoutedQuestion(question, decision, answer, graded(question, answer), looking.lost)


def _as_recorded(begun: Beginning) -> str:
    """What was seen, in the form in which recorded contexts are kept."""
    return shown(begun.context, begun.logprobs)
