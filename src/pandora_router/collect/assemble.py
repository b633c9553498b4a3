"""Build a routing table from answers and grades; buys nothing.

Score and fee of a cell are means over its samples that were answered (and graded). A cell without any sample
is missing, never zero. Its context is that of the first sample. The table also has the mean lengths and
speeds of each specialist's answers.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from pandora_router.collect.graders import Grader, ReferenceGrader
from pandora_router.collect.journal import Journal
from pandora_router.data.table import Table
from pandora_router.errors import UsageError
from pandora_router.estimators.judge import Judge
from pandora_router.prices import FASTEST
from pandora_router.specialists.specialist import Answer, Specialist
from pandora_router.wires.look import shown

LONGEST_JUDGED = 4096
"""Characters of an answer that are assumed in the reservation for a judge before the answer is known."""


@dataclass(frozen=True)
class Question:
    """A prompt with the reference answers that count as right, its task and its split."""

    id: str
    text: str
    references: tuple[str, ...] = ()
    task: str = ""
    split: str = ""


@dataclass(frozen=True)
class CollectPlan:
    """What to collect: the answer of every specialist to every question, `samples` times, within `budget`.

    graders: one grader per task; the one under "" is for all other tasks.
    budget: most money to spend, over all runs with one journal.
    at_once: most calls in flight per specialist (a specialist may have a lower limit of its own).
    give_up: after this many failures in a row a specialist is not asked any more.
    fee_weight: stored in the table.
    log_probabilities: put those of the first tokens, if known, on the first line of a context.

    Raises `UsageError` if a number is zero, or if a name or question id occurs twice.
    """

    questions: tuple[Question, ...]
    specialists: tuple[Specialist, ...]
    graders: Mapping[str, Grader]
    budget: float
    samples: int = 1
    at_once: int = 64
    give_up: int = 5
    fee_weight: float = 1.0
    log_probabilities: bool = False

    def __post_init__(self) -> None:
        if min(self.samples, self.at_once, self.give_up) < 1 or not self.questions or not self.specialists:
            raise UsageError(
                "a plan",
                expected="at least one question, specialist, sample, call at once and failure",
                came=f"{len(self.questions)} questions, {len(self.specialists)} specialists, {self.samples} "
                f"samples, {self.at_once} at once, giving up after {self.give_up}",
                do="Set every number to at least 1; give at least one question and one specialist.",
            )
        for what, names in (
            ("prompt ids", [item.id for item in self.questions]),
            ("specialists", [item.name for item in self.specialists]),
        ):
            if len(set(names)) < len(names):
                twice = next(name for name in names if names.count(name) > 1)
                raise UsageError(
                    what, expected="each once", came=f"{twice!r} more than once", do="Rename one."
                )
        for question in self.questions:
            self.grader(question)

    def grader(self, question: Question) -> Grader:
        """The grader for the question's task; `UsageError` if there is none."""
        grader = self.graders.get(question.task, self.graders.get(""))
        if grader is None:
            came = f"none for task {question.task!r}"
            raise UsageError(
                "graders", expected="one for every task", came=came, do='Add one, or one under "".'
            )
        return grader


@dataclass(frozen=True)
class Cell:
    """One answer to buy; `key` identifies it in the journal."""

    question: Question
    specialist: Specialist
    sample: int
    key: str = field(compare=False)


def cells(plan: CollectPlan, specialist: Specialist) -> list[Cell]:
    """All cells of one specialist, with the samples of a question next to each other."""
    identity = specialist.identity
    return [
        Cell(q, specialist, k, key_of(specialist.name, identity, q.id, q.text, k))
        for q in plan.questions
        for k in range(plan.samples)
    ]


def key_of(*parts: object) -> str:
    """Hash of everything that decides an answer: equal parts give the same key on any machine."""
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]


def grade_key(cell: Cell, judge: Judge) -> str:
    """The key of a judge's verdict on a cell's answer."""
    return key_of(cell.key, judge.identity, list(cell.question.references))


