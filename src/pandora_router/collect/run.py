"""Buy what a plan asks for and the journal does not hold yet; hand back the table and the bill.

Each specialist is a column with workers of its own, so one that is slow or dead holds up nobody else. For
every call: the worst case is set aside, `begin` is on disk, then the call is made, then what came is on disk,
then it counts. It refuses to know HTTP (specialists try again by themselves) and YAML.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from ..data.table import Table
from ..specialists.answer import Answer, Unanswered
from .assemble import Cell, Plan, assemble, cells, grade_key
from .graders import Judge
from .journal import Journal
from .purse import Purse


@dataclass(frozen=True)
class Progress:
    """How far a run is: answers there and wanted, money, seconds left (None while nobody can say)."""

    done: int
    total: int
    spent: float
    lost: float
    budget: float
    seconds_left: float | None


@dataclass(frozen=True)
class Collected:
    """What came of a run: the table, the bill, how answers ended, why some are missing.

    `finishes` counts per specialist how answers ended and why calls failed in this run; `stopped` names the
    specialists that were asked no more, and why; `unaffordable` are answers the budget had no room for.
    """

    table: Table
    spent: float
    lost: float
    answers: int
    wanted: int
    bought: int
    unaffordable: int
    finishes: Mapping[str, Mapping[str, int]]
    stopped: Mapping[str, str]
    torn: int

    @property
    def complete(self) -> bool:
        """Whether every cell has a score."""
        return self.answers == self.wanted and not self.table.missing.any()


@dataclass
class _Column:
    """One specialist's cells still to buy or to judge, and how it fares."""

    name: str
    todo: Iterator[Cell]
    left: int
    at_once: int = 1
    bought: int = 0
    unaffordable: int = 0
    in_a_row: int = 0
    stopped: str = ""
    ends: Counter[str] = field(default_factory=Counter)


async def collect(plan: Plan, journal: Journal, tell: Callable[[Progress], None] | None = None) -> Collected:
    """Run the plan to its end, or as far as the budget and the specialists go."""
    run = _Run(plan, journal, tell or (lambda _: None))
    try:
        async with asyncio.TaskGroup() as group:
            for column in run.columns:
                for _ in range(min(plan.at_once, column.at_once, column.left)):
                    group.create_task(run.work(column))
    except ExceptionGroup as errors:
        raise _first(errors) from None
    return run.result()


