"""Which worker processes are alive, so that what a dead one left open is settled within seconds.

A process registers before it serves and repeats that every few seconds. It is taken for dead, and removed
from the list, when it was not seen for `SILENT` seconds, or at once by a process of the same machine that
finds no such process any more (it was killed, or has crashed). `log.recover` then settles its open decisions.
A process that was only suspended registers again when it goes on; calls that it still has open were settled
at their estimates meanwhile.
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
"""Seconds between two signs of life of a process."""
SILENT = 60.0
"""Seconds without a sign of life after which a process of another machine is taken for dead."""


def place() -> str:
    """Where process ids of this process mean something: this machine, since its start, in this container."""
    parts = [socket.gethostname()]
    with contextlib.suppress(OSError):
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text().strip())
    with contextlib.suppress(OSError):
        parts.append(os.readlink("/proc/self/ns/pid"))
    return " ".join(parts)


@dataclass(frozen=True)
class Process:
    """A process that serves: a random id that no other process ever has, its place, its process id."""

    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    place: str = field(default_factory=place)
    pid: int = field(default_factory=os.getpid)


def seen(open_: Transaction, worker: Process, now: float) -> None:
    """Register a process, or repeat that it is alive."""
    open_.run(
        "INSERT INTO workers (id, place, pid, seen_at) VALUES (?, ?, ?, ?) "
        "ON CONFLICT (id) DO UPDATE SET seen_at = excluded.seen_at",
        *(worker.id, worker.place, worker.pid, now),
    )


def left(open_: Transaction, worker: Process) -> None:
    """Take a process off the list: it has ended, or will not serve any more."""
    open_.run("DELETE FROM workers WHERE id = ?", worker.id)


def remove_dead(open_: Transaction, worker: Process, now: float) -> int:
    """Take processes off the list that are dead, as `worker` can tell; returns how many there were."""
    dead = open_.run("DELETE FROM workers WHERE seen_at < ?", now - SILENT)
    near = open_.rows("SELECT id, pid FROM workers WHERE place = ? AND id <> ?", worker.place, worker.id)
    for id_, pid in near:
        if pid == worker.pid or not _alive(int(pid)):
            dead += open_.run("DELETE FROM workers WHERE id = ?", id_)
    return dead


def _alive(pid: int) -> bool:
    with contextlib.suppress(PermissionError):  # a process of another user: it is alive
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
    return True
