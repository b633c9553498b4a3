"""What the gateway costs: processor time and latency of a request beside a bare pass-through and litellm.

    python -m benchmarks.gateway [--requests 1500] [--litellm .venv-litellm] [--routellm .venv-routellm]
                                 [--page docs/gateway-speed.md]
    python -m benchmarks.gateway --events

About three minutes on a quiet machine. Every server runs alone on one core, in front of the same stub, in the
same run; the load comes from the other core. CPU is that of the server's processes by the kernel's count, so
a busy machine blurs latencies more than CPU. `auto` decides with the default cheap estimate among ten
specialists. `--events` prints only what reading one event of a stream costs, in a few seconds.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import platform
import secrets
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import orjson
from tests.support.provider_replies import Said, Shape, Tokens, events
from tools.pages import put

from benchmarks import served
from benchmarks.served import Server, Timed
from pandora_router.data.table import Table
from pandora_router.gateway.providers.backend import Backend, Circuit
from pandora_router.gateway.providers.cost_bound import Quote
from pandora_router.gateway.request.attempts import RunningAttempt
from pandora_router.prices import Lengths, Tariff
from pandora_router.router import Router, StackRecipe
from pandora_router.store.worker import Store
from pandora_router.transport.endpoint import Endpoint
from pandora_router.wires.events import AnswerReader, Frames
from pandora_router.wires.known import BY_NAME
from pandora_router.wires.translation import AnswerAbout
from pandora_router.wires.translator import NEAREST, Translator, request_of, written
from pandora_router.wires.wire import Name

PARTS = 5
PROMPTS = [f"Which of the {i} rivers near city {i * 7} is the longest, and why?" for i in range(200)]
BARE, BARE_UVLOOP, BARE_STORED, NAMED, AUTO, LITELLM, ROUTELLM = (
    "bare Starlette + aiohttp",
    "bare, on uvloop",
    "bare, two SQLite commits",
    "ours, by name",
    "ours, auto among 10",
    "litellm proxy",
    "RouteLLM server (random)",
)


@dataclass(frozen=True)
class Peers:
    """Virtual environments with gateways of others; None for those that are not compared."""

    litellm: Path | None = None
    routellm: Path | None = None


@dataclass(frozen=True)
class Cost:
    """What one way of asking costs: CPU in microseconds a request, latencies in milliseconds."""

    server: str
    kind: str
    cpu: float
    p50: float
    p99: float
    first: float = 0.0


def measure(name: str, server: Server, model: str, stream: bool, count: int) -> Cost:
    """CPU at 16 requests at once, then latency one at a time and the first token at 16 streams.

    CPU is the median over `PARTS` equal parts of the requests, so that a disturbance counts less.
    """
    bodies = [served.request(model, stream=stream, prompt=prompt) for prompt in PROMPTS]
    asyncio.run(served.drive(server.url, bodies, min(count, 200), 16, server.key))  # warm
    busy, cpus = list[Timed](), list[float]()
    for _ in range(PARTS):
        before = server.cpu()
        busy += asyncio.run(served.drive(server.url, bodies, count // PARTS, 16, server.key))
        cpus.append((server.cpu() - before) / (count // PARTS))
    cpu = statistics.median(cpus)
    if any(one.status != 200 for one in busy):
        raise RuntimeError(f"{name}: {sum(one.status != 200 for one in busy)} of {len(busy)} requests failed")
    alone = [
        one.whole
        for one in asyncio.run(served.drive(server.url, bodies, max(count // 5, 100), 1, server.key))
    ]
    p50, p99 = (1000.0 * float(np.quantile(alone, q)) for q in (0.5, 0.99))
    first = 1000.0 * statistics.median(one.first for one in busy)
    found = Cost(name, "stream" if stream else "JSON", 1e6 * cpu, p50, p99, first if stream else 0.0)
    print(found, file=sys.stderr, flush=True)
    return found


WORDY = "river king number " * 6000
WORDS = ("river", "king", "number", "count", "name", "long", "word", "city", "law", "cell", "sum", "verb")


def fit(folder: Path, names: list[str]) -> None:
    """A router with the default cheap estimate over `names`, which buys nothing at this price."""
    rng = np.random.default_rng(0)
    drawn = rng.integers(0, len(WORDS), (800, 6))
    prompts = tuple(f"{i} " + " ".join(WORDS[k] for k in row) for i, row in enumerate(drawn))
    skill = rng.random((len(WORDS), len(names)))
    chance = skill[drawn].mean(axis=1)
    split = np.array(["train"] * 500 + ["calibration"] * 200 + ["test"] * 100)
    table = Table(
        prompt_ids=tuple(map(str, range(800))),
        prompts=prompts,
        tasks=("words",) * 800,
        split=split,
        specialists=tuple(names),
        score=(rng.random(chance.shape) < chance).astype(float),
        fee=np.full(chance.shape, 0.001),
    )
    costly = StackRecipe(rounds=20, folds=2)
    Router.fit(table, costly=costly, inspection_cost=0.5).save(folder / "router", replace=True)


@contextmanager
def ours(core: int | None, target: str, specialists: int, workers: int = 1) -> Iterator[Server]:
    """`pandora serve` with a fitted router over so many specialists."""
    names = [f"s{i}" for i in range(specialists)]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        fit(folder, names)
        models = dict.fromkeys(names, "stub")
        with served.gateway(
            core, served.write_config(folder, target, models, router="router"), workers
        ) as one:
            yield one


@contextmanager
def litellm(core: int | None, target: str, environment: Path) -> Iterator[Server]:
    """The litellm proxy from a virtual environment, without a database."""
    port = served.free_port()
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "config.yaml"
        config.write_text(
            f"model_list: [{{model_name: stub, litellm_params: {{model: openai/stub, "
            f'api_base: "{target}/v1", api_key: none}}}}]\n'
            "litellm_settings: {telemetry: false}\n"
        )
        program = str((environment / "bin" / "litellm").resolve())
        command = [program, "--config", str(config), "--port", str(port), "--host", "127.0.0.1"]
        key = f"sk-{secrets.token_hex(32)}"
        variables = {
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
            "LITELLM_LOG": "ERROR",
            "LITELLM_MASTER_KEY": key,
        }
        url = f"http://127.0.0.1:{port}"
        with served.started(command, f"{url}/health/liveliness", core, **variables) as one:
            one.url, one.key = url, key
            yield one


@contextmanager
def routellm(core: int | None, target: str, environment: Path) -> Iterator[Server]:
    """RouteLLM's server with its router `random`, the only one that needs no model from the network."""
    port = served.free_port()
    command = [str((environment / "bin" / "python").absolute()), "-m", "routellm.openai_server"]
    models = ["--strong-model", "openai/stub", "--weak-model", "openai/stub"]
    options = ["--routers", "random", "--port", str(port), "--base-url", f"{target}/v1", "--api-key", "none"]
    variables = {"OPENAI_API_KEY": "none", "LITELLM_LOCAL_MODEL_COST_MAP": "True", "HF_HUB_OFFLINE": "1"}
    url = f"http://127.0.0.1:{port}"
    with served.started([*command, *models, *options], f"{url}/health", core, **variables) as server:
        server.url = url
        yield server


