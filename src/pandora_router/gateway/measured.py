"""Measurements of earlier calls to a specialist (lengths, speed, cached input), to predict later ones.

Means give more weight to recent calls (`NEW` is the weight of one more call), so that they follow changes of
a provider. Each worker process has its own measurements. They are used for bills only where a provider sends
no token counts.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field

from pandora_router.gateway.backend import BYTES_PER_TOKEN
from pandora_router.router import Router
from pandora_router.router.weights import weighed
from pandora_router.store.rows import Usage

NEW = 0.05
PREFIXES = 1000
"""System prompts remembered per specialist, with the number of their tokens that were cached."""
CACHED = 300.0
"""Seconds for which a provider's cache is expected to keep a prompt."""


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
class Lengths:
    """The measurements of one specialist.

    tokens_per_byte: input tokens per byte of a request. output: tokens of a whole answer. first_token:
    seconds to the first content. rate: output tokens per second after it. waited: seconds for which a look
    was held after enough was seen. seconds: of a whole answer.
    """

    tokens_per_byte: RecentMean = field(default_factory=RecentMean)
    output: RecentMean = field(default_factory=RecentMean)
    first_token: RecentMean = field(default_factory=RecentMean)
    rate: RecentMean = field(default_factory=RecentMean)
    waited: RecentMean = field(default_factory=RecentMean)
    seconds: RecentMean = field(default_factory=RecentMean)
    _cached: OrderedDict[str, tuple[float, int]] = field(default_factory=OrderedDict)

    def answered(
        self, usage: Usage, size: int, prefix: str, first_token: float | None, seconds: float, now: float
    ) -> None:
        """Add a complete answer with the provider's token counts; `size`: bytes of the request."""
        counted = usage.fresh + usage.cached + usage.written
        self.tokens_per_byte.add(counted / max(size, 1))
        self.output.add(usage.output)
        self.seconds.add(seconds)
        if first_token is not None:
            self.first_token.add(first_token)
            if usage.output > 1 and seconds > first_token:
                self.rate.add((usage.output - 1) / (seconds - first_token))
        if prefix:
            self._cached[prefix] = now, usage.cached + usage.written
            self._cached.move_to_end(prefix)
            while len(self._cached) > PREFIXES:
                self._cached.popitem(last=False)

    def expected(self, size: int, prefix: str, output: float, now: float) -> Usage:
        """The token counts expected of a request of `size` bytes that writes `output` tokens."""
        whole = round(size * self.tokens_per_byte.given(1.0 / BYTES_PER_TOKEN))
        at, held = self._cached.get(prefix, (-CACHED, 0))
        cached = min(held, whole) if now - at < CACHED else 0
        return Usage(whole - cached, cached, 0, round(output), complete=False)


def at_speed(router: Router, second: float, measured: Mapping[str, Lengths]) -> Router:
    """The router with the expected time of each specialist's answer priced at `second` dollars per second.

    A specialist without measurements gets the mean of the others.
    """
    medians = {name: measured[name].seconds.value for name in router.specialists if name in measured}
    known = [seconds for seconds in medians.values() if seconds is not None]
    if second <= 0.0 or not known:
        return router
    usual = sum(known) / len(known)
    waits = [usual if (seconds := medians.get(name)) is None else seconds for name in router.specialists]
    return weighed(router, router.fee_weight, [-router.fee_weight * second * wait for wait in waits])


def prefix_of(system: str) -> str:
    """Hash of a system prompt, "" for none: the part of a new conversation that may be cached."""
    return hashlib.sha256(system.encode("utf-8", "surrogatepass")).hexdigest()[:16] if system else ""
