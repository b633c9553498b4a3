r"""Detects that a specialist earns more or less than was expected of it, with few false alarms.

For each rated answer of a specialist, e = reward - expected reward - level, where `level` is the mean
difference over its first `FIRST` rated answers: no estimate is exactly calibrated. For each bet lam and each
sign,

    M <- (M + 1) (1 + lam (sign e - TOLERANCE)),    M = 0 at the start,

and the detector is the mean of all M. While the expectation of sign e stays below TOLERANCE, M minus the
number of answers is a supermartingale, so the mean number of answers until a false alarm is at least ALARM.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

BETS = np.array([0.02, 0.05, 0.1, 0.2, 0.4])
FIRST = 300
"""Rated answers from which the level of a specialist is taken."""
TOLERANCE = 0.03
"""A change of the mean reward that is not worth an alarm."""
ALARM = 10_000.0
"""Value of the detector at which it raises an alarm."""


@dataclass(frozen=True)
class Drift:
    """The detector over the rated answers of one specialist.

    alarm: the number of answers after which it first reached `ALARM`; None if it did not. level: mean
    difference over the first answers. recent: the same over the last `FIRST`, minus `level`. evidence: the
    detector now.
    """

    answers: int
    alarm: int | None
    level: float
    recent: float
    evidence: float


def detect(differences: Iterable[float]) -> Drift:
    """Run the detector over reward minus expected reward of rated answers, in the order of time.

    Differences beyond 2 in size are cut there, so that a bet never loses more than it has.
    """
    values = np.clip(np.fromiter(differences, dtype=np.float64), -2.0, 2.0)
    level = float(values[:FIRST].mean()) if len(values) else 0.0
    signs = np.array([[-1.0], [1.0]])
    wealth, alarm, evidence = np.zeros((2, len(BETS))), None, 0.0
    for number, value in enumerate(values[FIRST:] - level, FIRST + 1):
        wealth = (wealth + 1.0) * np.maximum(1.0 + BETS * (signs * value - TOLERANCE), 0.0)
        evidence = float(wealth.mean())
        if alarm is None and evidence >= ALARM:
            alarm = number
    later = values[FIRST:][-FIRST:]
    recent = float(later.mean()) - level if len(later) else 0.0
    return Drift(len(values), alarm, level, recent, evidence)
