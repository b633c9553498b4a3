"""Which worker processes are alive, so that what a dead one left open is settled within seconds.

A process registers before it serves and repeats that every few seconds. It counts as dead, and is removed, if
it was not seen for `SILENT` seconds, or at once if a process of the same machine finds that it no longer
exists (it was killed, or crashed). `log.recover` then settles its open decisions. A process that was only
suspended registers again when it continues; its open calls have been settled at their estimates by then.
"""

from __future__ import annotations

import contextlib
import os
import socket
import uuid
from dataclasses import dataclass, field
from pathlib import Path

from pandora_router.store.database import Transaction

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


def remove_dead(open_: Transaction, worker: Process, now: float) -> int:
    """Remove dead processes, as far as `worker` can tell; returns their number."""
    dead = open_.run("DELETE FROM workers WHERE seen_at < ?", now - SILENT)
    near = open_.rows("SELECT id, pid FROM workers WHERE place = ? AND id <> ?", worker.place, worker.id)
    for id_, pid in near:
        if pid == worker.pid or not _alive(int(pid)):
            dead += open_.run("DELETE FROM workers WHERE id = ?", id_)
    return dead


def _alive(pid: int) -> bool:
    with contextlib.suppress(PermissionError):  # a process of another user exists
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
    return True
