"""What a call may cost (`Quote`), and whether its request limits that itself.

If it does, a provider that claims more is not believed. It does if the input is in the request (no image,
sound, file or earlier response, whose tokens are not known), no tool runs at the provider, the tokens of the
answer are limited, and no member is there that may have a limit of its own, as `n_predict` has for llama.cpp.
Otherwise a client could ask for much and be charged for little.

Servers written in Go read the names of members in any case, and with the Kelvin sign for k or the long s for
s; those that stand on protocol buffers read `maxTokens` as `max_tokens`. What is read here under one name and
there under another would not be the request that was admitted and charged, so such names are refused. Those
written in C may end a name at a zero byte.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pandora_router.gateway.providers.backend import Backend
from pandora_router.prices import MARKERS, Lengths, expected_bill
from pandora_router.transport.asgi import Refused
from pandora_router.wires.demand import AWAY, ONCE, PLAIN, SERVERS, Demand
from pandora_router.wires.json_text import Json, folded, objects
from pandora_router.wires.known import WIRES
from pandora_router.wires.usage import Usage
from pandora_router.wires.wire import COPIES, LATER, TOKEN_LIMITS, Turn, Wire

logger = logging.getLogger("pandora_router.gateway")
POSSIBLE = 10**7
"""Tokens above which no provider is believed to have read or written them in one call."""
POSSIBLE_CALLS = 1000
"""Calls of one tool above which no provider is believed to have made them in one call of a model."""
OWN_TOOLS = (None, "function", "custom")
"""Types of tools that the client runs."""
OTHER_MODELS = ("models", "fallbacks")
"""Members with which a proxy lets models answer that `model` does not name."""
PRICED = ("service_tier", "speed")
"""Members that change the price of a token."""
ABOUT_PRICES = frozenset(
    {
        *PRICED,
        *AWAY,
        *ONCE,
        SERVERS,
        "modalities",
        "audio",
        "cache_control",
        "output_config",
        "max_tool_calls",
    }
)
"""Members that are priced and bounded by themselves, and limit no tokens of the answer."""


def stated_input(wire: Wire, body: Json, turn: Turn) -> bool:
    """Whether all input is text in the request `body`, so that it has at most one token per byte."""
    return (
        not turn.media
        and not turn.demand.away
        and turn.parameters <= wire.members
        and all(tool.get("type") in OWN_TOOLS for tool in objects(body.get("tools")))
    )


def possible(usage: Usage) -> bool:
    """Whether a call can have had so many tokens and calls of tools, whatever was asked for."""
    calls = max((count for _, count in usage.tools), default=0)
    return max(usage.read, usage.output) <= POSSIBLE and calls <= POSSIBLE_CALLS


@dataclass(frozen=True)
class Quote:
    """What one call to a specialist may cost; it need not be made.

    wire: the specialist's. size: the length of the request in bytes. most: the most tokens that it may write.
    lengths: of earlier calls. bounded: whether the request limits what it can cost; then a provider that
    claims more is not believed. prefix: the name of its system prompt (`prices.prefix_of`). stated: whether
    all input is in the request, so that its length tells how many tokens that is. demand: what is asked of
    the specialist beside plain tokens.
    """

    backend: Backend
    wire: Wire
    size: int
    most: int
    lengths: Lengths
    bounded: bool = False
    prefix: str = ""
    stated: bool = True
    demand: Demand = PLAIN

    @property
    def bound(self) -> int:
        """The most that the call can cost, in nanodollars, which is reserved for it."""
        return self.backend.bound(self.size, self.most, self.demand)

    @property
    def failed_case(self) -> int:
        """The most that the call costs if it fails before its first content: its prompt, in nanodollars."""
        return self.backend.bound(self.size, 0, self.demand)

    def expected(self, now: float, output: float | None = None) -> Usage:
        """The token counts expected of the call: of a whole answer, or with `output` tokens of it."""
        written = self.lengths.answer(self.most) if output is None else output
        plain = self.lengths.expected(self.size, self.wire.name, self.prefix, written, now)
        return expected_bill(plain, self.demand)

    def expected_cost(self, now: float) -> int:
        """The price of these counts, in nanodollars."""
        return self.backend.cost(self.expected(now))

    def charge(self, usage: Usage, reason: str, decision: str) -> tuple[int, Usage, str]:
        """What is charged for these counts, in nanodollars; with the counts and the reason to be recorded.

        An estimate never exceeds what was reserved, nor does a claim that cannot be true: then the bound is
        charged, the counts are cut to it, and a claim is reported in the log and in the reason. More calls of
        a tool than the request allows are not charged either.
        """
        bound = self.bound
        if (allowed := self._allowed_calls(usage.tools)) != usage.tools:
            claim = ", ".join(f"{count:,} calls of {name}" for name, count in usage.tools[:5])
            logger.warning(
                "%s claims %s, more than the request allows (decision %s)",
                *(self.backend.name, claim, decision),
            )
            usage = replace(usage, tools=allowed)
            reason = f"{reason} more calls were claimed than the request allows: {claim}".strip()
        if possible(usage):
            cost = self.backend.cost(usage)
            if cost <= bound or (usage.complete and not self.bounded):
                return cost, usage, reported(self.backend, usage, reason)
        most = self.size + MARKERS
        cut = replace(
            usage,
            fresh=min(usage.fresh, most),
            cached=min(usage.cached, most),
            written=min(usage.written, most),
            output=min(usage.output, self.most),
            complete=False,
        )
        if not usage.complete:
            return bound, cut, reason
        claim = f"{usage.read:,} tokens read and {usage.output:,} written"
        logger.warning(
            "%s claims %s in a call of %d bytes that allows %d tokens; its bound is charged (decision %s)",
            *(self.backend.name, claim, self.size, self.most, decision),
        )
        return bound, cut, f"{reason} more was claimed than the request allows: {claim}".strip()

    def _allowed_calls(self, calls: tuple[tuple[str, int], ...]) -> tuple[tuple[str, int], ...]:
        """The calls of tools, cut to what the request allows; at most `POSSIBLE_CALLS` without a limit."""
        limits = dict(self.demand.tools)
        return tuple((name, min(count, limits.get(name) or POSSIBLE_CALLS)) for name, count in calls)

    def learn(
        self, usage: Usage, seconds: float | None, now: float, first_token: float | None, events: int
    ) -> None:
        """Learn lengths and speeds from a complete answer (`Lengths.answered`)."""
        self.lengths.answered(
            usage,
            seconds,
            size=self.size,
            wire=self.wire.name,
            most=self.most,
            prefix=self.prefix,
            now=now,
            first_token=first_token,
            events=events,
            stated=self.stated,
        )


def _spellings(names: Iterable[str]) -> dict[str, str]:
    """The names, each also by its folded form."""
    return {folded(name): name for name in names} | {name: name for name in names}


LONGEST_NAME = 64
"""Characters of a name above which it is none that is known."""
_TOP = _spellings(
    {
        *frozenset[str]().union(*(wire.members for wire in WIRES), TOKEN_LIMITS, COPIES),
        *AWAY, SERVERS, "max_tool_calls", "container", "reasoning", "output_config", "thinking", "plugins",
        "modalities", *ONCE, "dimensions", "encoding_format", "include", *LATER, *OTHER_MODELS,
        *PRICED,
    }
)  # fmt: skip
_INSIDE: Mapping[str, Mapping[str, str]] = {
    "stream_options": _spellings(["include_usage", "include_obfuscation"]),
    "reasoning": _spellings(["effort", "summary", "max_tokens", "enabled", "exclude"]),
    "output_config": _spellings(["effort", "format"]),
    "thinking": _spellings(["type", "budget_tokens"]),
    "text": _spellings(["format", "verbosity"]),
    "response_format": _spellings(["type", "json_schema"]),
}
_ITEM = _spellings(
    [
        "role", "content", "type", "text", "name", "id", "status", "image_url", "input_audio", "image",
        "file", "file_id", "file_url", "file_data", "source", "document", "function", "description",
        "parameters", "input_schema", "strict", "tool_calls", "tool_call_id", "tool_use_id", "call_id",
        "arguments", "input", "output", "cache_control", "is_error", "refusal", "reasoning_content",
        "thinking", "signature", "summary", "encrypted_content", "annotations", "detail", "max_uses",
    ]
)  # fmt: skip
"""Members of messages, input items, tools and parts of their content."""
_LISTS = ("messages", "input", "tools", "functions", "system")


def refuse_other_spellings(body: Json) -> None:
    """Raise `Refused` (400) for a member with a name that some servers read as another, known one.

    Looked at are all objects that decide what a request costs: the request itself, its options, messages,
    input items, tools, and the parts of their content, at any depth.
    """
    _refuse(body, _TOP, "")
    for member, names in _INSIDE.items():
        if isinstance(inner := body.get(member), dict):
            _refuse(inner, names, f"{member}.")
    waiting: list[tuple[str, Any]] = [(member, body.get(member)) for member in _LISTS]
    while waiting:
        where, items = waiting.pop()
        for item in items if isinstance(items, list) else ():
            if isinstance(item, dict):
                _refuse(item, _ITEM, f"{where}.")
                waiting += [(where, item[name]) for name in ("content", "output") if name in item]


def _refuse(members: Json, names: Mapping[str, str], where: str) -> None:
    for name in members:
        if names.get(name) == name or len(name) > LONGEST_NAME:
            continue
        known = names.get(folded(name))
        if known is not None:
            what = f"{where}{name}: some servers read this member as {known}."
            raise Refused(400, f"{what} Write {where}{known}, or leave it out.", "invalid_request")


def refuse_other_models(body: Json) -> None:
    """Raise `Refused` (400) for a member with which another model than `model` could answer."""
    for name in OTHER_MODELS:
        if body.get(name):
            why = "names models that may answer instead, whose prices are not known here"
            raise Refused(400, f"{name}: {why}. Leave it out; `model` says who answers.", "invalid_request")


def refuse_later(body: Json, left: int | None) -> None:
    """Raise `Refused` (400) for an answer in the background, if a key has a budget (`left` of it).

    It is written, and billed, after the only reply that the gateway sees.
    """
    for name in LATER if left is not None else ():
        if body.get(name):
            why = "such an answer is billed after its reply, so a key with a budget cannot ask for it"
            raise Refused(400, f"{name}: {why}. Leave it out, or set it to false.", "invalid_request")


def most_output(backend: Backend, wire: Wire, turn: Turn) -> int:
    """Most tokens that the answers to a request have together.

    Its own limit counts. A limit of reasoning counts if it is larger, or beside that of the specialist. With
    a member that is not part of the wire, which may be a limit under another name, at least as many are
    counted as for a request without a limit. The tokens of a prediction, one for each byte at most, come on
    top: those that are wrong are billed as well.
    """
    limit = turn.max_output
    if limit is None:
        return turn.answers * (backend.max_output + turn.thinking + turn.predicted)
    unknown = 0 if turn.parameters <= wire.members | ABOUT_PRICES else backend.max_output
    return turn.answers * (max(limit, turn.thinking, unknown) + turn.predicted)


def unpriced(backend: Backend, demand: Demand) -> str | None:
    """Why what a request asks for cannot be charged as it is billed, or kept within a budget; None if it can.

    Its worst case needs a price of all that it asks for, a limit of the calls of each tool, and of the input
    where the request does not have all of it.
    """
    name, prices = backend.name, backend.prices
    if lines := prices.missing(demand):
        return f"has no price for what is asked: add {', '.join(lines)} to specialists.{name}.prices"
    dear = {tool for tool, price in prices.tools if price > 0.0}
    if endless := [tool for tool, most in demand.tools if most is None and tool in dear]:
        return f"may call {', '.join(endless)} any number of times: state max_uses, or max_tool_calls"
    if demand.away and backend.context is None and prices.by_token:
        why = "reads input of a length that the request does not tell"
        return f"{why}: add window: ... (its context in tokens) to specialists.{name}"
    return None


def reported(backend: Backend, usage: Usage, reason: str) -> str:
    """The reason of a bill, with what is billed beside tokens, and a warning for what has no price."""
    beside = [f"served as {name}" for name in (usage.service_tier, usage.speed) if name]
    beside += [f"{count} calls of {name}" for name, count in usage.tools]
    if lines := backend.prices.unbilled(usage):
        beside.append(f"without a price: {', '.join(lines)}")
        _warn(f"specialists.{backend.name}.prices lacks {', '.join(lines)}: less is charged than is billed")
    return "; ".join([*([reason] if reason else []), *beside])


@functools.lru_cache(maxsize=1000)
def _warn(why: str) -> None:
    """Log what is wrong with prices, once."""
    logger.warning(why)
