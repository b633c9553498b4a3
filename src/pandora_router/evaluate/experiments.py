"""What an experiment is: data, who takes part, what is swept. `config.experiments` reads it from YAML."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from pandora_router.boxes import Costs
from pandora_router.data import Fractions
from pandora_router.evaluate.money import Prices

COSTS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.03, 0.05)


@dataclass(frozen=True)
class Inspection:
    """An inspection in multiples of the swept cost: once a prompt, and per specialist (`each`, or own)."""

    shared: float = 0.0
    own: Mapping[str, float] = field(default_factory=dict)
    each: float = 1.0

    def costs(self, cost: float, specialists: tuple[str, ...]) -> Costs:
        """The costs of these specialists at one level of the sweep."""
        own = cost * np.array([self.own.get(name, self.each) for name in specialists])
        if self.shared == 0.0:
            return Costs(own)
        return Costs(own, shared=[cost * self.shared], group=[0] * len(specialists))


@dataclass(frozen=True)
class Sweep:
    """Variations on the same splits: number of calibration prompts, the paper's S and K, signal models."""

    calibration: tuple[int, ...] = ()
    samples: tuple[int, ...] = ()
    signal_neighbours: tuple[int, ...] = ()
    signals: bool = False


@dataclass(frozen=True)
class Experiment:
    """One experiment, as its YAML file says."""

    name: str
    data: str | tuple[str, ...]
    tasks: tuple[str, ...] = ()
    title: str = ""
    specialists: Mapping[str, float] | None = None
    fee_per_trillion: float = 0.0
    parameters: Mapping[str, float] = field(default_factory=dict)
    fee_column: str = ""
    fee_weight: float | None = None
    complete: float = 0.0
    peek: int = 0
    agreement: bool = False
    neighbours: tuple[int, ...] = (50, 3)
    prompts: int = 12000
    split: Fractions = field(default_factory=lambda: Fractions(0.5, 0.2, 0.3))
    costs: tuple[float, ...] = COSTS
    inspection: Inspection = field(default_factory=Inspection)
    seeds: tuple[int, ...] = (1, 2, 3, 4, 5)
    arms: tuple[str, ...] = ()
    sweep: Sweep = field(default_factory=Sweep)
    usd: Prices | None = None
    domain: str = ""
    control: bool = False

    @property
    def folders(self) -> tuple[str, ...]:
        """Where the data lie: one folder, or several to be put side by side."""
        return (self.data,) if isinstance(self.data, str) else self.data
