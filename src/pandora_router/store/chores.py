"""Work that one process at a time does now and then: whoever comes first after it is due."""

from __future__ import annotations

from pandora_router.store import log
from pandora_router.store.database import Transaction

DAY = 86_400.0


def due(open_: Transaction, name: str, now: float, every: float) -> bool:
    """Whether the chore `name` is due; if so it is taken, and due again after `every` seconds.

    One conditional UPDATE, so that of several workers and hosts exactly one is told True.
    """
    open_.run("INSERT INTO chores (name, next_at) VALUES (?, 0) ON CONFLICT (name) DO NOTHING", name)
    return bool(
        open_.run("UPDATE chores SET next_at = ? WHERE name = ? AND next_at <= ?", now + every, name, now)
    )


def prune(open_: Transaction, now: float, days: float, every: float) -> int:
    """Delete decisions that are older than `days`, if that is due; returns how many were deleted."""
    if not due(open_, "prune", now, every):
        return 0
    before = now - days * DAY
    return log.prune(open_, before, before)
