"""Exact arithmetic: rationals where possible, complex floats otherwise.

Powers that are too large to compute are refused, so that no answer can keep a grader busy.
"""

from __future__ import annotations

import cmath
from fractions import Fraction

Number = Fraction | complex

BITS = 20_000


def close(a: Number, b: Number) -> bool:
    """Whether two numbers are equal: rationals exactly, others to nine digits.

    Raises `OverflowError` if one of them is not finite.
    """
    if isinstance(a, Fraction) and isinstance(b, Fraction):
        return a == b
    a, b = complex(a), complex(b)
    if not (cmath.isfinite(a) and cmath.isfinite(b)):
        raise OverflowError
    return abs(a - b) <= 1e-9 * max(abs(a), abs(b), 1e-3)


def magnitude(value: Number) -> Number:
    """The absolute value."""
    return abs(value) if isinstance(value, Fraction) else complex(abs(value))


def power(base: Number, exponent: Number) -> Number:
    """base ** exponent: exact for rational results of moderate size, complex otherwise."""
    if isinstance(base, Fraction) and isinstance(exponent, Fraction):
        size = max(base.numerator.bit_length(), base.denominator.bit_length())
        if exponent.denominator == 1:
            if abs(exponent.numerator) * max(size, 1) > BITS:
                raise OverflowError("too large to compute")
            return base**exponent.numerator
        root = _exact_root(base, exponent.denominator)
        if root is not None:
            return power(root, Fraction(exponent.numerator))
    return complex(base) ** complex(exponent)


def _exact_root(base: Fraction, degree: int) -> Fraction | None:
    """The rational root, or None; negative numbers have one only for odd degrees."""
    if degree > 64 or (base < 0 and degree % 2 == 0) or abs(base) > 10**15:
        return None
    sign, root = (-1 if base < 0 else 1), abs(base)
    top, bottom = (round(part ** (1.0 / degree)) for part in (root.numerator, root.denominator))
    candidate = Fraction(sign * top, max(bottom, 1))
    return candidate if candidate**degree == base else None
