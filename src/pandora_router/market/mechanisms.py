"""Mechanisms: who is asked what at which price, and who answers the prompt in the end.

Each is a small frozen value: `start(M)` opens the book, `next(book)` says whom to call or ends with an award.
It knows no box, no value and no cost. Ties go to the lowest index, as everywhere in the search; at one price
a standing limit comes before a new call, because ending there saves an inspection.

Posted price: paper, section "Pandora's Bidder". Descending clock: Kleinberg, Waggoner and Weyl, "Descending
Price Optimally Coordinates Search" (2016). Ascending clock: Parkes, "Auction design with costly preference
elicitation" (2005).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from pandora_router.errors import UsageError
from pandora_router.market.events import Award, Book, Call
from pandora_router.search.state import OUTSIDE


class Mechanism(Protocol):
    """The rules of a market, without memory of their own."""

    def start(self, bidders: int) -> Book:
        """Open the book for this many bidders."""

    def next(self, book: Book) -> Call | Award:
        """Say whom to call at which posted price, or end."""


def _opened(bidders: int, least: int, price: float, why: str) -> Book:
    if bidders < least:
        raise UsageError("bidders", expected=f"{least} or more", came=f"{bidders}", do=why)
    return Book((None,) * bidders, price)


def _highest(limits: dict[int, float]) -> tuple[int, float]:
    """The highest limit and the lowest index that holds it; (OUTSIDE, -inf) if there is none."""
    winner = max(limits, key=lambda j: (limits[j], -j), default=OUTSIDE)
    return winner, limits.get(winner, -np.inf)


@dataclass(frozen=True)
class Descending:
    """A clock that falls from above until a bidder takes the prompt at the price it shows.

    Limits and waiting prices at or below `reserve` are never reached: a bidder must beat the reserve, as a
    box must beat the outside option of a search.
    """

    reserve: float = -np.inf

    def start(self, bidders: int) -> Book:
        """Open the book with the clock above every limit."""
        return _opened(bidders, 1, np.inf, "A market needs a bidder.")

    def next(self, book: Book) -> Call | Award:
        """Ask everyone once at the top, then fall to the highest limit or waiting price."""
        if (fresh := book.unasked) is not None:
            return Call(fresh, np.inf)
        waiter, until = _highest(book.waits())
        bidder, limit = _highest(book.bids())
        if max(until, limit) <= self.reserve or waiter == bidder == OUTSIDE:
            return Award(OUTSIDE, self.reserve)
        if bidder == OUTSIDE or until > limit:
            return Call(waiter, min(until, book.price))
        return Award(bidder, min(limit, book.price))


@dataclass(frozen=True)
class Ascending:
    """A clock that rises until one bidder is left, who pays the price at which the last rival went.

    A bidder whose limit the clock has reached is out; of those that go at the same price the one of highest
    index goes first, and nobody goes after the last but one.
    """

    reserve: float = -np.inf

    def start(self, bidders: int) -> Book:
        """Open the book with the clock at the reserve."""
        least = 1 if np.isfinite(self.reserve) else 2
        return _opened(bidders, least, self.reserve, "One bidder alone needs a finite reserve.")

    def next(self, book: Book) -> Call | Award:
        """Ask everyone once at the start, then rise to the next call until at most one limit is left."""
        if (fresh := book.unasked) is not None:
            return Call(fresh, self.reserve)
        waits, price = book.waits(), book.price
        bids = {j: limit for j, limit in book.bids().items() if limit >= price}
        if not waits and (not bids or max(bids.values()) <= self.reserve):
            return Award(OUTSIDE, self.reserve)
        ahead = min(waits.values(), default=np.inf)
        for out in sorted(bids, key=lambda j: (bids[j], -j)):
            if len(waits) + len(bids) == 1 or bids[out] > ahead:
                break
            price = max(price, bids.pop(out))
        if len(waits) + len(bids) <= 1:
            return Award(next(iter({**waits, **bids}), OUTSIDE), price)
        return Call(min(waits, key=lambda j: (waits[j], j)), max(ahead, price))


@dataclass(frozen=True)
class SecondPrice:
    """Sealed bids, asked for once; the highest limit wins and pays the next (or the reserve)."""

    reserve: float = -np.inf

    def start(self, bidders: int) -> Book:
        """Open the book."""
        least = 1 if np.isfinite(self.reserve) else 2
        return _opened(bidders, least, self.reserve, "One bidder alone needs a finite reserve.")

    def next(self, book: Book) -> Call | Award:
        """Ask everyone once, then compare."""
        if (fresh := book.unasked) is not None:
            return Call(fresh, self.reserve)
        limits = book.bids()
        winner, limit = _highest(limits)
        if limit <= self.reserve:
            return Award(OUTSIDE, self.reserve)
        del limits[winner]
        return Award(winner, max(_highest(limits)[1], self.reserve))


@dataclass(frozen=True)
class PostedPrice:
    """The paper's leave-one-out market: the best of the others' bids is posted to one strategic bidder.

    If that bidder declines (leaves, or bids less than the price), the one who set the price answers. Whoever
    answers pays the posted price.
    """

    bidder: int

    def start(self, bidders: int) -> Book:
        """Open the book."""
        if not 0 <= self.bidder < bidders:
            raise UsageError(
                "bidder",
                expected=f"an index from 0 to {bidders - 1}",
                came=f"{self.bidder}",
                do="Count from 0.",
            )
        return _opened(bidders, 2, -np.inf, "Somebody else must set the price.")

    def next(self, book: Book) -> Call | Award:
        """Ask the others for their bids, post the best, and give the prompt away."""
        for j, said in enumerate(book.answers):
            if said is None and j != self.bidder:
                return Call(j, -np.inf)
        limits = book.bids()
        own = limits.pop(self.bidder, None)
        rival, price = _highest(limits)
        if book.answers[self.bidder] is None:
            return Call(self.bidder, price)
        return Award(rival if own is None or own < price else self.bidder, price)
