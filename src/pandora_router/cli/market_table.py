"""Markets on the routing table of an experiment, for `pandora market simulate`.

`evaluate.bids` computes the numbers; this module reads options and prints.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pandora_router.cli.console import Screen, SlowProgress, echo_json, table
from pandora_router.errors import UsageError
from pandora_router.text import json_values

if TYPE_CHECKING:
    from rich.table import Table as Grid

    from pandora_router.evaluate.bids import Bids
    from pandora_router.evaluate.experiments import Experiment

FILE = click.Path(path_type=Path, dir_okay=False)


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
    from pandora_router.evaluate import bids

    with SlowProgress() as progress:
        every = tuple(costs)
        game = bids.Game(experiment, root, experiment.ks[0], experiment.seeds[:seeds], every, every, cache)
        (played,) = bids.run([game], progress=progress)
    if as_json:
        echo_json(_rows(played))
    else:
        for cost in costs:
            _show(played, cost)


def _rows(played: Bids) -> dict[str, Any]:
    """All results as values for JSON."""
    from pandora_router.evaluate.bids import KINDS

    facts = {name: getattr(played, name) for name in ("name", "title", "specialists", "neighbours")}
    bids = [
        {"opponents": setting[0], "conduct": setting[1], "cost": setting[2], "looks": played.looks(setting)}
        | {
            "regret": [
                {
                    "measure": m,
                    "against": a,
                    "others_counted": n,
                    **json_values(vars(played.regrets[setting, (m, a, n)])),
                }
                for m, a, n in KINDS
            ],
            "above_mean_only": {
                "surplus": json_values(vars(played.gaps[setting, "surplus"])),
                "efficiency": json_values(vars(played.gaps[setting, "efficiency"])),
            },
        }
        for setting in played.splits[0].bids
    ]
    trades = [
        {"mechanism": name, "cost": cost, "inspections": played.trade_looks(name, cost)}
        | {"regret": json_values(vars(level)), "above_central_router": json_values(vars(above))}
        for (name, cost), (level, above) in played.welfare.items()
    ]
    return {**facts, "splits": len(played.splits), "bidding": bids, "mechanisms": trades}


def _show(bids: Bids, cost: float) -> None:
    """Print two tables: what the held-out specialist does, and every mechanism."""
    from pandora_router.evaluate.experiments import cheap_name

    screen = Screen()
    screen.say(f"{bids.title} (c = {cost:g}; {len(bids.splits)} splits, {cheap_name(bids.neighbours)})")
    screen.show(_bids(bids, cost))
    screen.show(_mechanisms(bids, cost))
    screen.say("in parentheses: standard errors over prompts; over splits. *: both tests agree at 5 %")


def _bids(bids: Bids, cost: float) -> Grid:
    from pandora_router.report.tables import level, signed

    rows = []
    for setting in bids.splits[0].bids:
        if setting[2] == cost:
            surplus = bids.regrets[setting, ("surplus", "hindsight", False)]
            efficiency = bids.regrets[setting, ("efficiency", "hindsight", False)]
            gaps = signed(bids.gaps[setting, "surplus"]), signed(bids.gaps[setting, "efficiency"])
            looks = f"{bids.looks(setting):.2f}"
            rows.append([setting[0], setting[1], looks, level(surplus), level(efficiency), *gaps])
    title = "posted price: regret against hindsight; 1e-3 of surplus and efficiency above never inspecting"
    heads = ["opponents", "conduct", "looks", "surplus regret", "efficiency regret", "surplus", "efficiency"]
    return table(title, heads, rows, words=2)


def _mechanisms(bids: Bids, cost: float) -> Grid:
    from pandora_router.report.tables import level, signed

    rows = [
        [name, level(mean), f"{bids.trade_looks(name, at):.2f}", signed(above)]
        for (name, at), (mean, above) in bids.welfare.items()
        if at == cost
    ]
    title = "welfare regret on realised rewards, every inspection counted"
    return table(title, ["mechanism", "regret", "inspections", "1e-3 above the central router"], rows)
