"""`routing: market`: an auction among registered bidders and plain endpoints chooses who answers a request.

For the gateway's own specialists the platform bids by proxy; if one wins, it is called as without a market. A
registered bidder receives the conversation as plain text and returns plain text, which is converted to the
API of the request. Requests that need more than text (tools, images, schemas, several answers) are offered to
the gateway's own specialists only. An auction has the id of its decision, so feedback on the decision settles
the auction.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pandora_router.bidding.auctioneer import Auctioneer
from pandora_router.bidding.participants import Terms
from pandora_router.bidding.platform import Auction
from pandora_router.bidding.rules import Even, RouterBeliefs
from pandora_router.bidding.wire import LARGEST, OfferMessage
from pandora_router.errors import UpstreamError
from pandora_router.gateway.generation import Profile, Site
from pandora_router.gateway.providers.backend import NOT_TEXT, Backend, SpokenReply
from pandora_router.gateway.request.attempts import RunningAttempt
from pandora_router.gateway.request.choice import Choice, asked, fallback
from pandora_router.prices import BYTES_PER_TOKEN, FREE
from pandora_router.store import auctions
from pandora_router.store.database import Transaction
from pandora_router.store.worker import Store
from pandora_router.transport.asgi import Refused
from pandora_router.transport.endpoint import Endpoint
from pandora_router.transport.failures import Failed
from pandora_router.wires.known import WIRES
from pandora_router.wires.wire import Turn, Wire


async def joined(auctioneer: Auctioneer, store: Store, site: Site) -> Site:
    """Return `site` with registered bidders as backends.

    A bidder that has the name of a specialist replaces it.
    """
    standing = await auctioneer.standing(store)
    bidders = {bidder.name: _backend(bidder) for bidder in standing.bidders if _takes_part(bidder, site)}
    own = [backend for backend in site.backends if backend.name not in bidders]
    return replace(site, backends=(*own, *bidders.values())) if bidders else site


def _takes_part(bidder: auctions.Membership, site: Site) -> bool:
    """Whether a bidder may take part. The name of the default specialist is reserved for the gateway."""
    return bidder.name not in ("auto", site.settings.default)


def _backend(bidder: auctions.Membership) -> Backend:
    """A bidder as a backend: text only, on every wire, at price 0; the market's ledger has what it costs."""
    return Backend(
        bidder.name,
        Endpoint(bidder.url),
        bidder.name,
        FREE,
        wires=frozenset(wire.name for wire in WIRES),
        abilities=frozenset(),
        refuses=NOT_TEXT,
        context=LARGEST // (2 * BYTES_PER_TOKEN),
        looks=False,
    )


@dataclass
class RequestAuction:
    """The auction of one request after its first award.

    endpoints: names of the specialists that the gateway calls itself; all others are bidders.
    forfeit: what a winner that does not answer loses of its deposit, in units of reward.
    received: whether the whole answer of a bidder has arrived.
    ended: whether the write that ends the auction was handed out.
    """

    auction: Auction
    endpoints: frozenset[str]
    store: Store
    forfeit: float
    received: bool = False
    ended: bool = False

    @property
    def winner(self) -> str:
        """The name of the specialist or bidder that has the award now."""
        return self.auction.participant.name

    @property
    def looked(self) -> tuple[str, ...]:
        """Bidders that report an inspection."""
        return tuple(dict.fromkeys(heard.bidder for heard in self.auction.hall.heard if heard.looks))

    async def runner_up(self) -> str | None:
        """Take the award from a winner that failed and return the next one.

        None if the winner that failed was the default.
        """
        await self.auction.stalled()
        assert self.auction.sale is not None
        if self.auction.sale.bidder is None:
            return None
        await self.auction.award()
        return self.winner

    def delivers(self, name: str) -> bool:
        """Whether `name` is a bidder, which delivers by POST /answers, and not one of `endpoints`."""
        return name not in self.endpoints

    async def answer(self, attempt: RunningAttempt, *, stream: bool) -> SpokenReply:
        """The winner's answer on the wire of the attempt; raises `Failed` if it does not deliver."""
        try:
            text = await self.auction.deliver()
        except UpstreamError as error:
            raise Failed(f"{self.winner} did not deliver: {error}", "cut", again=True) from error
        self.received = True
        return SpokenReply(
            attempt.quote.wire, text, self.winner, attempt.id, attempt.quote.size, stream=stream
        )

    def end(self, *, answered: bool) -> Callable[[Transaction], object]:
        """Return the write that ends the auction; the caller commits it together with the decision.

        It records that the winner has answered, or that it has not and loses its forfeit.
        """
        sale, now, self.ended = self.auction.sale, time.time(), True
        assert sale is not None
        if answered:
            return lambda open_: auctions.deliver(open_, sale.auction, sale.turn)
        return lambda open_: auctions.stall(open_, sale.auction, sale.turn, now, forfeit=self.forfeit)

    def abandon(self) -> None:
        """End the auction because the client disconnected. Does not wait; has no effect after `end`.

        A bidder whose whole answer has arrived has delivered it. Any other award is cancelled.
        """
        sale, now = self.auction.sale, time.time()
        if sale is None or self.ended:
            return
        if self.received:
            self.store.keep(lambda open_: auctions.deliver(open_, sale.auction, sale.turn))
        else:
            self.store.keep(lambda open_: auctions.abandon(open_, sale.auction, sale.turn, now))


