"""Settings for asking a chat model: the request body, the worst case of its fee, the answer in its reply."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from pandora_router.errors import UsageError
from pandora_router.prices import Tariff, as_asked
from pandora_router.specialists.specialist import Answer, Finish, Message, Request
from pandora_router.specialists.templates import PLAIN, Template
from pandora_router.transport.client import encoded
from pandora_router.transport.failures import Failed
from pandora_router.wires.chat import Completion, completion
from pandora_router.wires.demand import demand_of
from pandora_router.wires.look import LookLength
from pandora_router.wires.usage import tokens_of, usage_of
from pandora_router.wires.wire import COPIES, MOST_COPIES, MOST_TOKENS, TOKEN_LIMITS

OWN = ("model", "messages", "prompt", "input", "stream", "stream_options")
"""Fields that `options` may not set."""
FINISHES: Mapping[str, Finish] = {
    "length": "truncated",
    "max_tokens": "truncated",
    "content_filter": "refusal",
}
MOST_COUNTED = 10**9
"""Larger token counts are refused as invalid."""


@dataclass(frozen=True)
class Asking:
    """How a chat model is asked.

    template: the text around the prompt.
    system: a system message before the conversation; none if empty.
    temperature: passed to the server.
    tokens: most tokens of the answer, which bounds its fee; sent in the field `tokens_as`.
    context_tokens: number of first tokens, with log-probabilities, that make the context of an answer; 0
        requests none. If the server sends none, the context is the first `context_characters` characters of
        the reasoning or of the answer.
    options: further fields of the body. A token limit or a number of answers among them changes the worst
        case accordingly; the fields in `OWN` are refused.
    as_text: request the continuation of a plain text instead of a conversation.
    stream: request the answer as a stream, so that the time until the context is complete can be measured.
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
        _whole_number("tokens of an answer", self.tokens, MOST_TOKENS)
        for name in OWN:
            if name in self.options:
                raise UsageError(
                    f"options.{name}",
                    expected=f"no field among {', '.join(OWN)}",
                    came=f"{name!r}",
                    do="Leave it out: it is set from the request and the other settings.",
                )
        for name in self.options:
            if name in {*TOKEN_LIMITS, self.tokens_as}:
                _whole_number(f"options.{name}", self.options[name], MOST_TOKENS)
            elif name in COPIES:
                _whole_number(f"options.{name}", self.options[name], MOST_COPIES)

    def messages(self, request: Request) -> list[dict[str, str]]:
        """The messages that are sent: the system message, then the request, its prompt in the template."""
        asked = request.with_prompt(self.template.fill(question=request.prompt)).messages
        system = (Message("system", self.system),) if self.system else ()
        return [{"role": message.role, "content": message.content} for message in (*system, *asked)]

    def body(self, request: Request) -> dict[str, Any]:
        """The request body, without the name of the model."""
        body: dict[str, Any] = {"temperature": self.temperature, self.tokens_as: self.tokens}
        if self.as_text:
            body["prompt"] = "".join(message["content"] for message in self.messages(request))
        else:
            body["messages"] = self.messages(request)
        if self.context_tokens:
            body["logprobs"] = 1 if self.as_text else True
        if self.stream:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        return {**body, **self.options}

    def worst(self, body: Mapping[str, Any], prices: Tariff, seconds: float) -> float:
        """Upper bound of the fee of sending `body` once, if the server respects the limits in it."""
        tokens, copies = limits(body, self.tokens_as)
        return prices.most(len(encoded(body)), tokens * copies, seconds, demand_of(body))

    @property
    def peek(self) -> LookLength:
        """How much of an answer its context has."""
        return LookLength(self.context_characters, self.context_tokens)

    def read(self, reply: Mapping[str, Any], prices: Tariff, *, seconds: float, worst: float) -> Answer:
        """The answer in a reply without streaming.

        seconds: time that it took. worst: the fee that was reserved for it.

        Raises `Failed`: "invalid reply" if the reply is not a completion or counts more than `MOST_COUNTED`
        tokens, "unpriced" if the fee needs token counts and there are none, "overcharged" if it exceeds
        `worst`.
        """
        said = self.look(reply)
        finish: Finish = "refusal" if said.refusal else FINISHES.get(said.finish or "", "stop")
        if finish == "stop" and not said.text.strip():
            finish = "empty"
        usage = reply.get("usage")
        tokens_in, tokens_out = (tokens_of(usage, name) for name in ("prompt_tokens", "completion_tokens"))
        if max(tokens_in or 0, tokens_out or 0) > MOST_COUNTED:
            why = f"the reply counts more than {MOST_COUNTED:,} tokens"
            raise Failed(why, "invalid reply", again=False, charged=True)
        counted = usage_of(reply)
        if counted is not None and counted.complete:
            asked = as_asked(counted, demand_of(self.options))
            fee: float | None = prices.of(asked, seconds)
        else:
            fee = prices.fee(tokens_in, tokens_out, seconds)
        if fee is None:
            why = (
                "the reply has no token counts, so it has no fee: price the specialist per call or per second"
            )
            raise Failed(why, "unpriced", again=False, charged=True, dead=True)
        if fee > worst * (1 + 1e-9):
            why = f"charged {fee:.6g} where at most {worst:.6g} was agreed"
            raise Failed(why, "overcharged", again=False, charged=True, dead=True, bill=fee)
        context, logprobs = said.glimpse.context, said.glimpse.first_chances
        text = said.text or said.refusal
        return Answer(text, tokens_in, tokens_out, seconds, fee, context, finish, logprobs=logprobs)

    def look(self, reply: Mapping[str, Any]) -> Completion:
        """What a reply, or what has arrived of one, says and shows; raises `Failed`."""
        try:
            return completion(reply, self.peek)
        except ValueError as error:
            raise Failed(str(error), "invalid reply", again=True, charged=True) from None

    @property
    def identity(self) -> dict[str, Any]:
        """The settings that affect answers: all but `stream`; `as_text` only if it is set."""
        parts = asdict(self)
        del parts["stream"]
        return parts if self.as_text else {name: part for name, part in parts.items() if name != "as_text"}

    @property
    def path(self) -> str:
        """Path of the request below the base URL."""
        return "completions" if self.as_text else "chat/completions"


def limits(body: Mapping[str, Any], tokens_as: str) -> tuple[int, int]:
    """The most tokens of one answer that `body` allows, and how many answers it requests.

    `tokens_as` names the field with the limit; other fields in `TOKEN_LIMITS` count if they are larger.

    >>> limits({"max_tokens": 10, "max_completion_tokens": 30, "n": 4}, "max_tokens")
    (30, 4)
    """
    tokens = max(body[name] for name in {*TOKEN_LIMITS, tokens_as} if name in body)
    return tokens, max([1, *(body[name] for name in COPIES if name in body)])


def _whole_number(what: str, value: object, most: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
        raise UsageError(
            what,
            expected=f"a whole number from 1 to {most}, since it bounds what an answer can cost",
            came=f"{value!r}"[:80],
            do="Give a number, or leave it out.",
        )
