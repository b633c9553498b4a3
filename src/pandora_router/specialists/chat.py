"""A model behind an OpenAI-compatible chat endpoint.

A stream that ends before its `[DONE]` was cut. What has arrived is not an answer, since it is unknown what is
missing and what it cost.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pandora_router.prices import Cancelling, Tariff
from pandora_router.specialists.chat_settings import Asking
from pandora_router.specialists.specialist import Answer, Beginning, Request, Unanswered
from pandora_router.transport.client import EventStream, HttpCall, encoded, parse
from pandora_router.transport.endpoint import Endpoint
from pandora_router.transport.failures import Failed, GaveUp, Place, RateLimit, Tried, most_charged, retried
from pandora_router.wires.chat import Chat
from pandora_router.wires.demand import demand_of
from pandora_router.wires.events import DONE
from pandora_router.wires.look import Glimpse

CHAT = Chat()

PATIENCE = 1.0
"""Seconds that `begin` waits for a place under the rate limit. A held beginning keeps its place, so without
this limit two decisions could wait for each other's places for ever."""
SLACK = 1.0
"""Seconds by which the measured time of a call may exceed its timeout."""


@dataclass(frozen=True)
class ChatEndpoint:
    """A model behind an endpoint, with prices.

    name: its name in the routing table.
    model: its name at the endpoint.
    limit: the rate limiter, shared by the specialists of one endpoint.
    cancel: what is charged for a cancelled beginning; unless "stops", the worst case of the whole answer.
    """

    name: str
    endpoint: Endpoint
    model: str
    prices: Tariff
    asking: Asking = field(default_factory=Asking)
    limit: RateLimit = field(default_factory=RateLimit, repr=False, compare=False)
    cancel: Cancelling = "unknown"

    @property
    def identity(self) -> str:
        """Address, model and settings; without key and prices."""
        parts = {"base_url": self.endpoint.base_url, "model": self.model, "asking": self.asking.identity}
        return json.dumps(parts, sort_keys=True)

    @property
    def at_once(self) -> int:
        """The number of concurrent calls that the rate limiter allows."""
        return self.limit.at_once

    def most(self, request: Request) -> float:
        """The worst case: all calls that may be charged are, and only the last one gives an answer."""
        return most_charged(self.endpoint) * self._worst(request)

    async def begin(self, request: Request) -> Beginning:
        """Start a streamed answer, read its context and hold the stream open.

        A held stream keeps its place under the rate limit. Raises `Unanswered`, with failure "busy" if no
        place is free within `PATIENCE` seconds.
        """
        body, worst = self._body(request, stream=True), self._worst(request)

        async def start() -> _Exchange:
            exchange = _Exchange(self, body, worst)
            await exchange.start(PATIENCE)
            return exchange

        tried = await self._tried(start, worst)
        exchange = tried.value
        try:
            context, logprobs = exchange.look()
        except Failed as error:
            exchange.close()
            raise self._unanswered(GaveUp(error, 1, tried.charged + 1), worst) from None

        async def go_on() -> Answer:
            return await self._go_on(exchange, body, worst, tried.charged)

        return Beginning(
            self.name,
            request,
            context=context,
            logprobs=logprobs,
            seconds=exchange.seconds,
            cost=exchange.owed(tried.charged * worst),
            go_on=go_on,
            stop=exchange.close,
        )

    async def answer(self, request: Request, begun: Beginning | None = None) -> Answer:
        """One answer, with as many retries as the endpoint allows; if `begun` is given, the rest of it.

        If a held stream breaks off, the answer is requested again and the cost of the stream is lost.
        """
        if begun is not None:
            return await begun.finish(self.name, request)
        return await self._ask(self._body(request, stream=self.asking.stream), self._worst(request), 0)

    async def _go_on(
        self, exchange: _Exchange, body: Mapping[str, Any], worst: float, charged: int
    ) -> Answer:
        try:
            return replace(await exchange.finish(), lost=charged * worst)
        except Failed as error:
            spent = charged + error.charged
            if not error.again or spent > min(self.endpoint.retries, most_charged(self.endpoint) - 1):
                raise self._unanswered(GaveUp(error, 1, spent), worst) from None
        return await self._ask(body, worst, spent)

    async def _ask(self, body: Mapping[str, Any], worst: float, charged: int) -> Answer:
        async def once() -> Answer:
            exchange = _Exchange(self, body, worst)
            await exchange.start()
            return await exchange.finish()

        tried = await self._tried(once, worst, charged)
        return replace(tried.value, lost=tried.charged * worst)

    async def _tried(self, call: Any, worst: float, charged: int = 0) -> Tried[Any]:
        try:
            return await retried(call, self.endpoint, self.limit, charged=charged)
        except GaveUp as error:
            raise self._unanswered(error, worst) from None

    def _unanswered(self, error: GaveUp, worst: float) -> Unanswered:
        """The failure; its loss is the bill of the last call if the server stated one, else worst cases."""
        if error.bill is None:
            lost = error.charged_calls * worst
        else:
            lost = (error.charged_calls - 1) * worst + error.bill
        return Unanswered(f"{self.name}: {error}", failure=error.failure, dead=error.dead, lost=lost)

    def _body(self, request: Request, *, stream: bool) -> dict[str, Any]:
        return {"model": self.model, **replace(self.asking, stream=stream).body(request)}

    def _worst(self, request: Request) -> float:
        """Most that one call can cost, computed from the body (that of a streamed call, which is longer)."""
        body = self._body(request, stream=True)
        return self.asking.worst(body, self.prices, self.endpoint.timeout + SLACK)


