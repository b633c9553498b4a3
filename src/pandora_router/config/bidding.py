"""The sections `market` and `bid`: the platform of a market over a network, and one bidder of it."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from pandora_router.bidding.wire import MechanismName
from pandora_router.config.values import Above, Amount, Closed, Count, Name, Natural, Text

Port = Annotated[int, Field(ge=0, le=65535)]


class MarketSettings(Closed):
    """The platform.

    mechanism, sealed, seed: the rules; see docs/market-network.md.
    router: the folder of a fitted router, whose cheap estimates set prices and bid for plain endpoints.
    default: the specialist that answers what nobody wins.
    proxies: the specialists of this file that the platform bids for; all of them if left out.
    secret_from, secret_file: where the platform's secret is, from which the keys of bidders are made.
    forfeit: what a winner that does not deliver loses of its deposit, in units of reward.
    newcomer, evidence: the handicap of a bidder without graded answers, and how many outweigh it.
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
    """One bidder: the router with its own f and g, where its key is, where it listens, what it keeps."""

    host: Text = "127.0.0.1"
    port: Port = 9001
    router: Text = "router"
    key_from: Text | None = "PANDORA_BIDDER_KEY"
    key_file: Text | None = None
    ledger: Text | None = None
