"""`pandora serve`: the gateway."""

from __future__ import annotations

from pathlib import Path

import click

from pandora_router.cli.console import echo


@click.command()
@click.argument("config", type=click.Path(path_type=Path), default=Path("pandora.yaml"))
@click.option("--host", help="Address to listen on [serve.host, else 127.0.0.1].")
@click.option("--port", type=click.IntRange(0, 65535), help="Port [serve.port, else 8080]; 0: any free one.")
@click.option("--workers", type=click.IntRange(1, 64), default=1, show_default=True, help="Processes.")
def serve(config: Path, host: str | None, port: int | None, workers: int) -> None:
    """Serve an OpenAI- and Anthropic-compatible gateway in front of the specialists of CONFIG.

    Clients name `model: "auto"` and the specialist worth most answers, or a specialist's own name. Decisions
    are kept in `serve.store`. SIGHUP, or a changed file, loads a new configuration; one with a mistake is
    reported and not used. Without keys (`serve: {keys: none}`) only 127.0.0.1 is allowed.

    \b
    Examples:
      pandora serve pandora.yaml
      pandora serve --port 9000 --workers 2
      curl http://127.0.0.1:8080/v1/chat/completions -H 'Content-Type: application/json' \\
        -d '{"model": "auto", "messages": [{"role": "user", "content": "What is 12 x 7?"}]}'
    """
    from pandora_router.config.gateway import ServePlan
    from pandora_router.gateway import server

    plan = ServePlan(config.resolve())
    address = plan.address(host, port)

    def ready(url: str) -> None:
        echo(f"Serving on {url} (decisions in {plan.store}). Stop with Ctrl-C.")

    click.get_current_context().exit(server.serve(plan, address, workers, ready))
