"""A bidder: what it keeps to itself, and its HTTP service.

The private side has the bidder's estimate for a prompt, its look and its answer. `BidderSide` is the
protocol; `RouterSide` is a specialist with its own artifact, whose look is the beginning of its answer.

The service inspects its own box if that pays at the price, and replies.

There is one `State` per auction, so that the box stays open for later calls; a repeated call gets the same
reply. The value itself never leaves the service: a reply is a limit, a price to wait for, or leaving. Every
internal failure becomes `leave`.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import orjson
from pydantic import BaseModel, ValidationError

from pandora_router.bidding.participants import Terms
from pandora_router.bidding.wire import (
    LARGEST,
    SIGNATURE,
    VERSION,
    BidReply,
    Delivered,
    Delivery,
    Forged,
    Losses,
    Noted,
    Offer,
    RequestVerifier,
    broken,
    signature,
)
from pandora_router.boxes import Boxes
from pandora_router.calibrate.signals import Prior
from pandora_router.errors import PandoraError, UpstreamError, UsageError
from pandora_router.estimators.estimator import Query
from pandora_router.estimators.looking import Looking
from pandora_router.market import Covered, Guided, Leave, Myopic, Quoting, Strategy
from pandora_router.router import Router
from pandora_router.router.driver import judged
from pandora_router.search import Inspect, State
from pandora_router.specialists.specialist import Message, Request, Specialist
from pandora_router.transport.asgi import Gone, Receive, Refused, Reply, Scope, Send, read_body
from pandora_router.types import MechanismName

MOST_AUCTIONS = 20_000
"""Most auctions at the same time; beyond that the oldest is dropped."""

TRUTHFUL: Mapping[MechanismName, Strategy] = {
    "sequential": Quoting(),
    "descending": Covered(),
    "ascending": Myopic(),
    "second price": Guided(),
    "leave one out": Quoting(),
}
"""How a bidder answers the calls of each mechanism."""


@dataclass
class BidderTally:
    """A bidder's own record of offers, looks, payments and wins; JSON lines if there is a `file`."""

    file: Path | None = None
    offers: int = 0
    looks: int = 0
    spent: float = 0.0
    won: int = 0
    paid: float = 0.0

    def note(self, auction: str, what: str, amount: float = 0.0) -> None:
        """Count one event and append it to the file."""
        if what == "offer":
            self.offers += 1
        elif what == "look":
            self.looks, self.spent = self.looks + 1, self.spent + amount
        elif what == "won":
            self.won, self.paid = self.won + 1, self.paid + amount
        if self.file is not None and what != "offer":
            line = json.dumps({"at": time.time(), "auction": auction, "what": what, "amount": amount})
            with self.file.open("a") as out:
                out.write(line + "\n")


@dataclass
class Holding:
    """The state of one auction."""

    ends: float
    state: State | None = None
    looks: int = 0
    replies: dict[int, BidReply] = field(default_factory=dict)
    delivered: Delivered | None = None
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