class _Run:
    def __init__(self, plan: Plan, journal: Journal, tell: Callable[[Progress], None]) -> None:
        self.plan, self.journal, self.tell = plan, journal, tell
        self.purse = Purse(plan.budget, journal.spent, journal.lost)
        self.judging = _Column("judge", iter(()), 0)
        self.begun = time.monotonic()
        self.keys: set[str] = set()
        self.columns: list[_Column] = []
        for specialist in plan.specialists:
            wanted = cells(plan, specialist)
            self.keys.update(cell.key for cell in wanted)
            todo = [cell for cell in wanted if not self._done(cell)]
            self.columns.append(_Column(specialist.name, iter(todo), len(todo), specialist.at_once))
        self.held = len(self.keys & journal.answers.keys())

    def _done(self, cell: Cell) -> bool:
        answer = self.journal.answers.get(cell.key)
        return answer is not None and self._judge(cell, answer) is None

    def _judge(self, cell: Cell, answer: Answer) -> Judge | None:
        """Who still has to grade this answer, if anybody has."""
        grader = self.plan.grader(cell.question)
        if not isinstance(grader, Judge) or answer.finish in {"refusal", "empty"}:
            return None
        return None if grade_key(cell, grader) in self.journal.grades else grader

    async def work(self, column: _Column) -> None:
        """Take cells until there are none or the column stops."""
        for cell in column.todo:
            if column.stopped:
                return
            answer = self.journal.answers.get(cell.key) or await self._buy(column, cell)
            judge = self._judge(cell, answer) if answer is not None else None
            if answer is not None and judge is not None and not self.judging.stopped:
                await self._grade(judge, cell, answer)
            column.left -= 1
            self.tell(self.progress())

    async def _buy(self, column: _Column, cell: Cell) -> Answer | None:
        prompt = cell.question.text
        most = cell.specialist.most(prompt)
        if not await self._set_aside(column, cell.key, most):
            return None
        about = {"specialist": column.name, "prompt_id": cell.question.id, "sample": cell.sample}
        try:
            answer = await cell.specialist.answer(prompt)
        except Unanswered as error:
            await self._failed(column, cell.key, most, error, about)
            return None
        await self.journal.answer(cell.key, answer, **about)
        self._settle(column, most, answer.fee, answer.lost)
        self.held += 1
        column.bought += 1
        column.in_a_row = 0
        column.ends[answer.finish] += 1
        return answer

    async def _grade(self, judge: Judge, cell: Cell, answer: Answer) -> None:
        asked = judge.asked(cell.question.text, answer.text, cell.question.references)
        key, most = grade_key(cell, judge), judge.specialist.most(asked)
        if not await self._set_aside(self.judging, key, most):
            return
        try:
            score, verdict = await judge.verdict(asked)
        except Unanswered as error:
            await self._failed(self.judging, key, most, error, {"specialist": "judge"})
            return
        await self.journal.grade(key, score, verdict)
        self._settle(self.judging, most, verdict.fee, verdict.lost)
        self.judging.in_a_row = 0
        self.judging.ends[verdict.finish] += 1

    async def _set_aside(self, column: _Column, key: str, most: float) -> bool:
        """The worst case reserved and on disk; False if the budget has no room or the column has stopped."""
        if not await self.purse.reserve(most):
            column.unaffordable += 1
            return False
        if column.stopped:
            self.purse.settle(most, 0.0, 0.0)
            return False
        await self.journal.begin(key, most)
        return True

    async def _failed(
        self, column: _Column, key: str, most: float, error: Unanswered, about: Mapping[str, object]
    ) -> None:
        await self.journal.failure(key, error.failure, error.lost, why=str(error), **about)
        self._settle(column, most, 0.0, error.lost)
        column.ends[error.failure] += 1
        column.in_a_row += 1
        if error.dead or column.in_a_row >= self.plan.give_up:
            column.stopped = column.stopped or str(error)

    def _settle(self, column: _Column, most: float, fee: float, lost: float) -> None:
        """Replace the worst case by what it came to; who charges more than that is asked no more."""
        self.purse.settle(most, fee, lost)
        if fee + lost > most * (1 + 1e-9):
            column.stopped = f"charged {fee + lost:.6g} where at most {most:.6g} was agreed"

    def progress(self) -> Progress:
        """Where the run stands now. Columns run side by side: the slowest says how long it takes."""
        elapsed = time.monotonic() - self.begun
        paces = [c.left * elapsed / c.bought for c in self.columns if c.bought and c.left and not c.stopped]
        money = (float(self.purse.spent), float(self.purse.lost), float(self.purse.budget))
        return Progress(self.held, len(self.keys), *money, max(paces) if paces else None)

    def result(self) -> Collected:
        """The table and the bill."""
        every = [*self.columns, self.judging]
        return Collected(
            table=assemble(self.plan, self.journal),
            spent=float(self.purse.spent),
            lost=float(self.purse.lost),
            answers=self.held,
            wanted=len(self.keys),
            bought=sum(column.bought for column in self.columns),
            unaffordable=sum(column.unaffordable for column in every),
            finishes={column.name: dict(column.ends) for column in every if column.ends},
            stopped={column.name: column.stopped for column in every if column.stopped},
            torn=self.journal.torn,
        )


def _first(group: ExceptionGroup[Exception]) -> Exception:
    """The first plain exception in a group."""
    error = group.exceptions[0]
    return _first(error) if isinstance(error, ExceptionGroup) else error
