"""Remove log-probabilities that only a look requested from the events sent to the client.

The value of the member `logprobs` is replaced by null, as providers send it when it is not requested; every
other byte of an event stays the same.
"""

from __future__ import annotations

import re

_KEY = re.compile(rb'(?<!\\)"logprobs"\s*:\s*(?=\{)')
_STEP = re.compile(rb'"(?:[^"\\]|\\.)*"|[{}]')


def without_chances(frame: bytes) -> bytes:
    r"""The event with null in place of each object `logprobs`.

    >>> without_chances(b'data: {"logprobs": {"content": [{"token": "}"}]}, "index": 0}\n\n')
    b'data: {"logprobs": null, "index": 0}\n\n'
    """
    parts: list[bytes] = []
    start = 0
    while (key := _KEY.search(frame, start)) is not None:
        end = closing(frame, key.end())
        if end is None:
            break
        parts += [frame[start : key.end()], b"null"]
        start = end
    return b"".join([*parts, frame[start:]]) if parts else frame


def closing(data: bytes, start: int) -> int | None:
    """The position after the object that begins at `start`; None if it does not end in `data`."""
    depth = 0
    for step in _STEP.finditer(data, start):
        mark = step.group()
        depth += (mark == b"{") - (mark == b"}")
        if depth == 0:
            return step.end()
    return None