@dataclass
class BidderService:
    """The ASGI application of one bidder; `key` is shared with the platform."""

    name: str
    private: BidderSide
    key: bytes
    strategies: Mapping[MechanismName, Strategy] = field(default_factory=lambda: TRUTHFUL)
    tally: BidderTally = field(default_factory=BidderTally)
    clock: Callable[[], float] = time.monotonic
    auctions: OrderedDict[str, Holding] = field(default_factory=OrderedDict)

    def __post_init__(self) -> None:
        self._verifier = RequestVerifier(self.key)
        self._routes: dict[str, tuple[type[BaseModel], Callable[[Any], Awaitable[BaseModel]]]] = {
            "/offers": (Offer, self.offers),
            "/answers": (Delivery, self.answers),
            "/losses": (Losses, self.losses),
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one HTTP request."""
        if scope["type"] != "http":
            return
        try:
            status, body, headers = 200, *await self._handle(scope, receive)
        except Gone:
            return
        except Refused as refused:
            status, body, headers = refused.status, orjson.dumps({"error": refused.message}), {}
        await Reply(body, status, headers=headers).send(send)

    async def _handle(self, scope: Scope, receive: Receive) -> tuple[bytes, Mapping[str, str]]:
        path = scope["path"]
        if scope["method"] == "GET" and path == "/health":
            return orjson.dumps({"bidder": self.name, "protocol": VERSION}), {}
        if scope["method"] != "POST" or path not in self._routes:
            known = ", ".join(self._routes)
            raise Refused(404, f"There are POST {known} and GET /health.", "not_found")
        kind, act = self._routes[path]
        body = await read_body(receive, 4 * LARGEST)
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        try:
            nonce = self._verifier.check(path, headers, body)
            message = kind.model_validate_json(body)
        except Forged as error:
            raise Refused(401, str(error), "forged") from None
        except ValidationError as error:
            raise Refused(400, broken(error), "broken") from None
        try:
            reply = (await act(message)).model_dump_json(exclude_none=True).encode()
        except PandoraError as error:
            raise Refused(503, type(error).__name__, "failed") from None
        return reply, {SIGNATURE: signature(self.key, nonce.encode(), reply)}

    def _held(self, auction: str, keep: float) -> Holding:
        """The state of the auction; also drops auctions that have ended."""
        now = self.clock()
        while self.auctions:
            oldest, held = next(iter(self.auctions.items()))
            if held.ends > now and len(self.auctions) < MOST_AUCTIONS:
                break
            del self.auctions[oldest]
            self.private.drop(oldest)
        if auction not in self.auctions:
            self.auctions[auction] = Holding(now + keep)
        return self.auctions[auction]

    async def offers(self, offer: Offer) -> BidReply:
        """BidReply to a price."""
        held = self._held(offer.auction, offer.keep)
        async with held.lock:
            if offer.turn not in held.replies:
                self.tally.note(offer.auction, "offer")
                held.replies[offer.turn] = await self._say(offer, held)
            return held.replies[offer.turn]

    async def _say(self, offer: Offer, held: Holding) -> BidReply:
        try:
            if held.state is None:
                held.state = State(await self.private.box(offer))
        except PandoraError:
            return BidReply.of(Leave(), held.looks, 0.0)
        strategy, call = self.strategies[offer.mechanism], offer.call()
        while isinstance(action := strategy.next(call, held.state), Inspect):
            cost = float(held.state.boxes.inspection_cost[0])
            value = await looked(self.private, offer)
            held.state = held.state.lose(0) if value is None else held.state.observe(0, value)
            held.looks += 1
            self.tally.note(offer.auction, "look", cost)
        return BidReply.of(action, held.looks, held.state.spent)

    async def answers(self, delivery: Delivery) -> Delivered:
        """Deliver the answer that was won; a repeated message gets the same answer."""
        held = self._held(delivery.auction, delivery.deadline)
        async with held.lock:
            if held.delivered is None:
                held.delivered = Delivered(answer=await self.private.answer(delivery))
                self.tally.note(delivery.auction, "won", delivery.price)
            return held.delivered

    async def losses(self, lost: Losses) -> Noted:
        """End what was begun for auctions that others won; replies are kept, in case they are repeated."""
        known = 0
        for auction in lost.auctions:
            held = self.auctions.get(auction)  # auctions that end are dropped while this one waits
            if held is not None:
                known += 1
                async with held.lock:  # a look under way comes to its end first
                    self.private.drop(auction)
        return Noted(known=known)


class BidderSide(Protocol):
    """The private side of one bidder. A `PandoraError` of any method means that it cannot take part."""

    async def box(self, offer: Offer) -> Boxes:
        """One box: the bidder's belief about the offered prompt before it inspects."""
        ...

    async def look(self, offer: Offer) -> float:
        """Pay for a look and return the value that it showed."""
        ...

    async def answer(self, delivery: Delivery) -> str:
        """Answer the prompt; continues the answer begun by a look."""
        ...

    def drop(self, auction: str) -> None:
        """Cancel what is held for a lost auction; may be called repeatedly."""
        ...


@dataclass
class RouterSide:
    """The specialist `name` of a fitted router: its f and g, its inspection cost, its own answers.

    Looks that need a context begin the specialist's answer; if the auction is won, the answer is continued.
    """

    router: Router
    specialist: Specialist
    held: dict[str, Looking] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.specialist.name not in self.router.specialists:
            raise UsageError(
                f"the bidder {self.specialist.name}",
                expected=f"one of {', '.join(self.router.specialists)}, for whom the router was fitted",
                came=repr(self.specialist.name),
                do="Fit a router with this specialist in its table.",
            )

    @property
    def at(self) -> int:
        """The column of this specialist."""
        return self.router.specialists.index(self.specialist.name)

    async def box(self, offer: Offer) -> Boxes:
        """The specialist's own box, from the cheap estimates of the prompt.

        Raises `UsageError` for messages that the specialist could not answer.
        """
        request_of(offer)
        prior = await self.router.worker(self._prior, offer.prompt)
        return prior.boxes.only(np.array([self.at]))

    def _prior(self, prompt: str) -> Prior:
        cheap = judged(self.router.cheap, [prompt])[0]
        if cheap.row is None:
            raise UpstreamError(f"the prompt cannot be judged: {cheap.because}")
        return self.router.signal.prior(cheap.row, self.router.costs)

    async def look(self, offer: Offer) -> float:
        """The costly estimate as a value; begins the answer if the estimate reads it."""
        name, predictor = self.specialist.name, self.router.predictor
        if predictor is None:
            raise UpstreamError("the costly estimate is not computed by this process")
        looking = self.held.get(offer.auction)
        if looking is None:
            # the predictor knows other specialists too; only this one is ever asked for
            everyone: Mapping[str, Specialist] = dict.fromkeys(predictor.needs, self.specialist)
            looking = Looking(request_of(offer), predictor, everyone, work=self.router.worker)
            self.held[offer.auction] = looking
        estimates = await looking.estimate_all(Query(offer.prompt), [name])
        if not np.isfinite(estimates[self.at]):
            raise UpstreamError("the look showed nothing")
        prior = await self.router.worker(self._prior, offer.prompt)
        means = prior.means(np.arange(len(estimates)) == self.at, estimates)
        return prior.value(self.at, float(estimates[self.at])) if means is None else means[self.at]

    async def answer(self, delivery: Delivery) -> str:
        """Continue the beginning, or answer from the start."""
        looking = self.held.pop(delivery.auction, None)
        if looking is None:
            return (await self.specialist.answer(request_of(delivery))).text
        with looking:
            return (await looking.answer(self.specialist.name)).text

    def drop(self, auction: str) -> None:
        """Cancel the beginning."""
        looking = self.held.pop(auction, None)
        if looking is not None:
            looking.close()


def request_of(message: Offer | Delivery | Terms) -> Request:
    """The conversation of a message, or its prompt alone.

    Raises `UsageError` if a role is unknown or no message is by the user.
    """
    if not message.messages:
        return Request.of(message.prompt)
    return Request(tuple(Message(turn.role, turn.content) for turn in message.messages))


async def looked(private: BidderSide, offer: Offer) -> float | None:
    """The value that a look shows within the deadline of the offer; None if it fails or takes longer."""
    try:
        async with asyncio.timeout(0.9 * offer.deadline):
            return await private.look(offer)
    except (UpstreamError, TimeoutError, OSError):
        return None
