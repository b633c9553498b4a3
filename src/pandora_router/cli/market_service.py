"""`pandora market serve`, its participants (join, renew, leave, accounts), and `pandora bid`."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pandora_router.cli.console import Screen, echo, echo_json, table
from pandora_router.cli.keys import within

if TYPE_CHECKING:
    from pandora_router.config.market_objects import MarketPlan

CONFIG = click.option(
    "--config",
    type=click.Path(path_type=Path),
    default=Path("pandora.yaml"),
    show_default=True,
    help="The file with the section `market`.",
)


def _plan(config: Path) -> MarketPlan:
    from pandora_router.config import read_config
    from pandora_router.config.market_objects import MarketPlan

    path = config.resolve()
    return MarketPlan(read_config(path), path)


@click.command()
@click.argument("config", type=click.Path(path_type=Path), default=Path("pandora.yaml"))
@click.option("--host", help="Address to listen on [market.host, else 127.0.0.1].")
@click.option("--port", type=click.IntRange(0, 65535), help="Port [market.port, else 8090]; 0: any free one.")
def serve(config: Path, host: str | None, port: int | None) -> None:
    """Hold an auction for every prompt, among bidders that joined and specialists of CONFIG by proxy.

    The platform's secret is read from the environment variable PANDORA_MARKET_SECRET, or from
    `market.secret_file`. Without `market: {keys: true}` only 127.0.0.1 is allowed.

    \b
    Examples:
      pandora market serve pandora.yaml
      pandora market serve --port 9000
      curl http://127.0.0.1:8090/prompts -d '{"prompt": "What is 12 x 7?"}'
    """
    from pandora_router.transport.asgi import run_event_loop

    run_event_loop(_serve(_plan(config), host, port))


async def _serve(plan: MarketPlan, host: str | None, port: int | None) -> None:
    from pandora_router.store.worker import Store
    from pandora_router.transport.asgi import serve_until_stopped

    store = Store(plan.store)
    try:
        app = plan.market(store)
        await app.recover()
        listening = plan.address(host, port).bind(keys=plan.settings.keys)
        summary = f"{plan.settings.mechanism}; ledger in {plan.store}"
        recovering = asyncio.ensure_future(app.keep_recovering())
        await serve_until_stopped(
            app, listening, lambda url: echo(f"Market on {url} ({summary}). Stop with Ctrl-C.")
        )
        recovering.cancel()
    finally:
        store.close()


@click.command()
@click.argument("name")
@click.option("--url", required=True, help="Address of the bidder's service.")
@click.option("--stake", type=click.FloatRange(0.0), default=0.0, help="Added to its deposit, in reward.")
@CONFIG
def join(name: str, url: str, stake: float, config: Path) -> None:
    """Let the bidder NAME take part, and print its key, which signs all messages between the two.

    A bidder can bid at most the sum of its deposit and its earnings.

    \b
    Examples:
      pandora market join small --url http://127.0.0.1:9001 --stake 5
      pandora market join large --url https://bids.example.com --stake 20
    """
    from pandora_router.bidding.wire import bidder_key
    from pandora_router.store import auctions
    from pandora_router.transport.endpoint import Endpoint

    plan = _plan(config)
    Endpoint(url)  # raises UsageError for an invalid address
    secret = plan.secret()
    made = within(
        plan.store,
        lambda open_: auctions.join(open_, name, url.rstrip("/"), time.time(), stake=stake),
        new=True,
    )
    click.echo(bidder_key(secret, name, made.version).decode())


@click.command()
@click.argument("name")
@CONFIG
def renew(name: str, config: Path) -> None:
    """Print a new key for the bidder NAME; the old one is no longer valid.

    \b
    Examples:
      pandora market renew small
      pandora market renew small --config pandora.yaml > small.key
    """
    from pandora_router.bidding.wire import bidder_key
    from pandora_router.store import auctions

    plan = _plan(config)
    secret = plan.secret()
    version = within(plan.store, lambda open_: auctions.renew_key(open_, name))
    click.echo(bidder_key(secret, name, version).decode())


@click.command()
@click.argument("name")
@CONFIG
def leave(name: str, config: Path) -> None:
    """Remove the bidder NAME from the market and return its deposit.

    \b
    Examples:
      pandora market leave small
      pandora market leave small --config pandora.yaml
    """
    from pandora_router.errors import UsageError
    from pandora_router.store import auctions

    if not within(_plan(config).store, lambda open_: auctions.leave(open_, name, time.time())):
        do = "Check the name. See: pandora market accounts"
        raise UsageError("NAME", expected="a bidder that takes part", came=repr(name), do=do)
    echo(f"{name} no longer takes part.")


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables.")
@CONFIG
def accounts(as_json: bool, config: Path) -> None:
    """Show balances (they sum to zero), and each bidder's claims compared with realised rewards.

    \b
    Examples:
      pandora market accounts
      pandora market accounts --json
    """
    from pandora_router.bidding.rules import Reputation
    from pandora_router.store import auctions

    plan = _plan(config)
    balances, scores = within(plan.store, lambda open_: (auctions.balances(open_), auctions.scores(open_)))
    rule = Reputation(plan.settings.newcomer, plan.settings.evidence)
    if as_json:
        standings = [{**score.__dict__, "handicap": rule.handicap(score)} for score in scores]
        echo_json({"balances": balances, "scores": standings})
        return
    screen = Screen()
    rows = [[account, f"{amount:+.6f}"] for account, amount in balances.items()]
    screen.show(table("Balances, in units of reward", ["account", "balance"], rows))
    judged = []
    for score in scores:
        miss, handicap = f"{score.total / score.graded:+.4f}", f"{rule.handicap(score):.4f}"
        judged.append([score.bidder, score.kind or "-", str(score.graded), miss, handicap])
    columns = ["bidder", "kind", "graded", "claim - reward", "handicap"]
    screen.show(table("Claims against realised rewards", columns, judged, words=2))


@click.command()
@click.argument("config", type=click.Path(path_type=Path), default=Path("pandora.yaml"))
@click.option("--as", "name", required=True, help="The specialist of CONFIG that bids.")
@click.option("--host", help="Address to listen on [bid.host, else 127.0.0.1].")
@click.option("--port", type=click.IntRange(0, 65535), help="Port [bid.port, else 9001]; 0: any free one.")
def bid(config: Path, name: str, host: str | None, port: int | None) -> None:
    """Serve one specialist of CONFIG as a bidder that answers the offers of a platform, and prompts it wins.

    The router in `bid.router` has its own estimates and inspection cost. The bidder looks at its own answer
    before it replies to an offer if the price makes that worthwhile; a look is the beginning of its answer.
    The key that the platform issued is read from the environment variable PANDORA_BIDDER_KEY, or from
    `bid.key_file`.

    \b
    Examples:
      pandora bid pandora.yaml --as small
      pandora bid --as large --port 9002
    """
    from pandora_router.config import read_config
    from pandora_router.config.market_objects import bidder_service
    from pandora_router.transport.asgi import Address, run_event_loop, serve_until_stopped

    path = config.resolve()
    settings = read_config(path)
    service = bidder_service(settings, path, name)
    # every request must be signed with the bidder's key, so any address may be used
    listening = Address(host or settings.bid.host, settings.bid.port if port is None else port).bind(
        keys=True
    )
    run_event_loop(
        serve_until_stopped(service, listening, lambda url: echo(f"{name} bids on {url}. Stop with Ctrl-C."))
    )
