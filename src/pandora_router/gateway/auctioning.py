"""`routing: market`: who answers is decided by an auction among bidders that have joined and plain endpoints.

The gateway's own specialists take part by proxy and are called as always, on every wire. A bidder that has
joined gets the conversation as texts and returns a text, which is said on the wire of the request: requests
that need more than texts (tools, images, schemas, several answers) go to plain endpoints alone. An auction
has the id of its decision, so that feedback on the decision settles it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pandora_router.bidding.beliefs import Even, RouterBeliefs
from pandora_router.bidding.floor import Floor
from pandora_router.bidding.platform import Auction
from pandora_router.bidding.seats import Terms
from pandora_router.bidding.wire import LARGEST, OfferMessage
from pandora_router.errors import UpstreamError
from pandora_router.gateway.attempts import RunningAttempt
from pandora_router.gateway.backend import BYTES_PER_TOKEN, Backend, TokenTariff
from pandora_router.gateway.choosing import Choice, asked, fallback
from pandora_router.gateway.site import Profile, Site
from pandora_router.gateway.spoken import SpokenReply, conversation
from pandora_router.gateway.wires import WIRES, Turn, Wire
from pandora_router.store import auctions
from pandora_router.store.worker import Store
from pandora_router.transport.asgi import Refused
from pandora_router.transport.endpoint import Endpoint
from pandora_router.transport.failures import Failed

NOT_TEXT = frozenset(
    {"n", "functions", "response_format", "modalities", "audio", "previous_response_id", "conversation"}
)
"""Members of a request that a bidder could not honour."""


async def joined(floor: Floor, store: Store, site: Site) -> Site:
    """The site with the bidders that have joined; one that has the name of a specialist takes its place."""
    standing = await floor.standing(store)
    bidders = {bidder.name: _backend(bidder) for bidder in standing.bidders if _takes_part(bidder, site)}
    own = [backend for backend in site.backends if backend.name not in bidders]
    return replace(site, backends=(*own, *bidders.values())) if bidders else site


def _takes_part(bidder: auctions.Membership, site: Site) -> bool:
    """The default specialist answers what nobody wins and is always called by the gateway itself."""
    return bidder.name not in ("auto", site.settings.default)


def _backend(bidder: auctions.Membership) -> Backend:
    """A bidder as the gateway sees it: texts only, on every wire; what it costs is in the market's ledger."""
    return Backend(
        bidder.name,
        Endpoint(bidder.url),
        bidder.name,
        TokenTariff(0.0, 0.0),
        wires=frozenset(wire.name for wire in WIRES),
        abilities=frozenset(),
        refuses=NOT_TEXT,
        context=LARGEST // (2 * BYTES_PER_TOKEN),
        looks=False,
    )


@dataclass
class RequestAuction:
    """The auction of one request: who is to answer, its answer if it is a bidder, and how it ended."""

    auction: Auction
    endpoints: frozenset[str]
    store: Store

    @property
    def winner(self) -> str:
        """Who is to answer now."""
        return self.auction.seat.name

    @property
    def looked(self) -> tuple[str, ...]:
        """Bidders that say they looked."""
        return tuple(dict.fromkeys(heard.bidder for heard in self.auction.hall.heard if heard.looks))

    async def runner_up(self) -> str | None:
        """Who is to answer after the present winner did not; None if the default was asked already."""
        await self.auction.stalled()
        assert self.auction.sale is not None
        if self.auction.sale.bidder is None:
            return None
        await self.auction.award()
        return self.winner

    def delivers(self, name: str) -> bool:
        """Whether the answer comes from a bidder by POST /answers and not from an endpoint."""
        return name not in self.endpoints

    async def answer(self, attempt: RunningAttempt, *, stream: bool) -> SpokenReply:
        """The winner's answer on the wire of the attempt; raises `Failed` if it does not deliver."""
        try:
            text = await self.auction.deliver()
        except UpstreamError as error:
            raise Failed(f"{self.winner} did not deliver: {error}", "cut", again=True) from error
        wire, name = attempt.wire.name, self.winner
        return SpokenReply(wire, text, name, attempt.id, attempt.size, stream=stream)

    async def end(self, *, answered: bool) -> None:
        """Record whether the present winner has answered."""
        await (self.auction.delivered() if answered else self.auction.stalled())

    def abandon(self) -> None:
        """Take back an award whose client has gone; waits for nothing, does nothing after `end`."""
        sale, now = self.auction.sale, time.time()
        if sale is not None:
            self.store.keep(lambda open_: auctions.abandon(open_, sale.auction, sale.turn, now))


@dataclass(frozen=True)
class AuctionRequest:
    """What an auction is held about: the request `id`, read as `turn`, and who may answer it.

    `answered` is false where nobody is to be called.
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
        """The kind of prompt that the client states, for reputation."""
        return self.headers.get("x-pandora-kind", "")[:64]


async def hold(
    site: Site, store: Store, profile: Profile | None, request: AuctionRequest
) -> tuple[Choice, RequestAuction | None]:
    """Hold the auction of a request to its first award; who is asked, and how it goes on.

    A prompt that the router cannot judge goes to the default specialist, without an auction. Raises `Refused`
    for a request that is not to be answered: bidders would look for nothing.
    """
    floor = site.market
    assert floor is not None
    if not request.answered:
        raise Refused(400, "An auction is held only for a request that is answered.", "invalid_request")
    standing = await floor.standing(store)
    bidders = {bidder.name for bidder in standing.bidders if _takes_part(bidder, site)}
    endpoints = [name for name in request.offered if name not in bidders]
    default = site.settings.default
    if endpoints and default not in endpoints:
        default = endpoints[0]
    spoken = conversation(request.wire.name, request.parsed)
    messages = tuple(OfferMessage(role=role, content=text) for role, text in spoken)
    terms = Terms(request.id, floor.rules.mechanism, asked(request.turn), messages)
    router = None if profile is None else profile.router
    beliefs = Even() if router is None else RouterBeliefs(router)

    async def ask(name: str, terms: Terms) -> str:
        raise UpstreamError(f"{name} is called by the gateway")

    try:
        auction = await floor.open(
            *(store, terms, endpoints, beliefs, default, ask),
            kind=request.kind,
            bidders=bidders & set(request.offered),
        )
    except UpstreamError as error:
        return fallback(site.settings, request.offered, str(error)), None
    await auction.award()
    held = RequestAuction(auction, frozenset({*endpoints, default}), store)
    rest = (name for name in (default,) if name != held.winner)
    choice = Choice(
        (held.winner, *rest),
        held.winner,
        f"market: {floor.rules.mechanism}",
        "" if router is None else router.id,
        inspected=held.looked,
        detail={},
    )
    return choice, held
