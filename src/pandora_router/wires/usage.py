"""Token counts of an answer, in disjoint buckets, read by the names that providers use.

OpenAI's input tokens include cached ones, Anthropic's do not.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from pandora_router.wires.json_read import Json

LARGEST_COUNT = 10**12
"""Tokens above which a provider's count is cut off."""


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
            value = float(value[:40])
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        return None
    return min(int(value), LARGEST_COUNT) if value == int(value) else None


def usage_of(answer: Json) -> Usage | None:
    """The token counts of an answer or an event, by the names it uses, whichever wire it came on.

    None if it has no object `usage`. If the tokens read or written are not stated in a form that is
    understood, the counts are not `complete` and hold 0 for what is missing. OpenAI's input includes cached
    tokens, Anthropic's does not. Tokens of the total that neither of the two counts includes are reasoning
    that was written too: some providers leave it out of the count of the answer.

    >>> usage_of({"usage": {"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 18}})
    Usage(fresh=9, cached=0, written=0, output=9, reasoning=0, complete=True)
    """
    counts = answer.get("usage")
    if not isinstance(counts, Mapping):
        return None
    read = "prompt_tokens" if "prompt_tokens" in counts else "input_tokens"
    wrote = "completion_tokens" if "completion_tokens" in counts else "output_tokens"
    whole, output, total = (tokens_of(counts, name) for name in (read, wrote, "total_tokens"))
    reasoning = tokens_of(counts.get(f"{wrote}_details"), "reasoning_tokens") or 0
    cached, stored = (tokens_of(counts, f"cache_{kind}_input_tokens") for kind in ("read", "creation"))
    if read == "input_tokens" and not (cached is None and stored is None):  # Anthropic's, beside the input
        complete = whole is not None and output is not None
        return Usage(whole or 0, cached or 0, stored or 0, output or 0, reasoning, complete)
    if total is not None:
        whole = max(total - output, 0) if whole is None and output is not None else whole
        output = output if whole is None else max(total - whole, output or 0)
    elif output is not None and reasoning > output:
        output += reasoning
    complete = whole is not None and output is not None
    whole = whole or 0
    cached = min(tokens_of(counts.get(f"{read}_details"), "cached_tokens") or 0, whole)
    return Usage(whole - cached, cached, 0, output or 0, reasoning, complete)
