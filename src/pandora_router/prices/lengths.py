"""Measured lengths and speeds of calls, and the expected costs of looks.

With P for the price of the prompt (and of the call), w for the price of an output token, L for the expected
length of a whole answer, s for the tokens that a look reads, and h for those written while the look is held:

    whole answer                 P + w L
    look, cancel: stops          P + w min(s + h, L)
    look, cancel: bills_full     P + w L
    look, cancel: unknown        P + w L       (nothing proves that the provider stops billing)

So a look never costs more than the whole answer is expected to.
"""

from __future__ import annotations

import hashlib
import math
import statistics
from collections import OrderedDict, defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from pandora_router.prices.tariff import CACHED, MARKERS, Tariff
from pandora_router.wires.usage import Usage

Cancelling = Literal["stops", "unknown", "bills_full"]
"""What a provider bills for a cancelled answer: what it had written (stops), all of it, or unknown."""
CHARACTERS_PER_TOKEN = 4.0
"""Characters per token where nothing was measured: the usual rule of thumb for English text."""
BYTES_PER_TOKEN = 3
"""Bytes of a request per token where nothing was measured; rather too many tokens."""
USUAL_ANSWER, USUAL_SECONDS = 200, 2.0
"""Tokens and seconds of an answer where nothing was measured: assumptions."""
FASTEST = 10_000.0
"""Tokens per second; a faster stream was buffered on its way and says nothing about its provider."""
NEW = 0.05
"""Weight of one more call in a `RecentMean`; those of a fit count like 1 / NEW calls."""
WINDOW = 31
"""Calls of which a `RecentMedian` is the median."""
PREFIXES = 1000
"""System prompts remembered per specialist, with the number of their tokens that were cached."""


@dataclass
class RecentMean:
    """A mean that gives new values a weight of at least `NEW`; `value` is None before the first."""

    value: float | None = None
    count: int = 0

    def add(self, value: float) -> None:
        """Add a value."""
        self.count += 1
        share = max(1.0 / self.count, NEW)
        self.value = value if self.value is None else self.value + share * (value - self.value)

    def given(self, usual: float) -> float:
        """The mean, or `usual` where nothing was measured."""
        return usual if self.value is None else self.value


@dataclass
class RecentMedian:
    """The median of the last `WINDOW` values: fewer than half of them cannot move it out of the others."""

    values: deque[float] = field(default_factory=lambda: deque(maxlen=WINDOW))

    def add(self, value: float) -> None:
        """Add a value."""
        self.values.append(value)

    def given(self, usual: float) -> float:
        """The median, or `usual` where nothing was measured."""
        return statistics.median(self.values) if self.values else usual


MEASURED = ("input", "output", "tokens_per_character", "first_token", "rate", "seconds", "waited")
"""What an artifact keeps of `Lengths`, beside `tokens_per_byte`."""


