"""Many prompts at once: one pass of cheap estimates, compiled searches, purchases in rounds.

A first compiled run finds the prompts for which nothing is worth buying: it is fed the means in place of
values, so nothing unopened can leak into it, and only those that open nothing are taken from it. The others
are searched side by side, and each round buys what all of them ask for next in one call.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Generator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from pandora_router.boxes import Boxes
from pandora_router.boxes.draws import discrete_backup_price, discrete_reservation_price
from pandora_router.errors import UsageError
from pandora_router.estimators.estimator import Estimator
from pandora_router.index import price_offset
from pandora_router.router.decision import Decision, Estimates, Prices, new_id
from pandora_router.router.opening import Purchases
from pandora_router.search import (
    Batch,
    Committing,
    Inspect,
    KnowledgeGradient,
    Obligatory,
    Relative,
    Rollout,
    Select,
    State,
    Trace,
    run,
)
from pandora_router.search.drive import Shown, search
from pandora_router.types import Mask, Matrix

if TYPE_CHECKING:
    from pandora_router.router.router import Router

CHUNK = 1024  # prompts in the air at once
COMPILED = (KnowledgeGradient, Rollout, Relative, Obligatory, Committing)
Asking = Generator[tuple[State, Inspect], Shown, Trace]
Contexts = Mapping[str, str]


async def route_batch(
    router: Router, prompts: Sequence[str], contexts: Sequence[Contexts | None] | None = None
) -> list[Decision]:
    """One decision per prompt, in order."""
    if contexts is not None and len(contexts) != len(prompts):
        raise UsageError(
            "contexts", expected=f"{len(prompts)}, one per prompt", came=f"{len(contexts)}", do="Align them."
        )
    decided: list[Decision] = []
    for lo in range(0, len(prompts), CHUNK):
        some = prompts[lo : lo + CHUNK]
        told = contexts[lo : lo + CHUNK] if contexts is not None else [None] * len(some)
        decided.extend(await _chunk(router, some, told))
    return decided


async def _chunk(
    router: Router, prompts: Sequence[str], contexts: Sequence[Contexts | None]
) -> list[Decision]:
    begun = time.perf_counter()
    cheap = router.judge(prompts)
    if isinstance(cheap, str):  # find out which prompts it was
        if len(prompts) == 1:
            return [router.decline(cheap, time.perf_counter() - begun)]
        pairs = zip(prompts, contexts, strict=True)
        return [await router.aroute(prompt, told) for prompt, told in pairs]
    baskets = [
        router.purchases(p, c, cheap[i]) for i, (p, c) in enumerate(zip(prompts, contexts, strict=True))
    ]
    closed = np.array([basket.closed() for basket in baskets])
    batch = router.signal.batch(cheap, router.costs)
    choice = _settled(router, batch, closed)
    asking = {i: _start(router, baskets[i], closed[i]) for i in np.flatnonzero(choice < 0).tolist()}
    traces = {i: Trace((Select(int(choice[i])),), (), 0.0) for i in np.flatnonzero(choice >= 0).tolist()}
    traces |= await _rounds(router, baskets, asking)
    prices = _prices(batch, closed)
    seconds = (time.perf_counter() - begun) / len(prompts)
    return [_decision(router, batch, baskets, prices, traces[i], i, seconds) for i in range(len(prompts))]


def _settled(router: Router, batch: Batch, closed: Mask) -> np.ndarray:
    """The box each prompt takes without buying anything (N,); -1 where it buys or has to be searched."""
    policy = router.policy
    if type(policy) not in COMPILED or len(router.costs.shared):
        return np.full(len(batch), -1)
    first = run(policy, batch, batch.mean)
    return np.where((first.inspections == 0) & ~closed.any(axis=1), first.choice, -1)


def _start(router: Router, basket: Purchases, closed: Mask) -> Asking:
    boxes: Boxes = router.signal.boxes(basket.cheap, router.costs)
    if closed.any():
        boxes = boxes.shut(closed)
    return search(router.policy, State(boxes))


async def _rounds(router: Router, baskets: list[Purchases], asking: dict[int, Asking]) -> dict[int, Trace]:
    """Search side by side until everybody has selected."""
    done: dict[int, Trace] = {}
    answers: dict[int, Shown | None] = dict.fromkeys(asking)
    while answers:
        wanted: dict[int, tuple[State, Inspect]] = {}
        for i, shown in answers.items():
            try:
                wanted[i] = next(asking[i]) if shown is None else asking[i].send(shown)
            except StopIteration as end:
                done[i] = end.value
        answers = dict(await _buy(router, baskets, wanted))
    return done


async def _buy(
    router: Router, baskets: list[Purchases], wanted: dict[int, tuple[State, Inspect]]
) -> dict[int, Shown]:
    """What all these prompts ask for next: one prediction if g is here, else all calls at the same time."""
    rows = list(wanted)
    if not rows:
        return {}
    costly = router.costly
    if isinstance(costly, Estimator):
        shown = await asyncio.gather(*(baskets[i].open(*wanted[i]) for i in rows))
        return dict(zip(rows, shown, strict=True))
    column = {name: j for j, name in enumerate(router.specialists)}
    contexts = np.full((len(rows), len(column)), None, dtype=object)
    for k, i in enumerate(rows):
        for name, text in baskets[i].query(wanted[i][1]).contexts.items():
            contexts[k, column[name]] = text
    found = costly.predict([baskets[i].prompt for i in rows], contexts)
    return {
        i: baskets[i].settle(wanted[i][1], found[k, list(wanted[i][1].boxes)]) for k, i in enumerate(rows)
    }


def _prices(batch: Batch, closed: Mask) -> tuple[Matrix, Matrix]:
    """Reservation and backup prices of all boxes (N, M), as `Prices.of` has them for one prompt."""
    cost = np.broadcast_to(batch.costs.marginal, batch.mean.shape)
    if batch.quantiles is not None and batch.rank is not None:
        laws = batch.quantiles[batch.rank]
        support = (batch.mean[:, :, None] + batch.std[:, :, None] * laws).reshape(-1, laws.shape[-1])
        flat = np.ascontiguousarray(cost).ravel()
        above = discrete_reservation_price(support, flat).reshape(batch.mean.shape)
        below = discrete_backup_price(support, flat).reshape(batch.mean.shape)
    else:
        offset = price_offset(batch.std, cost)
        above, below = batch.mean + offset, batch.mean - offset
    return np.where(closed, batch.mean, above), np.where(closed, batch.mean, below)


def _decision(
    router: Router,
    batch: Batch,
    baskets: list[Purchases],
    prices: tuple[Matrix, Matrix],
    trace: Trace,
    i: int,
    seconds: float,
) -> Decision:
    bought = baskets[i]
    known = Estimates(
        router.specialists, bought.cheap, batch.mean[i], batch.std[i], dict(bought.told), dict(bought.notes)
    )
    shown = Prices(prices[0][i], prices[1][i], router.costs.marginal)
    name = router.specialists[trace.selected]
    return Decision(new_id(), name, trace, known, shown, repr(router.policy), router.id, seconds)
