"""Simulated markets with real services on the loopback interface.

`SimulatedMarket` turns a table into a market: one bidder service per specialist, each with only its own
columns, and a platform that uses the cheap estimates. `SimulatedMarket.record` is the same auction in this
process, with the same strategies and the same order of bidders; a test checks that both agree.
"""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import secrets
import signal
import socket
import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

import numpy as np

from pandora_router.bidding.participants import Participant, ProxyParticipant, RemoteParticipant, Terms
from pandora_router.bidding.platform import AuctionResult, Platform, Recorder
from pandora_router.bidding.rules import Rules
from pandora_router.bidding.service import TRUTHFUL, BidderService
from pandora_router.bidding.wire import Delivery, Offer, bidder_key
from pandora_router.boxes import Boxes, Costs, Independent
from pandora_router.errors import UpstreamError
from pandora_router.market import Instance, Record, Strategy, trade
from pandora_router.search import reveal
from pandora_router.transport.asgi import Address, run_event_loop, serve_until_stopped, serving, url_of
from pandora_router.types import MechanismName, Vector

Strategies = Mapping[MechanismName, Strategy]
ATTEMPTS = 4
"""How often `play_and_compare` holds an auction of which replies are lost."""


@dataclass(frozen=True, eq=False)
class TableSide:
    """One specialist of a table; `table` has only its own column. A prompt is the text of its row number."""

    table: Instance
    inspection_cost: float
    refund: float = 0.0

    @cached_property
    def _costs(self) -> Costs:
        return Costs([self.inspection_cost], refund=self.refund)

    async def box(self, offer: Offer) -> Boxes:
        """The box of the row."""
        return self.table.boxes(self._row(offer.prompt), self._costs)

    async def look(self, offer: Offer) -> float:
        """The value of the row."""
        return float(self.table.values[self._row(offer.prompt), 0])

    async def answer(self, delivery: Delivery) -> str:
        """A text that names the row."""
        return f"answer to {self._row(delivery.prompt)}"

    def drop(self, auction: str) -> None:
        """Nothing is held."""

    def _row(self, prompt: str) -> int:
        if not prompt.isdecimal() or int(prompt) >= len(self.table.values):
            raise UpstreamError("no such row")
        return int(prompt)


@dataclass(frozen=True, eq=False)
class SimulatedMarket:
    """A simulated market built from a table: prompts are row numbers, specialist j is bidder `names[j]`.

    instance: means, standard deviations, values and rewards of every prompt and specialist.
    inspection_cost: (M,) what an inspection costs each bidder, in units of reward.
    rules: mechanism, reserve and deadlines.
    strategies: one mapping from mechanism to strategy per bidder; truthful strategies unless given.
    secret: the signing keys of bidders are derived from it; random unless given.
    attempt: part of the ids of auctions, so that the auction of a prompt can be held again.
    """

    instance: Instance
    inspection_cost: Vector
    rules: Rules
    strategies: Sequence[Strategies] = ()
    secret: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)
    attempt: int = 0

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the bidders."""
        return tuple(f"bidder-{j}" for j in range(self.instance.mean.shape[1]))

    def strategy(self, bidder: int) -> Strategy:
        """The strategy of a bidder for the mechanism of the rules."""
        return self._strategies(bidder)[self.rules.mechanism]

    def _strategies(self, bidder: int) -> Strategies:
        return self.strategies[bidder] if self.strategies else TRUTHFUL

    def service(self, bidder: int) -> BidderService:
        """The service of one bidder; it holds the columns of its own specialist only."""
        name, own = self.names[bidder], replace(self.instance.specialist(bidder), realised=None)
        side = TableSide(own, float(self.inspection_cost[bidder]))
        return BidderService(name, side, bidder_key(self.secret, name), self._strategies(bidder))

    def services(self) -> list[BidderService]:
        """The services of all bidders."""
        return [self.service(j) for j in range(len(self.names))]

    def participants(self, urls: Sequence[str]) -> list[RemoteParticipant]:
        """The platform's connections to the bidder services at `urls`, in the order of `names`."""
        pairs = zip(self.names, urls, strict=True)
        return [RemoteParticipant(name, url, bidder_key(self.secret, name)) for name, url in pairs]

    def beliefs(self, row: int) -> Independent:
        """The boxes that the platform knows for a prompt: means and deviations from cheap estimates.

        As in `beliefs.RouterBeliefs` they are normal, whatever law the bidders know.
        """
        return Independent(self.instance.mean[row], self.instance.std[row], self.inspection_cost)

    def auction(self, row: int) -> str:
        """The auction id of a prompt. It includes the mechanism, so services can be used for several."""
        mechanism = self.rules.mechanism.replace(" ", "-")
        return f"{mechanism}-{row}" if self.attempt == 0 else f"{mechanism}-{self.attempt}-{row}"

    def platform(self, recorder: Recorder | None = None) -> Platform:
        """A platform with these rules and a default specialist that never fails."""

        async def fallback(terms: Terms) -> str:
            return f"default answer to {terms.prompt}"

        default = ProxyParticipant("default", 0.0, fallback)
        return Platform(self.rules, default) if recorder is None else Platform(self.rules, default, recorder)

    async def play(self, platform: Platform, participants: Sequence[Participant], row: int) -> AuctionResult:
        """Hold the auction of one prompt over HTTP and return its result."""
        terms = Terms(self.auction(row), self.rules.mechanism, str(row))
        return await platform.serve(terms, participants, self.beliefs(row))

    def record(self, row: int) -> Record:
        """Hold the same auction in this process; bidders are numbered in the order they are called."""
        order = self.rules.order(self.auction(row), len(self.names))
        mechanism = self.rules.build(self.beliefs(row).only(order))
        boxes = self.instance.boxes(row, self.inspection_cost).only(order)
        strategies = [self.strategy(int(j)) for j in order]
        return trade(mechanism, strategies, boxes, reveal(self.instance.values[row][order]))


