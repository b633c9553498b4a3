"""Markets on the routing table of an experiment, for `pandora market simulate` and `pandora market report`.

Numbers come from `evaluate.bidding`; this file only asks and shows.
"""

from __future__ import annotations

import json
import math
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pandora_router.cli.console import SlowProgress
from pandora_router.cli.options import with_runner
from pandora_router.errors import UsageError
from pandora_router.folders import replace_text
from pandora_router.run import Runner

if TYPE_CHECKING:
    from pandora_router.evaluate.bidding import Bids
    from pandora_router.evaluate.experiments import Experiment
    from pandora_router.evaluate.statistics import Estimate

FILE = click.Path(path_type=Path, dir_okay=False)
FOLDER = click.Path(path_type=Path, file_okay=False)
GENERATED_COST = 0.02


def experiment_on(table: Path, peek: int, complete: float) -> Experiment:
    """Five fresh splits of a table that `pandora data import` wrote, with the fees it has."""
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
    """Play one experiment over its first splits and print it."""
    from pandora_router.evaluate import bidding

    with SlowProgress() as progress:
        every = tuple(costs)
        game = bidding.Game(experiment, root, experiment.ks[0], experiment.seeds[:seeds], every, every, cache)
        (found,) = bidding.run([game], progress=progress)
    if as_json:
        click.echo(json.dumps(_rows(found), indent=1, allow_nan=False))
    else:
        for cost in costs:
            _show(found, cost)


def _plain(estimate: Estimate) -> dict[str, float | bool | None]:
    return {name: None if math.isnan(value) else value for name, value in estimate.__dict__.items()}


def _rows(found: Bids) -> dict[str, Any]:
    """Everything, ready for JSON."""
    from pandora_router.evaluate.bidding import KINDS

    facts = {name: getattr(found, name) for name in ("name", "title", "specialists", "neighbours")}
    bids = [
        {"opponents": setting[0], "conduct": setting[1], "cost": setting[2], "looks": found.looks(setting)}
        | {
            "regret": [
                {"measure": m, "against": a, "others_counted": n, **_plain(found.regrets[setting, (m, a, n)])}
                for m, a, n in KINDS
            ],
            "above_mean_only": {
                "surplus": _plain(found.gaps[setting, "surplus"]),
                "efficiency": _plain(found.gaps[setting, "efficiency"]),
            },
        }
        for setting in found.splits[0].bids
    ]
    trades = [
        {"mechanism": name, "cost": cost, "inspections": found.trade_looks(name, cost)}
        | {"regret": _plain(level), "above_central_router": _plain(above)}
        for (name, cost), (level, above) in found.welfare.items()
    ]
    return {**facts, "splits": len(found.splits), "bidding": bids, "mechanisms": trades}


def _show(found: Bids, cost: float) -> None:
    """Two tables: what the held-out specialist does, and every mechanism."""
    from rich.console import Console
    from rich.markup import escape

    from pandora_router.evaluate.experiments import cheap_name

    console = Console(width=None if sys.stdout.isatty() else 130, highlight=False)
    facts = f"c = {cost:g}; {len(found.splits)} splits, {cheap_name(found.neighbours)}"
    console.print(f"[bold]{escape(found.title)}[/bold] ({facts})")
    console.print(_bids(found, cost))
    console.print(_mechanisms(found, cost))
    console.print("in parentheses: standard errors over prompts; over splits. *: both tests agree at 5 %")


def _grid(title: str, words: Sequence[str], numbers: Sequence[str]) -> Any:
    from rich.table import Table

    grid = Table(title=title, title_justify="left")
    for name in words:
        grid.add_column(name, no_wrap=True)
    for name in numbers:
        grid.add_column(name, justify="right")
    return grid


def _bids(found: Bids, cost: float) -> Any:
    from pandora_router.evaluate.bidding_report import level, signed

    numbers = ("looks", "surplus regret", "efficiency regret", "surplus", "efficiency")
    title = "posted price: regret against hindsight; then 1e-3 of surplus and efficiency above mean-only"
    grid = _grid(title, ("opponents", "conduct"), numbers)
    for setting in found.splits[0].bids:
        if setting[2] == cost:
            surplus = found.regrets[setting, ("surplus", "hindsight", False)]
            efficiency = found.regrets[setting, ("efficiency", "hindsight", False)]
            gaps = signed(found.gaps[setting, "surplus"]), signed(found.gaps[setting, "efficiency"])
            looks = f"{found.looks(setting):.2f}"
            grid.add_row(setting[0], setting[1], looks, level(surplus), level(efficiency), *gaps)
    return grid


