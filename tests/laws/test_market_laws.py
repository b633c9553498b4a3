"""Laws of the mechanisms: who wins and looks, where the money goes, and what does not matter."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pandora_router.boxes import Costs, Draws, Independent, Joint, Ladder, LowRank
from pandora_router.errors import UsageError
from pandora_router.market import (
    STRONG,
    WEAK,
    Ascending,
    Bidder,
    Covered,
    Descending,
    Myopic,
    PostedPrice,
    Responding,
    Sealed,
    SecondPrice,
    Unseen,
    Wait,
    announced_holdout,
    ascending,
    compare,
    covered_plans,
    descending,
    deviations,
    generate,
    held_plans,
    interval,
    myopic_plans,
    sealed_plans,
    second_price,
    trade,
    value_of_information,
)
from pandora_router.search import OUTSIDE, Batch, Committing, Inspect, Obligatory, State, drive, reveal, run

lawful = settings(deadline=None, max_examples=150)


@st.composite
def lattice(draw, least: int = 2, most: int = 6):
    """Boxes and values on a coarse lattice, so that ties, free boxes and certain boxes all occur."""
    m = draw(st.integers(least, most))

    def tenths(lo, hi):
        return np.array(draw(st.lists(st.integers(lo, hi), min_size=m, max_size=m))) / 10

    kind = draw(st.sampled_from(["normal", "draws"]))
    cost = draw(st.sampled_from([0.0, 0.01, 0.05, 0.1, 0.3])) * np.ones(m)
    if draw(st.booleans()):
        cost = tenths(0, 2)
    if kind == "normal":
        return Independent(tenths(0, 10), tenths(0, 3), cost), tenths(-3, 13)
    table = np.stack([tenths(0, 10) for _ in range(3)], axis=1)
    return Draws(table, cost), table[np.arange(m), draw(st.integers(0, 2))]


@st.composite
def ladders(draw):
    seed = draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    m = draw(st.integers(2, 4))
    mean = rng.normal(0.5, 0.2, m)
    stds, costs = rng.uniform(0.05, 0.3, (m, 2)), rng.uniform(0.005, 0.06, (m, 2))
    values = mean[:, None] + np.cumsum(stds * rng.standard_normal((m, 2)), axis=1)
    return Ladder(mean, stds, costs, skip=False), values


def same_search(boxes, values, reserve=-np.inf, open=None):
    open = open or reveal(values)
    trace = drive(Obligatory(), State(boxes, outside=reserve), open)
    record = trade(Descending(reserve), [Covered()] * len(boxes.mean), boxes, open)
    assert record.winner == trace.selected
    assert record.inspected == trace.inspected
    assert record.spent.sum() == pytest.approx(trace.spent, abs=1e-15)
    return record


@lawful
@given(lattice(least=1))
def test_descending_is_the_obligatory_router(market):
    same_search(*market)


@lawful
@given(lattice(least=1), st.sampled_from([0.5, 1.0]))
def test_descending_with_refunds_is_the_obligatory_router(market, share):
    """The winner goes on with what it began: the same part of the same bill comes back in both."""
    boxes, values = market
    own = boxes.costs.own
    costs = Costs(own, refund=share * own)
    if isinstance(boxes, Draws):
        refunded = Draws(boxes.samples, costs)
    else:
        refunded = Independent(boxes.mean, boxes.std, costs)
    record = same_search(refunded, values)
    back = share * own[record.winner] if record.winner in record.inspected else 0.0
    assert record.refunded == pytest.approx(back)
    assert record.welfare(values) == pytest.approx(values[record.winner] - record.spent.sum())


LEVEL = Independent([0.1, 0.8, 0.7], [0.0, 0.0, 0.1], [0.2, 0.1, 0.1])
"""A reservation price of .8 - .1, which rounding puts beside a reserve of .7."""


@lawful
@given(lattice(least=1), st.integers(0, 10))
@example((LEVEL, np.array([0.4, 1.3, -0.1])), 7)
def test_descending_with_a_reserve_is_the_obligatory_router_with_an_outside_option(market, tenths):
    same_search(*market, reserve=tenths / 10)


@settings(deadline=None, max_examples=10)
@given(ladders())
def test_descending_is_the_obligatory_router_on_ladders(market):
    same_search(*market)


@lawful
@given(lattice(), st.integers(0, 63))
def test_descending_is_the_obligatory_router_when_inspections_fail(market, failing):
    boxes, values = market

    def open(state, inspect):
        return [None if failing >> box & 1 else float(values[box]) for box in inspect.boxes]

    same_search(boxes, values, open=open)


@lawful
@given(lattice())
def test_a_covered_winner_pays_the_smaller_of_value_and_reservation_price(market):
    boxes, values = market
    record = same_search(boxes, values)
    kappa = np.minimum(values, boxes.reservation_price())
    assert record.price == pytest.approx(kappa.max(), abs=1e-12)
    assert kappa[record.winner] == pytest.approx(record.price, abs=1e-12)


def random_batch(seed: int, queries: int = 60, boxes: int = 5, refund: float = 0.0):
    rng = np.random.default_rng(seed)
    mean = rng.normal(0.5, 0.15, (queries, boxes))
    std = rng.uniform(0.02, 0.3, (queries, boxes))
    cost = rng.uniform(0.005, 0.08, boxes)
    batch = Batch(mean, std, Costs(cost, refund=refund * cost))
    return batch, mean + std * rng.standard_normal(mean.shape)


@pytest.mark.parametrize("outside", ["mean", "backup"])
@pytest.mark.parametrize(("seed", "refund"), [(0, 0.0), (1, 0.0), (2, 0.5), (3, 0.9)])
def test_descending_with_an_announced_holdout_is_the_committing_router(seed, refund, outside):
    batch, values = random_batch(seed, refund=refund)
    sales = descending(held_plans(batch, values, *announced_holdout(batch, outside)))
    router = run(Committing(outside=outside, payoff="exact"), batch, values, threads=1)
    assert (announced_holdout(batch, outside)[0] >= 0).any()
    np.testing.assert_array_equal(sales.winner, router.choice)
    np.testing.assert_array_equal(sales.inspected.sum(axis=1), router.inspections)
    np.testing.assert_allclose(sales.spent.sum(axis=1), router.spent, atol=1e-14)


def strategies(name, m):
    return {
        "descending": (Descending(), [Covered()] * m),
        "descending sealed": (Descending(), [Covered(sealed=True, shade=0.02)] * m),
        "ascending": (Ascending(), [Myopic()] * m),
        "ascending patient": (Ascending(), [Myopic(inspect_at="mean", shade=0.1)] * m),
        "second price": (SecondPrice(), [Sealed(j % 2 == 0) for j in range(m)]),
        "posted price": (PostedPrice(0), [Responding(Bidder(0)), *[Sealed(True)] * (m - 1)]),
        "reserved": (Ascending(reserve=0.6), [Myopic()] * m),
        "reserved second price": (SecondPrice(reserve=0.6), [Sealed(True)] * m),
    }[name]


MECHANISMS = [
    "descending",
    "descending sealed",
    "ascending",
    "ascending patient",
    "second price",
    "posted price",
    "reserved",
    "reserved second price",
]


@pytest.mark.parametrize("name", MECHANISMS)
@settings(deadline=None, max_examples=60)
@given(lattice())
def test_welfare_is_revenue_plus_surpluses_and_every_look_is_paid_once(name, market):
    boxes, values = market
    mechanism, bidders = strategies(name, len(values))
    record = trade(mechanism, bidders, boxes, reveal(values))
    assert record.welfare(values) == pytest.approx(record.revenue + record.surplus(values).sum(), abs=1e-12)
    assert len(set(record.inspected)) == len(record.inspected)
    looked = np.isin(np.arange(len(values)), record.inspected)
    np.testing.assert_array_equal(record.spent, np.where(looked, boxes.inspection_cost, 0.0))


@pytest.mark.parametrize("name", [n for n in MECHANISMS if n not in ("second price", "posted price")])
@settings(deadline=None, max_examples=40)
@given(st.integers(0, 2**32 - 1), st.permutations(range(5)))
def test_renaming_the_bidders_renames_the_record(name, seed, order):
    rng = np.random.default_rng(seed)
    mean, std, cost = rng.normal(0.5, 0.2, 5), rng.uniform(0.05, 0.3, 5), rng.uniform(0.005, 0.1, 5)
    values, order = mean + std * rng.standard_normal(5), np.array(order)
    mechanism, bidders = strategies(name, 5)
    here = trade(mechanism, bidders, Independent(mean, std, cost), reveal(values))
    there = trade(
        mechanism, bidders, Independent(mean[order], std[order], cost[order]), reveal(values[order])
    )
    assert here.winner == (OUTSIDE if there.winner == OUTSIDE else order[there.winner])
    assert here.price == there.price
    # those who look at the opening price are asked in the order of their names
    kept = sorted if "reserved" in name else list
    assert kept(int(order[j]) for j in there.inspected) == kept(here.inspected)


def with_refunds(boxes: Independent, quarters: int) -> Independent:
    """The same boxes when so many quarters of every own cost come back."""
    own = boxes.costs.own
    return Independent(boxes.mean, boxes.std, Costs(own, refund=quarters / 4 * own))


@lawful
@given(
    lattice(),
    st.sampled_from(["descending", "descending sealed", "ascending", "ascending patient"]),
    st.integers(0, 4),
)
def test_the_batch_is_the_driver(market, name, quarters):
    boxes, values = market
    if not isinstance(boxes, Independent):
        return
    boxes = with_refunds(boxes, quarters)
    batch, shown = Batch(boxes.mean[None], boxes.std[None], boxes.costs), values[None]
    sales = {
        "descending": lambda: descending(covered_plans(batch, shown)),
        "descending sealed": lambda: descending(covered_plans(batch, shown, sealed=True, shade=0.02)),
        "ascending": lambda: ascending(myopic_plans(batch, shown)),
        "ascending patient": lambda: ascending(myopic_plans(batch, shown, inspect_at="mean", shade=0.1)),
    }[name]()
    record = trade(*strategies(name, len(values)), boxes, reveal(values))  # type: ignore[call-arg]
    assert (int(sales.winner[0]), sales.price[0]) == (record.winner, pytest.approx(record.price, abs=1e-12))
    assert np.flatnonzero(sales.inspected[0]).tolist() == sorted(record.inspected)
    np.testing.assert_allclose(sales.surplus(shown)[0], record.surplus(values), atol=1e-12)
    assert sales.refunded[0] == record.refunded
    assert sales.welfare(shown)[0] == pytest.approx(record.welfare(values), abs=1e-12)


@lawful
@given(lattice(), st.integers(0, 63), st.integers(0, 4))
def test_the_sealed_batch_is_the_driver(market, looking, quarters):
    boxes, values = market
    if not isinstance(boxes, Independent):
        return
    boxes = with_refunds(boxes, quarters)
    looks = np.array([bool(looking >> j & 1) for j in range(len(values))])
    batch = Batch(boxes.mean[None], boxes.std[None], boxes.costs)
    sales = second_price(sealed_plans(batch, values[None], looks[None]))
    record = trade(SecondPrice(), [Sealed(bool(x)) for x in looks], boxes, reveal(values))
    assert (int(sales.winner[0]), sales.price[0]) == (record.winner, record.price)
    np.testing.assert_array_equal(sales.spent[0], record.spent)


def laws(seed: int):
    rng = np.random.default_rng(seed)
    mean, cost = rng.normal(0.5, 0.2, 4), rng.uniform(0.01, 0.1, 4)
    factor = rng.normal(0, 0.15, (4, 2))
    covariance = factor @ factor.T + np.diag(rng.uniform(0.001, 0.05, 4))
    quantiles = np.sort(rng.standard_gamma(1.0, (4, 15)) - 1.0, axis=1)
    quantiles -= quantiles.mean(axis=1, keepdims=True)
    return [
        Independent(mean, np.sqrt(np.diag(covariance)), cost),
        Joint(mean, covariance, cost),
        Joint(mean, covariance, cost, quantiles),
        LowRank(mean, factor, rng.uniform(0.001, 0.05, 4), cost),
        Draws(rng.choice([0.0, 0.3, 1.0], (4, 9)), cost),
    ]


@pytest.mark.parametrize("kind", range(5))
@pytest.mark.parametrize("seed", range(5))
def test_the_interval_is_where_the_value_of_information_covers_the_cost(kind, seed):
    boxes = laws(seed)[kind]
    lower, upper = interval(boxes)
    np.testing.assert_allclose(lower, boxes.backup_price(), atol=1e-14)
    np.testing.assert_allclose(upper, boxes.reservation_price(), atol=1e-14)
    for price in np.linspace(-0.5, 1.5, 801):
        clear = (np.abs(price - lower) > 1e-9) & (np.abs(price - upper) > 1e-9)
        pays = value_of_information(boxes, price) >= boxes.inspection_cost
        np.testing.assert_array_equal(pays[clear], ((lower <= price) & (price <= upper))[clear])


@pytest.mark.parametrize("kind", range(5))
def test_the_bidder_earns_what_its_options_are_worth(kind):
    """Its expected profit is max(0, mu - p, E[(G - p)+] - c), for every law and price."""
    boxes = laws(3)[kind]
    draws = boxes.sample(4000, np.random.default_rng(0))[:, 2]
    for price in (0.2, 0.45, 0.6, 0.9):
        state = State(boxes, outside=price)
        options = (0.0, boxes.mean[2] - price, boxes.gain(price)[2] - boxes.inspection_cost[2])
        action = Bidder(2).next(state)
        best = int(np.argmax(options))
        assert type(action).__name__ == ("Inspect" if best == 2 else "Select")
        if best == 2:
            mean = (np.maximum(draws - price, 0.0)).mean() - boxes.inspection_cost[2]
            assert mean == pytest.approx(options[2], abs=4 * draws.std() / np.sqrt(4000))


def test_a_bidder_never_sees_another_box():
    class Nosy:
        def next(self, call, state):
            return Inspect((1 - call.bidder,))

    with pytest.raises(UsageError, match="its own box"):
        trade(Descending(), [Nosy(), Nosy()], Independent([0.5, 0.4], [0.2, 0.3], 0.01), reveal([0.6, 0.7]))


def test_waiting_for_a_price_gone_by_is_refused():
    class Sleepy:
        def next(self, call, state):
            return Wait(0.9)

    with pytest.raises(UsageError, match="beyond the clock"):
        trade(
            Descending(), [Sleepy(), Unseen(0.1)], Independent([0.5, 0.4], [0.2, 0.3], 0.01), reveal([1, 1])
        )


@pytest.mark.parametrize("mechanism", [Ascending(), SecondPrice()])
def test_one_bidder_alone_needs_a_reserve(mechanism):
    with pytest.raises(UsageError, match="finite reserve"):
        trade(mechanism, [Sealed(False)], Independent([0.5], [0.2], 0.01), reveal([0.6]))


@pytest.mark.parametrize("shade", [-0.3, -0.02, 0.01, 0.1])
@pytest.mark.parametrize("seed", range(3))
def test_at_second_price_shading_a_known_value_never_gains(seed, shade):
    batch, values = random_batch(seed)
    everyone = np.ones(values.shape, dtype=bool)
    truthful, shaded = (
        sealed_plans(batch, values, everyone),
        sealed_plans(batch, values, everyone, shade=shade),
    )
    for m in range(values.shape[1]):
        gain = second_price(truthful.but(m, shaded)).surplus(values) - second_price(truthful).surplus(values)
        assert gain[:, m].max() <= 1e-15


def test_a_covered_bidder_earns_nothing_in_expectation_and_shading_pays():
    instance = generate(WEAK, 20_000, 4, np.random.default_rng(0))
    batch, values = instance.batch(0.02), instance.values
    truthful = covered_plans(batch, values)
    earned = descending(truthful).surplus(values)
    error = earned.std(axis=0, ddof=1) / np.sqrt(len(earned))
    assert (np.abs(earned.mean(axis=0)) < 4 * error).all()
    shaded = {"shaded": covered_plans(batch, values, shade=0.05)}
    (found,) = deviations(descending, truthful, shaded, values, range(4))
    assert found.gain > 10 * found.error


@pytest.mark.parametrize("signal", [WEAK, STRONG])
def test_the_table_balances_and_the_clock_is_the_router(signal):
    instance = generate(signal, 200, 6, np.random.default_rng(1))
    found = compare(instance, 0.02)
    best = float(instance.values.max(axis=1).mean())
    for name, result in found.items():
        if not name.startswith("router"):
            assert best - result.regret == pytest.approx(result.revenue + result.surplus, abs=1e-12)
    for clock, router in (("descending", "obligatory"), ("descending, announced holdout", "committing")):
        assert found[clock].regret == pytest.approx(found[f"router: {router}"].regret, abs=1e-12)
        assert found[clock].inspections == found[f"router: {router}"].inspections
    assert found["ascending"].inspections > found["descending"].inspections
