"""Messages between a market and its bidders, and the mechanisms that send them.

What a mechanism and its bidders say to each other, and what the mechanism remembers: plain values.

A mechanism speaks to one bidder at a time (`Call`) or ends (`Award`). A bidder may inspect its own box first,
which is its private business and cost, and then answers with a `Bid`, a `Wait` or `Leave`. The mechanism
never learns a value, only answers: whatever can carry these five messages can run a market.

A continuous clock needs no ticks: instead of answering every price a bidder says at which price it wants to
be heard next, and the clock jumps from one such price to the next.

Mechanisms: who is asked what at which price, and who answers the prompt in the end.

Each is a small frozen value: `start(M)` opens the book, `next(book)` says whom to call or ends with an award.
It knows no box, no value and no cost. Ties go to the lowest index, as everywhere in the search; at one price
a standing limit comes before a new call, because ending there saves an inspection.

Leave-one-out posted price: paper, section "Pandora's Bidder". Descending clock: Kleinberg, Waggoner and Weyl,
"Descending Price Optimally Coordinates Search" (2016). Ascending clock: Parkes, "Auction design with costly
preference elicitation" (2005).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from pandora_router.boxes import Boxes
from pandora_router.errors import UsageError
from pandora_router.index import TIE
from pandora_router.search.state import OUTSIDE


@dataclass(frozen=True, slots=True)
class Call:
    """To one bidder: the posted price stands here; what do you say?"""

    bidder: int
    price: float


@dataclass(frozen=True, slots=True)
class Bid:
    """A final limit: taken when a falling clock reaches it, withdrawn when a rising one does."""

    limit: float


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing yet: call again when the clock reaches this price."""

    until: float


@dataclass(frozen=True, slots=True)
class Leave:
    """No interest, at this or any later price."""


Answer = Bid | Wait | Leave


@dataclass(frozen=True, slots=True)
class Opened:
    """A bidder inspected its own box: what it saw (None: the inspection failed) and what it paid."""

    bidder: int
    value: float | None
    cost: float


@dataclass(frozen=True, slots=True)
class Award:
    """The end: who answers the prompt (`OUTSIDE`: nobody) and what the winner pays."""

    winner: int
    price: float


Event = Call | Answer | Opened | Award


@dataclass(frozen=True, slots=True)
class Book:
    """What a mechanism knows: where its price stands and the last answer of each bidder (None: not asked)."""

    answers: tuple[Answer | None, ...]
    price: float

    def hear(self, call: Call, answer: Answer) -> Book:
        """Write down the answer to a call; a limit or a price to wait for must be a number."""
        stated = (
            answer.limit if isinstance(answer, Bid) else answer.until if isinstance(answer, Wait) else 0.0
        )
        if np.isnan(stated):
            raise UsageError(
                f"the answer of bidder {call.bidder}",
                expected="a price",
                came="NaN",
                do="Answer Leave() to stay out.",
            )
        answers = (*self.answers[: call.bidder], answer, *self.answers[call.bidder + 1 :])
        return replace(self, answers=answers, price=call.price)

    def left(self, bidder: int) -> Book:
        """The same book in which `bidder` has left, whatever it said before."""
        return replace(self, answers=(*self.answers[:bidder], Leave(), *self.answers[bidder + 1 :]))

    @property
    def unasked(self) -> int | None:
        """The first bidder that has not been asked yet."""
        return self.answers.index(None) if None in self.answers else None

    def bids(self) -> dict[int, float]:
        """The standing limits."""
        return {j: answer.limit for j, answer in enumerate(self.answers) if isinstance(answer, Bid)}

    def waits(self) -> dict[int, float]:
        """Who wants to be called again, and at which price."""
        return {j: answer.until for j, answer in enumerate(self.answers) if isinstance(answer, Wait)}


class Mechanism(Protocol):
    """The rules of a market, without memory of their own."""

    def start(self, bidders: int) -> Book:
        """Open the book for this many bidders."""

    def next(self, book: Book) -> Call | Award:
        """Say whom to call at which posted price, or end."""

    def beside(self, book: Book, call: Call) -> tuple[Call, ...]:
        """The calls that follow `call` whatever its answer, in order: they may be made at the same time."""


