"""`pandora market`: simulated markets in which specialists own their estimates and bid.

`market.compare` computes the numbers; this module reads options, averages over seeds
and prints.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from pandora_router.cli.console import Screen, SlowProgress, echo_json, table
from pandora_router.cli.market_service import accounts, join, leave, renew, serve
from pandora_router.cli.market_table import FILE, experiment_on, simulate_table
from pandora_router.cli.options import FOLDER
from pandora_router.errors import UsageError

if TYPE_CHECKING:
    from pandora_router.evaluate.experiments import Experiment
    from pandora_router.market import Instance, Signal

T = TypeVar("T")
SIGNALS = ("weak", "strong")


def _watched(steps: Sequence[T], what: str) -> Iterator[T]:
    """Yield the steps and report progress on standard error."""
    with SlowProgress() as progress:
        for done, step in enumerate(steps):
            progress(what, done, len(steps))
            yield step


def _signal(name: str) -> Signal:
    from pandora_router.market import STRONG, WEAK

    return WEAK if name == "weak" else STRONG


def _mean_and_error(values: Iterable[float]) -> dict[str, float | None]:
    """Mean over seeds and its standard error; None where it is not defined."""
    import numpy as np

    x = np.array(list(values))
    if np.isnan(x).any():
        return {"mean": None, "error": None}
    error = float(x.std(ddof=1) / np.sqrt(len(x))) if len(x) > 1 else None
    return {"mean": float(x.mean()), "error": error}


@click.group()
def market() -> None:
    """Auctions and posted prices in which specialists decide whether to inspect before they bid."""


for _command in (serve, join, renew, leave, accounts):
    market.add_command(_command)


def _shared(command: Any) -> Any:
    """Add the options that both verbs have."""
    for option in (
        click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables."),
        click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="First seed."),
        click.option(
            "--cost",
            "costs",
            type=click.FloatRange(min=0.0),
            multiple=True,
            default=(0.02,),
            show_default=True,
            help="Inspection cost; repeat for several.",
        ),
        click.option(
            "--signal",
            "signals",
            type=click.Choice(SIGNALS),
            multiple=True,
            default=SIGNALS,
            show_default=True,
            help="Accuracy of the cheap estimate; repeat for several.",
        ),
    ):
        command = option(command)
    return command


@market.command(
    epilog="""\b
Examples:
  pandora market simulate
  pandora market simulate -m 10 --signal weak --cost 0.02 --seeds 50
  pandora market simulate -m 3 -m 10 --cost 0.01 --cost 0.1 --json > mechanisms.json
  pandora market simulate --table table --peek 400 --cost 0.01 --seeds 2
  pandora market simulate --experiment experiments/math_small_pro.yaml --data ../shared/data --seeds 2
