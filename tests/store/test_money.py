"""Amounts of money: exact where they can be, rounded up where not, refused where no column can hold them."""

from __future__ import annotations

from datetime import UTC, datetime
from fractions import Fraction
from math import ceil, inf, nan

import pytest

from pandora_router.errors import UsageError
from pandora_router.store.money import LARGEST, UNIT, dollars, nanodollars, period_bounds, period_of


@pytest.mark.parametrize("amount", ["0.0000000011", "0.0000010004", "1.2345678901", "0.0000000000001"])
def test_parts_of_a_nanodollar_are_rounded_up(amount: str) -> None:
    assert nanodollars(float(amount)) == ceil(Fraction(amount) * UNIT)


@pytest.mark.parametrize(("amount", "exact"), [(0.1 + 0.2, 300_000_000), (0.07, 70_000_000), (0.0, 0)])
def test_the_rounding_of_binary_fractions_is_not_charged(amount: float, exact: int) -> None:
    assert nanodollars(amount) == exact


def test_what_a_column_cannot_hold_is_refused() -> None:
    most = LARGEST // UNIT
    assert nanodollars(most) == most * UNIT
    assert dollars(nanodollars(most)) == most
    for amount in (most + 1, 1e300, inf, nan, -1e-9):
        with pytest.raises(UsageError, match="an amount of money"):
            nanodollars(amount)


def test_weeks_begin_on_monday_as_the_calendar_of_iso_8601_has_it() -> None:
    for day in range(20_000, 20_030):
        at = day * 86_400.0 + 3_600.0
        year, week, _ = datetime.fromtimestamp(at, UTC).isocalendar()
        monday = datetime.fromisocalendar(year, week, 1).replace(tzinfo=UTC).timestamp()
        assert period_bounds("week", at) == (monday, monday + 7 * 86_400.0)
        assert period_of("week", at) == f"{year}-W{week:02d}"
