"""Participants: the platform's side of a bidder, which replies to calls and, if it wins, answers the prompt.

`RemoteParticipant` is a service with `POST /offers` and `POST /answers`. `ProxyParticipant` is a plain
endpoint for which the platform bids its own estimate. Nothing that a bidder does raises an exception here: a
reply that is late, broken, forged or impossible counts as `Leave`, with the reason.

A participant may have a handicap h (see `reputation`): every price it is shown and pays is increased by h,
and its limits are reduced by h. Its best replies are therefore the same as without a handicap.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol, TypeVar

from pydantic import BaseModel, ValidationError

from pandora_router.bidding.wire import (
    LARGEST,
    MOST_LOSSES,
    NONCE,
    SIGNATURE,
    BidReply,
    Delivered,
    Delivery,
    Forged,
    Losses,
    Noted,
    Offer,
    OfferMessage,
    check_reply,
    signed,
)
from pandora_router.errors import UpstreamError
from pandora_router.market import Answer, Bid, Call, Leave, Wait
from pandora_router.transport.failures import Failed
from pandora_router.transport.relay import Relay
from pandora_router.types import MechanismName

M = TypeVar("M", bound=BaseModel)
Fault = Literal["late", "unreachable", "broken", "forged", "impossible", "unfunded"]
"""Why a reply does not count.

