"""Auctions among registered bidders and plain endpoints: who takes part, and with which money."""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import dataclass
from typing import get_args

import numpy as np
import pytest
from benchmarks.bidding_network import SimulatedMarket, play_and_compare, services_here

from pandora_router.bidding.auctioneer import Auctioneer
from pandora_router.bidding.platform_http import Market, PromptIn
from pandora_router.bidding.rules import Rules
from pandora_router.bidding.service import BidderService
from pandora_router.bidding.wire import bidder_key
from pandora_router.boxes import Independent
from pandora_router.errors import UpstreamError
from pandora_router.market import WEAK, Unseen, Wait, generate
from pandora_router.prices import Tariff
from pandora_router.specialists.function import Function
from pandora_router.store import auctions
from pandora_router.store.worker import Store
from pandora_router.types import MechanismName

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
            return await work(Market(store, Auctioneer(SECRET, rules), Known(means), proxies, default), store)
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


def test_a_bidder_has_nothing_to_do_with_what_an_endpoint_of_its_name_won(tmp_path):
    """It starts with its deposit and no reputation, loses nothing to a stall, and gets its deposit back."""

    async def work(market, store):
        won = [await market.serve(PromptIn(prompt=f"x {i}")) for i in range(12)]
        await store.run(lambda open_: auctions.settle(open_, won[0].auction, 0.25, 2.0))
        await store.run(lambda open_: auctions.join(open_, "small", NOWHERE, 1.0, stake=5.0))
        standing = await Auctioneer(SECRET, market.auctioneer.rules).standing(store)
        before = await store.run(auctions.balances)
        await store.run(lambda open_: auctions.leave(open_, "small", 3.0))
        return won, standing, before, await store.run(auctions.balances)

    won, standing, before, after = held(tmp_path, "descending", {"small": 0.5}, work)
    assert [result.bidder for result in won] == ["small"] * 12
    assert standing.funds == {"small": 5.0}
    assert standing.scores == []
    assert before["proxy small"] == pytest.approx(-12 * 0.5 + 0.25)
    assert sum(before.values()) == pytest.approx(0.0, abs=1e-9)
    assert after["world"] == before["world"] + 5.0


def test_an_endpoint_that_stalls_forfeits_no_deposit_of_a_bidder_of_its_name(tmp_path):
    async def fails(prompt):
        raise UpstreamError("down")

    async def work(market, store):
        market.proxies["small"] = Function("small", fails, Tariff(0.0, 0.0, per_call=0.001))
        await market.auctioneer.standing(store)  # known for a second: the bidder takes part only after that
        await store.run(lambda open_: auctions.join(open_, "small", NOWHERE, 1.0, stake=5.0))
        served = await market.serve(PromptIn(prompt="x"))
        return served, await store.run(auctions.balances)

    served, balances = held(tmp_path, "descending", {"small": 0.9, "solid": 0.5}, work, "solid")
    assert (served.stalled, served.bidder) == (("small",), "solid")
    assert balances["deposit small"] == 5.0
    assert balances["proxy small"] == 0.0


@pytest.mark.parametrize("mechanism", get_args(MechanismName))
def test_one_endpoint_alone_answers_by_every_mechanism(tmp_path, mechanism):
    served = held(
        tmp_path, mechanism, {"small": 0.5}, lambda market, store: market.serve(PromptIn(prompt="x"))
    )
    assert served.answer == "answer of small"
    assert 0.0 <= served.price <= 0.5


@pytest.mark.parametrize("mechanism", get_args(MechanismName))
def test_one_bidder_service_alone_answers_by_every_mechanism(mechanism):
    """As docs/market-network.md says: where nobody else sets a price, the winner pays 0."""
    instance = generate(WEAK, 6, 2, np.random.default_rng(5)).specialist(0)
    town = SimulatedMarket(
        instance, np.array([0.02]), Rules(mechanism, deadline=30.0, auction=60.0, deliver=30.0)
    )

    async def play():
        async with services_here(town.services()) as urls:
            return await play_and_compare(town, urls, range(6))

    results = asyncio.run(play())
    assert all(result.answer.startswith(("answer to", "default answer")) for result in results)
    if mechanism in ("ascending", "leave one out"):
        assert {(result.bidder, result.price) for result in results} == {("bidder-0", 0.0)}


