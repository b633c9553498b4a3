"""Options and checks that several verbs share."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pandora_router.errors import UsageError
from pandora_router.text import did_you_mean, money

if TYPE_CHECKING:
    from pandora_router.router import Router
    from pandora_router.run import Runner

FOLDER = click.Path(path_type=Path, file_okay=False)
SHARE = click.FloatRange(0, 2, min_open=True)
"""A share of a score, as `config.shared.Share`, which is slow to import: 95 is refused, 0.95 is meant."""
ROUTER = click.option(
    "-r", "--router", "artifact", default="router", show_default=True, type=click.Path(path_type=Path),
    help="Folder that `pandora fit` wrote.",
)  # fmt: skip
CONTEXT = click.option(
    "--context", "pairs", multiple=True, metavar="NAME=TEXT",
    help="Beginning of a specialist's answer; repeatable.",
)  # fmt: skip
CONTEXTS = click.option(
    "--contexts", "file", type=click.Path(path_type=Path), help="The same for several: JSON {name: text}."
)


def read_contexts(pairs: tuple[str, ...], file: Path | None) -> dict[str, str]:
    """Contexts by specialist, from `--context NAME=TEXT` (`pairs`) and a JSON `file`.

    For a name in both, `pairs` wins. Raises `UsageError` if either is malformed.
    """
    contexts: dict[str, str] = {}
    if file is not None:
        expected = "a JSON object {name: text}"
        try:
            read = json.loads(file.read_text(encoding="utf-8"))
        except (ValueError, RecursionError) as error:
            raise UsageError(str(file), expected=expected, came=str(error), do="Correct it.") from error
        if not isinstance(read, dict):
            raise UsageError(str(file), expected=expected, came=type(read).__name__, do="Correct it.")
        contexts.update(read)
    for pair in pairs:
        name, sign, text = pair.partition("=")
        if not sign or not name:
            raise UsageError(
                "--context", expected="NAME=TEXT", came=repr(pair[:40]), do="Try --context small='Let us'."
            )
        contexts[name] = text
    return contexts


def with_candidates(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --only, --exclude and --max-fee to `command`, passed as one argument `wanted`."""

    @click.option("--only", multiple=True, metavar="NAME", help="Choose only among these; repeatable.")
    @click.option("--exclude", multiple=True, metavar="NAME", help="Never choose this one; repeatable.")
    @click.option("--max-fee", type=float, help="Choose only specialists whose mean fee is at most this.")
    @wraps(command)
    def run(
        *args: Any, only: tuple[str, ...], exclude: tuple[str, ...], max_fee: float | None, **kwargs: Any
    ) -> Any:
        return command(*args, wanted=Wanted(only, exclude, max_fee), **kwargs)

    return run


@dataclass(frozen=True)
class Wanted:
    """Which specialists may be chosen: those in `only` (empty: all), not in `exclude`, within `max_fee`."""

    only: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    max_fee: float | None = None

    def among(self, router: Router) -> tuple[str, ...] | None:
        """The specialists of `router` that may be chosen; None if all may.

        Fees are the mean fees in the routing table that the router was fitted on. Raises `UsageError` for a
        name that the router does not have, and if no specialist is left.
        """
        if self == Wanted():
            return None
        specialists = router.specialists
        for option, names in (("--only", self.only), ("--exclude", self.exclude)):
            for name in names:
                if name not in specialists:
                    raise UsageError(
                        f"{option} {name}",
                        expected=f"one of {', '.join(specialists[:8])}" + " ..." * (len(specialists) > 8),
                        came="no such specialist",
                        do=did_you_mean(name, specialists, "Names are compared exactly."),
                    )
        most = math.inf if self.max_fee is None else self.max_fee
        allowed = tuple(
            name
            for name, fee in zip(specialists, router.fees.tolist(), strict=True)
            if (not self.only or name in self.only) and name not in self.exclude and fee <= most
        )
        if not allowed:
            cheapest = min(router.fees.tolist())
            raise UsageError(
                "--only, --exclude and --max-fee",
                expected="at least one specialist that may be chosen",
                came="none",
                do=f"Allow more; the lowest mean fee is {money(cheapest, '')}.",
            )
        return allowed


def with_runner(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --workers and --ray to `command`, passed as one argument `runner`."""

    @click.option("--workers", type=click.IntRange(1), help="Processes [one per core]; 1: only this one.")
    @click.option("--ray", metavar="auto|HOST:PORT", help="A Ray cluster instead of local processes.")
    @wraps(command)
    def run(*args: Any, workers: int | None, ray: str | None, **kwargs: Any) -> Any:
        return command(*args, runner=runner_of(workers, ray), **kwargs)

    return run


def runner_of(workers: int | None, ray: str | None) -> Runner:
    """The runner for --workers and --ray; raises `UsageError` if both are given."""
    from pandora_router.run import InPlace, Pool

    if ray is None:
        return InPlace() if workers == 1 else Pool(workers)
    if workers is not None:
        raise UsageError(
            "--workers", expected="none with --ray", came=str(workers), do="The cluster knows its cores."
        )
    from pandora_router.run.ray import Cluster

    return Cluster(ray)
