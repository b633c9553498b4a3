"""`pandora keys`: API keys of the gateway, with budgets and rates."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from pandora_router.cli.console import Screen, table
from pandora_router.errors import UsageError
from pandora_router.store import accounts, budgets
from pandora_router.store.database import Transaction, connect
from pandora_router.store.migrations import migrate
from pandora_router.store.money import PERIODS, dollars, nanodollars
from pandora_router.text import money, printable

T = TypeVar("T")
CONFIG, STORE = Path("pandora.yaml"), "pandora.sqlite"


def usual_store() -> str:
    """The store of the gateway in this folder: `serve.store` of pandora.yaml, or pandora.sqlite without one.

    Raises `UsageError` if pandora.yaml is invalid.
    """
    from pandora_router.config import read_config

    return read_config(CONFIG).store_address(CONFIG.resolve().parent) if CONFIG.is_file() else STORE


def store_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the option `--store` to a command."""
    return click.option(
        "--store",
        default=usual_store,
        show_default="PANDORA_STORE, else serve.store of pandora.yaml, else pandora.sqlite",
        envvar="PANDORA_STORE",
        help="A file for SQLite, or postgresql://...",
    )(command)


def within(store: str, operation: Callable[[Transaction], T], *, new: bool = False) -> T:
    """Run an operation on the store at address `store` and commit it.

    Raises `UsageError` if `store` is a file that does not exist, unless `new` is true: then it is made.
    """
    path = (
        None if store.startswith(("postgresql://", "postgres://")) else Path(store.removeprefix("sqlite:///"))
    )
    if path is not None and not new and not path.exists():
        raise UsageError(
            store,
            expected="the file in which the gateway keeps keys and decisions (serve.store of its config)",
            came="no such file",
            do="Go to its folder, or name it with --store or PANDORA_STORE; pandora serve makes it.",
        )
    database = connect(store)
    try:
        migrate(database)
        with database.transaction() as open_:
            result: T = operation(open_)
        return result
    finally:
        database.close()


@click.group()
def keys() -> None:
    """Make, list, change and revoke API keys of the gateway.

    \b
    Examples:
      pandora keys add team-a --budget 50 --period month --per-minute 600
      pandora keys list
      pandora keys set team-a --budget 80
      pandora keys revoke team-a
    """


@keys.command()
@click.argument("name")
@click.option("--budget", type=float, help="Most dollars that may be spent per period [unlimited].")
@click.option("--period", type=click.Choice(PERIODS), default="month", show_default=True)
@click.option("--per-minute", type=click.IntRange(min=0), help="Most requests per minute [unlimited].")
@click.option("--group", help="Share the budget of this group of keys; see: pandora keys group.")
@click.option("--admin", is_flag=True, help="The key also opens the dashboard.")
@store_option
def add(
    name: str,
    budget: float | None,
    period: str,
    per_minute: int | None,
    group: str | None,
    admin: bool,
    store: str,
) -> None:
    """Make a key and print its secret, which is not stored and cannot be shown again.

    \b
    Examples:
      pandora keys add team-a --budget 50 --period month --per-minute 600
      pandora keys add batch --budget 5 --period day --store postgresql://host/pandora
      pandora keys add alice --group research
      pandora keys add operator --admin
    """
    most = None if budget is None else nanodollars(budget)
    _, secret = within(
        store,
        lambda open_: accounts.add_key(
            open_,
            name,
            time.time(),
            budget=most,
            period=period,
            per_minute=per_minute,
            admin=admin,
            group=group,
        ),
        new=True,
    )
    click.echo(secret)


@keys.command()
@click.argument("name")
@click.option("--budget", type=float, help="Most dollars that its keys may spend together [unlimited].")
@click.option("--period", type=click.Choice(PERIODS), default="month", show_default=True)
@store_option
def group(name: str, budget: float | None, period: str, store: str) -> None:
    """Make a group of keys that share a budget, or change it, from the next request on.

    A request must fit into every budget above it: that of its key, of the group, of the profile, of all.

    \b
    Examples:
      pandora keys group research --budget 500 --period month
      pandora keys group interns --budget 5 --period day
      pandora keys add alice --group research --budget 50
    """
    most = None if budget is None else nanodollars(budget)
    within(store, lambda open_: accounts.set_group(open_, name, budget=most, period=period), new=True)
    spends = "unlimited" if budget is None else f"{money(budget)} per {period}"
    click.echo(f"The keys of the group {printable(name)} share: {spends}")


