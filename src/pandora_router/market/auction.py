"""An auction as a generator: it asks bidders through whoever drives it and ends with an award.

`rounds` yields the calls that may be made at the same time, because none of them depends on the answer to
another, and is sent their answers in the same order. `auction` is the same with one call at a time. Neither
knows a box, a value or a network: in-process strategies (`trade`), replays and services over HTTP drive them
alike, so that the same answers give the same award.

An answer must make progress. A bidder that answered `Wait` and is called again at the same price was waiting
for a price that the clock had passed; if it answers `Wait` again, `UsageError` is raised.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass

from pandora_router.errors import UsageError
from pandora_router.market.mechanisms import Mechanism
from pandora_router.market.messages import Answer, Award, Book, Call, Wait

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