`impossible`: it waits for a price that is gone, for the second time, or too often (`platform.MOST_CALLS`), or
asks to be paid more than an answer could be worth. `unfunded`: other auctions took the money of the bidder
between its bid and the award.
"""
Change = dict[str, Any]
GRID = 2.0**-30
"""Handicaps are multiples of this: adding and subtracting one loses no digit of a price below 2^20."""
PAUSE = 0.05
"""Seconds for which notices of lost auctions are collected; then each bidder gets one message."""
SECONDS = 2.0
"""Seconds that a bidder may take to acknowledge."""


@dataclass(frozen=True)
class Terms:
    """The information that all bidders of one auction get."""

    auction: str
    mechanism: MechanismName
    prompt: str
    messages: tuple[OfferMessage, ...] | None = None
    deadline: float = 1.0
    keep: float = 60.0


@dataclass(frozen=True)
class Heard:
    """The result of one call: the reply, what the bidder reports to have spent so far, and any fault.

    `price` is what the bidder was shown and `stated` the limit it named; `answer` counts in the auction,
    after the handicap.
    """

    bidder: str
    turn: int
    price: float
    answer: Answer
    stated: float | None = None
    looks: int = 0
    spent: float = 0.0
    seconds: float = 0.0
    fault: Fault | None = None


class Participant(Protocol):
    """One bidder of one auction."""

    @property
    def name(self) -> str:
        """The name of the bidder."""
        ...

    @property
    def funded(self) -> bool:
        """Whether it pays from a deposit and from what it has earned, and not more than that."""
        ...

    @property
    def proxy(self) -> bool:
        """Whether the platform bids for it; its account is not that of a bidder of the same name."""
        ...

    async def hear(self, call: Call, turn: int, terms: Terms) -> Heard:
        """Make one call; ends within `terms.deadline` seconds and never raises for what the bidder does."""
        ...

    def price(self, price: float) -> float:
        """What this bidder pays when the mechanism says `price`."""
        ...

    async def deliver(self, terms: Terms, price: float, seconds: float) -> str:
        """The answer to the prompt; raises `UpstreamError` if there is none within so many seconds."""
        ...

    async def lost(self, auctions: Sequence[str], seconds: float) -> None:
        """Send a notice that others won these auctions; a failure is ignored."""
        ...


@dataclass(frozen=True)
class ProxyParticipant:
    """A plain endpoint: the platform bids `worth` without inspecting; `answer` calls it."""

    name: str
    worth: float
    answer: Callable[[Terms], Awaitable[str]]
    funded: bool = False
    proxy: bool = True

    async def hear(self, call: Call, turn: int, terms: Terms) -> Heard:
        """Bid what it is believed to be worth."""
        return Heard(self.name, turn, call.price, Bid(self.worth), self.worth)

    def price(self, price: float) -> float:
        """The price itself."""
        return price

    async def deliver(self, terms: Terms, price: float, seconds: float) -> str:
        """Ask the endpoint."""
        try:
            async with asyncio.timeout(seconds):
                return await self.answer(terms)
        except TimeoutError:
            raise UpstreamError(f"{self.name} did not answer within {seconds:g} s") from None

    async def lost(self, auctions: Sequence[str], seconds: float) -> None:
        """Nothing was begun."""


@dataclass(frozen=True)
class RemoteParticipant:
    """A bidder service at `url`; `funds` is the most it can pay (its bids are cut off there)."""

    name: str
    url: str
    key: bytes = field(repr=False)
    handicap: float = 0.0
    funds: float = math.inf
    proxy: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "handicap", round(self.handicap / GRID) * GRID)

    @property
    def funded(self) -> bool:
        """Whether there is a limit to what it can pay."""
        return math.isfinite(self.funds)

    async def hear(self, call: Call, turn: int, terms: Terms) -> Heard:
        """POST the call to /offers and read the reply."""
        shown = call.price + self.handicap
        offer = Offer(
            auction=terms.auction,
            turn=turn,
            mechanism=terms.mechanism,
            price=shown if math.isfinite(shown) else None,
            deadline=terms.deadline,
            keep=terms.keep,
            prompt=terms.prompt,
            messages=terms.messages,
        )
        return await self._heard(Heard(self.name, turn, shown, Leave()), terms, self._offered(offer))

    async def _offered(self, offer: Offer) -> Change:
        reply = await self._post("/offers", offer, BidReply, offer.deadline)
        counted = self._counted(reply.answer(), offer.mechanism)
        return {"looks": reply.looks, "spent": reply.spent, "answer": counted, "stated": reply.limit}

    async def _heard(self, before: Heard, terms: Terms, exchange: Coroutine[Any, Any, Change]) -> Heard:
        """`before` with the result of the exchange, or with the fault for which it does not count."""
        began = time.perf_counter()
        change: Change
        try:
            async with asyncio.timeout(terms.deadline):
                change = await exchange
        except TimeoutError:
            change = {"fault": "late"}
        except Forged:
            change = {"fault": "forged"}
        except Failed as error:
            change = {"fault": "late" if error.failure == "timeout" else "unreachable"}
        except UpstreamError:
            change = {"fault": "broken"}
        return replace(before, seconds=before.seconds + time.perf_counter() - began, **change)

    def _counted(self, answer: Answer, mechanism: MechanismName) -> Answer:
        """The answer as it counts: after the handicap, and not beyond what the bidder can pay.

        A price to wait for is moved to the grid in the direction of the clock, so that the bidder is shown
        that price or one beyond it, whatever is added and subtracted in between.
        """
        if isinstance(answer, Bid):
            return Bid(min(answer.limit, self.funds) - self.handicap)
        if isinstance(answer, Wait):
            until = min(answer.until, self.funds)
            if self.handicap:
                onward = math.floor if mechanism == "descending" else math.ceil
                until = onward(until / GRID) * GRID
            return Wait(until - self.handicap)
        return answer

    def price(self, price: float) -> float:
        """The price with the handicap."""
        return price + self.handicap

    async def deliver(self, terms: Terms, price: float, seconds: float) -> str:
        """POST to /answers."""
        message = Delivery(
            auction=terms.auction,
            price=price,
            deadline=seconds,
            prompt=terms.prompt,
            messages=terms.messages,
        )
        try:
            async with asyncio.timeout(seconds):
                return (await self._post("/answers", message, Delivered, seconds)).answer
        except TimeoutError:
            raise UpstreamError(f"{self.name} did not answer within {seconds:g} s") from None
        except Forged as error:
            raise UpstreamError(f"{self.name}: {error}") from None

    async def lost(self, auctions: Sequence[str], seconds: float) -> None:
        """POST to /losses; the reply is ignored."""
        for first in range(0, len(auctions), MOST_LOSSES):
            message = Losses(auctions=tuple(auctions[first : first + MOST_LOSSES]))
            try:
                async with asyncio.timeout(seconds):
                    await self._post("/losses", message, Noted, seconds)
            except (TimeoutError, Forged, UpstreamError):
                return

    async def _post(self, path: str, message: BaseModel, kind: type[M], seconds: float) -> M:
        """One signed exchange; raises `Failed`, `Forged` or `UpstreamError`.

        A connection that breaks without a reply is tried once more: a kept connection may have been closed by
        the other side a moment before, and repeated messages get the same reply.
        """
        try:
            return await self._exchange(path, message, kind, seconds)
        except Failed as error:
            if error.failure != "connection":
                raise
            return await self._exchange(path, message, kind, seconds)

    async def _exchange(self, path: str, message: BaseModel, kind: type[M], seconds: float) -> M:
        body = message.model_dump_json(exclude_none=path != "/offers").encode()
        headers = signed(self.key, path, body, time.time())
        relay = await Relay.open(
            self.url + path, body, {**headers, "content-type": "application/json"}, seconds
        )
        try:
            reply = await relay.read(LARGEST)
            if relay.status != 200:
                raise UpstreamError(f"{self.name} answered with status {relay.status}")
            check_reply(self.key, headers[NONCE], reply, relay.headers.get(SIGNATURE))
            return kind.model_validate_json(reply)
        except ValidationError:
            raise UpstreamError(f"{self.name} sent a message of another shape") from None
        finally:
            relay.close()


@dataclass
class LossNotices:
    """Tells bidders which auctions they lost, so that they cancel the answers they began; `add` never waits.

    Notices to one bidder are collected for `PAUSE` seconds and sent together. A bidder that misses one
    cancels what it began when the time `keep` of the auction has passed.
    """

    _waiting: dict[str, tuple[Participant, list[str]]] = field(default_factory=dict)
    _task: asyncio.Task[None] | None = None

    def add(self, participant: Participant, auction: str) -> None:
        """Have `participant` told that it lost `auction`."""
        self._waiting.setdefault(participant.name, (participant, []))[1].append(auction)
        if self._task is None or self._task.done():
            self._task = asyncio.ensure_future(self._send())

    async def _send(self) -> None:
        while self._waiting:
            await asyncio.sleep(PAUSE)
            batch, self._waiting = self._waiting, {}
            await asyncio.gather(
                *(participant.lost(auctions, SECONDS) for participant, auctions in batch.values())
            )
