"""Slow markets written from the definitions: clocks tick by tick, games by enumeration, tables by loops."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from pandora_router.boxes import Costs, Draws, Independent
from pandora_router.market import (
    Ascending,
    Covered,
    Descending,
    LeaveOneOut,
    Myopic,
    inspection_equilibrium,
    looking,
    trade,
)
from pandora_router.search import Batch, reveal

TICK = 5e-4


def expected_excess(mean, std, price):
    """E[(G - p)+] from the error function."""
    z = (mean - price) / std
    return (
        std * math.exp(-z * z / 2) / math.sqrt(2 * math.pi) + (mean - price) * (1 + math.erf(z / 2**0.5)) / 2
    )


def information(mean, std, price):
    return expected_excess(mean, std, price) - max(mean - price, 0.0)


def tick_down(mean, std, cost, values):
    """Fall tick by tick: look once E[(G - p)+] >= c, take the prompt once the price is at most the value."""
    opened: list[int] = []
    for price in np.arange(3.0, -3.0, -TICK):
        for j in range(len(mean)):
            if j not in opened and expected_excess(mean[j], std[j], price) >= cost[j]:
                opened.append(j)
            if j in opened and values[j] >= price:
                return j, price, opened
    raise AssertionError("nobody took it")


def tick_up(mean, std, cost, values):
    """Rise tick by tick: look once VoI(p) >= c, go once what is known is at most the price."""
    active, opened = list(range(len(mean))), []
    for price in np.arange(-3.0, 3.0, TICK):
        for j in list(active):
            if j not in opened and information(mean[j], std[j], price) >= cost[j]:
                opened.append(j)
            if (values[j] if j in opened else mean[j]) <= price:
                active.remove(j)
            if len(active) == 1:
                return active[0], price, opened
    raise AssertionError("nobody left")


def instance(seed, apart=0.0):
    """A market in which no two prices lie closer than `apart`."""
    rng = np.random.default_rng(seed)
    while True:
        drawn = draw(rng)
        boxes = Independent(*drawn[:3])
        prices = np.concatenate([boxes.backup_price(), boxes.reservation_price(), drawn[0], drawn[3]])
        if np.diff(np.sort(prices)).min() >= apart:
            return drawn


def draw(rng):
    m = int(rng.integers(2, 6))
    mean, std, cost = rng.normal(0.5, 0.2, m), rng.uniform(0.05, 0.3, m), rng.uniform(0.005, 0.12, m)
    return mean, std, cost, mean + std * rng.standard_normal(m)


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize(
    ("mechanism", "strategy", "slow"),
    [(Descending(), Covered(), tick_down), (Ascending(), Myopic(), tick_up)],
)
def test_clocks_jump_to_where_ticking_leads(seed, mechanism, strategy, slow):
    mean, std, cost, values = instance(seed, apart=2 * TICK)
    record = trade(mechanism, [strategy] * len(mean), Independent(mean, std, cost), reveal(values))
    winner, price, opened = slow(mean, std, cost, values)
    assert record.winner == winner
    assert record.price == pytest.approx(price, abs=2 * TICK)
    assert list(record.inspected) == opened


def expected_best(mean, std, looks, skip=None):
    """E of the highest bid, by quadrature of its survival function."""
    seen = [j for j in range(len(mean)) if looks[j] and j != skip]
    floor = max([mean[j] for j in range(len(mean)) if not looks[j] and j != skip], default=-4.0)

    def survival(p):
        return 1.0 - math.prod(norm.cdf(p, mean[j], std[j]) for j in seen)

    points = [x for j in seen for x in (mean[j] - 2 * std[j], mean[j], mean[j] + 2 * std[j]) if floor < x < 4]
    return floor + quad(survival, floor, 4.0, points=points or None, limit=400)[0]


@pytest.mark.parametrize(
    ("seed", "share"), [*((seed, 0.0) for seed in range(8)), *((s, 0.8) for s in range(4))]
)
def test_nobody_gains_by_changing_whether_it_looks(seed, share):
    mean, std, cost, _ = instance(seed)
    refund = share * cost
    looks = inspection_equilibrium(Batch(mean[None], std[None], Costs(cost, refund=refund)), cells=512)[0]
    for j in range(len(mean)):
        other = looks.copy()
        other[j] = not other[j]
        rivals = expected_best(mean + refund * looks, std, looks, skip=j)
        stay, change = (
            expected_best(mean + refund * d, std, d) - rivals - cost[j] * d[j] for d in (looks, other)
        )
        assert change <= stay + 2e-5


def test_an_early_looker_may_become_superfluous():
    """Greedy steps first send bidder 2 to look and call it back after the others have looked."""
    mean, std = np.array([0.66, 0.84, 0.71, 0.51]), np.array([0.25, 0.27, 0.33, 0.21])
    cost = np.array([0.02, 0.04, 0.06, 0.01])
    looks = inspection_equilibrium(Batch(mean[None], std[None], cost), cells=512)[0]
    assert looks.tolist() == [True, True, False, False]
    with_it = looks | (np.arange(4) == 2)
    gain = expected_best(mean, std, with_it) - expected_best(mean, std, looks) - cost[2]
    assert gain < 0.0


@pytest.mark.parametrize("seed", range(12))
def test_looking_with_draws_is_an_equilibrium_by_enumeration(seed):
    rng = np.random.default_rng(seed)
    table, cost = np.sort(rng.random((3, 3)), axis=1), rng.uniform(0.01, 0.08, 3)
    boxes = Draws(table, cost)
    looks = looking(boxes, cells=4096)

    def surplus(j, d):
        total = 0.0
        for outcome in itertools.product(range(3), repeat=3):
            bids = [table[k, outcome[k]] if d[k] else table[k].mean() for k in range(3)]
            rival = max(bids[k] for k in range(3) if k != j)
            total += max(bids[j] - rival, 0.0) / 27
        return total - cost[j] * d[j]

    for j in range(3):
        other = looks.copy()
        other[j] = not other[j]
        assert surplus(j, other) <= surplus(j, looks) + 1e-3


@pytest.mark.parametrize("share", [0.0, 0.6, 1.0])
@pytest.mark.parametrize("opponents", ["strong", "weak"])
@pytest.mark.parametrize("conduct", ["f-only", "never inspect", "always inspect", "bidder"])
def test_leave_one_out_by_loops(conduct, opponents, share):
    rng = np.random.default_rng(5)
    n, m = 40, 6
    mean, std = rng.uniform(0.2, 0.8, (n, m)).round(2), rng.uniform(0.05, 0.3, (n, m))
    scores, cost = rng.uniform(0, 1, (n, m)).round(1), rng.uniform(0.005, 0.1, m)
    values = (mean + std * rng.standard_normal((n, m))).round(1)
    rewards = (rng.random((n, m)) < values).astype(float)
    refund = share * cost
    table = LeaveOneOut(scores, mean, std, values, rewards, opponents=opponents)
    played = table.play(conduct, Costs(cost, refund=refund))
    strong = opponents == "strong"
    paid = values + refund if strong else scores
    for i in range(n):
        surplus = efficiency = looked = others = 0.0
        for j in range(m):
            price, rival = max((paid[i, k], -k) for k in range(m) if k != j)
            rival = -rival
            news = expected_excess(mean[i, j] + refund[j], std[i, j], price) - max(mean[i, j] - price, 0.0)
            looks = conduct == "always inspect" or (conduct == "bidder" and news >= cost[j] - 1e-14)
            known = mean[i, j] if conduct != "f-only" else scores[i, j]
            accepts = (values[i, j] + refund[j] if looks else known) > price
            spent = (cost[j] - refund[j] * accepts) * looks
            surplus += (rewards[i, j] - price) * accepts - spent
            efficiency += rewards[i, j if accepts else rival] - spent
            looked += looks
            others += (sum(cost) - cost[j] - refund[rival] * (not accepts)) * strong
        found = (played.surplus[i], played.efficiency[i], played.inspections[i], played.others_cost[i])
        assert found == pytest.approx((surplus / m, efficiency / m, looked / m, others / m), abs=1e-12)
        counted = played.regret("efficiency", counted=True) - played.regret("efficiency")
        assert counted[i] == pytest.approx(others / m, abs=1e-12)
