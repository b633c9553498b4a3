"""A complete answer assembled from the pieces of its stream, for a client that did not request a stream.

Pieces are joined by the rules of the public references: texts are appended, list items with the same `index`
are merged, other members get the latest value. The same rules apply to unknown members.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from pandora_router.wires.events import DONE, data_of, parsed

NOT_JOINED = frozenset({"role", "id", "type", "object", "index", "finish_reason"})
"""Texts that are repeated, not continued, by later pieces."""


class Assembly(Protocol):
    """An answer in the process of assembly."""

    def add(self, data: bytes, event: dict[str, Any]) -> None:
        """Take one event, as bytes and parsed."""
        ...

    def body(self) -> bytes | None:
        """The answer as the provider would have sent it without a stream; None if it is incomplete."""
        ...


def assembled(assembly: Assembly, frames: Iterable[bytes]) -> bytes | None:
    """The whole answer in the events of a stream; None if its end is missing."""
    for frame in frames:
        data = data_of(frame)
        event = parsed(data) if data and data != DONE else None
        if event is not None:
            assembly.add(data, event)
    return assembly.body()


def joined(whole: dict[str, Any], piece: Mapping[str, Any]) -> None:
    """Add the members of `piece` to `whole`, in place; nested objects and indexed lists are joined alike.

    >>> whole = {"content": "Par"}
    >>> joined(whole, {"content": "is", "tool_calls": [{"index": 0, "id": "a"}]})
    >>> whole
    {'content': 'Paris', 'tool_calls': [{'index': 0, 'id': 'a'}]}
    """
    for name, value in piece.items():
        before = whole.get(name)
        if before is None or name in NOT_JOINED:
            whole[name] = _own(value) if value is not None else before
        elif isinstance(before, str) and isinstance(value, str):
            whole[name] = before + value
        elif isinstance(before, dict) and isinstance(value, dict):
            joined(before, value)
        elif isinstance(before, list) and isinstance(value, list):
            _joined_list(before, value)
        elif value is not None:
            whole[name] = value


def _own(value: Any) -> Any:
    """A copy of lists and objects, so that joining changes nothing of the event they came in."""
    if isinstance(value, dict):
        return {name: _own(part) for name, part in value.items()}
    return [_own(part) for part in value] if isinstance(value, list) else value


def _joined_list(before: list[Any], more: list[Any]) -> None:
    """Items with an `index` that is there already are joined with it, others appended."""
    places = {item.get("index"): item for item in before if isinstance(item, dict) and "index" in item}
    for item in more:
        known = places.get(item.get("index")) if isinstance(item, dict) and "index" in item else None
        if known is None:
            before.append(_own(item))
        else:
            joined(known, item)
