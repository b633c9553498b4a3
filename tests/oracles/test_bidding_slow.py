"""Bidding on a routing table against a loop over prompts, held-out specialists and costs."""

from __future__ import annotations

import numpy as np
import pytest

from pandora_router.boxes import Costs
from pandora_router.calibrate import GaussianIndependent
from pandora_router.calibrate.readings import Readings
from pandora_router.calibrate.ways import Standing
from pandora_router.evaluate import bids
from pandora_router.evaluate.trials import Trial
from pandora_router.index import price_offset

COSTS = (0.002, 0.03, 0.5)
WEIGHTS = np.array([1.0, 2.0, 0.5])  # inspection costs differ between specialists


def arrays(prompts: int, seed: int) -> Readings:
    rng = np.random.default_rng(seed)
    chance = rng.random((prompts, 3))
    f = np.round(3 * np.clip(chance + 0.3 * rng.standard_normal(chance.shape), 0, 1)) / 3
    g = np.clip(chance + 0.1 * rng.standard_normal(chance.shape), 0, 1)
    score = (rng.random(chance.shape) < chance).astype(np.float64)
    fee = np.broadcast_to([0.0, 0.05, 0.1], chance.shape)
    return Readings(f - fee, g - fee, score - fee, fee)


@pytest.fixture(scope="module")
def trial() -> Trial:
    return Trial(arrays(150, 1), arrays(60, 2), Standing(0, 0))


@pytest.fixture(scope="module")
def played(trial: Trial) -> bids.Played:
    return bids.play(trial, COSTS, lambda c: Costs(c * WEIGHTS), traded=COSTS[:2])


def answer(conduct: str, f: float, mu: float, s: float, g: float, p: float, c: float) -> tuple[bool, bool]:
    """Whether one specialist looks and accepts."""
    if conduct == "f-only":
        return False, f > p
    if conduct == "never inspect":
        return False, mu > p
    offset = float(price_offset(np.array([s]), np.array([c]))[0])
    looks = conduct == "always inspect" or mu - offset <= p <= mu + offset
    return looks, (g if looks else mu) > p


@pytest.mark.parametrize("opponents", bids.OPPONENTS)
@pytest.mark.parametrize("conduct", bids.CONDUCTS)
@pytest.mark.parametrize("cost", COSTS)
def test_regrets_equal_those_of_a_slow_loop(trial, played, opponents, conduct, cost):
    known, test = trial.calibration, trial.test
    signal = GaussianIndependent().fit(known)
    mean, std = signal.expected(test.cheap), signal.spread(test.cheap)
    total = dict.fromkeys(bids.KINDS, 0.0)
    for i in range(len(test)):
        for m in range(3):
            others = [j for j in range(3) if j != m]
            asked = test.costly[i] if opponents == "strong" else test.cheap[i]
            rival = max(others, key=lambda j: (asked[j], -j))
            price, c = asked[rival], cost * WEIGHTS[m]
            looks, accepts = answer(
                conduct, test.cheap[i, m], mean[i, m], std[i, m], test.costly[i, m], price, c
            )
            mine, theirs = test.reward[i, m], test.reward[i, rival]
            surplus = (mine - price) * accepts - c * looks
            efficiency = (mine if accepts else theirs) - c * looks
            right = test.costly[i, m] > price
            paid = cost * sum(WEIGHTS[j] for j in others) if opponents == "strong" else 0.0
            best = {
                ("surplus", "value"): (mine - price) * right,
                ("surplus", "hindsight"): max(mine - price, 0.0),
                ("efficiency", "value"): mine if right else theirs,
                ("efficiency", "hindsight"): max(mine, theirs),
            }
            for measure, against, counted in bids.KINDS:
                own = surplus if measure == "surplus" else efficiency
                total[measure, against, counted] += best[measure, against] - own + paid * counted
    found = bids.Bids("x", "x", "", 3, 3, COSTS, COSTS[:2], [played]).regrets
    for kind, value in total.items():
        assert found[(opponents, conduct, cost), kind].mean == pytest.approx(
            value / (3 * len(test)), abs=1e-12
        )


def test_differences_are_paired_and_replicated(trial, played):
    again = bids.play(
        Trial(trial.calibration, arrays(60, 3), Standing(0, 0)), COSTS, lambda c: Costs(c * WEIGHTS)
    )
    both = bids.Bids("x", "x", "", 3, 3, COSTS, (), [played, again])
    at = ("weak", "bidder", 0.002)
    gaps = [
        (split.bids[at].surplus - split.bids["weak", "never inspect", 0.002].surplus).mean()
        for split in (played, again)
    ]
    found = both.gaps[at, "surplus"]
    assert found.mean == pytest.approx(np.mean(gaps))
    assert found.split_error == pytest.approx(abs(gaps[0] - gaps[1]) / 2)
    assert both.gaps[("weak", "never inspect", 0.002), "surplus"].mean == 0.0
    assert not both.gaps[("weak", "never inspect", 0.002), "surplus"].star


def test_mechanisms_are_judged_on_realised_rewards(trial, played):
    one = bids.Bids("x", "x", "", 3, 3, COSTS, COSTS[:2], [played])
    test = trial.test
    mean = bids.market_of(trial).mean
    best, taken = test.reward.max(axis=1), test.reward[np.arange(len(test)), mean.argmax(axis=1)]
    level, above = one.welfare["router: never inspect", 0.03]
    assert level.mean == pytest.approx((best - taken).mean())
    assert above.mean == pytest.approx(level.mean - one.welfare[bids.CENTRAL, 0.03][0].mean)
    posted = one.welfare["posted price", 0.03][0].mean
    left_out = one.welfare["posted price, others' inspections left out", 0.03][0].mean
    assert posted - left_out == pytest.approx(0.03 * WEIGHTS.sum() * 2 / 3)
    descending, obligatory = (
        one.welfare[name, 0.03][0].mean for name in ("descending", "router: obligatory")
    )
    assert descending == pytest.approx(obligatory)
