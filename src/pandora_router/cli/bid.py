"""`pandora bid`: one specialist as a bidder of a market."""

from __future__ import annotations

from pathlib import Path

import click

from pandora_router.cli.console import echo


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
    from pandora_router.transport.listener import Address, run_event_loop, serve_until_stopped

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
