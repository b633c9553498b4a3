"""The prices of a specialist: what a call comes to, the most that it can come to, what has no price."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from pandora_router.errors import UsageError
from pandora_router.wires.demand import ANY, PLAIN, Demand
from pandora_router.wires.usage import Usage

MARKERS = 64
"""Tokens that a provider may add to a request: separators between messages, its own system prompt."""
CACHED = 300.0
"""Seconds for which a provider's cache is expected to keep a prompt."""
CACHEABLE = 1024
"""Input tokens from which providers that cache unasked begin to do so."""
BATCH = "batch"
"""The service tier of answers that are written hours later; no request that waits for one is served in it."""


@dataclass(frozen=True)
class Tariff:
    """Prices per million tokens, per second, per call and per call of a tool; a fee is their sum.

    fee = (tokens_in * per_million_in + tokens_out * per_million_out) / 1e6 + seconds * per_second + per_call

    Parts of the input and of the output may have prices of their own, per million tokens; without one they
    cost `per_million_in` or `per_million_out`: `cached_in` for input read from the provider's cache,
    `cached_write` and `cached_write_hour` for input written to it for five minutes and for an hour,
    `audio_in`, `image_in`, `audio_out`, `image_out`. The cache keeps input for `cached_seconds`. `tools`
    are the prices of one call of each tool that runs at the provider.

    `above`: the prices of tokens of a call whose whole input has more tokens than a threshold.
    `service_tier`, `speed`: those of a call that was served in this tier, or at this speed. Token prices
    have no default: a free specialist must state 0. Raises `UsageError` unless all prices are finite and not
    negative.

    >>> Tariff(1.0, 10.0, cached_in=0.1).of(Usage(fresh=100, cached=1000, output=10))
    0.0003
    >>> tiers, tools = (("priority", Tariff(2.0, 20.0)),), (("web_search", 0.01),)
    >>> usage = Usage(fresh=100, output=10, service_tier="priority", tools=(("web_search", 2),))
    >>> Tariff(1.0, 10.0, service_tier=tiers, tools=tools).of(usage)
    0.0204
    """

    per_million_in: float
    per_million_out: float
    per_second: float = 0.0
    per_call: float = 0.0
    cached_in: float | None = None
    cached_write: float | None = None
    cached_seconds: float = CACHED
    cached_write_hour: float | None = None
    audio_in: float | None = None
    image_in: float | None = None
    audio_out: float | None = None
    image_out: float | None = None
    tools: tuple[tuple[str, float], ...] = ()
    above: tuple[tuple[int, Tariff], ...] = ()
    service_tier: tuple[tuple[str, Tariff], ...] = ()
    speed: tuple[tuple[str, Tariff], ...] = ()

    def __post_init__(self) -> None:
        prices = (self.per_million_in, self.per_million_out, self.per_second, self.per_call)
        stated = (*prices, self.cached_seconds, *self.parts.values(), *dict(self.tools).values())
        if not all(
            isinstance(price, int | float) and math.isfinite(price) and price >= 0 for price in stated
        ):
            raise UsageError(
                "the prices of a specialist",
                expected="finite numbers, zero or more, per million tokens in and out",
                came=str(stated),
                do="State them; if answers really cost nothing, say 0.",
            )

    @functools.cached_property
    def parts(self) -> Mapping[str, float]:
        """The stated prices of parts of the input and the output, per million tokens."""
        prices = {
            "cached_in": self.cached_in,
            "cached_write": self.cached_write,
            "cached_write_hour": self.cached_write_hour,
            "audio_in": self.audio_in,
            "image_in": self.image_in,
            "audio_out": self.audio_out,
            "image_out": self.image_out,
        }
        return {name: price for name, price in prices.items() if price is not None}

    @property
    def by_token(self) -> bool:
        """Whether the fee depends on token counts."""
        return self.per_million_in > 0 or self.per_million_out > 0

    @property
    def free(self) -> bool:
        """Whether calls cost nothing, whatever they ask for."""
        return not (self.by_token or self.per_call or self.per_second or self.tools)

    def served(self, demand: Demand) -> Tariff:
        """The prices of a call that is served as it demands: those of its tier, or of its speed."""
        for name, prices in ((demand.speed, self.speed), (demand.service_tier, self.service_tier)):
            for stated, chosen in prices:
                if stated == name:
                    return self._with(chosen)
        return self

    def at(self, usage: Usage) -> Tariff:
        """The prices of a call with these counts: those of its tier or speed, and of so long an input."""
        chosen = self.served(usage.demand) if usage.service_tier or usage.speed else self
        reached = [longer for threshold, longer in chosen.above if usage.read > threshold]
        return self._with(reached[-1]) if reached else chosen

    def _with(self, tokens: Tariff) -> Tariff:
        """The token prices of `tokens` with what a call costs beside."""
        beside = {"per_second": self.per_second, "per_call": self.per_call, "tools": self.tools}
        return replace(tokens, **beside)  # type: ignore[arg-type]

    def reading(self, tokens: float, cached: float = 0.0) -> float:
        """The expected fee of `tokens` of input, `cached` of which lie in the provider's cache.

        The others are read anew and so enter the cache, at the price of writing where that is stated. The
        refund of a cached prefix is reading(tokens) - reading(tokens, cached).

        >>> tariff = Tariff(3.0, 15.0, cached_in=0.3, cached_write=3.75)
        >>> tariff.reading(10_000), tariff.reading(10_000, cached=8_000)
        (0.0375, 0.0099)
        """
        anew = round(tokens - min(cached, tokens))
        write = self.cached_write is not None
        usage = Usage(0 if write else anew, round(min(cached, tokens)), anew if write else 0, 0)
        return self.of(usage) - self.per_call

    @property
    def keeps(self) -> bool:
        """Whether its cache keeps what a request marks: it then has prices of writing and of reading."""
        return self.cached_in is not None and self.cached_write is not None

    def holds(self, usage: Usage) -> int:
        """The input tokens that the provider's cache is expected to hold after a call of these counts.

        Providers that charge for writing say what they wrote. Others cache all input of `CACHEABLE` tokens or
        more. None without a price of cached input.
        """
        if self.cached_in is None:
            return 0
        if self.cached_write is not None:
            return usage.cached + usage.written
        whole = usage.fresh + usage.cached
        return whole if whole >= CACHEABLE else 0

    def fee(self, tokens_in: int | None, tokens_out: int | None, seconds: float) -> float | None:
        """The fee in the unit of the prices; None if token counts are needed and missing."""
        if self.by_token and (tokens_in is None or tokens_out is None):
            return None
        return self.price(tokens_in or 0, tokens_out or 0, seconds)

    def price(self, tokens_in: float, tokens_out: float, seconds: float = 0.0) -> float:
        """The fee of a call of so many tokens and seconds; numbers of tokens may be expectations."""
        at = self.at(Usage(math.ceil(tokens_in)))
        tokens = tokens_in * at.per_million_in + tokens_out * at.per_million_out
        return tokens / 1e6 + seconds * self.per_second + self.per_call

    def of(self, usage: Usage, seconds: float = 0.0) -> float:
        """The fee of these counts: each part at its own price, in the tier that was served."""
        tools = dict(self.tools) if usage.tools else {}
        calls = sum([count * tools.get(name, 0.0) for name, count in usage.tools])
        return self.at(usage)._tokens(usage) / 1e6 + seconds * self.per_second + self.per_call + calls

    def _tokens(self, usage: Usage) -> float:
        """The fee of the tokens, times a million."""
        parts, into, out = self.parts, self.per_million_in, self.per_million_out
        fee = (usage.fresh - usage.audio_in - usage.image_in) * into
        fee += usage.cached * parts.get("cached_in", into)
        fee += (usage.written - usage.written_hour) * parts.get("cached_write", into)
        fee += usage.written_hour * parts.get("cached_write_hour", into)
        fee += usage.audio_in * parts.get("audio_in", into) + usage.image_in * parts.get("image_in", into)
        fee += (usage.output - usage.audio_out - usage.image_out) * out
        return (
            fee
            + usage.audio_out * parts.get("audio_out", out)
            + usage.image_out * parts.get("image_out", out)
        )

    def most(self, bytes_in: int, tokens_out: int, seconds: float = 0.0, demand: Demand = PLAIN) -> float:
        """Upper bound of the fee of one call that sends `bytes_in` bytes and asks for `demand`.

        No tokenizer makes more tokens than there are bytes; `MARKERS` tokens are added for what the provider
        may add. A token counts at the highest price that it may have: of the tiers in which the call may be
        served, of the prices of so long an input, and of the parts that it may belong to. `tokens_out` and
        `seconds` are the limits of the call; tools are called as often as they may be.
        """
        read = bytes_in + MARKERS
        may = {"cached_in", "cached_write", *demand.parts}
        tokens = max(
            read * prices._dearest(may, "in") + tokens_out * prices._dearest(may, "out")
            for _, prices in self._possible(demand, read)
        )
        tools = dict(self.tools) if demand.tools else {}
        calls = sum([(most or 1) * tools.get(name, 0.0) for name, most in demand.tools])
        return tokens / 1e6 + seconds * self.per_second + self.per_call + calls

    def _dearest(self, may: set[str], side: str) -> float:
        """The highest price of a token of the input ("in") or the output ("out"), of the parts in `may`."""
        plain = self.per_million_in if side == "in" else self.per_million_out
        parts = self.parts.items()
        out = side == "out"
        return max([plain, 0.0, *[p for name, p in parts if name in may and name.endswith("_out") == out]])

    def _possible(self, demand: Demand, read: float = math.inf) -> Iterator[tuple[str, Tariff]]:
        """The prices that such a call may be served at, each with its place in the section `prices`.

        `read`: the most tokens of input. A call that names no tier may be served in each but `BATCH`.
        """
        chosen = [("", self)]
        chosen += [(f"speed.{name}", prices) for name, prices in self.speed if name == demand.speed]
        for name, prices in self.service_tier:
            if name == demand.service_tier or (demand.service_tier == ANY and name != BATCH):
                chosen.append((f"service_tier.{name}", prices))
        for place, prices in chosen:
            yield place, prices
            for threshold, longer in prices.above:
                if read > threshold:
                    yield f"{place}.above.{threshold}".lstrip("."), longer

    def missing(self, demand: Demand) -> list[str]:
        """The prices that a call with this demand needs and that are not stated, as lines to add.

        >>> Tariff(1.0, 10.0).missing(Demand("priority", parts=frozenset({"cached_write"})))
        ['cached_write: ...', 'service_tier: {priority: {in: ..., out: ...}}']
        >>> Tariff(0.0, 0.0).missing(Demand("priority"))
        []
        """
        if self.free:
            return []
        lines = [f"tools: {{{name}: ...}}" for name, _ in demand.tools if name not in dict(self.tools)]
        if not self.by_token:
            return lines
        for place, prices in self._possible(demand):
            lines += [nested(place, f"{name}: ...") for name in sorted(demand.parts - set(prices.parts))]
        for where, name, known in (
            ("service_tier", demand.service_tier, {ANY, "", *dict(self.service_tier)}),
            ("speed", demand.speed, {"", *dict(self.speed)}),
        ):
            if name not in known:
                lines.append(f"{where}: {{{name}: {{in: ..., out: ...}}}}")
        if demand.speed and demand.service_tier not in (ANY, ""):
            lines.append("nothing: a tier and a speed together have no price")
        return lines

    def unbilled(self, usage: Usage) -> list[str]:
        """The prices that these counts need and that are not stated.

        Cached input and images at the price of other input are no such gap: they cost less, or the same.
        """
        sounds = usage.audio_in or usage.audio_out or usage.image_out
        if not (sounds or usage.written or usage.service_tier or usage.speed or usage.tools):
            return []
        demand = usage.demand
        return self.missing(replace(demand, parts=demand.parts - {"cached_in", "image_in"}))


