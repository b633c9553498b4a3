"""One call to a specialist: opened, held until it shows content, read to its end, settled exactly once.

`settle` is synchronous and the first call wins, whoever makes it: the relay at the end of a stream, a
cancelled task, a client that left. It closes the connection and queues the row, so nothing has to be shielded
from cancellation. Until the first content nothing of a stream has been sent to the client, so another
specialist can still take over.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from concurrent.futures import Future
from dataclasses import dataclass, field, replace

from pandora_router.gateway.backend import Backend
from pandora_router.gateway.frames import DONE, Frames, data_of, parsed
from pandora_router.gateway.health import Circuit
from pandora_router.gateway.wires import Wire
from pandora_router.router.decision import stamp
from pandora_router.store import log
from pandora_router.store.rows import Attempt, Kind, Outcome, Status, Usage
from pandora_router.store.worker import Store
from pandora_router.transport.failures import Failed
from pandora_router.transport.relay import Relay

LARGEST_ANSWER = 64 * 2**20
OVERLOADED = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
"""Statuses after which another specialist, or the same one later, may answer."""


def new_id() -> str:
    """An id that sorts by time, of the same kind as those of decisions."""
    return stamp()[0]


@dataclass
class RunningAttempt:
    """A call in flight. `size` is the length of its request in bytes."""

    decision: str
    kind: Kind
    backend: Backend
    wire: Wire
    size: int
    store: Store
    circuit: Circuit
    strip_usage: bool = False
    id: str = field(default_factory=new_id)
    begun: float = field(default_factory=time.time)
    usage: Usage | None = None
    events: int = 0
    first_token: float | None = None
    failed: str | None = None
    response: str | None = None
    held: list[bytes] = field(default_factory=list)
    relay: Relay | None = None
    settled: Future[bool] | None = None
    cost: int = 0
    _frames: Frames = field(default_factory=Frames)
    _ended: bool = False

    @property
    def row(self) -> Attempt:
        """The record that is written before the call is made."""
        expected = self.backend.prices.cost(self.backend.estimate(self.size, self.backend.max_output // 8))
        return Attempt(self.id, self.decision, self.kind, self.backend.name, self.begun, expected)

    async def open(self, path: str, body: bytes, headers: dict[str, str]) -> Relay:
        """Make the call and wait for its status; raises `Failed` if there is no answer or a retryable one."""
        endpoint = self.backend.endpoint
        self.circuit.begin(time.monotonic())
        try:
            self.relay = await Relay.open(
                self.backend.address(path), body, headers, endpoint.timeout, endpoint.proxy()
            )
        except Failed:
            self.circuit.fail(time.monotonic())
            raise
        status = self.relay.status
        if status in OVERLOADED:
            self.circuit.fail(time.monotonic())
            raise Failed(
                f"{self.backend.name} answered with status {status}", "status", again=True, status=status
            )
        return self.relay

    async def whole(self) -> bytes:
        """The body of an answer that is not streamed, with its usage read; raises `Failed`."""
        assert self.relay is not None
        body = await self.relay.read(LARGEST_ANSWER)
        answer = parsed(body)
        if answer is not None:
            self.usage = self.wire.usage(answer)
            self.response = answer["id"] if isinstance(answer.get("id"), str) else None  # type: ignore[assignment]
        self.first_token = time.time() - self.begun
        self._ended = True
        return body

    async def hold(self) -> None:
        """Read a stream until its first content, keeping what came; raises `Failed` if it fails before."""
        while not self._ended:
            chunk = await self._chunk()
            for frame in self._frames.feed(chunk) if chunk else ():
                content = self._look(frame)
                if self.failed is not None:
                    self.circuit.fail(time.monotonic())
                    raise Failed(f"{self.backend.name} failed at the start", "cut", again=True, charged=True)
                if content and self.first_token is None:
                    self.first_token = time.time() - self.begun
            if self.first_token is not None:
                return
        self.circuit.fail(time.monotonic())
        raise Failed(f"{self.backend.name} ended without an answer", "cut", again=True, charged=True)

    async def rest(self) -> AsyncIterator[bytes]:
        """What was held, then the stream to its end, ready to be sent on; raises `Failed` if it breaks."""
        yield b"".join(self.held)
        self.held.clear()
        while not self._ended:
            chunk = await self._chunk()
            for frame in self._frames.feed(chunk) if chunk else ():
                self._look(frame)
            if self.held:
                yield b"".join(self.held)
                self.held.clear()

    async def _chunk(self) -> bytes:
        assert self.relay is not None
        chunk = await self.relay.chunk()
        if not chunk:
            self._ended = True
            if self._frames.rest:
                self.held.append(self._frames.rest)
        return chunk

    def _look(self, frame: bytes) -> bool:
        """Keep a frame to be sent on, note what it says, and return whether it carries content."""
        data = data_of(frame)
        if not data or data == DONE:
            self.held.append(frame)
            return False
        self.events += 1
        if self.first_token is not None and not self._tells(data):
            self.held.append(frame)
            return True
        event = parsed(data)
        if event is None:
            self.held.append(frame)
            return False
        piece = self.wire.piece(event)
        if piece.usage is not None:
            self.usage = piece.usage if self.usage is None else _later(self.usage, piece.usage)
        self.failed = piece.failed or self.failed
        self.response = piece.response or self.response
        if not (piece.only_usage and self.strip_usage):
            self.held.append(frame)
        return piece.content

    @staticmethod
    def _tells(data: bytes) -> bool:
        """Whether an event after the first content may say something that has to be read."""
        return b'"usage"' in data or b'"error"' in data or b'"response' in data[:40] or b'"message_' in data

    def settle(self, status: Status, reason: str = "") -> None:
        """Close the call and queue its row; only the first call does anything."""
        if self.settled is not None:
            return
        if self.relay is not None:
            self.relay.close()
        now = time.time()
        if status == "ok":
            self.circuit.succeed()
        elif status == "cancelled":
            self.circuit.abandon()
        usage = self.usage or self.backend.estimate(self.size, self.events)
        reached = self.relay is not None and self.relay.status < 400
        if self.usage is None and status == "cancelled" and self.backend.cancel == "bills_full":
            usage = replace(usage, output=self.backend.max_output)
        self.cost = self.backend.prices.cost(usage) if reached else 0
        outcome = Outcome(status, self.cost, usage, self.first_token, now - self.begun, reason[:300])
        self.settled = self.store.submit(lambda open_: log.settle(open_, self.id, outcome, now))


def _later(before: Usage, now: Usage) -> Usage:
    """Counts of a later event replace those of an earlier one; input counts it leaves out are kept."""
    if now.fresh or now.cached or now.written:
        return now
    return replace(now, fresh=before.fresh, cached=before.cached, written=before.written)
