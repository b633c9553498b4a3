"""Losses and savings of a way of routing, as sums that can be added; every arm at every inspection cost.

`Outcomes` is a commutative monoid: `Outcomes.none()` is neutral, and `a + b` is the result on both sets of
prompts together (up to rounding). Shards, hosts and seeds are merged by `sum`, and a sweep of any length
needs the memory of one chunk. Means and standard errors are computed at the end.

    regret           max_m R_m - R_chosen, on realised rewards
    inspection cost  what was spent: mean(inspections x cost), not mean(inspections) x mean(cost)
    total            regret + inspection cost
    gain             R_chosen - spent - R_single: compared with the best single specialist
    fee saving       fee_single - fee_chosen - spent: the same in money alone
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Self

import numpy as np

from pandora_router.boxes import Costs
from pandora_router.calibrate.readings import Readings
from pandora_router.calibrate.ways import Routed
from pandora_router.errors import UsageError
from pandora_router.evaluate.arms import DEFAULT, Arm
from pandora_router.evaluate.trials import Trial
from pandora_router.types import Matrix, Vector


def summands(routed: Routed, readings: Readings, single: int) -> dict[str, Vector]:
    """What each prompt (N,) adds to every sum of `Outcomes` except the number of prompts."""
    boxes = readings.cheap.shape[1]
    if len(routed.choice) != len(readings) or not 0 <= single < boxes:
        raise UsageError(
            "outcomes",
            expected=f"decisions on {len(readings)} prompts and a specialist below {boxes}",
            came=f"{len(routed.choice)} decisions, specialist {single}",
            do="Route the same prompts that are judged.",
        )
    rows = np.arange(len(readings))
    score, fee = readings.score[rows, routed.choice], readings.fee[rows, routed.choice]
    regret = routed.regret(readings)
    total = regret + routed.spent
    gain = score - fee - routed.spent - readings.reward[:, single]
    return {
        "regret": regret,
        "inspection_cost": routed.spent,
        "inspections": routed.inspections,
        "inspected": (routed.inspections > 0).astype(np.float64),
        "score": score,
        "fee": fee,
        "gain": gain,
        "fee_saving": readings.fee[:, single] - fee - routed.spent,
        "total_square": total**2,
        "gain_square": gain**2,
    }


@dataclass(frozen=True)
class Outcomes:
    """Sums over prompts; the module docstring defines each."""

    prompts: int = 0
    regret: float = 0.0
    inspection_cost: float = 0.0
    inspections: float = 0.0
    inspected: int = 0
    score: float = 0.0
    fee: float = 0.0
    gain: float = 0.0
    fee_saving: float = 0.0
    total_square: float = 0.0
    gain_square: float = 0.0

    @classmethod
    def none(cls) -> Self:
        """The outcomes of no prompts: adding them changes nothing."""
        return cls()

    @classmethod
    def of(cls, routed: Routed, readings: Readings, single: int) -> Self:
        """The outcomes of decisions on these prompts; `single` is the specialist to compare with."""
        terms = summands(routed, readings, single)
        inspected = int(terms.pop("inspected").sum())
        sums = {name: float(values.sum()) for name, values in terms.items()}
        return cls(prompts=len(readings), inspected=inspected, **sums)

    def __add__(self, other: Outcomes) -> Outcomes:
        if not isinstance(other, Outcomes):
            return NotImplemented
        names = [field.name for field in fields(self)]
        return Outcomes(**{name: getattr(self, name) + getattr(other, name) for name in names})

    def __radd__(self, other: object) -> Outcomes:
        """Allow `sum(parts)`, which starts with 0."""
        return self if other == 0 else NotImplemented

    def means(self) -> dict[str, float]:
        """Every metric per prompt, with standard errors for independent prompts; NaN without prompts."""
        n = self.prompts or np.nan
        total = self.regret + self.inspection_cost
        return {
            "regret": self.regret / n,
            "inspection_cost": self.inspection_cost / n,
            "total": total / n,
            "total_error": _error(total, self.total_square, self.prompts),
            "inspections": self.inspections / n,
            "inspected": self.inspected / n,
            "accuracy": self.score / n,
            "fee": self.fee / n,
            "gain": self.gain / n,
            "gain_error": _error(self.gain, self.gain_square, self.prompts),
            "fee_saving": self.fee_saving / n,
        }


def _error(total: float, square: float, n: int) -> float:
    """The standard error of a mean from a sum and a sum of squares; NaN below two prompts."""
    if n < 2:
        return float("nan")
    return float(np.sqrt(max(square - total**2 / n, 0.0) / (n - 1) / n))


UNIT = 1127  # 2^-1127 divides every double: frexp's smallest exponent is -1073, less 53 digits
_LOW = 27  # the lower digits of a significand of 53; the upper 26 and a sign are the rest


def exact_sums(values: Matrix) -> list[int]:
    """The sum of each row of finite numbers (F, N), N up to 2^26, in units of 2^-UNIT."""
    fraction, exponent = np.frexp(values)
    digits = np.ldexp(fraction, 53).astype(np.int64)
    first = int(exponent.min(initial=0))
    width = int(exponent.max(initial=0)) - first + 1
    place = (exponent - first + width * np.arange(len(values))[:, None]).ravel()
    high, low = digits >> _LOW, digits & ((1 << _LOW) - 1)
    # sums of fewer than 2^26 integers below 2^27 are exact in doubles
    sums = [np.bincount(place, part.ravel(), minlength=len(values) * width) for part in (high, low)]
    shape = (len(values), width)
    return [
        sum(
            ((int(upper) << _LOW) + int(rest)) << (first + j - 53 + UNIT)
            for j, (upper, rest) in enumerate(zip(highs, lows, strict=True))
            if upper or rest
        )
        for highs, lows in zip(*(part.reshape(shape) for part in sums), strict=True)
    ]


def rounded(total: int) -> float:
    """The double nearest to an exact sum."""
    return total / (1 << UNIT)


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
    """Run every arm at every level; `costs_at(level)` are the inspection costs there.

    The router under test runs first at each level: the number of its inspections is the budget of the arms
    that share one (margin, random inspections). Raises `UsageError` if it is not the first of `arms`.
    """
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
            routed = arm.route(trial, costs, budget, rng_for(seed, arm.name, level))
            seconds = time.process_time() - begun
            if arm.name == DEFAULT:
                budget = int(routed.inspections.sum())
            outcomes = Outcomes.of(routed, trial.test, trial.standing.single)
            runs.append(Run(arm.name, level, outcomes, routed.total(trial.test), routed, seconds))
    return runs


def rng_for(seed: int, *parts: object) -> np.random.Generator:
    """A random generator of its own for each seed and `parts`, so that adding an arm changes no other."""
    key = hashlib.blake2b("\n".join(map(str, parts)).encode(), digest_size=8).digest()
    return np.random.Generator(np.random.Philox(key=[seed, int.from_bytes(key, "little")]))
