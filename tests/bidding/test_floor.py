"""Auctions among registered bidders and plain endpoints: who takes part, and with which money."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import numpy as np

from pandora_router.bidding.app import Market, PromptIn
from pandora_router.bidding.floor import Floor
from pandora_router.bidding.rules import Rules
from pandora_router.boxes import Independent
from pandora_router.specialists.function import Function
from pandora_router.specialists.prices import Tariff
from pandora_router.store import auctions
from pandora_router.store.worker import Store

SECRET = b"0123456789abcdef0123"
NOWHERE = "http://127.0.0.1:9"


@dataclass(frozen=True)
class Known:
    """Estimates of the platform: one mean per name."""

    means: dict[str, float]

    async def boxes(self, prompt, names):
        return Independent([self.means[name] for name in names], np.full(len(names), 0.1), 0.01)


def specialist(name):
    return Function(name, lambda prompt: f"answer of {name}", Tariff(0.0, 0.0, per_call=0.001))


def held(tmp_path, mechanism, means, work, default="small"):
    """Run `work(market, store)` in a market whose endpoints are those of `means` that begin with s."""

    async def play():
        store = Store(str(tmp_path / "store.sqlite"))
        rules = Rules(mechanism, deadline=30.0, auction=60.0, deliver=30.0)
        proxies = {name: specialist(name) for name in means if name.startswith("s")}
        try:
            return await work(Market(store, Floor(SECRET, rules), Known(means), proxies, default), store)
        finally:
            store.close()

    return asyncio.run(play())


def test_the_best_bidder_without_money_is_passed_over(tmp_path):
    """At posted prices the highest estimate is not asked, so that there is no bid of it to strike out."""

    async def work(market, store):
        await store.run(lambda open_: auctions.join(open_, "far", NOWHERE, 1.0))
        served = await market.serve(PromptIn(prompt="x"))
        return served, await store.run(lambda open_: auctions.auction(open_, served.auction))

    served, (row, _) = held(tmp_path, "sequential", {"far": 0.8, "small": 0.5}, work)
    assert served.answer == "answer of small"
    assert row.status == "delivered"
    assert row.bidder != "far"
