"""Inspection costs, computed from prices if the file states no number.

A look at the first `peek` characters of an answer costs what `prices.look_fare` expects, as in the gateway:
the prompt and the tokens read, or a whole answer where closing a stream may not stop its bill (`cancel`), for
answers of the lengths that `collect` measured, and the seconds of waiting for it (`value.second`). A judge
costs its own fee. The estimators of this package cost processor time and waiting. Searches count costs in
units of reward: money x `fee_weight` of the table.

Refunds (docs/method.md, section 10): a look that begins the answer of a specialist of the file is refunded as
that specialist's settings say (`refund`), in full unless the answer must be requested again. A judge and
estimates without a look refund nothing; neither does a look at a specialist that the file does not describe,
unless fit.inspection.refund says otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from pandora_router.boxes import Costs
from pandora_router.config.fit_section import (
    InspectionParts,
    JudgeSettings,
    StackSettings,
    TransformerSettings,
)
from pandora_router.config.price_parts import prices_of
from pandora_router.config.specialists import AskedSettings, ChatSettings
from pandora_router.data import Table
from pandora_router.errors import UsageError
from pandora_router.prices import (
    CHARACTERS_PER_TOKEN,
    Fare,
    Lengths,
    answer_seconds,
    beginning_seconds,
    expect_waits,
)
from pandora_router.router.inspection import Waiting
from pandora_router.text import did_you_mean
from pandora_router.types import Until, Vector

if TYPE_CHECKING:
    from pandora_router.config.file import Config

STACK_SECONDS = 0.002
"""Processor seconds of the boosted stack for one prompt. Measured: a median of 1.7 ms with 4 specialists
and of 2.0 with 11 (`python -m benchmarks.router FOLDER --peek 0` on gsm8k_6b_175b and routerbench_part)."""
TRANSFORMER_SECONDS = 6e-5
"""Processor seconds of the transformer per token and layer: an assumption, not a measurement."""
LAYERS = 6
"""Layers of the transformer (MiniLM)."""
JUDGE_TEMPLATE, VERDICT = 150, 10
"""Tokens that a judge reads besides the prompt, and tokens that it writes: assumptions, not measurements."""


@dataclass(frozen=True)
class InspectionPrice:
    """The cost of an inspection.

    cost: in units of reward, as an argument of `Router.fit`.
    money: the price of one purchase; the mean over specialists if they differ.
    why: where the price comes from, in words.
    peek: characters of a specialist's context that the costly estimate reads; 0 if none.
    looks: the expected cost of a look at each specialist, by name, where it follows from prices.

    `cost.refund` is what comes back if an inspected specialist is chosen; there is no refund if `cost` is a
    number.
    """

    cost: float | Costs
    money: float
    why: str
    peek: int
    looks: Mapping[str, Fare] = field(default_factory=dict)


def looking(config: Config, table: Table, second: float | None = None) -> InspectionPrice:
    """The inspection cost stated in `config`, or computed from its prices, for this table.

    `second` is the price of a second of waiting where it is not `value.second`.
    """
    second = config.value.second if second is None else second
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
        fares = _looks(config, table, peek)
        if fares is not None:
            own = weight * np.array([fare.price(second) for fare in fares.values()])
            wait = weight * second * np.array([fare.seconds for fare in fares.values()])
            costs = Costs(own, refund=own * _shares(config, table, peek), wait=wait)
            money = float(np.mean([fare.money for fare in fares.values()]))
            return InspectionPrice(costs, money, _told(_why(config, fares, peek), costs), peek, looks=fares)
        if config.fit.costly.peek is not None:
            raise UsageError(
                "fit.inspection",
                expected="the price of a look at what a specialist has begun to say, in money",
                came="no number, and no prices per token for every specialist of the table",
                do="Write fit: {inspection: 0.0001}, or give every specialist its prices.",
            )
        peek = 0
    money, why = _own_work(config, table, second)
    return InspectionPrice(weight * money, money, why, peek)


def waiting(config: Config, table: Table, inspection: InspectionPrice, second: float) -> Waiting:
    """The price `second` in units of reward, and the seconds of looks, whole answers and first tokens."""
    measured = {name: Lengths.of(means) for name, means in table.lengths.items()}
    looks = [inspection.looks[name].seconds if inspection.looks else 0.0 for name in table.specialists]
    answers = answer_seconds(table.specialists, measured)
    first = np.array(beginning_seconds(table.specialists, measured))
    back = _shares(config, table, inspection.peek)
    price = second * (table.fee_weight if table.fee_weight > 0 else 0.0)
    latency = None if config.goal is None else config.goal.latency
    until: Until = "last_byte" if latency is None else latency.until
    return Waiting(price, np.array(looks), np.array(answers), back, latency is not None, first, until)


def _stated(config: Config, table: Table, money: float, weight: float, peek: int) -> InspectionPrice:
    """One number for every inspection, with its refund."""
    why = "as fit.inspection says"
    shares = _shares(config, table, peek)
    if not shares.any():
        return InspectionPrice(weight * money, money, why, peek)
    costs = Costs(np.full(len(shares), weight * money), refund=weight * money * shares)
    return InspectionPrice(costs, money, _told(why, costs), peek)


def _shares(config: Config, table: Table, peek: int) -> Vector:
    """The fraction of a look at each specialist that is refunded if it is chosen (M,).

    0 where the costly estimate makes no look (`peek` 0), where it reads all specialists together, so that one
    price pays for all looks, and for specialists that the file does not describe.
    """
    costly = config.fit.costly
    if not peek or (isinstance(costly, StackSettings) and costly.agreement):
        return np.zeros(len(table.specialists))
    described = [config.specialists.get(name) for name in table.specialists]
    return np.array([0.0 if begun is None else begun.refund for begun in described])


def _told(why: str, costs: Costs) -> str:
    """Where a price comes from, and which part of it is refunded."""
    own, back = float(costs.own.sum()), float(costs.refund.sum())
    if back == 0.0:
        return why
    share = "all" if back >= own else f"{100 * back / own:.0f} %"
    return f"{why}; {share} of it comes back if the specialist is chosen, since its answer goes on"


def _own(stated: InspectionParts, specialists: tuple[str, ...]) -> list[float]:
    """The own cost of each specialist; `UsageError` for an unknown name or a missing price."""
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


def _looks(config: Config, table: Table, peek: int) -> dict[str, Fare] | None:
    """The cost of a look at each specialist of the table; None if one of them has no known price."""
    measured, fares = lengths(config, table), {}
    for name in table.specialists:
        settings, known = config.specialists.get(name), Lengths.of(measured.get(name, {}))
        if settings is None:
            return None
        fare = settings.look(known, known.input.given(_tokens(table)), peek)
        if fare is None:
            return None
        fares[name] = fare
    return fares


def _why(config: Config, fares: Mapping[str, Fare], peek: int) -> str:
    """What a look consists of; names the specialists that are paid for a whole answer."""
    why = f"reading the prompt and writing the first {peek} characters, at each specialist's prices"
    for cancel in ("unknown", "bills_full"):
        names = [
            name
            for name, fare in fares.items()
            if isinstance(settings := config.specialists[name], ChatSettings) and settings.cancel == cancel
        ]
        if names:
            why += f"; a whole answer of {', '.join(names)}, because `cancel` is {cancel}"
    return why


def lengths(config: Config, table: Table) -> dict[str, dict[str, float]]:
    """Lengths and speeds of each specialist's answers, by name, for `prices.Lengths.of`.

    As `collect` measured them. For a table from elsewhere, the output tokens follow from the mean fee of a
    specialist and its prices per token. How long looks are held follows from the seconds that looks take.
    """
    known = {name: dict(means) for name, means in table.lengths.items()}
    for name, fees in zip(table.specialists, table.fee.T, strict=True):
        settings = config.specialists.get(name)
        if "output" in known.get(name, {}) or not isinstance(settings, AskedSettings):
            continue
        prices, paid = prices_of(settings.prices), fees[np.isfinite(fees)]
        if prices.per_second or not prices.per_million_out or not len(paid):
            continue
        written = float(paid.mean()) - prices.price(_tokens(table), 0)
        output = written * 1e6 / prices.per_million_out
        if output >= 1.0:
            known.setdefault(name, {})["output"] = min(output, float(settings.most))
    peek, reading = config.fit.costly.characters(table), {}
    for name in table.specialists:
        settings = config.specialists.get(name)
        if isinstance(settings, AskedSettings) and peek:
            fare = settings.look(Lengths.of(known.get(name, {})), 0.0, peek)
            reading[name] = 0.0 if fare is None else fare.seconds
    for name, seconds in expect_waits(reading).items():
        known.setdefault(name, {})["waited"] = seconds
    return known


def _own_work(config: Config, table: Table, second: float) -> tuple[float, str]:
    """The price of one estimate without a look, and where it comes from."""
    costly = config.fit.costly
    if isinstance(costly, JudgeSettings):
        fee = config.specialists[costly.judge].usual(_tokens(table) + JUDGE_TEMPLATE, config, VERDICT)
        return fee, f"one verdict of {costly.judge}, at its prices"
    seconds = STACK_SECONDS
    if isinstance(costly, TransformerSettings):
        tokens = min(costly.tokens, 8 + _tokens(table))
        seconds = TRANSFORMER_SECONDS * tokens * LAYERS
    value = config.value
    why = f"{1000 * seconds:.0f} ms of processor time and waiting"
    return seconds * (value.cpu_second + second), why


def _tokens(table: Table) -> float:
    """Mean length of a prompt in tokens."""
    return float(np.mean([len(prompt) for prompt in table.prompts[:2000]])) / CHARACTERS_PER_TOKEN
