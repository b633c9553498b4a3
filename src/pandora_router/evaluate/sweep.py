"""Run every arm at every inspection cost on one trial.

The router under test runs first at each cost: the number of its inspections is the budget of random-N and
margin-N. Random generators are made from seed, arm and cost, so adding an arm does not change the others.
Static arms are computed at each cost like all others.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from pandora_router.boxes import Costs
from pandora_router.calibrate.ways import Routed
from pandora_router.errors import UsageError
from pandora_router.evaluate.arms import DEFAULT, Arm
from pandora_router.evaluate.outcomes import Outcomes
from pandora_router.evaluate.trials import Trial
from pandora_router.types import Vector

CostsAt = Callable[[float], Costs]


@dataclass(frozen=True, eq=False)
class Run:
    """One arm at one inspection cost: outcomes, the total (regret + cost) of each test prompt, CPU time."""

    arm: str
    cost: float
    outcomes: Outcomes
    total: Vector
    routed: Routed
    seconds: float = 0.0


def sweep(
    trial: Trial, arms: Sequence[Arm], levels: Sequence[float], costs_at: CostsAt, seed: int
) -> list[Run]:
    """Every arm at every level; `costs_at(level)` are the inspection costs there."""
    if not arms or arms[0].name != DEFAULT:
        raise UsageError(
            "arms of a sweep",
            expected=f"{DEFAULT!r} first: it sets the budget of the others",
            came=repr([arm.name for arm in arms[:3]]),
            do="Take them from `arms.named`.",
        )
    runs = []
    for level in levels:
        costs, budget = costs_at(level), 0
        for arm in arms:
            begun = time.process_time()
            routed = arm.route(trial, costs, budget, _stream(seed, arm.name, level))
            seconds = time.process_time() - begun
            if arm.name == DEFAULT:
                budget = int(routed.queries.sum())
            outcomes = Outcomes.of(routed, trial.test, trial.standing.single)
            runs.append(Run(arm.name, level, outcomes, routed.total(trial.test), routed, seconds))
    return runs


def _stream(seed: int, arm: str, level: float) -> np.random.Generator:
    key = hashlib.blake2b(f"{arm}\n{level!r}".encode(), digest_size=8).digest()
    return np.random.Generator(np.random.Philox(key=[seed, int.from_bytes(key, "little")]))
