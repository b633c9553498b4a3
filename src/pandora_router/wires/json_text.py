"""JSON of requests and answers: read and check members, change one member without rewriting the rest.

When a member is changed, the client's other bytes are passed on unchanged: number formats, key order and
unknown members. If the member cannot be located safely in the bytes, the object is serialised again, with the
same values. orjson is imported by what uses it: the library reads chat completions without it.
"""

from __future__ import annotations

import re
import unicodedata
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


def folded(name: str) -> str:
    """The name as servers may compare it: without case, compatible characters as one, no underscores, and
    nothing from a zero byte on.

    >>> folded("Max_To\N{KELVIN SIGN}en\N{LATIN SMALL LETTER LONG S}"), folded("maxTokens")
    ('maxtokens', 'maxtokens')
    """
    name = name.partition("\0")[0]
    plain = name if name.isascii() else unicodedata.normalize("NFKC", name)
    return plain.casefold().replace("_", "")


_MODEL = re.compile(rb'"model"\s*:\s*"(?:[^"\\]|\\.)*"')
_STEP = re.compile(rb'"(?:[^"\\]|\\.)*"|[{}]')
_ESCAPED = re.compile(rb"\\u00(?:[4-7]|22)")
"""A letter or a quotation mark that is written as an escape, which no serialiser does."""


def unambiguous(body: bytes, parsed: Mapping[str, Any]) -> bytes:
    """The object with each member once, at any depth: serialised again if one is there twice.

    The last of two members of the same name counts here, but at some servers the first, which then would not
    be the request that was admitted and charged. Without the quotation marks of a member that was dropped,
    the object has fewer of them than the body. A name can also be hidden by escaping its letters. Raises
    `UsageError` if the object is nested too deeply to be serialised.

    >>> unambiguous(b'{"n": 9, "n": 1}', {"n": 1}), unambiguous(b'{"n": 1.0}', {"n": 1.0})
    (b'{"n":1}', b'{"n": 1.0}')
    """
    try:
        written = dumped(parsed)
    except TypeError:
        raise UsageError(
            "the body", expected="JSON that is nested at most 254 deep", came="more", do="Flatten it."
        ) from None
    hidden = b"\\u00" in body and _ESCAPED.search(body) is not None
    return written if hidden or written.count(b'"') != body.count(b'"') else body


def with_model(body: bytes, parsed: Mapping[str, Any], model: str) -> bytes:
    """The object with its top-level member `model` set to `model`.

    >>> with_model(b'{"model": "auto", "n": 1.0}', {"model": "auto", "n": 1.0}, "small")
    b'{"model":"small", "n": 1.0}'
    """
    if parsed.get("model") == model:
        return body
    member = b'"model":' + dumped(model)
    if body.count(b'"model"') == 1:
        changed, count = _MODEL.subn(lambda _: member, body, count=1)
        if count == 1:
            return changed
    return dumped({**parsed, "model": model})


def with_member(body: bytes, parsed: Mapping[str, Any], name: str, value: Any) -> bytes:
    """The object with a member `name` that it did not have, put first; an existing one is replaced.

    >>> with_member(b'{"n": 1.0}', {"n": 1.0}, "stream", True)
    b'{"stream":true,"n": 1.0}'
    """
    if name in parsed:
        return dumped({**parsed, name: value})
    start = body.index(b"{") + 1
    more = b"," if parsed else b""
    return body[:start] + dumped(name) + b":" + dumped(value) + more + body[start:]


def closing(data: bytes, start: int) -> int | None:
    """The position after the object that begins at `start`; None if it does not end in `data`."""
    depth = 0
    for step in _STEP.finditer(data, start):
        mark = step.group()
        depth += (mark == b"{") - (mark == b"}")
        if depth == 0:
            return step.end()
    return None
