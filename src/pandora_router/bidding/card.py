"""The A2A agent card of a bidder: who it is, where it listens, and that it speaks our offers protocol.

A bidder service serves the card at `PATH`, unsigned; `pandora market join --card` reads it. The protocol of
docs/market-network.md is declared as a required A2A extension (`EXTENSION`), so an agent that does not know
it does not call the service. Of a card only the fields below are read; others are ignored.
"""

from __future__ import annotations

import urllib.parse
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pandora_router.bidding.wire import VERSION, broken
from pandora_router.errors import UsageError
from pandora_router.transport.client import HttpCall
from pandora_router.transport.endpoint import Endpoint, ReplyLimits

PATH = "/.well-known/agent-card.json"
EXTENSION = f"urn:pandora-router:offers:{VERSION}"
LARGEST_CARD = 64 * 2**10
SECONDS = 10.0
Short = Annotated[str, Field(max_length=2000)]


class Extension(BaseModel):
    """An extension of A2A that an agent supports."""

    model_config = ConfigDict(frozen=True)
    uri: Short
    description: Short = ""
    required: bool = False


class Capabilities(BaseModel):
    """Optional features of an agent."""

    model_config = ConfigDict(frozen=True)
    streaming: bool = False
    extensions: Annotated[tuple[Extension, ...], Field(max_length=100)] = ()


class Interface(BaseModel):
    """An address at which an agent can be reached."""

    model_config = ConfigDict(frozen=True)
    url: Short


class Card(BaseModel):
    """What is read of an agent card: `url` of A2A 0.3, or the first of `supportedInterfaces` of A2A 1.0."""

    model_config = ConfigDict(frozen=True)
    name: Annotated[str, Field(min_length=1, max_length=200)]
    url: Short = ""
    supportedInterfaces: Annotated[tuple[Interface, ...], Field(max_length=100)] = ()
    capabilities: Capabilities

    @property
    def address(self) -> str:
        """The address that /offers is appended to; "" if the card has none."""
        return next((interface.url for interface in self.supportedInterfaces), self.url)


def card_of(name: str, url: str, version: str) -> dict[str, Any]:
    """Return the agent card of the bidder `name` at `url`; `version` is that of its software."""
    skill = {
        "id": "answer",
        "name": "Answer prompts",
        "description": "Bids for prompts and answers those that it wins.",
        "tags": ["answers", "auction"],
    }
    offers = Extension(
        uri=EXTENSION,
        description="POST /offers, /reveals, /answers and /losses, signed; see docs/market-network.md.",
        required=True,
    )
    return {
        "protocolVersion": "0.3.0",
        "name": name,
        "description": f"{name}: a specialist that bids for prompts in a pandora-router market.",
        "url": url,
        "preferredTransport": "HTTP+JSON",
        "supportedInterfaces": [{"url": url, "protocolBinding": "HTTP+JSON", "protocolVersion": "1.0"}],
        "version": version,
        "capabilities": Capabilities(extensions=(offers,)).model_dump(),
        "defaultInputModes": ["text/plain"],
        "defaultOutputModes": ["text/plain"],
        "skills": [skill],
    }


async def read_card(url: str) -> Card:
    """Fetch the agent card of the service at `url` (its base address, or that of the card itself).

    Raises `UpstreamError` if there is no card, and `UsageError` if it is not valid, does not declare
    `EXTENSION`, or names an address with another scheme, host or port than the one that it was read from.
    """
    base = url.removesuffix(PATH).rstrip("/")
    endpoint = Endpoint(base, timeout=SECONDS, limits=ReplyLimits(body=LARGEST_CARD))
    call = await HttpCall.open(endpoint, PATH.removeprefix("/"), None)
    try:
        content = await call.json()
    finally:
        call.close()
    expected = "an A2A agent card"
    try:
        card = Card.model_validate(content)
    except ValidationError as error:
        do = "Correct the card, or register the bidder with --url."
        raise UsageError(f"{base}{PATH}", expected=expected, came=broken(error), do=do) from None
    if all(extension.uri != EXTENSION for extension in card.capabilities.extensions):
        raise UsageError(
            f"{base}{PATH}",
            expected=f"{expected} with the extension {EXTENSION}",
            came="a card without it",
            do="Only agents that speak the offers protocol can bid; see docs/market-network.md.",
        )
    if _origin(card.address) != _origin(base):
        raise UsageError(
            f"{base}{PATH}",
            expected="a url with the scheme, host and port that the card was read from",
            came="another address",
            do="Check who runs that address, and register it with --url.",
        )
    return card


def _origin(url: str) -> tuple[str, str | None, int | None]:
    """Scheme, host and port of a URL; raises `UsageError` if it is not a valid address."""
    Endpoint(url)
    parts = urllib.parse.urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or {"http": 80, "https": 443}[parts.scheme]