class _Exchange:
    """One call to a chat endpoint: started, read up to its context, read to its end, closed."""

    def __init__(self, chat: ChatEndpoint, body: Mapping[str, Any], worst: float) -> None:
        self.chat, self.body, self.worst = chat, body, worst
        self.seconds = 0.0
        self._assembly = CHAT.assembly()
        self._glimpse = Glimpse(chat.asking.peek)
        self._done = False
        self._reply: dict[str, Any] | None = None
        self._place: Place | None = None
        self._call: HttpCall | None = None
        self._events: EventStream | None = None
        self._context_seconds: float | None = None

    async def start(self, within: float | None = None) -> None:
        """Send the body and read up to the context; waits at most `within` seconds for a place."""
        self._place = await self.chat.limit.take(within)
        clock = time.monotonic()
        try:
            accept = "text/event-stream, application/json" if self.body.get("stream") else "application/json"
            self._call = await HttpCall.open(
                self.chat.endpoint, self.chat.asking.path, self.body, accept=accept
            )
            if self._call.streamed:
                self._events = self._call.events()
                await self._advance(to_context=True)
                self._context_seconds = time.monotonic() - clock
            else:
                self._reply = await self._call.json()
        except BaseException:
            self.close()
            raise
        self.seconds = time.monotonic() - clock
        if self._reply is not None:
            self.close()

    async def finish(self) -> Answer:
        """Read to the end and return the answer; the call is closed in any case."""
        clock = time.monotonic()
        try:
            if self._reply is None:
                await self._advance(to_context=False)
                self._reply = self._cleaned()
        finally:
            self.close()
        self.seconds += time.monotonic() - clock
        chat = self.chat
        answer = chat.asking.read(self._reply, chat.prices, seconds=self.seconds, worst=self.worst)
        return replace(answer, context_seconds=self._context_seconds, bytes_in=len(encoded(self.body)))

    def look(self) -> tuple[str | None, tuple[float, ...] | None]:
        """The context and its log-probabilities; raises `Failed` if the reply is not a completion."""
        glimpse = self.chat.asking.look(self._reply or self._cleaned()).glimpse
        return glimpse.context, glimpse.first_chances

    def owed(self, before: float) -> float:
        """Most that is owed if the call is closed now, plus `before`: what earlier calls were charged."""
        chat = self.chat
        if self._reply is not None or self._done:
            reply = self._reply or self._cleaned()
            try:
                answer = chat.asking.read(reply, chat.prices, seconds=self.seconds, worst=self.worst)
            except Failed:
                return before + self.worst
            return before + answer.fee
        if chat.cancel != "stops":
            return before + self.worst
        size, demand = len(encoded(self.body)), demand_of(self.body)
        written = chat.prices.most(size, self._glimpse.tokens, self.seconds, demand)
        return before + min(written, self.worst)

    def close(self) -> None:
        """End the call and release its place; may be called repeatedly."""
        if self._call is not None:
            self._call.close()
        if self._place is not None:
            self._place.release()

    def _cleaned(self) -> dict[str, Any]:
        """The stream so far, with the key removed, even if it was spread over several events."""
        assert self._call is not None
        cleaned: dict[str, Any] = self._call.redaction.tree(self._assembly.reply())
        return cleaned

    async def _advance(self, *, to_context: bool) -> None:
        """Read events to the end of the stream, or until the context is complete."""
        assert self._events is not None
        while not self._done and not (to_context and self._context_there):
            data = await anext(self._events, None)
            if data is None:
                raise Failed("the stream was cut before its end", "cut", again=True, charged=True)
            self._take(data)

    @property
    def _context_there(self) -> bool:
        """Whether the context is complete; a whole answer is read to its end, where its fee is stated."""
        return self._glimpse.done and not self._glimpse.finished

    def _take(self, data: bytes) -> None:
        """Add the data of one event; raises `Failed` if it is an error or not part of a completion."""
        if data.strip() == DONE:
            self._done = True
            return
        piece = parse(data.decode("utf-8", "replace").encode(), "an event of the stream")
        if "error" in piece:
            raise Failed("the stream ended with an error", "status", again=True, charged=True)
        try:
            CHAT.show(piece, self._glimpse)
            self._assembly.add(data, piece)
        except (AttributeError, TypeError):
            why = "the stream holds no completion"
            raise Failed(why, "invalid reply", again=True, charged=True) from None
