"""How the calls of one request are made: attempts of specialists, bodies, headers, worst cases.

`Crossing` is how a request reaches specialists that do not serve its wire, and how their answers come back.
A specialist that serves the wire of the request gets its bytes unchanged; only for others is anything
translated. A request that cannot be expressed on any wire of a specialist excludes it, with the reason.
"""

from __future__ import annotations

import asyncio
import functools
import heapq
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import orjson

from pandora_router.gateway.generation import Site
from pandora_router.gateway.providers.backend import FORGOTTEN, Backend, Circuit
from pandora_router.gateway.providers.cost_bound import Quote, most_output, stated_input, unpriced
from pandora_router.gateway.request.attempts import RunningAttempt, logger
from pandora_router.gateway.request.auction_choice import RequestAuction
from pandora_router.gateway.request.eligible import UNSUPPORTED, size_of, unsupported
from pandora_router.prices import Lengths, prefix_of
from pandora_router.store.rows import Kind
from pandora_router.store.worker import Store
from pandora_router.transport.failures import Failed
from pandora_router.wires.demand import Demand, demand_of
from pandora_router.wires.events import AnswerReader, framed
from pandora_router.wires.known import BY_NAME
from pandora_router.wires.own_members import EFFORT, with_own
from pandora_router.wires.translation import AnswerAbout, NeutralRequest, Untranslatable
from pandora_router.wires.translator import NEAREST, Translator, marked, request_of, written
from pandora_router.wires.wire import Name, Turn, Wire


@dataclass
class Crossing:
    """One request (`parsed`, understood as `turn`) on its way to other wires; each way is tried once.

    A specialist that was refused an effort lately is not told one, and is asked for no more tokens than it
    writes: agents state both for models of their own provider.
    """

    wire: Wire
    parsed: Mapping[str, Any]
    turn: Turn
    circuits: Mapping[str, Circuit]
    _ways: dict[tuple[object, ...], dict[str, Any] | str] = field(default_factory=dict)
    _request: NeutralRequest | str | None = None

    def unreached(self, backend: Backend) -> str | None:
        """Why the specialist cannot be asked on any wire that it serves; None if it can."""
        if self.wire.name in backend.wires or self._way(backend) is not None:
            return None
        others = [name for name in NEAREST[self.wire.name] if name in backend.wires]
        why = "; ".join(f"{name} cannot express {self._body(backend, name)}" for name in others)
        add = f"wires: [{', '.join([*sorted(backend.wires), self.wire.name])}]"
        return f"does not serve the wire {self.wire.name}, and {why} (pandora.yaml says otherwise with {add})"

    def translator(self, backend: Backend, decision: str) -> Translator | None:
        """What translates its answer; None if it serves the wire of the request (or cannot be asked)."""
        way = None if self.wire.name in backend.wires else self._way(backend)
        if way is None:
            return None
        counted = self.turn.wants_usage or not self.turn.stream
        about = AnswerAbout(decision.replace("-", ""), int(time.time()), counted)
        return Translator(BY_NAME[way], self.wire, about, self._neutral.without)

    def body(self, backend: Backend, wire: Wire, *, stream: bool, effort: bool = True) -> bytes:
        """Return the request in the format of `wire`, for which `unreached` found a way."""
        if effort and stream == self._neutral.stream:
            return orjson.dumps(self._body(backend, wire.name))
        asked = replace(self._fitted(self._neutral, backend), stream=stream)
        asked = asked if effort else replace(asked, effort=None)
        made = written(asked, wire.name, "", backend.tokens_as, backend.max_output)
        return orjson.dumps(self._whole(backend, wire.name, made))

    def _fitted(self, request: NeutralRequest, backend: Backend) -> NeutralRequest:
        """The request with the effort and the limit of tokens that the specialist takes."""
        most, longest = request.max_output, backend.longest
        refused = EFFORT in self.circuits[backend.name].lacking(time.monotonic())
        most = most if most is None or longest is None else min(most, longest)
        return replace(request, max_output=most, effort=None if refused else request.effort)

    def shows(self, backend: Backend) -> bool:
        """Whether a look at the specialist would see its answer, and not only that it reasons."""
        return backend.looks and not self.wire_of(backend).hides(self.sent(backend))

    def wire_of(self, backend: Backend) -> Wire:
        """The wire on which the specialist is asked; that of the request if it cannot be asked."""
        return BY_NAME[self._wire_to(backend) or self.wire.name]

    def _wire_to(self, backend: Backend) -> Name | None:
        return self.wire.name if self.wire.name in backend.wires else self._way(backend)

    def sent(self, backend: Backend) -> Mapping[str, Any]:
        """The request as the specialist will see it, apart from names and streaming."""
        name = self._wire_to(backend)
        if name is None or name == self.wire.name:
            return with_own(self.parsed, backend.own.get(self.wire.name, {}))
        body = self._body(backend, name)
        return self.parsed if isinstance(body, str) else body

    @property
    def _neutral(self) -> NeutralRequest:
        assert isinstance(self._request, NeutralRequest)
        return self._request

    def _way(self, backend: Backend) -> Name | None:
        """The first wire of the specialist that can express the request; None if there is none."""
        others = (name for name in NEAREST[self.wire.name] if name in backend.wires)
        return next((name for name in others if isinstance(self._body(backend, name), dict)), None)

    def _body(self, backend: Backend, name: Name) -> dict[str, Any] | str:
        """The request on another wire, or what that wire cannot express."""
        if self._request is None:
            try:
                self._request = request_of(self.wire.name, self.parsed)
            except Untranslatable as error:
                self._request = str(error)
        if isinstance(self._request, str):
            return self._request
        fitted = self._fitted(self._request, backend)
        key = (name, backend.tokens_as, backend.max_output, fitted.max_output, fitted.effort)
        if key not in self._ways:
            try:
                self._ways[key] = written(fitted, name, "", backend.tokens_as, backend.max_output)
            except Untranslatable as error:
                self._ways[key] = str(error)
        way = self._ways[key]
        return way if isinstance(way, str) else self._whole(backend, name, way)

    def _whole(self, backend: Backend, name: Name, made: dict[str, Any]) -> dict[str, Any]:
        """A translated request with its model, its mark for a cache that has prices, and its own members."""
        goes_on = self.turn.continues or "tools" in self.turn.needs
        made = marked(made) if name == "messages" and goes_on and backend.prices.keeps else made
        return with_own({**made, "model": backend.model}, backend.own.get(name, {}))


