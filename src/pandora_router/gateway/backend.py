"""A specialist as backend of the gateway: endpoint, model name, prices and abilities."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pandora_router.errors import UsageError
from pandora_router.gateway.splice import with_member, with_model
from pandora_router.gateway.wires import Name, Turn
from pandora_router.specialists.chat import Cancelling
from pandora_router.specialists.prices import CHARACTERS_PER_TOKEN
from pandora_router.store.money import nanodollars
from pandora_router.store.rows import Usage
from pandora_router.transport.endpoint import Endpoint
from pandora_router.transport.failures import Failed

ABILITIES = frozenset({"tools", "images", "audio", "files", "json_schema", "logprobs"})
BYTES_PER_TOKEN = 3
"""Bytes per token, to estimate the tokens of a request without counts; rather too many tokens."""


@dataclass(frozen=True)
class TokenTariff:
    """Prices of a provider in dollars per million tokens; `per_call` in dollars.

    `cached` is the price of input read from the provider's cache, `written` of input written to it; both are
    the plain input price unless stated.
    """

    input: float
    output: float
    cached: float | None = None
    written: float | None = None
    per_call: float = 0.0

    def __post_init__(self) -> None:
        nanodollars(self.input + self.output + (self.cached or 0.0) + (self.written or 0.0) + self.per_call)

    def cost(self, usage: Usage) -> int:
        """The price of these tokens, in nanodollars."""
        cached = self.input if self.cached is None else self.cached
        written = self.input if self.written is None else self.written
        tokens = usage.fresh * self.input + usage.cached * cached + usage.written * written
        return nanodollars((tokens + usage.output * self.output) / 1e6 + self.per_call)


@dataclass(frozen=True)
class LookLength:
    """How much of an answer a look reads: the same as the contexts that were collected.

    characters: of the text. tokens: first tokens with log-probabilities in place of characters, where the
    specialist gives them; 0 for none. chances: whether estimators are shown the log-probabilities as well.
    """

    characters: int = 400
    tokens: int = 0
    chances: bool = False

    @property
    def length(self) -> float:
        """Approximate number of tokens that are read."""
        return float(self.tokens) if self.tokens else self.characters / CHARACTERS_PER_TOKEN


@dataclass(frozen=True)
class Backend:
    """A specialist behind an endpoint.

    `model` is its name there. `context` is its limit for input and output tokens together, None if unknown.
    `refuses` are members of a request that it answers with an error, such as `temperature`. `cancel` says
    whether closing a stream stops billing. `looks`: whether looks are allowed; false for models with hidden
    reasoning. `peek` is how much a look reads.
    """

    name: str
    endpoint: Endpoint
    model: str
    prices: TokenTariff
    wires: frozenset[Name] = frozenset({"chat"})
    abilities: frozenset[str] = ABILITIES
    refuses: frozenset[str] = frozenset()
    context: int | None = None
    max_output: int = 4096
    cancel: Cancelling = "unknown"
    looks: bool = True
    peek: LookLength = LookLength()
    headers: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        unknown = self.abilities - ABILITIES
        if unknown or not self.wires or self.max_output < 1:
            raise UsageError(
                f"the specialist {self.name}",
                expected=f"abilities among {', '.join(sorted(ABILITIES))}, a wire, max_output of 1 or more",
                came=", ".join(sorted(unknown)) or f"{len(self.wires)} wires, max_output {self.max_output}",
                do="Change its entry in pandora.yaml.",
            )

    def request(
        self,
        wire: Name,
        body: bytes,
        parsed: Mapping[str, Any],
        turn: Turn,
        *,
        look: bool = False,
        chances: bool = False,
    ) -> bytes:
        """The client's bytes with the model's name replaced; for a chat stream, usage is requested too.

        A `look` requests a stream even if the client does not; with `chances` also log-probabilities.
        """
        changed, known = with_model(body, parsed, self.model), {**parsed, "model": self.model}
        members: dict[str, Any] = {}
        if look and not turn.stream:
            members["stream"] = True
        if wire == "chat" and (turn.stream or look) and not turn.wants_usage:
            members["stream_options"] = {**(parsed.get("stream_options") or {}), "include_usage": True}
        if chances and not parsed.get("logprobs"):
            members["logprobs"] = True
        for name, value in members.items():
            changed = with_member(changed, known, name, value)
            known[name] = value
        return changed

    def address(self, path: str) -> str:
        """The URL of a path such as /v1/chat/completions; a base that ends in /v1 already has that part."""
        return self.endpoint.url(path.removeprefix("/v1"))

    def sent_headers(self, wire: Name, passed: Mapping[str, str]) -> dict[str, str]:
        """The headers of a call: ours, `passed` ones of the client, and the key in the form of the wire.

        Raises `Failed` if the key cannot be read, as for a server that cannot be reached.
        """
        headers = {
            "Content-Type": "application/json",
            "Accept-Encoding": "identity",
            **self.headers,
            **passed,
        }
        try:
            key = self.endpoint.key()
        except UsageError:
            raise Failed(f"the key of {self.name} cannot be read", "connection", again=True) from None
        if key is not None:
            headers |= {"x-api-key": key} if wire == "messages" else {"Authorization": f"Bearer {key}"}
        if wire == "messages":
            headers.setdefault("anthropic-version", "2023-06-01")
        return headers

    def worst_case(self, size: int, turn: Turn) -> int:
        """Most that one call can cost, in nanodollars; `size` is the length of the request in bytes.

        No tokenizer makes more tokens than bytes. Input is counted at its highest price.
        """
        return self.bound(size, self.most_output(turn))

    def most_output(self, turn: Turn) -> int:
        """Most tokens that the answers to a request have together."""
        return turn.answers * (turn.max_output or self.max_output)

    def bound(self, size: int, output: int) -> int:
        """The most that a call of `size` bytes costs that writes `output` tokens or fewer, in nanodollars."""
        return self.failed_case(size) + nanodollars(output * self.prices.output / 1e6)

    def failed_case(self, size: int) -> int:
        """Most that a call costs if it fails before its first content: its prompt, in nanodollars."""
        dearest = max(self.prices.input, self.prices.written or 0.0)
        return nanodollars((size + 64) * dearest / 1e6 + self.prices.per_call)

    def estimate(self, size: int, output: int) -> Usage:
        """Estimated token counts of a call without counts: from its size and the number of events."""
        return Usage(size // BYTES_PER_TOKEN, 0, 0, output, complete=False)
