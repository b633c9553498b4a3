"""The one fake provider of tests and benchmarks: models that answer on all three wires, and their bill.

A `Provider` listens on 127.0.0.1. What a model says, how fast, at which prices and with which faults is a
value, `Model`. The provider keeps its own books: `Provider.log` has one `Bill` for every request, with the
tokens and the nanodollars that it charged, whatever it told its client. A client that leaves pays for what
was written until then (`cancel="stops"`) or for the whole answer (`"bills_full"`).

In a thread:       with closing(Provider({"small": Model(...)})) as provider: ... provider.url, provider.log
In a process:      python -m tests.support.provider PORT module:name       (GET /log returns the log as JSON)
"""

from __future__ import annotations

import asyncio
import importlib
import json
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from typing import Any, cast

import uvloop

from tests.support.provider_models import Asked, Bill, Model, limited, texts
from tests.support.provider_replies import (
    WIRES,
    Said,
    Shape,
    Tokens,
    counts,
    error,
    events,
    whole,
)

CHARACTERS_PER_TOKEN = 4
KEPT = 1000
TICK = 0.004
"""Seconds between two looks at what is due, of streams that write faster than that."""


class Exchange:
    """One request and the answer to it, on one connection."""

    def __init__(self, connection: Connection, asked: Asked, model: Model, key: str | None) -> None:
        self.connection, self.asked, self.model, self.key = connection, asked, model, key
        self.provider = connection.provider
        self.stream = bool(asked.body.get("stream"))
        self.fault = model.fault(asked)
        self.said = limited(model.says(asked), asked.body)
        copies = int(asked.body.get("n") or 1)
        self.tokens = self.provider.count(asked, model, self.said, copies)
        self.told = self.tokens if model.states else replace(self.tokens, service_tier="", speed="")
        usage = bool((asked.body.get("stream_options") or {}).get("include_usage"))
        chances = bool(asked.body.get("logprobs") or asked.body.get("top_logprobs"))
        self.shape = Shape(
            *(asked.wire, model.name or asked.model, usage, chances, copies, model.pings),
            service_tier=self.told.service_tier,
            searches=self.tokens.searches,
        )
        self.sent = self.output = 0
        self.over = False
        self.provider.open += 1
        self.provider.most_open = max(self.provider.most_open, self.provider.open)
        self.begun = time.perf_counter()

    def start(self) -> None:
        """Refuse, wait, or begin to answer."""
        model, fault = self.model, self.fault
        if self.over or fault.mute:
            return
        wait = self.begun + model.before - time.perf_counter()
        if model.before and wait > 0.0:
            self._later(wait, self.start)
        elif fault.raw is not None:
            self._end("whole" if fault.status == 200 else "refused", self.tokens)
            self.connection.write(fault.raw)
            self.connection.done(close=True)
        elif model.gate is not None and model.gate_at < 0 and not model.gate.is_set():
            self._later(0.01, self.start)
        elif fault.status != 200:
            head = {} if fault.retry_after is None else {"retry-after": fault.retry_after}
            reply = error(self.asked.wire, fault.status, fault.message, fault.code)
            self._end("refused", Tokens(0, 0, 0, 0))
            self.connection.reply(fault.status, reply, **head)
        elif self.stream:
            kind = b"content-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
            self.connection.write(b"HTTP/1.1 200 OK\r\n" + kind)
            made = () if fault.empty else events(self.shape, self.said, self.told, model.lie)
            self.frames = fault.rewrite(made)
            self._later(model.first, self.advance) if model.first else self.advance()
        elif seconds := model.first + model.each * self.tokens.output:
            self._later(max(seconds - (time.perf_counter() - self.begun), 0.0), self.finish)
        else:
            self.finish()

    def finish(self) -> None:
        """Send an answer that is not streamed."""
        if not self.over:
            usage = counts(self.asked.wire, self.told, self.model.lie)
            self._end("whole", self.tokens)
            self.connection.reply(200, whole(self.shape, self.said, usage))

    def advance(self) -> None:
        """Send the events that are due, and come back for the next ones."""
        model, fault, connection = self.model, self.fault, self.connection
        while not self.over and not connection.full:
            if self._reached(fault.cut):
                self._end("cut", replace(self.tokens, output=self.output))
                connection.transport.abort()
                return
            if self._reached(fault.stall):
                return
            if model.gate is not None and self._reached(model.gate_at) and not model.gate.is_set():
                self._later(0.01, self.advance)
                return
            if self.sent == len(self.frames):
                sent = replace(self.tokens, output=self.output) if fault.breaks else self.tokens
                self._end("cut" if fault.breaks else "whole", sent)
                if fault.breaks == "reset":
                    connection.transport.abort()
                    return
                connection.write(b"0\r\n\r\n")
                connection.done(self.model.closes)
                return
            frame, done = self.frames[self.sent]
            wait = model.first + model.each * (done - 1) - (time.perf_counter() - self.begun)
            if model.each and done > self.output and wait > 0.0:
                self._later(max(wait, TICK), self.advance)
                return
            connection.write(b"%x\r\n%s\r\n" % (len(frame), frame))
            self.provider.written += len(frame)
            self.output = done
            if not (fault.endless and self.sent == len(self.said.words)):
                self.sent += 1

    def _reached(self, tokens: int | None) -> bool:
        """Whether so many tokens are written and something else would be sent now; 0: before the first."""
        if tokens is None or tokens < 0 or self.output < tokens:
            return False
        return tokens > 0 or (self.sent < len(self.frames) and self.frames[self.sent][1] > 0)

    def leave(self) -> None:
        """The client closed the connection before the answer ended."""
        if self.over:
            return
        done = self.tokens.output
        if self.model.cancel == "stops":
            passed = time.perf_counter() - self.begun - self.model.first
            made = int(passed / self.model.each) + 1 if self.model.each and passed > 0 else 0
            done = min(self.output if self.stream else made, done)
        self._end("cancelled", replace(self.tokens, output=done))

    def _end(self, ended: str, tokens: Tokens) -> None:
        self.over = True
        self.provider.open -= 1
        asked = self.asked
        bill = self.model.nanodollars(tokens)
        text = "".join(self.said.words[: tokens.output])
        facts = (asked.model, asked.wire, self.stream, asked.prompt, ended, tokens, bill, text)
        self.provider.log.append(Bill(*facts, self.key))
        if ended == "cancelled":
            self.provider.left[asked.model] += 1

    def _later(self, seconds: float, then: Callable[[], None]) -> None:
        self.provider.loop.call_later(seconds, then)


