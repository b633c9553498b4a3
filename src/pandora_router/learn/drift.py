r"""Detects that a specialist earns more or less than was expected of it, with few false alarms.

For each rated answer of a specialist, e = reward - expected reward - level, where `level` is the mean
difference over its first `FIRST` rated answers: no estimate is exactly calibrated. For each bet lam and each
sign,

    M <- (M + 1) (1 + lam (sign e - TOLERANCE)),    M = 0 at the start,

and the detector is the mean of all M. While the expectation of sign e stays below TOLERANCE, M minus the
number of answers is a supermartingale, so the mean number of answers until a false alarm is at least ALARM.

After an alarm a gateway moves the worth of the specialist by the difference over its last `RECENT` answers
(`DriftState.shift`), and the detector starts again from there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

BETS = (0.02, 0.05, 0.1, 0.2, 0.4)
FIRST = 300
"""Rated answers from which the level of a specialist is taken."""
RECENT = 100
"""The last answers, whose mean difference says how much has changed."""
SLACK = 1.5
"""A key may have so many times an equal share, so that keys that rate alike seldom wait for each other."""
TOLERANCE = 0.03
"""A change of the mean reward that is not worth an alarm."""
ALARM = 10_000.0
"""Value of the detector at which it raises an alarm."""


def bet(wealth: tuple[float, ...], moved: float) -> tuple[float, ...]:
    """M of each sign and bet after a value that is `moved` away from its level."""
    factors = [1.0 + lam * (sign * moved - TOLERANCE) for sign in (-1.0, 1.0) for lam in BETS]
    return tuple((m + 1.0) * max(by, 0.0) for m, by in zip(wealth, factors, strict=True))


@dataclass(frozen=True)
class DriftState:
    """The detector after some rated answers of one specialist. `after` returns the state after one more.

    answers: since the start, or since the last alarm. total: sum of the first differences. wealth: M of each
    sign and bet. recent: the last differences, minus the level. shift: what alarms so far have measured.
    """

    answers: int = 0
    total: float = 0.0
    wealth: tuple[float, ...] = (0.0,) * (2 * len(BETS))
    recent: tuple[float, ...] = ()
    shift: float = 0.0
    alarms: int = 0
    keys: tuple[str, ...] = ()

    @property
    def level(self) -> float:
        """Mean difference over the first answers, to which later ones are compared."""
        return self.total / min(self.answers, FIRST) if self.answers else 0.0

    @property
    def evidence(self) -> float:
        """The detector now."""
        return sum(self.wealth) / len(self.wealth)

    @property
    def change(self) -> float:
        """Mean of the last differences; 0 before there are any."""
        return sum(self.recent) / len(self.recent) if self.recent else 0.0

    def admits(self, key: str, per_key: float) -> bool:
        """Whether a rating by `key` counts, of which the last `RECENT` have at most a share `per_key`.

        The share is at least `SLACK` times an equal one. So a key that floods the gateway with ratings moves
        the detector no faster than others rate.
        """
        others = self.keys[-RECENT + 1 :]
        share = max(per_key, SLACK / len({*others, key}))
        return others.count(key) + 1 <= max(share * RECENT, 1.0)

    def by(self, key: str) -> DriftState:
        """The state after a rating by `key`, before its difference."""
        return replace(self, keys=(*self.keys[-RECENT + 1 :], key))

    def after(self, difference: float) -> DriftState:
        """The state after a reward minus what was expected.

        It is cut at 2 in size, so that a bet never loses more than it has.
        """
        value = min(max(difference, -2.0), 2.0)
        if self.answers < FIRST:
            return replace(self, answers=self.answers + 1, total=self.total + value)
        moved = value - self.level
        recent = (*self.recent[-RECENT + 1 :], moved)
        return replace(self, answers=self.answers + 1, wealth=bet(self.wealth, moved), recent=recent)

    def alarmed(self) -> DriftState:
        """The state after an alarm was raised: what has changed is in `shift`, and all else starts again."""
        return DriftState(shift=self.shift + self.change, alarms=self.alarms + 1, keys=self.keys)

    def to_dict(self) -> dict[str, Any]:
        """The state as JSON values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> DriftState:
        """The state that `to_dict` wrote."""
        many = {name: tuple(state.get(name, ())) for name in ("wealth", "recent", "keys")}
        return cls(**{**state, **many})


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
    """Run the detector over reward minus expected reward of rated answers, in the order of time."""
    state, alarm, later = DriftState(), None, list[float]()
    for difference in differences:
        state = state.after(difference)
        later += state.recent[-1:]
        if alarm is None and state.evidence >= ALARM:
            alarm = state.answers
    last = later[-FIRST:]
    recent = sum(last) / len(last) if last else 0.0
    return Drift(state.answers, alarm, state.level, recent, state.evidence)
