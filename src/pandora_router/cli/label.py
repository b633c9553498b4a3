"""`pandora learn label`: have logged prompts answered by every specialist and scored by a judge."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path

import click

from pandora_router.cli.console import echo
from pandora_router.cli.keys import store_option, within
from pandora_router.errors import UsageError


@click.command()
@click.argument("config", type=click.Path(path_type=Path, dir_okay=False), default=Path("pandora.yaml"))
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), default=Path("labels"), show_default=True,
    help="Routing table to write, or to add to.",
)  # fmt: skip
@click.option("--most", type=click.IntRange(1), default=200, show_default=True, help="Prompts at most.")
@click.option("--days", type=float, default=30.0, show_default=True, help="Days to go back.")
@store_option
def label(config: Path, output: Path, most: int, days: float, store: str) -> None:
    """Have logged prompts answered by every specialist and scored; write them as a routing table.

    A rated answer tells about one specialist, a prompt that all have answered about all of them. The prompts
    are a fair sample of those in the log (`serve: {bodies: true}`), whoever rated them. The section `grading`
    must name a judge or a function, since nothing is known of the right answer. At most
    `learn: {labels: {budget: DOLLARS}}` is spent in a month; every bought answer is written to a journal
    beside the table, so that nothing is bought twice if the command is stopped and run again.

    \b
    Examples:
      pandora learn label
      pandora learn label pandora.yaml -o labels --most 50 --days 7
      pandora learn refit -r router -o router-b --labels labels
    """
    from pandora_router import folders
    from pandora_router.cli.collect import bought
    from pandora_router.collect.assemble import Question
    from pandora_router.config import read_config
    from pandora_router.data import merge, storage
    from pandora_router.store.export import sampled_prompts

    settings, now = read_config(config), time.time()
    known = storage.load(output) if output.exists() else None
    folders.check_output(output, storage.KIND, replace=known is not None, inputs=[config])
    drawn = within(store, lambda open_: sampled_prompts(open_, most, now - days * 86_400.0, now))
    plan = settings.label_plan(config.parent, tuple(Question(id_, text) for id_, text in drawn))
    month = datetime.fromtimestamp(now, UTC).strftime("%Y-%m")
    collected = bought(plan, output.with_name(f"{output.name}-{month}.journal"), settings.value.currency)
    if not collected.answers:
        raise UsageError(
            "learn.labels",
            expected="a budget for the answers of all specialists to one prompt, at their worst case",
            came=f"{plan.budget:g} a month, and no answer {'; '.join(collected.stopped.values())}".strip(),
            do="Raise learn.labels.budget, or give specialists and judge a lower limit of `tokens`.",
        )
    table = collected.table
    tables = [table] if known is None else [known.with_fee_weight(table.fee_weight), table]
    storage.save(merge(tables, prefer="last").table, output, replace=True, inputs=[config])
    whole = int((~table.missing.any(axis=1)).sum())
    echo(
        f"{whole:,} of {len(table):,} prompts have a score of every specialist, in {output}; "
        f"{settings.value.currency}{collected.spent:.4f} spent this month. "
        f"Next: pandora learn refit --labels {output}"
    )
