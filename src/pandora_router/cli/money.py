"""Amounts of money as people read them."""

from __future__ import annotations

import math

SMALLEST = 1e-10
"""Amounts below this are rounding errors of sums."""


def money(amount: float, currency: str = "$") -> str:
    """An amount with two decimals, or with two significant digits where it is small.

    >>> [money(x) for x in (1234.5, 0.25, 0.0031, 0.00000271, 1e-17)]
    ['$1,234.50', '$0.25', '$0.0031', '$0.0000027', '$0.00']
    """
    amount = 0.0 if abs(amount) < SMALLEST else amount
    digits = 2 if amount == 0 or abs(amount) >= 0.1 else 1 - math.floor(math.log10(abs(amount)))
    text = f"{amount:,.{digits}f}"
    return f"{currency}{text}" if len(currency) == 1 else f"{text} {currency}"
