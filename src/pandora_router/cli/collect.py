"""`pandora collect`: ask specialists and grade their answers; the result is a routing table. Resumable."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import get_args

import click

from pandora_router import folders
from pandora_router.cli.console import Screen, SlowProgress, echo, echo_json, table
from pandora_router.collect.assemble import CollectPlan
from pandora_router.collect.collection import Collected, Status
from pandora_router.collect.collection import collect as run
from pandora_router.collect.journal import Journal
from pandora_router.config import read_config
from pandora_router.config.collect_section import Bill, JudgeGrading, bill, grades
from pandora_router.config.file import Config
from pandora_router.config.specialists import ChatSettings, RetrievalSettings, SamplingSettings
from pandora_router.data import storage
from pandora_router.errors import UsageError
from pandora_router.specialists.specialist import Finish
from pandora_router.text import counted, money

EXAMPLES = """\b
Examples:
  pandora collect
  pandora collect pandora.yaml --dry-run
  pandora collect pandora.yaml -o table --journal answers.journal --json

\b
A small pandora.yaml:
  prompts: questions.jsonl        # columns prompt, answer; if there: prompt_id, task, split
  grading: numeric
  collect: {budget: 2.50}
  endpoints:
    here: {base_url: "http://127.0.0.1:8000/v1", at_once: 4}
  specialists:
    small: {kind: chat, endpoint: here, model: small, prices: {in: 0.1, out: 0.4}}
    five:  {kind: sampling, inner: small, n: 5}
"""


@click.command(epilog=EXAMPLES)
@click.argument("config", type=click.Path(path_type=Path, dir_okay=False), default=Path("pandora.yaml"))
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), help="Folder of the table.  [default: as CONFIG says]"
)
@click.option(
    "--journal", type=click.Path(path_type=Path), help="File of bought answers.  [default: OUTPUT.journal]"
)
@click.option("--dry-run", is_flag=True, help="Check the file and print what it will cost; buy nothing.")
@click.option("--replace", is_flag=True, help="Replace an existing table that has no journal beside it.")
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON.")
def collect(
    config: Path, output: Path | None, journal: Path | None, dry_run: bool, replace: bool, as_json: bool
) -> None:
    """Ask every specialist of CONFIG [pandora.yaml] every prompt, grade the answers, write a routing table.

    Every bought answer is written to the journal before it is used. If the command is stopped or killed, run
    it again to continue: no answer is bought twice. The budget holds over all runs with one journal. The exit
    code is 0 if every cell was graded and 1 if some are missing (the table is written in both cases).
    """
    settings = read_config(config)
    output = output or config.parent / settings.table
    path = journal or output.with_name(output.name + ".journal")
    replaceable = replace or path.exists()
    folders.check_output(output, storage.KIND, replace=replaceable, inputs=[config, path])
    folders.check_file(path, replace=True, inputs=[config])
    plan = settings.plan(config.parent, dry_run=dry_run)
    cost = _bill(settings, plan, path)
    if dry_run:
        _say_cost(settings, cost, as_json)
        return
    echo("\n".join(_cost(settings, cost)), err=True)
    if cost.answers or cost.verdicts:
        asyncio.run(_preflight(settings))
    collected = bought(plan, path, settings.value.currency)
    if not collected.answers:
        why = "; ".join(collected.stopped.values()) or "the budget is too small for one prompt"
        raise UsageError(
            "the specialists",
            expected="an answer from at least one of them",
            came=f"none: {why}",
            do="Correct the file and run again; no table was written.",
        )
    storage.save(collected.table, output, replace=True, inputs=[config, path])
    if as_json:
        echo_json(_facts(collected))
    else:
        _show(collected, output, settings.value.currency, f"pandora fit {config}")
    if not collected.complete:
        sys.exit(1)


def bought(plan: CollectPlan, path: Path, sign: str) -> Collected:
    """Carry out a plan with the journal `path`, showing what is done and spent; `sign` is the currency."""

    def tell(now: Status) -> None:
        left = "" if now.seconds_left is None else f", {_clock(now.seconds_left)} left"
        lost = f" (+{money(now.lost, sign)} lost)" if now.lost else ""
        spent = f"{money(now.spent, sign)}{lost} of {money(now.budget, sign)} spent"
        progress(f"answers ({spent}{left})", now.done, now.total)

    with Journal(path) as journal, SlowProgress(resumes=True) as progress:
        return asyncio.run(run(plan, journal, tell))


def _bill(config: Config, plan: CollectPlan, path: Path) -> Bill:
    """What is still to be paid; does not create the journal if it does not exist."""
    if not path.exists():
        return bill(config, plan)
    with Journal(path) as journal:
        return bill(config, plan, journal)


async def _preflight(config: Config) -> None:
    """Request the list of models of each endpoint in use, which is free; `UsageError` if one fails."""
    from pandora_router.transport import client
    from pandora_router.transport.endpoint import Endpoint
    from pandora_router.transport.failures import Failed

    for name in _used(config):
        settings = config.endpoints[name]
        try:
            await client.probe(Endpoint(settings.base_url, settings.key_from))
        except Failed as error:
            judged = [g.judge for g in grades(config.grading).values() if isinstance(g, JudgeGrading)]
            judge = " (the judge's)" if name in set(_endpoints(config, judged)) else ""
            key = (
                f"the key in {settings.key_from}"
                if settings.key_from
                else "calls without a key, as key_from is left out"
            )
            raise UsageError(
                f"endpoints.{name}{judge}",
                expected=f"a server at {settings.base_url} that accepts {key}",
                came=str(error),
                do="Check base_url and key_from, and that the server runs. Nothing was bought.",
            ) from error


def _used(config: Config) -> list[str]:
    """The endpoints of the specialists that answer and grade."""
    judges = [grade.judge for grade in grades(config.grading).values() if isinstance(grade, JudgeGrading)]
    return sorted(set(_endpoints(config, [*config.answering, *judges])))


def _endpoints(config: Config, names: Iterable[str]) -> Iterable[str]:
    for name in names:
        settings = config.specialists[name]
        while isinstance(settings, RetrievalSettings | SamplingSettings):
            settings = config.specialists[settings.inner]
        if isinstance(settings, ChatSettings):
            yield settings.endpoint


def _say_cost(config: Config, cost: Bill, as_json: bool) -> None:
    if as_json:
        facts = {
            **asdict(cost),
            "worst": cost.worst,
            "left": cost.left,
            "affordable_prompts": cost.affordable,
        }
        echo_json({**facts, "currency": config.value.currency, "imports": config.imports()})
        return
    echo("\n".join(_cost(config, cost)))


def _cost(config: Config, cost: Bill) -> list[str]:
    """Sentences on the cost of the collection, the budget, and the user's functions that will run."""
    sign = config.value.currency
    judged = f" and {cost.verdicts:,} verdicts of a judge" if cost.verdicts else ""
    budget = f"The budget of {money(cost.budget, sign)}"
    lines = []
    if cost.bought or cost.spent:
        lines.append(f"{cost.bought:,} answers were bought before; {money(cost.spent, sign)} is spent.")
        budget = f"What is left of the budget, {money(cost.left, sign)} of {money(cost.budget, sign)},"
    if not cost.answers and not cost.verdicts:
        return [*lines, "Nothing is left to buy."]
    lines.append(
        f"{counted(cost.answers, 'answer')} to {counted(cost.prompts, 'prompt')}{judged}: about "
        f"{money(cost.expected, sign)} expected (answers of at most 200 tokens), "
        f"{money(cost.worst, sign)} at worst."
    )
    if cost.worst <= cost.left:
        lines.append(f"{budget} is enough for the worst case.")
    elif cost.affordable == cost.prompts:
        lines.append(f"{budget} is enough for what is expected.")
    else:
        lines.append(
            f"{budget} is expected to be enough for {cost.affordable:,} of "
            f"{counted(cost.prompts, 'prompt')}; prompts are bought whole, in the order of the file."
        )
    if code := config.imports():
        lines.append(f"Runs code of yours: {', '.join(code)}.")
    return lines


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
        "verdicts": collected.verdicts,
        "judge_stopped": collected.judge_stopped,
        "torn_bytes": collected.torn,
        "damaged_lines": collected.damaged,
        "fingerprint": collected.table.fingerprint(),
    }


