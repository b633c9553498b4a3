"""A judge reads the beginning of every answer of a table, once, before a router is fitted on its verdicts.

Live, a verdict is bought for a look whose verdict is worth its price; to know that, the fit needs verdicts on
known prompts. They are bought as other estimates from outside are (`out_of_fold.buy`): each is written to
disk before it is used, and none is bought twice.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from pandora_router.boxes import Costs
from pandora_router.data import Table
from pandora_router.errors import UsageError
from pandora_router.router.opening import finish
from pandora_router.router.out_of_fold import JOURNAL, buy
from pandora_router.router.recipes import External
from pandora_router.specialists.beginning import split_verdict, told_to_judge, with_verdict
from pandora_router.types import Mask, silent


def unjudged(table: Table) -> Mask:
    """Mask (N, M) of the contexts that have no verdict yet."""
    cells = np.zeros(table.score.shape, dtype=np.bool_)
    if table.contexts is not None:
        for at, text in np.ndenumerate(table.contexts):
            cells[at] = text is not None and split_verdict(str(text))[0] is None
    return cells


def with_verdicts(
    table: Table,
    judge: External,
    characters: int,
    work: Path | None = None,
    say: Callable[[int, int], None] = silent,
) -> Table:
    """The table with the judge's verdict in every context of which it has one.

    The judge reads as much as a look shows: the first `characters` of a context. Verdicts that are in the
    table already are kept.
    """
    wanted = unjudged(table)
    if not wanted.any() or table.contexts is None:
        return table
    shown, contexts = table.contexts.copy(), table.contexts.copy()
    for at, text in np.ndenumerate(table.contexts):
        shown[at] = None if text is None else told_to_judge(str(text), characters)
    kept = None if work is None or judge.name == External.name else work / JOURNAL
    verdicts = finish(buy(judge, replace(table, contexts=shown), kept, say, wanted), waits=True)
    for at in zip(*np.nonzero(np.isfinite(verdicts)), strict=True):
        contexts[at] = with_verdict(str(contexts[at]), float(np.clip(verdicts[at], 0.0, 1.0)))
    return replace(table, contexts=contexts)


def check_price(costs: Costs) -> None:
    """Raise `UsageError` if verdicts have no price: they would never be bought."""
    if costs.tiers == 1:
        raise UsageError(
            "the inspection cost",
            expected="the price of a verdict too, since the recipe names a judge",
            came="costs of looks alone",
            do="Pass Costs(own, refund=..., then=...), or Inspection(verdict=...).",
        )
