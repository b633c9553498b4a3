"""An experiment as one YAML file with a closed schema: an unknown key is an error that names the nearest one.

    title: Mathematics, small against large      # shown in reports
    data: zeroeval_math                          # folder or stored table, below --data or beside this file;
                                                 # a list: their specialists side by side on common prompts
    tasks: [math, mmlu_pro/]                     # only these; a name ending in / means all that begin so
    specialists: {gemma-2-2b-it: 0, o1-mini: .6} # who takes part, with a fee each; or a list; or left out
    fee_per_trillion: 3                          # instead: parameters x price
    parameters: {gemini-1.5-pro-002: 180}        # billions, where the data has none
    fee_column: cost_usd                         # instead: a column of the data
    fee_weight: 1                                # reward = score - fee_weight x fee; left out: the table's
    complete: 0.9                                # leave out specialists with a smaller share of scores
    peek: 400                                    # characters of its answer that g sees; 0: prompt only
    neighbours: [50, 3]                          # f is their mean reward; the first is the default
    prompts: 12000                               # at most so many
    split: [0.5, 0.2, 0.3]                       # train, calibration, test
    costs: [0.001, 0.01, 0.03]                   # inspection costs to sweep
    inspection: {shared: 0, own: {o1-mini: 3}}   # multiples of the cost: once a prompt; per specialist, where
                                                 # those not named pay `each`, usually 1
    seeds: 5                                     # fresh splits
    arms: [router, never inspect]                # left out: all
    sweep: {calibration: [50, 200], samples: [10, 1000], signal_neighbours: [4, 64], signals: true}
    usd: {embed: .2, read: .25, write: 2.5, written: 20, call: 0}  # prices, see `money`
    domain: MATH                                 # whose curves of the paper to draw beside
    control: true                                # a negative control: nothing to gain is expected

It refuses to know how anything is computed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from pandora_router.boxes import Costs
from pandora_router.data import Fractions
from pandora_router.errors import UsageError
from pandora_router.evaluate.money import Prices
from pandora_router.evaluate.readers import amounts, mapping, number, numbers, several, text, truth, whole

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


def load(path: Path | str) -> Experiment:
    """Read one YAML file; its name without the ending is the experiment's."""
    path = Path(path)
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UsageError(str(path), expected="YAML", came=f"{error}", do="Mend the file.") from error
    return parse(path.stem, content)


def parse(name: str, content: object) -> Experiment:
    """An experiment from what a YAML file holds; every key is checked."""
    allowed = [one.name for one in fields(Experiment) if one.name != "name"]
    given = mapping(name, content, allowed)
    if not given.get("data"):
        raise UsageError(f"{name}: data", expected="a folder", came=repr(given.get("data")), do="Name it.")
    read = {key: _READERS[key](f"{name}: {key}", value) for key, value in given.items()}
    return Experiment(name=name, **read)


def _fractions(where: str, value: object) -> Fractions:
    shares = [number(where, share) for share in several(where, value)]
    if len(shares) != 3:
        raise UsageError(where, expected="three shares", came=f"{len(shares)}", do="Try [0.5, 0.2, 0.3].")
    return Fractions(*shares)


def _inspection(where: str, value: object) -> Inspection:
    given = mapping(where, value, ["shared", "own", "each"])
    own = given.get("own", {})
    parts = amounts(f"{where}: own", own) if own else {}
    shared, each = (
        number(f"{where}: {key}", given.get(key, usual)) for key, usual in (("shared", 0.0), ("each", 1.0))
    )
    return Inspection(shared, parts, each)


def _seeds(where: str, value: object) -> tuple[int, ...]:
    if isinstance(value, list):
        return tuple(whole(where, seed) for seed in several(where, value))
    return tuple(range(1, whole(where, value, least=1) + 1))


def _data(where: str, value: object) -> str | tuple[str, ...]:
    return (
        tuple(text(where, one) for one in several(where, value))
        if isinstance(value, list)
        else text(where, value)
    )


def _sweep(where: str, value: object) -> Sweep:
    given = mapping(where, value, [one.name for one in fields(Sweep)])
    signals = truth(f"{where}: signals", given.pop("signals", False))
    return Sweep(
        **{key: numbers(f"{where}: {key}", listed, least=2) for key, listed in given.items()}, signals=signals
    )


def _prices(where: str, value: object) -> Prices:
    given = mapping(where, value, [one.name for one in fields(Prices)])
    return Prices(**{key: number(f"{where}: {key}", price) for key, price in given.items()})


def _texts(where: str, value: object) -> tuple[str, ...]:
    return tuple(text(where, one) for one in several(where, value))


_READERS: Mapping[str, Any] = {
    "data": _data,
    "tasks": _texts,
    "title": text,
    "specialists": amounts,
    "fee_per_trillion": number,
    "parameters": amounts,
    "fee_column": text,
    "fee_weight": number,
    "complete": number,
    "peek": whole,
    "agreement": truth,
    "neighbours": numbers,
    "prompts": lambda where, value: whole(where, value, least=1),
    "split": _fractions,
    "costs": lambda where, value: tuple(number(where, cost) for cost in several(where, value)),
    "inspection": _inspection,
    "seeds": _seeds,
    "arms": _texts,
    "sweep": _sweep,
    "usd": _prices,
    "domain": text,
    "control": truth,
}
