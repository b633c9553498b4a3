"""Whether a request itself limits what it can cost, so that a provider that claims more is not believed.

That holds if the input is in the request (no image, sound, file or earlier response, whose tokens are not
known), no tool runs at the provider, the tokens of the answer are limited, and no member is there that may
have a limit of its own, as `n_predict` has for llama.cpp. Otherwise a client could ask for much and be
charged for little.

Servers written in Go read the names of members in any case, and with the Kelvin sign for k or the long s for
s; those that stand on protocol buffers read `maxTokens` as `max_tokens`. What is read here under one name and
there under another would not be the request that was admitted and charged, so such names are refused.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping
from typing import Any

from pandora_router.transport.asgi import Refused
from pandora_router.wires.json_read import Json, objects
from pandora_router.wires.known import WIRES
from pandora_router.wires.usage import Usage
from pandora_router.wires.wire import COPIES, TOKEN_LIMITS, Turn, Wire

POSSIBLE = 10**7
"""Tokens above which no provider is believed to have read or written them in one call."""
OWN_TOOLS = (None, "function", "custom")
"""Types of tools that the client runs."""


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
    """The name as servers may compare it: without case, compatible characters as one, no underscores.

    >>> folded("Max_To\N{KELVIN SIGN}en\N{LATIN SMALL LETTER LONG S}"), folded("maxTokens")
    ('maxtokens', 'maxtokens')
    """
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
        "previous_response_id", "background", "prompt", "conversation", "service_tier", "max_tool_calls",
        "mcp_servers", "container", "dimensions", "encoding_format", "include",
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


def refuse_unfollowed(turn: Turn, left: int | None) -> None:
    """Raise `Refused` (400) for an answer in the background if a key has a budget, of which `left` is left.

    Such an answer is written, and billed, after the only reply that the gateway sees.
    """
    if turn.background and left is not None:
        why = (
            "an answer in the background is billed after its reply, so a key with a budget cannot ask for it"
        )
        raise Refused(400, f"background: {why}. Leave it out, or set it to false.", "invalid_request")
