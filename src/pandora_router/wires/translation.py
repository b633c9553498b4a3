"""The neutral form in which the three wires meet: requests, and the events of an answer.

A request of one wire is read into `NeutralRequest` and written from it on another wire; an answer is read
into `Event`s and written from those. Three readers and three writers make six directions. The form holds what
all three wires can say; `Untranslatable` names what cannot be expressed.

Left out without an error are hints that do not change what is asked for (cache marks, reasoning budgets,
labels for the provider's books), the reasoning of earlier answers with its signatures and encrypted texts,
and tools that run at the provider (`NeutralRequest.without` names them). Reasoning of an answer is passed on
to chat clients only: on the other two wires it comes back in the next request, where only its author could
sign it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol

from pandora_router.wires.json_text import Json, mapping, objects, string
from pandora_router.wires.usage import Usage

Stop = Literal["stop", "length", "tools", "refusal", "sequence"]
Role = Literal["system", "user", "assistant", "tool"]
Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh"]
ROLES: Mapping[str, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
}
"""OpenAI's names of roles."""
MOST_BLOCKS = 10_000
"""Blocks of one answer above which its stream is given up."""


class Untranslatable(ValueError):
    """What a request or an answer has that the other wire cannot express."""


@dataclass(frozen=True)
class TextPart:
    """A text."""

    text: str


@dataclass(frozen=True)
class ImagePart:
    """An image by its address, which may be a data: URL."""

    url: str
    detail: str = "auto"


