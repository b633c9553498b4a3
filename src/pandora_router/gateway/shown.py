"""The context of an answer, read from its stream during a look, in the form on which estimators were fitted.

A `Glimpse` reads the events of one stream, in any of the three wires, until it has enough. Its context is the
same as that of `specialists.completion` during collection: the first characters of the visible reasoning, or
else of the answer, and a first line of log-probabilities if they were requested and sent. Arguments of tool
calls count as text of the answer. If the provider hides reasoning, the glimpse ends, because the hidden text
could cost any number of tokens.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from pandora_router.gateway.backend import LookLength
from pandora_router.gateway.members import Json, mapping, objects
from pandora_router.gateway.wires import Name
from pandora_router.specialists.beginning import shown
from pandora_router.specialists.completion import LOWEST_CHANCE


@dataclass
class Glimpse:
    """What was seen of one stream so far; `hidden` if it began with reasoning that is not shown."""

    wire: Name
    peek: LookLength
    text: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    chances: list[tuple[str, float]] = field(default_factory=list)
    hidden: bool = False
    finished: bool = False

    def add(self, event: Json) -> None:
        """Take one event of the stream."""
        if self.wire == "chat":
            self._chat(event)
        elif self.wire == "responses":
            self._responses(event)
        else:
            self._messages(event)

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

    def _chat(self, event: Json) -> None:
        for choice in objects(event.get("choices")):
            if choice.get("index", 0) != 0:
                continue
            delta = mapping(choice.get("delta"))
            _keep(self.reasoning, delta.get("reasoning_content") or delta.get("reasoning"))
            _keep(self.text, delta.get("content"))
            _keep(self.text, delta.get("refusal"))
            for call in objects(delta.get("tool_calls")):
                function = mapping(call.get("function"))
                _keep(self.text, function.get("name"))
                _keep(self.text, function.get("arguments"))
            for token in objects(mapping(choice.get("logprobs")).get("content")):
                self._chance(token)
            self.finished = self.finished or choice.get("finish_reason") is not None

    def _chance(self, token: Json) -> None:
        text, chance = token.get("token"), token.get("logprob")
        if not isinstance(text, str) or isinstance(chance, bool) or not isinstance(chance, int | float):
            return
        if math.isfinite(chance) and LOWEST_CHANCE <= chance <= 0.0:
            self.chances.append((text, float(chance)))

    def _responses(self, event: Json) -> None:
        kind = str(event.get("type"))
        item = mapping(event.get("item"))
        added = item.get("type") if kind == "response.output_item.added" else None
        if added == "reasoning" or kind.startswith("response.reasoning"):
            self.hidden = self.hidden or not self.text
        elif added is not None:
            _keep(self.text, item.get("name"))
        elif kind.endswith(".delta"):
            _keep(self.text, event.get("delta"))
        elif kind in ("response.completed", "response.incomplete"):
            self.finished = True

    def _messages(self, event: Json) -> None:
        kind = event.get("type")
        block, delta = mapping(event.get("content_block")), mapping(event.get("delta"))
        if kind == "content_block_start" and block.get("type") in ("thinking", "redacted_thinking"):
            self.hidden = self.hidden or not self.text
        elif kind == "content_block_start":
            _keep(self.text, block.get("name"))
            _keep(self.text, block.get("text"))
        elif kind == "content_block_delta":
            _keep(self.text, delta.get("text"))
            _keep(self.text, delta.get("partial_json"))
        elif kind in ("message_delta", "message_stop"):
            self.finished = True


def _keep(parts: list[str], text: object) -> None:
    if isinstance(text, str) and text:
        parts.append(text)


def hides(wire: Name, request: Json) -> bool:
    """Whether a request asks for reasoning, which hosted models write first and hide.

    >>> hides("chat", {"reasoning_effort": "high"}), hides("chat", {}), hides("messages", {"thinking": {}})
    (True, False, True)
    """
    if wire == "chat":
        return request.get("reasoning_effort") not in (None, "none")
    if wire == "responses":
        return mapping(request.get("reasoning")).get("effort") not in (None, "none")
    return request.get("thinking") is not None and mapping(request["thinking"]).get("type") != "disabled"


def lookable(wire: Name, request: Json) -> bool:
    """Whether looks are possible for a request.

    Not with hidden reasoning, several answers, audio, or a background answer.
    """
    several: Any = request.get("n")
    if hides(wire, request) or (several is not None and several != 1):
        return False
    spoken = request.get("audio") is not None or request.get("modalities") not in (None, ["text"])
    return not spoken and not request.get("background")
