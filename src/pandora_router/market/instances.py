"""Generated markets: normal boxes whose cheap estimates say little (weak f) or much (strong f).

mu ~ N(center, spread^2) and G = mu + std Z, independent over prompts and specialists. The raw estimate is
f = G + noise with mu = E[G | f], that is f = center + (mu - center)(1 + std^2/spread^2): weak estimates are
over-dispersed, as kNN with few neighbours is. Rewards are the values themselves.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from pandora_router.boxes import Boxes, Costs, Independent, Joint
from pandora_router.boxes.costs import as_costs
from pandora_router.errors import UsageError
from pandora_router.search import Batch
from pandora_router.types import Matrix, Positions


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

    Welfare is counted in `rewards`: realised ones where there is a table, else the values themselves. Values
    are normal around their means, unless `quantiles` (L, Q) has laws of standardised residuals; `rank` (N, M)
    then says which of them each value follows.
    """

    scores: Matrix
    mean: Matrix
    std: Matrix
    values: Matrix
    realised: Matrix | None = None
    quantiles: Matrix | None = None
    rank: Positions | None = None

    @property
    def rewards(self) -> Matrix:
        """What each specialist's answer is worth (N, M)."""
        return self.values if self.realised is None else self.realised

    def batch(self, inspection_cost: ArrayLike | Costs) -> Batch:
        """The same prompts as independent boxes; costs are a number, one per specialist, or `Costs`."""
        costs = as_costs(inspection_cost, self.mean.shape[1])
        if self.quantiles is None:
            return Batch(self.mean, self.std, costs)
        alone = np.eye(self.mean.shape[1])
        return Batch(self.mean, self.std, costs, correlation=alone, quantiles=self.quantiles, rank=self.rank)

    def boxes(self, prompt: int, inspection_cost: ArrayLike | Costs) -> Boxes:
        """The boxes of one prompt, independent of each other (M,)."""
        mean, std = self.mean[prompt], self.std[prompt]
        if self.quantiles is None or self.rank is None:
            return Independent(mean, std, inspection_cost)
        return Joint(mean, np.diag(std * std), inspection_cost, self.quantiles[self.rank[prompt]])

    def prompts(self, chosen: Positions) -> Instance:
        """The same market with these prompts alone, in this order."""
        return self._part(chosen, slice(None))

    def specialist(self, number: int) -> Instance:
        """The same prompts with one specialist alone."""
        return self._part(slice(None), slice(number, number + 1))

    def _part(self, rows: Positions | slice, columns: slice) -> Instance:
        return replace(
            self,
            scores=self.scores[rows, columns],
            mean=self.mean[rows, columns],
            std=self.std[rows, columns],
            values=self.values[rows, columns],
            realised=None if self.realised is None else self.realised[rows, columns],
            rank=None if self.rank is None else self.rank[rows, columns],
        )


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
