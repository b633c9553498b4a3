r"""Messages between platform and bidders, and their signatures.

Signatures: requests and replies carry an HMAC of their bytes with a key that both parties share.

    x-pandora-time        seconds since 1970, as decimal text
    x-pandora-nonce       a random text, never used twice
    x-pandora-signature   hex of HMAC-SHA256(key, path \n time \n nonce \n body)

A reply has only `x-pandora-signature`: HMAC-SHA256(key, nonce of the request \n body), so that it is valid
for that request alone. A receiver refuses a time more than `WINDOW` seconds away, a time before it started
(when it did not record nonces) and a nonce that it has seen.

The platform stores no keys of bidders: each is derived from its one secret, the bidder's name and a version.

The messages between platform and bidders, as JSON objects. `docs/market.schema.json` is made from them.

    POST /offers    Offer -> BidReply       reply to a price: bid, wait or leave
    POST /answers   Delivery -> Delivered   the bidder has won: answer the prompt
    POST /losses    Losses -> Noted         lost auctions (optional: any status is accepted)

Prices, limits and costs are in units of reward. A price `null` means that there is none yet: a descending
clock starts above every limit, an ascending one below. Unknown fields of a reply are ignored, so no text of a
bidder except its answer is used.
"""

from __future__ import annotations

import hmac
import math
import re
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from pandora_router.errors import PandoraError, UpstreamError
from pandora_router.market import Answer, Bid, Call, Leave, Wait
from pandora_router.types import MechanismName

TIME, NONCE, SIGNATURE = "x-pandora-time", "x-pandora-nonce", "x-pandora-signature"
WINDOW = 30.0
"""Most seconds of clock difference and transmission time together."""
MOST_NONCES = 1_000_000
_TIME = re.compile(r"\d{1,12}(\.\d{1,9})?")


class Forged(PandoraError):
    """A message with a wrong signature, or a repeated one."""


def bidder_key(secret: bytes, name: str, version: int = 1) -> bytes:
    """The key that the platform shares with the bidder `name`; another version makes another key."""
    return hmac.digest(secret, f"bidder\n{version}\n{name}".encode(), "sha256").hex().encode()


def signature(key: bytes, *parts: bytes) -> str:
    """HMAC-SHA256 over the parts, joined by line feeds; no part but the last may contain one."""
    return hmac.digest(key, b"\n".join(parts), "sha256").hex()


def signed(key: bytes, path: str, body: bytes, now: float) -> dict[str, str]:
    """The headers of a request."""
    at, nonce = f"{now:.3f}", secrets.token_hex(12)
    return {
        TIME: at,
        NONCE: nonce,
        SIGNATURE: signature(key, path.encode(), at.encode(), nonce.encode(), body),
    }


def check_reply(key: bytes, nonce: str, body: bytes, stated: str | None) -> None:
    """Raise `Forged` unless `stated` is the signature of a reply to the request with this nonce."""
    expected = signature(key, nonce.encode(), body).encode()
    if not hmac.compare_digest(expected, (stated or "").encode(errors="replace")):
        raise Forged("the reply is not signed by the bidder")


@dataclass
class RequestVerifier:
    """Accepts requests that are signed with `key`, each once."""

    key: bytes
    clock: Callable[[], float] = time.time
    _seen: OrderedDict[str, float] = field(default_factory=OrderedDict)
    _opened: float = 0.0

    def __post_init__(self) -> None:
        self._opened = self.clock()

    def check(self, path: str, headers: Mapping[str, str], body: bytes) -> str:
        """The nonce of a request; raises `Forged` if it is not signed, too old, or was seen before."""
        at, nonce, stated = (headers.get(name, "") for name in (TIME, NONCE, SIGNATURE))
        expected = signature(self.key, path.encode(), at.encode(), nonce.encode(), body)
        if not hmac.compare_digest(expected.encode(), stated.encode()):
            raise Forged("the signature does not fit")
        now = self.clock()
        sent = float(at) if _TIME.fullmatch(at) else 0.0
        if abs(now - sent) > WINDOW or sent < self._opened - 1.0:
            raise Forged("the message is too old, or its clock is wrong")
        while self._seen and (next(iter(self._seen.values())) < now - 2 * WINDOW):
            self._seen.popitem(last=False)
        if nonce in self._seen or len(self._seen) >= MOST_NONCES:
            raise Forged("the message was sent before")
        self._seen[nonce] = now
        return nonce


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
