"""Generated markets: normal boxes whose cheap estimates say little (weak f) or much (strong f).

mu ~ N(center, spread^2) and G = mu + std Z, independent over prompts and specialists. The raw estimate is
f = G + noise with mu = E[G | f], that is f = center + (mu - center)(1 + std^2/spread^2): weak estimates are
over-dispersed, as kNN with few neighbours is. Rewards are the values themselves.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from pandora_router.boxes import Costs
from pandora_router.boxes.costs import as_costs
from pandora_router.errors import UsageError
from pandora_router.search import Batch
from pandora_router.types import Matrix


@dataclass(frozen=True)
class Signal:
    """How far the means lie apart (`spread`) and how far the value strays from its mean (`std`)."""

    spread: float
    std: float
    center: float = 0.5

    def __post_init__(self) -> None:
        if not (0.0 < self.spread < np.inf and 0.0 <= self.std < np.inf and np.isfinite(self.center)):
            raise UsageError(
                "signal",
                expected="a positive spread and a standard deviation from 0 upward",
                came=f"spread {self.spread}, std {self.std}, center {self.center}",
                do="Weak f has a small spread beside a large std.",
            )


WEAK = Signal(spread=0.1, std=0.25)
STRONG = Signal(spread=0.25, std=0.1)


@dataclass(frozen=True, eq=False)
class Instance:
    """Raw estimates f, means, standard deviations and values of N prompts and M specialists, all (N, M).

    Welfare is counted in `rewards`: realised ones where there is a table, else the values themselves.
    """

    scores: Matrix
    mean: Matrix
    std: Matrix
    values: Matrix
    realised: Matrix | None = None

    @property
    def rewards(self) -> Matrix:
        """What each specialist's answer is worth (N, M)."""
        return self.values if self.realised is None else self.realised

    def batch(self, inspection_cost: ArrayLike | Costs) -> Batch:
        """The same prompts as independent boxes; costs are a number, one per specialist, or `Costs`."""
        return Batch(self.mean, self.std, as_costs(inspection_cost, self.mean.shape[1]))


def generate(signal: Signal, prompts: int, specialists: int, rng: np.random.Generator) -> Instance:
    """Draw an instance."""
    if prompts < 1 or specialists < 2:
        raise UsageError(
            "instance",
            expected="1 prompt or more and 2 specialists or more",
            came=f"{prompts} and {specialists}",
            do="Ask for more.",
        )
    shift = signal.spread * rng.standard_normal((prompts, specialists))
    mean = signal.center + shift
    std = np.full(mean.shape, signal.std)
    values = mean + std * rng.standard_normal(mean.shape)
    scores = signal.center + shift * (1.0 + (signal.std / signal.spread) ** 2)
    return Instance(scores, mean, std, values)