class Connection(asyncio.Protocol):
    """One connection: HTTP/1.1 with a Content-Length, one request after the other."""

    def __init__(self, provider: Provider) -> None:
        self.provider = provider
        self.received = bytearray()
        self.exchange: Exchange | None = None
        self.full = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.write = self.transport.write
        self.provider.connections.add(self)

    def connection_lost(self, _: Exception | None) -> None:
        self.provider.connections.discard(self)
        if self.exchange is not None:
            self.exchange.leave()
            self.exchange = None

    def pause_writing(self) -> None:
        self.full = True

    def resume_writing(self) -> None:
        self.full = False
        if self.exchange is not None:
            self.exchange.advance()

    def data_received(self, data: bytes) -> None:
        self.received += data
        end = self.received.find(b"\r\n\r\n")
        if end < 0:
            return
        first, *lines = bytes(self.received[:end]).decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        size = end + 4 + int(headers.get("content-length", 0))
        if len(self.received) < size:
            return
        body = bytes(self.received[end + 4 : size])
        del self.received[:size]
        method, path, _ = first.split(" ", 2)
        if path.startswith("/v1/responses/") and not body:
            self.provider.stored.append(f"{method} {path}")
            id_ = path.split("/")[3].partition("?")[0]
            self.reply(200, json.dumps({"id": id_, "object": "response"}).encode())
        elif method == "GET":
            self.provider.tell(self, path)
        else:
            self.provider.answer(self, path.removeprefix("/v1/"), headers, body)

    def reply(self, status: int, body: bytes, **headers: str) -> None:
        """Send a whole reply."""
        fields = {"content-type": "application/json", "content-length": len(body), **headers}
        lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in fields.items())
        self.write(f"HTTP/1.1 {status} -\r\n{lines}\r\n".encode() + body)
        self.done(self.exchange is not None and self.exchange.model.closes)

    def done(self, close: bool) -> None:
        """The present request is answered."""
        self.exchange = None
        if close:
            self.transport.close()


