"""The verdicts of docs/claims.md: enumeration against simulation, and signs of differences."""

from __future__ import annotations

import numpy as np
import pytest
from paper.claims import Domain, Played

from pandora_router.calibrate import Readings
from pandora_router.calibrate.ways import Standing
from pandora_router.evaluate.arms import PAPER
from pandora_router.evaluate.trials import Trial
from paper import claims, claims_page, theory


@pytest.mark.parametrize("seed", range(4))
def test_a_walk_pays_what_simulating_it_pays(seed: int) -> None:
    rng = np.random.default_rng(seed)
    boxes = theory.Discrete.draw(rng)
    prices = {0: 0.9, 1: 0.7, 2: 0.5}
    outside, sealed = 0.55, 0.6
    drawn = np.stack([rng.choice(row, 200_000) for row in boxes.values])
    found, spent = np.full(200_000, -np.inf), np.zeros(200_000)
    going = np.ones(200_000, dtype=bool)
    for box, price in prices.items():
        going &= np.maximum(found, outside) < price
        found = np.where(going, np.maximum(found, drawn[box]), found)
        spent += going * boxes.cost[box]
    simulated = (np.where(found > outside, found, sealed) - spent).mean()
    assert theory.walk(boxes, prices, outside, sealed) == pytest.approx(simulated, abs=0.003)


def test_free_inspection_earns_the_best_value_and_a_dear_one_the_best_mean() -> None:
    values = np.array([[0.0, 1.0], [0.4, 0.6]])
    free = theory.Discrete(values, np.zeros(2))
    assert theory.best(free, obligatory=False) == pytest.approx((1.0 + 1.0 + 0.4 + 0.6) / 4.0)
    dear = theory.Discrete(values, np.full(2, 5.0))
    assert theory.best(dear, obligatory=False) == pytest.approx(0.5)


def domain(shift: float) -> Domain:
    """Two splits in which the paper's router loses `shift` more than f-only on average."""
    rng = np.random.default_rng(1)
    splits = []
    for _ in range(2):
        numbers = rng.random((400, 2))
        trial = Trial(
            Readings(numbers, numbers, numbers), Readings(numbers, numbers, numbers), Standing(0, 0)
        )
        plain = rng.random((400, 3))
        total = {PAPER: plain + shift + 0.01 * rng.normal(size=plain.shape), claims.F_ONLY: plain}
        splits.append(Played(trial, total, total, total))
    return Domain("MATH", (0.1, 0.2, 0.3), splits)


@pytest.mark.parametrize(
    ("shift", "verdict"),
    [(-0.05, "holds"), (0.05, "does not hold: reversed on MATH"), (0.0, "not decided")],
)
def test_the_verdict_follows_the_sign_of_a_clear_difference(shift: float, verdict: str) -> None:
    assert claims.less([domain(shift)], PAPER, claims.F_ONLY)[1] == verdict


def test_ratios_of_prices_are_those_of_the_stated_prices() -> None:
    claim = claims_page.money()[0]
    assert "MATH 5.81" in claim.measured  # 20 tokens at $2.50 over 43 at $0.20, per million
    assert claim.verdict == "holds on 1 of 3, reversed on RAG, EmbedLLM"
