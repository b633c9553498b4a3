"""Options that several verbs share: `--workers` and `--ray` say where a command computes."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import click

from pandora_router.errors import UsageError
from pandora_router.run import InPlace, Pool, Runner


def with_runner(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the two options, and the runner they ask for as `runner`."""

    @click.option("--workers", type=click.IntRange(1), help="Processes; default: one per core. 1: none.")
    @click.option("--ray", metavar="auto|HOST:PORT", help="A Ray cluster instead of processes of this one.")
    @wraps(command)
    def run(*args: Any, workers: int | None, ray: str | None, **kwargs: Any) -> Any:
        return command(*args, runner=runner_of(workers, ray), **kwargs)

    return run


def runner_of(workers: int | None, ray: str | None) -> Runner:
    """In this process, over processes, or over a cluster."""
    if ray is None:
        return InPlace() if workers == 1 else Pool(workers)
    if workers is not None:
        raise UsageError(
            "--workers", expected="none with --ray", came=str(workers), do="The cluster knows its cores."
        )
    from pandora_router.run.ray import Cluster

    return Cluster(ray)
