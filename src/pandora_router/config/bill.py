"""What collecting a table will still cost, expected and at worst, compared with the rest of the budget."""

from __future__ import annotations

from dataclasses import dataclass

from pandora_router.collect.assemble import CollectPlan, cells, grade_key
from pandora_router.collect.collection import LONGEST_JUDGED
from pandora_router.collect.journal import Journal
from pandora_router.config.collect_section import JudgeGrading, grades
from pandora_router.config.file import Config
from pandora_router.config.inspection import JUDGE_TEMPLATE
from pandora_router.estimators.judge import Judge
from pandora_router.prices import CHARACTERS_PER_TOKEN, USUAL_ANSWER
from pandora_router.specialists.request import Request


@dataclass(frozen=True)
class Bill:
    """The calls that are still to be made, and their cost. `expected` assumes answers of usual length.

    prompts: number of prompts without an answer or a verdict.
    bought: number of answers in the journal.
    spent: cost of the journal so far, including failed calls that may have been charged; counts against
        `budget`.
    """

    prompts: int
    answers: int
    verdicts: int
    expected: float
    worst_answers: float
    worst_verdicts: float
    budget: float
    bought: int = 0
    spent: float = 0.0

    @property
    def worst(self) -> float:
        """Most that everything still to be bought can cost."""
        return self.worst_answers + self.worst_verdicts

    @property
    def left(self) -> float:
        """The rest of the budget."""
        return max(0.0, self.budget - self.spent)

    @property
    def affordable(self) -> int:
        """Number of prompts for which the budget should suffice, at the expected cost."""
        return self.prompts if self.expected <= self.left else int(self.prompts * self.left / self.expected)


def bill(config: Config, plan: CollectPlan, journal: Journal | None = None) -> Bill:
    """What `plan`, made from `config`, will still cost; `journal` has what was bought before."""
    kinds = grades(config.grading)
    answers = [0] * len(plan.questions)
    verdicts = [0] * len(plan.questions)
    expected = worst_answers = worst_verdicts = 0.0
    for specialist in plan.specialists:
        settings = config.specialists[specialist.name]
        for at, cell in enumerate(cells(plan, specialist)):
            question, number = cell.question, at // plan.samples
            tokens = len(question.text) / CHARACTERS_PER_TOKEN
            if journal is None or cell.key not in journal.answers:
                answers[number] += 1
                worst_answers += specialist.most(Request.of(question.text))
                expected += settings.usual(tokens, config)
            grade, grader = kinds.get(question.task, kinds.get("")), plan.grader(question)
            if not isinstance(grade, JudgeGrading) or not isinstance(grader, Judge):
                continue
            if journal is None or grade_key(cell, grader) not in journal.grades:
                verdicts[number] += 1
                worst_verdicts += grader.most(
                    grader.asked(question.text, "x" * LONGEST_JUDGED, question.references)
                )
                read = tokens + USUAL_ANSWER + JUDGE_TEMPLATE
                expected += config.specialists[grade.judge].usual(read, config)
    calls = len(plan.questions) * len(plan.specialists) * plan.samples
    return Bill(
        prompts=sum(bool(a or v) for a, v in zip(answers, verdicts, strict=True)),
        answers=sum(answers),
        verdicts=sum(verdicts),
        expected=expected,
        worst_answers=worst_answers,
        worst_verdicts=worst_verdicts,
        budget=plan.budget,
        bought=calls - sum(answers),
        spent=0.0 if journal is None else float(journal.spent + journal.lost),
    )
