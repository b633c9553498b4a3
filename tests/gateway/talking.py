"""An upstream whose answers can be looked at: what each model says, how fast, and how it fails, is a script.

A model's script is found by the last word of the prompt, so that concurrent requests do not disturb each
other; `Talking.says` sets the words of each model. Streams are written word by word with a pause.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from tests.gateway.stub import _event
from tests.support.web_server import WebServer

PAUSE = 0.004


@dataclass
class Script:
    """What a model says, and the word before which it breaks (`cut`), hangs or ends without more.

    chances: whether log-probabilities are sent when asked for. reasoning: words of visible reasoning first.
    hidden: whether reasoning that is not shown comes first. gate: what the first word waits for. wait:
    seconds before the status. mends: after how many calls the status is 200.
    """

    words: list[str]
    cut: int | None = None
    hang: int | None = None
    status: int = 200
    chances: bool = False
    reasoning: list[str] = field(default_factory=list)
    hidden: bool = False
    pause: float = PAUSE
    output: int | None = None
    gate: threading.Event | None = None
    wait: float = 0.0
    mends: int | None = None
    retry_after: str | None = None


class Talking(WebServer):
    """The running upstream; `calls`, `left` (cancelled by the gateway) and `ended` count streams by model."""

    def __init__(self) -> None:
        self.says: dict[str, Script] = {}
        self.calls: Counter[str] = Counter()
        self.left: Counter[str] = Counter()
        self.ended: Counter[str] = Counter()
        self.bodies: list[dict[str, Any]] = []
        self.written = 0
        super().__init__()

    def _script(self, model: str, body: dict[str, Any]) -> Script:
        """The script of this model for the last word of the prompt, else the model's own."""
        said = body.get("input") or body["messages"][-1]["content"]
        return self.says.get(f"{model}:{said.split()[-1]}") or self.says[model]

    async def answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        model, wire = body["model"], request.match_info["wire"]
        self.calls[model] += 1
        self.bodies.append(body)
        script = self._script(model, body)
        await asyncio.sleep(script.wait)
        if script.status != 200 and self.calls[model] <= (script.mends or 10**9):
            headers = {"Retry-After": script.retry_after} if script.retry_after else {}
            return web.json_response({"error": {"message": "no"}}, status=script.status, headers=headers)
        asked = bool((body.get("stream_options") or {}).get("include_usage"))
        frames = streamed(wire, model, script, usage=asked, chances=bool(body.get("logprobs")))
        if not body.get("stream"):
            return web.Response(body=undivided(wire, model, script), content_type="application/json")
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        try:
            for i, frame in enumerate(frames):
                if script.cut == i:
                    assert request.transport is not None
                    request.transport.abort()
                    return response
                while i == 1 and script.gate is not None and not script.gate.is_set():
                    await asyncio.sleep(0.02)
                if script.hang == i:
                    await asyncio.sleep(3600)
                await response.write(frame)
                self.written += len(frame)
                await asyncio.sleep(script.pause)
        except (asyncio.CancelledError, ConnectionResetError):
            self.left[model] += 1
            raise
        self.ended[model] += 1
        return response


def streamed(wire: str, model: str, script: Script, *, usage: bool, chances: bool) -> list[bytes]:
    """The events of an answer."""
    make = {"chat/completions": _chat, "responses": _responses, "messages": _messages}[wire]
    return make(model, script, usage=usage, chances=chances)


def counts(script: Script) -> int:
    return script.output or len(script.words) + len(script.reasoning)


def _chat(model: str, script: Script, *, usage: bool, chances: bool) -> list[bytes]:
    def chunk(delta: dict[str, Any], finish: str | None = None, **more: Any) -> bytes:
        choice = {"index": 0, "delta": delta, **more, "finish_reason": finish}
        return _event(None, {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": model,
                             "choices": [choice]})  # fmt: skip

    frames = [chunk({"role": "assistant", "content": ""})]
    frames += [chunk({"reasoning_content": word}) for word in script.reasoning]
    for word in script.words:
        told = {"content": [{"token": word, "logprob": -0.25, "top_logprobs": []}]}
        frames.append(chunk({"content": word}, logprobs=told if chances and script.chances else None))
    frames.append(chunk({}, "stop"))
    if usage:
        told_usage = {
            "prompt_tokens": 20,
            "completion_tokens": counts(script),
            "total_tokens": 20 + counts(script),
        }
        frames.append(
            _event(None, {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": model,
                          "choices": [], "usage": told_usage})
        )  # fmt: skip
    return [*frames, b"data: [DONE]\n\n"]


