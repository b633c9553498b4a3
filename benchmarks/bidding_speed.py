"""How fast auctions over HTTP are, for `benchmarks.bidding`: auctions a second, and milliseconds of one."""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.bidding_network import Processes, SimulatedMarket, play_all, services_apart
from benchmarks.bidding_tables import MECHANISMS, Done, Row, tables, town_of
from pandora_router.bidding.auctioneer import StoreRecorder
from pandora_router.market import WEAK, generate
from pandora_router.store.worker import Store
from pandora_router.transport.asgi import run_event_loop

BIDDERS = (2, 5, 10, 20)
TIMED = ("sequential", "descending", "second price")
WARM = 20
"""Auctions before the clock starts, in which connections are opened."""
BATCHES = 10
"""Each is timed alone: other work on the machine can only slow some of them down."""


def processor_seconds(processes: Processes) -> float:
    """Processor time of this process and of all services so far."""
    total = sum(os.times()[:2])
    for process in processes.running:
        fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
        total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return total


def speed(options: argparse.Namespace, done: Done) -> Iterator[Row]:
    """Auctions a second by the clock and their processor time; each is written to a ledger on disk."""
    for bidders in BIDDERS:
        left = [name for name in TIMED if (bidders, name) not in done]
        if not left:
            continue
        instance = generate(WEAK, options.prompts + WARM, bidders, np.random.default_rng(0))
        first = town_of(instance, "sequential", 0.02)
        with services_apart(first) as processes:
            for mechanism in left:
                town = replace(first, rules=replace(first.rules, mechanism=mechanism))
                yield {"bidders": bidders, "mechanism": mechanism, **_timed(town, processes)}


def _timed(town: SimulatedMarket, processes: Processes) -> Row:
    rows = range(WARM, len(town.instance.mean))
    with tempfile.TemporaryDirectory() as folder:
        store = Store(str(Path(folder) / "store.sqlite"))

        async def play() -> Row:
            recorder = StoreRecorder(store)
            await play_all(town, processes.urls, range(WARM), recorder=recorder)
            before, rates, calls = processor_seconds(processes), [], 0
            for batch in np.array_split(rows, BATCHES):
                began = time.perf_counter()
                results = await play_all(town, processes.urls, batch.tolist(), recorder=recorder)
                rates.append(len(batch) / (time.perf_counter() - began))
                calls += sum(len(result.heard) for result in results)
            used = processor_seconds(processes) - before
            return {
                "auctions": len(rows),
                "auctions a second": float(np.median(rates)),
                "best": max(rates),
                "processor ms": 1e3 * used / len(rows),
                "calls": calls / len(rows),
                "load": os.getloadavg()[0],
            }

        try:
            return run_event_loop(play())
        finally:
            store.close()


def delay(options: argparse.Namespace, done: Done) -> Iterator[Row]:
    """Milliseconds until the award, one auction at a time, beside the same auction in one process."""
    for table in tables(options):
        left = [name for name in MECHANISMS if (table.name, name) not in done]
        if not left:
            continue
        first = town_of(table.instance("default"), "sequential")
        rows = range(min(200, len(first.instance.mean)))
        with services_apart(first) as processes:
            for mechanism in left:
                town = replace(first, rules=replace(first.rules, mechanism=mechanism))
                results = run_event_loop(play_all(town, processes.urls, rows, at_once=1))
                deciding, here = [result.deciding for result in results], []
                for row in rows:
                    began = time.perf_counter()
                    town.record(row)
                    here.append(time.perf_counter() - began)
                yield {
                    "table": table.name,
                    "mechanism": mechanism,
                    "milliseconds": 1e3 * float(np.median(deciding)),
                    "quickest tenth": 1e3 * float(np.quantile(deciding, 0.1)),
                    "in process": 1e3 * float(np.median(here)),
                    "load": os.getloadavg()[0],
                }