@asynccontextmanager
async def services_here(services: Sequence[Any]) -> AsyncIterator[list[str]]:
    """Serve ASGI applications on the running event loop, each on a port of its own; yields their URLs."""
    async with contextlib.AsyncExitStack() as stack:
        urls = []
        for service in services:
            listening = Address("127.0.0.1", 0).bind(keys=False)
            urls.append(await stack.enter_async_context(serving(service, listening)))
        yield urls


@dataclass
class Processes:
    """One process per bidder service; each can be killed and started again at the same address."""

    town: SimulatedMarket
    sockets: list[socket.socket]
    running: list[BaseProcess] = field(default_factory=list)

    @property
    def urls(self) -> list[str]:
        """The addresses of the services."""
        return [url_of(listening) for listening in self.sockets]

    def start(self, bidders: Sequence[int]) -> list[BaseProcess]:
        """Start the services of these bidders at the same time and wait until all of them answer.

        Raises `UpstreamError` if one of them ends instead.
        """
        spawn = multiprocessing.get_context("spawn")
        waiting, started = {}, []
        for j in bidders:
            ready, tell = spawn.Pipe(duplex=False)
            process = spawn.Process(target=_serve, args=(self.town, j, self.sockets[j], tell), daemon=True)
            process.start()
            tell.close()  # the service has its own end: if it dies, this one reads the end of the pipe
            waiting[j] = ready
            started.append(process)
        for j, ready in waiting.items():
            with ready, contextlib.suppress(EOFError):
                ready.recv()
                continue
            raise UpstreamError(f"the service of {self.town.names[j]} ended before it could answer")
        return list(started)

    def kill(self, bidder: int) -> None:
        """Kill a service without warning."""
        self.running[bidder].kill()
        self.running[bidder].join()


@contextmanager
def services_apart(town: SimulatedMarket, sockets: list[socket.socket] | None = None) -> Iterator[Processes]:
    """Serve every bidder in a process of its own within a block.

    sockets: where the services listen, one per bidder; free ports of 127.0.0.1 unless given. They are closed.
    """
    sockets = sockets or [Address("127.0.0.1", 0).bind(keys=False) for _ in town.names]
    apart = Processes(town, sockets)
    try:
        apart.running = apart.start(range(len(town.names)))
        yield apart
    finally:
        for process in apart.running:
            process.terminate()
        for process in apart.running:
            process.join(10.0)
            if process.is_alive():
                process.kill()
                process.join()
            process.close()
        for listening in sockets:
            listening.close()


def _serve(town: SimulatedMarket, bidder: int, listening: socket.socket, tell: Connection[str, Any]) -> None:
    async def serve() -> None:
        parent = multiprocessing.parent_process()
        if parent is not None:  # stop the service if its parent process is killed
            asyncio.get_running_loop().add_reader(parent.sentinel, signal.raise_signal, signal.SIGTERM)
        with tell:
            await serve_until_stopped(town.service(bidder), listening, tell.send)

    run_event_loop(serve())
    sys.exit(0)


