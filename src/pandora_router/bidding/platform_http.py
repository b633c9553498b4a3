"""The platform as an HTTP service.

POST /prompts          {prompt | messages, kind?} -> {auction, answer, bidder, price, seconds}
POST /feedback         {auction, reward}: the reward of the answer, from 0 to 1; pays the winner (admin key)
GET  /auctions/{id}    one auction with all bids (admin key)
GET  /bidders          registered bidders, with handicaps by kind of prompt
GET  /health           mechanism; needs no key. Also the default endpoint, unless keys are required

Rewards are paid, and bids are shown, only with an admin key that has no bidder's name: a client could be a
bidder that pays itself, or one that reads what its rivals bid.

Errors are JSON, {"error": text}: 400 for a bad request, 401 for a bad key, 403 without an admin key where one
is needed, 404 for an unknown path or auction, 502 if no specialist answers.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Annotated, Any

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pandora_router.bidding.auctioneer import Auctioneer, BidderStandings
from pandora_router.bidding.participants import ProxyParticipant, Terms
from pandora_router.bidding.platform import AuctionResult, answered
from pandora_router.bidding.rules import Beliefs
from pandora_router.bidding.service import request_of
from pandora_router.bidding.wire import LARGEST, Id, OfferMessage, broken
from pandora_router.errors import UpstreamError, UsageError
from pandora_router.specialists.specialist import Specialist
from pandora_router.store import accounts, auctions
from pandora_router.store.database import Transaction
from pandora_router.store.rows import Key, Refusal
from pandora_router.store.worker import Store
from pandora_router.transport.asgi import Gone, Receive, Refused, Reply, Scope, Send, bearer, read_body


class PromptIn(BaseModel):
    """Body of POST /prompts: `prompt`, or `messages` (the last one by the user is the prompt).

    kind: kind of prompt; reputation is kept per kind.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)
    prompt: Annotated[str, Field(min_length=1, max_length=LARGEST)] | None = None
    messages: tuple[OfferMessage, ...] | None = None
    kind: Annotated[str, Field(max_length=64)] = ""