@dataclass(frozen=True)
class ToolCall:
    """A call of a tool of the client; `arguments` is the text of a JSON object."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True)
class ToolResult:
    """What a tool answered to the call `id`; `error`: whether it failed (only Messages can say so)."""

    id: str
    parts: tuple[TextPart | ImagePart, ...]
    error: bool = False


Part = TextPart | ImagePart | ToolCall | ToolResult


@dataclass(frozen=True)
class NeutralMessage:
    """One message: `user` has texts and images, `assistant` texts and calls, `tool` results."""

    role: Role
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class ToolOffer:
    """A tool that the client runs."""

    name: str
    description: str
    schema: Mapping[str, Any]
    strict: bool = False


@dataclass(frozen=True)
class AnswerSchema:
    """The JSON schema that an answer has to fit."""

    schema: Mapping[str, Any]
    name: str = "answer"
    strict: bool = True


@dataclass(frozen=True)
class NeutralRequest:
    """A request. `choice` is auto, none, required or `tool:NAME`; `without`: tools that were left out."""

    messages: tuple[NeutralMessage, ...]
    system: str = ""
    tools: tuple[ToolOffer, ...] = ()
    choice: str = "auto"
    parallel: bool = True
    stream: bool = False
    max_output: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    stop: tuple[str, ...] = ()
    effort: str | None = None
    shape: AnswerSchema | None = None
    without: tuple[str, ...] = ()


@dataclass(frozen=True)
class AnswerBegun:
    """An answer begins."""

    id: str
    model: str


@dataclass(frozen=True)
class BlockOpened:
    """A block of an answer begins. Its `place` names it in later events; a `call` has an id and a name."""

    place: int
    kind: Literal["text", "thought", "call"]
    id: str = ""
    name: str = ""


@dataclass(frozen=True)
class BlockMore:
    """More text of a block; of a call, more of its arguments."""

    place: int
    text: str


@dataclass(frozen=True)
class BlockClosed:
    """A block is complete."""

    place: int


@dataclass(frozen=True)
class TokensCounted:
    """Token counts; later ones replace earlier ones."""

    usage: Usage


@dataclass(frozen=True)
class AnswerStopped:
    """Why the answer ended; token counts may follow."""

    stop: Stop


@dataclass(frozen=True)
class AnswerOver:
    """Nothing more follows."""


Event = AnswerBegun | BlockOpened | BlockMore | BlockClosed | TokensCounted | AnswerStopped | AnswerOver


class WireReader(Protocol):
    """Reads requests and one answer of a wire. Make a new one for each answer."""

    def request(self, body: Json) -> NeutralRequest:
        """A request in the neutral form; raises `Untranslatable`."""
        ...

    def unrolled(self, answer: Json) -> Iterable[Json]:
        """The events of a stream that would have brought this whole answer."""
        ...

    def events(self, event: Json) -> Iterable[Event]:
        """What one event of a stream means; one that is not known means nothing. Raises `Untranslatable`."""
        ...


@dataclass(frozen=True)
class AnswerAbout:
    """What a writer says of an answer: a name made here, the time, whether counts were asked for."""

    id: str
    created: int
    usage: bool = True


class WireWriter(Protocol):
    """Writes requests and one answer of a wire. Make a new one for each answer."""

    def request(self, request: NeutralRequest, tokens_as: str, most: int) -> dict[str, Any]:
        """A request without its model; raises `Untranslatable`.

        `tokens_as` is the specialist's name for the limit of tokens, on the chat wire. `most` is the limit
        where a wire needs one and the request has none.
        """
        ...

    def write(self, event: Event) -> bytes:
        """The events of a stream that say the same."""
        ...

    def failed(self, failure: Iterable[tuple[str | None, Json]]) -> bytes:
        """The events `failure` of the wire, after the ends of open blocks; nothing can be written then."""
        ...


@dataclass
class OpenBlocks:
    """The places of the blocks of one answer that are open, by the names that its wire has for them."""

    places: dict[object, int] = field(default_factory=dict)
    opened: int = 0

    def open(
        self, key: object, kind: Literal["text", "thought", "call"], id_: str = "", name: str = ""
    ) -> BlockOpened:
        """A new block; raises `Untranslatable` if there are too many."""
        if self.opened >= MOST_BLOCKS:
            raise Untranslatable("an answer with too many parts")
        place, self.opened = self.opened, self.opened + 1
        self.places[key] = place
        return BlockOpened(place, kind, id_, name)

    def close(self, key: object) -> list[Event]:
        """The end of a block, if it is open."""
        place = self.places.pop(key, None)
        return [] if place is None else [BlockClosed(place)]

    def close_all(self) -> list[Event]:
        """The ends of all open blocks, in order."""
        return [
            end for key in sorted(self.places, key=lambda key: self.places[key]) for end in self.close(key)
        ]


def refuse_others(body: Json, known: frozenset[str], hints: frozenset[str]) -> None:
    """Raise `Untranslatable` for a member that says something and is neither known nor a hint."""
    for name, value in body.items():
        nothing = value in (None, False, [], {}, "") and name != "seed"  # 0 is a seed like any other
        if name not in known and name not in hints and not nothing and value is not None:
            raise Untranslatable(f"the member {name[:60]!r}")


def text(value: object, what: str) -> str:
    """The value if it is a text; raises `Untranslatable`."""
    if not isinstance(value, str):
        raise Untranslatable(f"{what} that is no text")
    return value


def number(body: Json, name: str) -> float | None:
    """A number or None; raises `Untranslatable`."""
    value = body.get(name)
    if value is None or (isinstance(value, int | float) and not isinstance(value, bool)):
        return value
    raise Untranslatable(f"{name} that is no number")


def limit(body: Json, *names: str) -> int | None:
    """The largest of these limits of tokens; they are checked when the request is read for routing."""
    return max((value for name in names if isinstance(value := body.get(name), int)), default=None)


def parts_of(content: object) -> list[Json]:
    """The parts of a message's content; a text is one part. Raises `Untranslatable` for anything else."""
    if content is None:
        return []
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    if not isinstance(content, list) or len(list(objects(content))) != len(content):
        raise Untranslatable("content that is neither a text nor a list of parts")
    return list(content)


def conversation(messages: Iterable[NeutralMessage]) -> tuple[str, tuple[NeutralMessage, ...]]:
    """The system prompt, and the other messages: neighbours of an assistant, or of tools, are joined.

    Raises `Untranslatable` if there is no message, or if the last one begins the answer (a prefill).
    """
    system: list[str] = []
    joined: list[NeutralMessage] = []
    for message in messages:
        if not message.parts:
            continue
        if message.role == "system" and not joined:
            system += [part.text for part in message.parts if isinstance(part, TextPart)]
        elif joined and message.role in ("assistant", "tool") and joined[-1].role == message.role:
            joined[-1] = replace(joined[-1], parts=(*joined[-1].parts, *message.parts))
        else:
            joined.append(message)
    if not joined or joined[-1].role == "assistant":
        raise Untranslatable("an answer that the request begins" if joined else "a request without a message")
    return "\n\n".join(system), tuple(joined)


