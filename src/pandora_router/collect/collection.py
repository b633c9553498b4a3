"""Buy what a plan asks for and the journal does not have; return the routing table and the bill.

Each specialist is a column with its own workers, so a slow or failing specialist does not delay the others.
Prompts are taken in order, and a prompt is started only if the worst case of all its missing cells fits the
budget: a budget that is too small gives fewer complete rows, not more incomplete ones. For every call the
journal has its worst case before the call is made, and its result before the result is used. Specialists
retry failed calls themselves.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from pandora_router.collect.assemble import (
    LONGEST_JUDGED,
    Cell,
    CollectPlan,
    assemble,
    cells,
    grade_key,
)
from pandora_router.collect.journal import Budget, Journal
from pandora_router.data.table import Table
from pandora_router.errors import UsageError
from pandora_router.estimators.judge import Judge
from pandora_router.specialists.specialist import Answer, Request, Unanswered
from pandora_router.types import silent

MOST_TOKENS = 10**12
"""Larger token counts are refused: no provider bills them and no file format can store them."""


@dataclass(frozen=True)
class Status:
    """Progress of a run: answers held and wanted, money, seconds left (None before the first answer)."""

    done: int
    total: int
    spent: float
    lost: float
    budget: float
    seconds_left: float | None


@dataclass(frozen=True)
class Collected:
    """The result of a run.

    finishes: per specialist, how answers ended and why calls failed in this run, with counts.
    stopped: why a specialist was not asked any more.
    verdicts, judge_stopped: the same of the judge, which may have the name of a specialist; "" if it was
        asked to the end.
    unaffordable: number of answers and verdicts that did not fit the budget.
    torn, damaged: bytes and lines of the journal that could not be read.
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
    verdicts: Mapping[str, int]
    judge_stopped: str
    torn: int
    damaged: int

    @property
    def complete(self) -> bool:
        """Whether every cell has a score."""
        return self.answers == self.wanted and not self.table.missing.any()


@dataclass
class _Column:
    """The cells of one specialist that are still to be bought or graded, and counts of what happened."""

    name: str
    todo: Iterator[Cell]
    left: int
    at_once: int = 1
    bought: int = 0
    unaffordable: int = 0
    in_a_row: int = 0
    stopped: str = ""
    ends: Counter[str] = field(default_factory=Counter)


async def collect(
    plan: CollectPlan, journal: Journal, tell: Callable[[Status], None] | None = None
) -> Collected:
    """Run `plan` to its end, or as far as the budget and the specialists allow; `tell` hears of progress."""
    run = _Run(plan, journal, tell or silent)
    try:
        async with asyncio.TaskGroup() as group:
            admission = group.create_task(run.rows.admit())
            async with asyncio.TaskGroup() as workers:
                for column in run.columns:
                    for _ in range(min(plan.at_once, column.at_once, column.left)):
                        workers.create_task(run.work(column))
            admission.cancel()
    except ExceptionGroup as errors:
        raise _first(errors) from None
    return run.result()


