"""The market over real services on loopback: `python -m benchmarks.bidding PART ... --data ../shared/data`.

    law      every mechanism, 1,000 prompts of three tables: over HTTP as in one process; welfare and time
    chaos    the same with services killed and stopped at random: answers, awards, ledger
    speed    auctions a second with 2 to 20 bidders
    attacks  what cheats gain and what they cost
    voi      does value-of-information bidding help the bidder, the market, or both?

Results are printed as lines of JSON and go to results/bidding.json, part by part.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

import numpy as np

from pandora_router.bidding import attacks
from pandora_router.bidding.chaos import Chaos, check_books, play_in_chaos
from pandora_router.bidding.network import (
    Graded,
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
from pandora_router.bidding.service import TRUTHFUL
from pandora_router.bidding.wire import MechanismName
from pandora_router.config.experiments import read_experiment
from pandora_router.evaluate.bidding import market_of
from pandora_router.evaluate.estimates import estimates, table_of
from pandora_router.evaluate.trials import trial_of
from pandora_router.market import WEAK, Bid, Call, Instance, Quoting, Sealed, generate, outcomes
from pandora_router.search import State
from pandora_router.store.worker import Store

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


def law(options: argparse.Namespace) -> Any:
    found = []
    for name in TABLES:
        instance = table(name, options)
        central = outcomes(instance, COST)
        for router in ("router: rollout", "router: obligatory", "router: never inspect"):
            mean = central[router].mean()
            found.append({"table": name, "mechanism": router, **mean.__dict__})
        for mechanism in MECHANISMS:
            town = town_of(instance, mechanism)
            rows = range(len(instance.mean))
            with services_apart(town) as processes:
                results = asyncio.run(play_all(town, processes.urls, rows, at_once=4))
            for row, result in zip(rows, results, strict=True):
                same_auction(town, row, result)
            found.append({"table": name, "mechanism": mechanism, "same": len(rows), **totals(town, results)})
            print(json.dumps(found[-1]), flush=True)
    return found


def chaos(options: argparse.Namespace) -> Any:
    found = []
    for name in TABLES:
        instance = table(name, options)
        for mechanism in MECHANISMS:
            town = town_of(instance, mechanism, deadline=0.5, auction=2.0, deliver=2.0)
            rows = range(min(options.chaos, len(instance.mean)))
            with tempfile.TemporaryDirectory() as folder, services_apart(town) as processes:
                store = Store(str(Path(folder) / "store.sqlite"))
                harm = Chaos(processes, np.random.default_rng(len(found)), share=0.1)
                results = asyncio.run(play_in_chaos(town, harm, store, rows, at_once=16))
                calm = store.submit(lambda open_: check_books(town, results, open_)).result()
                store.close()
            faults = [heard.fault for result in results for heard in result.heard if heard.fault]
            found.append(
                {"table": name, "mechanism": mechanism, "auctions": len(results), "as in process": calm}
                | {"done": harm.done, "faults": {kind: faults.count(kind) for kind in sorted(set(faults))}}
                | {"stalled": sum(len(result.stalled) for result in results)}
                | {"default answered": sum(result.bidder is None for result in results)}
            )
            print(json.dumps(found[-1]), flush=True)
    return found


def processor_seconds(processes: Processes) -> float:
    """Processor time of this process and of all services so far."""
    total = sum(os.times()[:2])
    for process in processes.running:
        fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
        total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return total


def speed(options: argparse.Namespace) -> Any:
    found = []
    for bidders in (2, 5, 10, 20):
        instance = generate(WEAK, options.prompts, bidders, np.random.default_rng(0))
        for mechanism in ("sequential", "descending", "second price"):
            town = town_of(instance, mechanism, 0.02)  # type: ignore[arg-type]
            with services_apart(town) as processes:
                asyncio.run(play_all(town, processes.urls, range(20)))
                before, began = processor_seconds(processes), time.perf_counter()
                rows = range(len(instance.mean))
                results = asyncio.run(play_all(town, processes.urls, rows, at_once=16))
                seconds, used = time.perf_counter() - began, processor_seconds(processes) - before
            here = time.process_time()
            for row in rows[:200]:
                town.record(row)
            in_process = (time.process_time() - here) / 200
            found.append(
                {
                    "bidders": bidders,
                    "mechanism": mechanism,
                    "auctions a second, wall clock": len(rows) / seconds,
                    "processor ms an auction": 1e3 * used / len(rows),
                    "auctions a second, two whole cores": 2 * len(rows) / used,
                    "calls": float(np.mean([len(result.heard) for result in results])),
                    "in process, ms": 1e3 * in_process,
                    "load": os.getloadavg()[0],
                }
            )
            print(json.dumps(found[-1]), flush=True)
    return found


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


def voi(options: argparse.Namespace) -> Any:
    """The first bidder of the random order is the strategic one: all take that part in turn."""
    found = []
    for name in TABLES:
        instance = table(name, options)
        rows = range(len(instance.mean))
        for opponents in ("strong", "weak"):
            sides = {}
            for way in ("never", "always", "voi"):
                plan = dict.fromkeys(TRUTHFUL, Conduct(way, opponents == "strong"))
                town = replace(town_of(instance, "leave one out"), strategies=[plan] * instance.mean.shape[1])
                with services_apart(town) as processes:
                    results = asyncio.run(play_all(town, processes.urls, rows, at_once=4))
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
                found.append({**row, "looks": float(sides[way][2].mean())})
                print(json.dumps(found[-1]), flush=True)
    return found


def cheating(options: argparse.Namespace) -> Any:
    found: list[dict[str, Any]] = []
    instance = generate(WEAK, options.prompts, 5, np.random.default_rng(11))
    rows = range(len(instance.mean))
    kinds = {
        "shading by .1": {0: attacks.inflated(-0.1)},
        "over-claiming by .1": {0: attacks.inflated(0.1)},
        "blind over-claiming by .4": {0: attacks.inflated(0.4, blind=True)},
        "a ring of two, one away": {0: attacks.everywhere(attacks.Absent())},
    }
    for mechanism in ("sequential", "descending", "second price"):
        town = town_of(instance, mechanism, 0.02)  # type: ignore[arg-type]
        for kind, cheats in kinds.items():
            done = attacks.damage(town, cheats, rows)
            found.append({"mechanism": mechanism, "attack": kind, **done.__dict__})
            print(json.dumps(found[-1]), flush=True)
    found += _reputations(town_of(instance, "descending", 0.02), options)
    return found


def _reputations(town: Town, options: argparse.Namespace) -> list[dict[str, Any]]:
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

    found = []
    rules = {
        "none": Reputation(0.0, 1e12),
        "evidence 20": Reputation(),
        "evidence 5": Reputation(evidence=5.0),
    }
    for label, rule in rules.items():
        for who, market in (("honest", town), ("one over-claims", cheating_town)):
            welfare, handicaps = asyncio.run(play(market, rule))
            lost = (honest - welfare)[half]
            found.append(
                {"mechanism": "descending", "attack": f"{who}, reputation: {label}"}
                | {"welfare": -float(lost.mean()), "welfare_error": float(lost.std() / np.sqrt(len(lost)))}
                | {"handicap of the cheat": handicaps.get("bidder-0", 0.0)}
            )
            print(json.dumps(found[-1]), flush=True)
    return found


PARTS = {"law": law, "chaos": chaos, "speed": speed, "attacks": cheating, "voi": voi}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bidding", description=__doc__)
    parser.add_argument("parts", nargs="*", default=list(PARTS), help=", ".join(PARTS))
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--cache", type=Path, default=Path("results/cache"), help="where estimates are kept")
    parser.add_argument("--prompts", type=int, default=1000)
    parser.add_argument("--chaos", type=int, default=1000, help="prompts per mechanism under faults")
    parser.add_argument("--out", type=Path, default=Path("results/bidding.json"))
    options = parser.parse_args()
    report = json.loads(options.out.read_text()) if options.out.is_file() else {}
    for part in options.parts:
        report[part] = PARTS[part](options)
        options.out.parent.mkdir(parents=True, exist_ok=True)
        draft = options.out.with_suffix(".draft")
        draft.write_text(json.dumps(report, indent=1))
        draft.replace(options.out)


if __name__ == "__main__":
    main()
