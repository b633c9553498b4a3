r"""Detects that the mix of prompts has changed, without any rating.

Half of the prompts that the router knows are the base, the others the reference. Of each prompt nine numbers
are taken: its novelty, which is 1 - the largest cosine to a prompt of the base, and its `AXES` components
along the directions in which the base varies most. The rank of each number among those of the reference is
uniform if the prompt is one of the same mix. With level the mean rank of the first `drift.FIRST` requests
(what is sent at first need not look like what was scored), e = rank - level goes into the bets of
`learn.drift`, whose mean over numbers, bets and signs is the detector: while the mean rank stays within
`drift.TOLERANCE` of its level, a false alarm takes `drift.ALARM` requests or more on average.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from pandora_router.estimators.embedders.embedder import Vectors
from pandora_router.estimators.extended import neighbours_of
from pandora_router.estimators.neighbours import Neighbours
from pandora_router.learn.drift import ALARM, BETS, FIRST, RECENT, SLACK, bet
from pandora_router.types import Matrix, Vector

AXES = 8
NAMES = ("novelty", *(f"component {i + 1}" for i in range(AXES)))
"""The numbers that are taken of each prompt."""
MOST = 1024
"""Known prompts that are used; of more, a sample."""
FEWEST = 60
"""Known prompts below which nothing is detected."""


@dataclass(frozen=True, eq=False)
class Mix:
    """What the prompts of a router look like. `ranks` compares one prompt to them.

    name: identifies the known prompts. base (B, width): unit rows. middle (width,), axes (width, AXES):
    where components are measured from, and along what. sorted (9, R): each number of the reference prompts.
    """

    name: str
    known: Neighbours
    base: Vectors = field(repr=False)
    middle: Vector = field(repr=False)
    axes: Matrix = field(repr=False)
    sorted: Matrix = field(repr=False)

    @classmethod
    def of(cls, cheap: object) -> Mix | None:
        """Of the cheap estimate of a router; None if it is not made of neighbours or knows too few."""
        known = neighbours_of(cheap)
        if known is None or len(known.reward) < FEWEST:
            return None
        rows = np.random.default_rng(0).permutation(len(known.reward))[:MOST]
        some = replace(known, vectors=known.vectors[rows], reward=known.reward[rows], edges=None).units()
        base, reference = some[: len(some) // 2], some[len(some) // 2 :]
        middle = base.mean(axis=0)
        axes = np.linalg.svd(base - middle, full_matrices=False)[2][:AXES].T
        name = hashlib.sha256(some.tobytes()).hexdigest()[:16]
        made = cls(name, known, base, middle, axes, np.empty((len(NAMES), 0)))
        return replace(made, sorted=np.sort(made.numbers(reference).T, axis=1))

    def numbers(self, units: Vectors) -> Matrix:
        """Novelty and components (n, 9) of unit rows."""
        return np.column_stack([1.0 - (units @ self.base.T).max(axis=1), (units - self.middle) @ self.axes])

    def ranks(self, prompt: str) -> list[float]:
        """The rank in [0, 1] of each number of this prompt among the reference prompts."""
        row = self.numbers(self.known.units(self.known.embedder.embed([prompt])))[0]
        below = (self.sorted < row[:, None]).sum(axis=1) + (self.sorted <= row[:, None]).sum(axis=1)
        return [round(rank, 4) for rank in (below / (2.0 * self.sorted.shape[1])).tolist()]


@dataclass(frozen=True)
class MixState:
    """The detector after some prompts; `after` returns the state after one more.

    prompts: since the start, or since the last alarm. totals: of each number, the sum of its first ranks.
    wealth: M of each number, sign and bet. keys: the API keys of the last prompts.
    """

    prompts: int = 0
    totals: tuple[float, ...] = (0.0,) * len(NAMES)
    wealth: tuple[tuple[float, ...], ...] = ((0.0,) * (2 * len(BETS)),) * len(NAMES)
    alarms: int = 0
    keys: tuple[str, ...] = ()

    @property
    def levels(self) -> tuple[float, ...]:
        """The mean ranks of the first prompts; a half in the middle where they look like those of the fit."""
        return tuple(total / max(min(self.prompts, FIRST), 1) for total in self.totals)

    @property
    def evidence(self) -> float:
        """The detector now."""
        return sum(sum(wealth) / len(wealth) for wealth in self.wealth) / len(self.wealth)

    @property
    def most(self) -> str:
        """The number that has changed most."""
        sums = [sum(wealth) for wealth in self.wealth]
        return NAMES[sums.index(max(sums))]

    def after(self, ranks: Sequence[float], key: str = "", per_key: float = 1.0) -> MixState:
        """The state after one more prompt; unchanged if `key` sent more than its share of the last ones."""
        others = self.keys[-RECENT + 1 :]
        share = max(per_key, SLACK / len({*others, key}))
        if others.count(key) + 1 > max(share * RECENT, 1.0):
            return self
        made = replace(self, prompts=self.prompts + 1, keys=(*others, key))
        if self.prompts < FIRST:
            return replace(made, totals=tuple(a + b for a, b in zip(self.totals, ranks, strict=True)))
        parts = zip(self.wealth, ranks, self.levels, strict=True)
        return replace(made, wealth=tuple(bet(wealth, rank - level) for wealth, rank, level in parts))

    def alarmed(self) -> MixState:
        """The state after an alarm: the next prompts set the level anew."""
        return MixState(alarms=self.alarms + 1, keys=self.keys)

    @property
    def raises(self) -> bool:
        """Whether the detector has reached its alarm."""
        return self.evidence >= ALARM

    def to_dict(self) -> dict[str, Any]:
        """The state as JSON values."""
        wealth = [[float(f"{m:.6g}") for m in one] for one in self.wealth]
        return {"prompts": self.prompts, "totals": self.totals, "wealth": wealth,
                "alarms": self.alarms, "keys": self.keys}  # fmt: skip

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> MixState:
        """The state that `to_dict` wrote."""
        return cls(
            int(state["prompts"]),
            tuple(state["totals"]),
            tuple(map(tuple, state["wealth"])),
            int(state["alarms"]),
            tuple(state["keys"]),
        )
