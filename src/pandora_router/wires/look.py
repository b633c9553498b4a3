"""The context of an answer, read from its stream during a look, in the form on which estimators were fitted.

A `Glimpse` keeps what a wire reads from the events of one stream (`Wire.show`), until it has enough. Its
context is the same as during collection: the first characters of the visible reasoning, or
else of the answer, and a first line of log-probabilities if they were requested and sent. A tool call counts
as text of the answer: its name on a line of its own, then its arguments. If the provider hides reasoning, the
glimpse ends, because the hidden text could cost any number of tokens.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pandora_router.wires.json_text import Json

LOWEST_CHANCE = -1e6
"""Log-probabilities below this, above 0 or not finite are ignored."""
LOG_PROBABILITIES = "log-probabilities:"
"""How the first line of a context begins when it holds log-probabilities of the first tokens."""
SCORES = "scores:"
"""How the first line of a context begins when it holds the scores of retrieved passages, best first."""


def shown(context: str | None, logprobs: tuple[float, ...] | None) -> str:
    """A context as estimators read it: a line of log-probabilities, then the text."""
    return _headed(LOG_PROBABILITIES, logprobs or (), context)


def scored(passages: str, scores: Sequence[float]) -> str:
    """A context of passages as estimators read it: a line with the score of each passage, then the text."""
    return _headed(SCORES, scores, passages)


def _headed(head: str, values: Sequence[float], text: str | None) -> str:
    return f"{head} {' '.join(f'{value:.3f}' for value in values)}\n{text or ''}"


def read_head(context: str) -> tuple[list[float], str]:
    r"""The numbers on the first line of a context, and the text without that line.

    Contexts come from outside. A first line that does not begin like one of `shown` or `scored`, or holds
    anything but finite numbers after that, is text: then there are no numbers.

    >>> read_head("scores: 7.5 2.0\n[1] Nile"), read_head("scores: seven")
    (([7.5, 2.0], '[1] Nile'), ([], 'scores: seven'))
    """
    first, _, rest = context.partition("\n")
    head = next((head for head in (LOG_PROBABILITIES, SCORES) if first.startswith(head)), None)
    if head is None:
        return [], context
    try:
        values = [float(value) for value in first.removeprefix(head).split()]
    except ValueError:
        return [], context
    return (values, rest) if all(map(math.isfinite, values)) else ([], context)


@dataclass(frozen=True)
class LookLength:
    """How much of an answer a look reads: the same as the contexts that were collected.

    characters: of the text. tokens: first tokens with log-probabilities in place of characters, where the
    specialist gives them; 0 for none. chances: whether estimators are shown the log-probabilities as well.
    """

    characters: int = 400
    tokens: int = 0
    chances: bool = False


@dataclass
class Glimpse:
    """What was seen of one stream so far; `hidden` if it began with reasoning that is not shown.

    heard: the output items of a Responses stream that came in pieces, by index.
    """

    peek: LookLength
    text: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    chances: list[tuple[str, float]] = field(default_factory=list)
    hidden: bool = False
    finished: bool = False
    heard: set[object] = field(default_factory=set)

    @property
    def done(self) -> bool:
        """Whether the context is complete."""
        if self.hidden or self.finished:
            return True
        if self.peek.tokens and self.chances:
            return len(self.chances) >= self.peek.tokens
        if self.reasoning and self.text:
            return True  # the visible reasoning is over, and it is what is shown
        return sum(map(len, self.reasoning or self.text)) >= self.peek.characters

    @property
    def context(self) -> str | None:
        """The text for the estimator, or None."""
        if self.hidden:
            return None
        if self.peek.tokens and self.chances:
            first = self.chances[: self.peek.tokens]
            text = "".join(token for token, _ in first)
            return shown(text, tuple(chance for _, chance in first)) if self.peek.chances else text or None
        return "".join(self.reasoning or self.text)[: self.peek.characters] or None

    @property
    def first_chances(self) -> tuple[float, ...] | None:
        """The log-probabilities of the tokens that are the context; None if it is cut by characters."""
        return tuple(chance for _, chance in self.chances[: self.peek.tokens]) or None

    @property
    def tokens(self) -> int:
        """Upper bound of the tokens that were seen: those with log-probabilities, else one for each byte."""
        parts = [*self.reasoning, *self.text]
        if self.chances:
            return max(len(self.chances), len(parts))
        return sum(len(part.encode("utf-8", "replace")) for part in parts)

    def chance(self, token: Json) -> None:
        """Take one token with its log-probability; anything else is ignored."""
        text, chance = token.get("token"), token.get("logprob")
        if not isinstance(text, str) or isinstance(chance, bool) or not isinstance(chance, int | float):
            return
        if math.isfinite(chance) and LOWEST_CHANCE <= chance <= 0.0:
            self.chances.append((text, float(chance)))


def called(before: list[str], name: object, arguments: object) -> None:
    r"""Add a tool call, or the head of one, to the parts of a text: its name begins a line.

    >>> parts = ["I look."]
    >>> called(parts, "read", '{"file": 1}')
    >>> "".join(parts)
    'I look.\nread{"file": 1}'
    """
    if isinstance(name, str) and name:
        before.append(f"\n{name}" if any(before) else name)
    keep(before, arguments)


def keep(parts: list[str], text: object) -> None:
    """Add a text that is not empty to the parts."""
    if isinstance(text, str) and text:
        parts.append(text)


def lookable(request: Json) -> bool:
    """Whether looks are possible for a request: not with several answers, audio, or a background answer."""
    several: Any = request.get("n")
    if several is not None and several != 1:
        return False
    spoken = request.get("audio") is not None or request.get("modalities") not in (None, ["text"])
    return not spoken and not request.get("background")
