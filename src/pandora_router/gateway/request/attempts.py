"""One call to a specialist: opened, held until its first content, read to its end, settled exactly once.

`settle` is synchronous, and only its first call has an effect, whether it comes from the relay at the end of
a stream, a decision for another specialist, a cancelled task or a client that disconnected. It closes the
connection and queues the row, so nothing has to be shielded from cancellation. Before the first content
nothing of a stream has been sent to the client, so another specialist can still take over.
"""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator, Awaitable
from dataclasses import dataclass, field, replace

from pandora_router.gateway.providers.backend import Backend, Circuit
from pandora_router.gateway.providers.cost_bound import possible, reported
from pandora_router.prices import BYTES_PER_TOKEN, MARKERS, Lengths, as_asked, expected_bill
from pandora_router.router.decision import new_id
from pandora_router.store import log
from pandora_router.store.rows import Attempt, Kind, Outcome, Settlement, Status
from pandora_router.store.worker import Store
from pandora_router.transport.failures import Failed, waited
from pandora_router.transport.relay import Incoming, Relay
from pandora_router.wires.chat import without_chances
from pandora_router.wires.demand import PLAIN, Demand
from pandora_router.wires.events import DONE, TELLS, EventTooLarge, Frames, assembled, data_of, parsed
from pandora_router.wires.look import Glimpse
from pandora_router.wires.translator import Translator
from pandora_router.wires.usage import Usage, usage_of
from pandora_router.wires.wire import Wire

logger = logging.getLogger("pandora_router.gateway")
LARGEST_ANSWER = 64 * 2**20
OVERLOADED = frozenset({408, 409, 425, 429, *range(500, 600)})
"""Statuses after which another specialist, or the same one later, may answer; proxies send 520 to 526."""
OURS = frozenset({401, 402})
"""Statuses for which the gateway's own key or account is to blame; its client would look for its own key."""
UNREAD = 0.25
"""The largest share of its seconds for which an answer may not have been read, if its speed is learnt."""


