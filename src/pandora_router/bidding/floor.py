"""Who takes part in auctions, and how one is opened: shared by `pandora market serve` and the gateway.

Bidders that have joined are read from the store, with their standing, at most once in `FRESH` seconds, so
that somebody who joins takes part from then on. Plain endpoints take part by proxy: the platform bids what it
believes them to be worth. An endpoint whose name has joined as a bidder bids for itself.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from pandora_router.bidding.beliefs import Beliefs
from pandora_router.bidding.losing import LossNotices
from pandora_router.bidding.platform import Auction, Platform
from pandora_router.bidding.recorder import StoreRecorder
from pandora_router.bidding.reputation import Reputation
from pandora_router.bidding.rules import Rules
from pandora_router.bidding.seats import ProxySeat, RemoteSeat, Seat, Terms
from pandora_router.bidding.signing import bidder_key
from pandora_router.store import auctions
from pandora_router.store.database import Transaction
from pandora_router.store.worker import Store

FRESH = 1.0
"""Seconds for which what was read of the bidders' standing is used."""

Ask = Callable[[str, Terms], Awaitable[str]]
"""Asks the plain endpoint of this name for its answer."""


@dataclass(frozen=True)
class BidderStandings:
    """Who takes part and how it stands, as read from the store at one moment.

    `funds` is the most that each bidder can pay: its deposit and what it has earned.
    """

    read: float
    bidders: Sequence[auctions.Membership] = ()
    scores: Sequence[auctions.Score] = ()
    funds: Mapping[str, float] = field(default_factory=dict)


@dataclass
class Floor:
    """Opens auctions by `rules` among the bidders of a store and plain endpoints.

    secret: the keys of bidders are derived from it. forfeit: what a winner that does not deliver loses of its
    deposit, in units of reward.
    """

    secret: bytes = field(repr=False)
    rules: Rules
    reputation: Reputation = field(default_factory=Reputation)
    forfeit: float = 0.1
    notices: LossNotices = field(default_factory=LossNotices)
    _standing: BidderStandings = field(default_factory=lambda: BidderStandings(-FRESH))

    async def standing(self, store: Store) -> BidderStandings:
        """Who takes part now."""
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
        """An auction in which nobody was called yet, recorded in `store`.

        endpoints: names for which the platform bids; `default` answers what nobody wins. ask: how an endpoint
        is asked. kind: of the prompt, for reputation. bidders: who of those that have joined may take part;
        all if None. Raises `UpstreamError` for a prompt that cannot be judged.
        """
        standing = await self.standing(store)
        joined = [bidder for bidder in standing.bidders if bidders is None or bidder.name in bidders]
        own = {bidder.name for bidder in joined}
        proxies = [name for name in endpoints if name not in own]
        boxes = await beliefs.boxes(terms.prompt, [*proxies, *(bidder.name for bidder in joined)])
        handicaps = self.reputation.handicaps(standing.scores, kind)
        seats: list[Seat] = [_proxy(name, float(boxes.mean[j]), ask) for j, name in enumerate(proxies)]
        for bidder in joined:
            key = bidder_key(self.secret, bidder.name, bidder.version)
            handicap = handicaps.get(bidder.name, self.reputation.newcomer)
            funds = standing.funds.get(bidder.name, 0.0)
            seats.append(RemoteSeat(bidder.name, bidder.url, key, handicap, funds))
        recorder = StoreRecorder(store, self.forfeit)
        platform = Platform(self.rules, _proxy(default, 0.0, ask), recorder, self.notices)
        return platform.open(terms, seats, boxes, kind)


def _proxy(name: str, worth: float, ask: Ask) -> ProxySeat:
    return ProxySeat(name, worth, lambda terms: ask(name, terms))


def _read(open_: Transaction) -> BidderStandings:
    """Bidders, scores and what each of them can pay."""
    balances = auctions.balances(open_)
    members = auctions.bidders(open_)
    funds = {
        member.name: balances.get(f"deposit {member.name}", 0.0) + balances.get(f"bidder {member.name}", 0.0)
        for member in members
    }
    return BidderStandings(time.monotonic(), members, auctions.scores(open_), funds)