@keys.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@store_option
def list_(as_json: bool, store: str) -> None:
    """Show all keys and what each has spent in the present period.

    \b
    Examples:
      pandora keys list
      pandora keys list --json
    """
    now = time.time()

    def look(open_: Transaction) -> list[dict[str, Any]]:
        listed = []
        for key in accounts.keys(open_):
            spent, reserved = budgets.account(open_, key, now)
            budget = None if key.budget is None else dollars(key.budget)
            row = {"name": key.name, "budget": budget, "period": key.period, "per_minute": key.per_minute}
            row |= {"spent": dollars(spent), "reserved": dollars(reserved)}
            row |= {"group": None if key.group is None else key.group.name}
            listed.append({**row, "admin": key.admin, "revoked": key.revoked_at is not None})
        return listed

    rows = within(store, look)
    if as_json:
        click.echo(json.dumps(rows))
        return
    if not rows:
        click.echo("There is no key yet. Make one: pandora keys add NAME")
        return
    cells = [
        [
            printable(row["name"])
            + (" (admin)" if row["admin"] else "")
            + (" (revoked)" if row["revoked"] else ""),
            "" if row["group"] is None else printable(row["group"]),
            "unlimited" if row["budget"] is None else f"{money(row['budget'])} per {row['period']}",
            money(row["spent"], significant=6),
            money(row["reserved"], significant=6),
            "unlimited" if row["per_minute"] is None else f"{row['per_minute']:,}",
        ]
        for row in rows
    ]
    Screen().show(
        table("API keys", ["key", "group", "budget", "spent", "reserved", "per minute"], cells, words=3)
    )


def _limit(_: click.Context, option: click.Parameter, value: str | None) -> float | None:
    """Read a limit: a number of zero or more, or `none`, which becomes infinity; None if it was not named."""
    if value is None or value == "none":
        return None if value is None else math.inf
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not 0.0 <= number < math.inf:
        raise click.BadParameter(f"expected a number of zero or more, or none, got {value!r}", param=option)
    return number


@keys.command("set")
@click.argument("name")
@click.option(
    "--budget", metavar="DOLLARS", callback=_limit, help="Most dollars per period, or none for unlimited."
)
@click.option(
    "--per-minute", metavar="NUMBER", callback=_limit, help="Most requests per minute, or none for unlimited."
)
@click.option("--group", metavar="NAME", help="Share the budget of this group, or none for no group.")
@store_option
def set_(name: str, budget: float | None, per_minute: float | None, group: str | None, store: str) -> None:
    """Change the limits of a key, from its next request on; a limit that is not named stays.

    What the key has spent in the present period counts against the new budget.

    \b
    Examples:
      pandora keys set team-a --budget 80
      pandora keys set team-a --per-minute 1200 --budget none
      pandora keys set team-a --group research
    """
    if budget is None and per_minute is None and group is None:
        do = "Pass at least one of them."
        expected = "--budget, --per-minute or --group"
        raise UsageError("pandora keys set", expected=expected, came="none", do=do)

    def change(open_: Transaction) -> None:
        key = next((k for k in accounts.keys(open_) if k.name == name and k.revoked_at is None), None)
        most, rate = (None, None) if key is None else (key.budget, key.per_minute)
        if budget is not None:
            most = None if budget == math.inf else nanodollars(budget)
        if per_minute is not None:
            rate = None if per_minute == math.inf else int(per_minute)
        accounts.limit_key(open_, name, budget=most, per_minute=rate)
        if group is not None:
            accounts.join_group(open_, name, None if group == "none" else group)

    within(store, change)
    click.echo(f"{printable(name)} has new limits; see: pandora keys list")


@keys.command()
@click.argument("name")
@store_option
def revoke(name: str, store: str) -> None:
    """Revoke a key: from now on its requests are refused, and a new key may have its name.

    \b
    Examples:
      pandora keys revoke team-a
      pandora keys revoke team-a --store postgresql://host/pandora
    """
    within(store, lambda open_: accounts.revoke_key(open_, name, time.time()))
    click.echo(f"{printable(name)} is revoked.")