def test_an_award_that_a_killed_process_left_open_is_taken_back_without_another_start(tmp_path):
    """A process that starts again at once finds the award too young; it looks again while it serves."""

    def award(open_, id_, age):
        at = time.time() - age
        row = auctions.AuctionRow(id_, at, "sequential", "", "awarded", 0, "far", 0.5, 0.6, None)
        assert auctions.award(open_, row, [], at, funded=True)

    async def work(market, store):
        rules = market.auctioneer.rules
        longest = rules.auction + 60.0 + 3 * rules.deliver  # one endpoint, one bidder, then the default
        await store.run(lambda open_: auctions.join(open_, "far", NOWHERE, 1.0, stake=2.0))
        await store.run(lambda open_: award(open_, "left", longest - 2.0))
        await store.run(lambda open_: award(open_, "running", longest - 60.0))
        at_start = await market.recover()
        recovering = asyncio.ensure_future(market.keep_recovering(every=0.05))
        async with asyncio.timeout(30.0):
            while (await store.run(lambda open_: auctions.auction(open_, "left")))[0].status == "awarded":
                await asyncio.sleep(0.05)
        recovering.cancel()
        running = await store.run(lambda open_: auctions.auction(open_, "running"))
        return at_start, running[0].status, await store.run(auctions.balances)

    at_start, running, balances = held(tmp_path, "sequential", {"small": 0.5}, work)
    assert (at_start, running) == (0, "awarded")
    assert balances["bidder far"] == -0.5
    assert balances["deposit far"] == 2.0


class Asking:
    """A bidder that names a fixed limit."""

    async def box(self, offer):
        return Independent([0.5], [0.1], 0.01)

    async def look(self, offer):
        raise UpstreamError("never looks")

    async def answer(self, delivery):
        return "answer of a bidder"

    def drop(self, auction):
        pass


@pytest.mark.parametrize(
    ("mechanism", "limits"),
    [
        ("descending", {"dear": -1000.0}),
        ("leave one out", {"dear": -1000.0}),
        ("ascending", {"dear": -1000.0, "near": 0.3}),  # the one would set the price of the other
    ],
)
def test_nobody_names_its_own_price_while_all_endpoints_fail(tmp_path, mechanism, limits):
    async def fails(prompt):
        raise UpstreamError("down")

    async def work(market, store):
        market.proxies["small"] = Function("small", fails, Tariff(0.0, 0.0, per_call=0.001))
        services = [
            BidderService(name, Asking(), bidder_key(SECRET, name), {mechanism: Unseen(limit)})
            for name, limit in limits.items()
        ]
        async with services_here(services) as urls:
            for name, url in zip(limits, urls, strict=True):
                await store.run(lambda open_, n=name, u=url: auctions.join(open_, n, u, 1.0, stake=9.0))
            for i in range(6):
                with contextlib.suppress(UpstreamError):  # nobody is left who could answer
                    await market.serve(PromptIn(prompt=f"x {i}"))
        return await store.run(auctions.balances)

    balances = held(tmp_path, mechanism, {**dict.fromkeys(limits, 0.5), "small": 0.5}, work)
    assert balances["platform"] >= 0.0
    assert all(balances.get(f"bidder {name}", 0.0) <= 0.0 for name in limits)


@dataclass(frozen=True)
class Creeping:
    """Waits for a price a hair beyond the one it is called at, again and again."""

    step: float

    def next(self, call, state):
        return Wait(float(np.clip(call.price, -0.5, 0.9)) + self.step)


@pytest.mark.parametrize(("mechanism", "step"), [("descending", -1e-8), ("ascending", 1e-8)])
def test_a_bidder_that_waits_for_ever_smaller_steps_of_the_clock_leaves(tmp_path, mechanism, step):
    async def work(market, store):
        service = BidderService(
            "creeping", Asking(), bidder_key(SECRET, "creeping"), {mechanism: Creeping(step)}
        )
        async with services_here([service]) as (url,):
            await store.run(lambda open_: auctions.join(open_, "creeping", url, 1.0, stake=1.0))
            return await market.serve(PromptIn(prompt="x"))

    served = held(tmp_path, mechanism, {"creeping": 0.5, "small": 0.5, "solid": 0.4}, work)
    assert served.answer == "answer of small"
    own = [heard.fault for heard in served.heard if heard.bidder == "creeping"]
    assert set(own[:-1]) == {None}
    assert own[-1] == "impossible"
