"""`pandora add`: one more specialist for a fitted router, from a few dozen scored prompts or from none."""

from __future__ import annotations

import math
from pathlib import Path

import click

from pandora_router import folders
from pandora_router.cli.console import SlowProgress, echo, echo_json
from pandora_router.cli.options import ROUTER
from pandora_router.cli.row_files import Row, source_of
from pandora_router.config import open_router
from pandora_router.errors import UsageError
from pandora_router.router.artifact import KIND


@click.command()
@click.argument("name")
@click.argument("scores", type=click.Path(path_type=Path, dir_okay=False), required=False)
@ROUTER
@click.option("-o", "--output", required=True, type=click.Path(path_type=Path), help="Folder to write.")
@click.option("--prompt-column", default="prompt", show_default=True, help="Column of prompts.")
@click.option("--score-column", default="score", show_default=True, help="Column of scores; empty: unknown.")
@click.option("--fee", type=float, help="Fee of an answer, in the unit of the router's fees.")
@click.option("--fee-column", help="Column with the fee of each answer, instead of --fee.")
@click.option("--inspection-cost", type=float, help="Price of its costly estimate [as for the others].")
@click.option(
    "--seed", type=click.IntRange(0), default=0, show_default=True, help="Seed of the cross-validation."
)
@click.option("--replace", is_flag=True, help="Replace an existing router.")
@click.option("--json", "as_json", is_flag=True, help="Print a summary as JSON.")
def add(
    name: str,
    scores: Path | None,
    artifact: Path,
    output: Path,
    prompt_column: str,
    score_column: str,
    fee: float | None,
    fee_column: str | None,
    inspection_cost: float | None,
    seed: int,
    replace: bool,
    as_json: bool,
) -> None:
    """Add specialist NAME to a router, from its answers to the prompts in SCORES (.csv, .jsonl, .parquet).

    Each row of SCORES has a prompt and the score of NAME's answer, on the same scale as the scores that the
    router was fitted on. At least 16 rows are needed, a few dozen are better; prompts that the router was not
    fitted on are best. The estimates for the other specialists do not change.

    Without SCORES the newcomer is taken for an average colleague that costs --fee. With
    `learn: {explore: {budget: 5}}` the gateway asks it where that teaches more than it loses; from ratings of
    its answers `pandora learn refit` learns what it is good at.

    \b
    Examples:
      pandora add newcomer scores.csv --fee 0.002 -r router -o router2
      pandora add newcomer --fee 0.002 -r router -o router2
      pandora add newcomer scores.parquet --fee-column usd --score-column correct -r router -o router2 --json
    """
    if (fee is None) == (fee_column is None):
        raise UsageError(
            "the fee of an answer",
            expected="--fee NUMBER or --fee-column NAME",
            came="neither" if fee is None else "both",
            do="If answers cost nothing, say --fee 0.",
        )
    inputs = [artifact] if scores is None else [scores, artifact]
    folders.check_output(output, KIND, replace=replace, inputs=inputs)
    router = open_router(artifact)
    if scores is None:
        if fee is None:
            raise UsageError(
                "the fee of an answer", expected="--fee NUMBER", came=f"--fee-column {fee_column}",
                do="Name a file of scores too, or say --fee.",
            )  # fmt: skip
        grown = router.add_unscored(name, fee, inspection_cost=inspection_cost)
        grown.save(output, replace=replace)
        if as_json:
            echo_json({"output": str(output), "id": grown.id, **grown.record.added[-1]})
            return
        echo(
            f"{name}: no score is known, so it is taken for an average colleague at a fee of {fee:g}. "
            f"Written to {output} ({len(grown.specialists)} specialists). "
            "Next: name it in serve.router, with learn: {explore: {budget: 5}}"
        )
        return
    with SlowProgress() as progress:
        progress(f"reading {scores}", 0, 2)
        rows = list(enumerate(source_of(scores).rows(), start=1))
        prompts = [str(_cell(row, prompt_column, scores, n) or "") for n, row in rows]
        score = [_number(row, score_column, scores, n) for n, row in rows]
        prices = [
            float(fee or 0) if fee_column is None else _number(row, fee_column, scores, n) for n, row in rows
        ]
        progress(f"learning about {name}", 1, 2)
        grown = router.add_specialist(
            name, prompts, score, fee=prices, inspection_cost=inspection_cost, seed=seed
        )
        grown.save(output, replace=replace)
        chosen = sum(decision.specialist == name for decision in grown.route_batch(prompts)) / len(prompts)
    note = grown.record.added[-1]
    if as_json:
        facts = {"output": str(output), "id": grown.id, **note, "chosen_for": chosen}
        echo_json(facts)
        return
    echo(
        f"{name}: mean reward {note['mean_reward']:.4f} on {note['prompts']:,} scored prompts; the router "
        f"would send {chosen:.0%} of them to it. Written to {output} ({len(grown.specialists)} specialists)."
    )


def _cell(row: Row, column: str, file: Path, number: int) -> object:
    if column not in row:
        raise UsageError(
            f"{file}, row {number:,}",
            expected=f"a column {column!r}",
            came=", ".join(map(repr, row)),
            do="Name the columns with --prompt-column, --score-column and --fee-column.",
        )
    return row[column]


def _number(row: Row, column: str, file: Path, number: int) -> float:
    """A cell as a number, NaN if it is empty; `UsageError` if it is something else."""
    value = _cell(row, column, file, number)
    if value is None or value == "":
        return math.nan
    try:
        return float(value) if isinstance(value, bool) else float(str(value))
    except ValueError as error:
        raise UsageError(
            f"{file}, row {number:,}, {column!r}",
            expected="a number",
            came=repr(value),
            do="Correct that row.",
        ) from error
