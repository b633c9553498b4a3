"""The law of the room: an auction over HTTP ends as the same auction in one process."""

from __future__ import annotations

import asyncio
from typing import get_args

import numpy as np
import pytest

from pandora_router.bidding.network import Town, play_all, same_auction, services_here
from pandora_router.bidding.rules import Rules
from pandora_router.bidding.wire import MechanismName
from pandora_router.market import STRONG, WEAK, generate

PROMPTS = 40


def town(mechanism, signal=WEAK, specialists=5, seed=0, **rules):
    instance = generate(signal, PROMPTS, specialists, np.random.default_rng(seed))
    patient = {"deadline": 60.0, "auction": 600.0, "deliver": 60.0}
    return Town(instance, np.full(specialists, 0.02), Rules(mechanism, **patient, **rules))


@pytest.mark.parametrize(
    ("mechanism", "sealed"), [*((name, False) for name in get_args(MechanismName)), ("second price", True)]
)
@pytest.mark.parametrize("signal", [WEAK, STRONG], ids=["weak", "strong"])
def test_over_http_as_in_process(mechanism, signal, sealed):
    market = town(mechanism, signal, sealed=sealed)

    async def play():
        async with services_here(market.services()) as urls:
            return await play_all(market, urls, range(PROMPTS))

    served = asyncio.run(play())
    for row, one in enumerate(served):
        same_auction(market, row, one)
        assert not any(heard.fault for heard in one.heard)
    assert any(one.inspections for one in served)
