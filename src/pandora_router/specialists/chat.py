"""A model behind an OpenAI-compatible chat endpoint.

One `answer` is one bought answer: it waits at the endpoint's gate, tries again what may pass, and adds up in
`lost` what failed tries may have cost. The reply is read by `read_completion`, which local models share.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from ..errors import UsageError
from .answer import Answer, Finish, Prices, Unanswered
from .endpoint import Endpoint
from .endpoint_failures import Failed
from .gate import Gate, in_thread
from .templates import PLAIN, Template

FINISHES: Mapping[str, Finish] = {
    "length": "truncated",
    "max_tokens": "truncated",
    "content_filter": "refusal",
}

LOSSES = 3
"""How many tries of one answer may be charged and bring nothing before it is given up."""


@dataclass(frozen=True)
class Asking:
    """How a chat model is asked: the words around the prompt, the sampling, how much of the answer to show.

    `tokens` bounds the answer and so its fee. The context is the first `context_tokens` tokens, if those are
    asked for and the other side gives them with log-probabilities, else the first `context_characters`
    characters of the reasoning (or of the answer). `options` are further fields of the request. `as_text`
    asks for the continuation of a plain text, without the marks of a conversation around it: examples in the
    template then cost few tokens. With `stream` the answer comes in pieces and it is measured when its
    context was there.
    """

    template: Template = PLAIN
    system: str = ""
    temperature: float = 0.0
    tokens: int = 1024
    tokens_as: str = "max_tokens"
    context_tokens: int = 0
    context_characters: int = 400
    options: Mapping[str, Any] = field(default_factory=dict)
    as_text: bool = False
    stream: bool = False

    def __post_init__(self) -> None:
        if self.tokens < 1:
            raise UsageError(
                "tokens of an answer", expected="at least 1", came=f"{self.tokens}", do="Try 1024."
            )

    def messages(self, prompt: str) -> list[dict[str, str]]:
        """The conversation that is sent."""
        system = [{"role": "system", "content": self.system}] if self.system else []
        return [*system, {"role": "user", "content": self.template.fill(question=prompt)}]

    def body(self, prompt: str) -> dict[str, Any]:
        """The request without the model's name."""
        body: dict[str, Any] = {"temperature": self.temperature, self.tokens_as: self.tokens}
        if self.as_text:
            body["prompt"] = "".join(message["content"] for message in self.messages(prompt))
        else:
            body["messages"] = self.messages(prompt)
        if self.context_tokens:
            body["logprobs"] = 1 if self.as_text else True
        if self.stream:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        return {**body, **self.options}

    @property
    def identity(self) -> dict[str, Any]:
        """What decides the answers: everything but `stream`; `as_text`, which came later, if it is used."""
        parts = asdict(self)
        del parts["stream"]
        return parts if self.as_text else {name: part for name, part in parts.items() if name != "as_text"}

    @property
    def path(self) -> str:
        """Where such a request goes, below the base URL."""
        return "completions" if self.as_text else "chat/completions"

    def most(self, prompt: str, prices: Prices, seconds: float) -> float:
        """An upper bound on the fee of one try."""
        return prices.most("".join(m["content"] for m in self.messages(prompt)), self.tokens, seconds)


