"""Change a member of a JSON object without rewriting the rest.

A client's other bytes are passed on unchanged: number formats, key order and unknown members. If the member
cannot be located safely in the bytes, the object is serialised again, with the same values.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pandora_router.errors import UsageError
from pandora_router.wires.json_read import dumped

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
