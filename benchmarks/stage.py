"""Four specialists of the demo behind one HTTP address, for `python -m benchmarks.looks`.

`examples` is SmolLM2 in a llama.cpp server of this process, asked over HTTP as the demo asks it; with
`played` its recorded answers are played instead. The others are always played: their recorded texts, token by
token, at the recorded processor seconds divided by `speed`, with the recorded log-probabilities first. The
open book shows its passage as reasoning before its answer.
"""

from __future__ import annotations

import asyncio
import json
import re
import threading
import time
from collections import Counter
from collections.abc import Mapping
from typing import Any

from pandora_router.demo.specialists import EXAMPLES, FIRST, weights
from pandora_router.specialists.specialist import Answer

CALCULATOR, SMALL, BOOK, STRONG = NAMES = ("calculator", "examples", "open book", "strong")
SMALL_TOKENS = 10
SMALL_ASKED = {"temperature": 0.0, "stop": ["\n"], "cache_prompt": True, "logprobs": 1, "stream": True}
NOTHING = "(no answer)"


def small_server() -> Any:
    """SmolLM2 behind HTTP, on one thread with four places; `listening_address` is its address."""
    import xllamacpp

    settings = xllamacpp.CommonParams()
    settings.model.path = str(weights())
    settings.cpuparams.n_threads = settings.cpuparams_batch.n_threads = 1
    settings.n_ctx, settings.n_parallel = 4 * 1024, 4
    settings.verbosity = -1
    return xllamacpp.Server(settings)


class Stage:
    """The running upstream; `written` counts the tokens that each specialist wrote, whoever read them."""

    def __init__(self, answers: Mapping[tuple[str, str], Answer], *, speed: float, played: bool) -> None:
        self.answers, self.speed, self.played = answers, speed, played
        self.written: Counter[str] = Counter()
        self._small = None if played else small_server()
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        self._ready.wait()
        self.url = f"http://127.0.0.1:{self.port}/v1"

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _run(self) -> None:
        from aiohttp import ClientSession, web

        asyncio.set_event_loop(self._loop)
        app = web.Application()
        app.router.add_post("/v1/chat/completions", self._answer)
        runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)

        async def start() -> None:
            self._session = ClientSession()
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", 0).start()

        async def stop() -> None:
            await self._session.close()
            await runner.cleanup()

        self._loop.run_until_complete(start())
        self.port = runner.addresses[0][1]
        self._ready.set()
        self._loop.run_forever()
        self._loop.run_until_complete(stop())
        self._loop.close()

    async def _answer(self, request: Any) -> Any:
        """Answer one request; a client that leaves is no error."""
        from aiohttp import web

        try:
            return await self._said(request)
        except ConnectionResetError:
            return web.Response()

    async def _said(self, request: Any) -> Any:
        from aiohttp import web

        body = await request.json()
        if body["model"] == SMALL and not self.played:
            return await self._live(request, body)
        answer = self.answers[body["messages"][-1]["content"], body["model"]]
        pieces = _pieces(answer)[: int(body.get("max_tokens") or 10**6)]
        if not body.get("stream"):
            await asyncio.sleep(_until(answer, len(pieces)) / self.speed)
            self.written[body["model"]] += len(pieces)
            return web.json_response({**_whole(body["model"], pieces), "usage": _usage(answer, len(pieces))})
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        begun = time.monotonic()
        if body["model"] == BOOK:
            await response.write(_chunk(BOOK, {"reasoning_content": answer.context or " "}, None))
        for i, (text, chance) in enumerate(pieces):
            await asyncio.sleep(max(begun + _until(answer, i + 1) / self.speed - time.monotonic(), 0.0))
            await response.write(_chunk(body["model"], {"content": text}, None, text, chance))
            self.written[body["model"]] += 1
        await response.write(_chunk(body["model"], {}, "stop"))
        usage = {"choices": [], "usage": _usage(answer, len(pieces))}
        await response.write(f"data: {json.dumps(usage)}\n\ndata: [DONE]\n\n".encode())
        return response

    async def _live(self, request: Any, body: dict[str, Any]) -> Any:
        """Ask SmolLM2 as the demo does; a client that leaves closes the call to it."""
        from aiohttp import web

        assert self._small is not None
        prompt = EXAMPLES.fill(question=body["messages"][-1]["content"])
        most = min(int(body.get("max_tokens") or SMALL_TOKENS), SMALL_TOKENS)
        asked = {
            **SMALL_ASKED,
            "max_tokens": most,
            "prompt": prompt,
            "stream_options": {"include_usage": True},
        }
        response = None
        if body.get("stream"):
            response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
            await response.prepare(request)
        pieces: list[tuple[str, float | None]] = []
        usage: dict[str, Any] = {}
        async with self._session.post(f"{self._small.listening_address}/v1/completions", json=asked) as reply:
            async for line in reply.content:
                if not line.startswith(b"data: {"):
                    continue
                event = json.loads(line[6:])
                usage = event.get("usage") or usage
                for piece in _completed(event):
                    pieces.append(piece)
                    self.written[SMALL] += 1
                    if response is not None:
                        await response.write(_chunk(SMALL, {"content": piece[0]}, None, *piece))
        if response is None:
            return web.json_response({**_whole(SMALL, pieces), "usage": usage})
        await response.write(_chunk(SMALL, {}, "stop"))
        counted = {"choices": [], "usage": usage}
        await response.write(f"data: {json.dumps(counted)}\n\ndata: [DONE]\n\n".encode())
        return response


