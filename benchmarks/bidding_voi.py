"""Does value-of-information bidding help the bidder, the market, or both? Over real services.

The paper's leave-one-out market: all but one quote, the best quote is posted to the last one, the strategic
bidder, which is the first of the auction's random order. Strong opponents look before they quote, weak ones
quote their means. The strategic bidder looks iff b <= p <= u, or never.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from benchmarks.bidding_network import play_all, rewards_of, services_apart
from benchmarks.bidding_tables import Done, Row, error_of, tables, town_of
from pandora_router.bidding.service import TRUTHFUL
from pandora_router.market import Bid, Call, Instance, Quoting
from pandora_router.search import State
from pandora_router.transport.asgi import run_event_loop
from pandora_router.types import Vector

TURNS = 2
"""How often a prompt is sold, each time with another random order."""


@dataclass(frozen=True)
class Conduct:
    """Answers a posted price with a look where that pays, or without one; may look before a quote."""

    looks: bool
    quotes_look: bool

    def next(self, call: Call, state: State) -> Any:
        """The answer to a call."""
        if call.price == -np.inf or self.looks:
            return Quoting(self.quotes_look).next(call, state)
        return Bid(float(state.boxes.mean[call.bidder]))


def voi(options: argparse.Namespace, done: Done) -> Iterator[Row]:
    """Changes against never looking, paired prompt by prompt; errors are over prompts, not over auctions."""
    for model, table in itertools.product(options.models, tables(options)):
        once = table.instance(model)
        again = once.prompts(np.tile(np.arange(len(once.mean)), TURNS))
        for opponents in ("strong", "weak"):
            row: Row = {"table": table.name, "model": model, "opponents": opponents}
            if tuple(row.values()) in done:
                continue
            with_looks, without = (_sides(again, looks, opponents == "strong") for looks in (True, False))
            for at, measure in enumerate(("surplus", "efficiency")):
                change = (with_looks[at] - without[at]).reshape(TURNS, -1).mean(axis=0)
                row |= {measure: float(change.mean()), f"{measure} error": error_of(change)}
            yield row | {"looks": float(with_looks[2].mean()), "prompts": len(once.mean)}


def _sides(instance: Instance, looks: bool, strong: bool) -> tuple[Vector, Vector, Vector]:
    """Surplus of the strategic bidder, reward less its looks, and whether it looked, by auction."""
    plan = dict.fromkeys(TRUTHFUL, Conduct(looks, strong))
    town = replace(town_of(instance, "leave one out"), strategies=[plan] * instance.mean.shape[1])
    rows = range(len(instance.mean))
    with services_apart(town) as processes:
        results = run_event_loop(play_all(town, processes.urls, rows, at_once=4))
    reward = rewards_of(town, results, rows)
    own = np.array([result.spending.get(result.order[0], 0.0) for result in results])
    won = np.array([result.bidder == result.order[0] for result in results])
    price = np.array([result.price for result in results])
    return np.where(won, reward - price, 0.0) - own, reward - own, (own > 0).astype(np.float64)
