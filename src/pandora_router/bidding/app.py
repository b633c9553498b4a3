"""The platform as an HTTP service.

    POST /prompts          {prompt | messages, kind?} -> {auction, answer, bidder, price, seconds}
    POST /feedback         {auction, reward}: what the answer was worth; settles the auction, once
    GET  /auctions/{id}    one auction with its calls
    GET  /bidders          who takes part, with handicaps by kind of prompt
    GET  /health

Bidders and their standing are read from the store at most once in `FRESH` seconds, so that somebody who joins
takes part from then on.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pandora_router.bidding.beliefs import Beliefs
from pandora_router.bidding.platform import AuctionResult, Platform
from pandora_router.bidding.recorder import StoreRecorder
from pandora_router.bidding.reputation import Reputation
from pandora_router.bidding.rules import Rules
from pandora_router.bidding.seats import ProxySeat, RemoteSeat, Seat, Terms
from pandora_router.bidding.service import reply
from pandora_router.bidding.signing import bidder_key
from pandora_router.bidding.wire import LARGEST, MOST, Id, OfferMessage, broken
from pandora_router.errors import UpstreamError, UsageError
from pandora_router.specialists.request import Message, Request
from pandora_router.specialists.specialist import Specialist
from pandora_router.store import accounts, auctions
from pandora_router.store.database import Transaction
from pandora_router.store.rows import Refusal
from pandora_router.store.worker import Store
from pandora_router.transport.asgi import Gone, Receive, Refused, Scope, Send, read_body

FRESH = 1.0
"""Seconds for which what was read of the bidders' standing is used."""


class PromptIn(BaseModel):
    """A prompt to be answered: a text, or a conversation that ends with it; `kind` is for reputation."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    prompt: Annotated[str, Field(min_length=1, max_length=LARGEST)] | None = None
    messages: tuple[OfferMessage, ...] | None = None
    kind: Annotated[str, Field(max_length=64)] = ""


class RewardIn(BaseModel):
    """What an answer was worth, in units of reward."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    auction: Id
    reward: Annotated[float, Field(ge=-MOST, le=MOST, allow_inf_nan=False)]


@dataclass(frozen=True)
class BidderStandings:
    """Who takes part and how it stands, as read from the store at one moment."""

    read: float
    bidders: Sequence[auctions.Membership] = ()
    scores: Sequence[auctions.Score] = ()
    funds: Mapping[str, float] = field(default_factory=dict)


