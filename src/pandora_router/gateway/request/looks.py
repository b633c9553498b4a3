"""Live looks: opening a box begins the specialist's real stream, reads its first tokens and holds it.

One `LiveLooks` serves one request. The specialists of one purchase begin together, each on the wire of the
request; the router's estimator reads their first tokens; their streams are held. After the decision the
stream of the chosen specialist is sent from its first byte, and all others are cancelled and settled. A look
that fails or is late is an estimate that did not arrive. A late look is kept: if its specialist is chosen
anyway, its stream is the answer.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from pandora_router.boxes import Costs
from pandora_router.gateway.generation import Site
from pandora_router.gateway.providers.cost_bound import Quote
from pandora_router.gateway.request.attempts import RunningAttempt
from pandora_router.prices import USUAL_ANSWER, Cancelling, Fare, Lengths, look_fare
from pandora_router.router import Decision, Router
from pandora_router.router.deciding import Deciding, Looks, deciding
from pandora_router.router.driver import drive, judged, missed, pay_here
from pandora_router.router.inspection import request_costs
from pandora_router.router.purchases import Ask, Paid
from pandora_router.search import Never
from pandora_router.text import money
from pandora_router.transport.failures import Failed
from pandora_router.wires.look import Glimpse


@dataclass(frozen=True)
class LookOutlook:
    """Whether a gateway will look at one specialist, what that costs, and what would make it cheaper.

    off: why no look is made, "" if looks are made where they are worth their price.
    """

    specialist: str
    fare: Fare
    cancel: Cancelling
    off: str = ""

    @property
    def sentence(self) -> str:
        """For logs and pages; amounts are in dollars."""
        name = self.specialist
        look, whole = (money(amount, significant=3) for amount in (self.fare.money, self.fare.whole))
        if self.off:
            return f"no looks at {name}: {self.off}"
        if self.cancel == "unknown":
            return (
                f"looks at {name} are priced like a whole answer ({whole}) because `cancel` is unknown: "
                f"write `cancel: stops` under specialists.{name} if its provider stops billing when a stream "
                "is closed, and fit again"
            )
        if self.cancel == "bills_full":
            return (
                f"looks at {name} cost a whole answer ({whole}): its provider bills cancelled answers in full"
            )
        return f"looks at {name} cost about {look}; a whole answer {whole}"


def fare(quote: Quote, now: float) -> Fare:
    """The expected price of a look at this call, if another specialist is chosen."""
    backend, lengths = quote.backend, quote.lengths
    expected = quote.expected(now, 0)
    prices = backend.prices.at(expected)
    prompt = backend.prices.of(expected)
    seen = lengths.seen(backend.peek.characters, backend.peek.tokens)
    return look_fare(prices, backend.cancel, lengths, prompt, seen, quote.most)


def starting(site: Site) -> dict[str, Lengths]:
    """The lengths and speeds of the fit, from which a gateway starts."""
    fitted = (router.record.lengths for router in site.routers)
    return {name: Lengths.of(means) for lengths in fitted for name, means in lengths.items()}


def outlooks(site: Site, measured: Mapping[str, Lengths]) -> tuple[LookOutlook, ...]:
    """What looks at each specialist cost with the router of `auto`, for a request of usual length."""
    router = site.router
    outlook = []
    for backend in site.backends:
        lengths = measured.get(backend.name, Lengths())
        seen = lengths.seen(backend.peek.characters, backend.peek.tokens)
        prompt = backend.prices.price(lengths.input.given(USUAL_ANSWER), 0)
        off = ""
        if router is None:
            off = "no router is fitted"
        elif isinstance(router.policy, Never):
            off = "the fit found that looks do not pay at these prices"
        elif backend.name not in router.needs:
            off = "the fitted estimates read no beginnings of its answers"
        elif not backend.looks:
            off = f"specialists.{backend.name} says `looks: false`"
        charge = look_fare(backend.prices, backend.cancel, lengths, prompt, seen, backend.max_output)
        outlook.append(LookOutlook(backend.name, charge, backend.cancel, off))
    return tuple(outlook)


Start = Callable[[str], RunningAttempt]
Record = Callable[[Sequence[RunningAttempt]], Awaitable[bool]]
Call = Callable[[RunningAttempt], Awaitable[None]]


@dataclass
class LiveLooks:
    """The looks of one request.

    names: specialists that may be looked at. quote: what a call to a specialist may cost. start: makes the
    attempt of a specialist, without calling it. record: writes attempts before they are made, and says
    whether the budget allows them. call: makes the call of an attempt and waits for its status. second: what
    a second of waiting costs, in dollars.
    """

    router: Router
    names: frozenset[str]
    quote: Callable[[str], Quote]
    start: Start
    record: Record
    call: Call
    second: float = 0.0
    attempts: dict[str, RunningAttempt] = field(default_factory=dict)
    _tasks: dict[str, asyncio.Task[None]] = field(default_factory=dict)

    async def decide(self, prompt: str, among: Collection[str], timeout: float) -> Decision:
        """Decide among specialists, looking where that is worth its price, within `timeout` seconds."""
        until = time.monotonic() + timeout
        choosing = self._deciding(prompt, among, self.looks())
        return (await drive(self.router, [choosing], self.router.worker, until, self.pay))[0]

    def _deciding(self, prompt: str, among: Collection[str], looks: Looks) -> Deciding:
        cheap = judged(self.router.cheap, [prompt])[0]
        return (yield from deciding(self.router, prompt, cheap, None, among, looks))

    def looks(self) -> Looks:
        """The possible looks and their costs in this request; the look at the chosen specialist is refunded.

        The seconds of a look are its `wait`: looks of one purchase begin together, so the longest is paid.

        Estimates without a look cost what they cost in the fit. A router with fee weight 0 uses all costs of
        the fit, because otherwise all looks would be free.
        """
        now = time.time()
        fares = {name: fare(self.quote(name), now) for name in self.names}
        prices = {name: charge.price(self.second) for name, charge in fares.items()}
        waits = {name: self.second * charge.seconds for name, charge in fares.items()}
        router, usual = self.router, self.router.costs
        wait = usual.wait if len(usual.wait) else np.zeros(len(usual))
        if router.fee_weight <= 0.0:
            return Looks(self.names, Costs(usual.marginal, refund=usual.marginal, wait=wait))
        looks = request_costs(router.specialists, router.fee_weight, prices, refund=prices, wait=waits)
        here = np.array([name in self.names for name in router.specialists])
        own = np.where(here, looks.own, usual.marginal)
        refund = np.where(here, looks.refund, usual.refund)
        held = np.where(here, looks.wait, wait) if len(looks.wait) else np.where(here, 0.0, wait)
        return Looks(self.names, Costs(own, refund=refund, wait=held))

    async def pay(self, ask: Ask, until: float) -> Paid:
        """Begin the streams of an ask together, hold them, and estimate rewards from their first tokens."""
        begun = time.perf_counter()
        if time.monotonic() >= until:
            return Paid.too_late()
        todo = [name for name in ask.specialists if name in self.names and name not in ask.contexts]
        attempts = {name: self.start(name) for name in todo}
        if attempts and not await self.record(list(attempts.values())):
            return Paid.too_late()
        self.attempts |= attempts
        for name, attempt in attempts.items():
            self._tasks[name] = asyncio.ensure_future(self._look(attempt))
        running = [self._tasks[name] for name in todo]
        if running:
            await asyncio.wait(running, timeout=max(until - time.monotonic(), 0.0))
        seen = {name: text for name in todo if (text := self._seen(name)) is not None}
        late = any(not task.done() for task in running)
        lost = frozenset(todo) - set(seen)
        seconds = time.perf_counter() - begun
        if lost == set(ask.specialists):
            lacking = f"no look at {', '.join(sorted(lost))}"
            why = "the deadline of the decision had passed" if late else lacking
            return Paid.nothing(ask, why, seconds, late=late)
        predictor = self.router.predictor
        assert predictor is not None
        shown = replace(ask, contexts={**ask.contexts, **seen})
        paid = (await self.router.worker(pay_here, predictor, {0: shown}))[0]
        paid = missed(ask, paid, lost, f"no look at {', '.join(sorted(lost))}")
        return replace(paid, seconds=time.perf_counter() - begun, late=late, contexts=seen)

    async def _look(self, attempt: RunningAttempt) -> None:
        """Make the call and read its first tokens; a failure settles the attempt and is not raised."""
        try:
            await self.call(attempt)
            if attempt.streams:
                await attempt.look(Glimpse(attempt.backend.peek))
            else:
                assert attempt.relay is not None
                attempt.settle("error", f"no stream to look at (status {attempt.relay.status})")
        except Failed as error:
            attempt.fail(str(error))

    def _seen(self, name: str) -> str | None:
        attempt = self.attempts[name]
        ready = self._tasks[name].done() and attempt.settled is None
        glimpse = attempt.reader.glimpse
        return glimpse.context if ready and glimpse is not None else None

    def take(self, ranked: Sequence[str]) -> tuple[tuple[str, ...], RunningAttempt | None]:
        """End all looks but that of the chosen specialist; returns the order to ask, and its attempt.

        `ranked` is the decision's order. Specialists whose look failed, or whose stream broke while held, are
        moved to the end, so that the runner-up comes first. The attempt is None if there was no look at it.
        """
        dead = {name for name, attempt in self.attempts.items() if not self._usable(name, attempt)}
        order = (*(name for name in ranked if name not in dead), *(name for name in ranked if name in dead))
        winner = None if order[0] in dead else self.attempts.get(order[0])
        for name, attempt in self.attempts.items():
            if attempt is winner:
                attempt.kind = "answer"
                continue
            if name in dead:
                attempt.fail("broke while it was held")
            else:
                self._tasks[name].cancel()
                attempt.lose()
        return order, winner

    def _usable(self, name: str, attempt: RunningAttempt) -> bool:
        """Whether a look may still become the answer: it is in progress, or its stream is held."""
        return attempt.settled is None and (not self._tasks[name].done() or attempt.alive)

    async def ready(self, attempt: RunningAttempt) -> None:
        """Wait for the late look of the chosen specialist; raises `Failed` if it fails."""
        task = self._tasks[attempt.backend.name]
        await task
        if attempt.settled is not None:
            raise Failed(f"{attempt.backend.name} failed while it was looked at", "cut", again=True)

    async def close(self) -> None:
        """Cancel looks in progress and wait until they have ended; their owner settles the attempts."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