def _completed(event: dict[str, Any]) -> list[tuple[str, float | None]]:
    """The tokens in one event of a completion's stream."""
    found: list[tuple[str, float | None]] = []
    for choice in event.get("choices") or ():
        told = (choice.get("logprobs") or {}).get("content") or []
        if told:
            found += [(one["token"], one["logprob"]) for one in told]
        elif choice.get("text"):
            found.append((choice["text"], None))
    return found


def _pieces(answer: Answer) -> list[tuple[str, float | None]]:
    """The text in as many pieces as it had tokens; the first have the recorded log-probabilities.

    The first `FIRST` tokens were recorded together (the context); where one ends is not known.
    """
    chances = list(answer.logprobs or ())
    if not chances:
        return [(word, None) for word in re.findall(r"\S+\s*|\s+", answer.text) or [NOTHING]]
    first = answer.context or ""
    rest = answer.text.removeprefix(first) if answer.text.startswith(first) else answer.text
    count = max(answer.tokens_out or 1, 1)
    begin: list[tuple[str, float | None]] = [("", chance) for chance in chances[:FIRST]]
    if begin:
        begin[0] = first, begin[0][1]
    left = max(count - len(begin), 0 if begin else 1)
    step = max(-(-len(rest) // max(left, 1)), 1)
    parts = [rest[i : i + step] for i in range(0, len(rest), step)]
    return [*begin, *((part, None) for part in parts)]


def _until(answer: Answer, tokens: int) -> float:
    """Seconds until so many tokens were written: those of the look are recorded, the rest is even."""
    total, look = answer.seconds, min(answer.context_seconds or answer.seconds, answer.seconds)
    count = max(answer.tokens_out or 1, 1)
    if not answer.logprobs:  # what is looked at is no part of the answer: a passage
        return look + (total - look) * min(tokens / len(_pieces(answer)), 1.0)
    if tokens <= FIRST:
        return look * (0.5 + 0.5 * tokens / min(FIRST, count)) if count else look
    return min(look + (total - look) * (tokens - FIRST) / max(count - FIRST, 1), total)


def _usage(answer: Answer, written: int) -> dict[str, int]:
    read = answer.tokens_in or 0
    return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}


def _chunk(
    model: str, delta: dict[str, Any], finish: str | None, token: str = "", chance: float | None = None
) -> bytes:
    told = None if chance is None else {"content": [{"token": token, "logprob": chance}]}
    choice = {"index": 0, "delta": delta, "finish_reason": finish, "logprobs": told}
    event = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": model, "choices": [choice]}
    return f"data: {json.dumps(event)}\n\n".encode()


def _whole(model: str, pieces: list[tuple[str, float | None]]) -> dict[str, Any]:
    content = [{"token": text, "logprob": chance} for text, chance in pieces if chance is not None]
    message = {"role": "assistant", "content": "".join(text for text, _ in pieces)}
    told = {"content": content} if content else None
    choice = {"index": 0, "message": message, "finish_reason": "stop", "logprobs": told}
    return {"id": "x", "model": model, "choices": [choice]}
