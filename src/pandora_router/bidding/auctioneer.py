"""Opens auctions among registered bidders and plain endpoints, for `pandora market serve` and the gateway.

Registered bidders, their reputation and their balances are read from the store and cached for `FRESH`
seconds, so a bidder that joins takes part at most that much later. For a plain endpoint the platform bids by
proxy, at the mean reward that its own estimates predict. If a bidder has joined under the name of an
endpoint, the bidder takes part and the endpoint does not. `StoreRecorder` writes each step of an auction
to the ledger before the next one is taken.
"""

from __future__ import annotations

import math
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from pandora_router.bidding.participants import (
    Heard,
    LossNotices,
    Participant,
    ProxyParticipant,
    RemoteParticipant,
    Terms,
)
from pandora_router.bidding.platform import Auction, Platform, Sale
from pandora_router.bidding.rules import Beliefs, Reputation, Rules
from pandora_router.bidding.wire import bidder_key
from pandora_router.market import Bid, Wait
from pandora_router.store import auctions
from pandora_router.store.database import Transaction
from pandora_router.store.worker import Store

FRESH = 1.0
"""Seconds for which the cached standings of the bidders are used."""

Ask = Callable[[str, Terms], Awaitable[str]]
"""Asks the plain endpoint of this name for its answer."""


@dataclass(frozen=True)
class BidderStandings:
    """Registered bidders with reputation scores and funds, as read from the store at the time `read`.

    read: `time.monotonic()` of the query.
    funds: the most that each bidder can pay: its deposit plus what it has earned.
    """

    read: float
    bidders: Sequence[auctions.Membership] = ()
    scores: Sequence[auctions.Score] = ()
    funds: Mapping[str, float] = field(default_factory=dict)


@dataclass
class Auctioneer:
    """Opens auctions by `rules` among the bidders of a store and plain endpoints.

    secret: the signing keys of bidders are derived from it.
    forfeit: how much of its deposit a winner loses if it does not deliver, in units of reward.
    """

    secret: bytes = field(repr=False)
    rules: Rules
    reputation: Reputation = field(default_factory=Reputation)
    forfeit: float = 0.1
    notices: LossNotices = field(default_factory=LossNotices)
    _standing: BidderStandings = field(default_factory=lambda: BidderStandings(-FRESH))

    async def standing(self, store: Store) -> BidderStandings:
        """Return the bidders' standings, read again from `store` if they are older than `FRESH` seconds."""
        if time.monotonic() - self._standing.read > FRESH:
            self._standing = await store.run(_read)
        return self._standing

    async def open(
        self,
        store: Store,
        terms: Terms,
        endpoints: Sequence[str],
        beliefs: Beliefs,
        default: str,
        ask: Ask,
        *,
        kind: str = "",
        bidders: Collection[str] | None = None,
    ) -> Auction:
        """Return a new auction, recorded in `store`, in which no bidder has been called yet.

        endpoints: names of the plain endpoints, for which the platform bids by proxy.
        default: the endpoint that answers if no bid wins.
        ask: asks an endpoint for its answer.
        kind: kind of prompt, for reputation.
        bidders: names of the registered bidders that may take part; None means all.

        Raises `UpstreamError` if the platform cannot estimate rewards for the prompt.
        """
        standing = await self.standing(store)
        joined = [bidder for bidder in standing.bidders if bidders is None or bidder.name in bidders]
        own = {bidder.name for bidder in joined}
        proxies = [name for name in endpoints if name not in own]
        boxes = await beliefs.boxes(terms.prompt, [*proxies, *(bidder.name for bidder in joined)])
        handicaps = self.reputation.handicaps(standing.scores, kind)
        participants: list[Participant] = [
            _proxy(name, float(boxes.mean[j]), ask) for j, name in enumerate(proxies)
        ]
        for bidder in joined:
            key = bidder_key(self.secret, bidder.name, bidder.version)
            handicap = handicaps.get(bidder.name, self.reputation.newcomer)
            funds = standing.funds.get(bidder.name, 0.0)
            participants.append(RemoteParticipant(bidder.name, bidder.url, key, handicap, funds))
        recorder = StoreRecorder(store, self.forfeit)
        platform = Platform(self.rules, _proxy(default, 0.0, ask), recorder, self.notices)
        return platform.open(terms, participants, boxes, kind)


def _proxy(name: str, worth: float, ask: Ask) -> ProxyParticipant:
    return ProxyParticipant(name, worth, lambda terms: ask(name, terms))


def _read(open_: Transaction) -> BidderStandings:
    """Read all bidders with their scores and funds."""
    balances = auctions.balances(open_)
    members = auctions.bidders(open_)
    funds = {
        member.name: balances.get(f"deposit {member.name}", 0.0) + balances.get(f"bidder {member.name}", 0.0)
        for member in members
    }
    return BidderStandings(time.monotonic(), members, auctions.scores(open_), funds)


@dataclass(frozen=True)
class StoreRecorder:
    """Writes to `store`; a winner that stalls forfeits `forfeit` of its deposit."""

    store: Store
    forfeit: float = 0.1

    async def awarded(self, sale: Sale, terms: Terms, kind: str, heard: Sequence[Heard]) -> bool:
        """Record the calls so far and an award; the price moves to the platform.

        False if `sale.funded` and the winner's deposit and earnings do not cover the price.
        """
        now = time.time()
        row = auctions.AuctionRow(
            sale.auction,
            now,
            terms.mechanism,
            kind,
            "awarded",
            sale.turn,
            sale.bidder,
            sale.price,
            sale.claim,
            None,
        )
        asked = [asked_row(call) for call in heard]
        return await self.store.run(
            lambda open_: auctions.award(open_, row, asked, now, funded=sale.funded, proxy=sale.proxy)
        )

    async def delivered(self, sale: Sale) -> None:
        """Record that the winner answered."""
        await self.store.run(lambda open_: auctions.deliver(open_, sale.auction, sale.turn))

    async def stalled(self, sale: Sale) -> None:
        """Record that the winner did not: its money comes back, its deposit is forfeited."""
        await self.store.run(
            lambda open_: auctions.stall(open_, sale.auction, sale.turn, time.time(), forfeit=self.forfeit)
        )


def asked_row(heard: Heard) -> auctions.AskedRow:
    """A reply in the form of the ledger."""
    answer = heard.answer
    action = "bid" if isinstance(answer, Bid) else "wait" if isinstance(answer, Wait) else "leave"
    amount = answer.limit if isinstance(answer, Bid) else answer.until if isinstance(answer, Wait) else None
    shown = heard.price if math.isfinite(heard.price) else None
    return auctions.AskedRow(
        heard.bidder,
        heard.turn,
        shown,
        action,
        amount,
        heard.looks,
        heard.spent,
        heard.seconds,
        heard.fault,
    )
