"""An auction as a generator, and the same among strategies in this process.

An auction as a generator: it asks bidders through whoever drives it and ends with an award.

`rounds` yields the calls that may be made at the same time, because none of them depends on the answer to
another, and is sent their answers in the same order. `auction` is the same with one call at a time. Neither
knows a box, a value or a network: in-process strategies (`trade`), replays and services over HTTP drive them
alike, so that the same answers give the same award.

An answer must make progress. A bidder that answered `Wait` and is called again at the same price was waiting
for a price that the clock had passed; if it answers `Wait` again, `UsageError` is raised.

An auction among in-process strategies: inspections are paid, a record remains.

`market` drives `auction` and is itself a generator that asks for inspections and is sent what they showed,
like `search.drive.search`; whoever drives it decides where values come from. Each bidder has a `State` of its
own, so `State.observe` stays the only place that charges, and a shared inspection cost is paid by every
bidder that needs it.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from pandora_router.boxes import Boxes
from pandora_router.boxes.checks import finite, same_length
from pandora_router.boxes.moving import value_of
from pandora_router.errors import UsageError
from pandora_router.market.mechanisms import Answer, Award, Book, Call, Event, Mechanism, Opened, Wait
from pandora_router.market.strategies import Strategy
from pandora_router.search.drive import Opener, Shown
from pandora_router.search.state import OUTSIDE, Inspect, State
from pandora_router.types import Vector

Calls = tuple[Call, ...]


@dataclass(frozen=True, slots=True)
class AuctionEnd:
    """The end of an auction: the award and the book with the last answer of each bidder.

    `rounds(mechanism, M, book=closed.book.left(winner))` goes on as if the winner had left.
    """

    award: Award
    book: Book


def rounds(
    mechanism: Mechanism, bidders: int, *, book: Book | None = None
) -> Generator[Calls, Sequence[Answer], AuctionEnd]:
    """Run `mechanism` with this many bidders, from the beginning or from an earlier `book`.

    Yields one or more calls to different bidders, is sent one answer per call, returns `AuctionEnd`.

    >>> from pandora_router.market import Bid, SecondPrice
    >>> asking = rounds(SecondPrice(), 2)
    >>> next(asking)
    (Call(bidder=0, price=-inf), Call(bidder=1, price=-inf))
    >>> try:
    ...     asking.send([Bid(0.7), Bid(0.4)])
    ... except StopIteration as end:
    ...     print(end.value.award)
    Award(winner=0, price=0.4)
    """
    book = mechanism.start(bidders) if book is None else book
    waited: dict[int, Call] = {}
    while not isinstance(step := mechanism.next(book), Award):
        calls = (step, *mechanism.beside(book, step))
        answers = tuple((yield calls))
        if len(answers) != len(calls):
            raise UsageError(
                "the answers of a round",
                expected=f"{len(calls)}, one per call",
                came=f"{len(answers)}",
                do="Answer Leave() for a bidder that did not answer.",
            )
        for call, answer in zip(calls, answers, strict=True):
            if isinstance(answer, Wait):
                if waited.get(call.bidder) == call:
                    raise UsageError(
                        f"the answer of bidder {call.bidder}",
                        expected=f"a price beyond the clock, which stands at {call.price}",
                        came=f"{answer}",
                        do="Wait for a price that is still to come, bid, or leave.",
                    )
                waited[call.bidder] = call
            book = book.hear(call, answer)
    return AuctionEnd(step, book)


def auction(mechanism: Mechanism, bidders: int) -> Generator[Call, Answer, Award]:
    """Run `mechanism` with this many bidders: yields a `Call`, is sent its `Answer`, returns the `Award`."""
    asking = rounds(mechanism, bidders)
    try:
        calls = next(asking)
        while True:
            answers: list[Answer] = []
            for call in calls:
                answer = yield call
                answers.append(answer)
            calls = asking.send(answers)
    except StopIteration as end:
        closed: AuctionEnd = end.value
        return closed.award


@dataclass(frozen=True, eq=False)
class Record:
    """What happened: every event in order, who answers, what it pays, what each bidder spent on looking.

    `spent` (M,) is net of `refunded`, what came back of the winner's looks because its answer goes on.
    """

    events: tuple[Event, ...]
    winner: int
    price: float
    spent: Vector
    refunded: float = 0.0

    @property
    def inspected(self) -> tuple[int, ...]:
        """The bidders that inspected, in order, once for every inspection."""
        return tuple(event.bidder for event in self.events if isinstance(event, Opened))

    @property
    def revenue(self) -> float:
        """What the winner pays; 0 if nobody won."""
        return 0.0 if self.winner == OUTSIDE else self.price

    def surplus(self, rewards: ArrayLike) -> Vector:
        """What each bidder is left with: -inspections, and for the winner its reward minus the price (M,)."""
        reward = finite("rewards", rewards, ndim=1)
        same_length("rewards", len(reward), len(self.spent))
        left = -self.spent
        if self.winner != OUTSIDE:
            left[self.winner] += reward[self.winner] - self.price
        return left

    def welfare(self, rewards: ArrayLike) -> float:
        """The winner's reward minus every inspection = revenue + all surpluses."""
        reward = finite("rewards", rewards, ndim=1)
        return float((reward[self.winner] if self.winner != OUTSIDE else 0.0) - self.spent.sum())


