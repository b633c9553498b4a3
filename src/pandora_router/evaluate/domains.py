"""The routing table of an experiment: one data folder, or several side by side, and which tasks of it.

Folders are put side by side on the prompts they have in common, matched by id; texts and splits must agree.
So `[openllm_pool, mmlupro_cot]` has the 12,032 prompts of MMLU-Pro (the other benchmarks of the first were
never put to the models of the second) and every specialist with a score there. Cells that are missing stay
missing: estimators are fitted on what there is, and prompts that lack a reward are left out only where
regret is judged, which needs the best specialist in hindsight; reports say how many.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from pathlib import Path

import numpy as np

from pandora_router.data import Free, FromColumn, PerParameter, Table, storage
from pandora_router.data.fees import Facts, Fees
from pandora_router.data.importers import read_folder
from pandora_router.data.joins import beside
from pandora_router.errors import UsageError
from pandora_router.evaluate.experiments import Experiment
from pandora_router.types import Matrix


def read(experiment: Experiment, root: Path) -> Table:
    """All specialists of the data with their fees, on the wanted tasks; the split is that of the data."""
    tables = [_folder(experiment, root / name) for name in experiment.folders]
    if len(tables) > 1:
        joined = reduce(lambda left, right: beside(left, right, shared=True), tables)
        tables = [joined.only(joined.answered)]
    for name in experiment.parameters:
        if name not in tables[0].specialists:
            raise UsageError(
                f"{experiment.name}: parameters",
                expected="specialists of the data",
                came=repr(name),
                do="Check the spelling: names are compared exactly.",
            )
    return _only_tasks(experiment, tables[0])


@dataclass(frozen=True)
class _Sized:
    """Parameters x price, where some sizes are stated; a folder may hold only some of those specialists."""

    price_per_trillion: float
    stated: Mapping[str, float]
    wanted: Mapping[str, float] | None

    def of(self, facts: Facts) -> Matrix:
        """NaN for specialists of unknown size; 0 for those that will take no part."""
        here = {name: size for name, size in self.stated.items() if name in facts.specialists}
        fee = PerParameter(self.price_per_trillion, stated=here).of(facts)
        if self.wanted is None:
            return fee
        out = np.array([name not in self.wanted for name in facts.specialists])
        return np.where(out & np.isnan(fee), 0.0, fee)


def _folder(experiment: Experiment, place: Path) -> Table:
    """A table that `pandora data import` wrote, with the fees it has, or a folder of files and a fee rule."""
    weight = experiment.fee_weight
    if not storage.is_stored(place):
        return read_folder(place, fees=_rule(experiment), fee_weight=1.0 if weight is None else weight)
    for key in ("fee_per_trillion", "fee_column"):
        if getattr(experiment, key):
            raise UsageError(
                f"{experiment.name}: {key}",
                expected="none: a stored table has its fees",
                came=repr(getattr(experiment, key)),
                do="Leave it out, or say it when importing.",
            )
    table = storage.load(place)
    return table if weight is None else table.with_fee_weight(weight)


def _rule(experiment: Experiment) -> Fees:
    if experiment.fee_column:
        return FromColumn(experiment.fee_column)
    if experiment.fee_per_trillion <= 0.0:
        return Free()
    return _Sized(experiment.fee_per_trillion, experiment.parameters, experiment.specialists)


def _only_tasks(experiment: Experiment, table: Table) -> Table:
    if not experiment.tasks:
        return table
    known = sorted(set(table.tasks))
    keep = np.zeros(len(table), dtype=np.bool_)
    for wanted in experiment.tasks:
        hit = [task == wanted or (wanted.endswith("/") and task.startswith(wanted)) for task in table.tasks]
        if not any(hit):
            near = difflib.get_close_matches(wanted, known, n=1)
            raise UsageError(
                f"{experiment.name}: task {wanted!r}",
                expected=f"one of {', '.join(known[:8])}" + (" ..." if len(known) > 8 else ""),
                came="no such task",
                do=f"Did you mean {near[0]!r}?" if near else "See `pandora data check`.",
            )
        keep |= hit
    return table.rows(keep)
