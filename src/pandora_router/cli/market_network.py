"""`pandora market simulate --network`: the same markets with real services on the loopback interface."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from pandora_router.cli.console import Screen, SlowProgress, echo_json, table

if TYPE_CHECKING:
    from pandora_router.evaluate.experiments import Experiment
    from pandora_router.market import Instance


def instance_of(experiment: Experiment, root: Path, cache: Path | None, prompts: int) -> Instance:
    """The test prompts of an experiment's first split as a market instance, at most `prompts` of them."""
    import numpy as np

    from pandora_router.evaluate.bids import shipped_market
    from pandora_router.evaluate.estimates import estimates, table_of
    from pandora_router.evaluate.trials import trial_of

    with SlowProgress() as progress:
        arrays = estimates(experiment, table_of(experiment, root), experiment.seeds[0], cache, progress)
    market = shipped_market(trial_of(arrays, experiment.ks[0]))
    return market.prompts(np.random.default_rng(0).permutation(len(market.mean))[:prompts])


def simulate_network(instance: Instance, costs: Sequence[float], seed: int, as_json: bool) -> None:
    """Hold every auction over HTTP and in this process, and print the outcome; raises if they differ."""
    from pandora_router.bidding.wire import MechanismName

    rows = [
        _played(instance, mechanism, cost, seed) for cost in costs for mechanism in get_args(MechanismName)
    ]
    if as_json:
        echo_json(rows)
    else:
        _show(rows, instance)


def _played(instance: Instance, mechanism: Any, cost: float, seed: int) -> dict[str, Any]:
    import numpy as np

    from pandora_router.bidding.network import Town, play_and_compare, services_apart, totals
    from pandora_router.bidding.rules import Rules
    from pandora_router.transport.listening import run_event_loop

    patient = Rules(mechanism, deadline=60.0, auction=600.0, deliver=60.0, seed=seed)
    town = Town(instance, np.full(instance.mean.shape[1], cost), patient)
    rows = range(len(instance.mean))
    with services_apart(town) as processes:
        results = run_event_loop(play_and_compare(town, processes.urls, rows))
    return {"mechanism": mechanism, "cost": cost, **totals(town, results)}


def _show(rows: list[dict[str, Any]], instance: Instance) -> None:
    """Print one line per mechanism and inspection cost."""
    prompts, bidders = instance.mean.shape
    lines = [
        [
            row["mechanism"],
            f"{row['cost']:g}",
            f"{row['regret']:.4f} ({row['error']:.4f})",
            *(f"{row[name]:.4f}" for name in ("revenue", "surplus")),
            *(f"{row[name]:.2f}" for name in ("inspections", "calls", "milliseconds")),
        ]
        for row in rows
    ]
    title = f"{prompts} prompts, {bidders} bidder services: every auction over HTTP as in one process"
    heads = ["mechanism", "c", "regret", "revenue", "surplus", "looks", "calls", "ms"]
    screen = Screen()
    screen.show(table(title, heads, lines))
    screen.say("regret: best reward minus reward and looks (standard error); all numbers per prompt")