Asking = Generator[tuple[State, Inspect], Shown, Record]


def market(mechanism: Mechanism, bidders: Sequence[Strategy], boxes: Boxes) -> Asking:
    """Run `auction` with in-process strategies: yield each inspection, receive what it showed."""
    same_length("bidders", len(bidders), len(boxes.mean))
    states = [State(boxes)] * len(bidders)
    events: list[Event] = []
    asking = auction(mechanism, len(bidders))
    answer: Answer | None = None
    try:
        while True:
            call = next(asking) if answer is None else asking.send(answer)
            events.append(call)
            me = call.bidder
            answer, states[me] = yield from _answer(bidders[me], call, states[me], events)
            events.append(answer)
    except StopIteration as end:
        award: Award = end.value
    spent = np.array([state.spent for state in states])
    back = 0.0
    if award.winner != OUTSIDE:
        back = states[award.winner].refund(award.winner)
        spent[award.winner] -= back
    return Record((*events, award), award.winner, award.price, spent, back)


def _answer(
    strategy: Strategy, call: Call, state: State, events: list[Event]
) -> Generator[tuple[State, Inspect], Shown, tuple[Answer, State]]:
    """Let one bidder look as often as it likes, then answer."""
    while isinstance(action := strategy.next(call, state), Inspect):
        if action.boxes != (call.bidder,):
            raise UsageError(
                f"the inspection of bidder {call.bidder}",
                expected="its own box",
                came=f"boxes {action.boxes}",
                do="A bidder can only look into its own box.",
            )
        (value,) = tuple((yield state, action))
        cost = float(state.boxes.inspection_cost[call.bidder])
        state = state.lose(call.bidder) if value is None else state.observe(call.bidder, value)
        shown = None if value is None else value_of(value, call.bidder)
        events.append(Opened(call.bidder, shown, cost))
    return action, state


def trade(mechanism: Mechanism, bidders: Sequence[Strategy], boxes: Boxes, open: Opener) -> Record:
    """Run a mechanism, calling `open(state, inspect)` for each inspection.

    >>> from pandora_router.boxes import Independent
    >>> from pandora_router.market import Covered, Descending
    >>> from pandora_router.search import reveal
    >>> boxes = Independent([0.5, 0.4], [0.2, 0.3], inspection_cost=0.01)
    >>> record = trade(Descending(), [Covered()] * 2, boxes, reveal([0.6, 0.78]))
    >>> record.winner, record.price, record.inspected
    (1, 0.78, (1,))
    """
    asking = market(mechanism, bidders, boxes)
    try:
        now, inspect = next(asking)
        while True:
            now, inspect = asking.send(open(now, inspect))
    except StopIteration as done:
        record: Record = done.value
        return record
