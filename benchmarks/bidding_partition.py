"""Network namespaces: every bidder service behind a cable of its own that can be cut.

Each namespace is joined to ours by a pair of virtual Ethernet devices. A listening socket is made inside it
and handed to the service, so that every packet between platform and service passes the pair. The addresses
are those reserved for benchmarks (RFC 2544) and do not leave this machine. Needs Linux, root and `ip`.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

NETWORK_NAMESPACE = 0x40000000
"""CLONE_NEWNET of Linux: the kind of namespace that setns is to change."""


def can_partition() -> bool:
    """Whether this process may make network namespaces."""
    if os.name != "posix" or os.geteuid() != 0 or shutil.which("ip") is None:
        return False
    name = f"pandora-{os.getpid()}"
    tried = subprocess.run(["ip", "netns", "add", name], capture_output=True)
    if tried.returncode == 0:
        _ip("netns", "del", name)
    return tried.returncode == 0


@dataclass(frozen=True)
class Cables:
    """The namespaces of `size` services, by the number of the service."""

    size: int

    def name(self, service: int) -> str:
        """The name of the namespace of a service."""
        return f"pandora-{os.getpid()}-{service}"

    def cut(self, service: int) -> None:
        """Lose all packets in both directions."""
        _ip("-n", self.name(service), "link", "set", "inside", "down")

    def silence(self, service: int) -> None:
        """Lose all packets from the service: it still hears the platform, and its replies are lost."""
        _ip("-n", self.name(service), "route", "add", "blackhole", f"{_address(service, 1)}/32")

    def mend(self, service: int) -> None:
        """Undo `cut` and `silence`."""
        _ip("-n", self.name(service), "link", "set", "inside", "up")
        with suppress(subprocess.CalledProcessError):  # there is none unless it was silenced
            _ip("-n", self.name(service), "route", "del", "blackhole", f"{_address(service, 1)}/32")

    def socket(self, service: int) -> socket.socket:
        """A listening socket in the namespace of a service. No other service is in it."""
        made: list[socket.socket] = []
        # a thread has a network namespace of its own once it enters one; it ends with the thread
        thread = threading.Thread(target=lambda: made.append(_listening(self.name(service), service)))
        thread.start()
        thread.join()
        return made[0]


@contextmanager
def cables(size: int) -> Iterator[Cables]:
    """Namespaces for `size` services (at most 64) within a block; they are removed at its end.

    Those of a process that was killed before its end are removed first.
    """
    for left in _listed():
        if not Path(f"/proc/{left.split('-')[1]}").exists():
            _ip("netns", "del", left)
    laid = Cables(size)
    try:
        for j in range(size):
            name, outside = laid.name(j), f"pr{os.getpid()}x{j}"[:15]
            _ip("netns", "add", name)
            _ip("link", "add", outside, "type", "veth", "peer", "name", "inside", "netns", name)
            _ip("addr", "add", f"{_address(j, 1)}/30", "dev", outside)
            _ip("link", "set", outside, "up")
            _ip("-n", name, "addr", "add", f"{_address(j, 2)}/30", "dev", "inside")
            _ip("-n", name, "link", "set", "inside", "up")
        yield laid
    finally:
        for j in range(size):
            with suppress(subprocess.CalledProcessError):
                _ip("netns", "del", laid.name(j))  # takes the pair of devices with it


def _listed() -> list[str]:
    """The names of all namespaces that this module made and that are still there."""
    folder = Path("/run/netns")
    return [entry.name for entry in folder.glob("pandora-*-*")] if folder.is_dir() else []


def _address(service: int, end: int) -> str:
    """An address of 198.18.0.0/15: four for each service, in a range that differs between processes."""
    place = 4 * (64 * (os.getpid() % 512) + service) + end
    return f"198.{18 + (place >> 16)}.{place >> 8 & 255}.{place & 255}"


def _listening(namespace: str, service: int) -> socket.socket:
    with open(f"/run/netns/{namespace}") as entry:
        if ctypes.CDLL(None, use_errno=True).setns(entry.fileno(), NETWORK_NAMESPACE) != 0:
            raise OSError(ctypes.get_errno(), "setns")
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    listening.bind((_address(service, 2), 0))
    listening.listen(2048)
    listening.set_inheritable(True)
    return listening


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)
