"""Services that are killed and stopped at random: no prompt unanswered, no double award, no money lost."""

from __future__ import annotations

import asyncio
from typing import get_args

import numpy as np
import pytest
from benchmarks.bidding_chaos import Chaos, check_books, play_in_chaos
from benchmarks.bidding_network import SimulatedMarket, play_all, services_apart, services_here
from benchmarks.bidding_partition import cables, can_partition

from pandora_router.bidding.auctioneer import StoreRecorder
from pandora_router.bidding.platform import Platform
from pandora_router.bidding.rules import Rules
from pandora_router.errors import UpstreamError
from pandora_router.market import WEAK, generate
from pandora_router.store.worker import Store
from pandora_router.types import MechanismName


def market(mechanism, rows, **rules):
    instance = generate(WEAK, rows, 3, np.random.default_rng(3))
    return SimulatedMarket(instance, np.full(3, 0.02), Rules(mechanism, seed=1, **rules))


@pytest.mark.slow
def test_whatever_happens_to_services_every_prompt_is_answered_once(tmp_path):
    """The long version, over all mechanisms and real tables: python -m benchmarks.bidding chaos."""
    town = market("descending", 40, deadline=0.5, auction=2.0, deliver=2.0)
    store = Store(str(tmp_path / "store.sqlite"))
    try:
        with services_apart(town) as processes:
            chaos = Chaos(processes, np.random.default_rng(7), share=0.3)
            results = asyncio.run(play_in_chaos(town, chaos, store, range(40)))
        assert {"killed", "stopped", "mended"} <= set(chaos.done)
        assert any(heard.fault for result in results for heard in result.heard)
        store.submit(lambda open_: check_books(town, results, open_)).result()
    finally:
        store.close()


@pytest.mark.slow
@pytest.mark.skipif(not can_partition(), reason="network namespaces need Linux, root and ip")
def test_partitions_of_the_network_lose_no_prompt_and_no_money(tmp_path):
    """Packets are lost in both directions, or only those of the bidder, and then pass again."""
    town = market("descending", 60, deadline=0.5, auction=2.0, deliver=2.0)
    store = Store(str(tmp_path / "store.sqlite"))

    async def play(laid, processes):
        platform = Platform(town.rules, town.platform().default, StoreRecorder(store))
        participants, results = town.participants(processes.urls), []
        for first, harm in ((0, laid.cut), (10, laid.silence)):
            await asyncio.to_thread(harm, 0)
            results += await asyncio.gather(
                *(town.play(platform, participants, row) for row in range(first, first + 10))
            )
            await asyncio.to_thread(laid.mend, 0)
        for row in range(20, 60):  # until it is heard again, which a busy machine may delay
            results.append(await town.play(platform, participants, row))
            if all(heard.fault is None for heard in results[-1].heard):
                break
        return results

    try:
        with cables(3) as laid:
            sockets = [laid.socket(j) for j in range(3)]
            with services_apart(town, sockets) as processes:
                results = asyncio.run(play(laid, processes))
        store.submit(lambda open_: check_books(town, results, open_)).result()
    finally:
        store.close()
    lost = [[heard.fault for heard in result.heard if heard.bidder == "bidder-0"] for result in results]
    assert all(fault in ("late", "unreachable") for faults in lost[:20] for fault in faults)
    assert lost[0]
    assert lost[10]
    assert lost[-1]
    assert not any(lost[-1])  # the cable is whole again


class Unwell:
    """An application in front of a service that fails in every way HTTP can, in turn."""

    def __init__(self, service):
        self.service, self.count = service, 0

    async def __call__(self, scope, receive, send):
        self.count += 1
        way = self.count % 6
        if way == 0:  # says nothing until the platform has given up
            while (await receive())["type"] != "http.disconnect":
                pass
            return
        if way in (1, 2, 3):
            body = [b"", b"not json", b'{"say": "bid", "limit": 9}', b"x" * 2_000_000][way]
            status = 500 if way == 1 else 200
            length = [(b"content-length", str(len(body)).encode())]
            await send({"type": "http.response.start", "status": status, "headers": length})
            await send({"type": "http.response.body", "body": body})
            return
        await self.service(scope, receive, send)


def test_every_way_to_fail_is_a_refusal(tmp_path):
    town = market("descending", 24, deadline=1.0, auction=60.0, deliver=1.0)

    async def play():
        store = Store(str(tmp_path / "store.sqlite"))
        try:
            async with services_here([Unwell(town.service(0)), town.service(1), town.service(2)]) as urls:
                platform = Platform(town.rules, town.platform().default, StoreRecorder(store))
                participants = town.participants(urls)
                results = await asyncio.gather(*(town.play(platform, participants, row) for row in range(24)))
            calm = await store.run(lambda open_: check_books(town, results, open_))
            return results, calm
        finally:
            store.close()

    results, calm = asyncio.run(play())
    faults = {heard.fault for result in results for heard in result.heard}
    assert {"broken", "forged", "late"} <= faults
    assert calm < 24


@pytest.mark.parametrize("mechanism", get_args(MechanismName))
@pytest.mark.parametrize("alone", range(3))
def test_a_bidder_that_is_left_alone_answers(tmp_path, mechanism, alone):
    """If nobody else replies, nothing may set a price: the winner then pays nothing, and the ledger holds."""
    town = market(mechanism, 6, deadline=60.0, auction=60.0, deliver=60.0)

    async def play():
        store = Store(str(tmp_path / "store.sqlite"))
        try:
            async with services_here([town.service(alone)]) as (url,):
                urls = [url if j == alone else "http://127.0.0.1:9" for j in range(3)]  # nobody listens there
                results = await play_all(town, urls, range(6), recorder=StoreRecorder(store))
            await store.run(lambda open_: check_books(town, results, open_))
            return results
        finally:
            store.close()

    results = asyncio.run(play())
    assert {result.bidder for result in results} <= {f"bidder-{alone}", None}
    assert all(np.isfinite(result.price) for result in results)


def test_if_nobody_delivers_the_client_hears_of_it():
    town = market("sequential", 1, deadline=5.0, auction=5.0, deliver=5.0)

    class Dead:
        name, funded, proxy = "default", False, True

        async def deliver(self, terms, price, seconds):
            raise UpstreamError("the default is down")

        def price(self, price):
            return price

    async def play():
        participants = town.participants(["http://127.0.0.1:9"] * 3)  # nobody listens on the discard port
        return await town.play(Platform(town.rules, Dead()), participants, 0)

    with pytest.raises(UpstreamError, match="the default is down"):
        asyncio.run(play())
