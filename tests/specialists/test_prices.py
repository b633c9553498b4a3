"""Prices by hand: seconds that a look costs, and caches that are forgotten."""

from __future__ import annotations

import pytest

from pandora_router.prices import CACHED, Lengths, Tariff, look_fare
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
