"""What each attack gains the attacker and costs the platform, for `benchmarks.bidding attacks`.

Attacks by bids are computed in one process, which gives the same auctions as over HTTP; attacks by messages
and reputation are carried out over HTTP. Every attack is compared with the same auctions with everybody
honest.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import bidding_attacks as attacks
from benchmarks.bidding_attacks import Graded
from benchmarks.bidding_network import SimulatedMarket, rewards_of, services_here
from benchmarks.bidding_tables import Done, Row, error_of, town_of
from pandora_router.bidding.platform import AuctionResult
from pandora_router.bidding.rules import Reputation
from pandora_router.bidding.service import BidderService
from pandora_router.bidding.wire import Forged, RequestVerifier, signed
from pandora_router.market import WEAK, Instance, generate

SYBIL = "sybil: one specialist under two names"
IMPOSTOR = "replies signed with another key"


def cheating(options: argparse.Namespace, done: Done) -> Iterator[Row]:
    """All attacks, one after the other; those in `done` are left out."""
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
        if (mechanism, SYBIL) in done:
            continue
        town = town_of(instance, mechanism, 0.02)
        honest = attacks.outcomes(town, rows)
        for kind, (cheats, gang) in kinds.items():
            after = attacks.outcomes(attacks.with_cheats(town, cheats), rows)
            yield _change(kind, mechanism, honest, after, gang)
        twice = replace(town, instance=_doubled(instance), inspection_cost=np.full(6, 0.02))
        surplus, welfare, revenue = attacks.outcomes(twice, rows)
        joined = np.column_stack([surplus[:, 0] + surplus[:, 5], surplus[:, 1:5]])
        yield _change(SYBIL, mechanism, honest, (joined, welfare, revenue), (0,))
    if ("descending", IMPOSTOR) not in done:
        yield from _messages()
        yield from _strangers()
    yield from _reputations(town_of(instance, "descending", 0.02), options, done)


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
        row |= {name: float(change.mean()), f"{name}_error": error_of(change)}
    return row


def _sides(
    town: SimulatedMarket, results: Sequence[AuctionResult]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Surplus (N, 1) of bidder 0, welfare (N,) and revenue (N,) of auctions that were held over HTTP."""
    reward = rewards_of(town, results, range(len(results)))
    price = np.array([result.price for result in results])
    spent = np.array([sum(result.spending.values()) for result in results])
    own = np.array([result.spending.get("bidder-0", 0.0) for result in results])
    won = np.array([result.bidder == "bidder-0" for result in results])
    return (np.where(won, reward - price, 0.0) - own)[:, None], reward - spent, price


def _messages(rows: int = 100) -> Iterator[Row]:
    """Bidder 0 misuses the protocol on a falling clock with four bidders; each run has its own ledger."""
    from tests.bidding import test_attacks as cheats

    market = cheats.town("descending", rows)
    kinds = {
        "winning and stalling": cheats.Stalling,
        "text for a judge beside the bid": cheats.Chatty,
        IMPOSTOR: cheats.Impostor,
    }

    def played(kind: Any, others: Any = BidderService) -> tuple[Any, ...]:
        with tempfile.TemporaryDirectory() as folder:
            results, balances, _ = cheats.hold(kind, Path(folder), rows=rows, others=others)
        return *_sides(market, results), 0.25 - balances["deposit bidder-0"]

    honest = played(BidderService)
    first = played(BidderService, cheats.Late)
    yield _change("answering before all others", "descending", honest, first, (0,))
    for kind, service in kinds.items():
        after = played(service)
        yield _change(kind, "descending", honest, after, (0,)) | {"deposit lost": after[3]}


def _strangers(messages: int = 2000) -> Iterator[Row]:
    """Requests of somebody without the key, or sent a second time: how many a bidder takes, and its time."""
    key, body = b"0123456789abcdef", b'{"auction": "a", "turn": 0}' + b" " * 400
    good = [signed(key, "/offers", body, time.time()) for _ in range(messages)]
    forged = [signed(b"another key", "/offers", body, time.time()) for _ in range(messages)]
    for kind, first, then in (("replayed", good, good), ("forged", [], forged)):
        verifier = RequestVerifier(key)
        for headers in first:
            verifier.check("/offers", headers, body)
        taken, began = 0, time.process_time()
        for headers in then:
            try:
                verifier.check("/offers", headers, body)
                taken += 1
            except Forged:
                pass
        used = time.process_time() - began
        yield (
            {"attack": f"{messages:,} {kind} requests", "mechanism": "any", "taken": taken}
            | {"microseconds": 1e6 * used / messages}
        )


def _reputations(town: SimulatedMarket, options: argparse.Namespace, done: Done) -> Iterator[Row]:
    """Blind over-claiming with and without reputation, over HTTP: the second half of the prompts."""
    cheating_town = attacks.with_cheats(town, {0: attacks.inflated(0.4, blind=True)})
    rows = range(min(600, options.prompts))
    half = slice(len(rows) // 2, None)
    honest = tuple(part[half] for part in attacks.outcomes(town, rows))

    async def play(market: SimulatedMarket, rule: Reputation) -> tuple[Any, float]:
        async with services_here(market.services()) as urls:
            graded = Graded(market, market.participants(urls), rule)
            results = await graded.play(rows)
        after = tuple(part[half] for part in _sides(market, results))
        return after, rule.handicap(graded.scores.get("bidder-0"))

    rules = {"none": Reputation(0.0, 1e12), "evidence 20": Reputation(), "evidence 5": Reputation(0.0, 5.0)}
    for label, rule in rules.items():
        for who, market in (("honest", town), ("claiming .4 too much", cheating_town)):
            kind = f"{who}, reputation: {label}"
            if ("descending", kind) in done:
                continue
            after, handicap = asyncio.run(play(market, rule))
            yield _change(kind, "descending", _first(honest), after, (0,)) | {"handicap": handicap}


def _first(sides: Any) -> Any:
    """The same sides with the surplus of bidder 0 alone."""
    return sides[0][:, :1], *sides[1:]