def offered(body: Json, *kinds: str | None) -> tuple[list[Json], tuple[str, ...]]:
    """The tools of the kinds that the client runs, and the names of other tools."""
    tools = list(objects(body.get("tools")))
    others = [tool for tool in tools if tool.get("type") not in kinds]
    names = tuple(str(tool.get("name") or tool.get("type"))[:40] for tool in others)
    return [tool for tool in tools if tool.get("type") in kinds], names


def tool_of(stated: Json, schema: str = "parameters") -> ToolOffer:
    """A tool of the client; one without arguments may leave out the member `schema`.

    It stays strict if the strict mode of every provider takes its schema.
    """
    asked = mapping(stated.get(schema)) or {"type": "object", "properties": {}}
    description = string(stated.get("description")) or ""
    strict = stated.get("strict") is True and required(asked)
    return ToolOffer(text(stated.get("name"), "name"), description, asked, strict)


def schema_asked(stated: Json, within: Json) -> AnswerSchema | None:
    """The schema that a `stated` format of OpenAI's asks for, in the object `within`.

    Raises `Untranslatable` for other formats.
    """
    if stated.get("type") in (None, "text"):
        return None
    if stated.get("type") != "json_schema":
        raise Untranslatable(f"the response format {str(stated.get('type'))[:40]!r}")
    name = string(within.get("name")) or AnswerSchema.name
    return AnswerSchema(mapping(within.get("schema")), name, within.get("strict") is True)


NAMED = frozenset({"properties", "patternProperties", "$defs", "definitions"})
"""Members of a JSON schema that are schemas by name."""
VALUES = frozenset({"enum", "const", "default", "examples"})
"""Members of a JSON schema that are values, and no schemas."""


def inner_schemas(schema: Json) -> dict[str, Any]:
    """The members of a JSON schema that are schemas, or lists or objects of them."""
    inner = {name: part for name, part in schema.items() if isinstance(part, dict | list)}
    return {name: part for name, part in inner.items() if name not in VALUES}


def closed(schema: Any) -> Any:
    """A JSON schema whose objects have the members that it names and no others, as Anthropic wants it.

    Raises `Untranslatable` where an object may have any members.

    >>> closed({"type": "object", "properties": {"a": {"type": "string"}}})
    {'type': 'object', 'properties': {'a': {'type': 'string'}}, 'additionalProperties': False}
    """
    if not isinstance(schema, dict):
        return [closed(part) for part in schema] if isinstance(schema, list) else schema
    made = dict(schema)
    for name, part in inner_schemas(schema).items():
        made[name] = {key: closed(one) for key, one in part.items()} if name in NAMED else closed(part)
    open_ = not schema.get("properties")
    if schema.get("type") == "object" and made.setdefault("additionalProperties", open_) is not False:
        raise Untranslatable("a JSON schema with objects that may have any members")
    return made


def required(schema: Any) -> bool:
    """Whether all objects in a JSON schema have just the members that it requires: OpenAI's strict mode.

    >>> required({"type": "object", "properties": {"a": {}}, "required": []})
    False
    """
    if not isinstance(schema, dict):
        return not isinstance(schema, list) or all(map(required, schema))
    names = set(mapping(schema.get("properties")))
    open_ = schema.get("type") == "object" and schema.get("additionalProperties") is not False
    if open_ or not names <= set(schema.get("required") or ()):
        return False
    inner = inner_schemas(schema).items()
    return all(required([*part.values()] if name in NAMED else part) for name, part in inner)


def openai_counts(usage: Usage, read: str, wrote: str) -> dict[str, Any]:
    """Token counts by OpenAI's names, beginning with `read` and `wrote`; the input includes cached input."""
    tokens = usage.fresh + usage.cached + usage.written
    return {
        f"{read}_tokens": tokens,
        f"{wrote}_tokens": usage.output,
        "total_tokens": tokens + usage.output,
        f"{read}_tokens_details": {"cached_tokens": usage.cached},
        f"{wrote}_tokens_details": {"reasoning_tokens": usage.reasoning},
    }
