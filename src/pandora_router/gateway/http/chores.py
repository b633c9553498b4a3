"""Periodic work of a worker process besides requests.

Settle what the dead left open, delete what is old, and follow budgets.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import math
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from pandora_router.errors import PandoraError
from pandora_router.learn.pace import Pace, Traffic
from pandora_router.store import auctions, budgets, explored, log, maintenance
from pandora_router.store.database import Transaction
from pandora_router.store.money import dollars, period_bounds
from pandora_router.store.rows import SharedBudget
from pandora_router.store.worker import Store
from pandora_router.transport.relay import LONGEST

if TYPE_CHECKING:
    from pandora_router.gateway.generation import PacedRouter
    from pandora_router.gateway.http.app import Gateway

logger = logging.getLogger("pandora_router.gateway")
FORGOTTEN = LONGEST + 120.0
"""Seconds after which an auction that was awarded has been forgotten: no answer takes longer."""
PRUNE_EVERY = 600.0
"""Seconds between two deletions of old decisions."""
PRUNE_PAUSE = 0.2
"""Seconds between two blocks of one deletion."""
PACE_EVERY = 10.0
"""Seconds between two computations of the worth at which a budget lasts."""
NOTABLE = 0.2
"""Change of the logarithm of the worth of a right answer from which on it is logged."""


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


async def pacing(gateway: Gateway) -> None:
    """Keep the worth of a right answer at which the budget of the goal lasts."""
    while True:
        with contextlib.suppress(PandoraError):
            await keep_pace(gateway, time.time())
            await gateway.site.refresh_lessons(gateway.store, time.time())
        await asyncio.sleep(PACE_EVERY)


def _traffic(open_: Transaction, budget: SharedBudget, now: float) -> Traffic:
    """What the store knows of a paced budget."""
    cost, requests, recent, seconds = budgets.traffic(open_, budget, now)
    labels = explored.labels_cost(open_, budget, now)
    return Traffic(dollars(cost), requests, recent, seconds, dollars(labels))


async def keep_pace(gateway: Gateway, now: float) -> None:
    """Serve the worth at which the budget of the goal lasts (`learn.pace`); nothing without such a goal.

    All workers and hosts read the same sums, so they come to nearly the same worth. The worth of a profile
    with a budget of its own is that of `auto` at most, whose budget its requests spend too.
    """
    known, most = dict[str, Pace](), math.inf
    for name, paced in gateway.site.paced_routers.items():
        pace = known.get(paced.budget.id) or await _paced(gateway, paced, most, now)
        known[paced.budget.id] = pace
        if not name:
            most = pace.worth
        if gateway.site.paced_routers.get(name) is paced:  # no other site was installed meanwhile
            gateway.site = gateway.site.at_pace(name, replace(paced, pace=pace))
    for limit in gateway.site.stops.values():
        seen, left = await _seen(gateway, limit, now)
        note = functools.partial(
            budgets.note_pace, budget=limit, worth=None, expected=seen.expected_end(left)
        )
        await gateway.store.run(functools.partial(note, now=now))


async def _seen(gateway: Gateway, budget: SharedBudget, now: float) -> tuple[Traffic, float]:
    """What a budget has counted, and the seconds that are left of its period."""
    seen = await gateway.store.run(functools.partial(_traffic, budget=budget, now=now))
    return seen, period_bounds(budget.period, now)[1] - now


async def _paced(gateway: Gateway, paced: PacedRouter, most: float, now: float) -> Pace:
    """The pace of a router from what its budget has counted, at a worth of `most` at most; written down."""
    seen, left = await _seen(gateway, paced.budget, now)
    pace = paced.pace.after(seen, left)
    pace = replace(pace, worth=min(pace.worth, most))
    note = functools.partial(budgets.note_pace, budget=paced.budget, worth=pace.worth)
    expected = pace.expected_end(seen, left)
    await gateway.store.run(functools.partial(note, expected=expected, now=now))
    if abs(math.log(pace.worth / paced.pace.worth)) > NOTABLE:
        spent = f"${seen.spent:.2f} of ${pace.budget:.2f} spent this {paced.budget.period}"
        worth = f"a right answer is worth ${pace.worth:.3g} from now on"
        logger.warning("%s, for %s: %s", worth, paced.budget, spent)
    return pace
