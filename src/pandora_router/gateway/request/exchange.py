"""Answers one request to the gateway, from its body to the last byte of the response:

read the body and identify the API key; find the specialists that may answer and choose one (with live looks
if they pay); store the decision and reserve its worst-case cost; call the specialist, or continue the stream
that its look began; on failure before the first content ask the next; send the response; settle and close.

The decision and the cancelled looks are in the store before headers are sent. Every attempt is settled
exactly once and the decision is closed exactly once. If the client disconnects, calls upstream are cancelled.
"""

from __future__ import annotations

import functools
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pandora_router.errors import UsageError
from pandora_router.gateway.generation import Profile, Site
from pandora_router.gateway.http.client_stream import Sending
from pandora_router.gateway.providers.backend import Circuit
from pandora_router.gateway.providers.cost_bound import refuse_later
from pandora_router.gateway.request import auction_choice, choice, eligible
from pandora_router.gateway.request.attempts import RunningAttempt
from pandora_router.gateway.request.auction_choice import AuctionRequest, RequestAuction
from pandora_router.gateway.request.calls import Caller, Succession, accepted, broken_off, crossed, translated
from pandora_router.gateway.request.choice import Choice, about, best_single, single_cost
from pandora_router.gateway.request.eligible import Constraints, read_request
from pandora_router.gateway.request.ledger import Ledger, identify, refusal
from pandora_router.gateway.request.looks import LiveLooks
from pandora_router.gateway.request.trial import on_trial, toss
from pandora_router.prices import Lengths
from pandora_router.router import Router
from pandora_router.router.decision import new_id
from pandora_router.store.money import nanodollars
from pandora_router.store.rows import DecisionRow, Draw, Kind, Refusal, Status
from pandora_router.store.worker import Store
from pandora_router.transport.asgi import Refused
from pandora_router.transport.failures import Failed
from pandora_router.wires.look import lookable
from pandora_router.wires.wire import Turn, Wire


