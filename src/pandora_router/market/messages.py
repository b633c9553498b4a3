"""What a mechanism and its bidders say to each other, and what the mechanism remembers: plain values.

A mechanism speaks to one bidder at a time (`Call`) or ends (`Award`). A bidder may inspect its own box first,
which is its private business and cost, and then answers with a `Bid`, a `Wait` or `Leave`. The mechanism
never learns a value, only answers: whatever can carry these five messages can run a market.

A continuous clock needs no ticks: instead of answering every price a bidder says at which price it wants to
be heard next, and the clock jumps from one such price to the next.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from pandora_router.errors import UsageError


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
