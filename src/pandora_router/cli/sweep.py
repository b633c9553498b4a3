"""`pandora sweep`: losses of ways of routing on files of estimates that need not fit in memory."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pandora_router.cli.console import Screen, SlowProgress, echo_json, table
from pandora_router.cli.options import with_runner

if TYPE_CHECKING:
    from pandora_router.run import Runner

SHOWN = ("total", "total_error", "regret", "inspection_cost", "inspections", "accuracy", "fee", "gain")
FILE = click.Path(path_type=Path, dir_okay=False)


@click.command()
@click.argument("files", nargs=-1, required=True, type=FILE)
@click.option("--calibration", required=True, type=FILE, help="Rows on which the signal model is fitted.")
@click.option("--cost", "costs", multiple=True, type=click.FloatRange(0), help="Inspection cost; repeatable.")
@click.option(
    "--arm", "arms", multiple=True, help="A way of routing; default: the router and all static ones."
)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Seed of random arms.")
@click.option("--json", "as_json", is_flag=True, help="Print every row as JSON.")
@with_runner
def sweep(
    files: tuple[Path, ...],
    calibration: Path,
    costs: tuple[float, ...],
    arms: tuple[str, ...],
    seed: int,
    as_json: bool,
    runner: Runner,
) -> None:
    """Evaluate every arm at every cost on FILES (Parquet) of estimates, in bounded memory.

    A row is a prompt with list columns f, g, reward and fee, one number per specialist. reward = score - fee,
    so a column `score` may replace `reward`, and a missing `fee` is 0. `pandora fit --write-estimates` writes
    such files. Row groups are computed on all cores, or with Ray; totals are the same to the last bit.

    \b
    Examples:
      pandora sweep test.parquet --calibration calibration.parquet --cost 0.001 --cost 0.01
      pandora sweep part-*.parquet --calibration calibration.parquet --arm "never inspect" --json
      pandora sweep /shared/part-*.parquet --calibration /shared/calibration.parquet --ray 10.0.0.5:6379
    """
    from pandora_router.evaluate import stream
    from pandora_router.evaluate.experiments import COSTS
    from pandora_router.search import kernels

    paths, calibration_path = [path.resolve() for path in files], calibration.resolve()
    with SlowProgress() as progress:
        kernels.warm(progress)
        swept = stream.sweep(
            paths, calibration_path, costs or COSTS, arms=arms, seed=seed, runner=runner, progress=progress
        )
    rows: list[dict[str, Any]] = [
        {"cost": cost, "arm": arm, "prompts": outcomes.prompts, **outcomes.means()}
        for (cost, arm), outcomes in swept.items()
    ]
    if as_json:
        plain = [{name: (None if value != value else value) for name, value in row.items()} for row in rows]
        echo_json(plain)
        return
    screen = Screen()
    columns = ["arm", *(name.replace("_", " ") for name in SHOWN)]
    for cost in dict.fromkeys(row["cost"] for row in rows):
        own = sorted((row for row in rows if row["cost"] == cost), key=lambda row: row["total"])
        cells = [[str(row["arm"]), *(f"{row[name]:z.4f}" for name in SHOWN)] for row in own]
        screen.show(table(f"Inspection cost {cost:g}, {own[0]['prompts']:,} prompts", columns, cells))
