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

from pandora_router.gateway.providers.backend import Backend, Circuit, SpokenReply, Tool
from pandora_router.gateway.providers.cost_bound import Quote
from pandora_router.prices import BYTES_PER_TOKEN, as_asked
from pandora_router.router.decision import new_id
from pandora_router.store import log
from pandora_router.store.rows import Attempt, Kind, Outcome, Settlement, Status
from pandora_router.store.worker import Store
from pandora_router.transport.failures import Failed, waited
from pandora_router.transport.relay import Incoming, Relay
from pandora_router.wires.events import AnswerReader, EventTooLarge, assembled
from pandora_router.wires.look import Glimpse
from pandora_router.wires.translator import Translator
from pandora_router.wires.usage import Usage

logger = logging.getLogger("pandora_router.gateway")
LARGEST_ANSWER = 64 * 2**20
OVERLOADED = frozenset({408, 409, 425, 429, *range(500, 600)})
"""Statuses after which another specialist, or the same one later, may answer; proxies send 520 to 526."""
OURS = frozenset({401, 402})
"""Statuses for which the gateway's own key or account is to blame; its client would look for its own key."""
UNREAD = 0.25
"""The largest share of its seconds for which an answer may not have been read, if its speed is learnt."""

PATIENCE = 10
"""A stream may keep its client waiting for content so many times as long as it may be silent."""
SURE = 1.0
"""Seconds of waiting after which it is checked whether what arrives has content: each event is not parsed."""


