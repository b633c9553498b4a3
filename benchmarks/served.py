"""What the gateway benchmarks share: an upstream, servers as processes on one core each, a load generator.

`stub` is an ASGI application that answers at once: `model` may name a fault (see `FAULTS`), else the answer
is a short text, whole or as 20 events. With `delay-N` in the model's name it waits N milliseconds before the
first event. All processes listen on 127.0.0.1 and are ended by their id.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

ROOT = Path(__file__).parents[1]
USAGE = {"prompt_tokens": 20, "completion_tokens": 20, "total_tokens": 40}
FAULTS = ("busy", "broken", "hang", "drip", "cut", "liar", "silent")


def _chunk(model: str, delta: dict[str, Any], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    value = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": model, "choices": [choice]}
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def stream_events(model: str, usage: dict[str, int] = USAGE) -> list[bytes]:
    """The events of one streamed chat completion of 20 words."""
    counts = {"id": "c", "object": "chat.completion.chunk", "created": 1, "choices": [], "usage": usage}
    words = [_chunk(model, {"content": " word"}) for _ in range(20)]
    end = [_chunk(model, {}, "stop"), b"data: " + json.dumps(counts).encode() + b"\n\n", b"data: [DONE]\n\n"]
    return [_chunk(model, {"role": "assistant", "content": ""}), *words, *end]


async def stub(scope: Any, receive: Any, send: Any) -> None:
    """The upstream, for uvicorn."""
    body, more = b"", True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
    asked = json.loads(body or b"{}")
    model = asked.get("model", "stub")
    kind = b"text/event-stream" if asked.get("stream") else b"application/json"
    status = {"busy": 429, "broken": 500}.get(model, 200)
    if model == "hang":
        await asyncio.sleep(3600)
    await send({"type": "http.response.start", "status": status, "headers": [(b"content-type", kind)]})
    usage = {name: 1000 * count for name, count in USAGE.items()} if model == "liar" else USAGE
    if status != 200:
        await send({"type": "http.response.body", "body": b'{"error": {"message": "no"}}'})
    elif not asked.get("stream"):
        message = {"role": "assistant", "content": "word " * 20}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        whole = {"id": "c", "object": "chat.completion", "created": 1, "model": model, "choices": [choice]}
        await send({"type": "http.response.body", "body": json.dumps({**whole, "usage": usage}).encode()})
    else:
        await _stream(model, usage, send)


async def _stream(model: str, usage: dict[str, int], send: Any) -> None:
    events = [] if model == "silent" else stream_events(model, usage)
    if model.startswith("delay-"):
        await asyncio.sleep(int(model.removeprefix("delay-")) / 1000)
    for i, event in enumerate(events):
        if model == "cut" and i == 5:
            raise RuntimeError("cut on purpose")  # uvicorn closes the connection
        if model == "drip" or model.startswith("slow-"):
            await asyncio.sleep(0.05 if model == "drip" else int(model.removeprefix("slow-")) / 1000)
        await send({"type": "http.response.body", "body": event, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class Server:
    """A process that listens, with the processes below it."""

    process: subprocess.Popen[bytes]
    url: str
    key: str = ""

    @property
    def pids(self) -> list[int]:
        """This process and those it has started."""
        found, new = [], [self.process.pid]
        while new:
            pid = new.pop()
            found.append(pid)
            try:
                new += map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
            except OSError:
                continue
        return found

    def cpu(self) -> float:
        """Processor seconds that the threads of these processes have used, by the kernel's exact count."""
        total = 0
        for pid in self.pids:
            for thread in Path(f"/proc/{pid}/task").glob("*/schedstat"):
                with contextlib.suppress(OSError):  # it has ended
                    total += int(thread.read_text().split()[0])
        return total / 1e9

    def memory(self) -> float:
        """Resident memory in MB."""
        pages = 0
        for pid in self.pids:
            try:
                pages += int(Path(f"/proc/{pid}/statm").read_text().split()[1])
            except OSError:
                continue
        return pages * resource.getpagesize() / 2**20


@contextmanager
def started(command: Sequence[str], url: str, core: int | None, **variables: str) -> Iterator[Server]:
    """A server that answers at `url`, on one core; ended at the end."""
    cores = {core} if core is not None else set(os.sched_getaffinity(0))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")]), **variables}
    with tempfile.TemporaryFile() as told:
        process = subprocess.Popen(
            [*command],
            env=environment,
            stdout=told,
            stderr=told,
            cwd=ROOT,
            preexec_fn=lambda: os.sched_setaffinity(0, cores),
        )
        try:
            _wait(process, url, told)
            yield Server(process, url)
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _wait(process: subprocess.Popen[bytes], url: str, told: Any) -> None:
    until = time.monotonic() + 300
    while time.monotonic() < until:
        try:
            urllib.request.urlopen(url, timeout=5).close()
            return
        except urllib.error.HTTPError:
            return
        except OSError:
            pass
        if process.poll() is not None:
            told.seek(0)
            raise RuntimeError(told.read().decode()[-3000:])
        time.sleep(0.1)
    raise RuntimeError(f"nobody answers at {url}")


