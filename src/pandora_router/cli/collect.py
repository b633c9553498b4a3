"""`pandora collect`: from questions and specialists to a graded routing table, resuming where it stopped."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path
from types import TracebackType

import click
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
from rich.progress import Progress as Bar
from rich.table import Table as Grid

from pandora_router import folders
from pandora_router.cli.console import Interrupted
from pandora_router.cli.plans import read_plan
from pandora_router.collect.assemble import Plan, Question
from pandora_router.collect.journal import Journal
from pandora_router.collect.run import LONGEST_JUDGED, Collected, Progress
from pandora_router.collect.run import collect as run
from pandora_router.data import storage
from pandora_router.estimators.judge import Judge
from pandora_router.specialists.request import Request

EXAMPLES = """\b
Examples:
  pandora collect collect.yaml -o table
  pandora collect collect.yaml -o table --dry-run
  pandora collect collect.yaml -o table --journal answers.journal --json

\b
A small PLAN:
  prompts: questions.jsonl        # columns prompt, answer; if there: prompt_id, task, split
  budget: 2.50
  grader: numeric
  endpoints:
    here: {base_url: "http://127.0.0.1:8000/v1", at_once: 4}
  specialists:
    small: {kind: chat, endpoint: here, model: small, prices: {in: 0.1, out: 0.4}}
    five:  {kind: sampling, inner: small, n: 5}
"""


@click.command(epilog=EXAMPLES)
@click.argument("plan", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("-o", "--output", required=True, type=click.Path(path_type=Path), help="Folder of the table.")
@click.option(
    "--journal", type=click.Path(path_type=Path), help="File of bought answers.  [default: OUTPUT.journal]"
)
@click.option("--dry-run", is_flag=True, help="Check the file and print the worst-case bill; buy nothing.")
@click.option("--replace", is_flag=True, help="Replace a table there that has no journal beside it.")
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON.")
def collect(
    plan: Path, output: Path, journal: Path | None, dry_run: bool, replace: bool, as_json: bool
) -> None:
    """Buy and grade what PLAN (a YAML file) asks for and write a routing table.

    Every bought answer is in the journal before it counts. Stopped or killed, the same command goes on
    where it was: no answer is bought twice. The budget holds over all runs of one journal. The exit code
    is 0 if every cell was graded and 1 if some are missing (the table is written all the same).
    """
    wanted = read_plan(plan)
    path = journal or output.with_name(output.name + ".journal")
    folders.check_output(output, storage.KIND, replace=replace or path.exists(), inputs=[plan, path])
    if dry_run:
        click.echo(_worst_case(wanted, as_json))
        return
    with Journal(path) as kept, _Live() as tell:
        try:
            collected = asyncio.run(run(wanted, kept, tell))
        except KeyboardInterrupt:
            raise Interrupted(
                f"Answers bought so far are in {path}: run the same command again to continue."
            ) from None
    storage.save(collected.table, output, replace=True, inputs=[plan, path])
    if as_json:
        click.echo(json.dumps(_facts(collected)))
    else:
        _show(collected, output)
    if not collected.complete:
        sys.exit(1)


def _worst_case(plan: Plan, as_json: bool) -> str:
    """How many answers and verdicts a plan asks for and the most that each can cost."""
    most = sum(s.most(Request.of(q.text)) for s in plan.specialists for q in plan.questions) * plan.samples
    answers = len(plan.questions) * len(plan.specialists) * plan.samples
    bills = [_verdicts(plan, question) for question in plan.questions]
    verdicts, judged = sum(count for count, _ in bills), sum(bill for _, bill in bills)
    facts = {"answers": answers, "worst_case": most, "verdicts": verdicts, "worst_case_judge": judged}
    if as_json:
        return json.dumps({**facts, "worst_case_total": most + judged, "budget": plan.budget})
    told = f"{answers:,} answers, at worst {most:.4f}"
    if verdicts:
        told += f"; {verdicts:,} verdicts of a judge, at worst {judged:.4f}; together {most + judged:.4f}"
    return f"{told}; nothing bought"


def _verdicts(plan: Plan, question: Question) -> tuple[int, float]:
    """How many answers to a question are judged, and the most that costs up to `LONGEST_JUDGED`."""
    grader = plan.grader(question)
    if not isinstance(grader, Judge):
        return 0, 0.0
    count = len(plan.specialists) * plan.samples
    longest = "x" * LONGEST_JUDGED
    return count, count * grader.most(grader.asked(question.text, longest, question.references))


def _facts(collected: Collected) -> dict[str, object]:
    return {
        "complete": collected.complete,
        "answers": collected.answers,
        "wanted": collected.wanted,
        "bought_now": collected.bought,
        "unaffordable": collected.unaffordable,
        "missing_cells": int(collected.table.missing.sum()),
        "spent": collected.spent,
        "lost": collected.lost,
        "ends": collected.finishes,
        "stopped": collected.stopped,
        "torn_bytes": collected.torn,
        "damaged_lines": collected.damaged,
        "fingerprint": collected.table.fingerprint(),
    }


def _show(collected: Collected, output: Path) -> None:
    console = Console()
    grid = Grid(title="What came of it", title_justify="left")
    for heading in ("specialist", "score", "fee", "missing", "how this run's calls ended"):
        grid.add_column(heading, justify="left" if heading[0] in "sh" and heading != "score" else "right")
    table = collected.table
    for j, name in enumerate(table.specialists):
        there = ~table.missing[:, j]
        score = f"{table.score[there, j].mean():.3f}" if there.any() else "-"
        fee = f"{table.fee[there, j].mean():.6f}" if there.any() else "-"
        ends = ", ".join(f"{end} {count:,}" for end, count in collected.finishes.get(name, {}).items())
        grid.add_row(escape(name), score, fee, f"{(~there).sum():,}", ends)
    console.print(grid)
    for name, why in collected.stopped.items():
        console.print(f"[bold]{escape(name)}[/bold] was asked no more: {escape(why)}")
    if collected.unaffordable:
        console.print(f"{collected.unaffordable:,} calls did not fit into the budget")
    if collected.torn:
        console.print(f"the journal ended in a torn line ({collected.torn} bytes), which was cut off")
    if collected.damaged:
        console.print(f"{collected.damaged:,} damaged lines of the journal were moved to a file beside it")
    lost = f"; at most {collected.lost:.6f} lost on calls that brought nothing" if collected.lost else ""
    console.print(
        f"{collected.answers:,} of {collected.wanted:,} answers, {collected.spent:.6f} spent{lost}\n"
        f"Written to {escape(str(output))}"
    )


class _Live:
    """Answers, money and time left on standard error: a bar on a terminal, else a line every ten seconds."""

    def __init__(self) -> None:
        self._console = Console(stderr=True)
        self._said = time.monotonic()
        columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"))
        self._bar = (
            Bar(*columns, console=self._console, transient=True) if self._console.is_terminal else None
        )
        self._task = self._bar.add_task("starting", total=None) if self._bar else None

    def __call__(self, now: Progress) -> None:
        left = "" if now.seconds_left is None else f", {_clock(now.seconds_left)} left"
        lost = f" (+{now.lost:.4f} lost)" if now.lost else ""
        said = f"{now.spent:.4f}{lost} of {now.budget:.4f} spent{left}"
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=now.done, total=now.total, description=said)
        elif time.monotonic() - self._said >= 10.0:
            self._said = time.monotonic()
            click.echo(f"{now.done:,}/{now.total:,} answers, {said}", err=True)

    def __enter__(self) -> _Live:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
