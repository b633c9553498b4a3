"""Exact event lists of each mechanism on instances small enough to check by hand.

Two-valued boxes have prices in round numbers: {0, 1} at cost 0.1 has mean 0.5, reservation price 0.8 (half of
1 - u is 0.1) and backup price 0.2; {0.4, 0.8} at cost 0.05 has mean 0.6, reservation price 0.7 and backup
price 0.5.
"""

from __future__ import annotations

import math

import pytest

from pandora_router.boxes import Draws
from pandora_router.market import (
    Ascending,
    Award,
    Bid,
    Bidder,
    Call,
    Covered,
    Descending,
    Guided,
    Leave,
    Myopic,
    Opened,
    PostedPrice,
    Responding,
    Sealed,
    SecondPrice,
    Unseen,
    Wait,
    trade,
)
from pandora_router.search import OUTSIDE, Inspect, Select, State, drive, reveal

TOP, BOTTOM = math.inf, -math.inf
WIDE, NARROW = [0.0, 1.0], [0.4, 0.8]


def boxes():
    return Draws([WIDE, NARROW], [0.1, 0.05])


def script(mechanism, bidders, values):
    """The events with prices rounded to nine digits."""
    events = []
    for event in trade(mechanism, bidders, boxes(), reveal(values)).events:
        fields = (getattr(event, name) for name in event.__slots__)
        events.append(type(event)(*(round(x, 9) if isinstance(x, float) else x for x in fields)))
    return events


@pytest.mark.parametrize(
    ("reserve", "looks"), [(0.1, False), (0.25, True), (0.5, True), (0.75, True), (0.9, False)]
)
def test_a_guided_bidder_looks_where_the_reserve_is_a_price_at_which_a_look_pays(reserve, looks):
    """The box of {0, 1} at cost 0.1: from 0.2 to 0.8. What is then known is bid, minus the shade."""
    bidder, call, sealed = Guided(shade=0.05), Call(0, reserve), State(boxes())
    assert bidder.next(call, sealed) == (Inspect((0,)) if looks else Bid(0.45))
    opened = sealed.observe(0, 1.0)
    assert bidder.next(call, opened) == Bid(0.95)


def test_a_myopic_bidder_bids_its_shade_less_than_it_knows():
    bidder, sealed = Myopic(shade=0.1), State(boxes())
    assert bidder.next(Call(0, 0.9), sealed) == Bid(0.4)
    assert bidder.next(Call(0, 0.5), sealed) == Inspect((0,))
    assert bidder.next(Call(0, 0.5), sealed.observe(0, 1.0)) == Bid(0.9)


def test_descending_stops_at_the_first_good_value():
    assert script(Descending(), [Covered(), Covered()], [1.0, 0.8]) == [
        Call(0, TOP),
        Wait(0.8),
        Call(1, TOP),
        Wait(0.7),
        Call(0, 0.8),
        Opened(0, 1.0, 0.1),
        Bid(0.8),
        Award(0, 0.8),
    ]


def test_descending_falls_on_after_a_bad_value():
    assert script(Descending(), [Covered(), Covered()], [0.0, 0.4]) == [
        Call(0, TOP),
        Wait(0.8),
        Call(1, TOP),
        Wait(0.7),
        Call(0, 0.8),
        Opened(0, 0.0, 0.1),
        Bid(0.0),
        Call(1, 0.7),
        Opened(1, 0.4, 0.05),
        Bid(0.4),
        Award(1, 0.4),
    ]


def test_descending_passes_a_held_box_its_prompt_unseen():
    assert script(Descending(), [Covered(), Unseen(0.6)], [0.0, 0.4]) == [
        Call(0, TOP),
        Wait(0.8),
        Call(1, TOP),
        Bid(0.6),
        Call(0, 0.8),
        Opened(0, 0.0, 0.1),
        Bid(0.0),
        Award(1, 0.6),
    ]


def test_descending_keeps_the_prompt_at_the_reserve():
    assert script(Descending(reserve=0.75), [Covered(), Covered()], [0.0, 0.8])[-3:] == [
        Opened(0, 0.0, 0.1),
        Bid(0.0),
        Award(OUTSIDE, 0.75),
    ]


def test_ascending_lets_everyone_look():
    assert script(Ascending(), [Myopic(), Myopic()], [1.0, 0.8]) == [
        Call(0, BOTTOM),
        Wait(0.2),
        Call(1, BOTTOM),
        Wait(0.5),
        Call(0, 0.2),
        Opened(0, 1.0, 0.1),
        Bid(1.0),
        Call(1, 0.5),
        Opened(1, 0.8, 0.05),
        Bid(0.8),
        Award(0, 0.8),
    ]


def test_ascending_ends_before_the_last_one_has_to_look():
    assert script(Ascending(), [Myopic(), Myopic()], [0.0, 0.8]) == [
        Call(0, BOTTOM),
        Wait(0.2),
        Call(1, BOTTOM),
        Wait(0.5),
        Call(0, 0.2),
        Opened(0, 0.0, 0.1),
        Bid(0.0),
        Award(1, 0.2),
    ]


def test_second_price_asks_once():
    assert script(SecondPrice(), [Sealed(True), Sealed(False)], [1.0, 0.4]) == [
        Call(0, BOTTOM),
        Opened(0, 1.0, 0.1),
        Bid(1.0),
        Call(1, BOTTOM),
        Bid(0.6),
        Award(0, 0.6),
    ]


@pytest.mark.parametrize(
    ("value", "answer", "award"), [(1.0, Bid(0.4), Award(0, 0.4)), (0.0, Leave(), Award(1, 0.4))]
)
def test_posted_price_is_accepted_or_declined_after_a_look(value, answer, award):
    assert script(PostedPrice(0), [Responding(Bidder(0)), Sealed(True)], [value, 0.4]) == [
        Call(1, BOTTOM),
        Opened(1, 0.4, 0.05),
        Bid(0.4),
        Call(0, 0.4),
        Opened(0, value, 0.1),
        answer,
        award,
    ]


def test_posted_price_above_the_interval_is_declined_unseen():
    assert script(PostedPrice(0), [Responding(Bidder(0)), Unseen(0.85)], [1.0, 0.4]) == [
        Call(1, BOTTOM),
        Bid(0.85),
        Call(0, 0.85),
        Leave(),
        Award(1, 0.85),
    ]


def test_money_of_the_first_script():
    record = trade(Descending(), [Covered(), Covered()], boxes(), reveal([1.0, 0.8]))
    assert record.revenue == pytest.approx(0.8)
    assert record.surplus([1.0, 0.8]) == pytest.approx([0.1, 0.0])
    assert record.welfare([1.0, 0.8]) == pytest.approx(0.9)


@pytest.mark.parametrize(
    ("price", "actions"),
    [
        (0.19, (Select(0),)),
        (0.2, (Inspect((0,)), Select(0))),
        (0.8, (Inspect((0,)), Select(0))),
        (0.81, (Select(OUTSIDE),)),
    ],
)
def test_the_bidder_looks_at_both_ends_of_its_interval(price, actions):
    assert drive(Bidder(), State(Draws([WIDE], [0.1]), outside=price), reveal([1.0])).actions == actions


def test_a_value_equal_to_the_price_is_declined():
    trace = drive(Bidder(), State(Draws([NARROW], [0.05]), outside=0.6), reveal([0.6]))
    assert trace.actions == (Inspect((0,)), Select(OUTSIDE))