@dataclass
class Exchange:
    """One request and its result; `measured`: lengths and speeds of earlier calls, by specialist."""

    site: Site
    store: Store
    circuits: Mapping[str, Circuit]
    measured: Mapping[str, Lengths]
    wire: Wire
    headers: Mapping[str, str]
    rng: random.Random
    begun: float = field(default_factory=time.time)
    id: str = field(default_factory=new_id)
    body: bytes = b""
    parsed: dict[str, Any] = field(default_factory=dict)
    turn: Turn | None = None
    left: int | None = None
    choice: Choice | None = None
    profile: Profile | None = None
    excluded: dict[str, str] = field(default_factory=dict)
    attempts: list[RunningAttempt] = field(default_factory=list)
    looks: LiveLooks | None = None
    auction: RequestAuction | None = None
    would_look: list[str] = field(default_factory=list)
    overhead: float = 0.0
    inspection_cost: int = 0
    worker: str | None = None
    draw: Draw | None = None

    def __post_init__(self) -> None:
        self.ledger = Ledger(self.id, self.store, self.site.settings, self.begun, self.worker)

    @property
    def asked(self) -> Turn:
        """The parsed request; only valid after `read`."""
        assert self.turn is not None
        return self.turn

    @functools.cached_property
    def calls(self) -> Caller:
        """Makes the calls to specialists; only valid after `read`."""
        shared = (self.site, self.store, self.circuits, self.measured)
        return Caller(self.id, *shared, self.wire, self.headers, self.body, self.parsed, self.asked)

    @property
    def chosen(self) -> Choice:
        """The choice of the specialist; only valid after `choose`."""
        assert self.choice is not None
        return self.choice

    @property
    def answered(self) -> RunningAttempt | None:
        """The last attempt to answer (not a look); None if there was none."""
        answering = (attempt for attempt in reversed(self.attempts) if attempt.kind in ("answer", "retry"))
        return next(answering, None)

    async def serve(self, body: bytes, send: Sending) -> None:
        """Answer the request with this body; raises `Refused` before anything was sent."""
        self.body = body
        self.read()
        await self.identify()
        try:
            await self.choose(call=True)
            await self.answer(send)
        finally:
            if self.looks is not None:
                await self.looks.close()

    def read(self) -> None:
        """Parse the body; raises `Refused` with status 400 if it is not a request of this wire."""
        self.body, self.parsed = read_request(self.body)
        try:
            self.turn = replace(turn := self.wire.read(self.parsed), model=self.site.meant(turn.model))
        except UsageError as error:
            raise Refused(400, str(error), "invalid_request") from None

    async def identify(self) -> None:
        """Find the client's key; raises `Refused` with 401 if keys are required and it is invalid."""
        keys, self.ledger.shared = self.site.settings.keys, self.site.budgets(self.asked.model)
        if not keys and not self.ledger.shared:
            return
        found = await identify(self.store, self.headers, self.begun, self.ledger.shared, keys=keys)
        self.ledger.key, self.left = found
        refuse_later(self.parsed, self.left)

    async def choose(self, *, call: bool = False) -> None:
        """Choose the specialist, with live looks if `call` is true; raises `Refused` if none may answer."""
        site, turn = self.site, self.asked
        try:
            self.profile = site.profile(turn.model)
            if site.market is not None and self.profile is not None:
                self.site = site = await auction_choice.joined(site.market, self.store, site)
            constraints = Constraints.read(self.headers, turn, site.names)
        except UsageError as error:
            code = "model_not_found" if error.what == "model" else "invalid_request"
            raise Refused(404 if code == "model_not_found" else 400, str(error), code) from None
        switch = self.headers.get("x-pandora-router", "on")
        if switch not in ("on", "off"):
            raise Refused(400, "x-pandora-router: expected on or off.", "invalid_request")
        now, unreached = time.monotonic(), self.calls.crossing.unreached
        candidates = site.backends if self.profile is not None else (site.backend(turn.model),)
        self.excluded = eligible.exclusions(
            *(candidates, unreached, turn, self.calls.size, constraints, self.circuits, now),
            profile=self.profile,
            **self.calls.costs(budget=self.left is not None),
        )
        offered = [backend.name for backend in candidates if backend.name not in self.excluded]
        if self.profile is not None and self.left is not None:
            costs = {name: self.calls.worst_case(name) for name in offered}
            self.excluded |= eligible.unaffordable(costs, self.left)
            offered = [name for name in offered if name not in self.excluded]
        if not offered:
            asked = [turn.model] if self.profile is None else list(self.excluded)
            raise eligible.nobody(self.excluded, asked, self.circuits, now)
        self.choice = await self._choice(offered, switch == "off", call)

    async def _choice(self, offered: list[str], off: bool, call: bool) -> Choice:
        turn, settings = self.asked, self.site.settings
        if self.profile is None:
            return choice.by_name(turn.model)
        self.ledger.session = session = choice.session_of(turn, self.headers, self.ledger.owner)
        if turn.continues and (turn.previous or self.site.market is None):
            sessions = [choice.response_session(turn.previous, self.ledger.owner)] if turn.previous else []
            known = await self.ledger.pinned([*sessions, session])
            if (locked := choice.locked(known, turn, settings, self.profile, offered)) is not None:
                return locked
        router = self.profile.router
        if off:
            return choice.fallback(settings, offered, "routing was switched off by the request")
        if self.site.market is not None and turn.prompt.strip():
            return await self._auctioned(offered, call)
        if router is None:
            return choice.fallback(settings, offered, "no router is fitted")
        if not turn.prompt.strip():
            return choice.fallback(settings, offered, "the request has no text to judge")
        router = self.site.current(router, self.profile.second, self.measured, self.profile.until)
        router, stay = choice.priced(router, self.site, known := self.ledger.known, self.begun)
        self.looks = self._live(router, offered) if call else None
        begun = None
        if call and stay is None and (other := on_trial(self.site, turn.model, self.measured)) is not None:
            sides = ((router, self.looks), (other, self._live(other, offered)))
            begun = await toss(sides, self.site.candidate, choice.asked(turn), offered, self.rng)
        if begun is not None:
            router, self.looks, self.draw = begun.router, begun.looks, begun.draw
        parts = (router, turn, offered, settings, self.rng, self.looks, stay, begun)
        made = await choice.decide(*parts, call=call, lessons=self.site.lessons)
        first = call and known is None
        return choice.in_session(choice.compared(made, self.site.mix, turn, first), known, offered)

    async def _auctioned(self, offered: list[str], call: bool) -> Choice:
        request = AuctionRequest(self.id, self.wire, self.headers, self.parsed, self.asked, offered, call)
        choice, self.auction = await auction_choice.hold(self.site, self.store, self.profile, request)
        return choice

    def _live(self, router: Router, offered: Sequence[str]) -> LiveLooks | None:
        """The live looks of this request; None if its router needs none or none is possible."""
        if router.predictor is None:
            return None
        site, shows = self.site, self.calls.crossing.shows
        names = frozenset(name for name in offered if name in router.needs and shows(site.backend(name)))
        if not names or not lookable(self.parsed):
            return None
        assert self.profile is not None

        async def record(attempts: Sequence[RunningAttempt]) -> bool:
            if self.site.settings.mode == "observe":  # no look is made; the first ones are recorded
                self.would_look += [attempt.backend.name for attempt in attempts]
                return False
            return await self._record_looks(router, offered, attempts)

        start = functools.partial(self.calls.attempt, kind="inspection")
        return LiveLooks(router, names, self.calls.quote, start, record, self.calls.look, self.profile.second)

    async def _record_looks(
        self, router: Router, offered: Sequence[str], attempts: Sequence[RunningAttempt]
    ) -> bool:
        """Store looks before they are made and reserve their worst-case cost; false if over budget."""
        self.attempts += attempts
        if self.ledger.opened:
            await self.ledger.add(attempts)
            return True
        assert self.looks is not None
        first = attempts[0].backend.name
        self.choice = Choice((first,), first, router.policy_text, router.id)
        refused = await self._begin(attempts, self.calls.worst_with(self.looks.names, offered))
        if refused is None:
            return True
        self.attempts.clear()
        if refused.reason != "budget":
            raise refusal(refused)
        return False

    async def answer(self, send: Sending) -> None:
        """Ask the chosen specialist, and the next ones if it fails before its first content.

        A specialist without a replacement is asked again after a pause, unless it took too long.
        """
        order, begun = self.chosen.ranked, None
        if self.looks is not None:
            order, begun = self.looks.take(order)
            self.choice = self.chosen.reordered(order)
        failure: Failed | None = None
        succession = Succession(order, self.site, self.circuits, self.auction)
        name: str | None = order[0]
        while name is not None:
            attempt = begun if begun is not None and failure is None else self.calls.attempt(name, self._kind)
            await self._record(attempt)
            try:
                await self._ask(attempt, send, last=succession.last)
                return
            except Failed as error:
                attempt.fail(str(error))
                failure, name = error, await succession.after(error)
        assert failure is not None
        why = f"No specialist answered; the last failure: {failure.brief}."
        raise Refused(504 if failure.failure == "timeout" else 502, why, "upstream_failed")

    @property
    def _kind(self) -> Kind:
        """The kind of the next call: a retry if another one was made before."""
        return "retry" if any(attempt.kind in ("answer", "retry") for attempt in self.attempts) else "answer"

    async def _record(self, attempt: RunningAttempt) -> None:
        """Store or update the decision and reserve its worst-case cost; raises `Refused` if not allowed."""
        fresh = [] if attempt in self.attempts else [attempt]
        self.attempts += fresh
        if first := not self.overhead:
            self.overhead = time.time() - self.begun
            lost = sum(made.cost for made in self.attempts if made.kind in ("loser", "inspection"))
            self.inspection_cost = lost + nanodollars(self.chosen.estimates)
        if self.ledger.opened:
            worst = self.calls.worst_case(attempt.backend.name) if fresh else 0
            await (self.ledger.revise(self._row(), fresh, worst) if first else self.ledger.add(fresh, worst))
            return
        worst = 0 if not self.ledger.counted else self.calls.worst_in(self.chosen.ranked)
        refused = await self._begin([attempt], worst, self.calls.worst_case(attempt.backend.name))
        if refused is not None:
            self.attempts.clear()
            raise refusal(refused)

    async def _begin(self, attempts: Sequence[RunningAttempt], worst: int, least: int = 0) -> Refusal | None:
        kept, bought = self.site.settings.bodies, nanodollars(self.chosen.estimates)
        return await self.ledger.begin(
            self._row(),
            attempts,
            worst,
            least=least,
            own=0 if self.chosen.outside else bought,
            judged=bought if self.chosen.outside else 0,
            prompt=choice.asked(self.asked) if kept else None,
            request=self.body.decode("utf-8", "replace") if kept else None,
        )

    def _row(self) -> DecisionRow:
        choice, single = self.chosen, best_single(self.profile)
        return DecisionRow(
            id=self.id,
            at=self.begun,
            key=self.ledger.owner,
            wire=self.wire.name,
            mode=choice.mode(self.site.settings),
            policy=choice.policy,
            artifact=choice.artifact,
            generation=self.site.generation,
            specialist=choice.specialist,
            proposed=choice.proposed,
            **choice.pick,
            session=self.ledger.session,
            declined=choice.declined,
            inspected=len(choice.inspected),
            inspection_cost=self.inspection_cost,
            baseline=None if single is None else single_cost(self.calls.quote(single), None, self.begun),
            overhead=self.overhead,
            detail=choice.stored(self.parsed["model"], self.excluded, self.would_look),
            draw=self.draw,
        )

    async def _ask(self, attempt: RunningAttempt, send: Sending, *, last: bool) -> None:
        """Call one specialist and relay its answer; raises `Failed` while another can still take over."""
        if self.asked.stream:
            send.promise(self._headers(attempt, "text/event-stream; charset=utf-8"))
        if self.looks is not None and attempt is self.looks.attempts.get(attempt.backend.name):
            await self.looks.ready(attempt)
        elif self.auction is not None and self.auction.delivers(attempt.backend.name):
            await attempt.receive(self.auction.answer(attempt, stream=self.asked.stream))
        else:
            await self.calls.open(attempt)
        assert attempt.relay is not None
        kind = attempt.relay.headers.get("content-type", "application/json")
        if not attempt.streams:
            status, answer = await accepted(attempt, last=last)
        elif self.asked.stream:
            await attempt.hold()
            await self._relay(attempt, send, kind)
            return
        else:
            status, kind, answer = 200, "application/json", await attempt.assembled()
        answer = translated(attempt.translator, status, answer)
        await self._finish("ok" if status < 400 else "error", attempt, f"status {status}", answer)
        await self._send_whole(send, attempt, status, kind, answer)

    async def _relay(self, attempt: RunningAttempt, send: Sending, kind: str) -> None:
        """Send a stream whose first content has arrived; from now on no other specialist can take over."""
        headers = self._headers(attempt, kind)
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        try:
            async for part in crossed(attempt.translator, attempt.rest()):
                if part:
                    await send({"type": "http.response.body", "body": part, "more_body": True})
        except Failed as error:
            attempt.failed = str(error)
            end = broken_off(attempt.translator, self.wire, f"{attempt.backend.name} broke off.")
            await send({"type": "http.response.body", "body": end, "more_body": True})
        await self._finish("ok" if attempt.failed is None else "error", attempt, attempt.failed or "")
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send_whole(
        self, send: Sending, attempt: RunningAttempt, status: int, kind: str, answer: bytes
    ) -> None:
        headers = [*self._headers(attempt, kind), (b"content-length", str(len(answer)).encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": answer, "more_body": False})

    async def _finish(
        self, status: Status, attempt: RunningAttempt, reason: str, answer: bytes | None = None
    ) -> None:
        """Settle the call that answered and close the decision in the store."""
        last = attempt.end(status, reason)  # nothing waits between this and the write that settles it
        auction = None if self.auction is None else self.auction.end(answered=status == "ok")
        single = best_single(self.profile)
        renamed = attempt.backend.name != self.chosen.specialist
        stored = attempt.reader.response if self.wire.stored and attempt.translator is None else None
        following = choice.response_session(stored, self.ledger.owner) if stored else None
        pins = [session for session in (self.ledger.session, following) if session is not None]
        await self.ledger.close(
            status,
            attempt,
            last,
            renamed=renamed,
            baseline=None if single is None else single_cost(self.calls.quote(single), attempt, self.begun),
            response=answer.decode("utf-8", "replace") if answer and self.site.settings.bodies else None,
            pins=dict.fromkeys(pins, choice.after_answer(attempt, self.ledger.known, time.time())),
            auction=auction,
        )

    def abandon(self, status: str) -> None:
        """Settle everything that is still open; does not wait and raises nothing."""
        for attempt in self.attempts:
            attempt.settle("cancelled" if status == "cancelled" else "error", status)
        self.ledger.abandon(status)
        if self.auction is not None:
            self.auction.abandon()

    def _headers(self, attempt: RunningAttempt, kind: str) -> list[tuple[bytes, bytes]]:
        return about(self.chosen, self.id, attempt, kind, self.inspection_cost, self.overhead)
