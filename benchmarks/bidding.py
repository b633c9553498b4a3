"""The market over real services on loopback: `python -m benchmarks.bidding PART ... --data ../shared/data`.

    law      every mechanism, 1,000 prompts of three tables: over HTTP as in one process; welfare and time
    chaos    the same with services killed and stopped at random: answers, awards, ledger
    speed    auctions a second with 2 to 20 bidders
    attacks  what cheats gain and what they cost
    voi      does value-of-information bidding help the bidder, the market, or both?

Every result is a line of JSON and is kept in results/bidding.json at once: a second run goes on where the
first stopped, unless `--fresh`. `page` writes the measured part of docs/market-network.md from that file.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

import numpy as np

from benchmarks import bidding_attacks as attacks
from benchmarks import bidding_page
from benchmarks.bidding_attacks import Graded
from benchmarks.bidding_chaos import Chaos, check_books, play_in_chaos
from pandora_router.bidding.network import (
    Processes,
    Town,
    play_all,
    rewards_of,
    same_auction,
    services_apart,
    services_here,
    totals,
)
from pandora_router.bidding.platform import AuctionResult
from pandora_router.bidding.reputation import Reputation
from pandora_router.bidding.rules import Rules
from pandora_router.bidding.service import TRUTHFUL, BidderService
from pandora_router.bidding.wire import MechanismName
from pandora_router.config.experiments import read_experiment
from pandora_router.evaluate.bids import market_of
from pandora_router.evaluate.estimates import estimates, table_of
from pandora_router.evaluate.trials import trial_of
from pandora_router.folders.writing import replace_text
from pandora_router.market import WEAK, Bid, Call, Instance, Quoting, Sealed, generate, outcomes
from pandora_router.search import State
from pandora_router.store.worker import Store
from pandora_router.transport.listening import run_event_loop

TABLES = ("mirage", "mmlupro8", "routerdc7")
MECHANISMS: tuple[MechanismName, ...] = get_args(MechanismName)
COST = 0.01
PATIENT = {"deadline": 60.0, "auction": 600.0, "deliver": 60.0}


def table(name: str, options: argparse.Namespace) -> Instance:
    """The test prompts of the first split of an experiment, in a random order."""
    experiment = read_experiment(Path("paper/experiments") / f"{name}.yaml")
    made = estimates(experiment, table_of(experiment, options.data), experiment.seeds[0], options.cache)
    found = market_of(trial_of(made, 50))
    rows = np.random.default_rng(0).permutation(len(found.mean))[: options.prompts]
    parts = {part: getattr(found, part)[rows] for part in ("scores", "mean", "std", "values")}
    return Instance(**parts, realised=found.rewards[rows])


def town_of(instance: Instance, mechanism: MechanismName, cost: float = COST, **rules: Any) -> Town:
    size = instance.mean.shape[1]
    return Town(instance, np.full(size, cost), Rules(mechanism, **{**PATIENT, **rules}))


def spent_of(results: Sequence[AuctionResult]) -> np.ndarray:
    """What all bidders together report to have paid for looks, per auction."""
    last = [{heard.bidder: heard.spent for heard in result.heard} for result in results]
    return np.array([sum(reports.values()) for reports in last])


Row = dict[str, Any]
Done = frozenset[tuple[Any, ...]]
"""Keys of results that an earlier run has made; a part skips them."""


def law(options: argparse.Namespace, done: Done) -> Iterator[Row]:
    """Every auction over HTTP and in one process; raises `AssertionError` if two differ."""
    for name in options.tables:
        instance = table(name, options)
        central = outcomes(instance, COST)
        for router in ("router: rollout", "router: obligatory", "router: never inspect"):
            yield {"table": name, "mechanism": router, **central[router].mean().__dict__}
        rows, first = range(len(instance.mean)), town_of(instance, "sequential")
        with services_apart(first) as processes:
            for mechanism in (m for m in MECHANISMS if (name, m) not in done):
                town = replace(first, rules=replace(first.rules, mechanism=mechanism))
                results = run_event_loop(play_all(town, processes.urls, rows, at_once=4))
                for row, result in zip(rows, results, strict=True):
                    same_auction(town, row, result)
                yield {"table": name, "mechanism": mechanism, "same": len(rows), **totals(town, results)}


def chaos(options: argparse.Namespace, done: Done) -> Iterator[Row]:
    """The same while services are killed, stopped and delayed; raises if an answer or the ledger is wrong."""
    for at, (name, mechanism) in enumerate((t, m) for t in options.tables for m in MECHANISMS):
        if (name, mechanism) in done:
            continue
        instance = table(name, options)
        town = town_of(instance, mechanism, deadline=0.5, auction=2.0, deliver=2.0)
        rows = range(min(options.chaos, len(instance.mean)))
        began = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder, services_apart(town) as processes:
            store = Store(str(Path(folder) / "store.sqlite"))
            harm = Chaos(processes, np.random.default_rng(at), share=0.1)
            results = run_event_loop(play_in_chaos(town, harm, store, rows, at_once=48))
            calm = store.submit(lambda open_: check_books(town, results, open_)).result()
            store.close()
        faults = [heard.fault for result in results for heard in result.heard if heard.fault]
        yield (
            {"table": name, "mechanism": mechanism, "auctions": len(results), "as in process": calm}
            | {"done": harm.done, "faults": {kind: faults.count(kind) for kind in sorted(set(faults))}}
            | {"stalled": sum(len(result.stalled) for result in results)}
            | {"default answered": sum(result.bidder is None for result in results)}
            | {"seconds": time.perf_counter() - began}
        )


def processor_seconds(processes: Processes) -> float:
    """Processor time of this process and of all services so far."""
    total = sum(os.times()[:2])
    for process in processes.running:
        fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
        total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return total


def speed(options: argparse.Namespace, done: Done) -> Iterator[Row]:
    """Auctions a second by the wall clock and by processor time, and what one costs in this process alone."""
    for bidders in (2, 5, 10, 20):
        instance = generate(WEAK, options.prompts, bidders, np.random.default_rng(0))
        for mechanism in ("sequential", "descending", "second price"):
            if (bidders, mechanism) in done:
                continue
            town = town_of(instance, mechanism, 0.02)
            with services_apart(town) as processes:
                run_event_loop(play_all(town, processes.urls, range(20)))
                before, began = processor_seconds(processes), time.perf_counter()
                rows = range(len(instance.mean))
                results = run_event_loop(play_all(town, processes.urls, rows, at_once=16))
                seconds, used = time.perf_counter() - began, processor_seconds(processes) - before
                alone = run_event_loop(play_all(town, processes.urls, rows[:200], at_once=1))
            here = time.process_time()
            for row in rows[:200]:
                town.record(row)
            in_process = (time.process_time() - here) / len(rows[:200])
            yield {
                "bidders": bidders,
                "mechanism": mechanism,
                "auctions a second, wall clock": len(rows) / seconds,
                "processor ms an auction": 1e3 * used / len(rows),
                "auctions a second, two whole cores": 2 * len(rows) / used,
                "calls": float(np.mean([len(result.heard) for result in results])),
                "deciding alone, ms": float(1e3 * np.median([result.deciding for result in alone])),
                "in process, ms": 1e3 * in_process,
                "load": os.getloadavg()[0],
            }


@dataclass(frozen=True)
class Conduct:
    """Answers a posted price in one of three ways (`voi`: looks iff b <= p <= u); may look before a quote."""

    way: str
    quotes_look: bool

    def next(self, call: Call, state: State) -> Any:
        if call.price == -np.inf or self.way == "always":
            looks = self.quotes_look if call.price == -np.inf else True
            return Sealed(looks).next(call, state)
        if self.way == "voi":
            return Quoting().next(call, state)
        return Bid(float(state.boxes.mean[call.bidder]))


def voi(options: argparse.Namespace, done: Done) -> Iterator[Row]:
    """The first bidder of the random order is the strategic one: all take that part in turn."""
    for name in options.tables:
        instance = table(name, options)
        rows = range(len(instance.mean))
        for opponents in ("strong", "weak"):
            if (name, opponents, "voi") in done:
                continue
            sides = {}
            for way in ("never", "always", "voi"):
                plan = dict.fromkeys(TRUTHFUL, Conduct(way, opponents == "strong"))
                town = replace(town_of(instance, "leave one out"), strategies=[plan] * instance.mean.shape[1])
                with services_apart(town) as processes:
                    results = run_event_loop(play_all(town, processes.urls, rows, at_once=4))
                reward = rewards_of(town, results, rows)
                first = [result.order[0] for result in results]
                reports = [{heard.bidder: heard.spent for heard in result.heard} for result in results]
                own = np.array([told.get(who, 0.0) for told, who in zip(reports, first, strict=True)])
                won = np.array([r.bidder == who for r, who in zip(results, first, strict=True)])
                price = np.array([result.price for result in results])
                sides[way] = (np.where(won, reward - price, 0.0) - own, reward - own, own > 0)
            for way in ("always", "voi"):
                row = {"table": name, "opponents": opponents, "conduct": way}
                for at, measure in enumerate(("surplus", "efficiency")):
                    change = sides[way][at] - sides["never"][at]
                    row |= {measure: float(change.mean())}
                    row |= {f"{measure} error": float(change.std(ddof=1) / np.sqrt(len(change)))}
                yield {**row, "looks": float(sides[way][2].mean())}


def cheating(options: argparse.Namespace, done: Done) -> Iterator[Row]:
    """Attacks by bids, computed in one process; then attacks by messages and reputation, over HTTP."""
    instance = generate(WEAK, options.prompts, 5, np.random.default_rng(11))
    rows = range(len(instance.mean))
    away = {0: attacks.everywhere(attacks.Absent())}
    kinds: dict[str, tuple[dict[int, Any], tuple[int, ...]]] = {
        "shading by .1": ({0: attacks.inflated(-0.1)}, (0,)),
        "over-claiming by .1": ({0: attacks.inflated(0.1)}, (0,)),
        "claiming .4 too much, never looking": ({0: attacks.inflated(0.4, blind=True)}, (0,)),
        "shill pair: one stays away for the other": (away, (0, 1)),
    }
    for mechanism in ("sequential", "descending", "second price"):
        town = town_of(instance, mechanism, 0.02)
        honest = attacks.outcomes(town, rows)
        for kind, (cheats, gang) in kinds.items():
            after = attacks.outcomes(attacks.with_cheats(town, cheats), rows)
            yield _change(kind, mechanism, honest, after, gang)
        twice = replace(town, instance=_doubled(instance), inspection_cost=np.full(6, 0.02))
        surplus, welfare, revenue = attacks.outcomes(twice, rows)
        joined = np.column_stack([surplus[:, 0] + surplus[:, 5], surplus[:, 1:5]])
        yield _change(
            "sybil: one specialist under two names", mechanism, honest, (joined, welfare, revenue), (0,)
        )
    yield from _messages()
    yield from _reputations(town_of(instance, "descending", 0.02), options)


def _doubled(instance: Instance) -> Instance:
    """The same market with the first specialist a second time, at the end."""
    parts = {name: getattr(instance, name) for name in ("scores", "mean", "std", "values")}
    return replace(instance, **{name: np.column_stack([part, part[:, 0]]) for name, part in parts.items()})


def _change(kind: str, mechanism: str, honest: Any, after: Any, gang: Sequence[int]) -> Row:
    gain = (after[0] - honest[0])[:, list(gang)].sum(axis=1)
    row: Row = {"mechanism": mechanism, "attack": kind}
    for name, change in (
        ("gain", gain),
        ("welfare", after[1] - honest[1]),
        ("revenue", after[2] - honest[2]),
    ):
        row |= {name: float(change.mean()), f"{name}_error": float(change.std(ddof=1) / np.sqrt(len(change)))}
    return row


def _messages(rows: int = 100) -> Iterator[Row]:
    """Bidder 0 misuses the protocol on a falling clock with four bidders; each run has its own ledger."""
    from tests.bidding import test_attacks as cheats

    market = cheats.town("descending", rows)
    kinds = {
        "winning and stalling": cheats.Stalling,
        "text for a judge beside the bid": cheats.Chatty,
        "replies signed with another key": cheats.Impostor,
    }

    def played(kind: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
        with tempfile.TemporaryDirectory() as folder:
            results, balances, _ = cheats.hold(kind, Path(folder), rows=rows)
        reward, spent = rewards_of(market, results, range(rows)), spent_of(results)
        own = np.array([{h.bidder: h.spent for h in r.heard}.get("bidder-0", 0.0) for r in results])
        won = np.array([result.bidder == "bidder-0" for result in results])
        price = np.array([result.price for result in results])
        surplus = np.zeros((rows, 4))
        surplus[:, 0] = np.where(won, reward - price, 0.0) - own
        return surplus, reward - spent, price, 0.25 - balances["deposit bidder-0"]

    honest = played(BidderService)
    for kind, service in kinds.items():
        after = played(service)
        yield _change(kind, "descending", honest, after, (0,)) | {"deposit lost": after[3]}


def _reputations(town: Town, options: argparse.Namespace) -> Iterator[Row]:
    """Blind over-claiming with and without reputation, over HTTP; welfare lost in the second half."""
    cheating_town = attacks.with_cheats(town, {0: attacks.inflated(0.4, blind=True)})
    rows = range(min(600, options.prompts))
    honest, half = attacks.outcomes(town, rows)[1], slice(len(rows) // 2, None)

    async def play(market: Town, rule: Reputation) -> tuple[np.ndarray, dict[str, float]]:
        async with services_here(market.services()) as urls:
            graded = Graded(market, market.seats(urls), rule)
            results = await graded.play(rows)
        welfare = rewards_of(market, results, rows) - spent_of(results)
        return welfare, {name: rule.handicap(score) for name, score in graded.scores.items()}

    rules = {"none": Reputation(0.0, 1e12), "evidence 20": Reputation(), "evidence 5": Reputation(0.0, 5.0)}
    for label, rule in rules.items():
        for who, market in (("honest", town), ("claiming .4 too much", cheating_town)):
            welfare, handicaps = asyncio.run(play(market, rule))
            change = (welfare - honest)[half]
            yield (
                {"mechanism": "descending", "attack": f"{who}, reputation: {label}"}
                | {
                    "welfare": float(change.mean()),
                    "welfare_error": float(change.std() / np.sqrt(len(change))),
                }
                | {"handicap": handicaps.get("bidder-0", 0.0)}
            )


PARTS = {"law": law, "chaos": chaos, "speed": speed, "attacks": cheating, "voi": voi}
KEY = ("table", "bidders", "opponents", "conduct", "mechanism", "attack")


def key_of(row: Row) -> tuple[Any, ...]:
    """What a result is about."""
    return tuple(row[name] for name in KEY if name in row)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bidding", description=__doc__)
    parser.add_argument("parts", nargs="*", default=list(PARTS), help=f"{', '.join(PARTS)}, page")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--cache", type=Path, default=Path("results/cache"), help="where estimates are kept")
    parser.add_argument("--tables", nargs="+", default=list(TABLES))
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
