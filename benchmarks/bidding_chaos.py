"""Services that die, hang, are cut off and come back while auctions are held: what must hold all the same.

Before each auction, with probability `share`, something happens to one service: it is killed, stopped (it
keeps its connections and says nothing), delayed (the same for less than `LONGEST_DELAY` seconds), or it comes
back. Where services are in network namespaces (`bidding_partition`) one may also be partitioned (no packet
passes) or silenced (it hears the platform, and its replies are lost).
`check_books` then compares the ledger with what the platform returned.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from benchmarks.bidding_network import Processes, SimulatedMarket, same_auction
from benchmarks.bidding_partition import Cables
from pandora_router.bidding.auctioneer import StoreRecorder
from pandora_router.bidding.platform import AuctionResult, Platform
from pandora_router.store import auctions, money
from pandora_router.store.database import Transaction
from pandora_router.store.worker import Store

LONGEST_DELAY = 1.0
MENDED = 0.6
"""How likely a harmed service is mended when something happens, instead of another one being harmed."""


@dataclass
class Chaos:
    """Harms the services of `processes` at random; counts what it did."""

    processes: Processes
    rng: np.random.Generator
    share: float = 0.1
    cables: Cables | None = None
    states: dict[int, str] = field(default_factory=dict)
    done: dict[str, int] = field(default_factory=dict)
    _timers: dict[int, threading.Timer] = field(default_factory=dict)

    def happen(self) -> None:
        """Perhaps do something to one service. Blocks while a service starts."""
        if self.rng.random() >= self.share:
            return
        harmed = [bidder for bidder, state in self.states.items() if state != "running"]
        whole = [bidder for bidder in range(len(self.processes.running)) if bidder not in harmed]
        if harmed and (not whole or self.rng.random() < MENDED):
            self.mend(int(self.rng.choice(harmed)))
            state = "mended"
        else:
            bidder = int(self.rng.choice(whole))
            kinds = ["killed", "stopped", "delayed"]
            kinds += ["partitioned", "silenced"] if self.cables is not None else []
            state = str(self.rng.choice(kinds))
            self._harm(bidder, state)
        self.done[state] = self.done.get(state, 0) + 1

    def _harm(self, bidder: int, state: str) -> None:
        self.states[bidder] = state
        if state == "killed":
            self.processes.kill(bidder)
        elif state in ("stopped", "delayed"):
            self._signal(bidder, signal.SIGSTOP)
            if state == "delayed":
                seconds = float(self.rng.uniform(0.0, LONGEST_DELAY))
                timer = threading.Timer(seconds, self._signal, (bidder, signal.SIGCONT))
                self._timers[bidder] = timer
                timer.start()
        elif self.cables is not None:
            (self.cables.cut if state == "partitioned" else self.cables.silence)(bidder)

    def mend(self, bidder: int) -> None:
        """Bring a service back."""
        if bidder in self._timers:
            timer = self._timers.pop(bidder)
            timer.cancel()
            timer.join()
        state = self.states.get(bidder)
        if state in ("stopped", "delayed"):
            self._signal(bidder, signal.SIGCONT)
        elif state == "killed":
            (self.processes.running[bidder],) = self.processes.start([bidder])
        elif state in ("partitioned", "silenced") and self.cables is not None:
            self.cables.mend(bidder)
        self.states[bidder] = "running"

    def _signal(self, bidder: int, number: signal.Signals) -> None:
        pid = self.processes.running[bidder].pid
        assert pid is not None
        os.kill(pid, number)


async def play_in_chaos(
    town: SimulatedMarket, chaos: Chaos, store: Store, rows: Sequence[int], at_once: int = 8
) -> list[AuctionResult]:
    """Hold the auctions of all rows while services come and go; every answer is graded and settled twice."""
    platform = Platform(town.rules, town.platform().default, StoreRecorder(store, 0.01))
    participants = town.participants(chaos.processes.urls)
    places, shaking = asyncio.Semaphore(at_once), asyncio.Lock()

    async def one(row: int) -> AuctionResult:
        async with places:
            async with shaking:
                await asyncio.to_thread(chaos.happen)
            result = await town.play(platform, participants, row)
        reward = float(np.clip(town.instance.rewards[row].max(), 0.0, 1.0))
        for _ in range(2):  # what is settled is settled once
            await store.run(lambda open_: auctions.settle(open_, result.auction, reward, 0.0))
        return result

    try:
        return list(await asyncio.gather(*(one(row) for row in rows)))
    finally:
        for bidder in range(len(town.names)):
            await asyncio.to_thread(chaos.mend, bidder)


def check_books(town: SimulatedMarket, results: Sequence[AuctionResult], open_: Transaction) -> int:
    """Raise `AssertionError` unless every prompt was answered once and the ledger agrees with the results.

    Auctions in which nothing went wrong must also have ended as in one process; returns how many those were.
    """
    paid: dict[str, int] = {}
    for auction, what, amount in open_.rows("SELECT auction, what, amount FROM market_entries"):
        kind = str(what).split(" ")[0]
        paid[auction] = paid.get(auction, 0) + {"price": 1, "back": -1}.get(kind, 0) * int(amount)
    if sum(round(amount * money.UNIT) for amount in auctions.balances(open_).values()) != 0:
        raise AssertionError("the ledger does not sum to zero")
    calm = 0
    for result in results:
        stored = auctions.auction(open_, result.auction)
        if not result.answer or stored is None or stored[0].status != "delivered":
            raise AssertionError(f"{result.auction} was not answered")
        price = auctions.units(result.price)
        if (stored[0].bidder, auctions.units(stored[0].price)) != (result.bidder, price):
            raise AssertionError(f"{result.auction} was awarded to {stored[0].bidder} and {result.bidder}")
        if paid.get(result.auction, 0) != (price if result.bidder else 0):
            raise AssertionError(f"{result.auction} was paid for more than once, or not at all")
        if not result.stalled and not any(heard.fault for heard in result.heard):
            same_auction(town, int(result.auction.rpartition("-")[2]), result)
            calm += 1
    return calm
