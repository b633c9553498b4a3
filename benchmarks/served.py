"""What the gateway benchmarks share: a provider, servers as processes on one core each, a load generator.

`Upstream` is the fake provider of the tests with models that answer at once, 20 words in 20 events. A model's
name may be a fault (see `FAULTS`); `delay-N` waits N milliseconds before the first word, `slow-N` between any
two. All processes listen on 127.0.0.1 and are ended by their id.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import resource
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import aiohttp
from tests.support.provider import Provider
from tests.support.provider_models import Asked, Fault, Model
from tests.support.provider_replies import Json, Said, Tokens

ROOT = Path(__file__).parents[1]


def _counted(usage: Json) -> Json:
    """A thousand times the counts."""
    return {name: 1000 * count for name, count in usage.items() if isinstance(count, int)}


USUAL = Model(lambda _: Said((" word",) * 20))
FAULTS = {
    "busy": replace(USUAL, fault=lambda _: Fault(429)),
    "broken": replace(USUAL, fault=lambda _: Fault(500)),
    "hang": replace(USUAL, fault=lambda _: Fault(mute=True)),
    "drip": replace(USUAL, each=0.05),
    "cut": replace(USUAL, fault=lambda _: Fault(cut=4)),
    "liar": replace(USUAL, lie=_counted),
    "silent": replace(USUAL, fault=lambda _: Fault(empty=True)),
}


class Upstream(Provider):
    """The provider of the benchmarks; see above."""

    def __init__(self, port: int = 0, *, thread: bool = True) -> None:
        super().__init__(FAULTS, port, thread=thread)

    def model(self, asked: Asked) -> Model:
        how, _, milliseconds = asked.model.partition("-")
        if how == "delay":
            return replace(USUAL, first=float(milliseconds) / 1000)
        if how == "slow" and milliseconds:
            return replace(USUAL, each=float(milliseconds) / 1000)
        return self.models.get(asked.model, USUAL)

    def count(self, asked: Asked, model: Model, said: Said, copies: int = 1) -> Tokens:
        return Tokens(20, 0, 0, said.tokens)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Delay:
    """A TCP proxy on 127.0.0.1 that passes every message on after `seconds`, in both directions.

    messages: how many came from clients, which is the number of round trips if they wait for answers.
    """

    def __init__(self, target: int, seconds: float = 0.0) -> None:
        self._target, self._seconds = target, seconds
        self.port = self.messages = 0
        # the usual selector of asyncio waits for whole milliseconds
        self._loop = asyncio.SelectorEventLoop(selectors.SelectSelector())
        self._thread = threading.Thread(target=self.serve, daemon=True)
        self._ready = threading.Event()

    def serve(self) -> None:
        """Listen until the loop is stopped."""
        asyncio.set_event_loop(self._loop)
        listening = self._loop.run_until_complete(asyncio.start_server(self._pass, "127.0.0.1", 0))
        self.port = listening.sockets[0].getsockname()[1]
        self._ready.set()
        self._loop.run_forever()
        listening.close()
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        self._loop.close()

    def __enter__(self) -> Delay:
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.close()
            return
        try:
            await asyncio.gather(self._one_way(reader, back, 1), self._one_way(there, writer, 0))
        except asyncio.CancelledError:
            pass  # the proxy ends
        finally:
            for end in (back, writer):
                end.close()
                with contextlib.suppress(OSError):
                    await end.wait_closed()

    async def _one_way(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, count: int) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(2**20):
                self.messages += count
                self._loop.call_later(self._seconds, writer.write, data)
        await asyncio.sleep(self._seconds)
        writer.close()


@contextmanager
def delayed(target: int, seconds: float) -> Iterator[tuple[int, Callable[[], int]]]:
    """`Delay` as a process: its port, and a function that returns the number of messages so far."""
    command = [sys.executable, "-m", "benchmarks.served", str(target), str(seconds)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=ROOT, env=environment(), **pipes) as process:  # type: ignore[call-overload]

        def said() -> int:
            process.stdin.write("\n")
            process.stdin.flush()
            return int(process.stdout.readline())

        yield int(process.stdout.readline()), said
        process.stdin.close()


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


def environment(**variables: str) -> dict[str, str]:
    """The variables of a process that runs our code, `variables` among them."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")]), **variables}


@contextmanager
def started(command: Sequence[str], url: str, core: int | None, **variables: str) -> Iterator[Server]:
    """A server that answers at `url`, on one core; ended at the end."""
    cores = {core} if core is not None else set(os.sched_getaffinity(0))
    with tempfile.TemporaryFile() as told:
        process = subprocess.Popen(
            [*command],
            env=environment(**variables),
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
    """The provider as a process."""
    port = free_port()
    command = [sys.executable, "-m", "tests.support.provider", str(port), "benchmarks.served:Upstream"]
    with started(command, f"http://127.0.0.1:{port}", core) as server:
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
                if not first and b'" word' in part:
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


def main() -> None:
    """Serve `Delay` to a port after so many seconds; prints the port, then counts of messages."""
    with Delay(int(sys.argv[1]), float(sys.argv[2])) as proxy:
        print(proxy.port, flush=True)
        for _ in sys.stdin:
            print(proxy.messages, flush=True)


if __name__ == "__main__":
    main()
