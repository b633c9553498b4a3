"""Laws of the auction generator: it is the plain loop over a mechanism, and rounds are calls side by side."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pandora_router.boxes import Draws, Independent
from pandora_router.errors import UsageError
from pandora_router.market import (
    Ascending,
    Award,
    Bid,
    Bidder,
    Call,
    Covered,
    Descending,
    Leave,
    Myopic,
    Opened,
    PostedPrice,
    Responding,
    Sealed,
    SecondPrice,
    Sequential,
    Unseen,
    Wait,
    asking_prices,
    auction,
    rounds,
    trade,
)
from pandora_router.search import OUTSIDE, Inspect, State, reveal

lawful = settings(deadline=None, max_examples=100)
NAMES = (
    "sequential",
    "descending",
    "ascending",
    "second price",
    "posted price",
    "reserved",
    "reserved second",
)


def rules(name, boxes):
    m = len(boxes.mean)
    asked = [Responding(Bidder(j)) for j in range(m)]
    return {
        "sequential": (asking_prices(boxes), asked),
        "descending": (Descending(0.3), [Covered(sealed=j % 2 == 0) for j in range(m)]),
        "ascending": (Ascending(), [Myopic()] * m),
        "second price": (SecondPrice(), [Sealed(j % 2 == 0) for j in range(m)]),
        "posted price": (PostedPrice(1), [Unseen(0.4), asked[1], *[Sealed(True)] * (m - 2)]),
        "reserved": (Ascending(0.5), [Myopic(inspect_at="mean")] * m),
        "reserved second": (SecondPrice(0.5), [Sealed(True)] * m),
    }[name]


@st.composite
def lattice(draw, least=2, most=5):
    m = draw(st.integers(least, most))

    def tenths(lo, hi):
        return np.array(draw(st.lists(st.integers(lo, hi), min_size=m, max_size=m))) / 10

    return Independent(tenths(0, 10), tenths(0, 3), tenths(0, 2) / 4), tenths(-3, 13)


def plain_loop(mechanism, bidders, boxes, values):
    """The market as one loop over `mechanism.next`: what `market` was before it was an auction."""
    book, states, events = mechanism.start(len(bidders)), [State(boxes)] * len(bidders), []
    while isinstance(call := mechanism.next(book), Call):
        me = call.bidder
        events.append(call)
        while isinstance(said := bidders[me].next(call, states[me]), Inspect):
            events.append(Opened(me, float(values[me]), float(states[me].boxes.inspection_cost[me])))
            states[me] = states[me].observe(me, float(values[me]))
        events.append(said)
        book = book.hear(call, said)
    return (*events, call), [state.spent for state in states]


@pytest.mark.parametrize("name", NAMES)
@lawful
@given(lattice())
def test_a_market_is_the_plain_loop_event_for_event(name, market):
    boxes, values = market
    mechanism, bidders = rules(name, boxes)
    events, spent = plain_loop(mechanism, bidders, boxes, values)
    record = trade(mechanism, bidders, boxes, reveal(values))
    assert record.events == events
    assert record.spent.tolist() == spent


answers = st.one_of(
    st.integers(0, 10).map(lambda x: Bid(x / 10)),
    st.integers(0, 10).map(lambda x: Wait(x / 10)),
    st.just(Leave()),
)


def step(generator, sent):
    """What a generator yields next, or what it returns, or that it refuses to go on."""
    try:
        return "yields", generator.send(sent)
    except StopIteration as end:
        return "returns", end.value
    except UsageError as error:
        return "refuses", str(error)


@pytest.mark.parametrize("name", NAMES)
@lawful
@given(lattice(), st.data())
def test_calls_of_one_round_come_whatever_is_answered(name, market, data):
    """One call at a time, any answers: the calls are those that the rounds announced."""
    mechanism, _ = rules(name, market[0])
    m = len(market[0].mean)
    asking, alone = rounds(mechanism, m), auction(mechanism, m)
    calls, call = next(asking), next(alone)
    while True:
        assert len({call.bidder for call in calls}) == len(calls)
        said = [data.draw(answers) for _ in calls]
        for expected, following, answer in zip(calls, calls[1:], said, strict=False):
            assert call == expected
            assert step(alone, answer) == ("yields", following)
            call = following
        there, here = step(asking, said), step(alone, said[-1])
        if there[0] == "returns":
            assert here == ("returns", there[1].award)
            return
        if there[0] == "refuses":
            assert here == there
            return
        calls, call = there[1], here[1]
        assert call == calls[0]


@pytest.mark.parametrize("name", ["sequential", "descending", "second price", "reserved second"])
@lawful
@given(lattice(least=3))
def test_without_its_winner_an_auction_goes_on_to_somebody_else(name, market):
    boxes, values = market
    mechanism, bidders = rules(name, boxes)
    states = [State(boxes)] * len(values)

    def answer(call):
        me = call.bidder
        while isinstance(said := bidders[me].next(call, states[me]), Inspect):
            states[me] = states[me].observe(me, float(values[me]))
        return said

    winners, book = [], None
    while True:
        asking = rounds(mechanism, len(values), book=book)
        try:
            calls = next(asking)
            while True:
                calls = asking.send([answer(call) for call in calls])
        except StopIteration as end:
            closed = end.value
        if closed.award.winner == OUTSIDE:
            break
        assert closed.award.winner not in winners
        winners.append(closed.award.winner)
        book = closed.book.left(closed.award.winner)
    assert len(winners) <= len(values)


def test_a_round_wants_one_answer_per_call():
    asking = rounds(SecondPrice(), 2)
    next(asking)
    with pytest.raises(UsageError, match="one per call"):
        asking.send([Bid(0.5)])


def test_waiting_twice_for_a_price_gone_by_is_refused():
    asking = auction(Descending(), 1)
    call = next(asking)
    assert call == Call(0, np.inf)
    assert asking.send(Wait(0.5)) == Call(0, 0.5)
    assert asking.send(Wait(0.7)) == Call(0, 0.5)
    with pytest.raises(UsageError, match="beyond the clock"):
        asking.send(Wait(0.6))


# --- sequential posted prices -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("order", "prices", "message"),
    [((0, 0), (0.1, 0.2), "each bidder once"), ((0,), (), "one price"), ((5,), (0.1,), "bidders from 0")],
)
def test_a_sequence_that_does_not_fit_is_refused(order, prices, message):
    with pytest.raises(UsageError, match=message):
        trade(
            Sequential(order, prices),
            [Unseen(0.5)] * 2,
            Independent([0.5] * 2, [0.1] * 2, 0.1),
            reveal([1, 1]),
        )


def test_the_first_who_accepts_pays_its_own_price():
    boxes = Independent([0.5, 0.4, 0.3], [0.2, 0.3, 0.1], 0.01)
    asked = Sequential((2, 0, 1), (0.6, 0.45, 0.2), otherwise=1, reserve=0.1)
    bidders = [Unseen(0.5), Unseen(0.4), Unseen(0.3)]
    assert trade(asked, bidders, boxes, reveal([0, 0, 0])).events[-1] == Award(0, 0.45)
    none = trade(Sequential((2, 0), (0.6, 0.55), 1, 0.1), bidders, boxes, reveal([0, 0, 0]))
    assert (none.winner, none.price) == (1, 0.1)
    assert trade(Sequential((2,), (0.6,)), bidders, boxes, reveal([0, 0, 0])).winner == OUTSIDE


def small(seed):
    rng = np.random.default_rng(seed)
    return Draws(rng.choice(np.arange(11) / 10, (3, 3)), rng.choice([0.01, 0.05, 0.1], 3))


@pytest.mark.parametrize("seed", range(25))
def test_asking_prices_promise_what_the_market_achieves(seed):
    """Mean welfare over all 27 outcomes = the value of the backward induction, computed here from draws."""
    boxes = small(seed)
    asked = asking_prices(boxes)
    worth = float(boxes.samples.mean(axis=1).max())
    for j in reversed(asked.order):
        looked = float(np.maximum(boxes.samples[j], worth).mean()) - float(boxes.inspection_cost[j])
        worth = max(worth, float(boxes.samples[j].mean()), looked)
    bidders = [Responding(Bidder(j)) for j in range(3)]
    welfare = [
        trade(asked, bidders, boxes, reveal(values)).welfare(values)
        for values in itertools.product(*boxes.samples)
    ]
    assert np.mean(welfare) == pytest.approx(worth, abs=1e-12)


@pytest.mark.parametrize("seed", range(25))
def test_no_way_to_answer_a_sequence_beats_the_bidder(seed):
    """Every rule of one bidder (unseen yes or no, or look and accept any set of values) against its own."""
    boxes = small(seed)
    asked = asking_prices(boxes)
    bidders = [Responding(Bidder(j)) for j in range(3)]

    class Deviant:
        def __init__(self, looks, accepted):
            self.looks, self.accepted = looks, accepted

        def next(self, call, state):
            if self.looks and state.boxes.sealed[call.bidder]:
                return Inspect((call.bidder,))
            value = round(float(state.boxes.mean[call.bidder]), 9) if self.looks else None
            return Bid(call.price) if value in self.accepted else Leave()

    def earned(own, me):
        players = [own if j == me else bidders[j] for j in range(3)]
        sales = [
            trade(asked, players, boxes, reveal(values)).surplus(values)[me]
            for values in itertools.product(*boxes.samples)
        ]
        return float(np.mean(sales))

    for me in asked.order:
        seen = sorted({round(float(x), 9) for x in boxes.samples[me]})
        subsets = [set(s) for k in range(len(seen) + 1) for s in itertools.combinations(seen, k)]
        rivals = [Deviant(False, set()), Deviant(False, {None}), *(Deviant(True, s) for s in subsets)]
        truthful = earned(bidders[me], me)
        assert all(earned(other, me) <= truthful + 1e-12 for other in rivals)
