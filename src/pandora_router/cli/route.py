"""`pandora route`: who should answer one prompt, or each prompt of a file."""

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
from pandora_router.config import open_router
from pandora_router.errors import UsageError
from pandora_router.run import Runner

if TYPE_CHECKING:
    from pandora_router.cli.batches import BatchFile, BatchSummary

STANDARD = Path("-")
FILE = click.Path(path_type=Path, dir_okay=False, allow_dash=True)


@click.command()
@click.argument("prompt", required=False)
@ROUTER
@CONTEXT
@CONTEXTS
@click.option("--batch", type=FILE, help="File of prompts: .csv, .jsonl or .parquet; - reads JSON lines.")
@click.option("-o", "--output", type=FILE, help="With --batch: file to write, by its ending; - prints.")
@click.option("--prompt-column", help="With --batch: the column of prompts [prompt, else messages].")
@click.option("--replace", is_flag=True, help="With --batch: replace an output that exists.")
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
    as_json: bool,
    wanted: Wanted,
    runner: Runner,
) -> None:
    """Say who should answer PROMPT (- reads it from standard input), or each prompt of a file.

    A batch keeps the columns of its input and adds the decision. Prompts are in a column `prompt`, or the
    last message by the user in a column `messages` (a list, or JSON text of one); a column `contexts` may
    hold what specialists have begun to say (a map from name to text, or JSON text of one). A prompt that
    cannot be judged goes to the default specialist, and `declined_because` says why. Stopped at any moment,
    the same command continues where it was.

    \b
    Examples:
      pandora route "What is 12 x 7?"
      pandora route - < prompt.txt
      pandora route -r router "What is 12 x 7?" --context small="Let us multiply" --json
      pandora route --batch prompts.csv -o routed.parquet --workers 2
      pandora route "What is 12 x 7?" --exclude large --max-fee 0.01
      cat prompts.jsonl | pandora route --batch - | jq .specialist
    """
    if (prompt is None) == (batch is None) or (batch is None and output is not None):
        raise UsageError(
            "pandora route",
            expected="a prompt, or --batch FILE (and -o FILE)",
            came="both" if prompt is not None else "neither",
            do="See pandora route --help.",
        )
    if batch is None:
        asked = sys.stdin.buffer.read().decode("utf-8", "replace") if prompt == "-" else prompt
        assert asked is not None
        _route_one(artifact, asked, read_contexts(pairs, file), wanted, as_json)
    else:
        from pandora_router.cli.batches import BatchFile, PromptCells

        work = BatchFile(artifact, PromptCells(prompt_column), wanted, runner)
        _route_batch(work, batch, output or STANDARD, replace, as_json)


def _route_one(artifact: Path, prompt: str, contexts: dict[str, str], wanted: Wanted, as_json: bool) -> None:
    router = open_router(artifact)
    decision = router.route(prompt, contexts, among=wanted.among(router))
    if as_json:
        echo_json(decision.to_dict())
    elif decision.declined_because:
        echo(f"{decision.specialist} (the default: {decision.declined_because})")
    else:
        echo(decision.specialist)


def _route_batch(work: BatchFile, source: Path, output: Path, replace: bool, as_json: bool) -> None:
    from pandora_router.cli.rows import json_line, json_rows, source_of

    if output == STANDARD:
        piped = source == STANDARD
        rows = json_rows(sys.stdin.buffer, Path("standard input")) if piped else source_of(source).rows()
        for row in work.route_rows(rows):
            click.echo(json_line(row), nl=False)
        return
    if source == STANDARD:
        raise UsageError(
            f"-o {output}",
            expected="no -o where prompts come from standard input",
            came="a file",
            do="Redirect standard output to a file, or name an input file.",
        )
    with SlowProgress(resumes=True) as progress:
        summary = work.route_file(source, output, replace=replace, progress=progress)
    _show(summary, work.router.id, output, as_json)


def _show(summary: BatchSummary, artifact: str, output: Path, as_json: bool) -> None:
    if as_json:
        facts = {
            "output": str(output),
            "artifact": artifact,
            "prompts": summary.prompts,
            "declined": summary.declined,
            "mean_spent": summary.mean_spent,
            "specialists": dict(summary.chosen.most_common()),
        }
        echo_json(facts)
        return
    total = max(summary.prompts, 1)
    shares = ", ".join(f"{name} {count / total:.0%}" for name, count in summary.chosen.most_common(6))
    echo(
        f"{summary.prompts:,} prompts routed ({shares}), {summary.declined:,} declined, "
        f"mean inspection cost {summary.mean_spent:.4g}; written to {output}"
    )