@dataclass(eq=False)
class RunningAttempt:
    """A call in flight.

    kind: why the call is made; a look becomes an answer or a loser. quote: what it may cost. reader: what its
    answer said so far; a `translator` makes that one of the client's wire. owes: whether the provider may
    charge for the call, whatever becomes of it. background: whether the answer is written after the reply.
    whole_asked: whether the answer was asked for in one piece. needs: the abilities that the request needs.
    """

    decision: str
    kind: Kind
    quote: Quote
    reader: AnswerReader
    store: Store
    circuit: Circuit
    background: bool = False
    whole_asked: bool = False
    translator: Translator | None = None
    needs: frozenset[str] = frozenset()
    id: str = field(default_factory=new_id)
    begun: float = field(default_factory=time.time)
    first_token: float | None = None
    failed: str | None = None
    relay: Incoming | None = None
    settled: Settlement | None = None
    cost: int = 0
    owes: bool = False
    seen_at: float | None = None
    ended: float | None = None
    status: Status = "open"
    _ended: bool = False
    _last_read: float = 0.0
    _paused: float = 0.0
    _waited: float = 0.0

    @property
    def backend(self) -> Backend:
        """The specialist that is called."""
        return self.quote.backend

    @property
    def row(self) -> Attempt:
        """The record that is written before the call is made.

        It is expected to cost no more than was reserved for it, whatever its provider claimed before
        (`Lengths.expected`): if this process dies, the estimate is charged.
        """
        cost = self.quote.expected_cost(self.begun)
        return Attempt(self.id, self.decision, self.kind, self.backend.name, self.begun, cost)

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

    async def consult(self, tool: Tool, prompt: str, *, stream: bool) -> None:
        """Let a tool answer, which is charged as a call; raises `Failed` without an answer.

        That tells nothing about the tool: what it was asked may be to blame.
        """
        self.circuit.begin(time.monotonic())
        self.owes = True
        try:
            text = await tool.text(prompt)
        except Failed as error:
            self.owes = error.charged
            self.settle("error", str(error))
            raise
        quote = self.quote
        self.relay = SpokenReply(quote.wire, text, self.backend.name, self.id, quote.size, stream=stream)

    async def receive(self, reply: Awaitable[Incoming]) -> None:
        """Take the answer of a bidder instead of making a call; raises `Failed` if it does not deliver."""
        self.circuit.begin(time.monotonic())
        self.relay = await reply

    async def whole(self) -> bytes:
        """The body of an answer that is not streamed, with its usage read; raises `Failed`."""
        assert self.relay is not None
        body = await self.relay.read(LARGEST_ANSWER)
        self.reader.whole(body)
        self.reader.events = min(len(body) // BYTES_PER_TOKEN, self.quote.most)
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
        self.reader.glimpse = glimpse
        while not self.reader.seen and not self._ended:
            await self._read()
        await self.hold()
        self.seen_at = time.time()

    async def rest(self) -> AsyncIterator[bytes]:
        """The buffered part, then the stream to its end, as sent to the client.

        Raises `Failed` if it breaks.
        """
        while not self._ended:
            if part := self.reader.sent():
                yield part
            await self._read(begun=True)
        if part := self.reader.end():
            yield part

    async def assembled(self) -> bytes:
        """Read a stream that a look began to its end and return the whole answer; raises `Failed`."""
        stream = b"".join([part async for part in self.rest()])
        if self.failed is not None:
            raise Failed(f"{self.backend.name} broke off", "cut", again=True, charged=True)
        body = assembled(self.quote.wire.assembly(), stream)
        if body is None:
            raise Failed("the stream ended before the answer did", "cut", again=True, charged=True)
        return body

    async def _read(self, *, begun: bool = False) -> None:
        """Read the next bytes; an error in the stream raises `Failed` unless sending has `begun`.

        So does a stream of comments and other events without content that goes on for too long (`PATIENCE`).
        """
        assert self.relay is not None
        if self._last_read:
            self._paused += time.time() - self._last_read
        asked = time.monotonic()
        chunk = await self.relay.chunk()
        self._waited += time.monotonic() - asked
        self._last_read = time.time()
        if not chunk:
            self._ended = True
            return
        try:
            self.reader.feed(chunk, full=self._waited > SURE)
        except EventTooLarge as error:
            raise Failed(str(error), "invalid reply", again=False, charged=True) from error
        if self.reader.fresh:
            self._waited = 0.0
        elif self._waited > PATIENCE * self.backend.endpoint.timeout:
            why = f"{self.backend.name} sent events without content for {self._waited:.0f} s"
            raise Failed(why, "timeout", again=True, charged=True)
        self.failed = self.failed or self.reader.failed
        if self.failed is not None and not begun:
            raise Failed(f"{self.backend.name} failed at the start", "cut", again=True, charged=True)
        if self.reader.content and self.first_token is None:
            self.first_token = self._last_read - self.begun

    def lose(self) -> None:
        """End a look whose specialist was not chosen; a stream that has already ended counts as complete."""
        self.kind = "loser"
        if self.seen_at is not None:
            self.quote.lengths.waited.add(time.time() - self.seen_at)
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
        usage = self._used(status, now)
        if self.owes:
            self.cost, usage, reason = self.quote.charge(usage, reason, self.decision)
        if status == "ok" and self.owes and usage.complete:
            first = self.first_token if self.relay is not None and self.streams else None
            self.quote.learn(usage, self._read_in(now), now, first, self.reader.events)
        outcome = Outcome(status, self.cost, usage, self.first_token, now - self.begun, reason[:300])
        self.settled = Settlement(self.id, outcome, now, self.kind)
        return self.settled

    def _read_in(self, now: float) -> float | None:
        """The seconds of an answer that ended by `now`; None if a held look or its client let it wait."""
        seconds = (self._last_read or now) - self.begun
        return seconds if self._paused <= UNREAD * seconds else None

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
        reader, quote = self.reader, self.quote
        if reader.usage is not None and reader.usage.complete and (reader.counted or status == "ok"):
            return as_asked(reader.usage, quote.demand, counted=quote.wire.name != "chat")
        known = reader.usage or Usage(complete=False)
        if not known.read:
            tier, speed = known.service_tier, known.speed
            known = replace(quote.expected(self.begun, known.output), service_tier=tier, speed=speed)
        written = max(reader.events, known.output)
        if self.background:
            written = max(written, quote.most)
        elif status == "ok":
            written = max(written, round(quote.lengths.answer(quote.most)))
        elif status == "cancelled":
            if self.backend.cancel != "stops":
                usual = quote.lengths.output.given(quote.most) if self.kind == "loser" else quote.most
                written = max(written, round(min(usual, quote.most)))
            else:
                seen, streamed = (
                    (reader.events, self.first_token, now - self.begun),
                    not self.whole_asked,
                )
                made = quote.lengths.written(*seen, streamed=streamed)
                if self.seen_at is not None and not self._ended:
                    made += self._rate() * (now - self._last_read)
                written = max(written, min(round(made), quote.most))
        return as_asked(replace(known, output=max(written, 0), complete=False), quote.demand)

    def _rate(self) -> float:
        """Tokens per second of this stream, from its first content to what was last read of it."""
        seconds = self._last_read - self.begun - (self.first_token or 0.0)
        if seconds > 0.01 and self.reader.events > 1:
            return (self.reader.events - 1) / seconds
        return self.quote.lengths.rate.given(0.0)
