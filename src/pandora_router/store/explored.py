"""What learning costs: requests asked for what they teach, and labels; how much was rated, and how late.

Such decisions have the mode "explore" (`gateway.lessons`). Labels are answers and verdicts that `pandora
learn label` and `pandora learn shadow` buy outside of the gateway, and write to a journal.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

from pandora_router.store import budgets
from pandora_router.store.database import Transaction
from pandora_router.store.money import period_of
from pandora_router.store.rollups import HOUR
from pandora_router.store.rows import SharedBudget

EXPLORE = "explore"
NEWEST = 1000
"""Ratings from which their delay is measured."""


@dataclass(frozen=True)
class Explored:
    """Decisions asked for their lesson, what they cost in nanodollars, and how many of them were rated."""

    requests: int
    cost: int
    rated: int


def explored(open_: Transaction, metric: str, since: float) -> Explored:
    """What was asked for its lesson from `since` on. Calls under way count with their expected cost."""
    ((requests, cost),) = open_.rows(
        "SELECT count(*), coalesce(sum(cost), 0) FROM decisions WHERE mode = 'explore' AND at >= ?", since
    )
    ((open_cost,),) = open_.rows(
        "SELECT coalesce(sum(a.estimate), 0) FROM decisions d JOIN attempts a ON a.decision = d.id "
        "WHERE d.mode = 'explore' AND d.at >= ? AND d.closed_at IS NULL AND a.settled_at IS NULL",
        since,
    )
    ((rated,),) = open_.rows(
        "SELECT count(DISTINCT f.decision) FROM decisions d JOIN feedback f ON f.decision = d.id "
        "WHERE d.mode = 'explore' AND d.at >= ? AND f.metric = ?",
        *(since, metric),
    )
    return Explored(int(requests), int(cost) + int(open_cost), int(rated))


def ratings(open_: Transaction, metric: str, since: float) -> tuple[int, int]:
    """Decisions that were rated since then, and requests."""
    ((rated,),) = open_.rows(
        "SELECT count(DISTINCT decision) FROM feedback WHERE metric = ? AND at >= ?", metric, since
    )
    ((requests,),) = open_.rows(
        "SELECT coalesce(sum(requests), 0) FROM hours WHERE hour >= ?", int(since // HOUR)
    )
    return int(rated), int(requests)


@dataclass(frozen=True)
class Delay:
    """How long after a request its first rating came, over the newest `NEWEST` ratings.

    half, most: seconds within which a half and 95 % of them came; 0 without any.
    """

    ratings: int
    half: float = 0.0
    most: float = 0.0


def delay(open_: Transaction, metric: str) -> Delay:
    """How late ratings of `metric` come."""
    rows = open_.rows(
        "SELECT f.decision, min(f.at - d.at) FROM (SELECT decision, at FROM feedback WHERE metric = ? "
        "ORDER BY at DESC LIMIT ?) f JOIN decisions d ON d.id = f.decision GROUP BY f.decision",
        *(metric, NEWEST),
    )
    late = sorted(max(float(seconds), 0.0) for _, seconds in rows)
    if not late:
        return Delay(0)
    return Delay(len(late), late[(len(late) - 1) // 2], late[(19 * len(late) - 1) // 20])


def set_aside(
    open_: Transaction, budget: SharedBudget, journal: str, most: int, total: int, now: float
) -> int:
    """Reserve up to `most` nanodollars of a shared budget for labels; returns how much, 0 if nothing is left.

    `journal` names the file in which the labels are written down, and `total` is what all of them have cost
    so far. What an earlier run bought without charging it (`charge_labels`) is charged first.
    """
    charge_labels(open_, budget, journal, total, now)
    rest = budgets.left(open_, [budget], now)
    amount = most if rest is None else min(most, rest)
    if amount <= 0:
        return 0
    lease, level = f"{_account(journal)} {now:.6f}", replace(budget, paced=False)  # no request to forecast by
    refused = budgets.reserve(open_, None, lease, amount, now, budgets.DAY, (level,))
    return amount if refused is None else 0


def charge_labels(open_: Transaction, budget: SharedBudget, journal: str, total: int, now: float) -> None:
    """Charge a shared budget with what the labels of `journal` have cost since this was done last.

    What is reserved for them is released. With the same `total` again nothing is charged.
    """
    account = _account(journal)
    period, cost = period_of(budget.period, now), total - budgets.spending(open_, account, "ever")[0]
    if cost > 0:
        for row in ((account, "ever"), (budget.id, f"labels-{period}"), (budget.id, period)):
            open_.grow(budgets.GROW, row, (cost, 0, 0))
    for (lease_id,) in open_.rows(
        "SELECT decision FROM leases WHERE closed_at IS NULL AND substr(decision, 1, ?) = ?",
        *(len(account), account),
    ):
        lease = budgets.lease_of(open_.changed(*budgets.lock_lease(str(lease_id))))
        if lease is not None:
            budgets.release(open_, lease, now)


def labels_cost(open_: Transaction, budget: SharedBudget, now: float) -> int:
    """What labels have cost in the present period of a shared budget, in nanodollars."""
    return budgets.spending(open_, budget.id, f"labels-{period_of(budget.period, now)}")[0]


def _account(journal: str) -> str:
    """The account of the table `budgets` that knows what was charged for a journal."""
    return f"labels-{hashlib.sha256(journal.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"