@dataclass
class Market:
    """The ASGI application of the platform.

    proxies: plain endpoints by name, for which the platform bids unless a bidder of the same name has joined;
        `default` is one of them and answers what nobody wins.
    keys: whether clients need an API key of the store.
    """

    store: Store
    secret: bytes = field(repr=False)
    rules: Rules
    beliefs: Beliefs
    proxies: Mapping[str, Specialist]
    default: str
    reputation: Reputation = field(default_factory=Reputation)
    forfeit: float = 0.1
    keys: bool = False
    standing: BidderStandings = field(default_factory=lambda: BidderStandings(-FRESH))

    def __post_init__(self) -> None:
        self._platform = Platform(
            self.rules, self._proxy(self.default, 0.0), StoreRecorder(self.store, self.forfeit)
        )

    def _proxy(self, name: str, worth: float) -> ProxySeat:
        async def answer(terms: Terms) -> str:
            messages = terms.messages or (OfferMessage(role="user", content=terms.prompt),)
            request = Request(tuple(Message(message.role, message.content) for message in messages))
            return (await self.proxies[name].answer(request)).text

        return ProxySeat(name, worth, answer)

    async def serve(self, asked: PromptIn) -> AuctionResult:
        """Hold the auction of one prompt; a prompt that cannot be judged goes to the default."""
        standing = await self._standing()
        turns = [message.content for message in asked.messages or () if message.role == "user"]
        prompt = asked.prompt or (turns[-1] if turns else "")
        if not prompt:
            raise Refused(400, "Send a prompt, or messages with one by the user.", "invalid_request")
        terms = Terms(secrets.token_hex(12), self.rules.mechanism, prompt, asked.messages)
        remote = standing.bidders
        joined = {bidder.name for bidder in remote}  # a specialist that bids for itself needs no proxy
        proxies = [name for name in self.proxies if name not in joined]
        names = [*proxies, *(bidder.name for bidder in remote)]
        try:
            boxes = await self.beliefs.boxes(prompt, names)
        except UpstreamError:
            text = await self._platform.default.deliver(terms, 0.0, self.rules.deliver)
            return AuctionResult(terms.auction, text, None, 0.0, (), ())
        handicaps = self.reputation.handicaps(standing.scores, asked.kind)
        seats: list[Seat] = [self._proxy(name, float(boxes.mean[j])) for j, name in enumerate(proxies)]
        for bidder in remote:
            key = bidder_key(self.secret, bidder.name, bidder.version)
            handicap = handicaps.get(bidder.name, self.reputation.newcomer)
            seats.append(
                RemoteSeat(bidder.name, bidder.url, key, handicap, standing.funds.get(bidder.name, 0.0))
            )
        return await self._platform.serve(terms, seats, boxes, asked.kind)

    async def _standing(self) -> BidderStandings:
        if time.monotonic() - self.standing.read > FRESH:
            self.standing = await self.store.run(_standing)
        return self.standing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one HTTP request."""
        if scope["type"] != "http":
            return
        try:
            status, body = 200, await self._handle(scope, receive)
        except Gone:
            return
        except Refused as refused:
            status, body = refused.status, {"error": refused.message}
        except ValidationError as error:
            status, body = 400, {"error": broken(error)}
        except UsageError as error:
            status, body = 400, {"error": str(error)}
        except UpstreamError as error:
            status, body = 502, {"error": str(error)}
        await reply(send, status, orjson.dumps(body), {})

    async def _handle(self, scope: Scope, receive: Receive) -> Any:
        asked = scope["method"], scope["path"]
        if asked == ("GET", "/health"):
            return {"mechanism": self.rules.mechanism, "default": self.default}
        if self.keys:
            await self._admit(scope)
        if asked == ("POST", "/prompts"):
            body = await read_body(receive, 4 * LARGEST)
            served = await self.serve(PromptIn.model_validate_json(body))
            shown = ("auction", "answer", "bidder", "price", "seconds")
            return {name: getattr(served, name) for name in shown}
        if asked == ("POST", "/feedback"):
            given = RewardIn.model_validate_json(await read_body(receive, 4096))
            now = time.time()
            settled = await self.store.run(
                lambda open_: auctions.settle(open_, given.auction, given.reward, now)
            )
            return {"settled": settled}
        if asked == ("GET", "/bidders"):
            standing = await self._standing()
            return [self._shown(bidder, standing) for bidder in standing.bidders]
        if scope["method"] == "GET" and scope["path"].startswith("/auctions/"):
            stored = await self.store.run(lambda open_: auctions.auction(open_, scope["path"][10:74]))
            if stored is not None:
                return {**asdict(stored[0]), "calls": [asdict(call) for call in stored[1]]}
        raise Refused(404, "There is nothing here; see docs/market-network.md.", "not_found")

    def _shown(self, bidder: auctions.Membership, standing: BidderStandings) -> dict[str, Any]:
        """A bidder as everybody may see it: no address, no balance."""
        scores = [score for score in standing.scores if score.bidder == bidder.name]
        handicaps = {score.kind: self.reputation.handicap(score) for score in scores}
        return {"name": bidder.name, "since": bidder.joined_at, "handicap": handicaps}

    async def _admit(self, scope: Scope) -> None:
        """Let in clients with a key of the store."""
        stated = dict(scope["headers"]).get(b"authorization", b"").decode("latin-1")
        secret = stated.removeprefix("Bearer ")
        key = await self.store.run(lambda open_: accounts.identify(open_, secret))
        if isinstance(key, Refusal):
            raise Refused(401, key.message, "invalid_api_key")


def _standing(open_: Transaction) -> BidderStandings:
    """Bidders, scores and what each of them can pay: its deposit and what it has earned."""
    accounts_ = auctions.balances(open_)
    members = auctions.bidders(open_)
    funds = {
        member.name: accounts_.get(f"deposit {member.name}", 0.0)
        + accounts_.get(f"bidder {member.name}", 0.0)
        for member in members
    }
    return BidderStandings(time.monotonic(), members, auctions.scores(open_), funds)