FREE = Tariff(0.0, 0.0)
"""Answers cost nothing; must be stated explicitly."""


def nested(place: str, line: str) -> str:
    """A line of YAML at a place within others, in one line.

    >>> nested("service_tier.priority", "cached_in: ...")
    'service_tier: {priority: {cached_in: ...}}'
    """
    for name in reversed([part for part in place.split(".") if part]):
        line = f"{name}: {{{line}}}"
    return line


def expected_bill(usage: Usage, demand: Demand) -> Usage:
    """Expected counts of a request, with what is expected to be billed beside plain tokens.

    Input that is marked for the cache is written to it; an image or a sound counts as all of the input.
    """
    parts, fresh = demand.parts, usage.fresh
    if not parts:
        return as_asked(usage, demand)
    marked = fresh if parts & {"cached_write", "cached_write_hour"} else 0
    fresh -= marked
    sound, heard = "audio_in" in parts, "audio_out" in parts
    counts = replace(
        usage,
        fresh=fresh,
        written=usage.written + marked,
        written_hour=marked if "cached_write_hour" in parts else 0,
        audio_in=fresh if sound else 0,
        image_in=fresh if "image_in" in parts and not sound else 0,
        audio_out=usage.output if heard else 0,
        image_out=usage.output if "image_out" in parts and not heard else 0,
    )
    return as_asked(counts, demand)


def as_asked(usage: Usage, demand: Demand, *, counted: bool = False) -> Usage:
    """The counts, with the tier and the speed that were asked for where the provider stated none.

    Tools were called as often as they may be, unless their calls are counted or the provider counts them
    (`counted`), so that none were made.
    """
    tier = "" if demand.service_tier == ANY else demand.service_tier
    calls = tuple((name, most or 1) for name, most in demand.tools)
    return replace(
        usage,
        service_tier=tier if usage.service_tier is None else usage.service_tier,
        speed=demand.speed if usage.speed is None else usage.speed,
        tools=usage.tools if usage.tools or counted else calls,
    )
