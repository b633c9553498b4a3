"""A chat completion that arrives in pieces (server-sent events), put together again.

    data: {"choices": [{"delta": {"content": "Par"}}]}     one piece
    data: [DONE]                                           and nothing after it

A stream that ends before `[DONE]` was cut, wherever that happened: between two events, inside one, inside a
chunk of the transfer. What arrived of it is no answer: nobody can say what is missing or what it cost. The
result has the form of an undivided completion, so that one reader serves both. It refuses to know HTTP and
prices.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol

from .endpoint_failures import Failed

LARGEST = 64 * 1024 * 1024


class Lines(Protocol):
    """What an HTTP response and an open file have in common."""

    def readline(self, limit: int, /) -> bytes:
        """The next line with its end, empty at the end."""
        ...


def events(source: Lines, deadline: float) -> Iterator[dict[str, Any]]:
    """The JSON objects of a stream up to `[DONE]`; raises `Failed` if it ends before or is none."""
    size = 0
    while line := source.readline(LARGEST):
        size += len(line)
        if size > LARGEST:
            raise Failed("the stream is too large", "not as agreed", again=False, charged=True)
        if time.monotonic() > deadline:
            raise TimeoutError("timed out in the middle of a stream")
        field, _, value = line.strip().partition(b":")
        if field != b"data" or not line.endswith(b"\n"):
            continue
        if value.strip() == b"[DONE]":
            return
        try:
            event = json.loads(value)
        except ValueError:
            event = None
        if not isinstance(event, dict):
            raise Failed("an event of the stream is no JSON object", "broken json", again=True, charged=True)
        if "error" in event:
            raise Failed("the stream broke off with an error", "status", again=True, charged=True)
        yield event
    raise Failed("the stream was cut before its end", "cut", again=True, charged=True)


def whole(
    pieces: Iterable[Mapping[str, Any]], tokens: int, characters: int
) -> tuple[dict[str, Any], float | None]:
    """The completion that the pieces make up, and the moment (monotonic) when its context was there.

    That is when `tokens` tokens had come with log-probabilities or, without any, `characters` characters.
    """
    texts: dict[str, list[str]] = {"content": [], "refusal": [], "reasoning_content": []}
    chances: list[Any] = []
    finish: str | None = None
    usage: object = None
    seen: float | None = None
    try:
        for piece in pieces:
            usage = piece.get("usage") or usage
            for choice in piece.get("choices") or ():
                if choice.get("index", 0) != 0:
                    continue
                delta = choice.get("delta") or {"content": choice.get("text")}
                for name, parts in texts.items():
                    said = delta.get(name) or (delta.get("reasoning") if name.startswith("reason") else None)
                    if said:
                        parts.append(str(said))
                chances += (choice.get("logprobs") or {}).get("content") or []
                finish = choice.get("finish_reason") or finish
            length = sum(len(part) for part in texts["reasoning_content"] or texts["content"])
            if seen is None and (len(chances) >= tokens > 0 or (not chances and length >= characters > 0)):
                seen = time.monotonic()
    except (AttributeError, TypeError) as error:
        raise Failed("the stream holds no completion", "not as agreed", again=True, charged=True) from error
    message = {name: "".join(parts) for name, parts in texts.items()}
    choice = {
        "message": message,
        "finish_reason": finish,
        "logprobs": {"content": chances} if chances else None,
    }
    return {"choices": [choice], "usage": usage}, seen