@dataclass(frozen=True)
class ChatEndpoint:
    """A model of an endpoint at a price; specialists of one endpoint share its `gate`."""

    name: str
    endpoint: Endpoint
    model: str
    prices: Prices
    asking: Asking = field(default_factory=Asking)
    gate: Gate = field(default_factory=Gate, repr=False, compare=False)

    @property
    def identity(self) -> str:
        """Address, model and way of asking; never the key, nor the prices."""
        parts = {"base_url": self.endpoint.base_url, "model": self.model, "asking": self.asking.identity}
        return json.dumps(parts, sort_keys=True)

    @property
    def at_once(self) -> int:
        """As many as the endpoint's gate lets in."""
        return self.gate.at_once

    def most(self, prompt: str) -> float:
        """The worst case: every try that may be charged is, and only the last brings an answer."""
        return (1 + min(self.endpoint.retries, LOSSES)) * self._worst_try(prompt)

    def _worst_try(self, prompt: str) -> float:
        return self.asking.most(prompt, self.prices, 2 * self.endpoint.timeout)

    async def answer(self, prompt: str) -> Answer:
        """One answer, after as many tries as the endpoint allows, at most `LOSSES` charged in vain."""
        body = {"model": self.model, **self.asking.body(prompt)}
        worst, charged = self._worst_try(prompt), 0
        for attempt in range(self.endpoint.retries + 1):
            try:
                async with self.gate.enter():
                    begun = time.monotonic()
                    reply, seen = await in_thread(lambda: self._once(body))
                    answer = read_completion(reply, time.monotonic() - begun, self, charged * worst)
                    return answer if seen is None else replace(answer, context_seconds=seen)
            except Failed as error:
                last = error
                charged += error.charged
            if not last.again or charged > LOSSES or attempt == self.endpoint.retries:
                break
            await self._wait(last, min(self.endpoint.pause * 2**attempt, 60.0))
        what = f"{self.name}: {last} (tries: {attempt + 1})"
        raise Unanswered(what, failure=last.failure, dead=last.dead, lost=charged * worst)

    def _once(self, body: Mapping[str, Any]) -> tuple[dict[str, Any], float | None]:
        asking = self.asking
        if not asking.stream:
            return self.endpoint.once(asking.path, body), None
        return self.endpoint.streamed(asking.path, body, asking.context_tokens, asking.context_characters)

    async def _wait(self, failed: Failed, pause: float) -> None:
        """As long as was asked for, or the pause; if the endpoint is busy, all who ask it wait."""
        seconds = pause if failed.wait is None else failed.wait
        if failed.busy:
            self.gate.rest(seconds)
        else:
            await asyncio.sleep(seconds)


def read_completion(reply: Mapping[str, Any], seconds: float, one: Any, lost: float = 0.0) -> Answer:
    """The answer in a chat completion; `one` has a name, prices and a way of asking. Raises `Failed`."""
    asking: Asking = one.asking
    try:
        choice = reply["choices"][0]
        message = {"content": choice["text"]} if "text" in choice else choice["message"]
        said = message.get("content") or ""
        refusal = message.get("refusal") or ""
        reasoning = message.get("reasoning_content") or message.get("reasoning") or ""
        if not all(isinstance(text, str) for text in (said, refusal, reasoning)):
            raise TypeError
    except (KeyError, IndexError, TypeError, AttributeError):
        raise Failed(
            "the reply holds no chat completion", "not as agreed", again=True, charged=True
        ) from None
    finish: Finish = FINISHES.get(str(choice.get("finish_reason")), "stop")
    if refusal:
        finish = "refusal"
    elif not said.strip() and finish == "stop":
        finish = "empty"
    usage = reply.get("usage")
    tokens_in, tokens_out = (_count(usage, key) for key in ("prompt_tokens", "completion_tokens"))
    fee = one.prices.fee(tokens_in, tokens_out, seconds)
    if fee is None:
        what = "the reply has no token counts, so it has no fee: price the specialist per call or per second"
        raise Failed(what, "unpriced", again=False, charged=True, dead=True)
    context, logprobs = _beginning(choice, reasoning or said, asking)
    return Answer(said or refusal, tokens_in, tokens_out, seconds, fee, context, finish, lost, logprobs)


def _count(usage: object, key: str) -> int | None:
    count = usage.get(key) if isinstance(usage, Mapping) else None
    return count if isinstance(count, int) and not isinstance(count, bool) and count >= 0 else None


def _beginning(
    choice: Mapping[str, Any], text: str, asking: Asking
) -> tuple[str | None, tuple[float, ...] | None]:
    """The first tokens with their log-probabilities if they were given, else the first characters."""
    if asking.context_tokens:
        try:
            first = choice["logprobs"]["content"][: asking.context_tokens]
            said = "".join(str(token["token"]) for token in first)
            if first:
                return said or None, tuple(float(token["logprob"]) for token in first)
        except (KeyError, TypeError, ValueError):
            pass
    return text[: asking.context_characters] or None, None
