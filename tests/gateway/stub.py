"""The provider of the gateway's tests, with faults chosen by the model's name.

small, large    answers at once; a whole answer names the model
busy            status 429
broken          status 500
bad             status 400 with an error in the wire's shape
hang            accepts and never answers
silent          begins a stream and ends it without content
cut             breaks a stream after its first content
slow            one word every 50 ms, for ever (until the client leaves)
liar            claims ten thousand output tokens
patient X       says nothing until `go` is set, then behaves as the model X
echo            says the last user message back
pausing         says nothing more after its first content until `go` is set
"""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any, cast

from tests.support import provider_replies
from tests.support.provider import Provider
from tests.support.provider_models import Asked, Fault, Model
from tests.support.provider_replies import Said, Shape, Tokens, Wire, chat_word, counts

WORDS = ["Hello", " from", " a", " stub"]
READ, CACHED, OUTPUT = 12, 8, 4
"""Tokens of every request: fresh input, cached input, output."""


def _lie(usage: dict[str, Any]) -> dict[str, Any]:
    """Ten thousand output tokens; for embeddings, a thousand million of input."""
    if "output_tokens" in usage:
        return {**usage, "output_tokens": 10_000}
    if "completion_tokens" in usage:
        read = usage["prompt_tokens"]
        return {**usage, "completion_tokens": 10_000, "total_tokens": read + 10_000}
    return {**usage, "prompt_tokens": 10**9}


def _says(asked: Asked) -> Said:
    if asked.model == "echo":
        return Said((asked.prompt,), output=OUTPUT)
    return _answer(asked.model, stream=bool(asked.body.get("stream")))


def _answer(model: str, *, stream: bool) -> Said:
    return Said((*WORDS, *(() if stream else (f" called {model}",))), output=OUTPUT)


USUAL = Model(_says)
MODELS = {
    "small": USUAL,
    "large": USUAL,
    "echo": USUAL,
    "liar": replace(USUAL, lie=_lie),
    "busy": replace(USUAL, fault=lambda _: Fault(429, message="slow down")),
    "broken": replace(USUAL, fault=lambda _: Fault(500, message="oops")),
    "bad": replace(USUAL, fault=lambda _: Fault(400, message="no such option", code="bad")),
    "hang": replace(USUAL, fault=lambda _: Fault(mute=True)),
    "silent": replace(USUAL, fault=lambda _: Fault(empty=True)),
    "cut": replace(USUAL, fault=lambda _: Fault(cut=1)),
    "slow": replace(USUAL, each=0.05, fault=lambda _: Fault(endless=True)),
}


class Stub(Provider):
    """The running provider; models that wait do so until `go` is set."""

    def __init__(self) -> None:
        self.go = threading.Event()
        super().__init__(MODELS)

    def model(self, asked: Asked) -> Model | None:
        if asked.model == "pausing":
            return replace(USUAL, gate=self.go, gate_at=1)
        name = asked.model.removeprefix("patient ")
        model = self.models.get(name, USUAL)
        return model if name == asked.model else replace(model, gate=self.go, name=name)

    def count(self, asked: Asked, model: Model, said: Said, copies: int = 1) -> Tokens:
        return _tokens(copies)


def _tokens(copies: int = 1) -> Tokens:
    return Tokens(READ, CACHED, 0, OUTPUT * copies)


def whole(wire: str, model: str, text: str | None = None, *, copies: int = 1) -> bytes:
    """The bytes of a whole answer of the stub."""
    said = _answer(model, stream=False) if text is None else Said((text,))
    shape = Shape(cast(Wire, wire), model, copies=copies)
    return provider_replies.whole(shape, said, counts(shape.wire, _tokens(copies)))


def events(wire: str, model: str, usage: bool, words: list[str] = WORDS) -> list[bytes]:
    """The events of a streamed answer of the stub, as a client of the gateway gets them.

    The gateway asks for usage in any case, so that every chunk says `"usage": null`; without `usage` only
    the chunk with the counts is missing.
    """
    shape = Shape(cast(Wire, wire), model)
    frames = [
        frame for frame, _ in provider_replies.events(shape, Said(tuple(words), output=OUTPUT), _tokens())
    ]
    return [frame for frame in frames if usage or b'"choices": []' not in frame]


def chat_event(model: str, text: str) -> bytes:
    """One event of a chat stream."""
    return chat_word(Shape("chat/completions", model), {"content": text})
