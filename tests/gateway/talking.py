"""A provider whose answers can be looked at: what each model says, how fast, and how it fails, is a script.

A model's script is found by the last word of the prompt, so that concurrent requests do not disturb each
other; `Talking.says` sets the words of each model. Streams are written word by word with a pause.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import cast

from tests.support import provider_replies
from tests.support.provider import Provider
from tests.support.provider_models import Asked, Fault, Model
from tests.support.provider_replies import Said, Shape, Tokens, Wire

PAUSE = 0.004
READ = 20
"""Input tokens of every request."""


@dataclass
class Script:
    """What a model says, and after how many words it breaks (`cut`) or says nothing more (`hang`).

    chances: whether log-probabilities are sent when asked for. reasoning: words of visible reasoning first.
    hidden: whether reasoning that is not shown comes first. calls: name and arguments of the tools that it
    calls. gate: what the first word waits for. wait: seconds before the first word. mends: after how many
    calls the status is 200.
    """

    words: list[str]
    cut: int | None = None
    hang: int | None = None
    status: int = 200
    chances: bool = False
    reasoning: list[str] = field(default_factory=list)
    hidden: bool = False
    calls: tuple[tuple[str, str], ...] = ()
    pause: float = PAUSE
    output: int | None = None
    gate: threading.Event | None = None
    wait: float = 0.0
    mends: int | None = None
    retry_after: str | None = None

    @property
    def said(self) -> Said:
        chance = -0.25 if self.chances else None
        parts = tuple(self.words), tuple(self.reasoning)
        return Said(*parts, hidden=int(self.hidden), calls=self.calls, logprob=chance, output=self.output)


class Talking(Provider):
    """The running provider."""

    def __init__(self) -> None:
        self.says: dict[str, Script] = {}
        super().__init__({})

    def model(self, asked: Asked) -> Model:
        """The model by its script for the last word of the prompt, else by its own."""
        script = self.says.get(f"{asked.model}:{asked.prompt.split()[-1]}") or self.says[asked.model]
        status = 200 if self.calls[asked.model] > (script.mends or 10**9) else script.status
        fault = Fault(status, script.retry_after, cut=script.cut, stall=script.hang)
        return Model(
            lambda _: script.said,
            first=script.wait,
            each=script.pause,
            fault=lambda _: fault,
            gate=script.gate,
            gate_at=0,
        )

    def count(self, asked: Asked, model: Model, said: Said, copies: int = 1) -> Tokens:
        return Tokens(READ, 0, 0, said.tokens)


def _shape(wire: str, model: str, chances: bool = False) -> Shape:
    return Shape(cast(Wire, wire), model, chances=chances)


def streamed(wire: str, model: str, script: Script, *, usage: bool, chances: bool) -> list[bytes]:
    """The events of an answer as a client of the gateway gets them; without `usage` no chunk has counts."""
    said = script.said
    made = provider_replies.events(_shape(wire, model, chances), said, Tokens(READ, 0, 0, said.tokens))
    return [frame for frame, _ in made if usage or b'"choices": []' not in frame]


def undivided(wire: str, model: str, script: Script) -> bytes:
    """The same answer as one body, with odd spacing so that rewriting it would be noticed."""
    shape, said = _shape(wire, model), script.said
    usage = provider_replies.counts(shape.wire, Tokens(READ, 0, 0, said.tokens))
    return provider_replies.whole(shape, said, usage)
