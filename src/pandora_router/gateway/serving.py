"""Answer one request: admit, choose, reserve, call, fail over, relay, settle. One ASGI exchange.

    read the body -> identify the key -> who may answer -> who should -> write the decision and reserve
    -> call -> hold until the first content -> (fail over) -> status and headers -> body -> settle and close

The decision is in the store before the headers leave. Whatever happens, every attempt is settled once and
the decision is closed once; a client that leaves cancels the call upstream.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from pandora_router.errors import UpstreamError, UsageError
from pandora_router.gateway import choosing
from pandora_router.gateway.asgi import Refused, Send
from pandora_router.gateway.attempts import RunningAttempt, new_id
from pandora_router.gateway.choosing import Choice
from pandora_router.gateway.eligible import Constraints, exclusions
from pandora_router.gateway.frames import framed
from pandora_router.gateway.health import Circuit
from pandora_router.gateway.site import Site
from pandora_router.gateway.wires import Turn, Wire
from pandora_router.store import accounts, log
from pandora_router.store.database import Transaction
from pandora_router.store.money import dollars, nanodollars
from pandora_router.store.rows import DecisionRow, Key, Refusal
from pandora_router.store.worker import Store
from pandora_router.transport.failures import Failed

PASSED = ("anthropic-version", "anthropic-beta", "openai-organization", "openai-project", "openai-beta")
"""Headers of a client that are passed on to the specialist."""
ATTEMPTS = 3
"""At most this many specialists are asked for one request."""
STATUS = {"unknown key": 401, "revoked key": 401, "rate": 429, "budget": 429}


@dataclass
class Exchange:
    """One request and what became of it."""

    site: Site
    store: Store
    circuits: Mapping[str, Circuit]
    wire: Wire
    headers: Mapping[str, str]
    rng: random.Random
    begun: float = field(default_factory=time.time)
    id: str = field(default_factory=new_id)
    body: bytes = b""
    parsed: dict[str, Any] = field(default_factory=dict)
    turn: Turn | None = None
    key: Key | None = None
    session: str | None = None
    choice: Choice | None = None
    excluded: dict[str, str] = field(default_factory=dict)
    attempts: list[RunningAttempt] = field(default_factory=list)
    opened: bool = False
    overhead: float = 0.0

    @property
    def asked(self) -> Turn:
        """What the request asks for; known once it was read."""
        assert self.turn is not None
        return self.turn

    async def serve(self, body: bytes, send: Send) -> None:
        """Answer the request whose body is here; raises `Refused` before anything was sent."""
        self.body = body
        self.read()
        await self.identify()
        await self.choose()
        await self.answer(send)

    def read(self) -> None:
        """Parse the body; raises `Refused` with status 400 if it is no request of this wire."""
        try:
            parsed = orjson.loads(self.body)
        except orjson.JSONDecodeError as error:
            raise Refused(400, f"The body is not JSON: {error}", "invalid_json") from None
        if not isinstance(parsed, dict):
            raise Refused(400, "The body is not a JSON object.", "invalid_json")
        self.parsed = parsed
        try:
            self.turn = self.wire.read(parsed)
        except UsageError as error:
            raise Refused(400, str(error), "invalid_request") from None

    async def identify(self) -> None:
        """Find the key of the client; raises `Refused` with 401 if keys are needed and this is none."""
        if not self.site.settings.keys:
            return
        bearer = self.headers.get("authorization", "").removeprefix("Bearer ").strip()
        secret = self.headers.get("x-api-key") or bearer
        found = await self.store.run(lambda open_: accounts.identify(open_, secret))
        if isinstance(found, Refusal):
            raise Refused(401, found.message, "invalid_api_key")
        self.key = found

    async def choose(self) -> None:
        """Say who answers; raises `Refused` if nobody may."""
        site, turn = self.site, self.asked
        try:
            routed, router = site.routed(turn.model)
            constraints = Constraints.read(self.headers, turn, site.names)
        except UsageError as error:
            code = "model_not_found" if error.what == "model" else "invalid_request"
            raise Refused(404 if code == "model_not_found" else 400, str(error), code) from None
        switch = self.headers.get("x-pandora-router", "on")
        if switch not in ("on", "off"):
            raise Refused(400, "x-pandora-router: expected on or off.", "invalid_request")
        now = time.monotonic()
        self.excluded = exclusions(
            site.backends, self.wire.name, turn, len(self.body), constraints, self.circuits, now
        )
        offered = [name for name in site.names if name not in self.excluded]
        if not routed:
            offered = [name for name in offered if name == turn.model]
        if not offered:
            why = self.excluded.get(turn.model) or "; ".join(f"{k}: {v}" for k, v in self.excluded.items())
            failing = all("failing" in reason for reason in self.excluded.values())
            raise Refused(503 if failing else 400, f"No specialist can answer: {why}.", "no_specialist")
        self.choice = await self._choice(routed, router, offered, switch == "off")

    async def _choice(self, routed: bool, router: Any, offered: list[str], off: bool) -> Choice:
        turn, settings = self.asked, self.site.settings
        if not routed:
            return choosing.by_name(turn.model)
        owner = self.key.id if self.key else None
        self.session = choosing.session_of(turn, self.headers, owner)
        if turn.continues:
            sessions = [f"response:{turn.previous}"] if turn.previous else []
            kept = await self._pinned([*sessions, self.session])
            if kept in offered:
                return choosing.pinned(kept, offered)
        if off:
            return choosing.fallback(settings, offered, "routing was switched off by the request")
        if router is None:
            return choosing.fallback(settings, offered, "no router is fitted")
        if not turn.prompt.strip():
            return choosing.fallback(settings, offered, "the request has no text to judge")
        return await choosing.decide(router, turn, offered, settings, self.rng)

    async def _pinned(self, sessions: list[str]) -> str | None:
        def look(open_: Transaction) -> str | None:
            return next((name for s in sessions if (name := log.pinned(open_, s, self.begun))), None)

        return await self.store.run(look)

    async def answer(self, send: Send) -> None:
        """Ask the chosen specialist, and the next ones if it fails before its first content."""
        assert self.choice is not None
        failure: Failed | None = None
        for name in self.choice.ranked[:ATTEMPTS]:
            attempt = self._attempt(name)
            await self._record(attempt)
            try:
                await self._ask(attempt, send)
                return
            except Failed as error:
                failure = error
                attempt.settle("error", str(error))
        status = 504 if failure is not None and failure.failure == "timeout" else 502
        raise Refused(status, f"No specialist answered: {failure}.", "upstream_failed")

    def _attempt(self, name: str) -> RunningAttempt:
        backend = self.site.backend(name)
        strip = self.wire.name == "chat" and not self.asked.wants_usage
        attempt = RunningAttempt(
            *(
                self.id,
                "retry" if self.attempts else "answer",
                backend,
                self.wire,
                len(self.body),
                self.store,
            ),
            circuit=self.circuits[name],
            strip_usage=strip,
        )
        self.attempts.append(attempt)
        return attempt

    async def _record(self, attempt: RunningAttempt) -> None:
        """Write the decision and reserve its worst case, or write one more attempt; raises `Refused`."""
        row = attempt.row
        if self.opened:
            await self._stored(lambda open_: log.attempt(open_, row))
            return
        self.overhead = time.time() - self.begun
        decision, key = self._row(attempt.backend.name), self.key
        assert self.choice is not None
        ranked = [self.site.backend(name) for name in self.choice.ranked[:ATTEMPTS]]
        worst = max(one.worst_case(len(self.body), self.asked) for one in ranked)
        kept = self.site.settings.bodies
        prompt = choosing.asked(self.asked) if kept else None
        request = self.body.decode("utf-8", "replace") if kept else None

        def begin(open_: Transaction) -> Refusal | None:
            refused = None
            if key is not None:
                refused = accounts.admit(open_, key, self.begun) or accounts.reserve(
                    open_, key, self.id, worst, self.begun, self.site.settings.lease
                )
            if refused is None:
                log.begin(open_, decision, [row], prompt=prompt, request=request)
                if self.session is not None:
                    log.pin(open_, self.session, decision.specialist, self.begun, self.site.settings.session)
            return refused

        refused = await self._stored(begin)
        if refused is not None:
            self.attempts.remove(attempt)
            headers = {"x-should-retry": "false"} if refused.reason == "budget" else {}
            if refused.retry_after is not None:
                headers["retry-after"] = str(int(refused.retry_after) + 1)
            code = "insufficient_quota" if refused.reason == "budget" else "rate_limit_exceeded"
            raise Refused(STATUS[refused.reason], refused.message, code, headers)
        self.opened = True

    async def _stored(self, operation: Callable[[Transaction], Any]) -> Any:
        """Run a store operation; a request whose decision cannot be written is not served."""
        try:
            return await self.store.run(operation)
        except UpstreamError as error:
            raise Refused(503, f"The decision could not be recorded: {error}.", "store_failed") from error

    def _row(self, specialist: str) -> DecisionRow:
        choice = self.choice
        assert choice is not None
        return DecisionRow(
            id=self.id,
            at=self.begun,
            key=self.key.id if self.key else None,
            wire=self.wire.name,
            mode=self.site.settings.mode,
            policy=choice.policy,
            artifact=choice.artifact,
            generation=self.site.generation,
            specialist=specialist,
            proposed=choice.proposed,
            propensity=choice.propensity,
            session=self.session,
            declined=choice.declined,
            inspected=len(choice.inspected),
            inspection_cost=nanodollars(max(choice.inspection_cost, 0.0)),
            overhead=self.overhead,
            detail={"decision": choice.detail, "excluded": self.excluded, "ranked": choice.ranked},
        )

    async def _ask(self, attempt: RunningAttempt, send: Send) -> None:
        """Call one specialist and relay what it says; raises `Failed` while another can take over."""
        backend, wire, turn = attempt.backend, self.wire, self.asked
        body = backend.request(wire.name, self.body, self.parsed, turn)
        passed = {name: self.headers[name] for name in PASSED if name in self.headers}
        relay = await attempt.open(wire.path, body, backend.sent_headers(wire.name, passed))
        kind = relay.headers.get("Content-Type", "application/json")
        if not (200 <= relay.status < 300 and kind.startswith("text/event-stream")):
            answer = await attempt.whole()
            attempt.settle("ok" if relay.status < 400 else "error", f"status {relay.status}")
            await self._finish("ok" if relay.status < 400 else "error", attempt, answer)
            await self._send_whole(send, relay.status, kind, answer)
            return
        await attempt.hold()
        await self._relay(attempt, send, kind)

    async def _relay(self, attempt: RunningAttempt, send: Send, kind: str) -> None:
        """Send a stream whose first content is there; the specialist can no longer change."""
        start = {"type": "http.response.start", "status": 200, "headers": self._headers(attempt, kind)}
        await send(start)
        try:
            async for part in attempt.rest():
                if part:
                    await send({"type": "http.response.body", "body": part, "more_body": True})
        except Failed as error:
            attempt.failed = str(error)
            for name, event in self.wire.failure(f"{attempt.backend.name} broke off."):
                await send({"type": "http.response.body", "body": framed(name, event), "more_body": True})
        status = "ok" if attempt.failed is None else "error"
        attempt.settle(status, attempt.failed or "")  # type: ignore[arg-type]
        await self._finish(status, attempt)
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send_whole(self, send: Send, status: int, kind: str, answer: bytes) -> None:
        headers = [*self._headers(self.attempts[-1], kind), (b"content-length", str(len(answer)).encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": answer, "more_body": False})

    async def _finish(self, status: str, attempt: RunningAttempt, answer: bytes | None = None) -> None:
        """Close the decision in the store, after its attempts."""
        now, first = time.time(), attempt.first_token
        since = None if first is None else first + attempt.begun - self.begun
        response = answer.decode("utf-8", "replace") if answer and self.site.settings.bodies else None
        previous = f"response:{attempt.response}" if attempt.response else None

        def close(open_: Transaction) -> None:
            log.close(
                open_,
                self.id,
                now,
                status=status,
                specialist=attempt.backend.name,
                first_token=since,
                seconds=now - self.begun,
                response=response,
            )
            if previous is not None and self.wire.name == "responses":
                log.pin(open_, previous, attempt.backend.name, now, self.site.settings.session)

        await self._stored(close)

    def abandon(self, status: str) -> None:
        """Settle what is still open, on any way out; waits for nothing and raises nothing."""
        for attempt in self.attempts:
            attempt.settle("cancelled" if status == "cancelled" else "error", status)
        if self.opened:
            now = time.time()
            self.store.submit(
                lambda open_: log.close(open_, self.id, now, status=status, seconds=now - self.begun)
            )

    def _headers(self, attempt: RunningAttempt, kind: str) -> list[tuple[bytes, bytes]]:
        choice = self.choice
        assert choice is not None
        told = {
            "content-type": kind,
            "x-pandora-specialist": attempt.backend.name,
            "x-pandora-decision-id": self.id,
            "x-pandora-policy": choice.policy,
            "x-pandora-inspected": ",".join(choice.inspected),
            "x-pandora-inspection-cost": f"{dollars(nanodollars(max(choice.inspection_cost, 0.0))):.9g}",
            "x-pandora-overhead-ms": f"{1000.0 * self.overhead:.2f}",
        }
        return [(name.encode(), value.encode("latin-1", "replace")) for name, value in told.items()]
