"""What an experiment is: data, who takes part, what is swept. `config.experiments` reads it from YAML."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pandora_router.boxes import Costs
from pandora_router.data import Fractions
from pandora_router.evaluate.money import Prices
from pandora_router.router.inspection import Inspection, purchase

USUAL = 0  # stands for the cheap estimate that the router is fitted with
COSTS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.03, 0.05)


def cheap_name(k: int) -> str:
    """What tables call the cheap estimate of k neighbours; 0 is the router's own."""
    return "the router's f" if k == USUAL else f"f of {k} neighbours"


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
    neighbours: tuple[int, ...] = (3,)
    prompts: int = 12000
    split: Fractions = field(default_factory=lambda: Fractions(0.5, 0.2, 0.3))
    costs: tuple[float, ...] = COSTS
    inspection: Inspection | None = None
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

    @property
    def ks(self) -> tuple[int, ...]:
        """The cheap estimates to run with: the router's own (0), then those of so many neighbours."""
        return (USUAL, *self.neighbours)

    def costs_at(self, price: float, specialists: tuple[str, ...], *, together: bool) -> Costs:
        """Inspection costs at one price of the sweep; see `router.inspection` for what the price buys."""
        if self.inspection is None:
            return purchase(price, len(specialists), together=together)
        return self.inspection.costs(price, specialists)
