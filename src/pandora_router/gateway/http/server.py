"""The gateway as processes: one listening socket, N workers, graceful stop, reload.

Each worker builds its own `Site` from a `SitePlan`, so workers share only the socket and the store. On
SIGTERM and SIGINT the server stops accepting, gives streams `GRACE` seconds to end and exits. On SIGHUP, or a
changed configuration or artifact, a new `Site` is built: a valid one replaces the old between two requests,
an invalid one is reported and not used. A worker that dies is restarted by the parent, and the others settle
what it left open within seconds (`store.maintenance`). The parent keeps the last configuration that a worker
served: a new worker uses it while the file is invalid. A worker that ends before it is ready is restarted
after a pause that doubles each time.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import multiprocessing
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from typing import TYPE_CHECKING, Protocol, TypeAlias

from pandora_router.errors import PandoraError, UpstreamError
from pandora_router.gateway.generation import Site
from pandora_router.gateway.http import chores as periodic
from pandora_router.gateway.http.app import Gateway
from pandora_router.gateway.http.learner import keep_learning
from pandora_router.gateway.http.telemetry import Traces, log_as_json
from pandora_router.store import maintenance, versions
from pandora_router.store.versions import Lineup
from pandora_router.store.worker import Store
from pandora_router.transport.asgi import Address, run_event_loop, url_of

if TYPE_CHECKING:
    import uvicorn

logger = logging.getLogger("pandora_router.gateway")

GRACE = 30.0
"""Seconds that streams get to end after a stop signal."""
YOUNG = 20_000
"""New objects after which the garbage collector looks for cycles; a request makes about a thousand."""
LOOK_EVERY = 2.0
"""Seconds between two checks of the files of a site."""
LONGEST_PAUSE = 30.0
"""Most seconds before a worker that ended before it was ready is started again."""


class SitePlan(Protocol):
    """How to build a site; picklable, because every worker is a separate process."""

    @property
    def store(self) -> str:
        """The address of the store."""
        ...

    def site(self) -> Site:
        """Read the files and make a site; raises `UsageError` if they are not valid."""
        ...

    def following(self, lineup: Lineup) -> SitePlan:
        """The plan with the router that was promoted, and the candidate that is on trial."""
        ...

    def fixed(self) -> SitePlan:
        """The plan with the configuration as it is now, whatever becomes of its file; raises `UsageError`."""
        ...

    def fingerprint(self) -> str:
        """A text that changes when the files do; quick, because it is called every few seconds."""
        ...

    def mount(self, gateway: Gateway, closing: ExitStack) -> None:
        """Add other applications to `gateway.mounted`; `closing` closes their resources."""
        ...


def serve(plan: SitePlan, address: Address, workers: int, ready: Callable[[str, Site], None]) -> int:
    """Serve until a signal; returns the exit code. Calls `ready(url, site)` when requests are accepted."""
    first = _read(plan)  # mistakes are found here, before the socket is opened
    listening = address.bind(keys=first.site.settings.keys)
    url = url_of(listening)
    if workers == 1:
        return run_event_loop(_worker(plan, first, listening, lambda: ready(url, first.site)))
    return _parent(plan, listening, workers, lambda: ready(url, first.site))


@dataclass
class _Place:
    """One worker of the parent: its process, and when a dead one is started again (monotonic seconds)."""

    process: BaseProcess
    pause: float = 0.0
    due: float | None = None

    def tend(self, start: Callable[[], BaseProcess], *, was_ready: bool) -> None:
        """Start a dead process again: at once if it `was_ready`, else after a pause that doubles."""
        now = time.monotonic()
        if self.due is None:
            self.pause = 0.0 if was_ready else min(2.0 * self.pause or 0.5, LONGEST_PAUSE)
            self.due = now + self.pause
            after = f" in {self.pause:g} s" if self.pause else ""
            ended = (self.process.pid, self.process.exitcode, after)
            logger.error("worker %s ended with code %s and is started again%s", *ended)
        if now >= self.due:
            self.process, self.due = start(), None


def _parent(plan: SitePlan, listening: socket.socket, workers: int, ready: Callable[[], None]) -> int:
    """Keep `workers` processes alive until a signal comes, then stop them all; returns the exit code.

    It is 1 if a worker ended before any was ready: the same would happen to the next one. A worker that ends
    later is replaced, also while others are not ready yet. Workers end with this process, whatever ends it.
    """
    spawn = multiprocessing.get_context("spawn")
    stopping = False
    events = spawn.SimpleQueue()
    served: SitePlan | None = None

    def start() -> BaseProcess:
        process = spawn.Process(target=_child, args=(plan, served, listening, events), daemon=False)
        process.start()
        return process

    def stop(number: int, _: object) -> None:
        nonlocal stopping
        stopping = True

    def reload(number: int, _: object) -> None:
        for place in places:
            if place.process.pid is not None and place.process.is_alive():
                _send(place.process.pid, signal.SIGHUP)

    places = [_Place(start()) for _ in range(workers)]
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    signal.signal(signal.SIGHUP, reload)
    prepared: set[int | None] = set()
    announced = failed = False
    try:
        while not stopping and not failed:
            while not events.empty():
                pid, served = events.get()
                prepared.add(pid)
            for place in places:
                if place.process.is_alive() or stopping:
                    continue
                was_ready = place.process.pid in prepared
                failed = failed or not prepared
                if not failed:
                    place.tend(start, was_ready=was_ready)
            if not announced and not failed and prepared >= {place.process.pid for place in places}:
                announced = True
                ready()
            time.sleep(0.2 if announced else 0.02)
    finally:
        _stop([place.process for place in places])
    return int(failed)


def _stop(processes: Sequence[BaseProcess]) -> None:
    """Ask all processes to stop; those that still run after the grace period are killed."""
    for process in processes:
        process.terminate()
    for process in processes:
        process.join(GRACE + 5.0)
        if process.is_alive():
            process.kill()


def _send(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


@dataclass(frozen=True)
class _Reading:
    """What was read: the fingerprint of the files, the plan with their content, and its site."""

    fingerprint: str
    fixed: SitePlan
    site: Site


def _read(plan: SitePlan, served: SitePlan | None = None) -> _Reading:
    """Read the files of `plan`, or use `served` if they are invalid; raises `PandoraError` without it.

    A change while they are read is noticed later.
    """
    fingerprint = plan.fingerprint()
    try:
        fixed = plan.fixed()
        return _Reading(fingerprint, fixed, fixed.site())
    except PandoraError as error:
        if served is None:
            raise
        logger.error("the configuration is not used, the last valid one goes on: %s", error)
        return _Reading(fingerprint, served, served.site())


Events: TypeAlias = "multiprocessing.SimpleQueue[tuple[int, SitePlan]]"


def _child(plan: SitePlan, served: SitePlan | None, listening: socket.socket, events: Events) -> None:
    """A worker; puts its process id and what it serves into `events`, when it is ready and when it reloads.

    `served` is what another worker served last.
    """

    def told(fixed: SitePlan) -> None:
        events.put((os.getpid(), fixed))

    first = _read(plan, served)
    sys.exit(run_event_loop(_worker(plan, first, listening, lambda: told(first.fixed), told)))


async def _worker(
    plan: SitePlan,
    first: _Reading,
    listening: socket.socket,
    ready: Callable[[], None],
    reloaded: Callable[[SitePlan], None] = lambda _: None,
) -> int:
    """One process: warm up, then answer requests until a signal comes; `first` is what it serves at first."""
    import uvicorn

    from pandora_router.gateway.http import protocol

    site = first.site
    if site.settings.log == "json":
        log_as_json(sys.stderr)
    store = Store(first.fixed.store)
    traces = Traces() if site.settings.traces else None
    worker = maintenance.Process()
    lineup = await store.run(versions.lineup)
    if lineup != Lineup():
        first = await asyncio.to_thread(_read, plan.following(lineup), first.fixed)
        site = first.site
    await store.run(lambda open_: maintenance.seen(open_, worker, time.time()))
    gateway = Gateway(site, store, traces=traces, worker=worker.id)
    mounted = ExitStack()
    first.fixed.mount(gateway, mounted)
    for router in site.routers:
        router.warm()
    gc.collect()
    gc.freeze()  # what is loaded by now stays: the collector need not look at it again
    gc.set_threshold(YOUNG, 20, 20)
    config = protocol.settings(gateway, timeout_graceful_shutdown=int(GRACE))
    server = uvicorn.Server(config)
    loop = asyncio.get_running_loop()
    changed = asyncio.Event()

    def stop() -> None:
        server.force_exit = server.should_exit  # after a second signal streams are not waited for
        server.should_exit = True

    loop.add_signal_handler(signal.SIGHUP, changed.set)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    # uvicorn would raise the signal again after stopping; here a stop that was asked for is a success
    server.capture_signals = contextlib.nullcontext  # type: ignore[method-assign, assignment]
    chores = [
        asyncio.ensure_future(_reloading(plan, first.fingerprint, lineup, gateway, changed, reloaded)),
        asyncio.ensure_future(periodic.recovering(store, worker)),
        asyncio.ensure_future(periodic.retaining(gateway)),
        asyncio.ensure_future(keep_learning(gateway)),
        asyncio.ensure_future(periodic.pacing(gateway)),
        asyncio.ensure_future(_announcing(server, ready)),
    ]
    try:
        await server.serve(sockets=[listening])
    finally:
        for chore in chores:
            chore.cancel()
        await asyncio.gather(*chores, return_exceptions=True)
        mounted.close()
        store.keep(lambda open_: maintenance.left(open_, worker), short=True)
        store.close()
        if traces is not None:
            traces.close()
    return 0


async def _announcing(server: uvicorn.Server, ready: Callable[[], None]) -> None:
    while not server.started:
        await asyncio.sleep(0.01)
    ready()


async def _reloading(
    plan: SitePlan,
    known: str,
    lineup: Lineup,
    gateway: Gateway,
    changed: asyncio.Event,
    reloaded: Callable[[SitePlan], None],
) -> None:
    """Make a new site when the files or the `lineup` of the store change, or SIGHUP comes.

    An invalid one is reported and not used. `reloaded` is told what is served from now on. If the store is
    unavailable, the change is tried again until it is back.
    """
    while True:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(changed.wait(), LOOK_EVERY)
        now, stands = plan.fingerprint(), lineup
        with contextlib.suppress(PandoraError):
            stands = await gateway.store.run(versions.lineup)
        if (now, stands) == (known, lineup) and not changed.is_set():
            continue
        changed.clear()
        try:
            reading = await asyncio.to_thread(_read, plan.following(stands))
            await asyncio.to_thread(gateway.install, reading.site)
            reloaded(reading.fixed)
            logger.warning("serving generation %s (%s)", gateway.site.generation, gateway.site.hash)
        except PandoraError as error:
            logger.error(
                "the new configuration is not used, generation %s goes on: %s", gateway.site.generation, error
            )
            if isinstance(error, UpstreamError):
                continue
        known, lineup = now, stands
