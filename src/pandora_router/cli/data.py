"""`pandora data`: read files into a routing table, merge tables, and summarise one."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import click
from rich.table import Table as Grid

from pandora_router import folders
from pandora_router.cli.console import Screen, SlowProgress, echo, echo_json
from pandora_router.cli.console import table as grid_of
from pandora_router.cli.sources import Source, Splitting, source_options, split_options
from pandora_router.data import merge, resplit, storage
from pandora_router.data.check import Baselines, Mean, SpecialistSummary, Summary, summarise
from pandora_router.data.table import Table
from pandora_router.text import counted


@click.group()
def data() -> None:
    """Import scored answers into a routing table, merge tables, and summarise one."""


@data.command("import")
@source_options
@click.option("-o", "--output", required=True, type=click.Path(path_type=Path), help="Folder to write.")
@split_options
@click.option("--replace", is_flag=True, help="Replace an existing routing table.")
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON.")
def import_(source: Source, splitting: Splitting, output: Path, replace: bool, as_json: bool) -> None:
    """Read SOURCE and write a routing table.

    SOURCE is a file (CSV, TSV, JSON lines, Parquet) or a folder. Every specialist needs a fee; if answers
    cost nothing, say --free. A split is drawn by --seed, stratified by task, unless --keep-split keeps the
    one in the data (its `val` becomes calibration; prompts in `ood` are in no split).

    \b
    Examples:
      pandora data import openllm_pool -o table --fee-per-trillion-parameters 1
      pandora data import routerbench_part -o table --fee-column cost_usd --seed 7
      pandora data import scores.csv --format long --specialist-column llm -o table \\
          --fee small=0.001 --fee large=0.03
      pandora data import wide.jsonl --format wide --score-column '{}_correct' -o table --free
      pandora data import embedllm/ --format embedllm -o table --free --keep-split
    """
    folders.check_output(output, storage.KIND, replace=replace, inputs=[source.path])
    with SlowProgress() as progress:
        table = splitting.apply(source.read(progress))
        storage.save(table, output, replace=replace, inputs=[source.path])
        progress("summarising", 1, 1)
        summary = summarise(table)
    if as_json:
        echo_json(summary.to_dict())
    else:
        _show(summary)
        echo(f"\nWritten to {output}")


@data.command("check")
@source_options
@click.option("--split", type=click.Choice(["train", "calibration", "test"]), help="Only this split.")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
def check(source: Source, split: str | None, as_json: bool) -> None:
    """Print a summary of SOURCE: a routing table, or anything that `import` reads.

    Counts, missing cells, duplicates within and across splits, and the net score of the best single
    specialist, the cheapest, a random one and the best for each prompt (oracle), with standard errors.

    \b
    Examples:
      pandora data check table
      pandora data check table --split test --fee-weight 0.5 --json
      pandora data check rag_adarague --fee-column suggested_cost
    """
    with SlowProgress() as progress:
        table = source.read(progress)
        progress("summarising", 1, 1)
        summary = summarise(_part(table, split))
    if as_json:
        echo_json(summary.to_dict())
    else:
        _show(summary)


@data.command("merge")
@click.argument("paths", metavar="TABLE...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("-o", "--output", required=True, type=click.Path(path_type=Path), help="Folder to write.")
@click.option(
    "--prefer", type=click.Choice(["first", "last"]), help="Whose cell stays where tables disagree [refuse]."
)
@click.option("--fee-weight", type=float, help="For all tables: net = score - weight x fee.")
@click.option("--replace", is_flag=True, help="Replace an existing routing table.")
def merge_(
    paths: tuple[Path, ...], output: Path, prefer: Any, fee_weight: float | None, replace: bool
) -> None:
    """Merge routing tables into one with all their prompts and specialists.

    Prompts are the same if their texts are, apart from white space. Cells that no table states stay missing,
    and `pandora fit` fits without them. A cell that two tables state differently is an error, unless --prefer
    says which one stays. A prompt keeps the split of the first table that has it; a table without any split
    gets one drawn by seed 0.

    \b
    Examples:
      pandora data merge table traffic -o both
      pandora data merge january february march -o quarter --prefer last
    """
    folders.check_output(output, storage.KIND, replace=replace, inputs=paths)
    tables = [storage.load(path) for path in paths]
    for i, table in enumerate(tables):
        if not (table.split != "").any():
            echo(f"{paths[i]} has no split: drawn by seed 0.", err=True)
            table = resplit(table, seed=0)
        tables[i] = table if fee_weight is None else table.with_fee_weight(fee_weight)
    merged = merge(tables, prefer=prefer)
    storage.save(merged.table, output, replace=replace, inputs=paths)
    echo(f"In several tables: {counted(merged.shared, 'prompt')}.")
    if merged.conflicts:
        kept = f"of which that of the {prefer} table is kept"
        echo(f"Stated differently: {counted(merged.conflicts, 'cell')}, {kept}.")
    _show(summarise(merged.table))
    echo(f"\nWritten to {output}")


def _part(table: Table, split: str | None) -> Table:
    return table if split is None else table.in_split(split)


def _show(summary: Summary) -> None:
    console = Screen()
    console.say(
        f"{summary.prompts:,} prompts x {len(summary.specialists)} specialists: {summary.scores:,} scores, "
        f"{math.floor(summary.filled * 1000) / 10} % of the grid, {summary.missing_cells:,} cells missing"
    )
    console.say("splits: " + ", ".join(f"{name} {count:,}" for name, count in summary.splits.items()))
    tasks = sorted(summary.tasks.items(), key=lambda item: -item[1])
    shown = ", ".join(f"{name or '(none)'} {count:,}" for name, count in tasks[:6])
    console.say(f"tasks: {len(tasks)} ({shown}{', ...' if len(tasks) > 6 else ''})")
    console.say(f"contexts: {summary.contexts:,} cells")
    console.say(
        f"duplicates: {summary.duplicate_prompts:,} prompts repeat an earlier text; "
        f"{summary.texts_across_splits:,} texts cross splits ({summary.prompts_across_splits:,} prompts)"
    )
    console.say(f"net = score - {summary.fee_weight:g} x fee; fingerprint {summary.fingerprint[:12]}\n")
    console.show(_specialists(summary))
    console.show(_rewards(summary))


def _specialists(summary: Summary) -> Grid:
    rows = []
    for column in sorted(summary.specialists, key=_unrewarded):
        numbers = [f"{x:.4g}" if x is not None else "-" for x in (column.score, column.fee, column.reward)]
        rows.append([column.specialist, f"{column.missing:,}", *numbers])
    columns = ("specialist", "missing", "score", "fee", "net")
    return grid_of("Specialists (means over their own cells)", columns, rows)


def _unrewarded(column: SpecialistSummary) -> float:
    """Sorts by mean reward, highest first; specialists without a score are last."""
    return math.inf if column.reward is None else -column.reward


def _rewards(summary: Summary) -> Grid:
    views: list[tuple[str, Baselines]] = []
    if summary.complete is not None:
        views.append((f"prompts all answered ({summary.complete.prompts:,})", summary.complete))
    if summary.available is not None and (summary.missing_cells or summary.complete is None):
        views.append((f"all prompts, cells there are ({summary.available.prompts:,})", summary.available))
    rows = [
        [label, *(_cell(view, label) for _, view in views)]
        for label in ("best single", "cheapest", "random", "oracle")
    ]
    columns = ("routing", *(title for title, _ in views))
    return grid_of("Net per prompt +- standard error", columns, rows, words=len(columns))


def _cell(view: Baselines, label: str) -> str:
    if label in ("random", "oracle"):
        return _number(view.random if label == "random" else view.oracle)
    pick = view.best_single if label == "best single" else view.cheapest
    tied = f" (or {pick.tied} {'other' if pick.tied == 1 else 'others'})" if pick.tied else ""
    return f"{_number(pick.reward)}  {pick.specialist}{tied}"


def _number(mean: Mean) -> str:
    return f"{mean.mean:.4f}" + (f" +- {mean.standard_error:.4f}" if mean.standard_error is not None else "")
