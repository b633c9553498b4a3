"""Whether a request itself limits what it can cost, so that a provider that claims more is not believed.

That holds if the input is in the request (no image, sound, file or earlier response, whose tokens are not
known), no tool runs at the provider, the tokens of the answer are limited, and no member is there that may
have a limit of its own, as `n_predict` has for llama.cpp. Otherwise a client could ask for much and be
charged for little.

Servers written in Go read the names of members in any case, and with the Kelvin sign for k or the long s for
s; those that stand on protocol buffers read `maxTokens` as `max_tokens`. What is read here under one name and
there under another would not be the request that was admitted and charged, so such names are refused. Those
written in C may end a name at a zero byte.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping
from typing import Any

from pandora_router.transport.asgi import Refused
from pandora_router.wires.json_text import Json, objects
from pandora_router.wires.known import WIRES
from pandora_router.wires.usage import Usage
from pandora_router.wires.wire import COPIES, LATER, TOKEN_LIMITS, Turn, Wire

POSSIBLE = 10**7
"""Tokens above which no provider is believed to have read or written them in one call."""
OWN_TOOLS = (None, "function", "custom")
"""Types of tools that the client runs."""
OTHER_MODELS = ("models", "fallbacks")
"""Members with which a proxy lets models answer that `model` does not name."""
PRICED = {
    "service_tier": (None, "auto", "default", "standard", "standard_only", "flex", "on_demand"),
    "speed": (None, "standard"),
}
"""Members that change the price of a token, with the values for which it is no higher than the usual one."""


def bounded(wire: Wire, body: Json, turn: Turn) -> bool:
    """Whether the tokens of the request `body` are limited by its length and by `turn.max_output`."""
    return turn.max_output is not None and stated_input(wire, body, turn)


def stated_input(wire: Wire, body: Json, turn: Turn) -> bool:
    """Whether all input is text in the request `body`, so that it has at most one token per byte."""
    return (
        not turn.media
        and turn.previous is None
        and turn.parameters <= wire.members
        and all(tool.get("type") in OWN_TOOLS for tool in objects(body.get("tools")))
    )


def possible(usage: Usage) -> bool:
    """Whether a call can have had so many tokens, whatever was asked for."""
    return max(usage.fresh + usage.cached + usage.written, usage.output) <= POSSIBLE


def folded(name: str) -> str:
    """The name as servers may compare it: without case, compatible characters as one, no underscores, and
    nothing from a zero byte on.

    >>> folded("Max_To\N{KELVIN SIGN}en\N{LATIN SMALL LETTER LONG S}"), folded("maxTokens")
    ('maxtokens', 'maxtokens')
    """
    name = name.partition("\0")[0]
    plain = name if name.isascii() else unicodedata.normalize("NFKC", name)
    return plain.casefold().replace("_", "")


def _spellings(names: Iterable[str]) -> dict[str, str]:
    """The names, each also by its folded form."""
    return {folded(name): name for name in names} | {name: name for name in names}


LONGEST_NAME = 64
"""Characters of a name above which it is none that is known."""
_TOP = _spellings(
    {
        *frozenset[str]().union(*(wire.members for wire in WIRES), TOKEN_LIMITS, COPIES),
        "previous_response_id", "prompt", "conversation", "max_tool_calls",
        "mcp_servers", "container", "dimensions", "encoding_format", "include", *LATER, *OTHER_MODELS,
        *PRICED,
    }
)  # fmt: skip
_INSIDE: Mapping[str, Mapping[str, str]] = {
    "stream_options": _spellings(["include_usage", "include_obfuscation"]),
    "reasoning": _spellings(["effort", "summary", "max_tokens", "enabled", "exclude"]),
    "thinking": _spellings(["type", "budget_tokens"]),
    "text": _spellings(["format", "verbosity"]),
    "response_format": _spellings(["type", "json_schema"]),
}
_ITEM = _spellings(
    [
        "role", "content", "type", "text", "name", "id", "status", "image_url", "input_audio", "image",
        "file", "file_id", "file_url", "file_data", "source", "document", "function", "description",
        "parameters", "input_schema", "strict", "tool_calls", "tool_call_id", "tool_use_id", "call_id",
        "arguments", "input", "output", "cache_control", "is_error", "refusal", "reasoning_content",
        "thinking", "signature", "summary", "encrypted_content", "annotations", "detail", "max_uses",
    ]
)  # fmt: skip
"""Members of messages, input items, tools and parts of their content."""
_LISTS = ("messages", "input", "tools", "functions", "system")


def refuse_other_spellings(body: Json) -> None:
    """Raise `Refused` (400) for a member with a name that some servers read as another, known one.

    Looked at are all objects that decide what a request costs: the request itself, its options, messages,
    input items, tools, and the parts of their content, at any depth.
    """
    _refuse(body, _TOP, "")
    for member, names in _INSIDE.items():
        if isinstance(inner := body.get(member), dict):
            _refuse(inner, names, f"{member}.")
    waiting: list[tuple[str, Any]] = [(member, body.get(member)) for member in _LISTS]
    while waiting:
        where, items = waiting.pop()
        for item in items if isinstance(items, list) else ():
            if isinstance(item, dict):
                _refuse(item, _ITEM, f"{where}.")
                waiting += [(where, item[name]) for name in ("content", "output") if name in item]


def _refuse(members: Json, names: Mapping[str, str], where: str) -> None:
    for name in members:
        if names.get(name) == name or len(name) > LONGEST_NAME:
            continue
        known = names.get(folded(name))
        if known is not None:
            what = f"{where}{name}: some servers read this member as {known}."
            raise Refused(400, f"{what} Write {where}{known}, or leave it out.", "invalid_request")


def refuse_other_models(body: Json) -> None:
    """Raise `Refused` (400) for a member with which another model than `model` could answer."""
    for name in OTHER_MODELS:
        if body.get(name):
            why = "names models that may answer instead, whose prices are not known here"
            raise Refused(400, f"{name}: {why}. Leave it out; `model` says who answers.", "invalid_request")


def refuse_unpriced(body: Json, left: int | None) -> None:
    """Raise `Refused` (400) for what is not charged as it is billed, if a key has a budget (`left` of it).

    An answer in the background is written, and billed, after the only reply that the gateway sees. Some
    members change the price of every token.
    """
    if left is None:
        return
    for name in LATER:
        if body.get(name):
            why = "such an answer is billed after its reply, so a key with a budget cannot ask for it"
            raise Refused(400, f"{name}: {why}. Leave it out, or set it to false.", "invalid_request")
    for name, usual in PRICED.items():
        if body.get(name) not in usual:
            why = "this may be billed at higher prices, so a key with a budget cannot ask for it"
            raise Refused(400, f"{name}: {why}. Leave it out.", "invalid_request")