async def play_all(
    town: SimulatedMarket,
    urls: Sequence[str],
    rows: Sequence[int],
    at_once: int = 16,
    recorder: Recorder | None = None,
) -> list[AuctionResult]:
    """Hold the auctions of all rows, `at_once` concurrently, and return results in the order of the rows.

    recorder: records every step; nothing is recorded unless given.
    """
    platform, participants = town.platform(recorder), town.participants(urls)
    places = asyncio.Semaphore(at_once)

    async def one(row: int) -> AuctionResult:
        async with places:
            return await town.play(platform, participants, row)

    return list(await asyncio.gather(*(one(row) for row in rows)))


def same_auction(town: SimulatedMarket, row: int, served: AuctionResult) -> None:
    """Raise `AssertionError` unless an auction over HTTP ended as the same auction in this process."""
    record, order = town.record(row), town.rules.order(town.auction(row), len(town.names))
    winner = None if record.winner < 0 else town.names[int(order[record.winner])]
    looks = {town.names[int(order[j])]: record.inspected.count(j) for j in set(record.inspected)}
    price = 0.0 if winner is None else record.price
    here = winner, price, looks
    there = served.bidder, served.price, {name: n for name, n in served.inspections.items() if n}
    if here != there:
        faults = [f"{heard.bidder}: {heard.fault}" for heard in served.heard if heard.fault]
        why = f" ({', '.join(faults)})" if faults else ""
        raise AssertionError(f"row {row}: {here} in process, {there} over HTTP{why}")


async def play_and_compare(
    town: SimulatedMarket, urls: Sequence[str], rows: Sequence[int], at_once: int = 16
) -> list[AuctionResult]:
    """`play_all`, and compare every auction with the same one in this process (`same_auction`).

    An auction of which a reply was late or lost, as on a machine that was suspended for a while, says nothing
    about the rules: it is held again with another id, `ATTEMPTS` times in all. Raises `UpstreamError` if
    replies are still lost then.
    """
    results: dict[int, AuctionResult] = {}
    for attempt in range(ATTEMPTS):
        left = [row for row in rows if row not in results]
        again = replace(town, attempt=town.attempt + attempt)
        for row, result in zip(left, await play_all(again, urls, left, at_once), strict=True):
            if not any(heard.fault for heard in result.heard) and not result.stalled:
                same_auction(again, row, result)
                results[row] = result
    if len(results) < len(rows):
        raise UpstreamError(f"{len(rows) - len(results)} auctions lost replies {ATTEMPTS} times")
    return [results[row] for row in rows]


def rewards_of(town: SimulatedMarket, served: Sequence[AuctionResult], rows: Sequence[int]) -> Vector:
    """The realised reward of each answer.

    If no bidder won, the reward is that of the specialist with the highest cheap estimate.
    """
    names = town.names
    best = town.instance.mean[list(rows)].argmax(axis=1)
    chosen = [
        names.index(result.bidder) if result.bidder else int(best[i]) for i, result in enumerate(served)
    ]
    return np.asarray(town.instance.rewards[list(rows), chosen], dtype=np.float64)


def regrets(town: SimulatedMarket, results: Sequence[AuctionResult]) -> Vector:
    """The best reward of each prompt minus what the auction came to: its reward less all inspections.

    `results` are the auctions of rows 0, 1, ... of the table.
    """
    reward = rewards_of(town, results, range(len(results)))
    spent = np.array([sum(result.spending.values()) for result in results])
    return np.asarray(town.instance.rewards[: len(results)].max(axis=1) - reward + spent, dtype=np.float64)


def totals(town: SimulatedMarket, results: Sequence[AuctionResult]) -> dict[str, float]:
    """Averages over `results`, which are the auctions of rows 0, 1, ... of the table, by name:

    regret: the best reward of a prompt minus (reward of the answer - cost of all inspections).
    error: standard error of regret.
    revenue: what the winner pays. surplus: reward minus inspections minus revenue, summed over bidders.
    inspections, calls: their numbers per auction.
    milliseconds: median time until the award.
    """
    reward = rewards_of(town, results, range(len(results)))
    spent = np.array([sum(result.spending.values()) for result in results])
    revenue = np.array([result.price for result in results])
    regret = regrets(town, results)
    return {
        "regret": float(regret.mean()),
        "error": float(regret.std(ddof=1) / np.sqrt(len(regret))) if len(regret) > 1 else 0.0,
        "revenue": float(revenue.mean()),
        "surplus": float((reward - spent - revenue).mean()),
        "inspections": float(np.mean([sum(result.inspections.values()) for result in results])),
        "calls": float(np.mean([len(result.heard) for result in results])),
        "milliseconds": float(1e3 * np.median([result.deciding for result in results])),
    }
