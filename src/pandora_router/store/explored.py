"""What requests cost that were asked for what they teach; how much of the traffic was rated, and how late.

Such decisions have the mode "explore" (`gateway.lessons`).
"""

from __future__ import annotations

from dataclasses import dataclass

from pandora_router.store.database import Transaction
from pandora_router.store.rollups import HOUR

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
