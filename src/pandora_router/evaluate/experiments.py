"""The settings of an experiment: data, specialists, sweeps. `config.experiments` reads them from YAML."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pandora_router.boxes import Costs
from pandora_router.data import Fractions
from pandora_router.prices import CHARACTERS_PER_TOKEN
from pandora_router.router.inspection import Inspection, purchase

USUAL = 0  # stands for the cheap estimate that the router is fitted with
COSTS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.03, 0.05)


def cheap_name(k: int) -> str:
    """Name of the cheap estimate of k neighbours in tables; 0 is the router's own."""
    return "the router's f" if k == USUAL else f"f of {k} neighbours"


@dataclass(frozen=True)
class UsdPrices:
    """Prices of estimates in USD, from token prices, as derived in the paper's appendix on money.

    `embed`, `read`, `write`: USD per million tokens embedded, read and written; `call`: USD per inspection;
    `written`: tokens that an inspection writes; `tokens`: tokens of a prompt; 0: measured, at four characters
    per token.

    A cheap estimate embeds the prompt; a costly one reads it (where that is priced), writes some tokens, and
    may pay a fixed price per call, such as a retrieval. With T tokens in a prompt:

        c_f = T embed / 1e6                  c_g = (T read + written write) / 1e6 + call

    and a prompt over M specialists with n inspections costs M c_f + n c_g; inspecting everything needs no
    cheap estimates and costs M c_g. That is how the points of the paper's figure come out (43 tokens, two
    specialists: 17 and 100 USD per million prompts). The paper does not share one embedding among
    specialists, so neither does this. What a mistake costs is not known here: USD stand beside regret and
    are not added to it.
    """

    embed: float = 0.20
    read: float = 0.25
    write: float = 2.50
    written: float = 1.0
    call: float = 0.0
    tokens: float = 0.0

    def cheap(self, characters: float) -> float:
        """c_f: one cheap estimate of a prompt of `characters` characters."""
        return self._tokens(characters) * self.embed / 1e6

    def costly(self, characters: float) -> float:
        """c_g: one inspection."""
        return (self._tokens(characters) * self.read + self.written * self.write) / 1e6 + self.call

    def prompt(self, characters: float, specialists: int, inspections: float, *, cheap: bool = True) -> float:
        """One prompt with so many inspections; `cheap`: whether the way of routing uses f."""
        looked = specialists * self.cheap(characters) if cheap else 0.0
        return looked + inspections * self.costly(characters)

    def _tokens(self, characters: float) -> float:
        return self.tokens or characters / CHARACTERS_PER_TOKEN


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
    usd: UsdPrices | None = None
    domain: str = ""
    control: bool = False
    paraphrases: str = ""

    @property
    def folders(self) -> tuple[str, ...]:
        """Folders of the data: one, or several to be joined side by side."""
        return (self.data,) if isinstance(self.data, str) else self.data

    @property
    def opened(self) -> bool:
        """Whether looks are bought one at a time, so that estimates may read everything opened so far."""
        shared = self.inspection is not None and self.inspection.shared > 0.0
        return self.peek > 0 and not self.agreement and not shared

    @property
    def ks(self) -> tuple[int, ...]:
        """The cheap estimates to run with: the router's own (0), then those by number of neighbours."""
        return (USUAL, *self.neighbours)

    def costs_at(self, price: float, specialists: tuple[str, ...], *, together: bool) -> Costs:
        """Inspection costs at one price of the sweep; see `router.inspection` for what the price buys."""
        if self.inspection is None:
            return purchase(price, len(specialists), together=together)
        return self.inspection.costs(price, specialists)
