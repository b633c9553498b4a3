"""An experiment as one YAML file with a closed schema: an unknown key is an error that names the nearest one.

    title: Mathematics, small against large      # shown in reports
    data: zeroeval_math                          # folder or stored table, below --data or beside this file
    specialists: {gemma-2-2b-it: 0, o1-mini: .6} # who takes part, with a fee each; or a list; or left out
    fee_per_trillion: 3                          # instead: parameters x price
    fee_weight: 1                                # reward = score - fee_weight x fee; left out: the table's
    complete: 0.9                                # leave out specialists with a smaller share of scores
    peek: 400                                    # characters of its answer that g sees; 0: prompt only
    neighbours: [50, 3]                          # f is their mean reward; the first is the default
    prompts: 12000                               # at most so many
    split: [0.5, 0.2, 0.3]                       # train, calibration, test
    costs: [0.001, 0.01, 0.03]                   # inspection costs to sweep
    inspection: {shared: 0, own: {o1-mini: 3}}   # multiples of the cost: once a prompt, per specialist
    seeds: 5                                     # fresh splits
    arms: [knowledge gradient, mean-only]        # left out: all
    domain: MATH                                 # whose curves of the paper to draw beside
    control: true                                # a negative control: nothing to gain is expected

It refuses to know how anything is computed.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from pandora_router.boxes import Costs
from pandora_router.data import Fractions
from pandora_router.errors import UsageError

COSTS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.03, 0.05)


@dataclass(frozen=True)
class Inspection:
    """What one inspection costs in multiples of the swept cost: a shared part, and own parts by name."""

    shared: float = 0.0
    own: Mapping[str, float] = field(default_factory=dict)

    def costs(self, cost: float, specialists: tuple[str, ...]) -> Costs:
        """The costs of these specialists at one level of the sweep."""
        own = cost * np.array([self.own.get(name, 1.0) for name in specialists])
        if self.shared == 0.0:
            return Costs(own)
        return Costs(own, shared=[cost * self.shared], group=[0] * len(specialists))


@dataclass(frozen=True)
class Experiment:
    """One experiment, as its YAML file says."""

    name: str
    data: str
    title: str = ""
    specialists: Mapping[str, float] | None = None
    fee_per_trillion: float = 0.0
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
    domain: str = ""
    control: bool = False


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
    given = _mapping(name, content, allowed)
    if not isinstance(given.get("data"), str) or not given["data"]:
        raise UsageError(f"{name}: data", expected="a folder", came=repr(given.get("data")), do="Name it.")
    read = {key: _READERS[key](f"{name}: {key}", value) for key, value in given.items()}
    return Experiment(name=name, **read)


def _mapping(where: str, content: object, allowed: list[str]) -> dict[str, Any]:
    if not isinstance(content, dict):
        raise UsageError(
            where, expected="keys with values", came=type(content).__name__, do="See `data: ...`."
        )
    for key in content:
        if key not in allowed:
            near = difflib.get_close_matches(str(key), allowed, n=1)
            hint = f"Did you mean {near[0]!r}?" if near else "Leave it out."
            raise UsageError(
                f"{where}: key {key!r}",
                expected=f"one of {', '.join(allowed)}",
                came="an unknown key",
                do=hint,
            )
    return dict(content)


def _number(where: str, value: object, *, least: float = 0.0) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value < np.inf:
        raise UsageError(where, expected=f"a number, {least:g} or more", came=repr(value), do="Correct it.")
    return float(value)


def _whole(where: str, value: object, *, least: int = 0) -> int:
    number = _number(where, value, least=least)
    if number != int(number):
        raise UsageError(where, expected="a whole number", came=repr(value), do="Round it.")
    return int(number)


def _text(where: str, value: object) -> str:
    if not isinstance(value, str):
        raise UsageError(where, expected="a text", came=repr(value), do="Put it in quotes.")
    return value


def _truth(where: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise UsageError(where, expected="true or false", came=repr(value), do="Write one of them.")
    return value


def _list(where: str, value: object) -> list[Any]:
    if not isinstance(value, list) or not value:
        raise UsageError(where, expected="a list, not empty", came=repr(value), do="Write [first, second].")
    return value


def _specialists(where: str, value: object) -> Mapping[str, float]:
    if isinstance(value, list):
        return {_text(where, name): 0.0 for name in _list(where, value)}
    if not isinstance(value, dict) or not value:
        raise UsageError(where, expected="names, with a fee each", came=repr(value), do="Write {name: fee}.")
    return {_text(where, name): _number(f"{where}: {name}", fee) for name, fee in value.items()}


def _fractions(where: str, value: object) -> Fractions:
    shares = [_number(where, share) for share in _list(where, value)]
    if len(shares) != 3:
        raise UsageError(where, expected="three shares", came=f"{len(shares)}", do="Try [0.5, 0.2, 0.3].")
    return Fractions(*shares)


def _inspection(where: str, value: object) -> Inspection:
    given = _mapping(where, value, ["shared", "own"])
    own = given.get("own", {})
    parts = _specialists(f"{where}: own", own) if own else {}
    return Inspection(_number(f"{where}: shared", given.get("shared", 0.0)), parts)


def _seeds(where: str, value: object) -> tuple[int, ...]:
    if isinstance(value, list):
        return tuple(_whole(where, seed) for seed in _list(where, value))
    return tuple(range(1, _whole(where, value, least=1) + 1))


_READERS: Mapping[str, Any] = {
    "data": _text,
    "title": _text,
    "specialists": _specialists,
    "fee_per_trillion": _number,
    "fee_weight": _number,
    "complete": _number,
    "peek": _whole,
    "agreement": _truth,
    "neighbours": lambda where, value: tuple(_whole(where, k, least=1) for k in _list(where, value)),
    "prompts": lambda where, value: _whole(where, value, least=1),
    "split": _fractions,
    "costs": lambda where, value: tuple(_number(where, cost) for cost in _list(where, value)),
    "inspection": _inspection,
    "seeds": _seeds,
    "arms": lambda where, value: tuple(_text(where, name) for name in _list(where, value)),
    "domain": _text,
    "control": _truth,
}
