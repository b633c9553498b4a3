"""The demo's specialists behind one HTTP address that supports the three wires, for `pandora serve --demo`.

The gateway calls them like any provider. If a specialist's beginning is the start of its answer, the answer
is streamed while it is computed: if the client disconnects, the rest is not computed. Other answers are
streamed word by word when they are complete.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

import orjson

from pandora_router.errors import UsageError
from pandora_router.router.decision import stamp
from pandora_router.specialists.answer import Answer, Unanswered
from pandora_router.specialists.beginning import Beginning
from pandora_router.specialists.request import Request
from pandora_router.specialists.specialist import Specialist
from pandora_router.transport.asgi import Receive, Reply, Scope, Send, read_body
from pandora_router.wires.known import BY_PATH
from pandora_router.wires.wire import Turn, Wire, WireAnswer

LARGEST = 2**20
NOTHING = "(no answer)"
"""The answer of a specialist that has none: a calculator asked for a poem, for example."""
_WORD = re.compile(r"\s*\S+\s*$|\s*\S+")


@dataclass(frozen=True)
class Upstream:
    """The ASGI application. `growing` are the specialists whose beginning is the start of their answer."""

    specialists: Mapping[str, Specialist]
    growing: frozenset[str]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request of any wire; `model` names the specialist."""
        wire = BY_PATH.get(scope["path"])
        if scope["type"] != "http" or wire is None:
            await Reply(
                orjson.dumps({"error": {"message": "There is no such path.", "code": "not_found"}}), 404
            ).send(send)
            return
        parsed = orjson.loads(await read_body(receive, LARGEST))
        turn = wire.read(parsed)
        try:
            request = Request.of(turn.prompt)
            if turn.stream:
                await self._stream(wire, turn, request, bool(parsed.get("logprobs")), send)
            else:
                answer = await self.specialists[turn.model].answer(request)
                said = _said(turn.model, answer, bool(parsed.get("logprobs")))
                await Reply(orjson.dumps(wire.speech().whole(said)), 200).send(send)
        except (Unanswered, UsageError) as error:
            await Reply(orjson.dumps(wire.error(404, str(error), "not_recorded")), 404).send(send)

    async def _stream(self, wire: Wire, turn: Turn, request: Request, chances: bool, send: Send) -> None:
        """Send the beginning as soon as it is there, then the rest; cancelled if the client leaves."""
        specialist, speech = self.specialists[turn.model], wire.speech()
        with await specialist.begin(request) as begun:
            said = _said(turn.model, None, chances, begun)
            first = (begun.context or "").lstrip() if turn.model in self.growing else ""
            head = speech.head(said) + (speech.delta(said, first) if first else b"")
            kind = (b"content-type", b"text/event-stream")
            await send({"type": "http.response.start", "status": 200, "headers": [kind]})
            await send({"type": "http.response.body", "body": head, "more_body": True})
            answer = await specialist.answer(request, begun)
        ended = replace(_said(turn.model, answer, chances), id=said.id, created=said.created)
        for word in _WORD.findall(ended.text.removeprefix(first)):
            part = {"type": "http.response.body", "body": speech.delta(said, word), "more_body": True}
            await send(part)
        tail = speech.tail(ended, usage=turn.wants_usage)
        await send({"type": "http.response.body", "body": tail, "more_body": False})


def _said(model: str, answer: Answer | None, chances: bool, begun: Beginning | None = None) -> WireAnswer:
    id_, at = stamp()
    shown = begun if begun is not None else answer
    seen = (shown.logprobs or ()) if shown is not None and chances else ()
    first = (shown.context or "") if shown is not None else ""
    said = WireAnswer(id_, model, int(at.timestamp()), logprobs=seen, first=first)
    if answer is None:
        return said
    return replace(
        said,
        text=answer.text.lstrip() or NOTHING,
        tokens_in=answer.tokens_in or 0,
        tokens_out=answer.tokens_out or 0,
        truncated=answer.finish == "truncated",
    )


class Running:
    """An upstream that serves on a free port of 127.0.0.1 from a thread, until it is closed."""

    def __init__(self, app: Upstream) -> None:
        """Start the thread and wait until it listens."""
        import uvicorn

        config = uvicorn.Config(app, host="127.0.0.1", port=0, log_level="warning", lifespan="off")
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, name="demo", daemon=True)
        self._thread.start()
        while not self._server.started and self._thread.is_alive():
            time.sleep(0.005)
        if not self._server.started:
            raise UsageError(
                "the specialists of the demo",
                expected="a free port on 127.0.0.1",
                came="none",
                do="See the messages above.",
            )
        self.url = f"http://127.0.0.1:{self._server.servers[0].sockets[0].getsockname()[1]}/v1"

    def close(self) -> None:
        """Stop listening and wait for the thread."""
        self._server.should_exit = True
        self._thread.join()