def assemble(plan: CollectPlan, journal: Journal) -> Table:
    """The routing table of everything in the journal that belongs to this plan."""
    shape = (len(plan.questions), len(plan.specialists))
    score, fee, seconds, begun = (np.full(shape, np.nan) for _ in range(4))
    contexts = np.full(shape, None, dtype=object)
    lengths: dict[str, dict[str, float]] = {}
    for j, specialist in enumerate(plan.specialists):
        bought = cells(plan, specialist)
        lengths[specialist.name] = measured(
            [journal.answers[cell.key] for cell in bought if cell.key in journal.answers]
        )
        per_character = lengths[specialist.name].get("tokens_per_character", math.nan)
        for i in range(len(plan.questions)):
            of_cell = bought[i * plan.samples : (i + 1) * plan.samples]
            answered = [(cell, journal.answers[cell.key]) for cell in of_cell if cell.key in journal.answers]
            if answered:
                grades = [_grade(plan, cell, answer, journal) for cell, answer in answered]
                score[i, j] = _mean([grade for grade in grades if grade is not None])
                fee[i, j] = _mean([answer.fee for _, answer in answered])
                first = answered[0][1]
                seconds[i, j] = first.seconds
                begun[i, j] = _first_token(first, per_character)
                contexts[i, j] = (
                    shown(first.context, first.logprobs)
                    if plan.log_probabilities and first.logprobs
                    else first.context
                )
    return Table(
        prompt_ids=tuple(q.id for q in plan.questions),
        prompts=tuple(q.text for q in plan.questions),
        tasks=tuple(q.task for q in plan.questions),
        split=np.array([q.split for q in plan.questions], dtype=np.str_),
        specialists=tuple(described.name for described in plan.specialists),
        score=score,
        fee=fee,
        contexts=contexts if any(text is not None for text in contexts.flat) else None,
        fee_weight=plan.fee_weight,
        lengths=lengths,
        seconds=seconds,
        first_seconds=begun if np.isfinite(begun).any() else None,
    )


def measured(answers: Sequence[Answer]) -> dict[str, float]:
    """Lengths and speeds of a specialist's answers, from which the costs of looks are computed (`prices`).

    Means of: input and output tokens, `tokens_per_byte` of the request, `tokens_per_character` of the answer
    and seconds. For streams, which alone show how fast tokens come, also the medians of the seconds to the
    `first_token` and of the `rate` (tokens per second) after it. What no answer tells is left out.
    """
    counted = [answer for answer in answers if None not in (answer.tokens_in, answer.tokens_out)]
    lengths = {
        "input": _mean([answer.tokens_in or 0 for answer in counted]),
        "output": _mean([answer.tokens_out or 0 for answer in counted]),
        "tokens_per_byte": _ratio([(answer.tokens_in, answer.bytes_in) for answer in counted]),
        "tokens_per_character": _ratio([(answer.tokens_out, len(answer.text)) for answer in counted]),
        "seconds": _mean([answer.seconds for answer in answers]),
    }
    speeds = [speed for answer in counted if (speed := _speed(answer, lengths["tokens_per_character"]))]
    if speeds:
        lengths["first_token"], lengths["rate"] = (
            float(np.median(kind)) for kind in zip(*speeds, strict=True)
        )
    return {name: value for name, value in lengths.items() if math.isfinite(value)}


def _ratio(pairs: Sequence[tuple[int | None, int | None]]) -> float:
    """The sum of the first over the sum of the second numbers, at most 1; NaN where there are none."""
    known = [(tokens or 0, length) for tokens, length in pairs if length]
    return min(sum(t for t, _ in known) / sum(n for _, n in known), 1.0) if known else math.nan


def _speed(answer: Answer, per_character: float) -> tuple[float, float] | None:
    """Seconds to the first token, and tokens per second after the context; None if they do not show."""
    if answer.context_seconds is None or answer.context is None or not answer.tokens_out:
        return None
    seen, seconds = len(answer.context) * per_character, answer.seconds - answer.context_seconds
    rest = answer.tokens_out - seen
    if rest < 1.0 or rest > FASTEST * seconds:
        return None
    return max(answer.context_seconds - seen * seconds / rest, 0.0), rest / seconds


def _first_token(answer: Answer, per_character: float) -> float:
    """Seconds to the first token of an answer, NaN if it did not stream.

    Where its speed does not show, the time when its beginning was complete, which is never too early.
    """
    if answer.context_seconds is None:
        return math.nan
    speed = _speed(answer, per_character) if math.isfinite(per_character) else None
    return answer.context_seconds if speed is None else speed[0]


def _grade(plan: CollectPlan, cell: Cell, answer: Answer, journal: Journal) -> float | None:
    """Score of an answer: 0 if it is empty or a refusal; a truncated one is graded as it is.

    Returns None if a judge has not graded it yet.
    """
    if answer.finish in {"refusal", "empty"}:
        return 0.0
    grader = plan.grader(cell.question)
    if isinstance(grader, ReferenceGrader):
        return grader.score(answer.text, cell.question.references)
    return journal.grades.get(grade_key(cell, grader))


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values) if values else math.nan
