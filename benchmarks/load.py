"""The gateway under steady load: does memory stay flat, is a row lost, does its event loop answer?

    python -m benchmarks.load [--seconds 300] [--streams 256] [--share 0.8]

First the capacity is measured: streams as fast as one worker on one core can serve them. Then so many streams
run at once for so many seconds that the worker has `share` of that to do. Memory is sampled every second;
the event loop is asked /healthz twenty times a second from outside, so its delay is over-estimated.
`--seconds 20` is the short version.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from pathlib import Path

import aiohttp
import numpy as np

from benchmarks import served
from benchmarks.served import Server, Timed
from pandora_router.store.database import connect

EVENTS = 24
"""Events in one stream of the stub, each after a pause."""


async def steady(url: str, body: bytes, streams: int, seconds: float) -> list[Timed]:
    """Keep `streams` open for so many seconds; each client begins at its own time."""
    done: list[Timed] = []
    until = time.monotonic() + seconds
    limit = aiohttp.ClientTimeout(total=120)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=limit) as session:

        async def client(number: int) -> None:
            await asyncio.sleep(min(seconds, 5.0) * number / streams)
            while time.monotonic() < until:
                one = await served.ask(session, url, body)
                done.append(one)

        await asyncio.gather(*(client(i) for i in range(streams)))
    return done


async def watch(server: Server, over: asyncio.Event) -> tuple[list[float], list[float]]:
    """Seconds that /healthz took, and memory in MB once a second."""
    delays: list[float] = []
    memory: list[float] = []
    async with aiohttp.ClientSession() as session:
        while not over.is_set():
            begun = time.perf_counter()
            async with session.get(f"{server.url}/healthz") as answer:
                await answer.read()
            delays.append(time.perf_counter() - begun)
            if len(delays) % 20 == 0:
                memory.append(server.memory())
            await asyncio.sleep(0.05)
    return delays, memory


def measure(seconds: float, streams: int, share: float) -> dict[str, float]:
    """Serve, load, and count what was answered and stored."""
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[-1]})
    with tempfile.TemporaryDirectory() as name, served.upstream(cores[-1]) as stub:
        folder = Path(name)
        config = served.write_config(folder, stub.url, {"fast": "stub"})
        with served.gateway(cores[0], config) as server:
            fast = served.request("fast", stream=True)
            asyncio.run(served.drive(server.url, [fast], 200, 16))
            before, begun = server.cpu(), time.perf_counter()
            asyncio.run(served.drive(server.url, [fast], 1000, 32))
            cpu = (server.cpu() - before) / 1000
            closed = 1000 / (time.perf_counter() - begun)
        capacity = min(1.0 / cpu, closed)
        pause = max(round(1000 * streams / (share * capacity) / EVENTS), 1)
        config = served.write_config(folder, stub.url, {"slow": f"slow-{pause}"}, store="load.sqlite")
        with served.gateway(cores[0], config) as server:
            done, delays, memory = asyncio.run(_run(server, streams, seconds))
        rows = _rows(folder / "load.sqlite")
    fifth = max(len(memory) // 5, 1)
    early, late = float(np.median(memory[fifth : 2 * fifth])), float(np.median(memory[-fifth:]))
    return {
        "capacity per second": round(capacity, 1),
        "requests": len(done),
        "per second": round(len(done) / seconds, 1),
        "not answered": sum(one.status != 200 for one in done),
        "decisions closed": rows[0],
        "decisions or attempts open": rows[1] + rows[2],
        "event loop p50, ms": round(1000 * float(np.quantile(delays, 0.5)), 2),
        "event loop p99, ms": round(1000 * float(np.quantile(delays, 0.99)), 2),
        "memory early, MB": round(early, 1),
        "memory late, MB": round(late, 1),
    }


async def _run(server: Server, streams: int, seconds: float) -> tuple[list[Timed], list[float], list[float]]:
    over = asyncio.Event()
    watching = asyncio.ensure_future(watch(server, over))
    done = await steady(server.url, served.request("slow", stream=True), streams, seconds)
    over.set()
    delays, memory = await watching
    return done, delays, memory


def _rows(store: Path) -> tuple[int, int, int]:
    database = connect(str(store))
    with database.transaction() as open_:
        closed = open_.rows("SELECT count(*) FROM decisions WHERE closed_at IS NOT NULL")[0][0]
        still = open_.rows("SELECT count(*) FROM decisions WHERE closed_at IS NULL")[0][0]
        attempts = open_.rows("SELECT count(*) FROM attempts WHERE settled_at IS NULL")[0][0]
    database.close()
    return int(closed), int(still), int(attempts)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.load", description=__doc__)
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--streams", type=int, default=256)
    parser.add_argument("--share", type=float, default=0.8)
    given = parser.parse_args()
    found = measure(given.seconds, given.streams, given.share)
    print(json.dumps(found, indent=1))
    lost = found["not answered"] or found["decisions closed"] != found["requests"]
    grown = found["memory late, MB"] > 1.05 * found["memory early, MB"] + 5
    late = found["event loop p99, ms"] > 50
    for what, bad in (
        ("a row or an answer is lost", lost),
        ("memory grows", grown),
        ("the loop is late", late),
    ):
        print(f"{'missed' if bad else 'met'}: not that {what}")
    sys.exit(1 if lost or grown or found["decisions or attempts open"] else 0)


if __name__ == "__main__":
    main()