async def accepted(attempt: RunningAttempt, *, last: bool) -> tuple[int, bytes]:
    """Status and body of a whole reply; raises `Failed` for a refusal after which another may be asked.

    That is one in which the provider says that it lacks an ability, where the file does not state what the
    specialist supports, unless it is the `last`. It is remembered; it costs nothing and is no failure.
    """
    assert attempt.relay is not None
    status, answer = attempt.relay.status, await attempt.whole()
    lacks = unsupported(attempt.needs, status, answer) if attempt.backend.learns else frozenset()
    if not lacks:
        return status, answer
    name, what = attempt.backend.name, ", ".join(sorted(lacks))
    if attempt.circuit.refuse(lacks, time.monotonic()):
        logger.warning(
            "%s refused a request that needs %s (status %d); such requests go to others for %.0f minutes. "
            "`pandora doctor` shows what to write as `supports` under specialists.%s",
            *(name, what, status, FORGOTTEN / 60, name),
        )
    if not last:
        attempt.settle("error", f"refused: {what}")
        raise Failed(f"{name} refused: {what}", "status", again=True, status=status)
    return status, answer


def translated(translator: Translator | None, status: int, answer: bytes) -> bytes:
    """A whole reply in the format of the client; raises `Failed` for an answer that is not understood."""
    if translator is None:
        return answer
    if status >= 400:
        return translator.error(status, answer)
    try:
        return translator.whole(answer)
    except Untranslatable as error:
        why = f"an answer that cannot be translated: {error}"
        raise Failed(why, "invalid reply", again=True, charged=True) from error