class _Run:
    def __init__(self, plan: CollectPlan, journal: Journal, tell: Callable[[Status], None]) -> None:
        self.plan, self.journal, self.tell = plan, journal, tell
        self.budget = Budget(plan.budget, journal.spent, journal.lost)
        self.judging = _Column("judge", iter(()), 0)
        self.begun = time.monotonic()
        self.keys: set[str] = set()
        self.columns: list[_Column] = []
        rows: dict[str, list[tuple[_Column, Cell]]] = {question.id: [] for question in plan.questions}
        for specialist in plan.specialists:
            wanted = cells(plan, specialist)
            self.keys.update(cell.key for cell in wanted)
            todo = [cell for cell in wanted if not self._done(cell)]
            column = _Column(specialist.name, iter(todo), len(todo), specialist.at_once)
            for cell in todo:
                rows[cell.question.id].append((column, cell))
            self.columns.append(column)
        self.rows = _Rows(self.budget, rows, self._worst)
        self.held = len(self.keys & journal.answers.keys())

    def _done(self, cell: Cell) -> bool:
        answer = self.journal.answers.get(cell.key)
        return answer is not None and self._judge(cell, answer) is None

    def _judge(self, cell: Cell, answer: Answer) -> Judge | None:
        """The judge that still has to grade this answer, or None."""
        grader = self.plan.grader(cell.question)
        if not isinstance(grader, Judge) or answer.finish in {"refusal", "empty"}:
            return None
        return None if grade_key(cell, grader) in self.journal.grades else grader

    def _worst(self, cell: Cell) -> float:
        """Most that buying and grading one cell can cost, for an answer of usual length."""
        question, grader = cell.question, self.plan.grader(cell.question)
        worst = 0.0 if cell.key in self.journal.answers else cell.specialist.most(Request.of(question.text))
        if isinstance(grader, Judge) and not self.judging.stopped:
            answer = self.journal.answers.get(cell.key)
            text = "x" * LONGEST_JUDGED if answer is None else answer.text
            worst += grader.most(grader.asked(question.text, text, question.references))
        return worst

    async def work(self, column: _Column) -> None:
        """Process the cells of a column until none is left or the column stops."""
        for cell in column.todo:
            affordable = not column.stopped and await self.rows.admitted(cell)
            if affordable and not column.stopped:
                await self._cell(column, cell)
            elif not column.stopped:
                column.unaffordable += 1
            self.rows.give_back(cell)
            column.left -= 1
            self.tell(self.progress())

    async def _cell(self, column: _Column, cell: Cell) -> None:
        answer = self.journal.answers.get(cell.key) or await self._buy(column, cell)
        judge = self._judge(cell, answer) if answer is not None else None
        if answer is not None and judge is not None and not self.judging.stopped:
            await self._grade(judge, cell, answer)

    async def _buy(self, column: _Column, cell: Cell) -> Answer | None:
        request = Request.of(cell.question.text)
        most = cell.specialist.most(request)
        reserved = self.rows.draw(cell, most)
        await self.journal.begin(cell.key, most)
        about = {"specialist": column.name, "prompt_id": cell.question.id, "sample": cell.sample}
        try:
            answer = await _sound(column.name, most, lambda: cell.specialist.answer(request))
        except Unanswered as error:
            await self._failed(column, cell.key, reserved, error, about)
            return None
        await self.journal.answer(cell.key, answer, **about)
        self.budget.settle(reserved, answer.fee, answer.lost)
        self.held += 1
        column.bought += 1
        column.in_a_row = 0
        column.ends[answer.finish] += 1
        return answer

    async def _grade(self, judge: Judge, cell: Cell, answer: Answer) -> None:
        question = judge.asked(cell.question.text, answer.text, cell.question.references)
        key, most = grade_key(cell, judge), judge.most(question)
        self.rows.give_back(cell)
        reserved = Fraction(most)
        if not self.budget.try_reserve(reserved):
            self.judging.unaffordable += 1
            return
        await self.journal.begin(key, most)
        score = math.nan

        async def verdict() -> Answer:
            nonlocal score
            score, answered = await judge.verdict(question)
            return answered

        try:
            answered = await _sound("judge", most, verdict)
        except Unanswered as error:
            await self._failed(self.judging, key, reserved, error, {"specialist": "judge"})
            return
        await self.journal.grade(key, score, answered)
        self.budget.settle(reserved, answered.fee, answered.lost)
        self.judging.in_a_row = 0
        self.judging.ends[answered.finish] += 1

    async def _failed(
        self, column: _Column, key: str, reserved: Fraction, error: Unanswered, about: Mapping[str, object]
    ) -> None:
        most = float(reserved)
        lost = error.lost if 0 <= error.lost <= most else most
        await self.journal.failure(key, error.failure, lost, why=str(error), **about)
        self.budget.settle(reserved, lost=lost)
        column.ends[error.failure] += 1
        column.in_a_row += 1
        if error.dead or column.in_a_row >= self.plan.give_up:
            column.stopped = column.stopped or str(error)

    def progress(self) -> Status:
        """Progress of the run. Columns run concurrently, so the slowest one determines the time left."""
        elapsed = time.monotonic() - self.begun
        paces = [c.left * elapsed / c.bought for c in self.columns if c.bought and c.left and not c.stopped]
        money = (float(self.budget.spent), float(self.budget.lost), float(self.budget.limit))
        return Status(self.held, len(self.keys), *money, max(paces) if paces else None)

    def result(self) -> Collected:
        """The table and the bill."""
        return Collected(
            table=assemble(self.plan, self.journal),
            spent=float(self.budget.spent),
            lost=float(self.budget.lost),
            answers=self.held,
            wanted=len(self.keys),
            bought=sum(column.bought for column in self.columns),
            unaffordable=sum(column.unaffordable for column in (*self.columns, self.judging)),
            finishes={column.name: dict(column.ends) for column in self.columns if column.ends},
            stopped={column.name: column.stopped for column in self.columns if column.stopped},
            verdicts=dict(self.judging.ends),
            judge_stopped=self.judging.stopped,
            torn=self.journal.torn,
            damaged=self.journal.damaged,
        )


