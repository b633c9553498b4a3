"""The messages between platform and bidders, as JSON objects. `docs/market.schema.json` is made from them.

    POST /offers    Offer -> BidReply       reply to a price: bid, wait or leave
    POST /answers   Delivery -> Delivered   the bidder has won: answer the prompt
    POST /losses    Losses -> Noted         lost auctions (optional: any status is accepted)

Prices, limits and costs are in units of reward. A price `null` means that there is none yet: a descending
clock starts above every limit, an ascending one below. Unknown fields of a reply are ignored, so no text of a
bidder except its answer is used.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from pandora_router.errors import UpstreamError
from pandora_router.market import Answer, Bid, Call, Leave, Wait
from pandora_router.types import MechanismName

VERSION = "1"
LARGEST = 2**20
"""Most bytes of one message in either direction."""
MOST = 1e6
"""The largest price, limit or cost, in units of reward."""
MOST_LOSSES = 1000
"""Auctions in one message to bidders that lost."""

Number = Annotated[float, Field(ge=-MOST, le=MOST, allow_inf_nan=False)]
Spent = Annotated[float, Field(ge=0.0, le=MOST, allow_inf_nan=False)]
Seconds = Annotated[float, Field(gt=0.0, le=3600.0, allow_inf_nan=False)]
Id = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,64}$")]


class _Read(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class OfferMessage(_Read):
    """One turn of a conversation."""

    role: Annotated[str, Field(max_length=20)]
    content: Annotated[str, Field(max_length=LARGEST)]


class Offer(_Read):
    """The platform asks: what do you say to this price?

    auction: the auction; all calls of one auction bear its id.
    turn: the number of this call to this bidder, from 0; the same turn again is a repeated call.
    mechanism: the rules.
    price: where the price stands; null if there is none yet.
    deadline: seconds that the platform waits for the reply; no reply is `leave`.
    keep: seconds after which the auction is over and what is held for it may be dropped.
    prompt: the text to answer; `messages` is the conversation it ends, if there is one.
    """

    auction: Id
    turn: Annotated[int, Field(ge=0, le=10_000)]
    mechanism: MechanismName
    price: Number | None
    deadline: Seconds
    keep: Seconds
    prompt: Annotated[str, Field(max_length=LARGEST)]
    messages: tuple[OfferMessage, ...] | None = None

    def call(self) -> Call:
        """The call as a strategy for a single box sees it."""
        none = math.inf if self.mechanism == "descending" else -math.inf
        return Call(0, none if self.price is None else self.price)


class BidReply(_Read):
    """What a bidder says, and what it reports: how often it looked in this auction so far, and what it paid.

    bid: `limit` is final. wait: call again when the clock reaches `until`. leave: no interest.
    """

    say: Literal["bid", "wait", "leave"]
    limit: Number | None = None
    until: Number | None = None
    looks: Annotated[int, Field(ge=0, le=1000)] = 0
    spent: Spent = 0.0

    def answer(self) -> Answer:
        """The answer in the words of `market`; raises `UpstreamError` if its number is missing."""
        if self.say == "bid" and self.limit is not None:
            return Bid(self.limit)
        if self.say == "wait" and self.until is not None:
            return Wait(self.until)
        if self.say == "leave":
            return Leave()
        raise UpstreamError(f"the reply {self.say!r} lacks its number")

    @classmethod
    def of(cls, answer: Answer, looks: int, spent: float) -> BidReply:
        """The reply that says `answer`."""
        if isinstance(answer, Bid):
            return cls(say="bid", limit=min(max(answer.limit, -MOST), MOST), looks=looks, spent=spent)
        if isinstance(answer, Wait):
            return cls(say="wait", until=min(max(answer.until, -MOST), MOST), looks=looks, spent=spent)
        return cls(say="leave", looks=looks, spent=spent)


class Delivery(_Read):
    """You have won at this price: answer within `deadline` seconds."""

    auction: Id
    price: Number
    deadline: Seconds
    prompt: Annotated[str, Field(max_length=LARGEST)]
    messages: tuple[OfferMessage, ...] | None = None


class Delivered(_Read):
    """The answer."""

    answer: Annotated[str, Field(min_length=1, max_length=LARGEST)]


class Losses(_Read):
    """You have not won these auctions: end what you began for them.

    Replies may be asked for again: if the winner does not deliver, the auction goes on.
    """

    auctions: Annotated[tuple[Id, ...], Field(max_length=MOST_LOSSES)]


class Noted(_Read):
    """The reply to `Losses`: how many of the auctions were known."""

    known: Annotated[int, Field(ge=0)] = 0


def schema() -> dict[str, Any]:
    """The JSON schema of all messages."""
    kinds = (Offer, BidReply, Delivery, Delivered, Losses, Noted)
    _, definitions = TypeAdapter.json_schemas(
        [(kind, "validation", TypeAdapter(kind)) for kind in kinds], title="pandora market messages"
    )
    return definitions


def broken(error: ValidationError) -> str:
    """The first mistake of a message, in one line without its content."""
    first = error.errors(include_input=False, include_url=False, include_context=False)[0]
    place = ".".join(str(part) for part in first["loc"]) or "the message"
    return f"{place}: {first['type'].replace('_', ' ')}"
