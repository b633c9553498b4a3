"""The gateway as processes: one listening socket, N workers, graceful stop, reload.

Each worker builds its own `Site` from a `SitePlan`, so workers share only the socket and the store. On
SIGTERM and SIGINT the server stops accepting, gives streams `GRACE` seconds to end and exits. On SIGHUP, or a
changed configuration or artifact, a new `Site` is built: a valid one replaces the old between two requests,
an invalid one is reported and not used. A worker that dies is restarted by the parent, and the others settle
what it left open within seconds (`store.presence`).
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import logging
import multiprocessing
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from multiprocessing.process import BaseProcess
from typing import TYPE_CHECKING, Protocol

from pandora_router.errors import PandoraError, UpstreamError
from pandora_router.gateway import logs
from pandora_router.gateway.app import Gateway
from pandora_router.gateway.site import Site
from pandora_router.gateway.telemetry import Traces
from pandora_router.store import auctions, chores, log, presence
from pandora_router.store.database import Transaction
from pandora_router.store.worker import Store
from pandora_router.transport.listening import Address, run_event_loop, url_of
from pandora_router.transport.relay import LONGEST

if TYPE_CHECKING:
    import uvicorn

logger = logging.getLogger("pandora_router.gateway")

GRACE = 30.0
"""Seconds that streams get to end after a stop signal."""
YOUNG = 20_000
"""New objects after which the garbage collector looks for cycles; a request makes about a thousand."""
LOOK_EVERY = 2.0
"""Seconds between two checks of the files of a site."""
PRUNE_EVERY = 600.0
"""Seconds between two deletions of old decisions."""
PRUNE_PAUSE = 0.2
"""Seconds between two blocks of one deletion."""


class SitePlan(Protocol):
    """How to build a site; picklable, because every worker is a separate process."""

    @property
    def store(self) -> str:
        """The address of the store."""
        ...

    def site(self) -> Site:
        """Read the files and make a site; raises `UsageError` if they are not valid."""
        ...

    def fingerprint(self) -> str:
        """A text that changes when the files do; quick, because it is called every few seconds."""
        ...

    def mount(self, gateway: Gateway, closing: ExitStack) -> None:
        """Add other applications to `gateway.mounted`; `closing` closes their resources."""
        ...


def serve(plan: SitePlan, address: Address, workers: int, ready: Callable[[str], None]) -> int:
    """Serve until a signal; returns the exit code. Calls `ready(url)` when requests are accepted."""
    known, site = _read(plan)  # mistakes are found here, before the socket is opened
    listening = address.bind(keys=site.settings.keys)
    url = url_of(listening)
    if workers == 1:
        return run_event_loop(_worker(plan, known, site, listening, lambda: ready(url)))
    return _parent(plan, listening, workers, lambda: ready(url))


def _parent(plan: SitePlan, listening: socket.socket, workers: int, ready: Callable[[], None]) -> int:
    """Keep `workers` processes alive until a signal comes, then stop them all; returns the exit code.

    It is 1 if one of the first workers ended before it was ready: the same would happen to the next one. A
    worker that ends later is replaced, also while others are not ready yet.
    """
    spawn = multiprocessing.get_context("spawn")
    stopping = False
    events = spawn.SimpleQueue()

    def start() -> BaseProcess:
        process = spawn.Process(target=_child, args=(plan, listening, events), daemon=False)
        process.start()
        return process

    def stop(number: int, _: object) -> None:
        nonlocal stopping
        stopping = True

    def reload(number: int, _: object) -> None:
        for process in running:
            if process.pid is not None and process.is_alive():
                _send(process.pid, signal.SIGHUP)

    running = [start() for _ in range(workers)]
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    signal.signal(signal.SIGHUP, reload)
    prepared: set[int | None] = set()
    announced = failed = False
    while not stopping and not failed:
        while not events.empty():
            prepared.add(events.get())
        for i, process in enumerate(running):
            if process.is_alive():
                continue
            if not announced and process.pid not in prepared:
                failed = True
            elif not stopping:
                logger.error(
                    "worker %s ended with code %s and is started again", process.pid, process.exitcode
                )
                running[i] = start()
        if not announced and not failed and prepared >= {process.pid for process in running}:
            announced = True
            ready()
        time.sleep(0.2 if announced else 0.02)
    for process in running:
        process.terminate()
    for process in running:
        process.join(GRACE + 5.0)
        if process.is_alive():
            process.kill()
    return int(failed)


def _send(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _child(plan: SitePlan, listening: socket.socket, events: multiprocessing.SimpleQueue[int]) -> None:
    """A worker; puts its process id into `events` when it is ready."""
    sys.exit(run_event_loop(_worker(plan, *_read(plan), listening, lambda: events.put(os.getpid()))))


def _read(plan: SitePlan) -> tuple[str, Site]:
    """The fingerprint of the files and their site. A change while they are read is noticed later."""
    return plan.fingerprint(), plan.site()


async def _worker(
    plan: SitePlan, known: str, site: Site, listening: socket.socket, ready: Callable[[], None]
) -> int:
    """One process: warm up, then answer requests until a signal comes; `known`: fingerprint of `site`."""
    import uvicorn

    from pandora_router.gateway import arriving

    if site.settings.log == "json":
        logs.as_json(sys.stderr)
    store = Store(plan.store)
    traces = Traces() if site.settings.traces else None
    worker = presence.Process()
    await store.run(lambda open_: presence.seen(open_, worker, time.time()))
    gateway = Gateway(site, store, traces=traces, worker=worker.id)
    mounted = ExitStack()
    plan.mount(gateway, mounted)
    for router in site.routers:
        router.warm()
    gc.collect()
    gc.freeze()  # what is loaded by now stays: the collector need not look at it again
    gc.set_threshold(YOUNG, 20, 20)
    config = arriving.settings(gateway, timeout_graceful_shutdown=int(GRACE))
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
        asyncio.ensure_future(_reloading(plan, known, gateway, changed)),
        asyncio.ensure_future(_recovering(store, worker)),
        asyncio.ensure_future(_retaining(gateway)),
        asyncio.ensure_future(_announcing(server, ready)),
    ]
    try:
        await server.serve(sockets=[listening])
    finally:
        for chore in chores:
            chore.cancel()
        await asyncio.gather(*chores, return_exceptions=True)
        mounted.close()
        store.keep(lambda open_: presence.left(open_, worker), short=True)
        store.close()
        if traces is not None:
            traces.close()
    return 0


async def _announcing(server: uvicorn.Server, ready: Callable[[], None]) -> None:
    while not server.started:
        await asyncio.sleep(0.01)
    ready()


async def _reloading(plan: SitePlan, known: str, gateway: Gateway, changed: asyncio.Event) -> None:
    """Make a new site when the files differ from `known` or SIGHUP comes; an invalid one is not used.

    It is reported. If the store is unavailable, the change is tried again until it is back.
    """
    while True:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(changed.wait(), LOOK_EVERY)
        now = plan.fingerprint()
        if now == known and not changed.is_set():
            continue
        changed.clear()
        try:
            site = await asyncio.to_thread(plan.site)
            await asyncio.to_thread(gateway.install, site)
            logger.warning("serving generation %s (%s)", gateway.site.generation, gateway.site.hash)
        except PandoraError as error:
            logger.error(
                "the new configuration is not used, generation %s goes on: %s", gateway.site.generation, error
            )
            if isinstance(error, UpstreamError):
                continue
        known = now


async def _recovering(store: Store, worker: presence.Process) -> None:
    """Record that this process is alive, and settle what dead processes left open."""
    while True:
        with contextlib.suppress(PandoraError):
            await store.run(functools.partial(_recovered, worker=worker))
        await asyncio.sleep(presence.SEEN_EVERY)


def _recovered(open_: Transaction, worker: presence.Process) -> int:
    now = time.time()
    presence.seen(open_, worker, now)
    presence.remove_dead(open_, worker, now)
    auctions.recover(open_, now - LONGEST - 120.0, now)  # no answer takes longer
    return log.recover(open_, now)


async def _retaining(gateway: Gateway) -> None:
    """Delete what is older than the configuration says; one worker does it, once in `PRUNE_EVERY`.

    Many decisions are deleted in blocks, with a pause after each in which requests are answered.
    """
    total = 0
    while True:
        days, deleted = gateway.site.settings.retention, 0
        if days is not None:
            with contextlib.suppress(PandoraError):
                prune = functools.partial(chores.prune, now=time.time(), days=days, every=PRUNE_EVERY)
                deleted = await gateway.store.run(prune)
                total += deleted
        if total and deleted < log.BLOCK:
            logger.warning("deleted %s decisions older than %g days", total, days)
            total = 0
        await asyncio.sleep(PRUNE_PAUSE if deleted == log.BLOCK else PRUNE_EVERY)
