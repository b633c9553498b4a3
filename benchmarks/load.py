"""The gateway under steady load: does memory stay flat, is a row lost, does its event loop answer?

    python -m benchmarks.load [--seconds 300] [--streams 256] [--share 0.8] [--page docs/gateway-speed.md]
    python -m benchmarks.load --postgres [--requests 1500] [--page docs/gateway-speed.md]

One worker has a core of its own; the upstream, the clients and a probe share the other. Streams run at once
whose events come at a pace at which the worker is busy for `share` of its core (found by two short runs).
Memory is read once a second. The probe, a process of its own that waits for nothing else, asks /healthz
twenty times a second: its delay is how late the event loop is. `--seconds 20` is the short version.

`--postgres` measures hosts that share a PostgreSQL store which is a network away. Each host is a gateway
with one worker; a proxy delays every message between it and the database. 64 requests at once and per host
name their specialist, with a key that has a budget and one that has none. With an upstream that answers at
once the processors are the limit, since all processes share this machine; with one that answers after
`STEADY` milliseconds they are not, and what the store adds to a request can be seen.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import json
import operator
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import uvloop
from tests.store.databases import postgresql
from tools.pages import put

from benchmarks import paced, served
from benchmarks.served import Server
from pandora_router.report.tables import grid
from pandora_router.store import accounts
from pandora_router.store.database import connect
from pandora_router.store.worker import Store

FIRST_PAUSE = 0.05
STEADY = 200
AT_ONCE = 64
DELAYS = (0.0, 0.25, 1.0)
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


class Hosts:
    """Gateways with one worker each, on one store, and what they and the database have used so far."""

    def __init__(self, servers: list[Server], messages: list[Callable[[], int]], database: Server | None):
        self.servers, self.messages, self.database = servers, messages, database

    def used(self) -> tuple[float, ...]:
        """Processor seconds of gateways, database, this benchmark and the machine; round trips."""
        busy = sum(map(int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:4]))
        database = 0.0 if self.database is None else self.database.cpu()
        trips = sum(said() for said in self.messages)
        ours = Server(SimpleNamespace(pid=os.getpid()), "").cpu()  # type: ignore[arg-type]
        machine = busy / os.sysconf("SC_CLK_TCK")
        return sum(server.cpu() for server in self.servers), database, ours, machine, trips

    def row(self, model: str, secret: str, count: int, store: str, what: str) -> list[str]:
        """Send `count` requests to each host; what came of it as a row of the table."""

        async def drive(count: int) -> list[served.Timed]:
            body = [served.request(model, stream=False)]
            each = (served.drive(server.url, body, count, AT_ONCE, secret) for server in self.servers)
            return [timed for host in await asyncio.gather(*each) for timed in host]

        uvloop.run(drive(2 * AT_ONCE))  # opens connections
        before, begun = self.used(), time.monotonic()
        answers = uvloop.run(drive(count))
        lasted = time.monotonic() - begun
        gateway, database, ours, machine, trips = map(operator.sub, self.used(), before)
        if any(answer.status != 200 for answer in answers):
            raise RuntimeError(f"not answered: {Counter(answer.status for answer in answers)}")
        n, waits = len(answers), [1000 * answer.whole for answer in answers]
        middle, late = np.quantile(waits, 0.5), np.quantile(waits, 0.99)
        return [
            *(store, str(len(self.servers)), what, "at once" if model == "good" else f"after {STEADY} ms"),
            *(f"{n / lasted:,.0f}", f"{middle - (0 if model == 'good' else STEADY):.1f}", f"{late:.0f}"),
            *(f"{1000 * gateway / n:.2f}", f"{1000 * database / n:.2f}", f"{trips / n:.2f}"),
            *(f"{spent / lasted / len(os.sched_getaffinity(0)):.0%}" for spent in (ours, machine)),
        ]


COLUMNS = [
    *("store", "hosts", "budget", "upstream answers", "answers a second", "p50 added, ms", "p99, ms"),
    *("gateway, CPU ms an answer", "database, CPU ms an answer", "round trips an answer"),
    *("cores, this benchmark", "cores, everything here"),
]


@contextmanager
def hosts(stub: Server, count: int, delay: float | None) -> Iterator[tuple[Hosts, dict[str, str]]]:
    """So many gateways on a new PostgreSQL, with a delay in milliseconds each way, or on a SQLite file.

    Also gives the secrets of two keys: of one with a budget and of one without.
    """
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        database = None if delay is None else stack.enter_context(postgresql())
        url = str(folder / "load.sqlite") if database is None else database.url
        secrets: dict[str, str] = {}
        with closing(Store(url)) as store:
            for name, budget in (("none", None), ("one", 10**15)):
                add = functools.partial(accounts.add_key, name=name, now=time.time(), budget=budget)
                secrets[name] = store.submit(add).result()[1]
        servers, messages = [], []
        for number in range(count):
            place = folder / str(number)
            place.mkdir()
            near = url
            if database is not None and delay is not None:
                port, said = stack.enter_context(served.delayed(database.port, delay / 1000))
                near = url.replace(str(database.port), str(port))
                messages.append(said)
            models = {"good": "stub", "steady": f"delay-{STEADY}"}
            config = served.write_config(place, stub.url, models, store=near, keys="required")
            servers.append(stack.enter_context(served.gateway(None, config)))
        process = None if database is None else database.process
        yield Hosts(servers, messages, None if process is None else Server(process, "")), secrets


def several(count: int) -> list[list[str]]:
    """The rows of the table of hosts and delays."""
    rows = []
    with served.upstream(None) as stub:
        for model, most in (("good", count), (f"delay-{STEADY}", 10 * AT_ONCE)):
            rows.append(Hosts([stub], [], None).row(model, "", most, "the upstream itself", "none"))
            print(" | ".join(rows[-1]), flush=True)
        for delay in (None, *DELAYS):
            store = "SQLite" if delay is None else f"PostgreSQL, {delay:g} ms each way"
            for number in (1,) if delay is None else (1, 2):
                with hosts(stub, number, delay) as (running, secrets):
                    for what, secret in secrets.items():
                        for model, most in (("good", count), ("steady", 10 * AT_ONCE)):
                            rows.append(running.row(model, secret, most, store, what))
                            print(" | ".join(rows[-1]), flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.load", description=__doc__)
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--streams", type=int, default=256)
    parser.add_argument("--share", type=float, default=0.8)
    parser.add_argument("--postgres", action="store_true", help="measure hosts that share PostgreSQL")
    parser.add_argument("--requests", type=int, default=1500, help="requests to each host [1500]")
    parser.add_argument("--page", type=Path, help="write the part of this page on the load")
    given = parser.parse_args()
    if given.postgres:
        table = grid(COLUMNS, several(given.requests))
        print(table)
        if given.page:
            put(table, given.page, "hosts")
        return
    found = measure(given.seconds, given.streams, given.share)
    print(json.dumps(found, indent=1))
    lines = judged(found)
    print("\n".join(lines))
    if given.page:
        put(summary(found), given.page, "load")
    sys.exit(1 if any(line.startswith("NO") for line in lines) else 0)


if __name__ == "__main__":
    main()
