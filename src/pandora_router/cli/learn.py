"""`pandora learn`: what the gateway's log teaches, and a router that learnt from it."""

from __future__ import annotations

import time
from pathlib import Path

import click

from pandora_router.cli.console import Screen, echo, echo_json, table
from pandora_router.cli.keys import store_option, within

days_option = click.option("--days", type=float, default=30.0, show_default=True, help="Days to go back.")
metric_option = click.option("--metric", default="reward", show_default=True, help="Feedback used as score.")


@click.group()
def learn() -> None:
    """Learn from the requests that the gateway served.

    \b
    Examples:
      pandora learn status                             # what was rated, and which specialists changed
      pandora learn refit -r router -o router-b        # a router that also knows the rated requests
    """


@learn.command()
@metric_option
@days_option
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
@store_option
def status(metric: str, days: float, as_json: bool, store: str) -> None:
    """Say what was rated, and whether a specialist earns other than was expected of it.

    A specialist has changed where the evidence reached 10,000: that takes at least 10,000 rated answers on
    average if it did not change by more than 0.03. Its first 300 rated answers are the level of comparison.

    \b
    Examples:
      pandora learn status --days 7
      pandora learn status --json
    """
    from dataclasses import asdict

    from pandora_router.learn.drift import FIRST, detect
    from pandora_router.store.export import surprises

    until = time.time()
    rated = within(store, lambda open_: surprises(open_, metric, until - days * 86_400.0, until))
    found = {name: detect(differences) for name, differences in sorted(rated.items())}
    if as_json:
        echo_json({name: asdict(drift) for name, drift in found.items()})
        return
    if not found:
        echo(f"No answer of the last {days:g} days was rated (metric {metric!r}). See: POST /v1/feedback")
        return
    rows = []
    for name, drift in found.items():
        verdict = f"changed, noticed after {drift.alarm:,}" if drift.alarm is not None else "as expected"
        if drift.answers <= FIRST:
            verdict = f"{FIRST} ratings are needed"
        rows.append((name, verdict, f"{drift.answers:,}", f"{drift.recent:+.3f}", f"{drift.evidence:,.0f}"))
    columns = ("specialist", "", "rated answers", "change of reward", "evidence")
    Screen().show(table(f"Rated answers of the last {days:g} days", columns, rows, words=2))


@learn.command()
@click.option(
    "-r", "--router", "folder", type=click.Path(path_type=Path), default=Path("router"), show_default=True,
    help="The router that served the requests.",
)  # fmt: skip
@click.option("-o", "--output", type=click.Path(path_type=Path), required=True, help="Folder to write to.")
@click.option("--complaints", is_flag=True, help="Bad answers are rated more often than good ones.")
@click.option("--replace", is_flag=True, help="Replace an existing artifact.")
@metric_option
@days_option
@store_option
def refit(
    folder: Path, output: Path, complaints: bool, replace: bool, metric: str, days: float, store: str
) -> None:
    """Write a router that also knows the rated requests of the log; the old one stays as it is.

    Prompts must have been stored (`serve: {bodies: true}`). Each rated answer tells about one specialist;
    what it says about the others follows from how their scores go together on the prompts of the fit. To
    serve the new router, name its folder in serve.router; to go back, name the old one.

    \b
    Examples:
      pandora learn refit -r router -o router-b
      pandora learn refit -r router -o router-b --complaints --days 7
    """
    from pandora_router.config import open_router
    from pandora_router.learn.refit import refit as learnt
    from pandora_router.store.export import routing_table

    router, until = open_router(folder), time.time()
    traffic = within(store, lambda open_: routing_table(open_, metric, until - days * 86_400.0, until))
    made = learnt(router, traffic, complaints=complaints)
    made.router.save(output, replace=replace, inputs=[folder])
    bias = f" Bad answers were rated more often: {made.offset:+.2f} in log-odds." if complaints else ""
    echo(
        f"{made.ratings:,} ratings of {made.requests:,} requests learnt; router {made.router.id}, from "
        f"{router.id}, is in {output}.{bias} Next: serve: {{router: {output}}}"
    )
