"""Converts between the three APIs of the gateway (wires) and the plain texts that bidders of the market use.

`conversation` extracts roles and texts from a request. `SpokenReply` turns the text of an answer into the
reply that a server of the wire would send, as one JSON body or as a stream of events, so the rest of the
gateway handles it like a reply of an endpoint. A stream has one delta with the whole text. Token counts are
estimated from lengths.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Protocol

import orjson

from pandora_router.gateway.backend import BYTES_PER_TOKEN
from pandora_router.gateway.members import objects, spoken, string
from pandora_router.gateway.speech import SPEECHES, WireAnswer
from pandora_router.gateway.wires import Name
from pandora_router.specialists.prices import CHARACTERS_PER_TOKEN

KINDS = ("text", "input_text", "output_text")
"""Types of content parts that hold text."""


class Incoming(Protocol):
    """A reply whose status and headers have arrived: `transport.relay.Relay` or `SpokenReply`."""

    status: int

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers of the reply."""
        ...

    @property
    def broken(self) -> bool:
        """Whether the connection ended before the whole body had arrived."""
        ...

    async def chunk(self) -> bytes:
        """The next bytes, b"" at the end."""
        ...

    async def read(self, limit: int) -> bytes:
        """The whole body; raises `Failed` if it has more than `limit` bytes."""
        ...

    def close(self) -> None:
        """Close the connection."""
        ...


class SpokenReply:
    """The answer `text` of the bidder `model` as a reply on `wire`.

    size: bytes of the request, to estimate its tokens. stream: as server-sent events instead of one body.
    """

    status = 200
    broken = False

    def __init__(self, wire: Name, text: str, model: str, id_: str, size: int, *, stream: bool) -> None:
        self.headers = {"content-type": "text/event-stream" if stream else "application/json"}
        answer = WireAnswer(
            f"chatcmpl-{id_}" if wire == "chat" else id_,
            model,
            int(time.time()),
            text,
            max(size // BYTES_PER_TOKEN, 1),
            max(round(len(text) / CHARACTERS_PER_TOKEN), 1),
        )
        speech = SPEECHES[wire]()
        if stream:
            self._body = speech.head(answer) + speech.delta(answer, text) + speech.tail(answer, usage=True)
        else:
            self._body = orjson.dumps(speech.whole(answer))

    async def chunk(self) -> bytes:
        """The whole body at the first call, b"" after that."""
        body, self._body = self._body, b""
        return body

    async def read(self, limit: int) -> bytes:
        """The whole body. `limit` is ignored: the length of a bidder's answer was checked before."""
        return await self.chunk()

    def close(self) -> None:
        """Do nothing: there is no connection."""


def conversation(wire: Name, body: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Role and text of each turn of a request, its system prompt first.

    >>> conversation("messages", {"system": "Be brief.", "messages": [{"role": "user", "content": "Hi"}]})
    [('system', 'Be brief.'), ('user', 'Hi')]
    """
    system = spoken(body.get("system"), KINDS) if wire == "messages" else string(body.get("instructions"))
    items = body.get("input" if wire == "responses" else "messages")
    turns = [("user", items)] if isinstance(items, str) else _turns(objects(items))
    return [*([("system", system)] if system else []), *turns]


def _turns(items: Any) -> list[tuple[str, str]]:
    texts = [(str(item.get("role")), spoken(item.get("content"), KINDS)) for item in items]
    return [("system" if role == "developer" else role[:20], text) for role, text in texts if text]
