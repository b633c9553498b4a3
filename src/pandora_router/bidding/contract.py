"""The contract of a bidder service in any language, as tests; part of `pandora_router.testing`."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from pandora_router.bidding.wire import (
    LARGEST,
    NONCE,
    SIGNATURE,
    BidReply,
    Delivered,
    Delivery,
    Forged,
    Offer,
    check_reply,
    signed,
)
from pandora_router.errors import BrokenContract, UpstreamError
from pandora_router.transport.relay import Relay
from pandora_router.types import MechanismName

Law = tuple[bool, str]


class Exchanged:
    """The reply to one request: status, body, and whether it is signed for this request."""

    def __init__(self, status: int, body: bytes, signed_: bool) -> None:
        self.status, self.body, self.signed = status, body, signed_

    def read(self, kind: type[BaseModel]) -> Any:
        """The message of this kind, None if the body is another."""
        try:
            return kind.model_validate_json(self.body)
        except ValidationError:
            return None


async def _post(
    url: str, key: bytes, path: str, body: bytes, seconds: float, headers: dict[str, str]
) -> Exchanged:
    relay = await Relay.open(f"{url}{path}", body, {**headers, "content-type": "application/json"}, seconds)
    try:
        reply = await relay.read(LARGEST)
        try:
            check_reply(key, headers.get(NONCE, ""), reply, relay.headers.get(SIGNATURE))
        except Forged:
            return Exchanged(relay.status, reply, False)
        return Exchanged(relay.status, reply, True)
    finally:
        relay.close()


def check_bidder(url: str, key: bytes, prompts: Sequence[str], *, seconds: float = 10.0) -> None:
    """Check a bidder service: signed replies in the right format, forged and replayed messages refused.

    `url` is where it listens, `key` what it shares with the platform. Every prompt is offered under every
    mechanism and answered once. Raises `BrokenContract` naming the law that does not hold, `UpstreamError` if
    the service does not answer within `seconds`.
    """

    async def check() -> None:
        async for holds, words in bidder_laws(url, key, prompts, seconds=seconds):
            if not holds:
                raise BrokenContract(words)

    asyncio.run(check())


async def bidder_laws(
    url: str, key: bytes, prompts: Sequence[str], *, seconds: float = 10.0
) -> AsyncIterator[Law]:
    """Send the service at `url` every message of a platform; yields whether each law holds, and its text."""

    async def say(path: str, message: BaseModel) -> Exchanged:
        body = message.model_dump_json().encode()
        return await _post(url, key, path, body, seconds, signed(key, path, body, time.time()))

    def offer(mechanism: MechanismName, prompt: str, price: float | None, **more: Any) -> Offer:
        name = more.pop("auction", secrets.token_hex(8))
        return Offer(
            auction=name,
            turn=0,
            mechanism=mechanism,
            price=price,
            deadline=seconds,
            keep=60.0,
            prompt=prompt,
            **more,
        )

    for prompt in prompts:
        for mechanism in get_args(MechanismName):
            for price in (None, 0.3, 1e5) if mechanism != "sequential" else (0.3, 1e5):
                sent = offer(mechanism, prompt, price)
                exchanged = await say("/offers", sent)
                yield exchanged.status == 200 and exchanged.signed, "an offer gets a signed reply"
                reply = exchanged.read(BidReply)
                yield reply is not None, "a reply has the shape of the schema"
                for law in _sensible(sent, reply):
                    yield law
                again = await say("/offers", sent)
                yield again.read(BidReply) == reply, "the same turn again gets the same reply"
        won = Delivery(auction=secrets.token_hex(8), price=0.1, deadline=seconds, prompt=prompt)
        exchanged = await say("/answers", won)
        yield (
            exchanged.status == 200 and exchanged.signed and exchanged.read(Delivered) is not None,
            "a winner answers",
        )
    body = offer("sequential", prompts[0], 0.3).model_dump_json().encode()
    headers = signed(key, "/offers", body, time.time())
    await _post(url, key, "/offers", body, seconds, headers)
    replayed = await _post(url, key, "/offers", body, seconds, headers)
    yield replayed.status >= 400, "a message that was sent before is refused"
    other = signed(secrets.token_hex(16).encode(), "/offers", body, time.time())
    yield (
        (await _post(url, key, "/offers", body, seconds, other)).status >= 400,
        "a forged message is refused",
    )
    yield (
        (await _post(url, key, "/offers", body, seconds, {})).status >= 400,
        "an unsigned message is refused",
    )


def _sensible(asked: Offer, reply: BidReply | None) -> list[Law]:
    """The replies that each mechanism allows."""
    if reply is None or reply.say == "leave":
        return []
    try:
        reply.answer()
    except UpstreamError:
        return [(False, "a bid has a limit, a wait has a price")]
    laws: list[Law] = []
    if asked.mechanism in ("sequential", "second price", "leave one out"):
        laws.append((reply.say != "wait", f"at {asked.mechanism} there is nothing to wait for"))
    if reply.until is not None and asked.price is not None:
        ahead = reply.until < asked.price if asked.mechanism == "descending" else reply.until > asked.price
        laws.append((ahead, "a price to wait for is still to come"))
    return laws
