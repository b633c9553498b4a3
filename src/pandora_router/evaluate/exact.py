"""Sums without rounding, so that any way of cutting the data gives the same total bit for bit.

A double is an integer times a power of two, so a sum of doubles is one long integer in units of 2^-UNIT.
Adding integers is associative; adding doubles is not. Rounding happens once, in `rounded`, and is correct:
the result is that of `math.fsum` over all rows together.
"""

from __future__ import annotations

import numpy as np

from pandora_router.types import Matrix

UNIT = 1127  # 2^-1127 divides every double: frexp's smallest exponent is -1073, less 53 digits
_LOW = 27  # the lower digits of a significand of 53; the upper 26 and a sign are the rest


def exact_sums(values: Matrix) -> list[int]:
    """The sum of each row of finite numbers (F, N), N up to 2^26, in units of 2^-UNIT."""
    fraction, exponent = np.frexp(values)
    digits = np.ldexp(fraction, 53).astype(np.int64)
    first = int(exponent.min(initial=0))
    width = int(exponent.max(initial=0)) - first + 1
    place = (exponent - first + width * np.arange(len(values))[:, None]).ravel()
    high, low = digits >> _LOW, digits & ((1 << _LOW) - 1)
    # sums of fewer than 2^26 integers below 2^27 are exact in doubles
    sums = [np.bincount(place, part.ravel(), minlength=len(values) * width) for part in (high, low)]
    shape = (len(values), width)
    return [
        sum(
            ((int(upper) << _LOW) + int(rest)) << (first + j - 53 + UNIT)
            for j, (upper, rest) in enumerate(zip(highs, lows, strict=True))
            if upper or rest
        )
        for highs, lows in zip(*(part.reshape(shape) for part in sums), strict=True)
    ]


def rounded(total: int) -> float:
    """The double nearest to an exact sum."""
    return total / (1 << UNIT)
