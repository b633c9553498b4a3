"""Read members of a JSON object from outside, and check their types; write JSON.

orjson is imported by what uses it: the library reads chat completions without it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pandora_router.errors import UsageError

Json = Mapping[str, Any]


def dumped(value: object) -> bytes:
    """A value as JSON."""
    import orjson

    return orjson.dumps(value)


def wrong(member: str, expected: str, came: object) -> UsageError:
    """The error for a member of another kind than `expected`."""
    kind = {str: "a text", bool: "true or false", dict: "an object", list: "a list", type(None): "null"}
    return UsageError(
        member, expected=expected, came=kind.get(type(came), "a number"), do="See the API's reference."
    )


def text_of(body: Json, member: str) -> str:
    """A member that must be a text and not empty."""
    value = body.get(member)
    if not isinstance(value, str) or not value:
        raise wrong(member, "a text that is not empty", value)
    return value


def flag_of(body: Json, member: str) -> bool:
    """A member that is true, false or left out (false)."""
    value = body.get(member)
    if value is None or isinstance(value, bool):
        return bool(value)
    raise wrong(member, "true or false", value)


def count_of(body: Json, *members: str, most: int) -> int | None:
    """The largest of these members, each a whole number from 1 to `most`; None if there is none.

    A server may know only one of two names for the same limit, so the larger one has to be expected.
    """
    counts: list[int] = []
    for member in members:
        value = body.get(member)
        if value is None:
            continue
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
            raise wrong(member, f"a whole number from 1 to {most:,}", value)
        counts.append(value)
    return max(counts, default=None)


def objects(value: object) -> Iterator[Json]:
    """The objects in a list; empty for anything else."""
    for member in value if isinstance(value, list) else ():
        if isinstance(member, Mapping):
            yield member


def spoken(content: object, kinds: tuple[str, ...]) -> str:
    """The text in a message's content, which is a text or a list of parts."""
    if isinstance(content, str):
        return content
    parts = (part.get("text") for part in objects(content) if part.get("type") in kinds)
    return "\n".join(part for part in parts if isinstance(part, str))


def mapping(value: object) -> Json:
    """The value if it is an object, else an empty one."""
    return value if isinstance(value, Mapping) else {}


def string(value: object) -> str | None:
    """The value if it is a text that is not empty, else None."""
    return value if isinstance(value, str) and value else None