def _responses(model: str, script: Script, *, usage: bool, chances: bool) -> list[bytes]:
    item = {"type": "message", "id": "m1", "role": "assistant", "status": "in_progress", "content": []}
    kinds: list[tuple[str, dict[str, Any]]] = [
        ("response.created", {"response": {"id": "resp_7", "status": "in_progress"}})
    ]
    if script.hidden:
        kinds.append(
            ("response.output_item.added", {"item": {"type": "reasoning", "id": "r", "summary": []}})
        )
    kinds += [
        ("response.output_item.added", {"output_index": 0, "item": item}),
        *(("response.output_text.delta", {"delta": word, "output_index": 0}) for word in script.words),
        ("response.completed", {"response": json.loads(undivided("responses", model, script))}),
    ]
    return [
        _event(kind, {"type": kind, "sequence_number": i, **rest}) for i, (kind, rest) in enumerate(kinds)
    ]


def _messages(model: str, script: Script, *, usage: bool, chances: bool) -> list[bytes]:
    start = {"id": "m1", "type": "message", "role": "assistant", "model": model, "content": [],
             "stop_reason": None, "usage": {"input_tokens": 20, "output_tokens": 1}}  # fmt: skip
    parts: list[tuple[str, dict[str, Any]]] = [("message_start", {"message": start})]
    at = 0
    if script.hidden:
        parts += [
            ("content_block_start", {"index": 0, "content_block": {"type": "thinking", "thinking": ""}}),
            ("content_block_delta", {"index": 0, "delta": {"type": "thinking_delta", "thinking": "hm"}}),
            ("content_block_stop", {"index": 0}),
        ]
        at = 1
    parts += [
        ("content_block_start", {"index": at, "content_block": {"type": "text", "text": ""}}),
        *(
            ("content_block_delta", {"index": at, "delta": {"type": "text_delta", "text": w}})
            for w in script.words
        ),
        ("content_block_stop", {"index": at}),
        ("message_delta", {"delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": counts(script)}}),
        ("message_stop", {}),
    ]
    return [_event(kind, {"type": kind, **rest}) for kind, rest in parts]


def undivided(wire: str, model: str, script: Script) -> bytes:
    """The same answer as one body, with odd spacing so that rewriting it would be noticed."""
    text, output = "".join(script.words), counts(script)
    answer: dict[str, Any]
    if wire == "chat/completions":
        answer = {
            "id": "c1",
            "object": "chat.completion",
            "created": 1,
            "model": model,
            "choices": [
                {"index": 0, "message": {"role": "assistant", "content": text}, "logprobs": None,
                 "finish_reason": "stop"}
            ],
            "usage": {"prompt_tokens": 20, "completion_tokens": output, "total_tokens": 20 + output},
        }  # fmt: skip
    elif wire == "responses":
        content = [{"type": "output_text", "text": text, "annotations": []}]
        item = {"type": "message", "id": "m1", "role": "assistant", "status": "completed", "content": content}
        answer = {
            "id": "resp_7",
            "object": "response",
            "created_at": 1,
            "model": model,
            "status": "completed",
            "output": [item],
            "usage": {"input_tokens": 20, "output_tokens": output, "total_tokens": 20 + output},
        }
    else:
        answer = {
            "id": "m1",
            "type": "message",
            "role": "assistant",
            "model": model,
            "content": [{"type": "text", "text": text}],
            "stop_reason": "end_turn",
            "usage": {"input_tokens": 20, "output_tokens": output},
        }
    return json.dumps(answer, indent=1).encode()
