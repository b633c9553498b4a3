"""Periodic work that one of several processes does: the first one after it is due."""

from __future__ import annotations

from pandora_router.store import auctions, log
from pandora_router.store.database import Transaction

DAY = 86_400.0


def due(open_: Transaction, name: str, now: float, every: float) -> bool:
    """Whether the chore `name` is due; if so, the caller must do it, and it is due again in `every` seconds.

    One conditional UPDATE, so that exactly one of several workers and hosts gets True.
    """
    open_.run("INSERT INTO chores (name, next_at) VALUES (?, 0) ON CONFLICT (name) DO NOTHING", name)
    return bool(
        open_.run("UPDATE chores SET next_at = ? WHERE name = ? AND next_at <= ?", now + every, name, now)
    )


def prune(open_: Transaction, now: float, days: float, every: float) -> int:
    """Delete decisions and auctions older than `days`, if that is due; returns the number of decisions.

    If there may be more than one block of decisions (`log.BLOCK`), it is due again at once.
    """
    if not due(open_, "prune", now, every):
        return 0
    before = now - days * DAY
    auctions.prune(open_, before)
    deleted = log.prune(open_, before, before)
    if deleted == log.BLOCK:
        open_.run("UPDATE chores SET next_at = ? WHERE name = ?", now, "prune")
    return deleted