class _Rows:
    """Reserves money for whole rows: all missing cells of one prompt, over all columns that still run.

    One task (`admit`) reserves rows strictly in order, up to the last one that a worker asked for. A row that
    waits for money therefore waits only for calls of earlier rows, whose workers never wait for it.
    """

    def __init__(
        self,
        budget: Budget,
        rows: Mapping[str, list[tuple[_Column, Cell]]],
        worst: Callable[[Cell], float],
    ) -> None:
        self._budget, self._rows, self._worst = budget, rows, worst
        self._place = {row: place for place, row in enumerate(rows)}
        self._decided: list[asyncio.Future[bool]] = []
        self._shares: dict[str, Fraction] = {}
        self._asked = asyncio.Event()

    async def admit(self) -> None:
        """Reserve one row after the other; runs until it is cancelled."""
        order, place = list(self._rows), 0
        while True:
            while place < len(self._decided):
                self._decided[place].set_result(await self._reserve(order[place]))
                place += 1
            self._asked.clear()
            await self._asked.wait()

    async def admitted(self, cell: Cell) -> bool:
        """Whether the money for this cell's row could be reserved; waits for the decision."""
        place = self._place[cell.question.id]
        while len(self._decided) <= place:
            self._decided.append(asyncio.get_running_loop().create_future())
            self._asked.set()
        return await asyncio.shield(self._decided[place])

    async def _reserve(self, row: str) -> bool:
        worst = {cell.key: self._worst(cell) for column, cell in self._rows[row] if not column.stopped}
        if not all(math.isfinite(most) for most in worst.values()):
            return False
        shares = {key: Fraction(most) for key, most in worst.items()}
        if not await self._budget.reserve(sum(shares.values(), Fraction(0))):
            return False
        self._shares |= shares
        return True

    def draw(self, cell: Cell, most: float) -> Fraction:
        """Take `most` from the cell's reserved share for one call; the caller settles it."""
        reserved = Fraction(most)
        self._shares[cell.key] -= reserved
        return reserved

    def give_back(self, cell: Cell) -> None:
        """Return what is left of a cell's share to the budget."""
        self._budget.settle(self._shares.pop(cell.key, Fraction(0)))


async def _sound(name: str, most: float, call: Callable[[], Awaitable[Answer]]) -> Answer:
    """Await `call` and return its answer.

    Raises `Unanswered` if the reply cannot be read, has impossible numbers or claims a fee above `most`. Such
    a reply affects only its own cell (the worst case counts as lost) and is never recorded as an answer.
    """
    try:
        answer = await call()
    except UsageError:
        raise
    except (ArithmeticError, RecursionError, ValueError) as error:
        message = f"{name}: the reply could not be read ({type(error).__name__})"
        raise Unanswered(message, failure="invalid reply", lost=most) from error
    bill = answer.fee + answer.lost
    counts = [count for count in (answer.tokens_in, answer.tokens_out) if count is not None]
    numbers = (answer.seconds, answer.context_seconds or 0.0, *(answer.logprobs or ()))
    if not all(0 <= count <= MOST_TOKENS for count in counts) or not all(map(math.isfinite, numbers)):
        message = f"{name}: the reply holds numbers that cannot be true"
        raise Unanswered(message, failure="invalid reply", lost=most)
    if not (0 <= bill <= most * (1 + 1e-9)) or min(answer.fee, answer.lost) < 0:
        message = f"{name}: charged {bill:.6g} where at most {most:.6g} was agreed"
        raise Unanswered(message, failure="invalid reply", dead=True, lost=most)
    return answer


def _first(group: ExceptionGroup[Exception]) -> Exception:
    """The first plain exception in a group."""
    error = group.exceptions[0]
    return _first(error) if isinstance(error, ExceptionGroup) else error
