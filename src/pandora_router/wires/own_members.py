"""Members that a specialist's requests always have, and the effort in the words of each wire.

A member of its own replaces that of the client under every name that a server may read as it, so that a
client can neither undo nor hide what the specialist was fitted and priced with.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pandora_router.wires.json_text import folded, mapping
from pandora_router.wires.wire import Name

EFFORT = "reasoning_effort"
"""The effort of a reasoning model, as chat completions name it."""
OTHER_EFFORTS: Mapping[str, tuple[str, ...]] = {
    "reasoning": ("effort", "max_tokens", "enabled"),
    "output_config": ("effort",),
    "thinking": ("budget_tokens",),
    EFFORT: (),
}
"""Members with which a request can state an effort, and the parts of them that do; without parts, it all."""


def on_wire(name: Name, members: Mapping[str, Any]) -> dict[str, Any]:
    """The members as a request of the wire `name` has them: the effort is named differently on each.

    >>> on_wire("messages", {"reasoning_effort": "low", "top_p": 0.9})
    {'top_p': 0.9, 'output_config': {'effort': 'low'}}
    """
    if EFFORT not in members or name == "chat":
        return dict(members)
    others = {member: value for member, value in members.items() if member != EFFORT}
    place = "reasoning" if name == "responses" else "output_config"
    return {**others, place: {**mapping(others.get(place)), "effort": members[EFFORT]}}


def with_own(body: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """The request with members of the specialist's `own`, which replace the client's; objects are merged.

    >>> with_own({"reasoning": {"effort": "high", "summary": "auto"}}, {"reasoning": {"effort": "low"}})
    {'reasoning': {'summary': 'auto', 'effort': 'low'}}
    >>> with_own({"reasoning": {"effort": "high"}, "n": 1}, {"reasoning_effort": "low"})
    {'n': 1, 'reasoning_effort': 'low'}
    """
    names = {folded(name) for name in own}
    kept = {name: value for name, value in body.items() if folded(name) not in names or name in own}
    if _states_effort(own):
        kept = _without_effort(kept)
    for name, value in own.items():
        before = kept.get(name)
        if isinstance(value, Mapping) and isinstance(before, Mapping):
            inner = {folded(part) for part in value}
            value = {part: old for part, old in before.items() if folded(part) not in inner} | dict(value)
        kept[name] = value
    return kept


def _states_effort(own: Mapping[str, Any]) -> bool:
    return any(name in own and (not parts or _has(own[name], parts)) for name, parts in OTHER_EFFORTS.items())


def _has(value: object, parts: tuple[str, ...]) -> bool:
    return not mapping(value).keys().isdisjoint(parts)


def _others(value: object, parts: tuple[str, ...]) -> dict[str, Any]:
    return {part: old for part, old in mapping(value).items() if part not in parts}


def _without_effort(body: Mapping[str, Any]) -> dict[str, Any]:
    """The request without the effort that a client asks for, however it says so."""
    kept: dict[str, Any] = {}
    for name, value in body.items():
        parts = OTHER_EFFORTS.get(name)
        if parts is None or (parts and not _has(value, parts)):
            kept[name] = value
        elif name != "thinking":  # without its budget it would be refused
            kept |= {name: left} if (left := _others(value, parts)) else {}
    return kept