@dataclass(eq=False)
class RunningAttempt:
    """A call in flight.

    size: the length of its request in bytes. most: the most tokens that it may write. prefix: the name of its
    system prompt (`prices.prefix_of`). kind: why the call is made; a look becomes an answer or a loser.
    strip_usage, strip_chances: what the gateway asked for and the client did not. owes: whether the provider
    may charge for it, whatever becomes of it. bounded: whether the request limits what it can cost; then a
    provider that claims more is not believed. background: whether the answer is written after the reply.
    stated: whether all input is in the request, so that its length tells how many tokens that is. wire: the
    specialist's; a `translator` makes its answer one of the client's wire. demand: what is asked of the
    specialist beside plain tokens. whole_asked: whether the answer was asked for in one piece. needs: the
    abilities that the request needs.
    """

    decision: str
    kind: Kind
    backend: Backend
    wire: Wire
    size: int
    most: int
    store: Store
    circuit: Circuit
    lengths: Lengths
    bounded: bool
    prefix: str = ""
    stated: bool = True
    background: bool = False
    whole_asked: bool = False
    strip_usage: bool = False
    strip_chances: bool = False
    translator: Translator | None = None
    demand: Demand = PLAIN
    needs: frozenset[str] = frozenset()
    id: str = field(default_factory=new_id)
    begun: float = field(default_factory=time.time)
    usage: Usage | None = None
    events: int = 0
    first_token: float | None = None
    failed: str | None = None
    response: str | None = None
    held: list[bytes] = field(default_factory=list)
    relay: Incoming | None = None
    settled: Settlement | None = None
    cost: int = 0
    owes: bool = False
    glimpse: Glimpse | None = None
    seen_at: float | None = None
    ended: float | None = None
    status: Status = "open"
    _frames: Frames = field(default_factory=Frames)
    _ended: bool = False
    _counted: bool = False
    _last_read: float = 0.0
    _paused: float = 0.0

    @property
    def row(self) -> Attempt:
        """The record that is written before the call is made.

        It is expected to cost no more than was reserved for it, whatever its provider claimed before
        (`Lengths.expected`): if this process dies, the estimate is charged.
        """
        cost = self.backend.cost(self.expected())
        return Attempt(self.id, self.decision, self.kind, self.backend.name, self.begun, cost)

    def expected(self, output: float | None = None) -> Usage:
        """The token counts expected of this call: of a whole answer, or with `output` tokens of it."""
        written = self.lengths.answer(self.most) if output is None else output
        plain = self.lengths.expected(self.size, self.wire.name, self.prefix, written, self.begun)
        return expected_bill(plain, self.demand)

    @property
    def _bound(self) -> int:
        """The most that was reserved for the call, in nanodollars."""
        return self.backend.bound(self.size, self.most, self.demand)

    @property
    def streams(self) -> bool:
        """Whether the answer is a stream of events."""
        assert self.relay is not None
        kind = self.relay.headers.get("content-type", "")
        return 200 <= self.relay.status < 300 and kind.startswith("text/event-stream")

    @property
    def alive(self) -> bool:
        """Whether a held stream can still continue, as far as is known without reading it."""
        return self.settled is None and (self._ended or (self.relay is not None and not self.relay.broken))

    async def open(self, path: str, body: bytes, headers: dict[str, str]) -> Relay:
        """Make the call and wait for its status; raises `Failed` without a response or a retryable one."""
        endpoint = self.backend.endpoint
        self.circuit.begin(time.monotonic())
        self.owes = True
        try:
            self.relay = await Relay.open(
                self.backend.address(path), body, headers, endpoint.timeout, endpoint.proxy()
            )
        except Failed as error:
            self.owes = error.charged
            raise
        status = self.relay.status
        self.owes = status < 400
        if status in OVERLOADED | OURS:
            what, wait = f"{self.backend.name} answered with status {status}", self.relay.headers
            raise Failed(what, "status", again=True, status=status, wait=waited(wait.get("retry-after")))
        return self.relay

    async def receive(self, reply: Awaitable[Incoming]) -> None:
        """Take the answer of a bidder instead of making a call; raises `Failed` if it does not deliver."""
        self.circuit.begin(time.monotonic())
        self.relay = await reply

    async def whole(self) -> bytes:
        """The body of an answer that is not streamed, with its usage read; raises `Failed`."""
        assert self.relay is not None
        body = await self.relay.read(LARGEST_ANSWER)
        answer = parsed(body)
        if answer is not None:
            self.usage, self._counted = usage_of(answer), True
            self.response = answer["id"] if isinstance(answer.get("id"), str) else None  # type: ignore[assignment]
        self.events = min(len(body) // BYTES_PER_TOKEN, self.most)
        self.first_token = time.time() - self.begun
        self._ended = True
        return body

    async def hold(self) -> None:
        """Read and buffer a stream until its first content; raises `Failed` if it fails before."""
        while self.first_token is None and not self._ended:
            await self._read()
        if self.first_token is None:
            raise Failed(f"{self.backend.name} ended without an answer", "cut", again=True, charged=True)

    async def look(self, glimpse: Glimpse) -> None:
        """Read a stream until `glimpse` has enough, then hold it; raises `Failed`."""
        self.glimpse = glimpse
        while not (glimpse.done and self.first_token is not None) and not self._ended:
            await self._read()
        await self.hold()
        self.seen_at = time.time()

    async def rest(self) -> AsyncIterator[bytes]:
        """The buffered part, then the stream to its end, as sent to the client.

        Raises `Failed` if it breaks.
        """
        yield b"".join(self.held)
        self.held.clear()
        while not self._ended:
            await self._read(begun=True)
            if self.held:
                yield b"".join(self.held)
                self.held.clear()

    async def assembled(self) -> bytes:
        """Read a stream that a look began to its end and return the whole answer; raises `Failed`."""
        frames, events = Frames(), list[bytes]()
        async for part in self.rest():
            events += frames.feed(part)
        if self.failed is not None:
            raise Failed(f"{self.backend.name} broke off", "cut", again=True, charged=True)
        body = assembled(self.wire.assembly(), [*events, frames.rest])
        if body is None:
            raise Failed("the stream ended before the answer did", "cut", again=True, charged=True)
        return body

    async def _read(self, *, begun: bool = False) -> None:
        """Read the next bytes; an error in the stream raises `Failed` unless sending has `begun`."""
        assert self.relay is not None
        if self._last_read:
            self._paused += time.time() - self._last_read
        chunk = await self.relay.chunk()
        self._last_read = time.time()
        if not chunk:
            self._ended = True
            if self._frames.rest:
                self.held.append(self._frames.rest)
            return
        if self._passes and (plain := self._frames.plain(chunk)) is not None:
            self.held.append(plain[0])
            self.events += plain[1]
            return
        try:
            frames = self._frames.feed(chunk)
        except EventTooLarge as error:
            raise Failed(str(error), "invalid reply", again=False, charged=True) from error
        for frame in frames:
            content = self._take(frame)
            if self.failed is not None and not begun:
                raise Failed(f"{self.backend.name} failed at the start", "cut", again=True, charged=True)
            if content and self.first_token is None:
                self.first_token = self._last_read - self.begun

    def _take(self, frame: bytes) -> bool:
        """Buffer a frame for the client, record its meaning, and return whether it has content."""
        data = data_of(frame)
        if self.strip_chances:
            frame = without_chances(frame)
        if not data or data == DONE:
            self.held.append(frame)
            return False
        self.events += 1
        if self.first_token is not None and not self._looking and TELLS.search(data) is None:
            self.held.append(frame)
            return True
        event = parsed(data)
        if event is None:
            self.held.append(frame)
            return False
        piece = self.wire.piece(event)
        if piece.usage is not None:
            self.usage = piece.usage if self.usage is None else piece.usage.after(self.usage)
            self._counted = piece.last
        self.failed = piece.failed or self.failed
        self.response = piece.response or self.response
        if self.glimpse is not None and self._looking:
            self.wire.show(event, self.glimpse)
        if not (piece.only_usage and self.strip_usage):
            self.held.append(frame)
        return piece.content

    @property
    def _looking(self) -> bool:
        """Whether a look has not seen enough yet."""
        return self.glimpse is not None and not self.glimpse.done

    @property
    def _passes(self) -> bool:
        """Whether events that only carry more content can be sent on without looking at each of them."""
        return self.first_token is not None and not self._looking and not self.strip_chances

    def lose(self) -> None:
        """End a look whose specialist was not chosen; a stream that has already ended counts as complete."""
        self.kind = "loser"
        if self.seen_at is not None:
            self.lengths.waited.add(time.time() - self.seen_at)
        self.settle("ok" if self._ended else "cancelled", "another specialist was chosen")

    def fail(self, reason: str) -> None:
        """Settle a call that its specialist failed, which counts against the specialist."""
        self.failed = self.failed or reason
        self.settle("error", reason)

    def settle(self, status: Status, reason: str = "") -> None:
        """Close the call and queue its row; only the first call does anything."""
        if self.settled is None:
            settlement = self.end(status, reason)
            self.store.keep(lambda open_: log.settle(open_, settlement), short=True, of=self.decision)

    def end(self, status: Status, reason: str = "") -> Settlement:
        """Close the call and return its settlement, which the caller must write; not after `settle`."""
        if self.relay is not None:
            self.relay.close()
        self.ended = now = time.time()
        self.status = status
        if status == "ok" or (status == "cancelled" and self.first_token is not None):
            self.circuit.succeed(self.needs if status == "ok" else frozenset())
        elif status == "error" and self.failed is not None:
            if self.circuit.fail(time.monotonic()):
                logger.warning(
                    "%s failed %d times in a row and gets no requests for %.0f s; last: %s",
                    *(self.backend.name, self.circuit.failures, self.circuit.pause, self.failed[:300]),
                )
        else:  # the client left, or what it sent was refused
            self.circuit.abandon()
        usage, reason = self._charged(self._used(status, now), reason)
        if status == "ok" and self.owes and usage.complete:
            self.lengths.answered(
                usage,
                self._read_in(now),
                size=self.size,
                wire=self.wire.name,
                most=self.most,
                prefix=self.prefix,
                now=now,
                first_token=self.first_token if self.relay is not None and self.streams else None,
                events=self.events,
                stated=self.stated,
            )
        outcome = Outcome(status, self.cost, usage, self.first_token, now - self.begun, reason[:300])
        self.settled = Settlement(self.id, outcome, now, self.kind)
        return self.settled

    def _read_in(self, now: float) -> float | None:
        """The seconds of an answer that ended by `now`; None if a held look or its client let it wait."""
        seconds = (self._last_read or now) - self.begun
        return seconds if self._paused <= UNREAD * seconds else None

    def _charged(self, usage: Usage, reason: str) -> tuple[Usage, str]:
        """Set the cost; returns the counts and the reason to be recorded.

        An estimate never exceeds what was reserved, nor does a claim that cannot be true: then the bound is
        charged, the counts are cut to it, and a claim is reported in the log and in the reason.
        """
        if not self.owes:
            return usage, reason
        most, bound = self.size + MARKERS, self._bound
        if possible(usage):
            self.cost = self.backend.cost(usage)
            if self.cost <= bound or (usage.complete and not self.bounded):
                return usage, reported(self.backend, usage, reason)
        cut = replace(
            usage,
            fresh=min(usage.fresh, most),
            cached=min(usage.cached, most),
            written=min(usage.written, most),
            output=min(usage.output, self.most),
            complete=False,
        )
        self.cost = bound
        if not usage.complete:
            return cut, reason
        claim = f"{usage.read:,} tokens read and {usage.output:,} written"
        logger.warning(
            "%s claims %s in a call of %d bytes that allows %d tokens; its bound is charged (decision %s)",
            *(self.backend.name, claim, self.size, self.most, self.decision),
        )
        return cut, f"{reason} more was claimed than the request allows: {claim}".strip()

    def _used(self, status: Status, now: float) -> Usage:
        """The provider's token counts, or an estimate of what it charged if they are missing or not final.

        What is missing of the input is expected from the length of the request. The output of a complete
        answer is the larger of what arrived and what is usual; that of an answer in the background, which is
        written later, the longest possible. The output of a cancelled call is what arrived, what the provider
        wrote without showing it (`Lengths.written`), and what it wrote while the answer was held. Unless
        billing is known to stop then (`cancel: stops`), a whole answer is counted: for a look that lost, of
        the length measured so far; else the longest possible one, because the client could ask for long
        answers, leave early and pay for short ones.
        """
        if self.usage is not None and self.usage.complete and (self._counted or status == "ok"):
            return as_asked(self.usage, self.demand, counted=self.wire.name != "chat")
        known = self.usage or Usage(complete=False)
        if not known.read:
            tier, speed = known.service_tier, known.speed
            known = replace(self.expected(known.output), service_tier=tier, speed=speed)
        written = max(self.events, known.output)
        if self.background:
            written = max(written, self.most)
        elif status == "ok":
            written = max(written, round(self.lengths.answer(self.most)))
        elif status == "cancelled":
            if self.backend.cancel != "stops":
                usual = self.lengths.output.given(self.most) if self.kind == "loser" else self.most
                written = max(written, round(min(usual, self.most)))
            else:
                seen, streamed = (self.events, self.first_token, now - self.begun), not self.whole_asked
                made = self.lengths.written(*seen, streamed=streamed)
                if self.seen_at is not None and not self._ended:
                    made += self._rate() * (now - self._last_read)
                written = max(written, min(round(made), self.most))
        return as_asked(replace(known, output=max(written, 0), complete=False), self.demand)

    def _rate(self) -> float:
        """Tokens per second of this stream, from its first content to what was last read of it."""
        seconds = self._last_read - self.begun - (self.first_token or 0.0)
        if seconds > 0.01 and self.events > 1:
            return (self.events - 1) / seconds
        return self.lengths.rate.given(0.0)
