"""What a request asks of the fake provider, how its models behave, and the rows of its books."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, Literal

from tests.support.provider_replies import Json, Lie, Said, Tokens, Wire

HELLO = Said(("Hello", " from", " a", " model"))
Stream = tuple[tuple[bytes, int], ...]
"""The events of a stream, each with the output tokens that are written once it is sent."""


@dataclass(frozen=True)
class Asked:
    """A request as a model sees it."""

    wire: Wire
    model: str
    body: Json
    prompt: str
    """The text of the last message."""
    prefix: str
    """The text before it: system prompt and earlier messages."""
    attempt: int
    """How many requests with this model and prompt came before."""


@dataclass(frozen=True)
class Fault:
    """What goes wrong with an answer.

    status: an HTTP status other than 200, with `retry_after` in its header. cut: the connection is reset
    once so many output tokens are sent. stall: nothing more is sent then. mute: not even a status is sent.
    empty: the stream ends without an event. endless: the last word is repeated for ever. raw: the bytes of
    the whole reply, sent instead of any other before the connection is closed. rewrite: makes other events of
    those of the stream. breaks: what was sent after them is all that is billed, and the connection is reset
    ("reset"), or the stream ends as if nothing were missing ("end").
    """

    status: int = 200
    retry_after: str | None = None
    message: str = "no"
    code: str | None = None
    cut: int | None = None
    stall: int | None = None
    mute: bool = False
    empty: bool = False
    endless: bool = False
    raw: bytes | None = None
    rewrite: Callable[[Stream], Stream] = lambda stream: stream
    breaks: Literal["", "reset", "end"] = ""


FINE = Fault()


@dataclass(frozen=True)
class Model:
    """How one model behaves.

    says: its answer to a request. prices: dollars per million tokens of fresh input, cached input, input
    written to the cache, output. before, first, each: seconds until the status, until the first token, and
    between tokens. cancel: what
    a client pays that leaves. caches: whether input before the last message is kept and later read at the
    cached price. lie: what it says its counts are. fault: what goes wrong with a request. gate: an event for
    which every answer waits once `gate_at` output tokens are sent (-1: before its status). name: the name
    that its answers state, if it is not the one that was asked for. closes: whether the connection
    is closed after each answer without a word, as a provider does with idle ones. parts: dollars per million
    tokens of `Tokens` fields that are parts of others, at other prices. tiers: by what the token prices are
    multiplied in a tier or at a speed; serves: the tier that a request gets. long: a number of input tokens,
    and by what token prices are multiplied above it. search: dollars of a web search. states: whether it
    says in which tier it served.
    """

    says: Callable[[Asked], Said] = lambda _: HELLO
    prices: tuple[float, float, float, float] = (1.0, 0.1, 1.25, 10.0)
    first: float = 0.0
    each: float = 0.0
    cancel: Literal["stops", "bills_full"] = "stops"
    caches: bool = False
    lie: Lie | None = None
    fault: Callable[[Asked], Fault] = lambda _: FINE
    gate: threading.Event | None = None
    gate_at: int = -1
    name: str | None = None
    closes: bool = False
    pings: bool = True
    before: float = 0.0
    parts: Mapping[str, float] = field(default_factory=dict)
    tiers: Mapping[str, float] = field(default_factory=dict)
    serves: Callable[[Asked], str] = lambda asked: str(asked.body.get("service_tier") or "default")
    long: tuple[int, float] = (10**9, 1.0)
    search: float = 0.0
    states: bool = True

    def nanodollars(self, tokens: Tokens) -> int:
        """What these tokens cost, as exact fractions of a dollar."""
        amounts = (tokens.fresh, tokens.cached, tokens.written, tokens.output)
        dollars = sum(Fraction(str(price)) * count for price, count in zip(self.prices, amounts, strict=True))
        whole = {"written_hour": 2, "audio_in": 0, "image_in": 0, "audio_out": 3, "image_out": 3}
        for name, price in self.parts.items():  # a part costs its own price instead of that of its whole
            plain = Fraction(str(self.prices[whole[name]]))
            dollars += (Fraction(str(price)) - plain) * getattr(tokens, name)
        threshold, factor = self.long
        if tokens.fresh + tokens.cached + tokens.written > threshold:
            dollars *= Fraction(str(factor))
        for tier in (tokens.service_tier, tokens.speed):
            dollars *= Fraction(str(self.tiers.get(tier, 1)))
        return math.ceil(dollars * 1000 + Fraction(str(self.search)) * tokens.searches * 10**9)


@dataclass(frozen=True)
class Bill:
    """One request in the books of the provider.

    ended: "whole", "cancelled" (the client left), "cut" (the provider broke it off) or "refused". tokens and
    nanodollars are what it charged; `text` is what was written of the answer, sent or not.
    """

    model: str
    wire: str
    stream: bool
    prompt: str
    ended: str
    tokens: Tokens
    nanodollars: int
    text: str
    key: str | None = None


def texts(body: Json) -> tuple[str, str]:
    """The text before the last message, and the text of the last message."""
    given = body.get("messages", body.get("input", ""))
    texts = [_text(one) for one in given] if isinstance(given, list) else [str(given)]
    before = [_text(body[name]) for name in ("system", "instructions") if body.get(name)]
    return "\n".join([*before, *texts[:-1]]), texts[-1] if texts else ""


def _text(part: Any) -> str:
    if isinstance(part, str):
        return part
    if isinstance(part, list):
        return "".join(map(_text, part))
    return _text(part.get("content") or part.get("text") or "") if isinstance(part, dict) else ""


def limited(said: Said, body: Json) -> Said:
    """The answer cut off at the limit of the request."""
    most = next(
        (body[n] for n in ("max_tokens", "max_completion_tokens", "max_output_tokens") if body.get(n)), None
    )
    if most is None or len(said.words) <= most:
        return said
    return replace(said, words=said.words[:most], finish="length", output=None)
