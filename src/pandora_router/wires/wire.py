"""What the wires (request formats) have in common: what routing reads of a request, what a wire does.

A wire reads what the gateway needs from a request, recognises content, usage and the end of a response, shows
what a look reads, assembles the whole answer of a stream, and writes answers and errors. Unknown members and
events are passed on unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

from pandora_router.wires.demand import PLAIN, Demand, demand_of
from pandora_router.wires.json_text import (
    Json,
    count_of,
    flag_of,
    mapping,
    objects,
    spoken,
    string,
    text_of,
    wrong,
)
from pandora_router.wires.look import Glimpse
from pandora_router.wires.usage import Usage

if TYPE_CHECKING:
    from pandora_router.wires.events import Assembly

Name = Literal["chat", "responses", "messages"]
TOKEN_LIMITS = (
    "max_tokens", "max_completion_tokens", "max_output_tokens", "n_predict", "max_new_tokens",
    "max_tokens_to_sample", "num_predict",
)  # fmt: skip
"""Fields that limit the length of an answer; the largest value in a body counts."""
COPIES = ("n", "best_of")
"""Fields that request several answers, each of which is charged."""
THINKING = {"thinking": "budget_tokens", "reasoning": "max_tokens"}
"""Members with a limit of their own for the tokens of reasoning, and its name there."""
LATER = ("background", "deferred")
"""Fields that ask for an answer which is written after the reply."""
MOST_TOKENS = 10**7
MOST_COPIES = 128
SYSTEM = ("system", "developer")
"""Roles of instructions that come before the conversation."""
TEXTS = ("text", "input_text", "output_text")
"""Types of content parts that hold text."""
PARTS = {
    "image_url": "images",
    "input_image": "images",
    "image": "images",
    "computer_screenshot": "images",
    "input_audio": "audio",
    "file": "files",
    "input_file": "files",
    "document": "files",
}
"""Types of content parts -> the ability a specialist needs for them."""
SAMPLING = {
    "model", "stream", "temperature", "top_p", "top_k", "min_p", "metadata", "tools", "tool_choice",
    "repetition_penalty",
}  # fmt: skip
OPENAI = {
    "user", "store", "parallel_tool_calls", "prompt_cache_key", "safety_identifier", "top_logprobs",
}  # fmt: skip


@dataclass(frozen=True)
class Turn:
    """The parts of a request that routing uses.

    `prompt` is the text of the last user message, "" if there is none. `continues`: whether the request has
    earlier answers or tool results and so belongs to a conversation. `needs` are abilities that the
    specialist must have; `previous` is the id of an earlier response, known only to the specialist that wrote
    it. `max_output` limits the tokens of each of the `answers` that are asked for, `thinking` those of
    reasoning, which may be more. `media` counts images, sounds and files, `carried` the characters of their
    data and addresses. `predicted` are the bytes of a stated prediction of the answer, which is billed like
    an answer where it is wrong. `background`: whether the
    answer is to be written after the reply to the request. `loops`: whether it brings the results of tool
    calls and nothing after them. `locked`: whether it has reasoning that only the provider that signed or
    encrypted it can read, or items that lie there. `demand`: what it asks for beside plain tokens.
    """

    model: str
    stream: bool
    prompt: str
    system: str
    first: str
    continues: bool
    needs: frozenset[str]
    parameters: frozenset[str]
    max_output: int | None
    answers: int
    media: int
    wants_usage: bool
    previous: str | None
    cache_key: str | None
    metadata: Json
    background: bool
    loops: bool
    locked: bool
    demand: Demand = PLAIN
    thinking: int = 0
    carried: int = 0
    predicted: int = 0


@dataclass(frozen=True)
class Piece:
    """The meaning of one event of a stream: has it content, token counts, an error, an id of the response.

    `last`: whether its token counts, if it has any, are final.
    """

    content: bool = False
    usage: Usage | None = None
    only_usage: bool = False
    failed: str | None = None
    last: bool = False
    response: str | None = None


@dataclass(frozen=True)
class Spoken:
    """Parts of a request that the three wires have in different places, for `turn_of`.

    users, system: texts in order. items: messages or input items. continues: whether earlier answers are
    among them. shape: the response format that is asked for. previous: the id of the response that goes on.
    """

    users: list[str]
    system: list[str]
    items: list[Json]
    continues: bool
    shape: object = None
    previous: str | None = None


@dataclass(frozen=True)
class WireAnswer:
    """One answer. `truncated`: a limit of tokens cut it off; `created`: Unix time in seconds.

    `logprobs` are the log-probabilities of the first tokens, `first` is the text of all of them.
    """

    id: str
    model: str
    created: int
    text: str = ""
    tokens_in: int = 0
    tokens_out: int = 0
    truncated: bool = False
    logprobs: tuple[float, ...] = ()
    first: str = ""


class Speech(Protocol):
    """The format of answers on one wire."""

    def whole(self, answer: WireAnswer) -> dict[str, Any]:
        """The answer to a request that does not stream."""
        ...

    def head(self, answer: WireAnswer) -> bytes:
        """The events before the first text."""
        ...

    def delta(self, answer: WireAnswer, text: str) -> bytes:
        """The event for one piece of text."""
        ...

    def tail(self, answer: WireAnswer, *, usage: bool) -> bytes:
        """The events after the last text; `usage`: whether a chat client asked for token counts."""
        ...


COMMENT = b": ping\n\n"
"""An event without data, which clients ignore."""


class Wire(Protocol):
    """One request format.

    members: those of a request that are known not to make it cost more. stored: whether a later request can
    refer to an answer by its id. logprobs: whether log-probabilities of the first tokens can be requested.
    ping: what keeps a silent stream alive.
    """

    name: ClassVar[Name]
    path: ClassVar[str]
    members: ClassVar[frozenset[str]]
    stored: ClassVar[bool]
    logprobs: ClassVar[bool]
    ping: ClassVar[bytes]

    def read(self, body: Json) -> Turn:
        """Read a request; raises `UsageError` if it is not valid on this wire."""
        ...

    def conversation(self, body: Json) -> list[tuple[str, str]]:
        """Role and text of each turn of a request, its system prompt first."""
        ...

    def hides(self, body: Json) -> bool:
        """Whether a request asks for reasoning, which hosted models write first and hide."""
        ...

    def counted(self, body: Json) -> dict[str, Any]:
        """Members that a streamed request must have so that its answer ends with token counts."""
        ...

    def key_headers(self, key: str | None) -> dict[str, str]:
        """The headers that carry the key, and those without which a request is refused."""
        ...

    def piece(self, event: Json) -> Piece:
        """The meaning of one event of a stream."""
        ...

    def show(self, event: Json, glimpse: Glimpse) -> None:
        """Add to a look what one event of a stream shows."""
        ...

    def assembly(self) -> Assembly:
        """A new assembly of a whole answer from its stream."""
        ...

    def speech(self) -> Speech:
        """A new writer of one answer: the numbering of Responses events is its own."""
        ...

    def error(self, status: int, message: str, code: str) -> dict[str, Any]:
        """An error in the format of this wire."""
        ...

    def failure(self, message: str) -> list[tuple[str | None, dict[str, Any]]]:
        """The events that end a stream after a failure, each with its event name."""
        ...


def turn_of(body: Json, texts: Spoken, *, wants_usage: bool = True) -> Turn:
    """The `Turn` of a request.

    The largest of the token limits counts, and the largest number of answers, whichever wire they belong to:
    members are passed on, and only the provider knows which of them it heeds. Raises `UsageError` for a
    model, flag, limit or number of the wrong kind.
    """
    parts = [part for part in parts_in(texts.items) if string(part.get("type")) in PARTS]
    media = [PARTS[str(part["type"])] for part in parts]
    asked = {
        "tools": bool(body.get("tools") or body.get("functions")),
        "json_schema": mapping(texts.shape).get("type") == "json_schema",
        "logprobs": bool(body.get("logprobs")),
    }
    return Turn(
        model=text_of(body, "model"),
        stream=flag_of(body, "stream"),
        prompt=texts.users[-1] if texts.users else "",
        system="\n".join(texts.system),
        first=texts.users[0] if texts.users else "",
        continues=texts.continues or texts.previous is not None,
        needs=frozenset({*media} | {ability for ability, wanted in asked.items() if wanted}),
        parameters=frozenset(body),
        max_output=count_of(body, *TOKEN_LIMITS, most=MOST_TOKENS),
        answers=count_of(body, *COPIES, most=MOST_COPIES) or 1,
        media=len(media),
        wants_usage=wants_usage,
        previous=texts.previous,
        cache_key=string(body.get("prompt_cache_key")),
        metadata=mapping(body.get("metadata")),
        background=any(body.get(name) for name in LATER),
        loops=loops(texts.items),
        locked=any(locked(item) for item in texts.items),
        demand=demand_of(body),
        thinking=_thinking(body),
        carried=sum(map(_data_of, parts)),
        predicted=_bytes_of(body.get("prediction")),
    )


def _thinking(body: Json) -> int:
    """The largest limit of the tokens of reasoning that a request states; 0 without one."""
    limits = {f"{name}.{part}": mapping(body.get(name)).get(part) or 0 for name, part in THINKING.items()}
    for member, limit in limits.items():
        if not isinstance(limit, int) or isinstance(limit, bool) or not 0 <= limit <= MOST_TOKENS:
            raise wrong(member, f"a whole number up to {MOST_TOKENS:,}", limit)
    return max(limits.values())


def loops(items: list[Json]) -> bool:
    """Whether the last message or input item is the result of a tool call."""
    last = items[-1] if items else {}
    return (
        last.get("role") in ("tool", "function")
        or str(last.get("type")).endswith("_output")
        or "tool_result" in kinds_in([last])
    )


def locked(item: Json) -> bool:
    """Whether a message or input item can be read only by the provider that wrote it.

    That is encrypted reasoning and references to stored items (Responses), and signed or redacted thinking
    (Messages).
    """
    parts = objects(item.get("content"))
    return (
        bool(item.get("encrypted_content"))
        or item.get("type") == "item_reference"
        or any(part.get("signature") or part.get("type") == "redacted_thinking" for part in parts)
    )


def messages_of(body: Json) -> list[Json]:
    """The messages of a request; raises `UsageError` if there are none."""
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise wrong("messages", "a list of messages that is not empty", messages)
    return list(objects(messages))


def parts_in(items: list[Json]) -> list[Json]:
    """All content parts, also those in the results of tools."""
    parts = [part for item in items for part in (*objects(item.get("content")), *_output_of(item))]
    return parts + [inner for part in parts for inner in objects(part.get("content"))]


def kinds_in(items: list[Json]) -> list[str | None]:
    """The types of all content parts, also of those in the results of tools; None where there is no type."""
    return [string(part.get("type")) for part in parts_in(items)]


DATA = ("image_url", "image", "source", "input_audio", "file", "file_data")
"""Members of an image, a sound or a file that hold its data or its address."""


def _data_of(part: Json) -> int:
    """The characters of the data or the address of an image, a sound or a file.

    >>> _data_of({"type": "image_url", "image_url": {"url": "http://a/b.png"}, "text": "not counted"})
    14
    """
    held = [part[member] for member in DATA if member in part]
    texts = [text for value in held for text in (value, *mapping(value).values()) if isinstance(text, str)]
    return max(map(len, texts), default=0)


def _bytes_of(value: object) -> int:
    """The bytes of all texts in a JSON value, without recursion."""
    waiting, size = [value], 0
    while waiting:
        part = waiting.pop()
        if isinstance(part, str):
            size += len(part.encode())
        elif isinstance(part, list):
            waiting += part
        else:
            waiting += mapping(part).values()
    return size


def _output_of(item: Json) -> list[Json]:
    """The parts of the result of a tool in an input item of the Responses wire."""
    output = item.get("output")
    return [output] if isinstance(output, Mapping) else list(objects(output))


def texts_of(items: list[Json], roles: tuple[str, ...], kinds: tuple[str, ...] = ("text",)) -> list[str]:
    """The texts of the items of these roles; `kinds` are the types of content parts that hold text."""
    return [spoken(item.get("content"), kinds) for item in items if item.get("role") in roles]


def turns_of(items: object) -> list[tuple[str, str]]:
    """Role and text of each message or input item that has text; a plain text is one of the user's."""
    if isinstance(items, str):
        return [("user", items)]
    texts = [(str(item.get("role")), spoken(item.get("content"), TEXTS)) for item in objects(items)]
    return [("system" if role == "developer" else role[:20], text) for role, text in texts if text]


def with_system(system: str | None, turns: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """The turns of a conversation after its system prompt, if it has one."""
    return [("system", system), *turns] if system else turns


def openai_error(status: int, message: str, code: str) -> dict[str, Any]:
    """An error in OpenAI's format."""
    kind = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}.get(
        status, "invalid_request_error" if status < 500 else "server_error"
    )
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}
