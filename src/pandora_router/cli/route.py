"""`pandora route`: choose the specialist for one prompt, or for each prompt of a file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pandora_router.cli.console import SlowProgress, echo, echo_json
from pandora_router.cli.options import (
    CONTEXT,
    CONTEXTS,
    ROUTER,
    Wanted,
    read_contexts,
    with_candidates,
    with_runner,
)
from pandora_router.config import served_router
from pandora_router.errors import UsageError
from pandora_router.run import Runner

if TYPE_CHECKING:
    from pandora_router.cli.batch_file import BatchFile, BatchSummary
    from pandora_router.router import Router

STANDARD = Path("-")
FILE = click.Path(path_type=Path, dir_okay=False, allow_dash=True)


@click.command()
@click.argument("prompt", required=False)
@ROUTER
@CONTEXT
@CONTEXTS
@click.option("--batch", type=FILE, help="File of prompts: .csv, .jsonl or .parquet; - reads JSON lines.")
@click.option("-o", "--output", type=FILE, help="With --batch: file to write (format by suffix); - prints.")
@click.option("--prompt-column", help="With --batch: the column of prompts [prompt, else messages].")
@click.option("--replace", is_flag=True, help="With --batch: replace an existing output.")
@click.option("--live", is_flag=True, help="Look at the specialists of --config while deciding.")
@click.option("--answer", is_flag=True, help="With --live: the chosen specialist also answers.")
@click.option(
    "--config",
    type=click.Path(path_type=Path, dir_okay=False),
    default=Path("pandora.yaml"),
    show_default=True,
    help="With --live: the file that describes the specialists.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the whole decision (or summary) as JSON.")
@with_candidates
@with_runner
def route(
    prompt: str | None,
    artifact: Path,
    pairs: tuple[str, ...],
    file: Path | None,
    batch: Path | None,
    output: Path | None,
    prompt_column: str | None,
    replace: bool,
    live: bool,
    answer: bool,
    config: Path,
    as_json: bool,
    wanted: Wanted,
    runner: Runner,
) -> None:
    """Print which specialist should answer PROMPT (- reads standard input), or each prompt of a file.

    A batch keeps the columns of its input and adds the decision. The prompt is in the column `prompt`, or it
    is the last message by the user in the column `messages` (a list, or JSON text of one). A column
    `contexts` may have the beginnings of answers (a map from specialist to text, or JSON text of one). A
    prompt that cannot be judged goes to the default specialist, with the reason in `declined_because`. If the
    command is stopped, run it again to continue.

    With --live, the router lets specialists begin their answers if a look is worth its price, and cancels
    those that are not chosen. Looks and answers cost money.

    \b
    Examples:
      pandora route "What is 12 x 7?"
      pandora route - < prompt.txt
      pandora route -r router "What is 12 x 7?" --context small="Let us multiply" --json
      pandora route --batch prompts.csv -o routed.parquet --workers 2
      pandora route "What is 12 x 7?" --exclude large --max-fee 0.01
      pandora route "What is 12 x 7?" --live --answer --config pandora.yaml
      cat prompts.jsonl | pandora route --batch - | jq .specialist
    """
    if (prompt is None) == (batch is None) or (batch is None and output is not None):
        raise UsageError(
            "pandora route",
            expected="a prompt, or --batch FILE (and -o FILE)",
            came="both, or -o without --batch" if prompt is not None else "neither",
            do="See pandora route --help.",
        )
    if (live and (batch is not None or pairs or file)) or (answer and not live):
        raise UsageError(
            "pandora route",
            expected="--live with one prompt and no contexts, --answer with --live",
            came="other options beside them" if live else "--answer alone",
            do="See pandora route --help.",
        )
    if batch is None:
        text = _standard_input() if prompt == "-" else prompt
        assert text is not None
        if live:
            _route_live(artifact, config, text, wanted, answer, as_json)
            return
        _route_one(artifact, text, read_contexts(pairs, file), wanted, as_json)
    else:
        from pandora_router.cli.batch_file import BatchFile, PromptCells

        work = BatchFile(artifact, PromptCells(prompt_column), wanted, runner)
        _route_batch(work, batch, output or STANDARD, replace, as_json)


def _standard_input() -> str:
    """Read a prompt from standard input, up to a length that the router declines as too long.

    Bytes that are not UTF-8 become surrogates, which the router declines as it does in an argument.
    """
    from pandora_router.router.driver import LONGEST_PROMPT

    return sys.stdin.buffer.read(4 * LONGEST_PROMPT + 1).decode("utf-8", "surrogateescape")


def _route_one(artifact: Path, prompt: str, contexts: dict[str, str], wanted: Wanted, as_json: bool) -> None:
    router = served_router(artifact)
    decision = router.route(prompt, contexts, among=wanted.among(router))
    if as_json:
        echo_json(decision.to_dict())
    elif decision.declined_because:
        who = "the default" if decision.specialist == router.default else "the cheapest candidate"
        echo(f"{decision.specialist} ({who}: {decision.declined_because})")
    else:
        echo(decision.specialist)


def _route_live(
    artifact: Path, config: Path, prompt: str, wanted: Wanted, answering: bool, as_json: bool
) -> None:
    from pandora_router.cli.route_live import route_live
    from pandora_router.text import money

    routed = route_live(artifact, config, prompt, wanted, answering=answering)
    if as_json:
        echo_json(routed.to_dict())
        return
    if routed.decision.declined_because is not None:
        echo(f"the router declined: {routed.decision.declined_because}", err=True)
    for name, seen in routed.looked.items():
        echo(f"looked at {name}: {seen}", err=True)
    if routed.looked:
        echo(f"at most {money(routed.lost, routed.currency)} for looks that led to no answer", err=True)
    text = "" if routed.answer is None else f": {routed.answer.text}"
    echo(routed.decision.specialist + text)


def _route_batch(work: BatchFile, source: Path, output: Path, replace: bool, as_json: bool) -> None:
    from pandora_router.cli.row_files import json_line, json_rows, source_of

    if output == STANDARD:
        piped = source == STANDARD
        rows = json_rows(sys.stdin.buffer, Path("standard input")) if piped else source_of(source).rows()
        for row in work.route_rows(rows):
            click.echo(json_line(row), nl=False)
        return
    if source == STANDARD:
        raise UsageError(
            f"-o {output}",
            expected="no -o when prompts come from standard input",
            came="a file name",
            do="Redirect standard output to a file, or name an input file.",
        )
    with SlowProgress(resumes=True) as progress:
        summary = work.route_file(source, output, replace=replace, progress=progress)
    _show(summary, work.router, output, as_json)


def _show(summary: BatchSummary, router: Router, output: Path, as_json: bool) -> None:
    from pandora_router.router.explanation import amount
    from pandora_router.text import counted, money

    if as_json:
        facts = {
            "output": str(output),
            "artifact": router.id,
            "prompts": summary.prompts,
            "declined": summary.declined,
            "mean_spent": summary.mean_spent,
            "specialists": dict(summary.chosen.most_common()),
        }
        echo_json(facts)
        return
    total = max(summary.prompts, 1)
    shares = ", ".join(f"{name} {count / total:.0%}" for name, count in summary.chosen.most_common(6))
    if router.fee_weight > 0.0:
        bought = f"{money(1000.0 * summary.mean_spent / router.fee_weight, router.record.currency)} per 1,000"
    else:
        bought = f"{amount(summary.mean_spent)} of reward per prompt"
    echo(
        f"{counted(summary.prompts, 'prompt')} routed ({shares}), {summary.declined:,} declined, "
        f"estimates bought for {bought}; written to {output}"
    )