@contextmanager
def upstream(core: int | None) -> Iterator[Server]:
    """The stub as a process."""
    port = free_port()
    command = [sys.executable, "-m", "uvicorn", "benchmarks.served:stub", "--port", str(port)]
    options = ["--log-level", "critical", "--no-access-log", "--timeout-graceful-shutdown", "1"]
    with started([*command, *options], f"http://127.0.0.1:{port}", core) as server:
        yield server


@contextmanager
def bare(core: int | None, target: str, *, loop: str = "asyncio", store: str = "") -> Iterator[Server]:
    """The pass-through as a process; `loop` is as uvicorn names it, `store` a SQLite file or nothing."""
    port = free_port()
    command = [sys.executable, "-m", "uvicorn", "benchmarks.bare:app", "--port", str(port)]
    options = ["--log-level", "warning", "--no-access-log", "--http", "httptools", "--loop", loop]
    variables = {"UPSTREAM": target, "STORE": store}
    with started([*command, *options], f"http://127.0.0.1:{port}", core, **variables) as server:
        yield server


def write_config(
    folder: Path,
    target: str,
    models: dict[str, str],
    *,
    router: str | None = None,
    timeout: float = 30,
    **serve: object,
) -> Path:
    """A pandora.yaml with a specialist for each name in `models`; its value is the model at the stub."""
    lines = [f'endpoints: {{stub: {{base_url: "{target}/v1", timeout: {timeout}}}}}', "specialists:"]
    rest = "prices: {in: 1, out: 10}, max_output_tokens: 100}"
    lines += [
        f"  {name}: {{kind: chat, endpoint: stub, model: {model}, {rest}" for name, model in models.items()
    ]
    options = {
        "default": next(iter(models)),
        "keys": "none",
        **({"router": router} if router else {}),
        **serve,
    }
    lines.append("serve: " + json.dumps(options))
    path = folder / "pandora.yaml"
    path.write_text("\n".join(lines) + "\n")
    return path


@contextmanager
def gateway(core: int | None, config: Path, workers: int = 1) -> Iterator[Server]:
    """`pandora serve` as a process."""
    port = free_port()
    command = [sys.executable, "-m", "pandora_router", "serve", str(config), "--port", str(port)]
    url = f"http://127.0.0.1:{port}"
    with started([*command, "--workers", str(workers)], f"{url}/healthz", core) as server:
        server.url = url
        yield server


@dataclass(frozen=True)
class Timed:
    """One request: seconds to the first event and to the end, and its HTTP status (0 if it broke off)."""

    first: float
    whole: float
    status: int
    decision: str = ""


async def ask(session: aiohttp.ClientSession, url: str, body: bytes, key: str = "") -> Timed:
    """Send one chat completion and read it to its end."""
    headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {key}"} if key else {})}
    begun = time.perf_counter()
    first = 0.0
    try:
        async with session.post(f"{url}/v1/chat/completions", data=body, headers=headers) as answer:
            decision = answer.headers.get("x-pandora-decision-id", "")
            while part := await answer.content.readany():
                if not first and (b'" word"' in part or b'"word ' in part):
                    first = time.perf_counter() - begun
            return Timed(first, time.perf_counter() - begun, answer.status, decision)
    except (aiohttp.ClientError, TimeoutError, OSError):
        return Timed(first, time.perf_counter() - begun, 0)


def request(
    model: str, *, stream: bool, prompt: str = "What is the capital of Peru?", **more: object
) -> bytes:
    said = [{"role": "user", "content": prompt}]
    return json.dumps({"model": model, "messages": said, "stream": stream, **more}).encode()


async def drive(url: str, bodies: Sequence[bytes], count: int, at_once: int, key: str = "") -> list[Timed]:
    """Send `count` requests, `at_once` at the same time, with bodies in turn and the API key `key`."""
    done: list[Timed] = []
    places = iter(range(count))
    limit = aiohttp.ClientTimeout(total=120)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=limit) as session:

        async def client() -> None:
            for i in places:
                one = await ask(session, url, bodies[i % len(bodies)], key)
                done.append(one)

        await asyncio.gather(*(client() for _ in range(at_once)))
    return done


async def drive_with(url: str, body: bytes, key: str, count: int) -> list[Timed]:
    """Send the same request `count` times, one after the other, with an API key."""
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60)) as session:
        return [await ask(session, url, body, key) for _ in range(count)]
