"""`pandora route`: who should answer one prompt, or a whole file of them."""

from __future__ import annotations

import json
from pathlib import Path

import click

from pandora_router.cli.compiling import tell_first_use
from pandora_router.cli.console import SlowProgress
from pandora_router.cli.options import CONTEXT, CONTEXTS, ROUTER, read_contexts
from pandora_router.config import open_router
from pandora_router.errors import UsageError


@click.command()
@click.argument("prompt", required=False)
@ROUTER
@CONTEXT
@CONTEXTS
@click.option("--batch", type=click.Path(path_type=Path), help="Parquet file with a column of prompts.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="With --batch: Parquet file to write.")
@click.option("--prompt-column", default="prompt", show_default=True, help="With --batch: where prompts are.")
@click.option("--replace", is_flag=True, help="With --batch: replace an output that is there already.")
@click.option("--json", "as_json", is_flag=True, help="Print the whole decision (or summary) as JSON.")
def route(
    prompt: str | None,
    artifact: Path,
    pairs: tuple[str, ...],
    file: Path | None,
    batch: Path | None,
    output: Path | None,
    prompt_column: str,
    replace: bool,
    as_json: bool,
) -> None:
    """Say who should answer PROMPT, or route every prompt of a file.

    A batch file may have a column `contexts` (maps or JSON texts from specialist to context). Killed at
    any moment, a batch leaves no output or a complete one, and goes on where it stopped.

    \b
    Examples:
      pandora route "What is 12 x 7?"
      pandora route -r router "What is 12 x 7?" --context small="Let us multiply" --json
      pandora route --batch in.parquet -o out.parquet
    """
    if (prompt is None) == (batch is None) or (batch is None) != (output is None):
        raise UsageError(
            "pandora route",
            expected="either a prompt, or --batch and -o",
            came="both" if prompt is not None else "not all of it",
            do="See pandora route --help.",
        )
    router = open_router(artifact)
    tell_first_use("gradient" if prompt is not None else "rows")
    if prompt is not None:
        decision = router.route(prompt, read_contexts(pairs, file))
        if as_json:
            click.echo(json.dumps(decision.to_dict(), indent=1, ensure_ascii=False, allow_nan=False))
        elif decision.declined_because:
            click.echo(f"{decision.specialist} (the default: {decision.declined_because})")
        else:
            click.echo(decision.specialist)
        return
    assert batch is not None
    assert output is not None
    from pandora_router.cli.batches import route_file

    with SlowProgress(resumes=True) as bar:
        summary = route_file(router, batch, output, prompt_column, replace=replace, say=bar)
    if as_json:
        click.echo(json.dumps(summary, indent=1, ensure_ascii=False))
        return
    click.echo(
        f"{summary['prompts']:,} prompts routed, {summary['declined']:,} declined, mean inspection cost "
        f"{summary['mean_spent']:.4g}; written to {output}"
    )