def _mechanisms(found: Bids, cost: float) -> Any:
    from pandora_router.evaluate.bidding_report import level, signed

    title = "welfare regret on realised rewards, every inspection counted"
    grid = _grid(title, ("mechanism",), ("regret", "inspections", "1e-3 above the central router"))
    for (name, at), (mean, above) in found.welfare.items():
        if at == cost:
            grid.add_row(name, level(mean), f"{found.trade_looks(name, at):.2f}", signed(above))
    return grid


@click.command(
    "report",
    epilog="""\b
Examples:
  pandora market report experiments/math_small_pro.yaml --data ../shared/data -o docs/bidding.md
  pandora market report experiments/*.yaml --data ../shared/data --seeds 2 --cache results/cache \\
      --plots docs/figures --paper ../shared/paper/figures.json -o docs/bidding.md
""",
)
@click.argument("experiments", nargs=-1, required=True, type=FILE)
@click.option("-o", "--output", required=True, type=FILE, help="The Markdown page to write.")
@click.option("--data", "root", type=FOLDER, help="Where data folders lie; else beside the YAML file.")
@click.option("--seeds", type=click.IntRange(1), help="Only the first so many splits of each experiment.")
@click.option("--cache", type=FOLDER, help="Where estimates are kept (numbers only).")
@click.option("--plots", "plots_to", type=FOLDER, help="Write figures as PNG (needs plots).")
@click.option("--paper", type=FILE, help="figures.json: draw the paper's curves beside ours.")
@click.option(
    "--generated", type=click.IntRange(0), default=20, show_default=True, help="Generated instances; 0: none."
)
@with_runner
def report(
    experiments: tuple[Path, ...],
    output: Path,
    root: Path | None,
    seeds: int | None,
    cache: Path | None,
    plots_to: Path | None,
    paper: Path | None,
    generated: int,
    runner: Runner,
) -> None:
    """Write the page on bidding: posted prices and mechanisms on routing tables and generated instances."""
    from pandora_router.config.experiments import read_experiment
    from pandora_router.evaluate import bidding, bidding_report

    keep = None if cache is None else cache.resolve()
    games = [
        bidding.Game(one, (root or path.parent).resolve(), k, one.seeds[:seeds], cache=keep)
        for path in experiments
        for one in (read_experiment(path),)
        for k in one.ks[:2]  # the default and the paper's
    ]
    with SlowProgress() as progress:
        found = bidding.run(games, runner, progress)
    images = _draw(found, plots_to, paper, output)
    made = bidding_report.generated(generated, GENERATED_COST) if generated else {}
    command = "pandora market report " + shlex.join(_asked(experiments, root, seeds, plots_to, paper, output))
    output.parent.mkdir(parents=True, exist_ok=True)
    page = bidding_report.markdown(found, made, images, command, GENERATED_COST)
    replace_text(output, page)


def _asked(
    experiments: Sequence[Path],
    root: Path | None,
    seeds: int | None,
    plots_to: Path | None,
    paper: Path | None,
    output: Path,
) -> list[str]:
    """The arguments to repeat this with; absolute paths are this machine's own and are cut to their name."""
    words = [_portable(path) for path in experiments]
    given = (("--data", root), ("--plots", plots_to), ("--paper", paper), ("-o", output))
    words += [word for name, path in given if path is not None for word in (name, _portable(path))]
    return words if seeds is None else [*words, "--seeds", str(seeds)]


def _portable(path: Path) -> str:
    return path.name if path.is_absolute() else path.as_posix()


def _draw(found: Sequence[Bids], folder: Path | None, paper: Path | None, output: Path) -> dict[str, str]:
    """One figure per experiment and number of neighbours; their paths as seen from the page."""
    if folder is None:
        return {}
    from pandora_router.cli.evaluate import relative
    from pandora_router.evaluate import plots

    made = {}
    for one in found:
        name = f"bidding_{one.name}_k{one.neighbours}"
        made[name] = relative(plots.save(plots.bidding(one, paper=paper), folder / name)[0], output)
    return made
