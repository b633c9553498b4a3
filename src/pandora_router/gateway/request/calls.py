"""How the calls of one request are made: attempts of specialists, bodies, headers, worst cases."""

from __future__ import annotations

import asyncio
import functools
import heapq
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pandora_router.gateway.generation import Site
from pandora_router.gateway.providers.backend import Backend
from pandora_router.gateway.providers.cost_bound import bounded, stated_input
from pandora_router.gateway.providers.health import Circuit
from pandora_router.gateway.request.attempts import RunningAttempt
from pandora_router.gateway.request.auction_choice import RequestAuction
from pandora_router.gateway.request.crossing import Crossing
from pandora_router.gateway.request.eligible import size_of
from pandora_router.prices import Lengths, prefix_of
from pandora_router.store.rows import Kind
from pandora_router.store.worker import Store
from pandora_router.transport.failures import Failed
from pandora_router.wires.wire import Turn, Wire

PASSED = ("anthropic-version", "anthropic-beta", "openai-organization", "openai-project", "openai-beta")
"""Headers of a client that are passed on to the specialist."""

ATTEMPTS = 3
"""At most this many calls are made for one request, looks apart."""

LONGEST_PAUSE = 5.0
"""Seconds that a client is made to wait before the same specialist is asked again."""


def calls_of(ranked: Sequence[str]) -> tuple[str, ...]:
    """The specialists to call for one answer, in order; a single one is called repeatedly.

    >>> calls_of(("a", "b")), calls_of(("a",)), calls_of(())
    (('a', 'b'), ('a', 'a', 'a'), ())
    """
    return tuple(ranked[:ATTEMPTS] if len(ranked) != 1 else [*ranked] * ATTEMPTS)


@dataclass
class Succession:
    """Who is called when the call before has failed: the next of `order`, or the runner-up of the auction.

    A specialist that nobody can replace is called again, after a pause.
    """

    order: Sequence[str]
    site: Site
    circuits: Mapping[str, Circuit]
    auction: RequestAuction | None = None
    failed: int = 0

    async def after(self, failure: Failed) -> str | None:
        """Who is called next; None if nobody is left or waiting for the same one makes no sense."""
        self.failed += 1
        if self.auction is not None:
            return await self.auction.runner_up()
        calls = calls_of(self.order)
        if self.failed >= len(calls):
            return None
        name = calls[self.failed]
        return name if len(self.order) > 1 or await self._paused(name, failure) else None

    async def _paused(self, name: str, failure: Failed) -> bool:
        """Wait before asking the same specialist again; False if that makes no sense or would take long."""
        usual = self.site.backend(name).endpoint.pause * 2 ** (self.failed - 1)
        pause = max(usual, failure.wait or 0.0)
        if failure.failure == "timeout" or pause > LONGEST_PAUSE:
            return False
        await asyncio.sleep(pause)
        return self.circuits[name].lets_through(time.monotonic())


@dataclass(frozen=True)
class Caller:
    """Makes the attempts of the request `body` (`parsed`, understood as `turn`) under the decision `id`."""

    id: str
    site: Site
    store: Store
    circuits: Mapping[str, Circuit]
    measured: Mapping[str, Lengths]
    wire: Wire
    headers: Mapping[str, str]
    body: bytes
    parsed: Mapping[str, Any]
    turn: Turn

    def attempt(self, name: str, kind: Kind) -> RunningAttempt:
        """A call to the specialist `name`, not made yet; the kind `inspection` is a look."""
        backend, turn = self.site.backend(name), self.turn
        translator = self.crossing.translator(backend, self.id)
        asked = bool(self.parsed.get("logprobs"))
        return RunningAttempt(
            decision=self.id,
            kind=kind,
            backend=backend,
            wire=self.wire if translator is None else translator.came,
            size=self.size,
            most=backend.most_output(turn),
            bounded=self._bounded,
            background=turn.background,
            store=self.store,
            circuit=self.circuits[name],
            lengths=self.measured[name],
            prefix=prefix_of(turn.system),
            stated=stated_input(self.wire, self.parsed, turn),
            strip_usage=turn.stream and not turn.wants_usage and translator is None,
            translator=translator,
            strip_chances=kind == "inspection" and self._chances(backend) and not asked,
        )

    @functools.cached_property
    def crossing(self) -> Crossing:
        """How the request reaches specialists that do not serve its wire."""
        return Crossing(self.wire, self.parsed, self.turn)

    @functools.cached_property
    def size(self) -> int:
        """The length of the request in bytes that can become tokens."""
        return size_of(self.body, self.turn)

    @functools.cached_property
    def _bounded(self) -> bool:
        return bounded(self.wire, self.parsed, self.turn)

    async def open(self, attempt: RunningAttempt) -> None:
        """Make the call and wait for its status; raises `Failed`."""
        backend = attempt.backend
        look = attempt.kind == "inspection"
        if attempt.translator is not None:
            body = self.crossing.body(backend, attempt.wire, stream=look or self.turn.stream)
            await attempt.open(attempt.wire.path, body, backend.sent_headers(attempt.wire, {}))
            return
        body = backend.request(
            self.wire, self.body, self.parsed, self.turn, look=look, chances=look and self._chances(backend)
        )
        passed = {name: self.headers[name] for name in PASSED if name in self.headers}
        await attempt.open(self.wire.path, body, backend.sent_headers(self.wire, passed))

    def worst_case(self, name: str) -> int:
        """Most that one call to the specialist `name` can cost, in nanodollars."""
        return self.site.backend(name).worst_case(self.size, self.turn)

    def worst_with(self, looked: frozenset[str], offered: Sequence[str]) -> int:
        """Most that looks at all of `looked`, and an answer by any of `offered`, can cost.

        Which of them will be asked is not known yet: `ATTEMPTS` calls are counted, those that cost most.
        """
        rest = [name for name in offered if name not in looked]
        return sum(map(self.worst_case, looked)) + self.worst_of(rest if len(rest) > 1 else calls_of(rest))

    def worst_of(self, names: Sequence[str]) -> int:
        """Most that an answer by one of these can cost; 0 without any.

        At most `ATTEMPTS` are asked, and all fail but one. Those that cost most are counted.
        """
        failed = [self.site.backend(name).failed_case(self.size) for name in names]
        answered = [self.worst_case(name) - lost for name, lost in zip(names, failed, strict=True)]
        return sum(heapq.nlargest(ATTEMPTS, failed)) + max(answered, default=0)

    def _chances(self, backend: Backend) -> bool:
        """Whether a look requests log-probabilities from this specialist."""
        native = self.wire.name in backend.wires
        return native and self.wire.logprobs and backend.peek.tokens > 0 and "logprobs" in backend.abilities
