"""What an inspection costs in money, computed from prices where the file gives no number.

A look at the first `peek` characters of an answer costs what the specialist charges for reading the prompt
and writing so many tokens. A judge costs its own fee. The estimators of this package cost processor time and
make the user wait. Inspections are paid in units of reward, as searches count: money x `fee_weight` of the
table.

What comes back of it (docs/method.md, section 10): a look that begins the answer of a specialist of the file
is refunded as that specialist's settings say (`refund`), all of it unless it has to be asked again. A judge,
and an estimate that looks at nobody, refund nothing; so does a look at a specialist that the file does not
describe, unless fit.inspection.refund says otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pandora_router.boxes import Costs
from pandora_router.config.fitting import (
    BlendSettings,
    InspectionParts,
    JudgeSettings,
    StackSettings,
    TransformerSettings,
)
from pandora_router.config.mistakes import did_you_mean
from pandora_router.data import Table
from pandora_router.errors import UsageError
from pandora_router.types import Vector

if TYPE_CHECKING:
    from pandora_router.config.file import Config

CHARACTERS_PER_TOKEN = 4.0
"""An assumption: the usual rule of thumb for English text."""
STACK_SECONDS = 0.002
"""Processor seconds of the boosted stack for one prompt. Measured: a median of 1.7 ms with 4 specialists
and of 2.0 with 11 (`python -m benchmarks.router FOLDER --peek 0` on gsm8k_6b_175b and routerbench_part)."""
TRANSFORMER_SECONDS = 6e-5
"""Processor seconds of the transformer per token and layer: an assumption, not a measurement."""
LAYERS = 6
"""Layers of the transformer (MiniLM)."""
JUDGE_TEMPLATE, VERDICT = 150, 10
"""Tokens that a judge reads beside the prompt, and that it writes: assumptions, not measurements."""


@dataclass(frozen=True)
class InspectionPrice:
    """What one inspection costs.

    cost: in units of reward, as `Router.fit` takes it.
    money: the price of one purchase, the mean over specialists where they differ.
    why: where the price comes from, in words.
    peek: characters of a specialist's context that the costly estimate reads; 0 if it reads none.

    What comes back of it if a specialist that was looked at is chosen is `cost.refund`, where `cost` is a
    `Costs`; nothing where it is a number.
    """

    cost: float | Costs
    money: float
    why: str
    peek: int


def looking(config: Config, table: Table) -> InspectionPrice:
    """The inspection cost that `config` states, or that follows from its prices, on this table."""
    weight = table.fee_weight if table.fee_weight > 0 else 1.0
    stated, peek = config.fit.inspection, config.fit.costly.characters(table)
    if isinstance(stated, InspectionParts):
        own = weight * np.array(_own(stated, table.specialists))
        money = float(own.mean()) / weight + stated.shared
        shared, group = ([weight * stated.shared], [0] * len(own)) if stated.shared else ([], [])
        share = _shares(config, table, peek) if stated.refund is None else stated.refund
        costs = Costs(own, shared, group, own * share)
        return InspectionPrice(costs, money, _told("as fit.inspection says", costs), peek)
    if stated is not None:
        return _stated(config, table, stated, weight, peek)
    if peek:
        fees = _looks(config, table, peek)
        if fees is not None:
            why = f"reading the prompt and writing the first {peek} characters, at each specialist's prices"
            own = weight * np.array(fees)
            costs = Costs(own, refund=own * _shares(config, table, peek))
            return InspectionPrice(costs, float(np.mean(fees)), _told(why, costs), peek)
        if config.fit.costly.peek is not None:
            raise UsageError(
                "fit.inspection",
                expected="the price of a look at what a specialist has begun to say, in money",
                came="no number, and no prices per token for every specialist of the table",
                do="Write fit: {inspection: 0.0001}, or give every specialist its prices.",
            )
        peek = 0
    money, why = _own_work(config, table)
    return InspectionPrice(weight * money, money, why, peek)


def _stated(config: Config, table: Table, money: float, weight: float, peek: int) -> InspectionPrice:
    """One number for every inspection, with what comes back of it."""
    why = "as fit.inspection says"
    shares = _shares(config, table, peek)
    if not shares.any():
        return InspectionPrice(weight * money, money, why, peek)
    costs = Costs(np.full(len(shares), weight * money), refund=weight * money * shares)
    return InspectionPrice(costs, money, _told(why, costs), peek)


def _shares(config: Config, table: Table, peek: int) -> Vector:
    """The share of a look at each specialist that comes back if it is chosen (M,).

    0 where the costly estimate looks at nobody (`peek` 0), where it reads all specialists together, so that
    one price pays for all looks, and for specialists that the file does not describe.
    """
    costly = config.fit.costly
    if not peek or (isinstance(costly, StackSettings) and costly.agreement):
        return np.zeros(len(table.specialists))
    described = [config.specialists.get(name) for name in table.specialists]
    return np.array([0.0 if begun is None else begun.refund for begun in described])


def _told(why: str, costs: Costs) -> str:
    """Where a price comes from, with what of it comes back."""
    own, back = float(costs.own.sum()), float(costs.refund.sum())
    if back == 0.0:
        return why
    share = "all" if back >= own else f"{100 * back / own:.0f} %"
    return f"{why}; {share} of it comes back if the specialist is chosen, since its answer goes on"


def _own(stated: InspectionParts, specialists: tuple[str, ...]) -> list[float]:
    """The own part of each specialist; a misspelt name, or a missing price, is an error."""
    for name in stated.own:
        if name not in specialists:
            raise UsageError(
                "fit.inspection.own",
                expected=f"names among {', '.join(specialists)}",
                came=repr(name),
                do=did_you_mean(name, specialists, "Remove it."),
            )
    missing = [name for name in specialists if name not in stated.own]
    if missing and stated.each is None and (stated.own or not stated.shared):
        raise UsageError(
            "fit.inspection",
            expected=f"a price for each of {', '.join(specialists)}",
            came=f"none for {missing[0]!r}",
            do="Name it under own, or give `each`: the price for all who are not named.",
        )
    return [stated.own.get(name, stated.each or 0.0) for name in specialists]


def _looks(config: Config, table: Table, peek: int) -> list[float] | None:
    """The fee of a look at each specialist of the table; None if one of them cannot be priced."""
    prompt, seen = _tokens(table), peek / CHARACTERS_PER_TOKEN
    fees: list[float] = []
    for name in table.specialists:
        settings = config.specialists.get(name)
        fee = settings.look(prompt, seen) if settings is not None else None
        if fee is None:
            return None
        fees.append(fee)
    return fees


def _own_work(config: Config, table: Table) -> tuple[float, str]:
    """The price of one estimate that looks at no specialist, and where it comes from."""
    costly = config.fit.costly
    if isinstance(costly, JudgeSettings):
        judge, read = config.specialists[costly.judge], _tokens(table) + JUDGE_TEMPLATE
        fee = judge.look(read, VERDICT)
        if fee is None:
            fee = judge.usual(read, config)
        return fee, f"one verdict of {costly.judge}, at its prices"
    seconds = STACK_SECONDS
    if isinstance(costly, TransformerSettings | BlendSettings):
        tokens = min(costly.tokens, 8 + _tokens(table))
        seconds = TRANSFORMER_SECONDS * tokens * LAYERS
    if isinstance(costly, BlendSettings):  # the layers that do not learn run once, the others once a fold
        seconds *= 1.0 + (costly.folds - 1) * costly.layers / LAYERS
        seconds += STACK_SECONDS
    value = config.value
    why = f"{1000 * seconds:.0f} ms of processor time and waiting"
    return seconds * (value.cpu_second + value.second), why


def _tokens(table: Table) -> float:
    """The mean length of a prompt in tokens."""
    return float(np.mean([len(prompt) for prompt in table.prompts[:2000]])) / CHARACTERS_PER_TOKEN