def _opened(bidders: int, least: int, price: float, why: str) -> Book:
    if bidders < least:
        raise UsageError("bidders", expected=f"{least} or more", came=f"{bidders}", do=why)
    return Book((None,) * bidders, price)


def _contested(bidders: int, reserve: float) -> Book:
    """Open the book at `reserve`; one bidder alone needs a finite reserve, which sets its price."""
    least = 1 if np.isfinite(reserve) else 2
    return _opened(bidders, least, reserve, "One bidder alone needs a finite reserve.")


def _unasked(book: Book, call: Call, but: int = OUTSIDE) -> tuple[Call, ...]:
    """Calls at the price of `call` to the bidders after it that were not asked yet; none if it was asked."""
    if book.answers[call.bidder] is not None or call.bidder == but:
        return ()
    later = range(call.bidder + 1, len(book.answers))
    return tuple(Call(j, call.price) for j in later if book.answers[j] is None and j != but)


def _highest(limits: dict[int, float], equal: float = 0.0) -> tuple[int, float]:
    """The lowest index of those within `equal` of the highest limit, and its own; (OUTSIDE, -inf) if none."""
    top = max(limits.values(), default=-np.inf)
    winner = min((j for j in limits if limits[j] >= top - equal), default=OUTSIDE)
    return winner, limits.get(winner, -np.inf)


def _equal(*limits: dict[int, float]) -> float:
    """The difference up to which prices are equal, as in a search: that of rounding (`index.TIE`)."""
    sizes = (abs(limit) for some in limits for limit in some.values() if np.isfinite(limit))
    return TIE * max(sizes, default=0.0)


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
        waits, bids = book.waits(), book.bids()
        equal = _equal(waits, bids)
        waiter, until = _highest(waits, equal)
        bidder, limit = _highest(bids, equal)
        if max(until, limit) <= self.reserve + equal or waiter == bidder == OUTSIDE:
            return Award(OUTSIDE, self.reserve)
        if bidder == OUTSIDE or until > limit + equal:
            return Call(waiter, min(until, book.price))
        return Award(bidder, min(limit, book.price))

    def beside(self, book: Book, call: Call) -> tuple[Call, ...]:
        """Everyone is asked the first question at the same time."""
        return _unasked(book, call)


@dataclass(frozen=True)
class Ascending:
    """A clock that rises until one bidder is left, who pays the price at which the last rival went.

    A bidder whose limit the clock has reached is out; of those that go at the same price the one of highest
    index goes first, and nobody goes after the last but one.
    """

    reserve: float = -np.inf

    def start(self, bidders: int) -> Book:
        """Open the book with the clock at the reserve."""
        return _contested(bidders, self.reserve)

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

    def beside(self, book: Book, call: Call) -> tuple[Call, ...]:
        """Everyone is asked the first question at the same time."""
        return _unasked(book, call)


@dataclass(frozen=True)
class SecondPrice:
    """Sealed bids, asked for once; the highest limit wins and pays the next (or the reserve)."""

    reserve: float = -np.inf

    def start(self, bidders: int) -> Book:
        """Open the book."""
        return _contested(bidders, self.reserve)

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

    def beside(self, book: Book, call: Call) -> tuple[Call, ...]:
        """Everyone is asked the first question at the same time."""
        return _unasked(book, call)


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
        for j, answer in enumerate(book.answers):
            if answer is None and j != self.bidder:
                return Call(j, -np.inf)
        limits = book.bids()
        own = limits.pop(self.bidder, None)
        rival, price = _highest(limits)
        if book.answers[self.bidder] is None:
            return Call(self.bidder, price)
        return Award(rival if own is None or own < price else self.bidder, price)

    def beside(self, book: Book, call: Call) -> tuple[Call, ...]:
        """Those who set the price are asked at the same time."""
        return _unasked(book, call, but=self.bidder)


