"""Prices by hand: seconds that a look costs, caches that are forgotten; and the law of the worst case."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pandora_router.prices import CACHED, MARKERS, Lengths, Tariff, look_fare
from pandora_router.wires.demand import Demand
from pandora_router.wires.usage import Usage


def test_a_cancelled_look_pays_for_the_seconds_that_it_read_and_no_more() -> None:
    """A specialist by the second: 0.5 s to the first token and 10 tokens at 20 a second, of 4 s in all."""
    lengths = Lengths.of({"output": 50.0, "rate": 20.0, "first_token": 0.5, "seconds": 4.0})
    tariff = Tariff(0.0, 0.0, per_second=0.01)
    for cancel, seconds in (("stops", 1.0), ("bills_full", 4.0), ("unknown", 4.0)):
        fare = look_fare(tariff, cancel, lengths, 0.0, 10.0, 4096)  # type: ignore[arg-type]
        assert fare.money == pytest.approx(0.01 * seconds)
        assert fare.whole == pytest.approx(0.04)


def test_a_cached_prompt_is_expected_to_be_forgotten() -> None:
    lengths = Lengths()
    lengths.answered(Usage(100, 200, 0, 10), 1.0, size=1000, prefix="p", now=50.0)
    within = lengths.expected(1000, "chat", "p", 10.0, 50.0 + CACHED - 1.0)
    after = lengths.expected(1000, "chat", "p", 10.0, 50.0 + CACHED + 1.0)
    assert (within.cached, after.cached) == (200, 0)
    assert within.fresh + within.cached == after.fresh == 300


def test_a_call_is_long_from_one_token_above_its_threshold_on() -> None:
    """The whole input counts, wherever it came from; at the threshold itself the usual prices hold."""
    tariff = Tariff(1.0, 10.0, above=((1000, Tariff(2.0, 20.0)),))
    for usage, price in (
        (Usage(1000, 0, 0, 10), 1000 * 1.0 + 10 * 10.0),
        (Usage(1001, 0, 0, 10), 1001 * 2.0 + 10 * 20.0),
        (Usage(400, 300, 300, 10), 1000 * 1.0 + 10 * 10.0),
        (Usage(400, 300, 301, 10), 1001 * 2.0 + 10 * 20.0),
    ):
        assert tariff.of(usage) == pytest.approx(price / 1e6)


@given(st.lists(st.integers(0, 9000), min_size=9, max_size=9))
def test_every_token_is_billed_once_at_the_price_of_its_part(counts: list[int]) -> None:
    """A bill written as a provider would: one line per kind of token, all prices different."""
    plain, cached, write, hour, heard, seen, said, spoken, drawn = counts
    tariff = Tariff(
        2.0,
        11.0,
        **{"cached_in": 0.3, "cached_write": 2.5, "cached_write_hour": 4.1, "audio_in": 32.0},
        **{"image_in": 5.3, "audio_out": 64.0, "image_out": 40.7},
    )
    usage = Usage(
        fresh=plain + heard + seen,
        cached=cached,
        written=write + hour,
        written_hour=hour,
        output=said + spoken + drawn,
        audio_in=heard,
        image_in=seen,
        audio_out=spoken,
        image_out=drawn,
    )
    prices = (2.0, 0.3, 2.5, 4.1, 32.0, 5.3, 11.0, 64.0, 40.7)
    bill = sum(count * price for count, price in zip(counts, prices, strict=True))
    assert tariff.of(usage) == pytest.approx(bill / 1e6, abs=1e-12)


def test_providers_that_cache_unasked_begin_at_a_length() -> None:
    unasked, asked = Tariff(3.0, 15.0, cached_in=0.3), Tariff(3.0, 15.0, cached_in=0.3, cached_write=3.75)
    assert [unasked.holds(Usage(fresh, 24)) for fresh in (999, 1000)] == [0, 1024]
    assert asked.holds(Usage(10, 20, 30)) == 50
    assert Tariff(3.0, 15.0).holds(Usage(5000)) == 0


def test_a_request_that_names_no_tier_is_reserved_in_the_dearest_but_batch() -> None:
    tiers = (("batch", Tariff(90.0, 90.0)), ("flex", Tariff(1.0, 5.0)), ("priority", Tariff(6.0, 30.0)))
    tariff = Tariff(3.0, 15.0, service_tier=tiers)
    tokens = 1000 + MARKERS
    for demand, price in (
        (Demand(), tokens * 6.0 + 100 * 30.0),
        (Demand("flex"), tokens * 3.0 + 100 * 15.0),
        (Demand("batch"), tokens * 90.0 + 100 * 90.0),
    ):
        assert tariff.most(1000, 100, demand=demand) == pytest.approx(price / 1e6)


PRICE = st.floats(0.0, 100.0)
PART = st.none() | PRICE
PLAIN_PRICES = st.builds(
    Tariff,
    PRICE,
    PRICE,
    cached_in=PART,
    cached_write=PART,
    cached_write_hour=PART,
    audio_in=PART,
    image_in=PART,
    audio_out=PART,
    image_out=PART,
)
LONGER = st.builds(
    lambda base, steps: replace(base, above=tuple(sorted(steps.items(), key=lambda step: step[0]))),
    PLAIN_PRICES,
    st.dictionaries(st.integers(1, 300), PLAIN_PRICES, max_size=2),
)
ALL_PRICES = st.builds(
    lambda base, tiers, speeds, search: replace(
        base,
        service_tier=tuple(tiers.items()),
        speed=tuple(speeds.items()),
        tools=(("web_search", search),),
    ),
    LONGER,
    st.dictionaries(st.sampled_from(["priority", "flex"]), LONGER),
    st.dictionaries(st.just("fast"), LONGER),
    PRICE,
)


@given(ALL_PRICES, st.data())
def test_no_bill_is_higher_than_the_worst_case_of_what_was_asked(prices: Tariff, data: st.DataObject) -> None:
    """Whatever the provider bills within the limits of a request: parts, tier, length, calls of a tool."""
    names = ["cached_write_hour", "audio_in", "image_in", "audio_out", "image_out"]
    parts = data.draw(st.frozensets(st.sampled_from(names)))
    tier = data.draw(st.sampled_from(["auto", "", *dict(prices.service_tier)]))
    speed = data.draw(st.sampled_from(["", *dict(prices.speed)])) if tier in ("auto", "") else ""
    calls = data.draw(st.integers(1, 5))
    demand = Demand(tier, speed, parts, (("web_search", calls),))
    size, most = data.draw(st.integers(0, 400)), data.draw(st.integers(1, 400))
    read = data.draw(st.integers(0, size + MARKERS))
    cached = data.draw(st.integers(0, read))
    written = data.draw(st.integers(0, read - cached))
    output = data.draw(st.integers(0, most))
    fresh = read - cached - written

    def some(name: str, of: int) -> int:
        return data.draw(st.integers(0, of)) if name in parts else 0

    sounds, spoken = some("audio_in", fresh), some("audio_out", output)
    served = [name for name in ("", *dict(prices.service_tier)) if tier in ("auto", name) or name == ""]
    usage = Usage(
        fresh,
        cached,
        written,
        output,
        written_hour=some("cached_write_hour", written),
        audio_in=sounds,
        image_in=some("image_in", fresh - sounds),
        audio_out=spoken,
        image_out=some("image_out", output - spoken),
        service_tier="" if speed else data.draw(st.sampled_from(served)),
        speed=data.draw(st.sampled_from(sorted({"", speed}))),
        tools=(("web_search", data.draw(st.integers(0, calls))),),
    )
    bound = prices.most(size, most, demand=demand)
    assert prices.of(usage) <= bound * (1 + 1e-9) + 1e-15
