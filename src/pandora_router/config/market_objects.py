"""The services of the sections `market` and `bid`: a platform, and one bidder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pandora_router.bidding.auctioneer import Auctioneer
from pandora_router.bidding.platform_http import Market
from pandora_router.bidding.rules import Even, Reputation, RouterBeliefs, Rules
from pandora_router.bidding.service import BidderService, BidderTally, RouterSide
from pandora_router.config.services import MarketSettings
from pandora_router.config.shared import Builder
from pandora_router.errors import UsageError
from pandora_router.store.worker import Store
from pandora_router.transport.asgi import Address
from pandora_router.transport.endpoint import read_key

if TYPE_CHECKING:
    from pandora_router.config.file import Config


@dataclass(frozen=True)
class MarketPlan:
    """The platform described by the file at `path`."""

    config: Config
    path: Path

    @property
    def settings(self) -> MarketSettings:
        """The section `market`."""
        return self.config.market

    @property
    def store(self) -> str:
        """The address of the store; a plain file name is relative to the configuration."""
        stated = self.settings.store
        return stated if "://" in stated else str(self.path.parent / stated)

    def secret(self) -> bytes:
        """The platform's secret; raises `UsageError` if it is missing or too short."""
        settings = self.settings
        file = None if settings.secret_file is None else self.path.parent / settings.secret_file
        secret = read_key(settings.secret_from, file)
        if secret is None or len(secret) < 16:
            raise UsageError(
                "the secret of the market",
                expected=f"16 characters or more in the environment variable {settings.secret_from}",
                came="none" if secret is None else "a shorter one",
                do='Make one: export PANDORA_MARKET_SECRET="$(openssl rand -hex 32)"',
            )
        return secret.encode()

    def address(self, host: str | None, port: int | None) -> Address:
        """The address to listen on: `host` and `port` if given, else those of the file."""
        return Address(host or self.settings.host, self.settings.port if port is None else port)

    def market(self, store: Store) -> Market:
        """The application."""
        from pandora_router.config import open_router

        settings, folder = self.settings, self.path.parent
        builder = Builder(self.config, folder)
        names = self.config.answering if settings.proxies is None else tuple(settings.proxies)
        default = settings.default or self.config.serve.default or self.config.fit.default
        if default is None or default not in names:
            raise UsageError(
                "market.default",
                expected=f"who answers prompts that nobody wins: one of {', '.join(names)}"
                if names
                else "who answers prompts that nobody wins, and a file that describes specialists",
                came="none" if default is None else repr(default),
                do="Name one of them, market: {default: NAME}."
                if names
                else "Describe some under `specialists` (pandora init writes an example), then name one.",
            )
        router = None if settings.router is None else open_router(folder / settings.router)
        return Market(
            store,
            self.auctioneer(),
            Even() if router is None else RouterBeliefs(router),
            {name: builder.specialist(name) for name in names},
            default,
            settings.keys,
        )

    def auctioneer(self) -> Auctioneer:
        """The rules, the secret and what reputation counts, as the section `market` states them."""
        settings = self.settings
        rules = Rules(
            settings.mechanism,
            settings.deadline_ms / 1000.0,
            settings.auction_ms / 1000.0,
            settings.deliver_seconds,
            settings.seed,
        )
        reputation = Reputation(settings.newcomer, settings.evidence)
        return Auctioneer(self.secret(), rules, reputation, settings.forfeit)


def bidder_service(config: Config, path: Path, name: str) -> BidderService:
    """The service of the specialist `name`, with the artifact and the key named in the section `bid`."""
    from pandora_router.config import open_router

    settings, folder = config.bid, path.parent
    if name not in config.specialists:
        raise UsageError(
            "--as",
            expected=f"one of {', '.join(config.specialists)}",
            came=repr(name),
            do="Name a specialist of the file.",
        )
    key = read_key(settings.key_from, None if settings.key_file is None else folder / settings.key_file)
    if key is None:
        raise UsageError(
            "the key of the bidder",
            expected=f"the environment variable {settings.key_from}, or bid.key_file",
            came="none",
            do="Ask the platform for one: pandora market join NAME --url URL",
        )
    side = RouterSide(open_router(folder / settings.router), Builder(config, folder).specialist(name))
    tally = BidderTally(None if settings.ledger is None else folder / settings.ledger)
    return BidderService(name, side, key.encode(), tally=tally)
