"""`pandora log`: show decisions of the gateway, and export traffic with feedback as training data."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pandora_router.cli.console import Screen, table
from pandora_router.cli.keys import CONFIG, store_option, within
from pandora_router.errors import UsageError
from pandora_router.store import accounts, budgets, promises
from pandora_router.store import log as decisions
from pandora_router.store.money import dollars
from pandora_router.text import money, printable

if TYPE_CHECKING:
    from rich.table import Table as Grid

    from pandora_router.store.rows import SharedBudget

PROMISES = 30 * 86_400.0
"""Seconds back for which promises are held against requests."""


@click.group()
def log() -> None:
    """Read the gateway's decisions; export traffic.

    \b
    Examples:
      pandora log tail --most 20
      pandora log show 0193...
      pandora log status
      pandora log export --parquet decisions.parquet --days 30
      pandora log export --table traffic     # then: pandora fit
    """


@log.command()
@click.option("--most", type=click.IntRange(1, 1000), default=20, show_default=True)
@click.option("--specialist", help="Only decisions for this specialist.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
@store_option
def tail(most: int, specialist: str | None, as_json: bool, store: str) -> None:
    """Show the newest decisions, newest first.

    \b
    Examples:
      pandora log tail --most 20 --specialist small
      pandora log tail --json
    """
    only: dict[str, Any] = {} if specialist is None else {"specialist": specialist}
    rows = within(store, lambda open_: decisions.recent(open_, most=most, **only))
    if as_json:
        for row in rows:
            click.echo(json.dumps(row))
        return
    cells = [
        [
            datetime.fromtimestamp(row["at"], UTC).strftime("%Y-%m-%d %H:%M:%S"),
            row["id"],
            printable(row["specialist"]),
            printable(row["policy"].partition("(")[0]),
            row["status"],
            str(row["inspected"]),
            money(dollars(row["cost"])),
            "" if row["seconds"] is None else f"{row['seconds']:.2f}",
        ]
        for row in rows
    ]
    columns = ["time (UTC)", "decision", "specialist", "policy", "status", "looks", "cost", "seconds"]
    Screen().show(table("Newest decisions", columns, cells, words=5))


@log.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
@store_option
def status(as_json: bool, store: str) -> None:
    """Show every budget and every promise of a goal.

    Of a budget: what is spent, what is left, and what its period will end at. Of a promise to keep a share of
    a specialist's score, or to answer in time: whether it held on the requests of the last 30 days.

    Budgets of `goal` and of profiles also show what a right answer is worth now: the highest worth at which
    the money lasts (docs/goals.md). The gateway writes it down every few seconds. Promises are those of the
    goals in pandora.yaml of the current folder.

    \b
    Examples:
      pandora log status
      pandora log status --json
    """
    now = time.time()
    promised, metric, limits = stated_goals()
    levels, kept = within(
        store,
        lambda open_: (
            budgets.status(open_, [*limits, *accounts.limited(open_)], now),
            promises.watched(open_, promised, metric, now - PROMISES),
        ),
    )
    if as_json:
        for level in levels:
            amounts = {name: dollars(getattr(level, name)) for name in ("budget", "spent", "reserved")}
            click.echo(json.dumps(asdict(level) | amounts | {"left": level.left}))
        for one in kept:
            click.echo(json.dumps(asdict(one) | {"verdict": one.verdict}))
        return
    if kept:
        Screen().show(_promises(kept))
    if not levels and not kept:
        click.echo("There is no budget. Set one: goal: {budget: 500, per: month} in pandora.yaml, or")
        click.echo("pandora keys add NAME --budget 50")
    if not levels:
        return
    cells = [
        [
            printable(level.name),
            f"{money(dollars(level.budget))} per {level.period}",
            money(dollars(level.spent)),
            money(dollars(level.reserved)),
            f"{level.left:.1%}",
            "never" if level.until is None else f"{(level.until - now) / 86_400.0:.1f} days",
            "" if level.expected is None else money(level.expected),
            "" if level.worth is None else money(level.worth),
        ]
        for level in levels
    ]
    columns = ["budget of", "budget", "spent", "reserved", "left", "ends in", "will end at"]
    Screen().show(table("Budgets", [*columns, "a right answer is worth"], cells, words=1))


def _promises(kept: Sequence[promises.Watched]) -> Grid:
    """The promises of goals, and whether they hold, as a table."""
    rows = [
        [
            printable(one.promise.text),
            one.verdict,
            "" if one.reached is None else f"{one.reached:.1%}",
            "" if one.low is None else f"{one.low:.1%} to {one.high:.1%}",
            f"{one.requests:,}",
            printable(one.basis),
        ]
        for one in kept
    ]
    columns = ["promise", "it", "reached", "95 % interval", "requests", "compared with"]
    return table("What the goal promises, on the last 30 days", columns, rows, words=2)


def stated_goals() -> tuple[tuple[promises.Promise, ...], str, list[SharedBudget]]:
    """What the goals of pandora.yaml in this folder promise, the feedback that is the score, and budgets."""
    if not CONFIG.is_file():
        return (), "reward", []
    from pandora_router.config import read_config
    from pandora_router.config.worth import promises as promises_of
    from pandora_router.config.worth import stated_budgets

    config = read_config(CONFIG)
    return promises_of(config), config.learn.feedback, list(stated_budgets(config).values())


@log.command()
@click.argument("decision")
@store_option
def show(decision: str, store: str) -> None:
    """Print one decision with its attempts and feedback, as JSON.

    \b
    Examples:
      pandora log show 01a1e3fb-2c04-7d3d-a452-1602a1623dde
      pandora log show 01a1e3fb-2c04-7d3d-a452-1602a1623dde --store other.sqlite
    """
    row = within(store, lambda open_: decisions.decision(open_, decision))
    if row is None:
        raise UsageError(
            "a decision", expected="the id of one", came=repr(decision), do="See: pandora log tail"
        )
    click.echo(json.dumps(row, indent=1))


@log.command()
@click.option("--parquet", type=click.Path(path_type=Path), help="Write all decisions to this file.")
@click.option("--table", "folder", type=click.Path(path_type=Path), help="Write a routing table here.")
@click.option("--metric", default="reward", show_default=True, help="Feedback metric used as the score.")
@click.option("--days", type=float, default=30.0, show_default=True, help="Days to go back.")
@store_option
def export(parquet: Path | None, folder: Path | None, metric: str, days: float, store: str) -> None:
    """Export decisions as Parquet, or traffic with feedback as a routing table to fit on.

    \b
    Examples:
      pandora log export --parquet decisions.parquet --days 30
      pandora log export --table traffic --metric reward
    """
    from pandora_router.data import save
    from pandora_router.store.export import routing_table, write_parquet

    if (parquet is None) == (folder is None):
        raise UsageError(
            "pandora log export",
            expected="--parquet or --table",
            came="both or none",
            do="Pass one of them.",
        )
    since, until = time.time() - days * 86_400.0, time.time()
    if parquet is not None:
        target = parquet
        rows: Any = within(store, lambda open_: write_parquet(open_, target, since, until))
        click.echo(f"{rows:,} decisions in {parquet}")
        return
    assert folder is not None
    traffic = within(store, lambda open_: routing_table(open_, metric, since, until))
    save(traffic, folder)
    click.echo(f"{len(traffic):,} prompts of {len(traffic.specialists)} specialists in {folder}")
