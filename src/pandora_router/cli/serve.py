"""`pandora serve`: the gateway."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pandora_router.cli.console import SlowProgress, echo
from pandora_router.cli.keys import within
from pandora_router.errors import PandoraError

if TYPE_CHECKING:
    from pandora_router.gateway.generation import Site

EXAMPLE = """
  curl {url}/v1/chat/completions -H 'Content-Type: application/json'{key} \\
    -d '{{"model": "auto", "messages": [{{"role": "user", "content": "What is 12 x 7?"}}]}}'
"""
BEARER = ' -H "Authorization: Bearer $PANDORA_API_KEY"'


@click.command()
@click.argument("config", type=click.Path(path_type=Path), required=False)
@click.option("--demo", is_flag=True, help="Serve the demo's five local specialists; needs no CONFIG.")
@click.option("--host", help="Address to listen on [serve.host, else 127.0.0.1].")
@click.option("--port", type=click.IntRange(0, 65535), help="Port [serve.port, else 8080]; 0: any free one.")
@click.option("--workers", type=click.IntRange(1, 64), default=1, show_default=True, help="Processes.")
def serve(config: Path | None, demo: bool, host: str | None, port: int | None, workers: int) -> None:
    """Serve an OpenAI- and Anthropic-compatible gateway in front of the specialists of CONFIG.

    CONFIG is pandora.yaml by default. With `model: "auto"` the router chooses the specialist that answers; a
    client may also name a specialist. Decisions are stored in `serve.store`. SIGHUP, or a change of the file,
    loads the configuration again; one with a mistake is reported and not used. Without keys (`serve: {keys:
    none}`) only 127.0.0.1 is allowed.

    With --demo, a calculator and a small language model, asked in four ways, answer on this machine, without
    keys or network; the router is fitted on the answers recorded in the package.

    \b
    Examples:
      pandora serve --demo
      pandora serve pandora.yaml
      pandora serve --port 9000 --workers 2
      curl http://127.0.0.1:8080/v1/chat/completions -H 'Content-Type: application/json' \\
        -d '{"model": "auto", "messages": [{"role": "user", "content": "What is 12 x 7?"}]}'
    """
    if demo:
        if config is not None:
            raise click.UsageError("--demo needs no CONFIG: it serves the specialists of the demo.")
        _demo(host, port, workers)
        return
    from pandora_router.config.gateway import ServePlan
    from pandora_router.gateway.http import server
    from pandora_router.gateway.request.looks import outlooks, starting
    from pandora_router.store import accounts

    plan = ServePlan((config or Path("pandora.yaml")).resolve())
    address = plan.address(host, port)

    def ready(url: str, site: Site) -> None:
        found = outlooks(site, starting(site))
        reasons = {outlook.off for outlook in found}
        alike = len(reasons) == 1 and all(reasons)
        for sentence in [f"no looks: {found[0].off}"] if alike else [look.sentence for look in found]:
            echo(f"{sentence[:1].upper()}{sentence[1:]}.")
        if site.router is None and site.market is None:
            echo(f"Without a router, `auto` means the default: {site.settings.default}.")
        echo(f"Serving on {url} (decisions in {plan.store}). Stop with Ctrl-C.")
        echo(f"Dashboard: {url}/dashboard")
        with contextlib.suppress(
            PandoraError
        ):  # only a hint: a database that is away must not end the gateway
            keyed = plan.read().serve.keys == "required"
            if keyed and not within(plan.store, accounts.keys, new=True):
                echo("Requests need a key and there is none yet. In a second terminal, in the same folder:")
                echo("  export PANDORA_API_KEY=$(pandora keys add me)")
            elif keyed:
                echo("Requests send a key. In the terminal that sends them: export PANDORA_API_KEY=the key")
            echo("Try:" + EXAMPLE.format(url=url, key=BEARER if keyed else ""))

    click.get_current_context().exit(server.serve(plan, address, workers, ready))


def _demo(host: str | None, port: int | None, workers: int) -> None:
    begun = time.monotonic()

    def took() -> float:
        return time.monotonic() - begun

    from pandora_router.demo import local_gateway
    from pandora_router.demo.specialists import SMALL
    from pandora_router.gateway.http import server
    from pandora_router.transport.asgi import Address

    with contextlib.ExitStack() as stack:
        with SlowProgress() as tell:
            plan = stack.enter_context(
                local_gateway.running(lambda what, share: tell(what, round(100 * share), 100))
            )

        def ready(url: str, _: Site) -> None:
            absent = [name for name in SMALL if name not in plan.alive]
            recorded = f"; from the record: {', '.join(absent)}" if absent else ""
            echo(f"Running here: {', '.join(plan.alive)}{recorded}. Ready after {took():.1f} s.")
            echo(f"Serving on {url} (decisions in {plan.store}). Stop with Ctrl-C. Try:")
            echo(EXAMPLE.format(url=url, key=""))
            echo(f"Dashboard: {url}/dashboard")

        address = Address(host or "127.0.0.1", 8080 if port is None else port)
        code = server.serve(plan, address, workers, ready)
    click.get_current_context().exit(code)
