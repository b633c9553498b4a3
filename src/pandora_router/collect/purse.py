"""Money spent, lost and set aside: a call sets its worst case aside first, so a budget always holds.

    spent + lost + reserved <= budget      after every step

Sums are exact (`Fraction`), so no rounding ever slips past the bound. It refuses to know what is bought.
"""

from __future__ import annotations

import asyncio
import math
from fractions import Fraction

from ..errors import UsageError


class Purse:
    """A budget with what earlier runs already took from it."""

    def __init__(self, budget: float, spent: Fraction = Fraction(0), lost: Fraction = Fraction(0)) -> None:
        if not math.isfinite(budget) or budget < 0:
            raise UsageError(
                "the budget", expected="zero or more", came=str(budget), do="State the most to spend."
            )
        self.budget = Fraction(budget)
        self.spent = spent
        self.lost = lost
        self.reserved = Fraction(0)
        self._changed = asyncio.Event()

    def fits(self, most: float) -> bool:
        """Whether this much is free now."""
        return self.spent + self.lost + self.reserved + Fraction(most) <= self.budget

    async def reserve(self, most: float) -> bool:
        """Set the worst case aside, waiting for others to settle if need be; False if it will never fit."""
        while not self.fits(most):
            if not self.reserved:
                return False
            await self._changed.wait()
        self.reserved += Fraction(most)
        return True

    def settle(self, most: float, fee: float, lost: float) -> None:
        """Replace what was set aside by what it came to."""
        self.reserved -= Fraction(most)
        self.spent += Fraction(fee)
        self.lost += Fraction(lost)
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
