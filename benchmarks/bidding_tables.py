"""Routing tables as markets of services, for `benchmarks.bidding`.

A table is the test prompts of the first split of an experiment, in a random order. Bidders have one of two
models of their own box. `default` is what `pandora bid` runs: mean, spread, slope and law of the signal model
of `pandora fit`, with its default cheap estimate. `paper` is the independent normal model of the paper.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, get_args

import numpy as np

from benchmarks.bidding_network import SimulatedMarket
from pandora_router.bidding.rules import Rules
from pandora_router.boxes import Costs
from pandora_router.config.experiments import read_experiment
from pandora_router.evaluate.bids import default_router, market_of, shipped_market
from pandora_router.evaluate.estimates import estimates, table_of
from pandora_router.evaluate.trials import Trial, trial_of
from pandora_router.market import Instance
from pandora_router.search import Obligatory, Policy, Rollout, run
from pandora_router.types import MechanismName, Vector

Row = dict[str, Any]
"""One result."""
Done = frozenset[tuple[Any, ...]]
"""Keys of results that an earlier run has made; a part skips them."""
TABLES = ("mirage", "mmlupro8", "routerdc7")
MODELS = ("default", "paper")
MECHANISMS: tuple[MechanismName, ...] = get_args(MechanismName)
COST = 0.01
PATIENT = {"deadline": 60.0, "auction": 600.0, "deliver": 60.0}


@dataclass(frozen=True)
class MarketTable:
    """At most `prompts` test prompts of the experiment `name`; `data` and `cache` are folders."""

    name: str
    prompts: int
    data: Path
    cache: Path

    @cached_property
    def trial(self) -> Trial:
        """The first split of the experiment, with the default cheap estimate."""
        experiment = read_experiment(Path("paper/experiments") / f"{self.name}.yaml")
        arrays = estimates(experiment, table_of(experiment, self.data), experiment.seeds[0], self.cache)
        return trial_of(arrays, experiment.ks[0])

    @cached_property
    def rows(self) -> Any:
        """Which test prompts are used."""
        return np.random.default_rng(0).permutation(len(self.trial.test))[: self.prompts]

    def instance(self, model: str) -> Instance:
        """The prompts as bidders with one of `MODELS` see them."""
        whole = shipped_market(self.trial) if model == "default" else market_of(self.trial)
        return whole.prompts(self.rows)

    @cached_property
    def shipped(self) -> tuple[Vector, Vector]:
        """Regret and looks of the default router, which knows all boxes and how they depend on each other."""
        costs = Costs(np.full(self.trial.test.cheap.shape[1], COST))
        routed = default_router(self.trial, costs)
        return routed.regret[self.rows], routed.inspections[self.rows]


def tables(options: argparse.Namespace) -> Iterator[MarketTable]:
    """The tables that the command line asks for."""
    return (MarketTable(name, options.prompts, options.data, options.cache) for name in options.tables)


def central(instance: Instance) -> dict[str, tuple[Vector, Vector]]:
    """Regret and looks of routers that know all boxes of an instance and take them for independent."""
    best, rows = instance.rewards.max(axis=1), np.arange(len(instance.mean))
    policies: dict[str, Policy] = {"router: rollout": Rollout(), "router: obligatory": Obligatory()}
    found = {}
    for name, policy in policies.items():
        done = run(policy, instance.batch(COST), instance.values)
        regret = best - instance.rewards[rows, done.choice] + done.spent
        found[name] = regret, done.inspections.astype(np.float64)
    unseen = best - instance.rewards[rows, instance.mean.argmax(axis=1)]
    return found | {"router: never inspect": (unseen, np.zeros(len(rows)))}


def town_of(
    instance: Instance, mechanism: MechanismName, cost: float = COST, **rules: Any
) -> SimulatedMarket:
    """A market of an instance by patient rules, unless others are given."""
    size = instance.mean.shape[1]
    return SimulatedMarket(instance, np.full(size, cost), Rules(mechanism, **{**PATIENT, **rules}))


def error_of(change: Vector) -> float:
    """The standard error of a mean over prompts."""
    return float(change.std(ddof=1) / np.sqrt(len(change))) if len(change) > 1 else 0.0
