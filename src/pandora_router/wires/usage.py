"""Token counts of an answer, in disjoint buckets, read by the names that providers use.

OpenAI's input tokens include cached ones, Anthropic's do not.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from pandora_router.wires.json_text import Json, mapping

LARGEST_COUNT = 10**12
"""Tokens above which a provider's count is cut off."""
LONGEST_COUNT = 40
"""Characters of a count that is written as a text."""


@dataclass(frozen=True)
class Usage:
    """Token counts of one call in disjoint buckets: input = fresh + cached + written to the cache."""

    fresh: int = 0
    cached: int = 0
    written: int = 0
    output: int = 0
    reasoning: int = 0
    complete: bool = True
    """Whether the provider reported the counts; if not, the larger of measured and estimated cost is used."""


def tokens_of(counts: object, member: str) -> int | None:
    """A token count of a provider, also one written as 12.0 or "12"; None if it is missing or anything else.

    A count above `LARGEST_COUNT` is returned as that: nobody can have read or written so much.

    >>> [tokens_of({"n": n}, "n") for n in (3, 3.0, "3", 3.5, "many", None, True, -1)]
    [3, 3, 3, None, None, None, None, None]
    """
    value = counts.get(member) if isinstance(counts, Mapping) else None
    if isinstance(value, str):
        try:
            value = float(value) if len(value) <= LONGEST_COUNT else None
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        return None
    return min(int(value), LARGEST_COUNT) if value == int(value) else None


def usage_of(answer: Json) -> Usage | None:
    """The token counts of an answer or an event, by the names it uses, whichever wire it came on.

    None if it has no object `usage`. If the tokens read or written are not stated in a form that is
    understood, the counts are not `complete` and hold 0 for what is missing; that nothing was read is no such
    form: some servers send zeros in place of counts. OpenAI's input includes tokens read from and written to
    a cache, Anthropic's does not. Tokens of the total that neither of the two counts includes are reasoning
    that was written too: some providers leave it out of the count of the answer.

    >>> usage_of({"usage": {"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 18}})
    Usage(fresh=9, cached=0, written=0, output=9, reasoning=0, complete=True)
    """
    counts = answer.get("usage")
    if not isinstance(counts, Mapping):
        return None
    read = _name(counts, "prompt_tokens", "input_tokens")
    wrote = _name(counts, "completion_tokens", "output_tokens")
    whole, output, total = (tokens_of(counts, name) for name in (read, wrote, "total_tokens"))
    details = (_details(counts, name) for name in ("completion_tokens", "output_tokens"))
    thought = max(tokens_of(detail, "reasoning_tokens") or 0 for detail in details)
    cached, stored = _cache(counts, read)
    beside = read == "input_tokens" and "cached_tokens" not in _details(counts, read)  # as Anthropic counts
    if whole is not None and (beside or cached + stored > whole):
        whole += cached + stored
    whole = whole or None
    if total is not None:
        if whole is None and output is not None:
            whole = total - output if total > output else None
        elif whole is not None and total > whole:
            output = max(total - whole, output or 0)
    elif output is not None and thought > output:
        output += thought
    complete = whole is not None and output is not None
    output = max(output or 0, 0 if complete else thought)
    fresh = max((whole or 0) - cached - stored, 0)
    return Usage(fresh, cached, stored, output, thought, complete)


def _details(counts: Json, name: str) -> Json:
    return mapping(counts.get(f"{name}_details"))


def _name(counts: Json, *names: str) -> str:
    """The first of these names with a count above 0, else the first that is there, else the last."""
    given = [name for name in names if name in counts]
    return next((name for name in given if tokens_of(counts, name)), next(iter(given), names[-1]))


def _cache(counts: Json, read: str) -> tuple[int, int]:
    """The input tokens that were read from a cache, and written to one."""
    details = _details(counts, read)
    cached = tokens_of(details, "cached_tokens"), tokens_of(counts, "cache_read_input_tokens")
    names = ("cache_write_tokens", "cache_creation_tokens")
    stored = *(tokens_of(details, name) for name in names), tokens_of(counts, "cache_creation_input_tokens")
    return max(count or 0 for count in cached), max(count or 0 for count in stored)
