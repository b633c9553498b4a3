"""What collecting a table will cost: as expected, and at worst, beside the budget."""

from __future__ import annotations

from dataclasses import dataclass

from pandora_router.collect.assemble import CollectPlan
from pandora_router.collect.run import LONGEST_JUDGED
from pandora_router.config.collecting import JudgeGrading, grades
from pandora_router.config.file import Config
from pandora_router.config.inspection import CHARACTERS_PER_TOKEN, JUDGE_TEMPLATE
from pandora_router.config.specialists import USUAL_ANSWER
from pandora_router.estimators.judge import Judge
from pandora_router.specialists.request import Request


@dataclass(frozen=True)
class Bill:
    """Numbers of calls and amounts of money. `expected` assumes answers of usual length."""

    prompts: int
    answers: int
    verdicts: int
    expected: float
    worst_answers: float
    worst_verdicts: float
    budget: float

    @property
    def worst(self) -> float:
        """The most that everything together can cost."""
        return self.worst_answers + self.worst_verdicts

    @property
    def affordable(self) -> int:
        """How many prompts the budget should be enough for, at the expected cost."""
        each = self.expected / self.prompts
        return self.prompts if each * self.prompts <= self.budget else int(self.budget / each)


def bill(config: Config, plan: CollectPlan) -> Bill:
    """What `plan`, made from `config`, will cost if nothing was bought before."""
    expected = worst_answers = worst_verdicts = 0.0
    verdicts = 0
    kinds = grades(config.grading)
    for question in plan.questions:
        tokens = len(question.text) / CHARACTERS_PER_TOKEN
        worst_answers += sum(one.most(Request.of(question.text)) for one in plan.specialists)
        expected += sum(config.specialists[one.name].usual(tokens, config) for one in plan.specialists)
        grade = kinds.get(question.task, kinds.get(""))
        grader = plan.grader(question)
        if isinstance(grade, JudgeGrading) and isinstance(grader, Judge):
            verdicts += len(plan.specialists)
            asked = grader.asked(question.text, "x" * LONGEST_JUDGED, question.references)
            worst_verdicts += len(plan.specialists) * grader.most(asked)
            read = tokens + USUAL_ANSWER + JUDGE_TEMPLATE
            expected += len(plan.specialists) * config.specialists[grade.judge].usual(read, config)
    many = plan.samples
    return Bill(
        prompts=len(plan.questions),
        answers=len(plan.questions) * len(plan.specialists) * many,
        verdicts=verdicts * many,
        expected=expected * many,
        worst_answers=worst_answers * many,
        worst_verdicts=worst_verdicts * many,
        budget=plan.budget,
    )
