"""What an answer is billed for: token counts in disjoint buckets, tier, tool calls, by providers' names.

OpenAI's input tokens include cached ones, Anthropic's do not.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from pandora_router.wires.demand import ANY, CLIENT_TOOLS, Demand, named, tool_name
from pandora_router.wires.json_text import Json, mapping, objects

LARGEST_COUNT = 10**12
"""Tokens above which a provider's count is cut off."""
MOST_TOOLS = 20
"""Different tools whose calls are read of one answer."""
LONGEST_COUNT = 40
"""Characters of a count that is written as a text."""


@dataclass(frozen=True)
class Usage:
    """Token counts of one call in disjoint buckets: input = fresh + cached + written to the cache.

    complete: whether the provider reported the counts; if not, the larger of measured and estimated cost is
    used. Parts of the buckets: `written_hour` of written, `audio_in` and `image_in` of fresh, `reasoning`,
    `audio_out` and `image_out` of output. service_tier, speed: in which the call was served, "" for the usual
    ones, None if that is not stated. tools: calls of tools of the provider, by name.
    """

    fresh: int = 0
    cached: int = 0
    written: int = 0
    output: int = 0
    reasoning: int = 0
    complete: bool = True
    written_hour: int = 0
    audio_in: int = 0
    image_in: int = 0
    audio_out: int = 0
    image_out: int = 0
    service_tier: str | None = None
    speed: str | None = None
    tools: tuple[tuple[str, int], ...] = ()

    @property
    def read(self) -> int:
        """All tokens of the input."""
        return self.fresh + self.cached + self.written

    @property
    def demand(self) -> Demand:
        """What is billed beside plain tokens."""
        counts = {
            "cached_write_hour": self.written_hour,
            "cached_write": self.written - self.written_hour,
            "cached_in": self.cached,
            "audio_in": self.audio_in,
            "image_in": self.image_in,
            "audio_out": self.audio_out,
            "image_out": self.image_out,
        }
        parts = frozenset(name for name, count in counts.items() if count > 0)
        return Demand(self.service_tier or "", self.speed or "", parts, self.tools)

    def after(self, before: Usage) -> Usage:
        """These counts of a later event of a stream; what they do not say is kept from `before`."""
        kept = replace(
            self,
            written_hour=self.written_hour or before.written_hour,
            audio_in=self.audio_in or before.audio_in,
            image_in=self.image_in or before.image_in,
            audio_out=self.audio_out or before.audio_out,
            image_out=self.image_out or before.image_out,
            service_tier=before.service_tier if self.service_tier is None else self.service_tier,
            speed=before.speed if self.speed is None else self.speed,
            tools=self.tools or before.tools,
        )
        if self.complete:
            return kept
        fresh, cached = self.fresh or before.fresh, self.cached or before.cached
        written, output = self.written or before.written, self.output or before.output
        complete = fresh + cached + written > 0 and self.output > 0
        return replace(kept, fresh=fresh, cached=cached, written=written, output=output, complete=complete)


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

    >>> usage = usage_of({"usage": {"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 18}})
    >>> usage == Usage(fresh=9, cached=0, written=0, output=9)
    True
    """
    counts = answer.get("usage")
    if not isinstance(counts, Mapping):
        return None
    counts = _with_steps(counts)
    read = _name(counts, "prompt_tokens", "input_tokens")
    wrote = _name(counts, "completion_tokens", "output_tokens")
    whole, output, total = (tokens_of(counts, name) for name in (read, wrote, "total_tokens"))
    details = (_details(counts, name) for name in ("completion_tokens", "output_tokens"))
    thought = max(tokens_of(detail, "reasoning_tokens") or 0 for detail in details)
    cached, stored = _cache(counts, read)
    said = {*_details(counts, read), *counts}
    beside = read == "input_tokens" and "cached_tokens" not in said  # as Anthropic counts
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
    return _beside(Usage(fresh, cached, stored, output, thought, complete), answer, counts, read, wrote)


STEPPED = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "output_tokens")
"""Counts of a step, by Anthropic's names."""


def _with_steps(counts: Json) -> Json:
    """The counts with all steps of the call: Anthropic states those of a summary apart from the others.

    >>> step = {"type": "compaction", "input_tokens": 90, "output_tokens": 5}
    >>> last = {"type": "message", "input_tokens": 9, "output_tokens": 2}
    >>> _with_steps({"input_tokens": 9, "output_tokens": 2, "iterations": [step, last]})["input_tokens"]
    99
    """
    steps = list(objects(counts.get("iterations")))
    if all(step.get("type", "message") == "message" for step in steps):
        return counts
    whole = dict(counts)
    for name in STEPPED:
        stated = [tokens_of(step, name) or 0 for step in steps]
        whole[name] = max(sum(stated), tokens_of(counts, name) or 0)
    return whole


def _beside(usage: Usage, answer: Json, counts: Json, read: str, wrote: str) -> Usage:
    """The counts with what is billed beside plain tokens."""
    came, went = _details(counts, read), _details(counts, wrote)
    hour = tokens_of(counts.get("cache_creation"), "ephemeral_1h_input_tokens")
    return replace(
        usage,
        written_hour=min(hour or 0, usage.written),
        audio_in=min(tokens_of(came, "audio_tokens") or 0, usage.fresh),
        image_in=min(tokens_of(came, "image_tokens") or 0, usage.fresh),
        audio_out=min(tokens_of(went, "audio_tokens") or 0, usage.output),
        image_out=min(tokens_of(went, "image_tokens") or 0, usage.output),
        service_tier=_tier(counts.get("service_tier") or answer.get("service_tier")),
        speed=_tier(counts.get("speed")),
        tools=_tool_calls(answer, counts),
    )


def _tier(stated: object) -> str | None:
    """The name of the tier in which a call was served; that it is `auto` says nothing."""
    return named(stated) if isinstance(stated, str) and stated != ANY else None


def _tool_calls(answer: Json, counts: Json) -> tuple[tuple[str, int], ...]:
    """The calls of tools of the provider: counted, or the items of a response that are such calls.

    >>> usage_of({"usage": {"server_tool_use": {"web_search_requests": 2}}}).tools
    (('web_search', 2),)
    """
    stated = {**mapping(counts.get("server_tool_use")), "web_search": counts.get("num_search_queries")}
    calls: dict[str, int] = {}
    for member in stated:
        name = member.removesuffix("_requests")
        calls[name] = max(calls.get(name, 0), tokens_of(stated, member) or 0)
    for item in objects(answer.get("output")):
        name, _, is_call = str(item.get("type")).rpartition("_")
        if is_call == "call" and name not in CLIENT_TOOLS:
            calls[tool_name(name)] = calls.get(tool_name(name), 0) + 1
    return tuple((name, count) for name, count in calls.items() if count)[:MOST_TOOLS]


def _details(counts: Json, name: str) -> Json:
    return mapping(counts.get(f"{name}_details"))


def _name(counts: Json, *names: str) -> str:
    """The first of these names with a count above 0, else the first that is there, else the last."""
    given = [name for name in names if name in counts]
    return next((name for name in given if tokens_of(counts, name)), next(iter(given), names[-1]))


def _cache(counts: Json, read: str) -> tuple[int, int]:
    """The input tokens that were read from a cache, and written to one.

    Some providers state those that were read beside their other counts (Moonshot, DeepSeek).
    """
    details = _details(counts, read)
    beside = ("cache_read_input_tokens", "cached_tokens", "prompt_cache_hit_tokens")
    cached = tokens_of(details, "cached_tokens"), *(tokens_of(counts, name) for name in beside)
    names = ("cache_write_tokens", "cache_creation_tokens")
    stored = *(tokens_of(details, name) for name in names), tokens_of(counts, "cache_creation_input_tokens")
    made = mapping(counts.get("cache_creation"))
    split = sum(tokens_of(made, name) or 0 for name in made)
    return max(count or 0 for count in cached), max(split, *(count or 0 for count in stored))
