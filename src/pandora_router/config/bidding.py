"""The sections `market` and `bid`: the platform of a market over a network, and one of its bidders."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from pandora_router.bidding.wire import MechanismName
from pandora_router.config.values import Above, Amount, Closed, Count, Name, Natural, Text

Port = Annotated[int, Field(ge=0, le=65535)]


class MarketSettings(Closed):
    """The platform.

    mechanism, sealed, seed: the rules of the auction; see docs/market-network.md.
    router: folder of a fitted router; its cheap estimates set prices and bid for plain endpoints.
    default: the specialist that answers prompts which nobody wins.
    proxies: the specialists of this file for which the platform bids; all of them if left out.
    secret_from, secret_file: source of the platform's secret, from which the keys of bidders are derived.
    forfeit: what a winner that does not deliver loses of its deposit, in units of reward.
    newcomer, evidence: handicap of a bidder without graded answers, and the number of graded answers that
        outweighs it.
    """

    host: Text = "127.0.0.1"
    port: Port = 8090
    store: Text = "pandora.sqlite"
    mechanism: MechanismName = "sequential"
    sealed: bool = False
    seed: Natural = 0
    router: Text | None = None
    default: Name | None = None
    proxies: list[Name] | None = None
    secret_from: Text | None = "PANDORA_MARKET_SECRET"
    secret_file: Text | None = None
    keys: bool = False
    deadline_ms: Count = 500
    auction_ms: Count = 5000
    deliver_seconds: Above = 60.0
    forfeit: Amount = 0.1
    newcomer: Amount = 0.0
    evidence: Above = 20.0


class BidSettings(Closed):
    """One bidder: the router with its f and g, the source of its key, its address and its ledger."""

    host: Text = "127.0.0.1"
    port: Port = 9001
    router: Text = "router"
    key_from: Text | None = "PANDORA_BIDDER_KEY"
    key_file: Text | None = None
    ledger: Text | None = None
