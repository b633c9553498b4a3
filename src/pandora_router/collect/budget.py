"""The budget of a collection: money spent, money lost, and money reserved for calls in flight.

A call reserves its worst case before it starts, so at all times

    spent + lost + reserved <= limit

Sums are exact (`fractions.Fraction`), so rounding never exceeds the limit. The limit is as reliable as the
worst cases: a provider that charges more than its own limit allows can exceed it by the calls in flight.
"""

from __future__ import annotations

import asyncio
import math
from fractions import Fraction

from pandora_router.errors import UsageError


class Budget:
    """A budget of `limit` in money, of which earlier runs used `spent` and `lost`."""

    def __init__(self, limit: float, spent: Fraction = Fraction(0), lost: Fraction = Fraction(0)) -> None:
        if not math.isfinite(limit) or limit < 0:
            raise UsageError(
                "the budget",
                expected="a finite amount of money, zero or more",
                came=str(limit),
                do="State the most that may be spent.",
            )
        self.limit = Fraction(limit)
        self.spent = spent
        self.lost = lost
        self.reserved = Fraction(0)
        self._changed = asyncio.Event()

    def fits(self, most: Fraction) -> bool:
        """Whether `most` could be reserved now."""
        return self.spent + self.lost + self.reserved + most <= self.limit

    def try_reserve(self, most: Fraction) -> bool:
        """Reserve `most` if it fits now; return whether it did."""
        if not self.fits(most):
            return False
        self.reserved += most
        return True

    async def reserve(self, most: Fraction) -> bool:
        """Reserve `most`, waiting for calls in flight to settle; false if it can never fit."""
        while not self.try_reserve(most):
            if not self.reserved:
                return False
            await self._changed.wait()
        return True

    def settle(self, most: Fraction, fee: float = 0.0, lost: float = 0.0) -> None:
        """Replace the reservation `most` by the actual `fee` of the call and the money `lost` on it."""
        self.reserved -= most
        self.spent += Fraction(fee)
        self.lost += Fraction(lost)
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
