"""A chat endpoint on this machine that answers sums, keeps its own books and fails on purpose.

Model "good" is always right, "poor" is wrong on every third sum. Faults are scripted: `faults(model, prompt,
attempt)` names one or returns None. `charged` is what the server would put on the bill, whether or not its
answer arrived; `left` counts streams that the client closed before their end; `drip` are seconds between
two events of a stream.
"""

from __future__ import annotations

import base64
import json
import math
import re
import threading
import time
from collections import Counter
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

SECRET = "sk-never-print-this"
PRICE_IN, PRICE_OUT = 1000.0, 2000.0
JUDGED = ("reference answers", "answer")
Faults = Callable[[str, str, int], str | None]


class Upstream:
    def __init__(self, faults: Faults = lambda *_: None, *, slow: float = 0.0, hang: float = 0.8) -> None:
        self.faults, self.slow, self.hang = faults, slow, hang
        self.drip = 0.0
        self.left: Counter[str] = Counter()
        self.asked: Counter[tuple[str, str]] = Counter()
        self.answered: Counter[tuple[str, str]] = Counter()
        self.keys: set[str | None] = set()
        self.starts: list[float] = []
        self.charged = 0.0
        self.inside = self.unanswered = self.most_unanswered = 0
        self.said: Callable[[str], str] | None = None
        self.lock = threading.Lock()
        upstream = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                with upstream.lock:
                    upstream.inside += 1
                    upstream.unanswered += 1
                    upstream.most_unanswered = max(upstream.most_unanswered, upstream.unanswered)
                    upstream.starts.append(time.monotonic())
                try:
                    upstream.serve(self)
                except OSError:
                    pass
                finally:
                    with upstream.lock:
                        upstream.inside -= 1

            def log_message(self, *_: Any) -> None:
                return

        class Quiet(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 64

            def handle_error(self, *_: Any) -> None:
                return

        self.server = Quiet(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/v1"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,))

    def __enter__(self) -> Upstream:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

    def serve(self, http: BaseHTTPRequestHandler) -> None:
        body = json.loads(http.rfile.read(int(http.headers["Content-Length"])))
        model, prompt = body["model"], body["messages"][-1]["content"]
        with self.lock:
            self.keys.add(http.headers.get("Authorization"))
            attempt = self.asked[model, prompt]
            self.asked[model, prompt] += 1
        fault = self.faults(model, prompt, attempt)
        time.sleep(self.slow)
        with self.lock:
            self.unanswered -= 1  # before the reply leaves: its client may then ask again at once
        if fault == "busy":
            send(http, 429, b"", {})
            return
        if fault == "year":
            send(http, 429, b"[" * 100_000, {"Retry-After": f"Thu, 01 Jan 1{'0' * 20} 00:00:00 GMT"})
            return
        if fault in {"401", "404", "400", "429", "500", "503"}:
            said = json.dumps({"error": {"code": "some_code", "message": f"bad key {SECRET}"}}).encode()
            send(http, int(fault), said, {"Retry-After": "0.05"} if fault == "429" else {})
            return
        reply = self.reply(model, prompt, fault or "", body)
        with self.lock:
            self.charged += fee(reply)
        raw = json.dumps(reply).encode()
        if fault in ODD:
            kind = "text/event-stream" if body.get("stream") else "application/json"
            send(http, 200, odd(reply, fault, body, http.headers["Authorization"]), {"Content-Type": kind})
            return
        if fault == "status line":
            http.wfile.write(f"HTTP/1.1 200 {http.headers['Authorization']}\r\nX\r\n\r\n".encode())
            return
        if fault == "hang":
            time.sleep(self.hang)
        if body.get("stream") and fault not in {"html", "broken"}:
            if not (fault or "").startswith("cut"):
                with self.lock:
                    self.answered[model, prompt] += 1
            try:
                stream(http, reply, fault or "", self.drip)
            except OSError:
                with self.lock:
                    self.left[model] += 1
            return
        if fault == "cut":
            send(http, 200, raw[: len(raw) // 2], {"Content-Length": str(len(raw))})
            http.close_connection = True
        elif fault == "html":
            send(http, 200, b"<html>busy</html>", {"Content-Type": "text/html"})
        elif fault == "broken":
            send(http, 200, raw[:-5], {})
        else:
            with self.lock:
                self.answered[model, prompt] += 1
            send(http, 200, raw, {})

    def reply(self, model: str, prompt: str, fault: str, body: dict[str, Any]) -> dict[str, Any]:
        numbers = [int(one) for one in re.findall(r"\d+", prompt)]
        right = sum(numbers)
        said = str(right + (model == "poor" and right % 3 == 0))
        text = f"The answer is {said}"
        if self.said is not None:
            text = self.said(prompt)
        elif model == "judge":
            wanted, shown = (json.loads(re.findall(rf"^{name}: (.*)$", prompt, re.M)[0]) for name in JUDGED)
            agreed = any(re.search(rf"\b{re.escape(one)}\b", shown) for one in wanted)
            text = json.dumps({"verdict": "correct" if agreed else "wrong"})
        message: dict[str, Any] = {"role": "assistant", "content": text}
        finish = "stop"
        if fault == "empty":
            message["content"] = ""
        elif fault == "refusal":
            message = {"role": "assistant", "content": None, "refusal": f"I will not say {said}"}
        elif fault == "half":
            message["content"] = f"\ud83d The answer is {said}"
        elif fault == "truncated":
            message["content"], finish = "Let me think", "length"
        usage = {"prompt_tokens": len(prompt.split()), "completion_tokens": 3 + right % 5}
        reply = {"choices": [{"message": message, "finish_reason": finish}], "usage": usage}
        if body.get("logprobs"):
            tokens = [{"token": one + " ", "logprob": -0.5} for one in str(message["content"] or "").split()]
            reply["choices"][0]["logprobs"] = {"content": tokens}  # type: ignore[index]
        if fault == "uncounted":
            del reply["usage"]
        return reply


ODD = ("deep", "digits", "1e308", "liar", "chances", "echo", "coded echo", "event")
"""Faults of replies with status 200 that are odd in one place; see `odd`."""


def odd(reply: dict[str, Any], fault: str, body: dict[str, Any], key: str | None) -> bytes:
    """A reply that is odd in one place.

    deep: nested 100,000 deep. digits, 1e308: so many tokens. liar: charges far more than its limit. chances:
    log-probabilities that are none. echo, coded echo: the key, plain or in base64. event: no end of one.
    """
    choice, usage = reply["choices"][0], reply.get("usage", {})
    if fault == "liar":
        usage["completion_tokens"] = 1_000_000_000
    elif fault == "chances":
        tokens = [{"token": "The ", "logprob": value} for value in (-1e300, math.nan, math.inf)]
        choice["logprobs"] = {"content": tokens}
    elif fault == "echo":
        choice["message"]["content"] = f"Your key is {key}, isn't it? The answer is 5"
    elif fault == "coded echo":
        choice["message"]["content"] = base64.b64encode(f"{key}".encode()).decode()
    text = json.dumps({**reply, "more": "HERE"})
    count = f'"completion_tokens": {usage.get("completion_tokens")}'
    text = text.replace(
        count,
        {"digits": f'"completion_tokens": 1{"0" * 400}', "1e308": '"completion_tokens": 1e308'}.get(
            fault, count
        ),
    )
    text = text.replace('"HERE"', "[" * 100_000 if fault == "deep" else "0")
    if not body.get("stream"):
        return text.encode()
    if fault == "event":
        return b"data: " + b"x" * 3_000_000
    said = choice["message"]["content"]
    halves = [said[: len(said) // 2], said[len(said) // 2 :]]
    pieces = [json.dumps({"choices": [{"delta": {"content": half}}]}) for half in halves]
    return "".join(
        f"data: {piece}\n\n" for piece in [*pieces, text.replace('"message"', '"delta_"'), "[DONE]"]
    ).encode()


def stream(http: BaseHTTPRequestHandler, reply: dict[str, Any], fault: str, drip: float) -> None:
    """The reply in chunked events, word by word; `cut` breaks off inside a chunk, `cut early` between two."""
    choice = reply["choices"][0]
    said, refusal = choice["message"].get("content") or "", choice["message"].get("refusal")
    chances = (choice.get("logprobs") or {}).get("content") or []
    pieces: list[dict[str, Any]] = [{"choices": [{"index": 0, "delta": {"role": "assistant"}}]}]
    for i, word in enumerate(re.findall(r"\S+\s*", said)):
        one: dict[str, Any] = {"index": 0, "delta": {"content": word}}
        if i < len(chances):
            one["logprobs"] = {"content": [chances[i]]}
        pieces.append({"choices": [one]})
    if refusal:
        pieces.append({"choices": [{"index": 0, "delta": {"refusal": refusal}}]})
    pieces.append({"choices": [{"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}]})
    if "usage" in reply:
        pieces.append({"choices": [], "usage": reply["usage"]})
    http.protocol_version = "HTTP/1.1"
    http.send_response(200)
    for key, value in {
        "Content-Type": "text/event-stream",
        "Transfer-Encoding": "chunked",
        "Connection": "close",
    }.items():
        http.send_header(key, value)
    http.end_headers()
    lines = [b"data: " + json.dumps(piece).encode() + b"\n\n" for piece in pieces] + [b"data: [DONE]\n\n"]
    http.close_connection = True
    for i, line in enumerate(lines):
        if i == len(lines) // 2 and fault == "cut":
            http.wfile.write(b"%x\r\n" % len(line) + line[: len(line) // 2])
            return
        if i == len(lines) // 2 and fault == "cut early":
            http.wfile.write(b"0\r\n\r\n")
            return
        http.wfile.write(b"%x\r\n" % len(line) + line + b"\r\n")
        http.wfile.flush()
        time.sleep(drip)
    http.wfile.write(b"0\r\n\r\n")


def fee(reply: dict[str, Any]) -> float:
    usage = reply.get("usage", {"prompt_tokens": 0, "completion_tokens": 0})
    return (usage["prompt_tokens"] * PRICE_IN + usage["completion_tokens"] * PRICE_OUT) / 1e6


def send(http: BaseHTTPRequestHandler, status: int, raw: bytes, headers: dict[str, str]) -> None:
    http.send_response(status)
    usual = {"Content-Length": str(len(raw)), "Content-Type": "application/json"}
    for key, value in {**usual, **headers}.items():
        http.send_header(key, value)
    http.end_headers()
    http.wfile.write(raw)