class Provider:
    """A running provider in a thread; `url` ends in /v1, `log` are its books, `close` ends it.

    calls: requests by model, also those that are not answered yet; asked: by model and prompt. left: those
    whose client went away. open, most_open: requests that are being answered, now and at most.
    stored: calls about stored responses, each as its method and path.
    bodies, headers: the last `KEPT` requests as they came.
    written: bytes of events that were sent. listed: what `GET /v1/models` says of a model beside its name.
    states_bills: whether `GET /v1/generation` states the tokens of the last bill.
    """

    def __init__(self, models: Mapping[str, Model], port: int = 0, *, thread: bool = True) -> None:
        self.models = models
        self.log: list[Bill] = []
        self.written = 0
        self.listed: dict[str, dict[str, Any]] = {}
        self.states_bills = False
        self.stored: list[str] = []
        self.connections: set[Connection] = set()
        self.calls: Counter[str] = Counter()
        self.left: Counter[str] = Counter()
        self.bodies: deque[bytes] = deque(maxlen=KEPT)
        self.headers: deque[dict[str, str]] = deque(maxlen=KEPT)
        self.asked: Counter[tuple[str, str]] = Counter()
        self.open = self.most_open = 0
        self._cached: set[tuple[str, str]] = set()
        self.loop = uvloop.new_event_loop()
        listen = self.loop.create_server(lambda: Connection(self), "127.0.0.1", port)
        server = self.loop.run_until_complete(listen)
        self.port: int = cast(asyncio.Server, server).sockets[0].getsockname()[1]
        self._server = server
        if thread:
            self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
            self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def close(self) -> None:
        """Stop listening and end the thread."""
        asyncio.run_coroutine_threadsafe(self._close(), self.loop).result(30)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(30)
        self.loop.close()

    async def _close(self) -> None:
        self._server.close()
        for connection in tuple(self.connections):
            connection.transport.abort()
        await asyncio.sleep(0.0)

    def tell(self, connection: Connection, path: str) -> None:
        """Answer a GET: the log, the list of models, or, where `states_bills`, the bill of the last call."""
        reply: Any = {}
        if path == "/log":
            reply = [asdict(bill) for bill in self.log]
        elif path == "/v1/models":
            reply = {"data": [{"id": name, **self.listed.get(name, {})} for name in self.models]}
        elif path.startswith("/v1/generation?") and self.states_bills:
            reply = {"data": {"native_tokens_completion": self.log[-1].tokens.output}}
        connection.reply(200, json.dumps(reply).encode())

    def model(self, asked: Asked) -> Model | None:
        """The model of a request; None: there is no such model."""
        return self.models.get(asked.model)

    def answer(self, connection: Connection, path: str, headers: dict[str, str], raw: bytes) -> None:
        """Take one request."""
        body = json.loads(raw)
        name = str(body.get("model"))
        self.calls[name] += 1
        self.bodies.append(raw)
        self.headers.append(headers)
        prefix, prompt = texts(body)
        wire = path if path in WIRES else "chat/completions"
        asked = Asked(wire, name, body, prompt, prefix, self.asked[name, prompt])
        self.asked[name, prompt] += 1
        model = self.model(asked)
        if model is None:
            connection.reply(404, error(path, 404, f"There is no model {name}.", "model_not_found"))
            return
        try:
            if path not in WIRES:
                self.other(connection, path, asked, model)
                return
            connection.exchange = Exchange(connection, asked, model, headers.get("authorization"))
        except (AttributeError, KeyError, TypeError, ValueError) as odd:  # a member is missing or odd
            connection.reply(400, error(path, 400, str(odd), "invalid_request"))
        else:
            connection.exchange.start()

    def other(self, connection: Connection, path: str, asked: Asked, model: Model) -> None:
        """Embeddings, token counts and compaction."""
        read = max(len(asked.prefix + asked.prompt) // CHARACTERS_PER_TOKEN, 1)
        fault = model.fault(asked)
        if fault.mute:
            return
        if fault.status != 200:
            connection.reply(fault.status, error(path, fault.status, fault.message, fault.code))
        elif path in ("messages/count_tokens", "responses/input_tokens"):
            connection.reply(200, json.dumps({"input_tokens": read}).encode())
        elif path == "responses/compact":
            items = [{"type": "compaction", "encrypted_content": asked.model}]
            about = {"id": "resp_c", "object": "response.compaction", "output": items}
            usage = {"usage": counts("responses", Tokens(read, 0, 0, 7))}
            connection.reply(200, json.dumps({**about, **usage}).encode())
        elif path == "embeddings":
            texts = asked.body["input"] if isinstance(asked.body["input"], list) else [asked.body["input"]]
            data = [{"object": "embedding", "index": i, "embedding": [0.5, -0.5]} for i in range(len(texts))]
            told: Any = {"prompt_tokens": read, "total_tokens": read}
            told = told if model.lie is None else model.lie(told)
            reply = {"object": "list", "data": data, "model": asked.model, "usage": told}
            connection.reply(200, json.dumps(reply).encode())
        else:
            connection.reply(404, error(path, 404, "There is no such path.", "not_found"))

    def count(self, asked: Asked, model: Model, said: Said, copies: int = 1) -> Tokens:
        """The tokens of a request and of the whole answer to it, and what is billed beside them."""
        plain = self._plain(asked, model, said, copies)
        text = json.dumps(asked.body)
        sounds = text.count('"type": "input_audio"')
        images = sum(text.count(f'"type": "{kind}"') for kind in ("image_url", "input_image", "image"))
        hour = plain.written if '"ttl": "1h"' in text else 0
        spoken = plain.output if "audio" in (asked.body.get("modalities") or ()) else 0
        asks = '"web_search' in text
        return replace(
            plain,
            fresh=plain.fresh + 40 * sounds + 30 * images,
            written_hour=hour,
            audio_in=40 * sounds,
            image_in=30 * images,
            audio_out=spoken,
            service_tier=model.serves(asked) if model.tiers else "",
            speed=str(asked.body.get("speed") or "") if model.tiers else "",
            searches=said.searches if asks else 0,
        )

    def _plain(self, asked: Asked, model: Model, said: Said, copies: int) -> Tokens:
        kept = len(asked.prefix) // CHARACTERS_PER_TOKEN
        fresh = max(len(asked.prompt) // CHARACTERS_PER_TOKEN, 1)
        thought = len(said.reasoning) + said.hidden
        if not model.caches or not kept:
            return Tokens(fresh + kept, 0, 0, copies * said.tokens, thought)
        known = (asked.model, asked.prefix) in self._cached
        self._cached.add((asked.model, asked.prefix))
        if known:
            return Tokens(fresh, kept, 0, copies * said.tokens, thought)
        wrote = kept if asked.wire == "messages" or "cache_control" in json.dumps(asked.body) else 0
        return Tokens(fresh + kept - wrote, 0, wrote, copies * said.tokens, thought)


def main(port: str, place: str) -> None:
    """Run the provider that `place`, a "module:name", makes, until the process is ended."""
    module, _, name = place.partition(":")
    make = getattr(importlib.import_module(module), name)
    make(int(port), thread=False).loop.run_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
