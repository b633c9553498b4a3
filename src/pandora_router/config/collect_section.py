"""The sections about collecting, and what collecting will still cost.

The sections `prompts`, `grading` and `collect`: questions, graders, budget.

What collecting a table will still cost, expected and at worst, compared with the rest of the budget.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag, field_validator

from pandora_router.collect import graders
from pandora_router.collect.assemble import LONGEST_JUDGED, CollectPlan, Question, cells, grade_key
from pandora_router.collect.graders import Grader, ReferenceGrader
from pandora_router.config.inspection import JUDGE_TEMPLATE
from pandora_router.config.shared import Amount, Builder, Closed, Count, FunctionName, Name, Natural, Text
from pandora_router.config.specialists import template
from pandora_router.errors import UsageError
from pandora_router.estimators.judge import Judge
from pandora_router.prices import CHARACTERS_PER_TOKEN, USUAL_ANSWER
from pandora_router.specialists.specialist import Request

if TYPE_CHECKING:
    from pandora_router.collect.journal import Journal
    from pandora_router.config.file import Config


JUDGED = frozenset({"question", "answer", "reference"})


def _file(value: Any) -> Any:
    return {"file": value} if isinstance(value, str) else value


class PromptSettings(Closed):
    """A file of questions (JSONL, CSV, Parquet) and its columns; a plain text is the name of the file.

    `separator` separates several right answers in one column; `first` limits the number of questions.
    """

    file: Text
    prompt: Text = "prompt"
    answer: Text = "answer"
    prompt_id: Text = "prompt_id"
    task: Text = "task"
    split: Text = "split"
    separator: Text | None = None
    first: Count | None = None

    def read(self, folder: Path, seed: int) -> tuple[Question, ...]:
        """The questions; those without a split get one, drawn by `seed` and stratified by task."""
        from pandora_router.data.importers.sheet import read_sheet
        from pandora_router.data.splits import draw, keep

        path = folder / self.file
        if not path.is_file():
            raise UsageError(
                f"prompts: {self.file}",
                expected="a file of questions (CSV, JSON lines or Parquet)",
                came=f"no such file in {folder.resolve()}",
                do=f"Write one with the columns {self.prompt} and {self.answer}, or name another.",
            )
        sheet = read_sheet(path)
        prompts, answers = (
            [str(column.values[code]) for code in column.codes]
            for column in (sheet.text(self.prompt), sheet.text(self.answer))
        )

        def optional(key: str) -> list[str] | None:
            column: str = getattr(self, key)
            if column not in sheet.columns and key not in self.model_fields_set:
                return None
            return [text or "" for text in sheet.optional_text(column)]

        ids = optional("prompt_id") or [f"p{i + 1}" for i in range(len(prompts))]
        tasks = optional("task") or [""] * len(prompts)
        split = optional("split")
        splits = draw(prompts, tasks, seed=seed) if split is None else keep(split)
        apart = self.separator
        references = [tuple(text.split(apart)) if apart else (text,) for text in answers]
        rows = zip(ids, prompts, references, tasks, splits.tolist(), strict=True)
        return tuple(Question(*row) for row in rows)[: self.first]


Prompts = Annotated[PromptSettings, BeforeValidator(_file)]


class JudgeGrading(Closed):
    """A specialist that compares the answer with the reference, at its own price."""

    judge: Name
    template: Text = "judge"

    @field_validator("template")
    @classmethod
    def _known(cls, text: str) -> str:
        template(text, JUDGED)
        return text


class FunctionGrading(Closed):
    """A Python function of answer and reference, as module:name."""

    function: FunctionName


def _grade_kind(value: Any) -> str:
    if isinstance(value, dict | JudgeGrading | FunctionGrading):
        keys = value if isinstance(value, dict) else value.model_fields_set
        return "function" if "function" in keys else "judge" if {"judge", "template"} & set(keys) else "tasks"
    return "name"


Named = Literal["exact", "normalised", "contains", "numeric", "symbolic", "letter"]
Grade = Annotated[
    Annotated[Named, Tag("name")]
    | Annotated[JudgeGrading, Tag("judge")]
    | Annotated[FunctionGrading, Tag("function")]
    | Annotated[JudgeGrading, Tag("tasks")],
    Discriminator(_grade_kind),
]
Grading = Annotated[
    Annotated[Named, Tag("name")]
    | Annotated[JudgeGrading, Tag("judge")]
    | Annotated[FunctionGrading, Tag("function")]
    | Annotated[dict[str, Grade], Field(min_length=1), Tag("tasks")],
    Discriminator(_grade_kind),
]
"""One grader for all answers, or one per task; `other` is for all tasks without their own."""


def grades(grading: Any) -> dict[str, Any]:
    """The settings of graders by task; "" is for all other tasks."""
    if isinstance(grading, dict):
        return {("" if task == "other" else task): grade for task, grade in grading.items()}
    return {"": grading}


def grader(grade: Any, builder: Builder) -> Grader:
    """Build the grader from its settings."""
    if isinstance(grade, JudgeGrading):
        return Judge(builder.specialist(grade.judge), template(grade.template, JUDGED))
    if isinstance(grade, FunctionGrading):
        return ReferenceGrader(builder.imported(grade.function))
    return ReferenceGrader(graders.NAMED[grade])


class CollectSettings(Closed):
    """How answers are bought.

    budget: most money to spend, over all runs with one journal.
    samples: answers per prompt and specialist.
    at_once: most concurrent calls per specialist.
    give_up: after this many failures in a row a specialist is not asked any more.
    log_probabilities: whether contexts in the table begin with those of the first tokens.
    seed: draws the split of prompts that have none.
    """

    budget: Amount
    samples: Count = CollectPlan.samples
    at_once: Count = CollectPlan.at_once
    give_up: Count = CollectPlan.give_up
    log_probabilities: bool = CollectPlan.log_probabilities
    seed: Natural = 0


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
