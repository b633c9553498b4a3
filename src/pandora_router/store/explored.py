"""What requests cost that were asked for what they teach, and how much of the traffic was rated.

Such decisions have the mode "explore" (`gateway.lessons`).
"""

from __future__ import annotations

from dataclasses import dataclass

from pandora_router.store.database import Transaction
from pandora_router.store.rollups import HOUR

EXPLORE = "explore"


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