"""
)
@click.option(
    "-m",
    "--specialists",
    type=click.IntRange(min=2),
    multiple=True,
    default=(3, 10, 100),
    show_default=True,
    help="Number of specialists; repeat for several.",
)
@click.option("--prompts", type=click.IntRange(min=1), default=100, show_default=True, help="Per seed.")
@click.option(
    "--seeds",
    type=click.IntRange(min=1),
    default=20,
    show_default=True,
    help="Number of generated instances, or of splits of the table.",
)
@click.option("--table", type=FOLDER, help="Use a routing table written by `pandora data import`.")
@click.option(
    "--peek", type=click.IntRange(0), default=0, help="With --table: characters of answers that g reads."
)
@click.option(
    "--complete",
    type=click.FloatRange(0.0, 1.0),
    default=0.0,
    help="With --table: leave out specialists with a smaller fraction of scores.",
)
@click.option("--experiment", type=FILE, help="YAML: use its routing table instead of generated instances.")
@click.option("--data", "root", type=FOLDER, help="Parent of the data folders; else beside the YAML file.")
@click.option("--cache", type=FOLDER, help="Folder for the experiment's estimates (numbers only).")
@_shared
def simulate(
    specialists: tuple[int, ...],
    prompts: int,
    seeds: int,
    table: Path | None,
    peek: int,
    complete: float,
    experiment: Path | None,
    root: Path | None,
    cache: Path | None,
    signals: tuple[str, ...],
    costs: tuple[float, ...],
    seed: int,
    as_json: bool,
) -> None:
    """Compare all mechanisms with the central routers on generated instances or a routing table.

    Prints the welfare regret: the best value of each prompt minus the value achieved minus all inspection
    costs, with standard errors over seeds. With weak estimates, means have standard deviation 0.1 and values
    0.25 around them; with strong estimates the reverse. With --table or --experiment, rewards are those of
    test prompts of fresh splits (-m, --prompts, --signal and --seed have no effect), and the paper's
    posted-price bidding is printed first.
    """
    from pandora_router.config.experiments import read_experiment

    if table is not None and experiment is not None:
        raise UsageError(
            "--table and --experiment",
            expected="one of them",
            came="both",
            do="An experiment names its data.",
        )
    chosen: Experiment | None = None
    if table is not None:
        chosen, root = experiment_on(table, peek, complete), table
    elif experiment is not None:
        chosen, root = read_experiment(experiment), root or experiment.parent
    if chosen is not None:
        simulate_table(chosen, root or Path(), cache, seeds, costs, as_json)
    else:
        _simulate_generated(specialists, prompts, seeds, signals, costs, seed, as_json)


def _generated(specialists: int, prompts: int, signal: str, seed: int) -> Instance:
    import numpy as np

    from pandora_router.market import generate

    return generate(_signal(signal), prompts, specialists, np.random.default_rng((seed, specialists)))


def _simulate_generated(
    specialists: tuple[int, ...],
    prompts: int,
    seeds: int,
    signals: tuple[str, ...],
    costs: tuple[float, ...],
    seed: int,
    as_json: bool,
) -> None:
    from pandora_router.market import compare

    settings = [(signal, m, cost) for cost in costs for signal in signals for m in specialists]
    steps = [(setting, seed + k) for setting in settings for k in range(seeds)]
    runs: dict[tuple[str, int, float], list[dict[str, Any]]] = {setting: [] for setting in settings}
    for (signal, m, cost), k in _watched(steps, "simulating markets"):
        instance = _generated(m, prompts, signal, k)
        runs[signal, m, cost].append({name: r.__dict__ for name, r in compare(instance, cost).items()})
    rows = [
        {"signal": signal, "specialists": m, "cost": cost, "mechanism": name}
        | {field: _mean_and_error(run[name][field] for run in done) for field in done[0][name]}
        for (signal, m, cost), done in runs.items()
        for name in done[0]
    ]
    if as_json:
        echo_json({"prompts": prompts, "seeds": seeds, "seed": seed, "rows": rows})
    else:
        for cost in costs:
            _show_regret([row for row in rows if row["cost"] == cost], cost, prompts, seeds)


def _number(cell: dict[str, float | None], digits: int = 4) -> str:
    if cell["mean"] is None:
        return "-"
    error = "" if cell["error"] is None else f" ({cell['error']:.{digits}f})"
    return f"{cell['mean']:.{digits}f}{error}"


def _show_regret(rows: list[dict[str, Any]], cost: float, prompts: int, seeds: int) -> None:
    """Print one table: mechanisms down, instances across, each with its looks per prompt."""
    columns = list(dict.fromkeys((row["signal"], row["specialists"]) for row in rows))
    lines = []
    for name in dict.fromkeys(row["mechanism"] for row in rows):
        cell = {(row["signal"], row["specialists"]): row for row in rows if row["mechanism"] == name}
        cells = [f"{_number(cell[c]['regret'])} / {cell[c]['inspections']['mean']:.2f}" for c in columns]
        lines.append([name, *cells])
    title = f"Welfare regret, every inspection counted (c = {cost:g}; {seeds} seeds of {prompts} prompts)"
    heads = ["mechanism", *(f"{signal} f\nM = {m}" for signal, m in columns)]
    screen = Screen()
    screen.show(table(title, heads, lines))
    screen.say("mean (standard error over seeds) / inspections per prompt")


@market.command(
    "best-response",
    epilog="""\b
Examples:
  pandora market best-response
  pandora market best-response -m 3 --signal strong --cost 0.01 --prompts 20000
""",
)
@click.option("-m", "--specialists", type=click.IntRange(min=2), default=10, show_default=True)
@click.option("--prompts", type=click.IntRange(min=2), default=2000, show_default=True)
@_shared
def best_response(
    specialists: int,
    prompts: int,
    signals: tuple[str, ...],
    costs: tuple[float, ...],
    seed: int,
    as_json: bool,
) -> None:
    """Print what one specialist gains by shading its bids (or inspecting otherwise) while the others do not.

    A gain clearly above zero means that truthful bidding is not an equilibrium of that mechanism.
    """
    import numpy as np

    from pandora_router.market import generate, shading

    rows = []
    settings = [(signal, cost) for cost in costs for signal in signals]
    for signal, cost in _watched(settings, "trying deviations"):
        instance = generate(_signal(signal), prompts, specialists, np.random.default_rng((seed, specialists)))
        gains = shading(instance.batch(cost), instance.values, bidders=range(min(specialists, 10)))
        rows += [
            {"signal": signal, "cost": cost, "mechanism": name, **deviation.__dict__}
            for name, tried in gains.items()
            for deviation in tried
        ]
    if as_json:
        echo_json({"specialists": specialists, "prompts": prompts, "seed": seed, "rows": rows})
    else:
        _show_gains(rows, specialists)


def _show_gains(rows: list[dict[str, Any]], specialists: int) -> None:
    """Print one line per mechanism and deviation; instances across."""
    columns = list(dict.fromkeys((row["signal"], row["cost"]) for row in rows))
    lines = []
    for mechanism, name in dict.fromkeys((row["mechanism"], row["name"]) for row in rows):
        cell = {
            (row["signal"], row["cost"]): row
            for row in rows
            if (row["mechanism"], row["name"]) == (mechanism, name)
        }
        cells = [f"{1e3 * cell[c]['gain']:+.2f} ({1e3 * cell[c]['error']:.2f})" for c in columns]
        lines.append([mechanism, name, *cells])
    title = f"Gain of one deviating specialist per 1000 prompts (M = {specialists})"
    heads = ["mechanism", "deviation", *(f"{signal} f\nc = {cost:g}" for signal, cost in columns)]
    Screen().show(table(title, heads, lines, words=2))
