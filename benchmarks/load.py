"""The gateway under steady load: does memory stay flat, is a row lost, does its event loop answer?

    python -m benchmarks.load [--seconds 300] [--streams 256] [--share 0.8] [--page docs/gateway-load.md]

One worker has a core of its own; the upstream, the clients and a probe share the other. Streams run at once
whose events come at a pace at which the worker is busy for `share` of its core (found by two short runs).
Memory is read once a second. The probe, a process of its own that waits for nothing else, asks /healthz
twenty times a second: its delay is how late the event loop is. `--seconds 20` is the short version.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import uvloop
from tools.pages import put

from benchmarks import paced, served
from benchmarks.served import Server
from pandora_router.store.database import connect

FIRST_PAUSE = 0.05
LATEST = 50.0
"""Goal: milliseconds of delay that 99 of 100 requests of the probe stay under."""


async def _memory(server: Server, values: list[float]) -> None:
    while True:
        values.append(server.memory())
        await asyncio.sleep(1.0)


async def _steady(server: Server, streams: int, seconds: float) -> tuple[paced.Count, list[float]]:
    values: list[float] = []
    reading = asyncio.ensure_future(_memory(server, values))
    try:
        count = await paced.steady(server.url, served.request("slow", stream=True), streams, seconds)
    finally:
        reading.cancel()
    return count, values


def run(cores: tuple[int, int], pause: float, streams: int, seconds: float) -> dict[str, Any]:
    """Serve, load and probe for so many seconds; count what was answered and stored."""
    with tempfile.TemporaryDirectory() as name, served.upstream(cores[1]) as stub:
        folder = Path(name)
        models = {"slow": f"slow-{1000 * pause:.3f}"}
        config = served.write_config(folder, stub.url, models, store="load.sqlite")
        with served.gateway(cores[0], config) as server:
            command = [sys.executable, "-m", "benchmarks.paced", server.url]
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
            with subprocess.Popen(command, cwd=served.ROOT, preexec_fn=_first, **pipes) as probing:  # type: ignore[call-overload]
                cpu, begun = server.cpu(), time.monotonic()
                count, memory = uvloop.run(_steady(server, streams, seconds))
                cpu, lasted = server.cpu() - cpu, time.monotonic() - begun
                delays = json.loads(probing.communicate()[0])
        rows = _rows(folder / "load.sqlite")
    return {"count": count, "memory": memory, "cpu": cpu, "seconds": lasted, "delays": delays, "rows": rows}


def _first() -> None:
    """Let the probe run before the clients on their core, if the system allows it."""
    if os.geteuid() == 0:
        os.nice(-10)


def measure(seconds: float, streams: int, share: float) -> dict[str, float]:
    """Find the pace at which the worker is busy for `share` of a core, and hold it."""
    cores = sorted(os.sched_getaffinity(0))
    pair = (cores[0], cores[-1])
    os.sched_setaffinity(0, {cores[-1]})
    pause = FIRST_PAUSE
    for _ in range(2):
        trial = run(pair, pause, streams, 8.0)
        pause *= trial["cpu"] / trial["seconds"] / share
    found = run(pair, pause, streams, seconds)
    memory = found["memory"]
    fifth = max(len(memory) // 5, 1)
    early, late = float(np.median(memory[fifth : 2 * fifth])), float(np.median(memory[-fifth:]))
    closed, open_decisions, open_attempts = found["rows"]
    return {
        "streams at once": streams,
        "seconds": round(found["seconds"]),
        "share of a core that the worker used": round(found["cpu"] / found["seconds"], 2),
        "milliseconds between two events of a stream": round(1000 * pause, 1),
        "streams answered": found["count"].answered,
        "streams a second": round(found["count"].answered / found["seconds"], 1),
        "not answered": found["count"].failed,
        "decisions closed": closed,
        "decisions or attempts open": open_decisions + open_attempts,
        "event loop late, p50 in ms": round(1000 * float(np.quantile(found["delays"], 0.5)), 1),
        "event loop late, p99 in ms": round(1000 * float(np.quantile(found["delays"], 0.99)), 1),
        "memory early, MB": round(early, 1),
        "memory late, MB": round(late, 1),
    }


def _rows(store: Path) -> tuple[int, int, int]:
    database = connect(str(store))
    with database.transaction() as open_:
        closed = open_.rows("SELECT count(*) FROM decisions WHERE closed_at IS NOT NULL")[0][0]
        still = open_.rows("SELECT count(*) FROM decisions WHERE closed_at IS NULL")[0][0]
        attempts = open_.rows("SELECT count(*) FROM attempts WHERE settled_at IS NULL")[0][0]
    database.close()
    return int(closed), int(still), int(attempts)


def judged(found: dict[str, float]) -> list[str]:
    """A line for everything that must hold under load: whether it did."""
    lost = found["not answered"] or found["decisions closed"] != found["streams answered"]
    goals = (
        ("every stream is answered and has a closed decision", not lost),
        ("nothing is open after the run", not found["decisions or attempts open"]),
        ("memory is flat", found["memory late, MB"] <= 1.05 * found["memory early, MB"] + 5),
        (
            f"the event loop is late by less than {LATEST:g} ms (p99)",
            found["event loop late, p99 in ms"] < LATEST,
        ),
    )
    return [f"{'yes' if good else 'NO'}: {goal}" for goal, good in goals]


def summary(found: dict[str, float]) -> str:
    """A run as Markdown."""
    rows = "\n".join(f"| {name} | {value:,} |" for name, value in found.items())
    goals = "\n".join(f"- {line}" for line in judged(found))
    return f"| | |\n| --- | ---: |\n{rows}\n\n{goals}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.load", description=__doc__)
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--streams", type=int, default=256)
    parser.add_argument("--share", type=float, default=0.8)
    parser.add_argument("--page", type=Path, help="write the part of this page on the load")
    given = parser.parse_args()
    found = measure(given.seconds, given.streams, given.share)
    print(json.dumps(found, indent=1))
    lines = judged(found)
    print("\n".join(lines))
    if given.page:
        put(summary(found), given.page, "load")
    sys.exit(1 if any(line.startswith("NO") for line in lines) else 0)


if __name__ == "__main__":
    main()