@dataclass
class Lengths:
    """Lengths and speeds of earlier calls to one specialist, to predict later ones.

    input, output: tokens of a request and of a whole answer. tokens_per_byte: input tokens per byte of a
    request, by wire and by its size in steps of a factor 2, because most bytes of a short request are no
    text; `per_byte` is the value to start from. tokens_per_character: of an answer. first_token: seconds
    to the first content. rate: output tokens per second after it. waited: seconds for which a look was
    held after enough was seen, until another specialist was chosen; looks are made one after the other,
    so `expect_waits` starts from the seconds of a look at another. seconds: of a whole answer. per_event:
    output tokens that are shown per event of a stream, by its events in steps of a factor 2; one that was
    left counts as the shortest whole one that is longer. hidden: tokens of reasoning per second before
    the first content, of streams that had any. Each worker process has its own.
    """

    input: RecentMean = field(default_factory=RecentMean)
    output: RecentMean = field(default_factory=RecentMean)
    tokens_per_character: RecentMean = field(default_factory=RecentMean)
    first_token: RecentMean = field(default_factory=RecentMean)
    rate: RecentMean = field(default_factory=RecentMean)
    seconds: RecentMean = field(default_factory=RecentMean)
    waited: RecentMean = field(default_factory=RecentMean)
    per_byte: float = 1.0 / BYTES_PER_TOKEN
    tokens_per_byte: defaultdict[tuple[str, int], RecentMedian] = field(
        default_factory=lambda: defaultdict(RecentMedian)
    )
    per_event: defaultdict[int, RecentMedian] = field(default_factory=lambda: defaultdict(RecentMedian))
    hidden: RecentMedian = field(default_factory=RecentMedian)
    _cached: OrderedDict[str, tuple[float, int]] = field(default_factory=OrderedDict)

    @classmethod
    def of(cls, measured: Mapping[str, float]) -> Lengths:
        """Start from what a table or an artifact keeps by name (`MEASURED`, tokens_per_byte)."""
        start = cls(per_byte=min(float(measured.get("tokens_per_byte", 1.0 / BYTES_PER_TOKEN)), 1.0))
        for name in MEASURED:
            if name in measured:
                setattr(start, name, RecentMean(float(measured[name]), round(1.0 / NEW)))
        return start

    def answered(
        self,
        usage: Usage,
        seconds: float | None,
        *,
        size: int,
        wire: str = "chat",
        most: float = math.inf,
        prefix: str = "",
        now: float = 0.0,
        first_token: float | None = None,
        events: int = 0,
        stated: bool = True,
    ) -> None:
        """Learn from a complete answer with the provider's token counts.

        `size` is the length of the request in bytes; `most` the most tokens that the answer may have. Other
        keys' estimates depend on what is learnt here, so a provider's claim is believed only within bounds:
        input of more than one token per byte (and `MARKERS`) is not learnt, longer answers than `most` count
        as `most`. `stated`: whether all input lies in the request; images, files and earlier turns that lie
        at the provider say nothing about tokens per byte. `seconds` is None if they were not those of the
        specialist alone. `first_token` is None unless the answer was streamed, in so many `events`: only
        streams measure speed.
        """
        counted, output = usage.fresh + usage.cached + usage.written, min(usage.output, most)
        if stated and 0 < counted <= size + MARKERS:
            self.tokens_per_byte[wire, size.bit_length()].add(min(counted / max(size, 1), 1.0))
            self.input.add(counted)
            if prefix:
                self._remember(prefix, now, usage.cached + usage.written)
        self.output.add(output)
        if first_token is not None:
            self.first_token.add(first_token)
            self._streamed(usage, events, first_token)
        if seconds is not None:
            self.seconds.add(seconds)
        if seconds is None or first_token is None:
            return
        writing = seconds - first_token
        if output > 1 and output - 1 <= FASTEST * writing:
            self.rate.add((output - 1) / writing)

    def _streamed(self, usage: Usage, events: int, first_token: float) -> None:
        """Learn from a complete stream of so many events what its events show of the tokens written."""
        thought = min(usage.reasoning, max(usage.output - events, 0))
        if thought and thought <= FASTEST * first_token:
            self.hidden.add(thought / first_token)
        if events:
            self.per_event[events.bit_length()].add(max((usage.output - thought) / events, 1.0))

    def written(self, events: int, first_token: float | None, elapsed: float, *, streamed: bool) -> float:
        """The tokens written of an answer that was given up after `elapsed` seconds.

        Of a stream: those of its `events`, and the reasoning that was hidden before them. Of an answer that
        comes whole: those of so much time, or of a usual answer where no speed was measured.
        """
        if streamed:
            known = sorted(self.per_event)
            near = next((bits for bits in known if bits >= events.bit_length()), max(known, default=0))
            shown = events * (self.per_event[near].given(1.0) if known else 1.0)
            return shown + self.hidden.given(0.0) * (elapsed if first_token is None else first_token)
        if self.rate.value is not None:
            silent = self.first_token.given(0.0)
            return self.rate.value * max(elapsed - silent, 0.0) + self.hidden.given(0.0) * min(
                elapsed, silent
            )
        usual = self.output.given(USUAL_ANSWER)
        return usual * min(elapsed / self.seconds.value, 1.0) if self.seconds.value else usual

    def _remember(self, prefix: str, now: float, cached: int) -> None:
        self._cached[prefix] = now, cached
        self._cached.move_to_end(prefix)
        while len(self._cached) > PREFIXES:
            self._cached.popitem(last=False)

    def expected(self, size: int, wire: str, prefix: str, output: float, now: float) -> Usage:
        """The token counts expected of a request of `size` bytes that writes `output` tokens.

        Never more input than one token per byte, so that the cost stays within `Tariff.most`.
        """
        ratio = self.tokens_per_byte[wire, size.bit_length()].given(self.per_byte)
        whole = min(round(size * ratio), size)
        at, held = self._cached.get(prefix, (-CACHED, 0))
        cached = min(held, whole) if now - at < CACHED else 0
        return Usage(whole - cached, cached, 0, round(output), complete=False)

    def answer(self, most: float) -> float:
        """The tokens expected of a whole answer that has `most` at most."""
        return min(self.output.given(USUAL_ANSWER), most)

    def seen(self, characters: float, tokens: int = 0) -> float:
        """The tokens that a look reads: `tokens` where it counts tokens, else so many `characters`."""
        return (
            float(tokens)
            if tokens
            else characters * self.tokens_per_character.given(1.0 / CHARACTERS_PER_TOKEN)
        )

    def reading(self, seen: float) -> float:
        """The seconds until a look has read `seen` tokens.

        From the speed of streams; without one, the part of a whole answer's seconds; 0 if nothing is known.
        """
        if self.first_token.value is not None:
            return self.first_token.value + (seen / self.rate.value if self.rate.value else 0.0)
        return self.seconds.given(0.0) * min(seen / max(self.output.given(USUAL_ANSWER), 1.0), 1.0)

    @property
    def held(self) -> float:
        """The tokens written while a look is held, at the rate of streams or that of whole answers."""
        seconds = self.seconds.given(0.0)
        usual = self.output.given(USUAL_ANSWER) / seconds if seconds > 0.0 else 0.0
        return min(self.rate.given(usual), FASTEST) * self.waited.given(0.0)