@dataclass(frozen=True)
class Sequential:
    """Take-it-or-leave-it prices, one bidder after the other; the first that accepts answers and pays.

    order: who is asked, first to last; nobody twice.
    prices: what each of them is asked, in the same order. A bid below the price is a refusal.
    otherwise: who answers if all refuse (`OUTSIDE`: nobody), at the price `reserve`.

    No bid changes what a bidder pays, so that looking and accepting as `Bidder` does is a dominant strategy:
    the only kind of auction for which that is true when looking costs something (Thompson and Leyton-Brown,
    "Dominant-strategy auction design for agents with uncertain, private values", 2011). `asking_prices` sets
    the prices.
    """

    order: tuple[int, ...]
    prices: tuple[float, ...]
    otherwise: int = OUTSIDE
    reserve: float = -np.inf

    def start(self, bidders: int) -> Book:
        """Open the book; raises `UsageError` if order, prices and bidders do not fit together."""
        named = {*self.order, *(() if self.otherwise == OUTSIDE else (self.otherwise,))}
        if len(set(self.order)) != len(self.order) or len(self.order) != len(self.prices):
            came = f"order {self.order} and {len(self.prices)} prices"
            raise UsageError(
                "a sequence", expected="each bidder once, with one price", came=came, do="Correct it."
            )
        if not named <= set(range(bidders)):
            came = f"{sorted(named)}"
            raise UsageError(
                "a sequence", expected=f"bidders from 0 to {bidders - 1}", came=came, do="Count from 0."
            )
        return _opened(bidders, 1, self.reserve, "A market needs a bidder.")

    def next(self, book: Book) -> Call | Award:
        """Ask the next in order, unless somebody accepted."""
        for bidder, price in zip(self.order, self.prices, strict=True):
            answer = book.answers[bidder]
            if answer is None:
                return Call(bidder, price)
            if isinstance(answer, Bid) and answer.limit >= price:
                return Award(bidder, price)
        gone = self.otherwise == OUTSIDE or isinstance(book.answers[self.otherwise], Leave)
        return Award(OUTSIDE if gone else self.otherwise, self.reserve)

    def beside(self, book: Book, call: Call) -> tuple[Call, ...]:
        """Nobody: whoever is not asked does not look."""
        return ()


def asking_prices(boxes: Boxes, *, held: int | None = None) -> Sequential:
    r"""Sequential posted prices from what the platform itself believes of the boxes.

    The box `held` (default: the highest mean, ties to the lowest index) is not asked: it answers if the
    others refuse, at its mean, which is the reserve. The others are asked in descending reservation price,
    and each price is what the prompt is worth without that bidder, by backward induction from the reserve:

        p_k = V_{k+1},    V_k = V_{k+1} + max(0, mu_k - V_{k+1}, E[(G_k + r_k - V_{k+1})^+] - c_k).

    A bidder that is asked V_{k+1} gains exactly what its looking and accepting adds to welfare, so its best
    reply is the best one for all, given the order and the platform's beliefs about those who come later.
    A bidder whose price would be its own reserve is asked all the same: it may know better.

    >>> from pandora_router.boxes import Independent
    >>> asked = asking_prices(Independent([0.5, 0.4, 0.6], [0.2, 0.3, 0.1], 0.01))
    >>> asked.order, [round(p, 4) for p in asked.prices], asked.otherwise, asked.reserve
    ((1, 0), [0.6296, 0.6], 2, 0.6)
    """
    mean, top = boxes.mean, boxes.reservation_price()
    keeper = int(mean.argmax()) if held is None else held
    order = sorted((j for j in range(len(mean)) if j != keeper), key=lambda j: (-top[j], j))
    worth, prices = float(mean[keeper]), []
    for j in reversed(order):
        prices.append(worth)
        looking = float(boxes.gain(worth)[j] - boxes.inspection_cost[j]) if boxes.sealed[j] else 0.0
        worth += max(0.0, float(mean[j]) - worth, looking)
    return Sequential(tuple(order), tuple(reversed(prices)), keeper, float(mean[keeper]))
