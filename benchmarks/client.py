"""CPU per HTTP call of this package's client and of aiohttp, one after the other, beside the fake provider.

Each call is a POST of a short chat request whose whole answer is read; 16 calls run at once, on connections
that are kept. The provider runs in a process of its own and is not counted. The table has the median of
`REPEATS` rounds, the least and the most.
"""

from __future__ import annotations

import asyncio
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable

import aiohttp
import orjson
from rich.console import Console
from tests.support.provider import Provider
from tests.support.provider_models import Model

from pandora_router.report.tables import grid
from pandora_router.transport.relay import Relay

CALLS, AT_ONCE, REPEATS = 2000, 16, 5
BODY = orjson.dumps({"model": "small", "messages": [{"role": "user", "content": "What is the capital?"}]})
HEADERS = {"content-type": "application/json", "accept-encoding": "identity", "authorization": "Bearer x"}
Call = Callable[[], Awaitable[bytes]]


def provider(port: int, *, thread: bool) -> Provider:
    return Provider({"small": Model()}, port, thread=thread)


async def cpu_seconds(call: Call) -> float:
    """CPU seconds of one call, the mean of `CALLS`."""
    left = iter(range(CALLS))

    async def work() -> None:
        for _ in left:
            assert b"Hello" in await call()

    begun = time.process_time()
    await asyncio.gather(*(work() for _ in range(AT_ONCE)))
    return (time.process_time() - begun) / CALLS


async def measure(url: str) -> dict[str, list[float]]:
    async def ours() -> bytes:
        relay = await Relay.open(url, BODY, HEADERS, 30.0)
        try:
            return await relay.read(10**6)
        finally:
            relay.close()

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

        async def theirs() -> bytes:
            async with session.post(url, data=BODY, headers=HEADERS) as response:
                return await response.read()

        rows: dict[str, list[float]] = {"transport.relay": [], "aiohttp": []}
        for _ in range(REPEATS):
            for name, call in (("transport.relay", ours), ("aiohttp", theirs)):
                rows[name].append(await cpu_seconds(call))
    return rows


def main() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    place = ["tests.support.provider", str(port), "benchmarks.client:provider"]
    process = subprocess.Popen([sys.executable, "-m", *place])
    try:
        until = time.monotonic() + 30.0
        while time.monotonic() < until:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        rows = asyncio.run(measure(f"http://127.0.0.1:{port}/v1/chat/completions"))
    finally:
        process.terminate()
        process.wait(10)
    us = {name: [1e6 * seconds for seconds in values] for name, values in rows.items()}
    table = [
        [name, f"{statistics.median(values):.0f}", f"{min(values):.0f}", f"{max(values):.0f}"]
        for name, values in us.items()
    ]
    Console().print(grid(["client", "CPU µs a call, median", "least", "most"], table), markup=False)
    ratio = statistics.median(us["aiohttp"]) / statistics.median(us["transport.relay"])
    print(f"aiohttp takes {ratio:.1f} times the CPU of transport.relay.")


if __name__ == "__main__":
    main()