def answer_seconds(names: Sequence[str], measured: Mapping[str, Lengths]) -> list[float]:
    """The expected seconds of a whole answer of each specialist; where none were measured, the others' mean.

    >>> answer_seconds(("a", "b"), {"a": Lengths.of({"seconds": 2.0})}), answer_seconds(("a",), {})
    ([2.0, 2.0], [0.0])
    """
    known = {name: measured[name].seconds.value for name in names if name in measured}
    values = [seconds for seconds in known.values() if seconds is not None]
    usual = sum(values) / len(values) if values else 0.0
    return [usual if (seconds := known.get(name)) is None else seconds for name in names]


def beginning_seconds(names: Sequence[str], measured: Mapping[str, Lengths]) -> list[float]:
    """The expected seconds to the first token of each specialist.

    One that was never seen to stream begins when its whole answer is there; where nothing was measured, the
    others' mean.

    >>> measured = {"a": Lengths.of({"first_token": 0.5, "seconds": 9.0}), "b": Lengths.of({"seconds": 2.0})}
    >>> beginning_seconds(("a", "b"), measured)
    [0.5, 2.0]
    """
    begun = {
        name: Lengths(seconds=known.seconds if known.first_token.value is None else known.first_token)
        for name, known in measured.items()
    }
    return answer_seconds(names, begun)


def expect_waits(reading: Mapping[str, float]) -> dict[str, float]:
    """How long a look at each specialist is expected to be held if it loses: the mean look at another one.

    `reading` has the seconds of a look at each. A look that loses mostly loses to one that is made after it.

    >>> expect_waits({"a": 0.1, "b": 0.2, "c": 0.4})
    {'a': 0.3, 'b': 0.25, 'c': 0.15}
    """
    total, others = sum(reading.values()), max(len(reading) - 1, 1)
    return {name: round((total - seconds) / others, 6) for name, seconds in reading.items()}


@dataclass(frozen=True)
class Fare:
    """What a look at one specialist is expected to cost if another one is chosen.

    money: of the look. whole: of a whole answer. seconds: of waiting until it has read enough.
    """

    money: float
    whole: float
    seconds: float = 0.0

    def price(self, second: float) -> float:
        """The money and the waiting, where a second of waiting costs `second`.

        Of looks that begin together the longest is waited for (`boxes.Costs.wait`). Money and waiting come
        back if the specialist is chosen: its answer goes on from what was read, and would have taken those
        seconds anyway.
        """
        return self.money + second * self.seconds


def look_fare(
    prices: Tariff, cancel: Cancelling, lengths: Lengths, prompt: float, seen: float, most: float
) -> Fare:
    """The expected cost of a look; see the equations of this module.

    prompt: what the prompt and the call cost. seen: tokens that the look reads. most: the most tokens that
    the answer may have.

    >>> lengths = Lengths.of({"output": 100.0})
    >>> look_fare(Tariff(1.0, 10.0), "stops", lengths, 0.0005, 20, 4096).money
    0.0007
    >>> look_fare(Tariff(1.0, 10.0), "unknown", lengths, 0.0005, 20, 4096).money
    0.0015
    """
    answer, reading = lengths.answer(most), lengths.reading(seen)
    written = answer
    if cancel == "stops":
        written = min(seen + lengths.held, answer)
    whole = prompt + answer * prices.per_million_out / 1e6
    money = prompt + written * prices.per_million_out / 1e6
    if prices.per_second:
        waiting = lengths.seconds.given(USUAL_SECONDS)
        whole += waiting * prices.per_second
        money += (min(reading, waiting) if cancel == "stops" else waiting) * prices.per_second
    return Fare(money, whole, reading)


def prefix_of(system: str) -> str:
    """Hash of a system prompt, "" for none: the part of a new conversation that may be cached."""
    return hashlib.sha256(system.encode("utf-8", "surrogatepass")).hexdigest()[:16] if system else ""
