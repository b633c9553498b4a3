"""Exact money and budget periods.

Amounts are integers of one billionth of a dollar ("nanodollars"): sums over millions of requests do not
round, and two workers that add the same amounts in another order reach the same total.

>>> nanodollars(0.000_001_5)
1500
>>> dollars(1500)
1.5e-06
"""

from __future__ import annotations

import math
import time
from datetime import UTC, datetime, timedelta

from pandora_router import text
from pandora_router.errors import UsageError

UNIT = 10**9
LARGEST = 2**62
"""The largest amount that is stored; a database column holds 63 bits."""

PERIODS = ("day", "week", "month", "ever")
"""How often a budget starts anew. Periods begin at midnight UTC; a week begins on Monday."""


def nanodollars(amount: float) -> int:
    """Convert dollars to nanodollars, rounded up, so that a reservation is never too small.

    Raises `UsageError` if `amount` is negative, not finite, or larger than the store can hold.
    """
    if not math.isfinite(amount) or amount < 0 or amount * UNIT > LARGEST:
        raise UsageError(
            "an amount of money",
            expected=f"a finite number of dollars from 0 to {LARGEST // UNIT}",
            came=repr(amount),
            do="Check the prices and token counts it was computed from.",
        )
    nearest = round(amount * UNIT)
    return nearest if math.isclose(nearest, amount * UNIT, rel_tol=1e-12) else math.ceil(amount * UNIT)


def dollars(amount: int) -> float:
    """Convert nanodollars to dollars."""
    return amount / UNIT


def in_dollars(amount: int) -> str:
    """Write nanodollars as dollars with six significant digits.

    >>> in_dollars(1_500), in_dollars(-25 * UNIT)
    ('$0.0000015', '-$25.00')
    """
    return text.money(dollars(amount), significant=6)


def period_bounds(length: str, now: float) -> tuple[float, float]:
    """The Unix times at which the day, week or month that contains `now` begins and ends, in UTC.

    >>> period_bounds("day", 90_000.0), period_bounds("month", 0.0)
    ((86400.0, 172800.0), (0.0, 2678400.0))
    """
    today = datetime.fromtimestamp(now, UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    if length == "day":
        begin, end = today, today + timedelta(days=1)
    elif length == "week":
        begin = today - timedelta(days=today.weekday())
        end = begin + timedelta(days=7)
    else:
        begin = today.replace(day=1)
        end = (begin + timedelta(days=32)).replace(day=1)
    return begin.timestamp(), end.timestamp()


def period_of(length: str, now: float) -> str:
    """Name the budget period of the given `length` that contains the Unix time `now`.

    >>> period_of("month", 0.0), period_of("day", 86_400.0), period_of("ever", 5.0)
    ('1970-01', '1970-01-02', 'ever')
    >>> period_of("week", 0.0)
    '1970-W01'
    """
    if length not in PERIODS:
        raise UsageError(
            "a budget period", expected=f"one of {', '.join(PERIODS)}", came=repr(length), do="Choose one."
        )
    form = {"day": "%Y-%m-%d", "week": "%G-W%V", "month": "%Y-%m", "ever": "ever"}[length]
    return time.strftime(form, time.gmtime(now))
