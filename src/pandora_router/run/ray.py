"""Run shards on a Ray cluster, for more than one machine; the only module that imports ray (extra `ray`).

The machines need this package at the same version and the data at the same path. A shard whose worker or
machine dies is run again by Ray, at most `tries` times in total. The cluster must exist (`ray start`);
nothing here opens a port.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeVar

from pandora_router.errors import UpstreamError, UsageError, missing_package
from pandora_router.run.runner import Runner, attempted, concluded

S = TypeVar("S")
R = TypeVar("R")
AHEAD = 2  # shards queued per core, so that no core waits for this process


@dataclass(frozen=True)
class Cluster(Runner):
    """The cluster at `address` (host:port), or the one that runs on this machine ("auto")."""

    address: str = "auto"
    tries: int = 3

    def finish(self, function: Callable[[S], R], shards: Iterable[S]) -> Generator[tuple[int, R], None, None]:
        """As `Runner.finish`; connects first and disconnects at the end, unless already connected before."""
        ray, joined = _joined(self.address)
        remote = ray.remote(num_cpus=1, max_retries=self.tries - 1)(attempted)
        fresh = enumerate(shards)
        waiting: dict[Any, int] = {}
        try:
            while True:
                room = max(1, int(AHEAD * ray.cluster_resources().get("CPU", 1))) - len(waiting)
                for number, shard in islice(fresh, max(0, room)):
                    waiting[remote.remote(function, shard)] = number
                if not waiting:
                    return
                ready, _ = ray.wait(list(waiting), num_returns=1)
                number = waiting.pop(ready[0])
                yield number, _got(ray, ready[0], number, self.tries)
        finally:
            if joined:
                ray.shutdown()  # ends the tasks too; cancelled by force, one that just ended aborts Ray
            else:
                for reference in waiting:
                    ray.cancel(reference, force=True)


def _got(ray: Any, reference: Any, number: int, tries: int) -> Any:
    """The result of a shard; raises the error of its function, or `UpstreamError` if its worker was lost."""
    try:
        outcome = ray.get(reference)
    except ray.exceptions.RayError as error:
        raise UpstreamError(f"shard {number}: its worker was lost {tries} times ({error})") from error
    return concluded(outcome)


def _joined(address: str) -> tuple[Any, bool]:
    """The library, connected, and whether this call connected it."""
    try:
        import ray
    except ImportError as error:
        raise missing_package("--ray", "ray", "ray") from error
    if ray.is_initialized():
        return ray, False
    try:
        if address != "auto":
            _knock(address)
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except (OSError, RuntimeError, ValueError) as error:
        raise UsageError(
            f"--ray {address}",
            expected="a Ray cluster that runs",
            came=(str(error) or type(error).__name__).splitlines()[0],
            do="Start one with `ray start --head`, join it from other machines, name its host:port.",
        ) from error
    return ray, True


def _knock(address: str) -> None:
    """Raise at once if nothing listens at the address; Ray itself would retry for minutes."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        raise ValueError("an address that is not host:port")
    socket.create_connection((host.strip("[]"), int(port)), timeout=5.0).close()