@dataclass(frozen=True)
class AuctionRequest:
    """The request that an auction is held for.

    turn: the request as parsed on `wire`; `parsed` is its JSON body.
    offered: names of the specialists and bidders that may answer.
    answered: whether the request is to be answered; false if only a decision is wanted.
    """

    id: str
    wire: Wire
    headers: Mapping[str, str]
    parsed: Mapping[str, Any]
    turn: Turn
    offered: Sequence[str]
    answered: bool

    @property
    def kind(self) -> str:
        """The kind of prompt from the header x-pandora-kind, for reputation."""
        return self.headers.get("x-pandora-kind", "")[:64]


async def hold(
    site: Site, store: Store, profile: Profile | None, request: AuctionRequest
) -> tuple[Choice, RequestAuction | None]:
    """Hold the auction of a request until its first award; return the choice and the auction.

    If the router cannot estimate rewards for the prompt, the default specialist is chosen and the auction is
    None. Raises `Refused` (400) if the request is not to be answered: bidders would pay for inspections
    without a chance to win.
    """
    auctioneer = site.market
    assert auctioneer is not None
    if not request.answered:
        raise Refused(
            400,
            "With `routing: market` every request is answered; a decision alone is not possible.",
            "invalid_request",
        )
    standing = await auctioneer.standing(store)
    bidders = {bidder.name for bidder in standing.bidders if _takes_part(bidder, site)}
    invited = bidders & set(request.offered)
    endpoints = [name for name in request.offered if name not in bidders]
    default = site.settings.default
    if endpoints and default not in endpoints:
        default = endpoints[0]
    spoken = request.wire.conversation(request.parsed) if invited else ()  # else it may be too long to send
    messages = tuple(OfferMessage(role=role, content=text) for role, text in spoken)
    terms = Terms(request.id, auctioneer.rules.mechanism, asked(request.turn), messages)
    router = None if profile is None else profile.router
    beliefs = Even() if router is None else RouterBeliefs(router)

    async def ask(name: str, terms: Terms) -> str:
        raise UpstreamError(f"{name} is called by the gateway")

    try:
        auction = await auctioneer.open(
            *(store, terms, endpoints, beliefs, default, ask),
            kind=request.kind,
            bidders=invited,
        )
    except UpstreamError as error:
        return fallback(site.settings, request.offered, str(error)), None
    await auction.award()
    held = RequestAuction(auction, frozenset({*endpoints, default}), store, auctioneer.forfeit)
    rest = (name for name in (default,) if name != held.winner)
    choice = Choice(
        (held.winner, *rest),
        held.winner,
        f"market: {auctioneer.rules.mechanism}",
        "" if router is None else router.id,
        inspected=held.looked,
        detail={},
    )
    return choice, held
