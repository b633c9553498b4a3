"""Many prompts at once: cheap estimates in one pass, then purchases in rounds.

Decisions are made by `deciding`. A predictor answers a whole round in one call; an estimator from outside is
called by at most `UNDER_WAY` decisions at a time. If the policy is compiled, a first compiled run finds the
prompts for which nothing is worth buying. Its input has means in place of values, so that unopened values
cannot leak, and only decisions that open nothing are taken from it.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import numpy as np

from pandora_router.errors import UsageError
from pandora_router.router.deciding import (
    Cheap,
    Deciding,
    checked_contexts,
    conclude,
    deciding,
    statuses,
    unavailable,
)
from pandora_router.router.decision import Decision, Estimates, Prices
from pandora_router.router.driver import drive, here, judged
from pandora_router.router.purchases import Offered
from pandora_router.search import (
    Batch,
    Committing,
    KnowledgeGradient,
    Never,
    Obligatory,
    Policy,
    Rollout,
    Select,
    Trace,
    run,
)
from pandora_router.search.moving_batch import MovingBatch, next_sets
from pandora_router.types import Positions

if TYPE_CHECKING:
    from pandora_router.router.router import Router

CHUNK = 1024  # prompts estimated together
UNDER_WAY = 32  # decisions that wait for an estimator from outside at the same time
COMPILED = (KnowledgeGradient, Rollout, Obligatory, Committing, Never)


async def route_batch(
    router: Router,
    prompts: Sequence[str],
    contexts: Sequence[Offered | None] | None = None,
    among: Collection[str] | None = None,
) -> list[Decision]:
    """One decision per prompt, in order; see `Router.route_batch`."""
    if contexts is not None and len(contexts) != len(prompts):
        raise UsageError(
            "contexts", expected=f"{len(prompts)}, one per prompt", came=f"{len(contexts)}", do="Align them."
        )
    offered = [checked_contexts(offer, router.specialists) for offer in contexts or [None] * len(prompts)]
    decided: list[Decision] = []
    for lo in range(0, len(prompts), CHUNK):
        decided += await _chunk(router, prompts[lo : lo + CHUNK], offered[lo : lo + CHUNK], among)
    return decided


async def _chunk(
    router: Router, prompts: Sequence[str], offered: Sequence[Offered], among: Collection[str] | None
) -> list[Decision]:
    cheap = judged(router.cheap, prompts)
    decided = _without_purchases(router, cheap, offered) if among is None else {}
    rest = [i for i in range(len(prompts)) if i not in decided]
    searches = [deciding(router, prompts[i], cheap[i], offered[i], among) for i in rest]
    decided |= dict(zip(rest, await _side_by_side(router, searches), strict=True))
    return [decided[i] for i in range(len(prompts))]


async def _side_by_side(router: Router, searches: list[Deciding]) -> list[Decision]:
    if router.predictor is not None:  # computed in this process: there is nothing to wait for
        return await drive(router, searches, here)
    allowed = asyncio.Semaphore(UNDER_WAY)

    async def alone(search: Deciding) -> Decision:
        async with allowed:
            until = math.inf if router.timeout is None else time.monotonic() + router.timeout
            return (await drive(router, [search], here, until))[0]

    return list(await asyncio.gather(*(alone(search) for search in searches)))


def _without_purchases(
    router: Router, cheap: Sequence[Cheap], offered: Sequence[Offered]
) -> dict[int, Decision]:
    """The decisions, by row, that a compiled search takes without buying anything."""
    if type(router.policy) not in COMPILED:
        return {}
    begun = time.perf_counter()
    shut = np.array([unavailable(router, given) for given in offered])
    rows = [i for i, judgement in enumerate(cheap) if judgement.row is not None and not shut[i].any()]
    if not rows:
        return {}
    batch = router.signal.batch(np.array([cheap[i].row for i in rows]), router.costs)
    first = _first(router.policy, batch)
    if first is None:
        return {}
    above, below = batch.prices()
    every = np.arange(len(router.specialists))
    sealed = statuses(router.specialists, (), np.zeros(len(every), dtype=np.bool_), late=False, inside=every)
    seconds = (time.perf_counter() - begun) / len(rows)
    priced = router.costs
    costs = priced.marginal, priced.refund, priced.shared, priced.group, priced.wait
    decided = {}
    for k in np.flatnonzero(first >= 0).tolist():
        row = cheap[rows[k]].row
        assert row is not None
        estimates = Estimates(router.specialists, row, batch.mean[k], batch.std[k], sealed)
        prices = Prices(above[k], below[k], *costs)
        taken = int(first[k])
        worth = dict(zip(router.specialists, batch.mean[k].tolist(), strict=True))
        trace = Trace((Select(taken),), (), 0.0)
        spent = cheap[rows[k]].seconds + seconds
        decided[rows[k]] = conclude(router, estimates, prices, trace, taken, (), spent, worth)
    return decided


def _first_moving(policy: Policy, batch: MovingBatch) -> Positions | None:
    """`_first` for boxes of type `Moving`."""
    if not isinstance(policy, KnowledgeGradient) or len(batch.costs.shared):
        return None
    nothing = np.zeros(batch.mean.shape, dtype=np.bool_)
    buys = next_sets(policy, batch.law, batch.costs, nothing, batch.mean).any(axis=1)
    return np.where(buys, -1, batch.mean.argmax(axis=1))


def _first(policy: Policy, batch: Batch | MovingBatch) -> Positions | None:
    """The box that each query takes without buying anything (N,), -1 if it buys; None if not compiled.

    Where waiting has a price, sets of normal boxes have no compiled search.

    The compiled run gets means in place of values.
    """
    if isinstance(policy, Never):
        return batch.mean.argmax(axis=1)
    if isinstance(batch, MovingBatch):
        return _first_moving(policy, batch)
    gradient = isinstance(policy, KnowledgeGradient)
    if gradient and len(batch.costs.wait):
        return None
    simulated = isinstance(policy, Committing) and len(batch.costs.shared) > 0
    if not gradient and (batch.quantiles is not None or simulated):
        return None
    decisions = run(policy, batch, batch.mean)
    return np.where(decisions.inspections == 0, decisions.choice, -1)
