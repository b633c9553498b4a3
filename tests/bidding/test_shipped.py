"""Simulated bidders are those that `pandora bid` runs: the default signal model, each box alone."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
from benchmarks.bidding_network import SimulatedMarket, play_and_compare, services_here

from pandora_router.bidding.rules import Rules
from pandora_router.bidding.service import RouterSide
from pandora_router.bidding.wire import Offer
from pandora_router.calibrate.readings import Readings
from pandora_router.calibrate.ways import Standing
from pandora_router.evaluate.bids import shipped_market
from pandora_router.evaluate.trials import Trial
from pandora_router.market import interval
from pandora_router.prices import Tariff
from pandora_router.specialists.function import Function
from tests.support.routers import fitted

COST = 0.01


def readings(rng, prompts):
    """Correlated skewed residuals, and rewards that follow the costly estimate only in part."""
    f = rng.random((prompts, 3))
    common = rng.exponential(0.1, (prompts, 1))
    g = 0.2 + 0.5 * f + 0.5 * common + rng.exponential(0.1, (prompts, 3))
    return Readings(f, g, 0.5 * g + 0.2 + 0.1 * rng.standard_normal((prompts, 3)))


@pytest.fixture(scope="module")
def trial():
    rng = np.random.default_rng(0)
    return Trial(readings(rng, 200), readings(rng, 30), Standing(0, 0), readings(rng, 200))


def test_a_bidder_of_the_market_has_the_box_of_the_default_signal_model(trial):
    market, signal = shipped_market(trial), trial.signal()
    assert signal.slope != 1.0  # else the test could not tell the models apart
    for i, (cheap, costly) in enumerate(zip(trial.test.cheap, trial.test.costly, strict=True)):
        prior = signal.prior(cheap, np.full(3, COST))
        for j in range(3):
            own, shipped = market.specialist(j).boxes(i, [COST]), prior.boxes.only(np.array([j]))
            np.testing.assert_allclose(interval(own), interval(shipped), rtol=1e-12)
            assert market.values[i, j] == pytest.approx(prior.value(j, costly[j]), rel=1e-12)


def test_pandora_bid_has_the_box_of_the_signal_model_of_its_artifact():
    router = fitted(contexts=True)
    name = router.specialists[1]
    side = RouterSide(router, Function(name, lambda prompt: prompt, Tariff(0.0, 0.0)))
    text = "count the river stone number 3"
    offer = Offer(auction="a", turn=0, mechanism="sequential", price=0.5, deadline=1, keep=1, prompt=text)
    own = asyncio.run(side.box(offer))
    cheap = router.cheap.predict([text])[0]
    shipped = router.signal.prior(cheap, router.costs).boxes
    assert len(own.mean) == 1
    assert [float(p[0]) for p in interval(own)] == [float(p[1]) for p in interval(shipped)]


@pytest.mark.parametrize("mechanism", ["sequential", "descending", "ascending"])
def test_over_http_as_in_process_with_the_default_signal_model(trial, mechanism):
    patient = {"deadline": 60.0, "auction": 600.0, "deliver": 60.0}
    town = SimulatedMarket(shipped_market(trial), np.full(3, COST), Rules(mechanism, **patient))

    async def play():
        async with services_here(town.services()) as urls:
            return await play_and_compare(town, urls, range(30))

    assert any(result.inspections for result in asyncio.run(play()))
