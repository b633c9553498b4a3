"""Made-up traffic in a store, written by the functions that write real traffic: for pages and benchmarks."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Any

from pandora_router.store import accounts, auctions, log
from pandora_router.store.auctions import AskedRow, AuctionRow
from pandora_router.store.database import Transaction
from pandora_router.store.rows import Attempt, DecisionRow, Feedback, Kind, Outcome, Settlement, Status
from pandora_router.wires.usage import Usage

NAMES = ("small", "medium", "large", "code", "search")
PRICES = (60_000, 240_000, 1_900_000, 400_000, 120_000)  # nanodollars of an answer
RIGHT = 0.02  # dollars that a right answer is worth
SKILL = (0.55, 0.68, 0.83, 0.6, 0.5)
PROMPTS = (
    "What is 12 x 7?",
    "Name the capital of Egypt.",
    "Write a function that reverses a linked list.",
    "Summarise the second law of thermodynamics.",
    "Translate 'good morning' into Portuguese.",
)


def decided(rng: random.Random, names: Sequence[str] = NAMES) -> dict[str, Any]:
    """A decision as `Decision.to_dict` writes it: beliefs around each skill, up to two looks."""
    known: dict[str, Any] = {}
    deducted = valued(names)["deducted"]
    for name, skill in zip(names, SKILL, strict=False):
        mean = min(0.98, max(0.02, skill + rng.gauss(0, 0.12))) - deducted[name]
        std = rng.uniform(0.05, 0.2)
        known[name] = {
            "cheap": mean, "mean": mean, "std": std, "reservation_price": mean + 1.3 * std,
            "backup_price": mean - 1.3 * std, "inspection_cost": 0.004, "status": "sealed",
        }  # fmt: skip
    worth = {name: one["mean"] for name, one in known.items()}
    purchases = []
    for name in sorted(known, key=lambda name: -known[name]["reservation_price"])[: rng.choice([0, 0, 1, 2])]:
        score = rng.gauss(known[name]["mean"], known[name]["std"]) + deducted[name]
        value = min(1.0, max(0.0, score)) - deducted[name]
        known[name]["status"], worth[name] = "opened", value
        purchases.append({"specialists": [name], "values": [value], "estimates": [value], "cost": 0.004})
    chosen = max(worth, key=lambda name: worth[name])
    refunded = 0.004 if known[chosen]["status"] == "opened" else 0.0
    return {
        "specialist": chosen, "declined_because": None, "spent": 0.004 * len(purchases) - refunded,
        "refunded": refunded, "purchases": purchases, "specialists": known, "worth": worth,
        "policy": "KnowledgeGradient()", "artifact": "0f3c9a21", "seconds": 0.002,
    }  # fmt: skip


def valued(names: Sequence[str] = NAMES) -> dict[str, Any]:
    """What turns worths into scores and dollars, as the gateway stores it beside a decision."""
    fees = {name: price / 1e9 for name, price in zip(names, PRICES, strict=False)}
    deducted = {name: fee / RIGHT for name, fee in fees.items()}
    return {"right_answer": RIGHT, "fee": fees, "deducted": deducted}


def fill(
    open_: Transaction,
    count: int,
    since: float,
    until: float,
    *,
    seed: int = 1,
    names: Sequence[str] = NAMES,
    keys: Sequence[str | None] = (None,),
    feedback: float = 0.3,
    prompts: Sequence[str] = PROMPTS,
) -> list[str]:
    """Write `count` decisions over [since, until), more of them in its middle; returns their ids in order.

    `feedback` is the share that is judged. `keys` are ids of keys.
    """
    rng = random.Random(seed)
    ids = []
    for i in range(count):
        part = (i + rng.random()) / count
        part += 0.08 * math.sin(2 * math.pi * part)  # busier in the middle, as a day is
        at = since + (until - since) * part
        ids.append(
            _write(open_, rng, f"{int(at * 1000):013x}-{seed}-{i:07}", at, names, keys, feedback, prompts)
        )
    return ids


def _write(
    open_: Transaction,
    rng: random.Random,
    id_: str,
    at: float,
    names: Sequence[str],
    keys: Sequence[str | None],
    feedback: float,
    prompts: Sequence[str],
) -> str:
    made = decided(rng, names)
    declined = "the prompt is empty" if rng.random() < 0.02 else None
    chosen = names[0] if declined else made["specialist"]
    price = dict(zip(names, PRICES, strict=False))
    losers = [name for one in made["purchases"] for name in one["specialists"] if name != chosen]
    losers = [] if declined else losers
    looks = 0 if declined else len(made["purchases"])
    spent = sum(price[name] // 8 for name in losers)
    baseline = int(price[names[2 % len(names)]] * rng.uniform(0.6, 1.4))
    row = DecisionRow(
        *(id_, at, rng.choice(list(keys)), "chat", "route", "default" if declined else made["policy"]),
        *(made["artifact"], 3, chosen, chosen),
        declined=declined,
        inspected=looks,
        inspection_cost=spent,
        baseline=baseline,
        overhead=rng.uniform(0.001, 0.006),
        detail={
            "decision": {} if declined else made,
            "excluded": {},
            "ranked": [chosen],
            "value": valued(names),
        },
    )
    log.begin(open_, row, prompt=f"{rng.choice(list(prompts))} ({id_[-4:]})")
    status: Status = "error" if rng.random() < 0.015 else "ok"
    calls: list[tuple[str, Kind, Status, int]] = [
        (name, "loser", "cancelled", price[name] // 8) for name in losers
    ]
    calls.append((chosen, "answer", status, int(price[chosen] * rng.uniform(0.6, 1.4))))
    first, whole = rng.lognormvariate(-0.9, 0.5), 0.0
    for number, (name, kind, ended, cost) in enumerate(calls):
        whole = first + rng.lognormvariate(0.6, 0.6)
        usage = Usage(rng.randrange(50, 900), rng.randrange(200), 0, rng.randrange(20, 600))
        log.attempt(open_, Attempt(f"{id_}-{number}", id_, kind, name, at, cost))
        log.settle(
            open_, Settlement(f"{id_}-{number}", Outcome(ended, cost, usage, first, whole), at + whole)
        )
    log.close(open_, id_, at + whole, status=status, first_token=first, seconds=whole)
    if status == "ok" and rng.random() < feedback:
        chance = made["worth"][chosen] + valued(names)["deducted"][chosen]
        right = float(rng.random() < (chance if not declined else 0.5))
        log.give_feedback(open_, Feedback(f"{id_}-f", id_, at + whole + 30, "reward", right), None)
    return id_


def team(open_: Transaction, now: float) -> list[str | None]:
    """Three keys with budgets and one without; returns their ids."""
    made = [
        accounts.add_key(open_, name, now, budget=budget, period="month", per_minute=600)[0].id
        for name, budget in (("team-a", 200 * 10**9), ("team-b", 50 * 10**9), ("batch", None))
    ]
    return [*made]


def hold_auctions(open_: Transaction, count: int, since: float, until: float, *, evil: str = "shade") -> None:
    """Three bidders and made-up auctions between two times: looks, bids, faults, stalls and rewards."""
    rng = random.Random(count)
    names = ("solver", "writer", evil)
    for name in names:
        auctions.join(open_, name, f"http://127.0.0.1/{len(name)}", since, stake=5.0)
    for i in range(count):
        at = since + (until - since) * (i + 1) / (count + 1)
        worth = {name: rng.uniform(0.2, 0.9) for name in names}
        order = sorted(names, key=lambda name: -worth[name])
        calls = [AskedRow(name, 0, None, "wait", worth[name], 0, 0.0, 0.004, None) for name in names]
        if i % 5 == 4:
            calls[2] = AskedRow(names[2], 0, None, "leave", None, 0, 0.0, 0.5, "late")
            order = [name for name in order if name != names[2]]
        first, second = order[:2]
        calls.append(AskedRow(first, 1, worth[first], "bid", worth[first] - 0.1, 1, 0.02, 0.2, None))
        calls.append(AskedRow(second, 1, worth[second], "bid", worth[second], 1, 0.02, 0.2, None))
        id_, kind = f"auction-{count}-{i}", ("mathematics", "", "code")[i % 3]
        for turn, winner in enumerate(order[: 2 if i % 7 == 6 else 1]):
            claim = worth[winner] - 0.1 * (turn == 0)
            row = AuctionRow(id_, at, "descending", kind, "awarded", turn, winner, claim, claim, None)
            auctions.award(open_, row, calls, at)
            if i % 7 == 6 and turn == 0:
                auctions.stall(open_, id_, turn, at, forfeit=0.1)
            else:
                auctions.deliver(open_, id_, turn)
        if i % 2:
            auctions.settle(open_, id_, float(rng.random() < 0.6), at)