def compare(count: int, peers: Peers, cores: tuple[int, int]) -> list[Cost]:
    """All servers, one after the other, on core `cores[0]`; stub and load on the other."""
    first, other = cores
    few = max(count // 5, 100)
    costs: list[Cost] = []

    def both(name: str, server: Server, model: str, count: int = count) -> None:
        costs.extend(measure(name, server, model, stream, count) for stream in (False, True))

    with served.upstream(other) as stub, tempfile.TemporaryDirectory() as folder:
        with served.bare(first, stub.url) as server:
            both(BARE, server, "stub")
        if find_spec("uvloop") is not None:
            with served.bare(first, stub.url, loop="uvloop") as server:
                both(BARE_UVLOOP, server, "stub")
        with served.bare(first, stub.url, store=str(Path(folder) / "bare.sqlite")) as server:
            both(BARE_STORED, server, "stub")
        with ours(first, stub.url, 10) as server:
            both(NAMED, server, "s0")
            both(AUTO, server, "auto")
        if peers.litellm is not None:
            with litellm(first, stub.url, peers.litellm) as server:
                both(LITELLM, server, "stub", few)
        if peers.routellm is not None:
            with routellm(first, stub.url, peers.routellm) as server:
                both(ROUTELLM, server, "router-random-0.5", few)
    return costs


def growth(count: int, cores: tuple[int, int]) -> list[tuple[str, float, float]]:
    """CPU in microseconds and requests per second of `auto` by workers, specialists and prompt length."""
    rows: list[tuple[str, float, float]] = []
    with served.upstream(cores[1]) as stub:

        def row(what: str, server: Server, prompt: str, count: int) -> None:
            bodies = [served.request("auto", stream=False, prompt=f"{i} {prompt}") for i in range(100)]
            asyncio.run(served.drive(server.url, bodies, 50, 16))
            before, begun = server.cpu(), time.perf_counter()
            asyncio.run(served.drive(server.url, bodies, count, 32))
            took = time.perf_counter() - begun
            rows.append((what, 1e6 * (server.cpu() - before) / count, count / took))
            print(rows[-1], file=sys.stderr, flush=True)

        with ours(cores[0], stub.url, 10) as server:
            for length in (40, 1_000, 10_000, 100_000):
                some = count if length < 10_000 else max(count // 4, 50)
                row(f"1 worker, 10 specialists, {length:,} characters", server, WORDY[:length], some)
        for specialists in (3, 30):
            with ours(cores[0], stub.url, specialists) as server:
                row(f"1 worker, {specialists} specialists, 40 characters", server, WORDY[:40], count)
        for workers in (1, 2):
            with ours(None, stub.url, 10, workers) as server:
                what = f"{workers} worker{'s' * (workers > 1)} on all cores, 10 specialists, 40 characters"
                row(what, server, WORDY[:40], count)
    return rows


@dataclass
class Replayed:
    """A reply that has arrived whole, event by event, for `reading`."""

    parts: list[bytes]
    status: int = 200
    broken: bool = False
    headers: Mapping[str, str] = field(default_factory=lambda: {"content-type": "text/event-stream"})

    async def chunk(self) -> bytes:
        """The next event, b"" at the end."""
        return self.parts.pop() if self.parts else b""

    async def read(self, limit: int) -> bytes:
        """The whole body."""
        return b"".join(reversed(self.parts))

    def close(self) -> None:
        """Nothing is open."""


def reading(count: int = 20_000) -> list[tuple[str, float]]:
    """Microseconds of CPU for one event of a stream that the gateway reads and sends on, by kind of event."""
    backend = Backend("s", Endpoint("http://127.0.0.1:9/v1"), "s", Tariff(1.0, 10.0))
    chat = _chat_stream()[1].replace(b"\r", b"")
    delta = (
        b'data: {"type":"response.output_text.delta","sequence_number":9,"item_id":"m","delta":" word"}\n\n'
    )
    kinds: list[tuple[str, Name, bytes]] = [
        ("chat, usage left out", "chat", chat.replace(b', "usage": null', b"")),
        ('chat, "usage": null', "chat", chat),
        (
            "chat, running usage",
            "chat",
            chat.replace(b"null}", json.dumps({"prompt_tokens": 9, "completion_tokens": 1}).encode() + b"}"),
        ),
        ("responses, text", "responses", b"event: response.output_text.delta\n" + delta),
    ]

    async def read(wire: Name, event: bytes) -> float:
        quote = Quote(backend, BY_NAME[wire], 0, 0, Lengths())
        attempt = RunningAttempt("decision", "answer", quote, AnswerReader(quote.wire), store, Circuit())
        attempt.relay = Replayed([event] * (count + 1))
        await attempt.hold()
        begun = time.process_time()
        async for _ in attempt.rest():
            pass
        return 1e6 * (time.process_time() - begun) / count

    with tempfile.TemporaryDirectory() as folder, closing(Store(str(Path(folder) / "store.sqlite"))) as store:
        return [
            (what, min(asyncio.run(read(wire, event)) for _ in range(PARTS))) for what, wire, event in kinds
        ]


def _chat_stream() -> list[bytes]:
    """A stream of 200 words on the chat wire, as the fake provider sends it."""
    said = Said(tuple(f" word{i}" for i in range(200)))
    return [frame for frame, _ in events(Shape("chat/completions", "stub"), said, Tokens(9, 0, 0, 200))]


def translating(seconds: float = 0.3) -> list[str]:
    """What translation costs: CPU for one request of an agent, and for one event of a stream."""
    tool = {
        "name": "look",
        "description": "Looks. " * 50,
        "input_schema": {"type": "object", "properties": {}},
    }
    tools = [{**tool, "name": f"look{i}"} for i in range(25)]
    turn = [{"role": "user", "content": "word " * 100}, {"role": "assistant", "content": "word " * 100}]
    asked = {"model": "auto", "max_tokens": 99, "tools": tools, "messages": [*turn * 20, turn[0]]}
    ways = {}
    for name in NEAREST["messages"]:
        spent = _timed(lambda: orjson.dumps(written(request_of("messages", asked), name, "m")), seconds)
        ways[f"messages -> {name}, {len(json.dumps(asked)) // 1000} kB"] = f"{spent:.0f} us of CPU a request"
    chat = _chat_stream()
    streams: dict[Name, list[bytes]] = {"chat": chat}
    for name in NEAREST["chat"]:
        made = Translator(BY_NAME["chat"], BY_NAME[name], AnswerAbout("1", 1))
        streams[name] = Frames().feed(b"".join([*map(made.feed, chat), made.end()]))
    for came, stream in streams.items():
        for goes in NEAREST[came]:

            def translate(came: Name = came, goes: Name = goes, stream: list[bytes] = stream) -> None:
                made = Translator(BY_NAME[came], BY_NAME[goes], AnswerAbout("1", 1))
                for event in stream:
                    made.feed(event)
                made.end()

            each = _timed(translate, seconds) / len(stream)
            ways[f"a {goes} client of a {came} specialist"] = f"{each:.1f} us of CPU an event"
    return [f"translated, {way}: {cost}" for way, cost in ways.items()]


def _timed(work: Callable[[], object], seconds: float) -> float:
    """Microseconds of CPU of one call."""
    begun, count = time.process_time(), 0
    while (spent := time.process_time() - begun) < seconds:
        work()
        count += 1
    return 1e6 * spent / count


def verdicts(found: list[Cost]) -> list[str]:
    """The ratios and differences of the table, in words."""
    by = {(one.server, one.kind): one for one in found}
    lines = []
    for kind in ("JSON", "stream"):
        named, plain, auto = (by[name, kind] for name in (NAMED, BARE, AUTO))
        lines.append(_said(f"by name, {kind}: CPU times bare", named.cpu / plain.cpu))
        more = (auto.cpu - named.cpu) / 1000.0
        lines.append(_said(f"auto, {kind}: ms of CPU more than by name", more))
        if (LITELLM, kind) in by:
            times = by[LITELLM, kind].cpu / named.cpu
            lines.append(f"litellm, {kind}: {times:.1f} times our CPU by name")
    late = by[NAMED, "stream"].first - by[BARE, "stream"].first
    lines.append(_said("first token at 16 streams, by name: ms more than bare", late))
    return lines


def _said(what: str, value: float) -> str:
    return f"{what}: {value:.2f}"


def page(found: list[Cost], rows: list[tuple[str, float, float]], count: int, peers: Peers) -> str:
    """The measurements as Markdown: the part `speed` of docs/gateway-speed.md."""
    plain = {one.kind: one for one in found if one.server == BARE}
    lines = [
        f"`--requests {count}`, Python {platform.python_version()},",
        f"{os.cpu_count()} cores ({platform.machine()}). One core for each server, the same stub upstream,",
        "load from another core. CPU is what the kernel counts for the server at 16 requests at once,",
        f"the median over {PARTS} parts of the requests (a fifth of them for the proxies of others);",
        "latencies are of one request at a time; the first token is the median at 16 streams.",
        f"The load of the machine was {os.getloadavg()[1]:.1f}; latencies mean little above its cores.",
        "",
        "| server | answer | CPU, µs | times bare | p50, ms | added | p99, ms | added | first token, ms |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for one in found:
        bare = plain[one.kind]
        first = f"{one.first:.1f}" if one.first else ""
        lines.append(
            f"| {one.server} | {one.kind} | {one.cpu:,.0f} | {one.cpu / bare.cpu:.2f} | {one.p50:.2f} | "
            f"{one.p50 - bare.p50:+.2f} | {one.p99:.2f} | {one.p99 - bare.p99:+.2f} | {first} |"
        )
    lines += ["", *(f"- {line}" for line in verdicts(found)), "", STORED]
    lines += ["", WITHOUT_ROUTELLM if peers.routellm is None else WITH_ROUTELLM]
    if rows:
        lines += ["", "How `auto` grows (JSON, 32 requests at once):", ""]
        lines += ["| served | CPU, µs a request | requests a second |", "|---|---|---|"]
        lines += [f"| {what} | {cpu:,.0f} | {rate:,.0f} |" for what, cpu, rate in rows]
    return "\n".join(lines) + "\n"


STORED = """\
*Bare, two SQLite commits* is the pass-through with one row for each request, written before the call and
completed after it, as durable rows need it at least. Ours writes the decision, its attempt and sums per
minute and hour, and reads token counts; requests that come together share a commit."""
WITHOUT_ROUTELLM = """\
RouteLLM's server is not part of this run (`--routellm` names an environment with `routellm[serve]`)."""
WITH_ROUTELLM = """\
RouteLLM runs with its router `random`: the others load weights from the Hugging Face hub when the server
starts, or embed every prompt with a hosted model, and so do not run offline."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gateway", description=__doc__)
    parser.add_argument("--requests", type=int, default=1500)
    parser.add_argument("--litellm", type=Path, help="virtual environment with litellm[proxy]")
    parser.add_argument("--routellm", type=Path, help="virtual environment with routellm[serve]")
    parser.add_argument("--no-growth", action="store_true", help="leave out the table of growth")
    parser.add_argument("--page", type=Path, help="write the part `speed` of this page")
    parser.add_argument(
        "--events", action="store_true", help="only the cost of one event, and of translation"
    )
    given = parser.parse_args()
    if given.events:
        print("\n".join(f"{what}: {spent:.1f} us of CPU an event" for what, spent in reading()))
        print("\n".join(translating()))
        return
    cores = sorted(os.sched_getaffinity(0))
    pair = (cores[0], cores[-1])
    with contextlib.suppress(OSError):
        os.sched_setaffinity(0, {pair[1]})
    peers = Peers(given.litellm, given.routellm)
    found = compare(given.requests, peers, pair)
    rows = [] if given.no_growth else growth(max(given.requests // 3, 100), pair)
    told = page(found, rows, given.requests, peers)
    print(told)
    if given.page is not None:
        put(told, given.page, "speed")


if __name__ == "__main__":
    main()