async def crossed(translator: Translator | None, parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """A stream in the format of the client; raises `Failed` for one that is not understood."""
    try:
        async for part in parts:
            yield part if translator is None else translator.feed(part)
        if translator is not None:
            yield translator.end()
            if translator.failed:
                raise Failed("the stream ended before the answer did", "cut", again=False, charged=True)
    except Untranslatable as error:
        why = f"an answer that cannot be translated: {error}"
        raise Failed(why, "invalid reply", again=False, charged=True) from error


def broken_off(translator: Translator | None, wire: Wire, message: str) -> bytes:
    """The events of the client's `wire` that end a stream after a failure."""
    if translator is not None:
        return translator.fail(message)
    return b"".join(framed(name, event) for name, event in wire.failure(message))


PASSED = ("anthropic-version", "anthropic-beta", "openai-beta")
"""Headers of a client that are passed on to the specialist: none that says which account or project pays."""

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

    @property
    def last(self) -> bool:
        """Whether nobody else is called after this one."""
        return len(self.order) == 1 or self.failed + 1 >= len(calls_of(self.order))

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
        if failure.failure == "timeout" or not failure.again or pause > LONGEST_PAUSE:
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
    _quotes: dict[str, Quote] = field(default_factory=dict)

    def quote(self, name: str) -> Quote:
        """What a call to the specialist `name` may cost; written once for each."""
        if name not in self._quotes:
            backend, turn = self.site.backend(name), self.turn
            stated, wire = stated_input(self.wire, self.parsed, turn), self.crossing.wire_of(backend)
            own = backend.own.get(wire.name)
            self._quotes[name] = Quote(
                backend,
                wire,
                self.size + (len(orjson.dumps(own)) if own else 0),
                most_output(backend, self.wire, turn),
                self.measured[name],
                bounded=stated and turn.max_output is not None,
                prefix=prefix_of(turn.system),
                stated=stated,
                demand=self.demand(backend),
            )
        return self._quotes[name]

    def attempt(self, name: str, kind: Kind) -> RunningAttempt:
        """A call to the specialist `name`, not made yet; the kind `inspection` is a look."""
        quote, turn, look = self.quote(name), self.turn, kind == "inspection"
        translator = self.crossing.translator(quote.backend, self.id)
        reader = AnswerReader(
            quote.wire,
            strip_usage=turn.stream and not turn.wants_usage and translator is None,
            strip_chances=look and self._chances(quote.backend) and not self.parsed.get("logprobs"),
        )
        return RunningAttempt(
            *(self.id, kind, quote, reader, self.store, self.circuits[name]),
            background=turn.background,
            whole_asked=not look and not turn.stream,
            translator=translator,
            needs=turn.needs,
        )

    @functools.cached_property
    def crossing(self) -> Crossing:
        """How the request reaches specialists that do not serve its wire."""
        return Crossing(self.wire, self.parsed, self.turn, self.circuits)

    @functools.cached_property
    def size(self) -> int:
        """The length of the request in bytes that can become tokens."""
        return size_of(self.body, self.turn)

    async def open(self, attempt: RunningAttempt) -> None:
        """Make the call and wait for its status; raises `Failed`."""
        backend = attempt.backend
        look = attempt.kind == "inspection"
        if backend.tool is not None:
            await attempt.consult(backend.tool, self.turn.prompt, stream=self.turn.stream)
            return
        if attempt.translator is not None:
            await self._translated(attempt, stream=look or self.turn.stream)
            return
        body = backend.request(
            self.wire, self.body, self.parsed, self.turn, look=look, chances=look and self._chances(backend)
        )
        passed = {name: self.headers[name] for name in PASSED if name in self.headers}
        await attempt.open(self.wire.path, body, backend.sent_headers(self.wire, passed))

    async def _translated(self, attempt: RunningAttempt, *, stream: bool) -> None:
        """Make a translated call; one that is refused is made again without its effort, if that helps."""
        backend, wire = attempt.backend, attempt.quote.wire
        whole, headers = self.crossing.body(backend, wire, stream=stream), backend.sent_headers(wire, {})
        relay = await attempt.open(wire.path, whole, headers)
        if relay.status not in UNSUPPORTED:
            return
        plain = self.crossing.body(backend, wire, stream=stream, effort=False)
        if plain == whole:
            return
        relay.close()
        relay = await attempt.open(wire.path, plain, headers)
        if relay.status < 400:
            attempt.circuit.refuse(frozenset({EFFORT}), time.monotonic())

    async def look(self, attempt: RunningAttempt) -> None:
        """Make the call for a look; of a reply that is no stream, what it refuses is remembered."""
        await self.open(attempt)
        if not attempt.streams:
            await accepted(attempt, last=True)

    def demand(self, backend: Backend) -> Demand:
        """What the request asks of a specialist beside plain tokens."""
        if self.wire.name in backend.wires and not backend.own:
            return self.turn.demand
        return demand_of(self.crossing.sent(backend))

    def unpriced(self, backend: Backend) -> str | None:
        """Why the worst case of a call to this specialist is not known; None if it is."""
        return unpriced(backend, self.demand(backend))

    def costs(self, *, budget: bool) -> dict[str, Any]:
        """What `exclusions` asks about the costs of calls; `budget`: whether they are limited by one."""
        return {"worst": self.worst_case, "unpriced": self.unpriced, "budget": budget}

    def worst_case(self, name: str) -> int:
        """Most that one call to the specialist `name` can cost, in nanodollars."""
        return self.quote(name).bound

    def worst_with(self, looked: frozenset[str], offered: Sequence[str]) -> int:
        """Most that looks at all of `looked`, and an answer by any of `offered`, can cost.

        Which of them will be asked is not known yet: `ATTEMPTS` calls are counted, those that cost most.
        """
        rest = [name for name in offered if name not in looked]
        return sum(map(self.worst_case, looked)) + self.worst_of(rest if len(rest) > 1 else calls_of(rest))

    def worst_in(self, ranked: Sequence[str]) -> int:
        """Most that asking these in order can cost."""
        return self.worst_of(calls_of(ranked))

    def worst_of(self, names: Sequence[str]) -> int:
        """Most that an answer by one of these can cost; 0 without any.

        At most `ATTEMPTS` are asked, and all fail but one. Those that cost most are counted.
        """
        failed = [self.quote(name).failed_case for name in names]
        answered = [self.worst_case(name) - lost for name, lost in zip(names, failed, strict=True)]
        return sum(heapq.nlargest(ATTEMPTS, failed)) + max(answered, default=0)

    def _chances(self, backend: Backend) -> bool:
        """Whether a look requests log-probabilities from this specialist."""
        native = self.wire.name in backend.wires
        return native and self.wire.logprobs and backend.peek.tokens > 0 and "logprobs" in backend.abilities
