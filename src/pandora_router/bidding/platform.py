"""One prompt from the first call to the answer: rounds of calls, award, delivery, runner-up on failure.

`market.rounds` has the rules; this module sends its calls to the participants and returns their replies. All
calls of a round are made at the same time, share one deadline and are evaluated together, so that speed gives
no advantage. A winner that does not deliver is treated as if it had left, and the auction continues: the
runner-up gets the next award. If nobody is left, the `default` answers.

Every step is recorded before the next one is taken (`Recorder`), so that a crash leaves an auction that was
awarded at most once and can be settled.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from pandora_router.bidding.participants import Heard, LossNotices, Participant, Terms
from pandora_router.bidding.rules import Rules
from pandora_router.boxes import Boxes
from pandora_router.errors import UpstreamError
from pandora_router.market import Answer, AuctionEnd, Bid, Call, Leave, Mechanism, Wait, rounds
from pandora_router.search import OUTSIDE

MOST_CALLS = 1000
"""Most calls to one bidder in one auction."""


@dataclass(frozen=True)
class Sale:
    """One award: the winner (None: the default answers), the price, and the limit that it stated.

    funded: whether the winner pays from a deposit and from what it has earned.
    proxy: whether the winner is a plain endpoint, for which the platform bids.
    """

    auction: str
    turn: int
    bidder: str | None
    price: float
    claim: float | None
    funded: bool = False
    proxy: bool = False


@dataclass(frozen=True)
class AuctionResult:
    """The result for a prompt: answer, bidder, price, all calls, winners that did not deliver, times.

    `bidder` is None if the default answered because nobody won or delivered. `deciding` is the time until the
    first award, `seconds` the whole.
    """

    auction: str
    answer: str
    bidder: str | None
    price: float
    heard: tuple[Heard, ...]
    order: tuple[str, ...]
    stalled: tuple[str, ...] = ()
    deciding: float = 0.0
    seconds: float = 0.0

    @property
    def inspections(self) -> dict[str, int]:
        """Number of looks that each bidder reported."""
        looks: dict[str, int] = {}
        for call in self.heard:
            looks[call.bidder] = max(looks.get(call.bidder, 0), call.looks)
        return looks

    @property
    def spending(self) -> dict[str, float]:
        """What each bidder reported to have spent on looks, by its last reply."""
        return {call.bidder: call.spent for call in self.heard}


class Recorder(Protocol):
    """Records the steps of an auction; each method returns when the step is on disk."""

    async def awarded(self, sale: Sale, terms: Terms, kind: str, heard: Sequence[Heard]) -> bool:
        """Record the calls so far and an award; money changes hands. False: the winner cannot pay."""
        ...

    async def delivered(self, sale: Sale) -> None:
        """Record that the winner answered."""
        ...

    async def stalled(self, sale: Sale) -> None:
        """Record that the winner did not: its money comes back, its deposit is forfeited."""
        ...


class Forgetful:
    """A recorder that keeps nothing."""

    async def awarded(self, sale: Sale, terms: Terms, kind: str, heard: Sequence[Heard]) -> bool:
        """Keep nothing."""
        return True

    async def delivered(self, sale: Sale) -> None:
        """Keep nothing."""

    async def stalled(self, sale: Sale) -> None:
        """Keep nothing."""


@dataclass
class _Hall:
    """One auction in progress: the participants, the number of calls to each, and the replies.

    low: who names a limit below this asks for more money than an answer could be worth, and leaves.
    """

    participants: Sequence[Participant]
    terms: Terms
    until: float
    turns: list[int]
    low: float = -math.inf
    waited: dict[int, Call] = field(default_factory=dict)
    heard: list[Heard] = field(default_factory=list)

    async def round(self, calls: Sequence[Call]) -> list[Answer]:
        """Make the calls of one round concurrently and return the valid replies."""
        left = self.until - time.monotonic()
        if left <= 0.0:
            return [Leave()] * len(calls)
        terms = replace(self.terms, deadline=min(self.terms.deadline, left))
        if len(calls) == 1:  # most rounds: no task is needed
            replies = [await self._hear(calls[0], terms)]
        else:
            replies = await asyncio.gather(*(self._hear(call, terms) for call in calls))
        counted = [self._possible(call, reply) for call, reply in zip(calls, replies, strict=True)]
        self.heard += counted
        return [reply.answer for reply in counted]

    async def _hear(self, call: Call, terms: Terms) -> Heard:
        turn = self.turns[call.bidder]
        self.turns[call.bidder] += 1
        return await self.participants[call.bidder].hear(call, turn, terms)

    def _possible(self, call: Call, heard: Heard) -> Heard:
        """A bidder that waits a second time for a price that is gone, or bids below `low`, leaves.

        So does one that still waits after `MOST_CALLS` calls: it would keep everybody else waiting.
        """
        if (
            isinstance(heard.answer, Bid)
            and self.participants[call.bidder].price(heard.answer.limit) < self.low
        ):
            return replace(heard, answer=Leave(), fault="impossible")
        if not isinstance(heard.answer, Wait):
            return heard
        if self.waited.get(call.bidder) == call or self.turns[call.bidder] >= MOST_CALLS:
            return replace(heard, answer=Leave(), fault="impossible")
        self.waited[call.bidder] = call
        return heard

    async def close(self, mechanism: Mechanism, before: AuctionEnd | None) -> AuctionEnd:
        """Run the auction to its award; with `before`, continue from there without its winner."""
        book = None if before is None else before.book.left(before.award.winner)
        asking = rounds(mechanism, len(self.participants), book=book)
        try:
            calls = next(asking)
            while True:
                calls = asking.send(await self.round(calls))
        except StopIteration as end:
            closed: AuctionEnd = end.value
            return closed

    def unfunded(self, bidder: str) -> None:
        """The last bid of a bidder does not count: other auctions took the money for it meanwhile.

        A bidder that was chosen without a call has no bid, and nothing is marked.
        """
        calls = [i for i, call in enumerate(self.heard) if call.bidder == bidder]
        for last in calls[-1:]:
            self.heard[last] = replace(self.heard[last], answer=Leave(), fault="unfunded")

    def losers(self, winner: Participant) -> list[Participant]:
        """Bidders that inspected and did not win; they may have begun an answer."""
        looked = {call.bidder for call in self.heard if call.looks}
        return [
            participant
            for participant in self.participants
            if participant.name in looked and participant.name != winner.name
        ]

    def claim(self, bidder: str) -> float | None:
        """The last limit that a bidder stated, in its own currency."""
        limits = [call.stated for call in self.heard if call.bidder == bidder and call.stated is not None]
        return limits[-1] if limits else None


@dataclass
class Auction:
    """One auction, award by award: `award`, then `delivered` or `stalled`, and after a stall `award` again.

    The runner-up is whoever the same rules choose from the same book without the winner that stalled. After
    the last bidder the award is nobody's: `participant` is the default.
    """

    platform: Platform
    hall: _Hall
    mechanism: Mechanism
    kind: str
    participant: Participant
    sale: Sale | None = None
    _closed: AuctionEnd | None = None

    async def award(self) -> Sale:
        """Run the auction to its next award and record it; losers hear of it.

        A bidder whose money went to other auctions in the meantime is treated as if it had left.
        """
        turn = 0 if self.sale is None else self.sale.turn + 1
        terms = self.hall.terms
        while True:
            self._closed = closed = await self.hall.close(self.mechanism, self._closed)
            won = closed.award.winner != OUTSIDE
            self.participant = self.hall.participants[closed.award.winner] if won else self.platform.default
            price = self.participant.price(_paid(closed.award.price)) if won else 0.0
            winner, claim = self.participant.name if won else None, self.hall.claim(self.participant.name)
            sale = Sale(
                terms.auction, turn, winner, price, claim, self.participant.funded, self.participant.proxy
            )
            if await self.platform.recorder.awarded(sale, terms, self.kind, self.hall.heard):
                break
            self.hall.unfunded(self.participant.name)
        self.sale = sale
        for loser in self.hall.losers(self.participant):
            self.platform.notices.add(loser, terms.auction)
        return sale

    async def deliver(self) -> str:
        """The answer of whoever was awarded last; raises `UpstreamError` if there is none in time."""
        assert self.sale is not None
        return await self.participant.deliver(self.hall.terms, self.sale.price, self.platform.rules.deliver)

    async def delivered(self) -> None:
        """Record that the last award was answered."""
        assert self.sale is not None
        await self.platform.recorder.delivered(self.sale)

    async def stalled(self) -> None:
        """Record that it was not: its price goes back and part of its deposit is forfeited."""
        assert self.sale is not None
        await self.platform.recorder.stalled(self.sale)


def _lowest(beliefs: Boxes) -> float:
    """The lowest price that the platform accepts; below 0 it pays the winner.

    That is the lowest of its estimates minus six standard deviations, or minus one unit of reward if that is
    lower: nothing that an honest bidder can see is worth less, and nobody can name a price of its own if all
    others fail.
    """
    deviation = float(beliefs.gain(beliefs.mean).max()) / 0.4  # exact enough: E[(G - mu)+] of a normal law
    return float(beliefs.mean.min()) - max(6.0 * deviation, 1.0)


def _paid(price: float) -> float:
    """The price of an award; 0 if nobody else replied, so that nothing set a price."""
    return price if math.isfinite(price) else 0.0


@dataclass
class Platform:
    """Holds auctions by `rules`; `default` answers what nobody wins."""

    rules: Rules
    default: Participant
    recorder: Recorder = field(default_factory=Forgetful)
    notices: LossNotices = field(default_factory=LossNotices)

    def open(
        self, terms: Terms, participants: Sequence[Participant], beliefs: Boxes, kind: str = ""
    ) -> Auction:
        """An auction among `participants` of which nobody was called yet.

        `beliefs` are the platform's own boxes, one per participant. `kind` of prompt: for reputation.
        """
        order = self.rules.order(terms.auction, len(participants))
        terms = replace(
            terms,
            mechanism=self.rules.mechanism,
            deadline=self.rules.deadline,
            keep=self.rules.keep,
        )
        until = time.monotonic() + self.rules.auction
        hall = _Hall(
            [participants[j] for j in order], terms, until, [0] * len(participants), _lowest(beliefs)
        )
        return Auction(self, hall, self.rules.build(beliefs.only(order)), kind, self.default)

    async def serve(
        self, terms: Terms, participants: Sequence[Participant], beliefs: Boxes, kind: str = ""
    ) -> AuctionResult:
        """Hold one auction among `participants` (see `open`) and return the answer.

        Raises `UpstreamError` if nobody delivers, the default included.
        """
        return await answered(self.open(terms, participants, beliefs, kind))


async def answered(auction: Auction) -> AuctionResult:
    """Hold an auction to its end: award, delivery, and the runner-up if there is none.

    Raises `UpstreamError` if nobody delivers, the default included.
    """
    began = time.monotonic()
    stalled: list[str] = []
    decided = 0.0
    while True:
        sale = await auction.award()
        decided = decided or time.monotonic() - began
        try:
            answer = await auction.deliver()
        except UpstreamError:
            await auction.stalled()
            if sale.bidder is None:
                raise
            stalled.append(sale.bidder)
            continue
        await auction.delivered()
        return AuctionResult(
            sale.auction,
            answer,
            sale.bidder,
            sale.price,
            tuple(auction.hall.heard),
            tuple(participant.name for participant in auction.hall.participants),
            tuple(stalled),
            decided,
            time.monotonic() - began,
        )
