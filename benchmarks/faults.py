"""Kill workers and the database in the middle of traffic, and check that no money and no row is lost.

    python -m benchmarks.faults [--rounds 20] [--workers 4] [--postgresql] [--seed 0]
                                [--page docs/gateway-speed.md]

Each round serves a key with a budget by several workers, sends requests to specialists that answer (at once
or slowly), refuse, hang, drip, break off, claim too many tokens or say nothing, and at a random moment, while
streams are open, kills a worker with SIGKILL (or, with --postgresql, the database, which it starts again).
Afterwards, once the gateway has recovered by itself, within `RECOVERY` seconds:

- every request that was answered has exactly one decision, closed, with all its attempts settled;
- what a key has spent is the sum of its decisions, is within the budget, and nothing stays reserved.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
from tools.pages import put

from benchmarks import served
from benchmarks.served import Server, Timed
from pandora_router.report.tables import grid
from pandora_router.store import accounts
from pandora_router.store.database import connect
from pandora_router.store.money import nanodollars
from pandora_router.store.worker import Store

MODELS = {
    "good": "stub",
    "slow": "slow-20",
    "drip": "drip",
    "hang": "hang",
    "busy": "busy",
    "broken": "broken",
    "cut": "cut",
    "liar": "liar",
    "silent": "silent",
}
ASKED = ("auto", "good", "slow", "slow", "drip", "liar", "cut", "busy", "broken", "silent")
HANGING = 0.02
"""The share of requests that nobody answers; each keeps a client waiting until its timeout."""
TIMEOUT = 3.0
RECOVERY = 60.0
ANSWERED = (200, 429)  # 429: the budget of the key is used up
BUDGET = 0.08
CLIENTS = 16


@dataclass(frozen=True)
class Round:
    """What one round did and whether the laws held; `broken` says which did not.

    statuses: how many requests to each model ended with each HTTP status, 0 if the connection broke.
    """

    requests: int
    answered: int
    refused: int
    spent: float
    recovered: int
    broken: tuple[str, ...]
    statuses: dict[str, dict[int, int]]


async def traffic(
    url: str, key: str, rng: random.Random, requests: int, kill: Callable[[], None]
) -> list[tuple[str, Timed]]:
    """Send requests from several clients, to a model each; `kill` is called once, after a random number."""
    when = rng.randrange(CLIENTS, max(requests - CLIENTS, CLIENTS + 1))
    done: list[tuple[str, Timed]] = []
    left = iter(range(requests))
    limit = aiohttp.ClientTimeout(total=60)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=limit) as session:

        async def client() -> None:
            for i in left:
                if i == when:
                    await asyncio.to_thread(kill)
                model = "hang" if rng.random() < HANGING else rng.choice(ASKED)
                body = served.request(model, stream=rng.random() < 0.5, max_tokens=100)
                done.append((model, await served.ask(session, url, body, key)))

        await asyncio.gather(*(client() for _ in range(CLIENTS)))
    return done


def kill_worker(server: Server, rng: random.Random) -> None:
    """End one worker, as a machine that runs out of memory would."""
    workers = [pid for pid in server.pids[1:] if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    os.kill(rng.choice(workers), signal.SIGKILL)


def settled(store: str) -> bool:
    """Wait until no decision is open; False if some still are after `RECOVERY` seconds."""
    database, until = connect(store), time.monotonic() + RECOVERY
    try:
        while time.monotonic() < until:
            with database.transaction() as open_:
                if not open_.rows("SELECT 1 FROM decisions WHERE closed_at IS NULL LIMIT 1"):
                    return True
            time.sleep(0.1)
    finally:
        database.close()
    return False


def check(store: str, answers: list[Timed], budget: int) -> tuple[int, int, tuple[str, ...]]:
    """What was spent in nanodollars, how many decisions were lost and recovered, laws that are broken."""
    database = connect(store)
    with database.transaction() as open_:
        recovered = int(open_.rows("SELECT count(*) FROM decisions WHERE status = 'lost'")[0][0])
        rows = open_.rows("SELECT id, closed_at, cost FROM decisions")
        costs = dict(open_.rows("SELECT decision, sum(cost) FROM attempts GROUP BY decision"))
        unsettled = open_.rows("SELECT count(*) FROM attempts WHERE settled_at IS NULL")[0][0]
        spent, reserved = open_.rows("SELECT sum(spent), sum(reserved) FROM budgets")[0]
    database.close()
    closed = Counter(str(row[0]) for row in rows if row[1] is not None)
    answered = [one.decision for one in answers if one.status == 200]
    broken = []
    if any(closed[id_] != 1 for id_ in answered):
        broken.append(
            f"{sum(closed[id_] != 1 for id_ in answered)} answered requests without a closed decision"
        )
    if len(set(answered)) != len(answered):
        broken.append("two answers share a decision")
    if len(closed) != len(rows) or unsettled:
        broken.append(f"{len(rows) - len(closed)} decisions and {unsettled} attempts are open")
    if any(int(row[2]) != int(costs.get(row[0], 0)) for row in rows):
        broken.append("a decision does not cost what its attempts cost")
    if int(spent) != sum(int(row[2]) for row in rows):
        broken.append(f"{spent} spent, but decisions cost {sum(int(row[2]) for row in rows)}")
    if spent > budget or reserved != 0:
        broken.append(f"{spent} spent of {budget}, {reserved} reserved")
    return int(spent), recovered, tuple(broken)


async def until_answered(url: str, key: str) -> list[served.Timed]:
    """Ask again and again until a request is answered or the budget is spent, for `RECOVERY` seconds."""
    until, asked = time.monotonic() + RECOVERY, list[served.Timed]()
    while not any(reply.status in ANSWERED for reply in asked) and time.monotonic() < until:
        if asked:
            await asyncio.sleep(1.0)
        asked += await served.drive_with(url, served.request("good", stream=False), key, 5)
    return asked


def run(
    folder: Path, store: str, rng: random.Random, *, workers: int, requests: int, database: Any = None
) -> Round:
    """One round with its own gateway; `database` is a PostgreSQL server to kill in place of a worker."""
    budget = nanodollars(BUDGET)
    keeper = Store(store)
    _, secret = keeper.submit(
        lambda open_: accounts.add_key(open_, "team", time.time(), budget=budget)
    ).result()
    keeper.close()
    with served.upstream(None) as stub:
        config = served.write_config(
            *(folder, stub.url, MODELS),
            timeout=TIMEOUT,
            keys="required",
            store=store,
            default=rng.choice(("good", "silent")),
        )
        with served.gateway(None, config, workers) as server:

            def kill() -> None:
                if database is None:
                    kill_worker(server, rng)
                else:
                    database.kill()
                    database.start()

            asked = asyncio.run(traffic(server.url, secret, rng, requests, kill))
            late = asyncio.run(until_answered(server.url, secret))
            recovers = settled(store)
    answers = [answer for _, answer in asked]
    spent, recovered, broken = check(store, [*answers, *late], budget)
    if not recovers:
        broken = (*broken, f"decisions were open {RECOVERY:g} s after the traffic")
    if not any(reply.status in ANSWERED for reply in late):
        broken = (
            *broken,
            f"nothing is answered after the kill, only {dict(Counter(reply.status for reply in late))}",
        )
    count = Counter(one.status for one in answers)
    statuses: dict[str, dict[int, int]] = {}
    for model, answer in asked:
        by_status = statuses.setdefault(model, {})
        by_status[answer.status] = by_status.get(answer.status, 0) + 1
    return Round(len(answers), count[200], count[429], spent / 1e9, recovered, broken, statuses)


def summary(rounds: Sequence[Round], victim: str, workers: int) -> str:
    """The rounds as Markdown; `victim` is what was killed in each."""
    good = sum(not found.broken for found in rounds)
    sums = [sum(getattr(found, name) for found in rounds) for name in ("requests", "answered", "refused")]
    lost = sum(found.recovered for found in rounds)
    most = max(found.spent for found in rounds)
    lines = [
        f"**{victim} killed at a random moment:** {good} of {len(rounds)} rounds kept every law",
        f"({workers} workers on one key with a budget of ${BUDGET:g} a round). {sums[0]:,} requests,",
        f"{sums[1]:,} answered, {sums[2]:,} refused with status 429; {lost} decisions that were open at the",
        f"kill were settled by the gateway itself. The most that a round spent was ${most:.4f}.",
        "",
    ]
    laws = [f"- round {number}: {law}" for number, found in enumerate(rounds) for law in found.broken]
    found_statuses = sorted({status for found in rounds for by in found.statuses.values() for status in by})
    rows = [
        [
            model,
            *(
                f"{sum(found.statuses.get(model, {}).get(status, 0) for found in rounds):,}"
                for status in found_statuses
            ),
        ]
        for model in ("auto", *MODELS)
    ]
    named = [str(status) if status else "cut off" for status in found_statuses]
    return "\n".join([*lines, *laws, *([""] if laws else []), grid(["asked for", *named], rows)])


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.faults", description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--requests", type=int, default=300)
    parser.add_argument("--postgresql", action="store_true", help="kill the database in place of a worker")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--page", type=Path, help="write the part of this page on these kills")
    given = parser.parse_args()
    rounds: list[Round] = []
    for number in range(given.rounds):
        rng = random.Random(given.seed * 1000 + number)
        with tempfile.TemporaryDirectory() as name, _database(given.postgresql) as database:
            store = str(Path(name) / "store.sqlite") if database is None else database.url
            found = run(
                Path(name), store, rng, workers=given.workers, requests=given.requests, database=database
            )
        rounds.append(found)
        print(json.dumps({"round": number, **vars(found)}), flush=True)
    told = summary(rounds, "The database" if given.postgresql else "A worker", given.workers)
    print(told)
    if given.page is not None:
        put(told, given.page, "database" if given.postgresql else "worker")
    sys.exit(1 if any(found.broken for found in rounds) else 0)


def _database(wanted: bool) -> Any:
    if not wanted:
        return nullcontext(None)
    from tests.store.databases import postgresql

    return postgresql()


if __name__ == "__main__":
    main()
