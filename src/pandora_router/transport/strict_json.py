"""JSON from a server, with limited depth and limited numbers, and one kind of failure.

The standard parser recurses once per level and converts integers of any length, so a reply of a few kilobytes
can exhaust the stack or take minutes. Both are refused here in advance.
"""

from __future__ import annotations

import json
import re
from itertools import accumulate
from typing import Any

from pandora_router.transport.failures import Failed

DEEPEST = 64
MOST_DIGITS = 40
_ESCAPED = re.compile(rb"\\.", re.DOTALL)
_QUOTED = re.compile(rb'"[^"]*"?')
_OTHER = bytes(set(range(256)) - set(b'[]{}"'))
_STEP = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}


def too_deep(raw: bytes, deepest: int = DEEPEST) -> bool:
    """Whether arrays and objects in the JSON text `raw` are nested deeper than `deepest`.

    Brackets inside strings do not count.

    >>> too_deep(b'{"a": [1, "[[["]}', 2), too_deep(b'{"a": [[1]]}', 2)
    (False, True)
    """
    if raw.count(b"[") + raw.count(b"{") <= deepest:
        return False
    plain = _ESCAPED.sub(b"", raw) if b"\\" in raw else raw
    brackets = _QUOTED.sub(b"", plain.translate(None, _OTHER))
    return max(accumulate(_STEP[bracket] for bracket in brackets), default=0) > deepest


class _TooManyDigits(ValueError):
    """An integer with so many digits that its conversion would take long."""


def _integer(digits: str) -> int:
    if len(digits) > MOST_DIGITS:
        raise _TooManyDigits
    return int(digits)


def parse(raw: bytes, what: str) -> dict[str, Any]:
    """The JSON object in `raw`; `what` names the reply in error messages.

    Numbers beyond the range of a float become infinite and NaN stays NaN, so callers must check numbers.
    Raises `Failed`: "invalid reply" for nesting deeper than 64 or integers of more than 40 digits, "broken
    json" for anything else that is not one JSON object in UTF-8.
    """
    if too_deep(raw):
        raise Failed(f"{what} is nested too deeply", "invalid reply", again=False, charged=True)
    try:
        parsed = json.loads(raw.decode("utf-8"), parse_int=_integer)
    except _TooManyDigits:
        why = f"{what} holds an integer of more than {MOST_DIGITS} digits"
        raise Failed(why, "invalid reply", again=False, charged=True) from None
    except (ValueError, RecursionError):
        parsed = None
    if not isinstance(parsed, dict):
        raise Failed(f"{what} is no JSON object", "broken json", again=True, charged=True)
    return parsed
