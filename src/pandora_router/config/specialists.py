"""The sections `endpoints` and `specialists` of a configuration.

Keys of endpoints are never written in the file: `key_from` names the environment variable with the key.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from pydantic import Field, field_validator, model_validator

from pandora_router.collect import graders
from pandora_router.config.callables import Answering, FunctionSettings, McpSettings
from pandora_router.config.price_parts import Priced, prices_of
from pandora_router.config.shared import (
    Above,
    Amount,
    Closed,
    Count,
    Name,
    Natural,
    Text,
)
from pandora_router.prices import USUAL_ANSWER, USUAL_SECONDS, Cancelling, Fare, Lengths, Tariff, look_fare
from pandora_router.specialists import templates
from pandora_router.specialists.chat import ChatEndpoint
from pandora_router.specialists.chat_settings import OWN, Asking, limits
from pandora_router.specialists.local import LocalModel
from pandora_router.specialists.retrieval import Passages, Retrieval
from pandora_router.specialists.sampling import Sampling, same
from pandora_router.specialists.specialist import Specialist
from pandora_router.specialists.templates import Template, few_shot
from pandora_router.wires.demand import demand_of
from pandora_router.wires.json_text import folded
from pandora_router.wires.own_members import on_wire
from pandora_router.wires.usage import Usage
from pandora_router.wires.wire import COPIES, LATER, TOKEN_LIMITS

if TYPE_CHECKING:
    from pandora_router.config.file import Config
    from pandora_router.config.shared import Builder

USUAL_PASSAGE = 120
"""Tokens of a passage: an assumption, not a measurement."""
_OPEN = frozenset({"question", "passages"})

Wire = Literal["chat", "responses", "messages"]
KEPT = frozenset(folded(name) for name in (*OWN, *TOKEN_LIMITS, *COPIES, *LATER))
"""Members that `with` may not have: they are set elsewhere, or a reservation depends on them."""
Feature = Literal["tools", "images", "audio", "files", "json_schema", "logprobs"]


class EndpointSettings(Closed):
    """An OpenAI-compatible HTTP endpoint and its limits, shared by all specialists behind it."""

    base_url: Text
    key_from: Text | None = None
    timeout: Above = 60.0
    retries: Natural = 6
    pause: Amount = 0.5
    at_once: Count = 8
    per_minute: Above | None = None


def template(text: str, fields: frozenset[str]) -> Template:
    """A template by its name, or by its text if that contains {question}.

    Raises `ValueError` if there is no such template or it has fields other than `fields`.
    """
    names = sorted(name for name, named in templates.NAMED.items() if named.fields <= fields)
    if "{question}" not in text:
        if text not in names:
            raise ValueError(f"a template: one of {', '.join(names)}, or a text with {{question}}")
        return templates.NAMED[text]
    made = Template(text)
    if not made.fields <= fields:
        raise ValueError(f"a template with fields among {', '.join(sorted(fields))}")
    return made


class AskedSettings(Answering):
    """Settings for asking a language model, and for the part of its answer that estimators may read."""

    prices: Priced
    template: Text = "plain"
    system: str = Asking.system
    temperature: Amount = Asking.temperature
    tokens: Count = Asking.tokens
    tokens_as: Text = Asking.tokens_as
    context_tokens: Natural = Asking.context_tokens
    context_characters: Natural = Asking.context_characters
    options: dict[str, Any] = Field(default_factory=dict)
    as_text: bool = Asking.as_text
    examples: list[Annotated[list[str], Field(min_length=2, max_length=2)]] = Field(default_factory=list)

    @field_validator("template")
    @classmethod
    def _known(cls, text: str) -> str:
        template(text, frozenset({"question"}))
        return text

    def asking(self, *, stream: bool = False) -> Asking:
        """The settings as `Asking`."""
        pairs = [(question, answer) for question, answer in self.examples]
        return Asking(
            template=few_shot(*pairs) if pairs else template(self.template, frozenset({"question"})),
            system=self.system,
            temperature=self.temperature,
            tokens=self.tokens,
            tokens_as=self.tokens_as,
            context_tokens=self.context_tokens,
            context_characters=self.context_characters,
            options=self.asks,
            as_text=bool(pairs) or self.as_text,
            stream=stream,
        )

    @property
    def cancelling(self) -> Cancelling:
        """What is billed for a cancelled answer; a model in this process stops."""
        return "stops"

    @property
    def most(self) -> int:
        """The most tokens that the answers to one request may have together."""
        tokens, copies = limits({self.tokens_as: self.tokens, **self.options}, self.tokens_as)
        return tokens * copies

    def look(self, lengths: Lengths, prompt: float, peek: int) -> Fare | None:
        """Expected cost of a look at `peek` characters; None for a price per second that nobody measured."""
        prices = self.served.at(Usage(round(prompt)))
        if prices.per_second and lengths.seconds.value is None:
            return None
        seen = lengths.seen(min(peek, self.context_characters or peek), self.context_tokens)
        return look_fare(prices, self.cancelling, lengths, prices.price(prompt, 0), seen, self.most)

    def usual(self, prompt: float, config: Config, written: int = USUAL_ANSWER) -> float:
        """The fee of an answer of `written` tokens, if so many are allowed, to `prompt` tokens."""
        tokens, copies = limits({self.tokens_as: self.tokens, **self.options}, self.tokens_as)
        return self.served.price(prompt, min(tokens, written) * copies, USUAL_SECONDS)

    @property
    def asks(self) -> dict[str, Any]:
        """The members of its requests that the file states."""
        return self.options

    @property
    def served(self) -> Tariff:
        """The prices of requests as this specialist makes them: in the tier that they ask for."""
        return prices_of(self.prices).served(demand_of(self.asks))

    @model_validator(mode="after")
    def _all_priced(self) -> AskedSettings:
        if lines := prices_of(self.prices).missing(demand_of(self.asks)):
            raise ValueError(f"prices with {', '.join(lines)}, for what its requests ask")
        return self

    @model_validator(mode="after")
    def _one_template(self) -> AskedSettings:
        if self.examples and "template" in self.model_fields_set:
            raise ValueError("examples or a template, not both")
        return self


class ChatSettings(AskedSettings):
    """A model behind an endpoint. The keys from `wires` on concern the gateway.

    supports: what it can do beside text; left out, it is asked for everything until its provider refuses.
    looks: whether the gateway may begin an answer in order to look at it before deciding; set it to false for
    models with hidden reasoning. with: members that every request to it has, here and in `collect`: those of
    a client are replaced. An effort is said in the words of each wire; members under `chat`, `responses` or
    `messages` are those of this wire only.
    """

    kind: Literal["chat"]
    endpoint: Name
    model: Text
    stream: bool = False
    wires: Annotated[list[Wire], Field(min_length=1)] = Field(default=["chat"])
    supports: list[Feature] | None = None
    window: Count | None = None
    max_output_tokens: Count | None = None
    cancel: Cancelling = "unknown"
    looks: bool = True
    members: dict[str, Any] = Field(default_factory=dict, alias="with")

    @field_validator("members")
    @classmethod
    def _allowed(cls, members: dict[str, Any]) -> dict[str, Any]:
        wires = get_args(Wire)
        inner = [members[wire] for wire in wires if wire in members]
        if not all(isinstance(part, dict) for part in inner):
            raise ValueError("members and their values under chat, responses and messages")
        for name in (name for part in (members, *inner) for name in part):
            if folded(name) in KEPT:
                raise ValueError(f"members that neither limit nor multiply an answer, not {name}")
        return members

    @property
    def cancelling(self) -> Cancelling:
        """What the provider bills for a cancelled answer."""
        return self.cancel

    @property
    def own(self) -> dict[Wire, dict[str, Any]]:
        """The members that every request to it has, by wire; only wires with any."""
        common = {name: value for name, value in self.members.items() if name not in get_args(Wire)}
        every = {wire: on_wire(wire, common) | self.members.get(wire, {}) for wire in get_args(Wire)}
        return {wire: members for wire, members in every.items() if members}

    @property
    def asks(self) -> dict[str, Any]:
        """The members of its requests that the file states, on the wire that `collect` uses."""
        return {**self.options, **self.own.get("chat", {})}

    def build(self, name: str, builder: Builder) -> Specialist:
        """The specialist."""
        endpoint, limit = builder.endpoint(self.endpoint)
        return ChatEndpoint(
            name,
            endpoint,
            self.model,
            prices_of(self.prices),
            self.asking(stream=self.stream),
            limit,
            cancel=self.cancel,
        )

    def decisive(self, config: Config) -> dict[str, Any]:
        """The settings that affect answers, with the address of the endpoint."""
        settings = super().decisive(config) | {"endpoint": config.endpoints[self.endpoint].base_url}
        return {name: value for name, value in settings.items() if name != "with" or value}


class LocalSettings(AskedSettings):
    """A GGUF model in this process (extra [local])."""

    kind: Literal["local"]
    path: Text
    tokens: Count = 256
    window: Count = LocalModel.window
    deadline: Above = LocalModel.deadline

    def build(self, name: str, builder: Builder) -> Specialist:
        """The specialist."""
        path, prices = builder.folder / self.path, prices_of(self.prices)
        return LocalModel(name, path, prices, self.asking(), self.window, self.deadline)


class RetrievalSettings(Answering):
    """Passages found for the prompt, in front of another specialist; `price` is that of one retrieval.

    With `scores` the first line of its contexts has the scores of the passages, for estimators to read.
    """

    kind: Literal["retrieval"]
    inner: Name
    passages: Text
    text: Text = "text"
    title: Text = "title"
    k: Count = Retrieval.k
    price: Amount = Retrieval.price
    template: Text = "open_book"
    scores: bool = Retrieval.scores

    @field_validator("template")
    @classmethod
    def _known(cls, text: str) -> str:
        template(text, _OPEN)
        return text

    def build(self, name: str, builder: Builder) -> Specialist:
        """The specialist."""
        inner, words = builder.specialist(self.inner), template(self.template, _OPEN)
        passages = Passages.read(builder.folder / self.passages, text=self.text, title=self.title)
        return Retrieval(name, inner, passages, self.k, words, self.price, self.scores)

    def look(self, lengths: Lengths, prompt: float, peek: int) -> Fare | None:
        """The price of one retrieval: a look shows the passages."""
        return Fare(self.price, self.price)

    def usual(self, prompt: float, config: Config, written: int = USUAL_ANSWER) -> float:
        """The price of one retrieval, and the fee of an answer to the prompt with the passages."""
        longer = prompt + self.k * USUAL_PASSAGE
        return self.price + config.specialists[self.inner].usual(longer, config, written)

    def decisive(self, config: Config) -> dict[str, Any]:
        """The settings that affect answers, with those of the inner specialist."""
        return super().decisive(config) | {"inner": config.specialists[self.inner].decisive(config)}


class SamplingSettings(Answering):
    """The most frequent of `n` answers of another specialist."""

    kind: Literal["sampling"]
    inner: Name
    n: Count = 5
    majority_of: Literal["same", "boxed"] = "same"

    def build(self, name: str, builder: Builder) -> Specialist:
        """The specialist."""
        key = same if self.majority_of == "same" else _boxed
        return Sampling(name, builder.specialist(self.inner), self.n, key)

    def look(self, lengths: Lengths, prompt: float, peek: int) -> Fare | None:
        """None: the answers of the inner specialist are begun one after the other, at an unknown price."""
        return None

    def usual(self, prompt: float, config: Config, written: int = USUAL_ANSWER) -> float:
        """The fee of `n` answers."""
        return self.n * config.specialists[self.inner].usual(prompt, config, written)

    def decisive(self, config: Config) -> dict[str, Any]:
        """The settings that affect answers, with those of the inner specialist."""
        return super().decisive(config) | {"inner": config.specialists[self.inner].decisive(config)}


SpecialistSettings = Annotated[
    ChatSettings | LocalSettings | RetrievalSettings | SamplingSettings | FunctionSettings | McpSettings,
    Field(discriminator="kind"),
]


def _boxed(text: str) -> str:
    return graders.final(text).strip()


def identity(name: str, config: Config) -> str:
    """Short hash of everything that affects the answers of the specialist `name`, without its key.

    Artifacts contain it, so that a router is not used for specialists for which it was not fitted.
    """
    decisive = config.specialists[name].decisive(config)
    return hashlib.sha256(json.dumps(decisive, sort_keys=True).encode()).hexdigest()[:16]
