"""The calls of `pandora doctor`: small requests that show what a specialist can do, and what came back.

Every call is a stream, sent with the address, headers and key that the gateway uses. What a call shows is
read from what its stream says: a tool was called, the text is JSON of the schema, the colour of an image was
named.
"""

from __future__ import annotations

import asyncio
import base64
import functools
import json
import struct
import time
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pandora_router.config.specialists import ChatSettings
    from pandora_router.gateway.providers.backend import Backend
    from pandora_router.transport.endpoint import Endpoint
    from pandora_router.wires.usage import Usage
    from pandora_router.wires.wire import Name

SHORT, LONG = 64, 256
"""Most tokens of an answer: of a call that is read to its end, and of the one that is cancelled."""
BILLED_AFTER = (0.5, 1.0, 2.0)
"""Seconds to wait before each question for the bill of the cancelled call: providers write it late."""
NAME = "look_up_temperature"
TOOL = {
    "type": "function",
    "function": {
        "name": NAME,
        "description": "The present temperature in a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
SCHEMA = {
    "type": "object",
    "properties": {"capital": {"type": "string"}},
    "required": ["capital"],
    "additionalProperties": False,
}
CAPITAL = {
    "response_format": {
        "type": "json_schema",
        "json_schema": {"name": "capital", "strict": True, "schema": SCHEMA},
    }
}


@dataclass(frozen=True)
class Probe:
    """One call. `what` it tries: "stream", "cancel", an ability, or a wire by its name.

    shows: whether the text of the answer (tool calls included) shows that the specialist can do it.
    """

    what: str
    wire: Name
    body: dict[str, Any]
    tokens: int
    shows: Callable[[str], bool]


@dataclass
class ProbeReply:
    """What came back of one call: `failure` says in a few words why it failed, "" if it did not.

    status: of the reply, 0 without one. id: of the answer. events: those with content. usage: the provider's
    counts, None if it sent none. first, seconds: until the first content and until the last. hidden: whether
    reasoning came first that is not shown. charged: whether the call may be on the provider's bill.
    """

    text: str = ""
    failure: str = ""
    status: int = 0
    id: str = ""
    events: int = 0
    usage: Usage | None = None
    first: float | None = None
    seconds: float = 0.0
    hidden: bool = False
    charged: bool = True


@functools.cache
def red_square() -> str:
    """A red PNG of 32 x 32 pixels, as a data address."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = (b"\0" + b"\xff\0\0" * 32) * 32
    head = struct.pack(">IIBBBBB", 32, 32, 8, 2, 0, 0, 0)
    png = (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", head)
        + chunk(b"IDAT", zlib.compress(rows))
        + chunk(b"IEND", b"")
    )
    return base64.b64encode(png).decode()


def probes(stated: ChatSettings) -> list[Probe]:
    """The calls that are made to one specialist, on the first wire of its entry and on the other two.

    They are written as chat requests, and translated as the gateway translates the requests of its clients.
    """
    from pandora_router.wires.known import WIRES

    home = stated.wires[0]
    weather = "What is the temperature in Oslo now? Use the tool."
    seen: list[dict[str, Any]] = [
        {"type": "text", "text": "Which colour is this?"},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{red_square()}"}},
    ]
    found = [
        _probe(stated, home, "stream", "Count from one to twenty in English words."),
        _probe(stated, home, "cancel", "Count from one to five hundred in English words.", tokens=LONG),
        _probe(stated, home, "tools", weather, {"tools": [TOOL]}, shows=lambda text: NAME in text),
        _probe(stated, home, "images", seen, shows=lambda text: "red" in text.lower()),
        _probe(stated, home, "json_schema", "Name the capital of Norway.", CAPITAL, shows=_fits),
    ]
    return found + [_probe(stated, wire.name, wire.name, "Say yes.") for wire in WIRES if wire.name != home]


def _probe(
    stated: ChatSettings, wire: Name, what: str, content: str | list[dict[str, Any]],
    more: Mapping[str, Any] = MappingProxyType({}), *, tokens: int = SHORT,
    shows: Callable[[str], bool] = bool,
) -> Probe:  # fmt: skip
    from pandora_router.wires.translator import request_of, written

    asked = {"messages": [{"role": "user", "content": content}], "max_tokens": tokens, "stream": True, **more}
    body = written(request_of("chat", asked), wire, stated.model, stated.tokens_as)
    return Probe(what, wire, body, tokens, shows)


def _fits(text: str) -> bool:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict) and list(value) == ["capital"] and isinstance(value["capital"], str)


async def hear(backend: Backend, probe: Probe, *, leave: bool = False) -> ProbeReply:
    """Make one call and read its stream to the end; with `leave`, only until the first content.

    Nothing is tried again. A failure of any kind is in the result, not raised.
    """
    from pandora_router.transport.failures import Failed
    from pandora_router.transport.relay import Relay
    from pandora_router.wires.events import EventTooLarge, Frames, assembled, data_of, parsed
    from pandora_router.wires.known import BY_NAME
    from pandora_router.wires.look import Glimpse, LookLength
    from pandora_router.wires.own_members import with_own
    from pandora_router.wires.usage import usage_of

    wire, heard, began = BY_NAME[probe.wire], ProbeReply(), time.monotonic()
    body = with_own({**probe.body, **wire.counted(probe.body)}, backend.own.get(wire.name, {}))
    glimpse, stream, frames = Glimpse(LookLength(characters=2**16)), b"", Frames()
    relay = None
    try:
        headers = backend.sent_headers(wire, {})
        relay = await Relay.open(
            backend.address(wire.path), json.dumps(body).encode(), headers, backend.endpoint.timeout
        )
        heard.status = relay.status
        if relay.status != 200:
            heard.failure, heard.charged = f"status {relay.status}", False
            return heard
        while not (leave and heard.events) and (chunk := await relay.chunk()):
            stream += chunk
            for data in map(data_of, frames.feed(chunk)):
                if (event := parsed(data)) is not None:
                    piece = wire.piece(event)
                    heard.id = heard.id or str(event.get("id") or "")
                    heard.failure = piece.failed or heard.failure
                    wire.show(event, glimpse)
                    if piece.content:
                        heard.events += 1
                        heard.seconds = time.monotonic() - began
                        heard.first = heard.seconds if heard.first is None else heard.first
    except Failed as error:
        heard.failure, heard.charged = error.brief, error.charged or heard.status == 200
    except EventTooLarge:
        heard.failure = "an event that is too large"
    finally:
        if relay is not None:
            relay.close()
    heard.text = "".join(glimpse.text)
    if (whole := assembled(wire.assembly(), stream)) is not None:
        heard.usage = usage_of(json.loads(whole))
    elif not heard.failure and not leave:
        heard.failure = "a stream without an end" if heard.events else "no stream of this format"
    thought = heard.usage is not None and heard.usage.reasoning > 0
    heard.hidden = glimpse.hidden or (thought and not glimpse.reasoning)
    return heard


async def billed(endpoint: Endpoint, answer: str) -> int | None:
    """The output tokens that the provider says it billed for an answer; None if it does not say."""
    from pandora_router.wires.usage import tokens_of

    for seconds in BILLED_AFTER if answer else ():
        await asyncio.sleep(seconds)
        reply = await _got(endpoint, f"generation?id={answer}")
        data = reply.get("data")
        for member in ("native_tokens_completion", "tokens_completion"):
            if (tokens := tokens_of(data, member)) is not None:
                return tokens
    return None


async def listed_models(endpoint: Endpoint) -> dict[str, dict[str, Any]]:
    """The models that a provider lists, by name; empty if it does not."""
    models = (await _got(endpoint, "models")).get("data")
    return {str(m.get("id")): m for m in models if isinstance(m, dict)} if isinstance(models, list) else {}


async def _got(endpoint: Endpoint, path: str) -> dict[str, Any]:
    from pandora_router.transport.client import PROBE, HttpCall
    from pandora_router.transport.failures import Failed

    try:
        call = await HttpCall.open(replace(endpoint, timeout=min(PROBE, endpoint.timeout)), path, None)
    except Failed:
        return {}
    try:
        return await call.json()
    except Failed:
        return {}
    finally:
        call.close()
