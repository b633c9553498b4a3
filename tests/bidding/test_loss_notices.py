"""What ends when an auction does: beginnings of bidders that lost, services whose parent is gone."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.bidding_network import SimulatedMarket, TableSide, services_here

from pandora_router.bidding.rules import Rules
from pandora_router.bidding.wire import Losses, Offer
from pandora_router.market import WEAK, generate

AT_ROOT = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
"""Environment of a process that imports `benchmarks` from any folder."""
PARENT = """
import sys, time
import numpy as np
from benchmarks.bidding_network import SimulatedMarket, services_apart
from pandora_router.bidding.rules import Rules
from pandora_router.market import WEAK, generate

if __name__ == "__main__":
    instance = generate(WEAK, 2, 2, np.random.default_rng(3))
    town = SimulatedMarket(instance, np.full(2, 0.02), Rules("descending"))
    with services_apart(town) as processes:
        print(*(process.pid for process in processes.running), flush=True)
        time.sleep(600)
"""


class Watched(TableSide):
    """A table whose bidder says what it was told to end, and what it answered."""

    _told: Any

    def watch(self, events, name):
        object.__setattr__(self, "_told", (events, name))
        return self

    async def answer(self, delivery):
        self._told[0].put_nowait(("answers", self._told[1], delivery.auction))
        return await super().answer(delivery)

    def drop(self, auction):
        self._told[0].put_nowait(("ends", self._told[1], auction))


def test_bidders_that_looked_and_lost_end_what_they_began():
    instance = generate(WEAK, 12, 3, np.random.default_rng(3))
    town = SimulatedMarket(
        instance, np.full(3, 0.02), Rules("descending", deadline=60.0, auction=600.0, deliver=60.0)
    )

    async def play():
        events = asyncio.Queue()
        services = town.services()
        for service in services:
            side = service.private
            assert isinstance(side, TableSide)
            service.private = Watched(side.table, side.inspection_cost).watch(events, service.name)
        async with services_here(services) as urls:
            platform, participants = town.platform(), town.participants(urls)
            results = [await town.play(platform, participants, row) for row in range(12)]
            expected = {
                (name, result.auction)
                for result in results
                for name, looks in result.inspections.items()
                if looks and name != result.bidder
            }
            ended, answered = set(), set()
            while not expected <= ended:
                what, name, auction = await asyncio.wait_for(events.get(), 60.0)
                (ended if what == "ends" else answered).add((name, auction))
        return results, expected, ended, answered

    results, expected, ended, answered = asyncio.run(play())
    assert expected, "nobody looked and lost: the test shows nothing"
    assert ended == expected
    assert answered == {(result.bidder, result.auction) for result in results}


def test_services_end_with_the_process_that_started_them(tmp_path):
    script = tmp_path / "parent.py"
    script.write_text(PARENT)
    with subprocess.Popen([sys.executable, script], env=AT_ROOT, stdout=subprocess.PIPE, text=True) as parent:
        services = [os.pidfd_open(int(pid)) for pid in parent.stdout.readline().split()]
        try:
            parent.send_signal(signal.SIGTERM)
            parent.wait(60)
            assert len(services) == 2
            for service in services:
                ended = select.poll()
                ended.register(service, select.POLLIN)
                assert ended.poll(60_000), "a service goes on without its parent"
        finally:
            for service in services:
                os.close(service)


def test_a_notice_of_an_auction_that_is_swept_meanwhile_is_acknowledged():
    """While the notice waits for a look at the first auction, the second one ends and is dropped."""
    instance = generate(WEAK, 2, 2, np.random.default_rng(3))
    town = SimulatedMarket(instance, np.full(2, 0.02), Rules("descending"))
    service, now = town.service(0), [0.0]
    service.clock = lambda: now[0]

    def offer(auction, keep):
        return Offer(
            auction=auction, turn=0, mechanism="descending", price=0.3, deadline=60.0, keep=keep, prompt="0"
        )

    async def play():
        await service.offers(offer("short", 10.0))
        await service.offers(offer("long", 1000.0))
        async with service.auctions["long"].lock:
            notice = asyncio.ensure_future(service.losses(Losses(auctions=("long", "short"))))
            await asyncio.sleep(0)
            now[0] = 20.0
            await service.offers(offer("next", 10.0))
            assert "short" not in service.auctions
        return await notice

    assert asyncio.run(play()).known == 1
