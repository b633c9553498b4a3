"""Periodic work of a worker process besides requests: settle what the dead left open, delete what is old."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import time
from typing import TYPE_CHECKING

from pandora_router.errors import PandoraError
from pandora_router.store import auctions, log, maintenance
from pandora_router.store.database import Transaction
from pandora_router.store.worker import Store
from pandora_router.transport.relay import LONGEST

if TYPE_CHECKING:
    from pandora_router.gateway.http.app import Gateway

logger = logging.getLogger("pandora_router.gateway")
FORGOTTEN = LONGEST + 120.0
"""Seconds after which an auction that was awarded has been forgotten: no answer takes longer."""
PRUNE_EVERY = 600.0
"""Seconds between two deletions of old decisions."""
PRUNE_PAUSE = 0.2
"""Seconds between two blocks of one deletion."""


async def recovering(store: Store, worker: maintenance.Process) -> None:
    """Record that this process is alive, and settle what dead processes left open."""
    while True:
        with contextlib.suppress(PandoraError):
            now = time.time()
            await store.run(functools.partial(maintenance.seen, worker=worker, now=now), short=True)
            find = functools.partial(maintenance.work_left, worker=worker, now=now, awarded=now - FORGOTTEN)
            if await store.run(find, short=True):  # only then others wait
                await store.run(functools.partial(_recovered, worker=worker))
        await asyncio.sleep(maintenance.SEEN_EVERY)


def _recovered(open_: Transaction, worker: maintenance.Process) -> int:
    now = time.time()
    maintenance.remove_dead(open_, worker, now)
    auctions.recover(open_, now - FORGOTTEN, now)
    return log.recover(open_, now)


async def retaining(gateway: Gateway) -> None:
    """Delete what is older than the configuration says; one worker does it, once in `PRUNE_EVERY`.

    Many decisions are deleted in blocks, with a pause after each in which requests are answered.
    """
    total = 0
    while True:
        days, deleted = gateway.site.settings.retention, 0
        if days is not None:
            with contextlib.suppress(PandoraError):
                prune = functools.partial(maintenance.prune, now=time.time(), days=days, every=PRUNE_EVERY)
                deleted = await gateway.store.run(prune)
                total += deleted
        if total and deleted < log.BLOCK:
            logger.warning("deleted %s decisions or auctions older than %g days", total, days)
            total = 0
        await asyncio.sleep(PRUNE_PAUSE if deleted == log.BLOCK else PRUNE_EVERY)
