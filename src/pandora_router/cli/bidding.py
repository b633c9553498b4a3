"""Markets on the routing table of an experiment, for `pandora market simulate`.

`evaluate.bidding` computes the numbers; this module reads options and prints.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pandora_router.cli.console import SlowProgress
from pandora_router.errors import UsageError

if TYPE_CHECKING:
    from pandora_router.evaluate.bidding import Bids
    from pandora_router.evaluate.experiments import Experiment
    from pandora_router.evaluate.statistics import Estimate

FILE = click.Path(path_type=Path, dir_okay=False)
FOLDER = click.Path(path_type=Path, file_okay=False)
GENERATED_COST = 0.02


def experiment_on(table: Path, peek: int, complete: float) -> Experiment:
    """An experiment with five fresh splits of a table written by `pandora data import`, with its fees."""
    from pandora_router.data import storage
    from pandora_router.evaluate.experiments import Experiment

    if not storage.is_stored(table):
        raise UsageError(
            f"--table {table}",
            expected="a routing table",
            came="another folder" if table.is_dir() else "no such folder",
            do="Make one with `pandora data import`; for a folder of an experiment use --experiment.",
        )
    name = table.resolve().name
    return Experiment(name=name, data=str(table.resolve()), title=name, peek=peek, complete=complete)


def simulate_table(
    experiment: Experiment, root: Path, cache: Path | None, seeds: int, costs: Sequence[float], as_json: bool
) -> None:
    """Run one experiment over its first splits and print the result."""
    from pandora_router.evaluate import bidding

    with SlowProgress() as progress:
        every = tuple(costs)
        game = bidding.Game(experiment, root, experiment.ks[0], experiment.seeds[:seeds], every, every, cache)
        (bids,) = bidding.run([game], progress=progress)
    if as_json:
        click.echo(json.dumps(_rows(bids), indent=1, allow_nan=False))
    else:
        for cost in costs:
            _show(bids, cost)


def _plain(estimate: Estimate) -> dict[str, float | bool | None]:
    return {name: None if math.isnan(value) else value for name, value in estimate.__dict__.items()}


def _rows(played: Bids) -> dict[str, Any]:
    """All results as values for JSON."""
    from pandora_router.evaluate.bidding import KINDS

    facts = {name: getattr(played, name) for name in ("name", "title", "specialists", "neighbours")}
    bids = [
        {"opponents": setting[0], "conduct": setting[1], "cost": setting[2], "looks": played.looks(setting)}
        | {
            "regret": [
                {
                    "measure": m,
                    "against": a,
                    "others_counted": n,
                    **_plain(played.regrets[setting, (m, a, n)]),
                }
                for m, a, n in KINDS
            ],
            "above_mean_only": {
                "surplus": _plain(played.gaps[setting, "surplus"]),
                "efficiency": _plain(played.gaps[setting, "efficiency"]),
            },
        }
        for setting in played.splits[0].bids
    ]
    trades = [
        {"mechanism": name, "cost": cost, "inspections": played.trade_looks(name, cost)}
        | {"regret": _plain(level), "above_central_router": _plain(above)}
        for (name, cost), (level, above) in played.welfare.items()
    ]
    return {**facts, "splits": len(played.splits), "bidding": bids, "mechanisms": trades}


def _show(bids: Bids, cost: float) -> None:
    """Print two tables: the conduct of the held-out specialist, and all mechanisms."""
    from rich.console import Console
    from rich.markup import escape

    from pandora_router.evaluate.experiments import cheap_name

    console = Console(width=None if sys.stdout.isatty() else 130, highlight=False)
    facts = f"c = {cost:g}; {len(bids.splits)} splits, {cheap_name(bids.neighbours)}"
    console.print(f"[bold]{escape(bids.title)}[/bold] ({facts})")
    console.print(_bids(bids, cost))
    console.print(_mechanisms(bids, cost))
    console.print("in parentheses: standard errors over prompts; over splits. *: both tests agree at 5 %")


def _grid(title: str, words: Sequence[str], numbers: Sequence[str]) -> Any:
    from rich.table import Table

    grid = Table(title=title, title_justify="left")
    for name in words:
        grid.add_column(name, no_wrap=True)
    for name in numbers:
        grid.add_column(name, justify="right")
    return grid


def _bids(bids: Bids, cost: float) -> Any:
    from pandora_router.report.tables import level, signed

    numbers = ("looks", "surplus regret", "efficiency regret", "surplus", "efficiency")
    title = "posted price: regret against hindsight; 1e-3 of surplus and efficiency above never inspecting"
    grid = _grid(title, ("opponents", "conduct"), numbers)
    for setting in bids.splits[0].bids:
        if setting[2] == cost:
            surplus = bids.regrets[setting, ("surplus", "hindsight", False)]
            efficiency = bids.regrets[setting, ("efficiency", "hindsight", False)]
            gaps = signed(bids.gaps[setting, "surplus"]), signed(bids.gaps[setting, "efficiency"])
            looks = f"{bids.looks(setting):.2f}"
            grid.add_row(setting[0], setting[1], looks, level(surplus), level(efficiency), *gaps)
    return grid


def _mechanisms(bids: Bids, cost: float) -> Any:
    from pandora_router.report.tables import level, signed

    title = "welfare regret on realised rewards, every inspection counted"
    grid = _grid(title, ("mechanism",), ("regret", "inspections", "1e-3 above the central router"))
    for (name, at), (mean, above) in bids.welfare.items():
        if at == cost:
            grid.add_row(name, level(mean), f"{bids.trade_looks(name, at):.2f}", signed(above))
    return grid