class RewardIn(BaseModel):
    """Body of POST /feedback: the realised reward of the answer that an auction led to."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    auction: Id
    reward: Annotated[float, Field(ge=0.0, le=1.0, allow_inf_nan=False)]


@dataclass
class Market:
    """The ASGI application of the platform.

    proxies: plain endpoints by name. The platform bids for each, unless a bidder of that name has joined.
    default: the name in `proxies` that answers if no bid wins.
    keys: whether clients must send an API key that is in the store.
    """

    store: Store
    auctioneer: Auctioneer
    beliefs: Beliefs
    proxies: Mapping[str, Specialist]
    default: str
    keys: bool = False

    async def _ask(self, name: str, terms: Terms) -> str:
        return (await self.proxies[name].answer(request_of(terms))).text

    async def serve(self, asked: PromptIn) -> AuctionResult:
        """Hold the auction of one prompt and return the answer.

        If the platform cannot estimate rewards for the prompt, the default endpoint answers without an
        auction. Raises `Refused` (400) if the request has no prompt, and `UsageError` if a specialist could
        not read its messages: a winner would lose its deposit for an answer that it cannot give.
        """
        turns = [message.content for message in asked.messages or () if message.role == "user"]
        prompt = asked.prompt or (turns[-1] if turns else "")
        if not prompt:
            raise Refused(
                400, "Send `prompt`, or `messages` with at least one message by the user.", "invalid_request"
            )
        rules = self.auctioneer.rules
        terms = Terms(secrets.token_hex(12), rules.mechanism, prompt, asked.messages)
        request_of(terms)
        sides = (self.beliefs, self.default, self._ask)
        try:
            auction = await self.auctioneer.open(self.store, terms, [*self.proxies], *sides, kind=asked.kind)
        except UpstreamError:
            participant = ProxyParticipant(self.default, 0.0, lambda terms: self._ask(self.default, terms))
            text = await participant.deliver(terms, 0.0, rules.deliver)
            return AuctionResult(terms.auction, text, None, 0.0, (), ())
        return await answered(auction)

    async def recover(self) -> int:
        """Take back awards that a dead process left open; returns their number.

        An award is taken back if it is older than any auction can last: every participant may win once and
        fail to deliver in time. Another process that serves the same store is therefore not disturbed.
        """
        rules, now = self.auctioneer.rules, time.time()

        def run(open_: Transaction) -> int:
            winners = len(self.proxies) + len(auctions.bidders(open_, everybody=True)) + 1
            return auctions.recover(open_, now - rules.auction - rules.deliver * winners - 60.0, now)

        return await self.store.run(run)

    async def keep_recovering(self, every: float = 60.0) -> None:
        """`recover` once in `every` seconds until cancelled; tries again if the store cannot be reached."""
        while True:
            await asyncio.sleep(every)
            with contextlib.suppress(UpstreamError):
                await self.recover()

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
        await Reply(orjson.dumps(body), status).send(send)

    async def _handle(self, scope: Scope, receive: Receive) -> Any:
        endpoint = scope["method"], scope["path"]
        if endpoint == ("GET", "/health"):
            named = {} if self.keys else {"default": self.default}
            return {"mechanism": self.auctioneer.rules.mechanism, **named}
        key = await self._key(scope)
        if endpoint == ("POST", "/prompts"):
            body = await read_body(receive, 4 * LARGEST)
            served = await self.serve(PromptIn.model_validate_json(body))
            shown = ("auction", "answer", "bidder", "price", "seconds")
            return {name: getattr(served, name) for name in shown}
        if endpoint == ("POST", "/feedback"):
            given = RewardIn.model_validate_json(await read_body(receive, 4096))
            await self._needs_admin(key)
            now = time.time()
            settled = await self.store.run(
                lambda open_: auctions.settle(open_, given.auction, given.reward, now)
            )
            return {"settled": settled}
        if endpoint == ("GET", "/bidders"):
            standing = await self.auctioneer.standing(self.store)
            return [self._shown(bidder, standing) for bidder in standing.bidders]
        if scope["method"] == "GET" and scope["path"].startswith("/auctions/"):
            await self._needs_admin(key)
            stored = await self.store.run(lambda open_: auctions.auction(open_, scope["path"][10:74]))
            if stored is not None:
                return {**asdict(stored[0]), "calls": [asdict(call) for call in stored[1]]}
        raise Refused(404, "Unknown path or auction; docs/market-network.md lists the paths.", "not_found")

    def _shown(self, bidder: auctions.Membership, standing: BidderStandings) -> dict[str, Any]:
        """The public description of a bidder, without address and balance."""
        scores = [score for score in standing.scores if score.bidder == bidder.name]
        handicaps = {score.kind: self.auctioneer.reputation.handicap(score) for score in scores}
        return {"name": bidder.name, "since": bidder.joined_at, "handicap": handicaps}

    async def _key(self, scope: Scope) -> Key | None:
        """The key of a request; None if it states none and none is needed.

        Raises `Refused` (401) if the store does not know the key.
        """
        stated = dict(scope["headers"]).get(b"authorization", b"").decode("latin-1")
        if not stated and not self.keys:
            return None
        key = await self.store.run(lambda open_: accounts.identify(open_, bearer(stated)))
        if isinstance(key, Refusal):
            raise Refused(401, key.message, "invalid_api_key")
        return key

    async def _needs_admin(self, key: Key | None) -> None:
        """Raise `Refused` (403) unless `key` is an admin key and no bidder's."""
        if key is None or not await self.store.run(lambda open_: auctions.may_settle(open_, key)):
            raise Refused(
                403,
                "This needs an admin key that has no bidder's name: pandora keys add NAME --admin",
                "permission_error",
            )
