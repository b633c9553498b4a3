"""An upstream that speaks all three wires, on a real socket, with faults chosen by the model's name.

small, large    answers at once; the answer names the model and the length of the prompt
busy            status 429 with Retry-After
broken          status 500
bad             status 400 with an error in the wire's shape
hang            accepts and never answers
silent          begins a stream and ends it without content
cut             breaks a stream after its first content
slow            one word every 50 ms, for ever (until the client leaves)
liar            claims ten thousand output tokens
patient X       says nothing until `go` is set, then behaves as the model X
echo            says the last user message back
pausing         says nothing more after its first content until `go` is set
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections import Counter
from typing import Any

from aiohttp import web

from tests.support.web_server import WebServer

WORDS = ["Hello", " from", " a", " stub"]


class Stub(WebServer):
    """A running upstream; `calls` counts requests by model, `left` those whose client went away."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.left: Counter[str] = Counter()
        self.bodies: list[bytes] = []
        self.headers: list[dict[str, str]] = []
        self.go = threading.Event()
        super().__init__()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        raw = await request.read()
        body = json.loads(raw)
        model = body["model"]
        self.calls[model] += 1
        self.bodies.append(raw)
        self.headers.append({name.lower(): value for name, value in request.headers.items()})
        wire = request.match_info["wire"]
        try:
            if model.startswith("patient "):
                await self._wait()
                model = body["model"] = model.removeprefix("patient ")
            if model == "hang":
                await asyncio.sleep(3600)
            if model == "busy":
                return web.json_response({"error": {"message": "slow down"}}, status=429)
            if model == "broken":
                return web.json_response({"error": {"message": "oops"}}, status=500)
            if model == "bad":
                return web.json_response({"error": {"message": "no such option", "code": "bad"}}, status=400)
            if wire == "embeddings":
                usage = {"prompt_tokens": 10**9 if model == "liar" else 5, "total_tokens": 5}
                return web.json_response({"object": "list", "model": model, "data": [], "usage": usage})
            if wire == "messages/count_tokens":
                return web.json_response({"input_tokens": 7})
            if body.get("stream"):
                return await self._stream(request, wire, body)
            answer = whole(wire, model, said(body) if model == "echo" else None, copies=body.get("n") or 1)
            return web.Response(body=answer, content_type="application/json")
        except asyncio.CancelledError:
            self.left[model] += 1
            raise

    async def _wait(self) -> None:
        while not self.go.is_set():
            await asyncio.sleep(0.01)

    async def _stream(self, request: web.Request, wire: str, body: dict[str, Any]) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        model = body["model"]
        usage = bool((body.get("stream_options") or {}).get("include_usage"))
        frames = events(wire, model, usage, [said(body)] if model == "echo" else WORDS)
        if model == "silent":
            frames = []
        try:
            for i, frame in enumerate(frames):
                if model == "cut" and i == 2:
                    assert request.transport is not None
                    request.transport.abort()
                    return response
                if model == "pausing" and i == 3:
                    await self._wait()
                await response.write(frame)
            while model == "slow":
                await asyncio.sleep(0.05)
                await response.write(chat_event(model, " more"))
        except ConnectionResetError:
            self.left[model] += 1
        return response


def said(body: dict[str, Any]) -> str:
    """The text of the last message."""
    return str(body["input"] if "input" in body else body["messages"][-1]["content"])


def whole(wire: str, model: str, text: str | None = None, *, copies: int = 1) -> bytes:
    """A whole answer, with odd spacing so that rewriting it would be noticed."""
    output = 10_000 if model == "liar" else 4 * copies
    text = "".join(WORDS) + f" called {model}" if text is None else text
    answer: dict[str, Any]
    if wire == "chat/completions":
        message = {"role": "assistant", "content": text}
        answer = {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1,
            "model": model,
            "choices": [{"index": i, "message": message, "finish_reason": "stop"} for i in range(copies)],
            "usage": {
                "prompt_tokens": 20,
                "completion_tokens": output,
                "total_tokens": 20 + output,
                "prompt_tokens_details": {"cached_tokens": 8},
            },
        }
    elif wire == "responses":
        content = [{"type": "output_text", "text": text, "annotations": []}]
        item = {
            "type": "message",
            "id": "msg_1",
            "role": "assistant",
            "status": "completed",
            "content": content,
        }
        answer = {
            "id": "resp_1",
            "object": "response",
            "created_at": 1,
            "model": model,
            "status": "completed",
            "output": [item],
            "usage": {"input_tokens": 20, "output_tokens": output, "total_tokens": 20 + output},
        }
    else:
        answer = {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": model,
            "content": [{"type": "text", "text": text}],
            "stop_reason": "end_turn",
            "usage": {"input_tokens": 12, "cache_read_input_tokens": 8, "output_tokens": output},
        }
    return json.dumps(answer, indent=1).encode()


def chat_event(model: str, text: str) -> bytes:
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": None}
    return _event(None, {"id": "c", "object": "chat.completion.chunk", "model": model, "choices": [choice]})


def _event(name: str | None, value: dict[str, Any]) -> bytes:
    head = f"event: {name}\r\n" if name else ""
    return f"{head}data: {json.dumps(value)}\r\n\r\n".encode()


def events(wire: str, model: str, usage: bool, words: list[str] = WORDS) -> list[bytes]:
    """The events of a streamed answer."""
    if wire == "chat/completions":
        role = {"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}
        frames = [
            _event(None, {"id": "c", "object": "chat.completion.chunk", "model": model, "choices": [role]})
        ]
        frames += [chat_event(model, word) for word in words]
        if model == "slow":
            return frames
        end = {"index": 0, "delta": {}, "finish_reason": "stop"}
        frames.append(
            _event(None, {"id": "c", "object": "chat.completion.chunk", "model": model, "choices": [end]})
        )
        if usage:
            counts = {"prompt_tokens": 20, "completion_tokens": 4, "total_tokens": 24}
            frames.append(
                _event(None, {"id": "c", "object": "chat.completion.chunk", "choices": [], "usage": counts})
            )
        return [*frames, b"data: [DONE]\n\n"]
    if wire == "responses":
        kinds: list[tuple[str, dict[str, Any]]] = [
            ("response.created", {"response": {"id": "resp_9", "status": "in_progress"}}),
            *(("response.output_text.delta", {"delta": word, "output_index": 0}) for word in words),
            ("response.completed", {"response": {**json.loads(whole(wire, model)), "id": "resp_9"}}),
        ]
        return [
            _event(kind, {"type": kind, "sequence_number": i, **rest}) for i, (kind, rest) in enumerate(kinds)
        ]
    start = {"id": "m", "type": "message", "role": "assistant", "model": model, "content": []}
    counted = {**start, "usage": {"input_tokens": 12, "cache_read_input_tokens": 8, "output_tokens": 1}}
    parts: list[tuple[str, dict[str, Any]]] = [
        ("message_start", {"message": counted}),
        ("content_block_start", {"index": 0, "content_block": {"type": "text", "text": ""}}),
        *(("content_block_delta", {"index": 0, "delta": {"type": "text_delta", "text": w}}) for w in words),
        ("content_block_stop", {"index": 0}),
        ("message_delta", {"delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 4}}),
        ("message_stop", {}),
    ]
    return [_event(kind, {"type": kind, **rest}) for kind, rest in parts]