def _show(collected: Collected, output: Path, sign: str, following: str) -> None:
    screen, collected_table = Screen(), collected.table
    rows = []
    for j, name in enumerate(collected_table.specialists):
        present = ~collected_table.missing[:, j]
        score = f"{collected_table.score[present, j].mean():.3f}" if present.any() else "-"
        fee = money(1000 * float(collected_table.fee[present, j].mean()), sign) if present.any() else "-"
        ends = ", ".join(f"{end} {count:,}" for end, count in collected.finishes.get(name, {}).items())
        rows.append((name, ends, score, fee, f"{(~present).sum():,}"))
    columns = ("specialist", "how this run's calls ended", "score", "per 1,000 prompts", "missing")
    screen.show(table("Collected", columns, rows, words=2))
    for name, why in collected.stopped.items():
        screen.say(f"{name} was asked no more: {why}")
    if collected.judge_stopped:
        screen.say(f"the judge was asked no more: {collected.judge_stopped}")
    judged = collected.verdicts.items()
    if failed := {end: count for end, count in judged if end not in get_args(Finish)}:
        why = ", ".join(f"{end} {count:,}" for end, count in failed.items())
        answers = counted(sum(failed.values()), "answer")
        screen.say(f"{answers} got no verdict from the judge ({why}); the same command asks it again")
    if collected.unaffordable:
        screen.say(f"{collected.unaffordable:,} calls did not fit into the budget")
    if collected.torn:
        screen.say(f"the journal ended in a torn line ({collected.torn} bytes), which was cut off")
    if collected.damaged:
        screen.say(f"{collected.damaged:,} damaged lines of the journal were moved to a file beside it")
    lost = (
        f"; at most {money(collected.lost, sign)} lost on calls without an answer" if collected.lost else ""
    )
    screen.say(
        f"{collected.answers:,} of {collected.wanted:,} answers, {money(collected.spent, sign)} spent{lost}\n"
        f"Written to {output}. Next: pandora data check {output}, then {following}"
    )


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
