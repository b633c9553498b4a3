"""The market over real services: `python -m benchmarks.bidding PART ... --data ../shared/data`.

    law      every mechanism, 1,000 prompts of three tables: over HTTP as in one process; welfare
    chaos    the same with services killed, stopped, delayed and partitioned: answers, awards, ledger
    speed    auctions a second with 2 to 20 bidders, ledger on disk; wants a quiet machine
    delay    what one auction takes in milliseconds beside the same decision in one process; as `speed`
    attacks  what cheats gain and what they cost
    voi      does value-of-information bidding help the bidder, the market, or both?

Every result is a line of JSON and is kept in results/bidding.json at once: a second run goes on where the
first stopped, unless `--fresh`. `page` writes the measured part of docs/market-network.md from that file.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import bidding_page, bidding_speed
from benchmarks.bidding_attacks import outcomes
from benchmarks.bidding_chaos import Chaos, check_books, play_in_chaos
from benchmarks.bidding_damage import cheating
from benchmarks.bidding_network import play_and_compare, regrets, services_apart, totals
from benchmarks.bidding_partition import cables, can_partition
from benchmarks.bidding_tables import (
    MECHANISMS,
    MODELS,
    TABLES,
    Done,
    Row,
    central,
    error_of,
    tables,
    town_of,
)
from benchmarks.bidding_voi import voi
from pandora_router.folders.publication import replace_text
from pandora_router.store.worker import Store
from pandora_router.transport.asgi import run_event_loop
from pandora_router.types import Vector


def law(options: argparse.Namespace, done: Done) -> Iterator[Row]:
    """Every auction over HTTP and in one process; raises `AssertionError` if two differ.

    Bidders with the paper's model are there to be compared with the default one, in this process alone.
    """
    for table in tables(options):
        default = table.shipped[0]
        for model in MODELS:
            about: Row = {"table": table.name, "model": model}
            instance = table.instance(model)
            routers = {"router: default": table.shipped} if model == "default" else {}
            for router, (regret, looks) in (routers | central(instance)).items():
                row = {**about, "mechanism": router, "inspections": float(looks.mean())}
                yield row | _against(regret, default)
        first, rows = town_of(table.instance("default"), "sequential"), range(len(default))
        left = [name for name in options.mechanisms if (table.name, "default", name) not in done]
        if left:
            with services_apart(first) as processes:
                for mechanism in left:
                    town = replace(first, rules=replace(first.rules, mechanism=mechanism))
                    results = run_event_loop(play_and_compare(town, processes.urls, rows, at_once=4))
                    numbers = totals(town, results) | _against(regrets(town, results), default)
                    about = {"table": table.name, "model": "default", "mechanism": mechanism}
                    yield {**about, "same": len(rows), **numbers}
        best = table.instance("paper").rewards.max(axis=1)
        for mechanism in MECHANISMS:
            welfare = outcomes(town_of(table.instance("paper"), mechanism), rows)[1]
            about = {"table": table.name, "model": "paper", "mechanism": mechanism}
            yield about | _against(best - welfare, default)


def _against(regret: Vector, default: Vector) -> Row:
    """Mean regret, and how far it is above that of the default router on the same prompts."""
    above = regret - default
    return {
        "regret": float(regret.mean()),
        "error": error_of(regret),
        "above": float(above.mean()),
        "above error": error_of(above),
    }


def chaos(options: argparse.Namespace, done: Done) -> Iterator[Row]:
    """The same while services are harmed; raises if an answer, an award or the ledger is wrong."""
    for table in tables(options):
        left = [name for name in options.mechanisms if (table.name, name) not in done]
        if not left:
            continue
        instance = table.instance("default")
        first = town_of(instance, "sequential", deadline=0.5, auction=2.0, deliver=2.0)
        with contextlib.ExitStack() as stack:
            laid = stack.enter_context(cables(len(first.names))) if can_partition() else None
            sockets = None if laid is None else [laid.socket(j) for j in range(laid.size)]
            processes = stack.enter_context(services_apart(first, sockets))
            for mechanism in left:
                town = replace(first, rules=replace(first.rules, mechanism=mechanism))
                seed = [TABLES.index(table.name), MECHANISMS.index(mechanism)]
                harm = Chaos(processes, np.random.default_rng(seed), share=0.1, cables=laid)
                rows = range(min(options.chaos, len(instance.mean)))
                yield {"table": table.name, "mechanism": mechanism, **_harmed(town, harm, rows)}


def _harmed(town: Any, harm: Chaos, rows: range) -> Row:
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        store = Store(str(Path(folder) / "store.sqlite"))
        results = run_event_loop(play_in_chaos(town, harm, store, rows, at_once=48))
        calm = store.submit(lambda open_: check_books(town, results, open_)).result()
        store.close()
    faults = [heard.fault for result in results for heard in result.heard if heard.fault]
    return {
        "auctions": len(results),
        "calm": calm,
        "done": harm.done,
        "faults": {kind: faults.count(kind) for kind in sorted(set(faults))},
        "stalled": sum(len(result.stalled) for result in results),
        "default answered": sum(result.bidder is None for result in results),
        "seconds": time.perf_counter() - began,
    }


PARTS = {
    "law": law,
    "chaos": chaos,
    "speed": bidding_speed.speed,
    "delay": bidding_speed.delay,
    "attacks": cheating,
    "voi": voi,
}
KEY = ("table", "model", "bidders", "opponents", "mechanism", "attack")


def key_of(row: Row) -> tuple[Any, ...]:
    """What a result is about."""
    return tuple(row[name] for name in KEY if name in row)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bidding", description=__doc__)
    parser.add_argument("parts", nargs="*", default=list(PARTS), help=f"{', '.join(PARTS)}, page")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--cache", type=Path, default=Path("results/cache"), help="where estimates are kept")
    parser.add_argument("--tables", nargs="+", default=list(TABLES))
    parser.add_argument("--mechanisms", nargs="+", default=list(MECHANISMS), help="of law and chaos")
    parser.add_argument("--models", nargs="+", default=list(MODELS), help="what bidders of voi believe")
    parser.add_argument("--prompts", type=int, default=1000)
    parser.add_argument("--chaos", type=int, default=1000, help="prompts per mechanism under faults")
    parser.add_argument(
        "--fresh", action="store_true", help="forget what an earlier run has made of the parts"
    )
    parser.add_argument("--out", type=Path, default=Path("results/bidding.json"))
    parser.add_argument("--page", type=Path, default=Path("docs/market-network.md"))
    options = parser.parse_args()
    report: dict[str, list[Row]] = json.loads(options.out.read_text()) if options.out.is_file() else {}
    for part in options.parts:
        if part == "page":
            bidding_page.write(report, options.page)
            continue
        rows = {} if options.fresh else {key_of(row): row for row in report.get(part, [])}
        for row in PARTS[part](options, frozenset(rows)):
            print(json.dumps(row), flush=True)
            rows[key_of(row)] = row
            report[part] = list(rows.values())
            options.out.parent.mkdir(parents=True, exist_ok=True)
            replace_text(options.out, json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
