"""Reading a chat completion, complete or from the events of a stream.

    data: {"choices": [{"delta": {"content": "Par"}}]}     one piece
    data: [DONE]                                           the end

A stream that ends before `[DONE]` was cut. What has arrived is not an answer, since it is unknown what is
missing and what it cost. `StreamedCompletion` turns a stream into the form of a complete reply, which `read`
reads.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from pandora_router.prices import Tariff
from pandora_router.specialists.answer import Answer, Finish
from pandora_router.specialists.chat_settings import Asking
from pandora_router.transport.failures import Failed
from pandora_router.transport.strict_json import parse
from pandora_router.wires.events import DONE
from pandora_router.wires.look import LOWEST_CHANCE

FINISHES: Mapping[str, Finish] = {
    "length": "truncated",
    "max_tokens": "truncated",
    "content_filter": "refusal",
}
MOST_COUNTED = 10**9
"""Larger token counts are refused as invalid."""


class StreamedCompletion:
    """The pieces of a streamed completion, put together as they arrive."""

    def __init__(self, asking: Asking) -> None:
        self._asking = asking
        self._texts: dict[str, list[str]] = {"content": [], "refusal": [], "reasoning_content": []}
        self._chances: list[Any] = []
        self._finish: str | None = None
        self._usage: object = None
        self.bytes = 0
        self.done = False

    def add(self, data: bytes) -> None:
        """Add the data of one event; raises `Failed` if it is an error or not part of a completion."""
        if data.strip() == DONE:
            self.done = True
            return
        piece = parse(data.decode("utf-8", "replace").encode(), "an event of the stream")
        if "error" in piece:
            raise Failed("the stream ended with an error", "status", again=True, charged=True)
        try:
            self._usage = piece.get("usage") or self._usage
            for choice in piece.get("choices") or ():
                if choice.get("index", 0) == 0:
                    self._choice(choice)
        except (AttributeError, TypeError):
            raise Failed(
                "the stream holds no completion", "invalid reply", again=True, charged=True
            ) from None

    def _choice(self, choice: Mapping[str, Any]) -> None:
        delta = choice.get("delta") or {"content": choice.get("text")}
        for name, parts in self._texts.items():
            text = delta.get(name) or (delta.get("reasoning") if name == "reasoning_content" else None)
            if text:
                parts.append(str(text))
                self.bytes += len(parts[-1].encode("utf-8", "replace"))
        self._chances += (choice.get("logprobs") or {}).get("content") or []
        self._finish = choice.get("finish_reason") or self._finish

    @property
    def context_there(self) -> bool:
        """Whether the context is complete: enough tokens with log-probabilities, or enough characters."""
        if self.done:
            return True
        tokens, characters = self._asking.context_tokens, self._asking.context_characters
        if tokens and self._chances:
            return len(self._chances) >= tokens
        return (
            sum(len(part) for part in self._texts["reasoning_content"] or self._texts["content"])
            >= characters
        )

    @property
    def tokens(self) -> int:
        """Upper bound of the tokens received: those with log-probabilities, else one per byte."""
        return len(self._chances) or self.bytes

    def reply(self) -> dict[str, Any]:
        """The completion so far, in the form of a reply without streaming."""
        message = {name: "".join(parts) for name, parts in self._texts.items()}
        choice = {
            "message": message,
            "finish_reason": self._finish,
            "logprobs": {"content": self._chances} if self._chances else None,
        }
        return {"choices": [choice], "usage": self._usage}


def read(reply: Mapping[str, Any], asking: Asking, prices: Tariff, *, seconds: float, worst: float) -> Answer:
    """The answer in a chat completion.

    seconds: time that it took. worst: the fee that was reserved for it.

    Raises `Failed`: "invalid reply" if the reply is not a completion or counts more than `MOST_COUNTED`
    tokens, "unpriced" if the fee needs token counts and there are none, "overcharged" if it exceeds `worst`.
    """
    choice, text, refusal, reasoning = _said(reply)
    finish: Finish = FINISHES.get(str(choice.get("finish_reason")), "stop")
    if refusal:
        finish = "refusal"
    elif not text.strip() and finish == "stop":
        finish = "empty"
    usage = reply.get("usage")
    tokens_in, tokens_out = (_count(usage, key) for key in ("prompt_tokens", "completion_tokens"))
    fee = prices.fee(tokens_in, tokens_out, seconds)
    if fee is None:
        message = (
            "the reply has no token counts, so it has no fee: price the specialist per call or per second"
        )
        raise Failed(message, "unpriced", again=False, charged=True, dead=True)
    if fee > worst * (1 + 1e-9):
        message = f"charged {fee:.6g} where at most {worst:.6g} was agreed"
        raise Failed(message, "overcharged", again=False, charged=True, dead=True, bill=fee)
    context, logprobs = seen(choice, reasoning or text, asking)
    return Answer(text or refusal, tokens_in, tokens_out, seconds, fee, context, finish, logprobs=logprobs)


def look(reply: Mapping[str, Any], asking: Asking) -> tuple[str | None, tuple[float, ...] | None]:
    """The context and the log-probabilities in an incomplete completion; raises `Failed`."""
    choice, text, _, reasoning = _said(reply)
    return seen(choice, reasoning or text, asking)


def _said(reply: Mapping[str, Any]) -> tuple[Mapping[str, Any], str, str, str]:
    """The first choice of a completion and its texts: content, refusal, reasoning."""
    try:
        choice = reply["choices"][0]
        message = {"content": choice["text"]} if "text" in choice else choice["message"]
        content = message.get("content") or ""
        refusal = message.get("refusal") or ""
        reasoning = message.get("reasoning_content") or message.get("reasoning") or ""
        if not all(isinstance(text, str) for text in (content, refusal, reasoning)):
            raise TypeError
    except (KeyError, IndexError, TypeError, AttributeError):
        raise Failed(
            "the reply holds no chat completion", "invalid reply", again=True, charged=True
        ) from None
    return choice, content, refusal, reasoning


def _count(usage: object, key: str) -> int | None:
    """A token count, or None; `Failed` if it is impossibly large."""
    count = usage.get(key) if isinstance(usage, Mapping) else None
    if not isinstance(count, int | float) or isinstance(count, bool) or count < 0 or count != count:
        return None
    if count > MOST_COUNTED:
        message = f"the reply counts more than {MOST_COUNTED:,} tokens"
        raise Failed(message, "invalid reply", again=False, charged=True)
    return int(count) if count == int(count) else None


def seen(choice: Mapping[str, Any], text: str, asking: Asking) -> tuple[str | None, tuple[float, ...] | None]:
    """The first tokens with their log-probabilities if the server sent them, else the first characters."""
    if asking.context_tokens:
        try:
            first = choice["logprobs"]["content"][: asking.context_tokens]
            context = "".join(str(token["token"]) for token in first)
            chances = tuple(float(token["logprob"]) for token in first)
            if chances and all(math.isfinite(chance) and chance >= LOWEST_CHANCE for chance in chances):
                return context or None, chances
        except (KeyError, TypeError, ValueError, OverflowError):
            pass
    return text[: asking.context_characters] or None, None
