"""What worker processes do besides requests: say that they are alive, and share periodic work.

What a dead process left open is settled within seconds. A process registers before it serves and repeats that
every few seconds. It counts as dead, and is removed, if it was not seen for `SILENT` seconds, or at once if a
process of the same machine finds that it no longer exists (it was killed, or crashed). `log.recover` then
settles its open decisions. A process that was only suspended registers again when it continues; its open
calls have been settled at their estimates by then.

Periodic work is done by one of several processes: the first one after it is due.
"""

from __future__ import annotations

import contextlib
import os
import socket
import uuid
from dataclasses import dataclass, field
from pathlib import Path

from pandora_router.store import auctions, log
from pandora_router.store.database import Transaction

DAY = 86_400.0
SEEN_EVERY = 2.0
"""Seconds between two heartbeats of a process."""
SILENT = 60.0
"""Seconds without a heartbeat after which a process of another machine counts as dead."""


def place() -> str:
    """Identifies the namespace of process ids: this machine, since its start, in this container."""
    parts = [socket.gethostname()]
    with contextlib.suppress(OSError):
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text().strip())
    with contextlib.suppress(OSError):
        parts.append(os.readlink("/proc/self/ns/pid"))
    return " ".join(parts)


@dataclass(frozen=True)
class Process:
    """A serving process: a unique random id, its place, its process id."""

    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    place: str = field(default_factory=place)
    pid: int = field(default_factory=os.getpid)


def seen(open_: Transaction, worker: Process, now: float) -> None:
    """Register a process, or record its heartbeat."""
    open_.run(
        "INSERT INTO workers (id, place, pid, seen_at) VALUES (?, ?, ?, ?) "
        "ON CONFLICT (id) DO UPDATE SET seen_at = excluded.seen_at",
        *(worker.id, worker.place, worker.pid, now),
    )


def left(open_: Transaction, worker: Process) -> None:
    """Remove a process that has ended or no longer serves."""
    open_.run("DELETE FROM workers WHERE id = ?", worker.id)


def dead(open_: Transaction, worker: Process, now: float) -> list[str]:
    """The ids of dead processes, as far as `worker` can tell."""
    others = open_.rows("SELECT id, place, pid, seen_at FROM workers WHERE id <> ?", worker.id)
    return [
        str(id_)
        for id_, place, pid, seen_at in others
        if seen_at < now - SILENT or (place == worker.place and (pid == worker.pid or not _alive(int(pid))))
    ]


def work_left(open_: Transaction, worker: Process, now: float, awarded: float) -> bool:
    """Whether a dead process is to be removed, a decision to be recovered, or an auction `awarded` before."""
    left = "SELECT 1 FROM market_auctions WHERE status = 'awarded' AND at < ? LIMIT 1"
    return bool(dead(open_, worker, now) or log.abandoned(open_, now) or open_.rows(left, awarded))


def remove_dead(open_: Transaction, worker: Process, now: float) -> int:
    """Remove dead processes, as far as `worker` can tell; returns their number."""
    return sum(open_.run("DELETE FROM workers WHERE id = ?", id_) for id_ in dead(open_, worker, now))


def _alive(pid: int) -> bool:
    with contextlib.suppress(PermissionError):  # a process of another user exists
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
    return True


def due(open_: Transaction, name: str, now: float, every: float) -> bool:
    """Whether the chore `name` is due; if so, the caller must do it, and it is due again in `every` seconds.

    One conditional UPDATE, so that exactly one of several workers and hosts gets True.
    """
    open_.run("INSERT INTO chores (name, next_at) VALUES (?, 0) ON CONFLICT (name) DO NOTHING", name)
    return bool(
        open_.run("UPDATE chores SET next_at = ? WHERE name = ? AND next_at <= ?", now + every, name, now)
    )


def prune(open_: Transaction, now: float, days: float, every: float) -> int:
    """Delete one block each of decisions and auctions older than `days`, if that is due.

    Returns the larger of the two numbers of rows deleted. If it is a whole block (`BLOCK`), there may be more
    rows, and the chore is due again at once.
    """
    if not due(open_, "prune", now, every):
        return 0
    before = now - days * DAY
    deleted = max(auctions.prune(open_, before), log.prune(open_, before, before))
    if deleted == log.BLOCK:
        open_.run("UPDATE chores SET next_at = ? WHERE name = ?", now, "prune")
    return deleted
