"""Rules for the fee of an answer, each a small frozen object, that price the cells of a routing table.

A rule returns an (N, M) matrix with NaN where it has no fee. `price` applies a rule and raises `UsageError`
if a scored cell has no fee, so that no answer is free by omission. Rules do not depend on file formats: they
see `Facts`, the numbers that an importer found beside the scores.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from pandora_router.errors import UsageError
from pandora_router.types import Mask, Matrix, Vector


@dataclass(frozen=True, eq=False)
class Facts:
    """What is known about N prompts and M specialists when fees are computed."""

    specialists: tuple[str, ...]
    prompt_characters: Vector
    """Length of each prompt; (N,)."""
    scored: Mask
    """Cells with a score, which must get a fee; (N, M)."""
    per_specialist: Mapping[str, Vector] = field(default_factory=dict)
    """Columns about specialists, such as parameters in billions; each (M,)."""
    per_cell: Mapping[str, Matrix] = field(default_factory=dict)
    """Columns about answers, such as their length or cost; each (N, M)."""
    unreadable: Mapping[str, UsageError] = field(default_factory=dict)
    """Columns with values that are not numbers, and an error that says where."""

    def column(self, name: str) -> Matrix:
        """The named column as an (N, M) matrix; `UsageError` if there is none."""
        if name in self.per_cell:
            return self.per_cell[name]
        if name in self.per_specialist:
            return np.broadcast_to(self.per_specialist[name], self.scored.shape)
        if name in self.unreadable:
            raise self.unreadable[name]
        columns = sorted({*self.per_cell, *self.per_specialist})
        raise UsageError(
            "a column to price answers from",
            expected=f"one of {', '.join(columns)}"
            if columns
            else "a column of numbers (there is none beside the score)",
            came=repr(name),
            do="Name a column of numbers in the scores or models file.",
        )

    def by_name(self, values: Mapping[str, float]) -> Matrix:
        """One number per specialist as an (N, M) matrix, NaN for those not named."""
        unknown = sorted(set(values) - set(self.specialists))
        if unknown:
            raise UsageError(
                "a specialist with a fee",
                expected=f"one of {', '.join(self.specialists[:8])}" + " ..." * (len(self.specialists) > 8),
                came=repr(unknown[0]),
                do="Check the spelling: names are compared exactly.",
            )
        row = np.array([values.get(name, np.nan) for name in self.specialists], dtype=np.float64)
        return np.broadcast_to(row, self.scored.shape)


class Fees(Protocol):
    """A rule that prices answers."""

    def of(self, facts: Facts) -> Matrix:
        """The fee of every cell, NaN where this rule has none; (N, M)."""
        ...


@dataclass(frozen=True)
class PerSpecialist:
    """One fee per specialist, the same for every prompt."""

    fee: Mapping[str, float]

    def of(self, facts: Facts) -> Matrix:
        """fee[specialist]."""
        return facts.by_name(self.fee)


@dataclass(frozen=True)
class PerParameter:
    """Price by model size: fee = billions / 1000 * price_per_trillion (* samples).

    Billions of parameters are taken from `stated`, else from the column. `samples` names a column with the
    number of answers drawn per prompt.
    """

    price_per_trillion: float
    column: str = "params_b"
    stated: Mapping[str, float] = field(default_factory=dict)
    samples: str | None = None

    def of(self, facts: Facts) -> Matrix:
        """NaN for specialists whose size is neither stated nor in the column."""
        stated = facts.by_name(self.stated)
        if np.isnan(stated).any():
            stated = np.where(np.isnan(stated), facts.column(self.column), stated)
        fee = stated / 1000.0 * self.price_per_trillion
        return fee if self.samples is None else fee * facts.column(self.samples)


@dataclass(frozen=True)
class PerToken:
    """Price by tokens, with prices per million tokens in and out.

    A price is a column name, one number for all, or a number per specialist. A count is a column name or a
    number. Without `tokens_in` the prompt's characters are used; in place of `tokens_out` a column of
    characters can be named. `characters_per_token` converts characters to tokens.
    """

    price_in: str | float | Mapping[str, float] = "usd_per_mtok_in"
    price_out: str | float | Mapping[str, float] = "usd_per_mtok_out"
    tokens_in: str | float | None = None
    tokens_out: str | float | None = None
    characters_out: str | None = None
    characters_per_token: float = 4.0

    def __post_init__(self) -> None:
        if (self.tokens_out is None) == (self.characters_out is None):
            raise UsageError(
                "the length of an answer",
                expected="either tokens_out or characters_out",
                came="neither" if self.tokens_out is None else "both",
                do="Name the column that holds it, or give a number of tokens (0 if answers are one letter).",
            )

    def of(self, facts: Facts) -> Matrix:
        """(tokens_in * price_in + tokens_out * price_out) / 1e6."""
        inwards = (
            np.broadcast_to(facts.prompt_characters[:, None] / self.characters_per_token, facts.scored.shape)
            if self.tokens_in is None
            else _numbers(facts, self.tokens_in)
        )
        outwards = (
            facts.column(self.characters_out) / self.characters_per_token
            if self.characters_out is not None
            else _numbers(facts, self.tokens_out if self.tokens_out is not None else 0.0)
        )
        spent = inwards * _numbers(facts, self.price_in) + outwards * _numbers(facts, self.price_out)
        return spent / 1e6


@dataclass(frozen=True)
class FromColumn:
    """The cost recorded in the data, per call or per specialist."""

    column: str

    def of(self, facts: Facts) -> Matrix:
        """The column itself."""
        return facts.column(self.column)


@dataclass(frozen=True)
class Free:
    """Answers cost nothing; must be stated explicitly."""

    def of(self, facts: Facts) -> Matrix:
        """Zero everywhere."""
        return np.zeros(facts.scored.shape)


@dataclass(frozen=True)
class FirstOf:
    """For each specialist the first rule that prices all its answers; all rules must use the same unit."""

    rules: tuple[Fees, ...]

    def of(self, facts: Facts) -> Matrix:
        """The fees; NaN for specialists that no rule prices."""
        fee = np.full(facts.scored.shape, np.nan)
        for rule in self.rules:
            offered = rule.of(facts)
            takes = _unpriced(fee, facts).any(axis=0) & ~_unpriced(offered, facts).any(axis=0)
            fee = np.where(takes, offered, fee)
        return fee


def price(rule: Fees, facts: Facts) -> Matrix:
    """The fee of every cell; `UsageError` names the specialists with scored cells that have none."""
    fee = np.array(rule.of(facts), dtype=np.float64)
    unpriced = _unpriced(fee, facts)
    if unpriced.any():
        names = [
            f"{name} ({count} answers)"
            for name, count in zip(facts.specialists, unpriced.sum(axis=0).tolist(), strict=True)
            if count
        ]
        raise UsageError(
            "fees",
            expected="a fee for every answer with a score",
            came=f"none for {len(names)} of {len(facts.specialists)} specialists: {', '.join(names[:5])}"
            + (" ..." if len(names) > 5 else ""),
            do="Add a rule that prices them; if their answers really cost nothing, say so with a fee of 0.",
        )
    return fee


def _unpriced(fee: Matrix, facts: Facts) -> Mask:
    return facts.scored & ~np.isfinite(fee)


def _numbers(facts: Facts, source: str | float | Mapping[str, float]) -> Matrix:
    if isinstance(source, str):
        return facts.column(source)
    if isinstance(source, Mapping):
        return facts.by_name(source)
    return np.full(facts.scored.shape, float(source))
