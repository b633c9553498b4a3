"""The law of the room: an auction over HTTP ends as the same auction in one process."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from typing import get_args

import numpy as np
import pytest
from benchmarks.bidding_network import (
    ATTEMPTS,
    SimulatedMarket,
    play_all,
    play_and_compare,
    same_auction,
    services_here,
)

from pandora_router.bidding.rules import Rules
from pandora_router.bidding.service import BidderService
from pandora_router.bidding.wire import RequestVerifier
from pandora_router.errors import UpstreamError
from pandora_router.market import STRONG, WEAK, Sealed, generate
from pandora_router.types import MechanismName

PROMPTS = 40


def town(mechanism, signal=WEAK, specialists=5, seed=0, **rules):
    instance = generate(signal, PROMPTS, specialists, np.random.default_rng(seed))
    patient = {"deadline": 60.0, "auction": 600.0, "deliver": 60.0}
    return SimulatedMarket(instance, np.full(specialists, 0.02), Rules(mechanism, **patient, **rules))


@pytest.mark.parametrize("mechanism", get_args(MechanismName))
@pytest.mark.parametrize("signal", [WEAK, STRONG], ids=["weak", "strong"])
def test_over_http_as_in_process(mechanism, signal):
    market = town(mechanism, signal)

    async def play():
        async with services_here(market.services()) as urls:
            return await play_all(market, urls, range(PROMPTS))

    served = asyncio.run(play())
    for row, one in enumerate(served):
        same_auction(market, row, one)
        assert not any(heard.fault for heard in one.heard)
    assert any(one.inspections for one in served)


def compared(market, services):
    async def play():
        async with services_here(services) as urls:
            return await play_and_compare(market, urls, range(PROMPTS))

    return asyncio.run(play())


class Suspended(BidderService):
    """Its clock is 31 seconds ahead at first: what reaches a machine that stood still for so long is old."""

    until = 30
    calls = 0

    def __post_init__(self):
        super().__post_init__()
        self._verifier = RequestVerifier(self.key, self._late)
        self._verifier._opened = 0.0

    def _late(self):
        self.calls += 1
        return time.time() + (31.0 if self.calls <= self.until else 0.0)


def with_first(kind, market):
    first, *others = market.services()
    return [kind(first.name, first.private, first.key, first.strategies), *others]


def test_auctions_that_lost_replies_are_held_again_and_compared():
    market = town("descending")
    results = compared(market, with_first(Suspended, market))
    again = [row for row, result in enumerate(results) if result.auction != market.auction(row)]
    assert again, "no auction was disturbed: the test shows nothing"
    for row in set(range(PROMPTS)) - set(again):
        same_auction(market, row, results[row])


def test_replies_that_are_lost_for_good_are_no_agreement():
    market = town("second price")

    class Gone(Suspended):
        until = 10**9

    with pytest.raises(UpstreamError, match=f"{PROMPTS} auctions lost replies {ATTEMPTS} times"):
        compared(market, with_first(Gone, market))


def test_a_bidder_that_bids_otherwise_is_found():
    market = town("second price")
    other = dataclasses.replace(market, strategies=[dict.fromkeys(get_args(MechanismName), Sealed(True))] * 5)
    services = [other.service(0), *market.services()[1:]]
    with pytest.raises(AssertionError, match="over HTTP"):
        compared(market, services)
