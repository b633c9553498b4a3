"""Inspection costs: the cost model of fitting, evaluation and experiments.

One plain number is the price of ONE purchase: of all specialists if the costly estimate shows them together,
otherwise of each specialist (`purchase`). If prices differ, `Inspection` states them as multiples of that
number. A look that begins an answer is a down-payment: `refund` is the fraction of a specialist's own cost
that comes back if it is inspected and chosen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from pandora_router.boxes import Costs
from pandora_router.errors import UsageError
from pandora_router.text import did_you_mean
from pandora_router.types import Until, Vector


def purchase(price: float, boxes: int, *, together: bool) -> Costs:
    """The costs of `boxes` specialists where one purchase costs `price` (0 or more).

    >>> purchase(0.01, 2, together=True).marginal.tolist()
    [0.01, 0.01]
    >>> purchase(0.01, 2, together=True).paid(0).marginal.tolist()
    [0.0, 0.0]
    """
    if together and price > 0.0:
        return Costs(np.zeros(boxes), [price], [0] * boxes)
    return Costs(np.full(boxes, price))


def request_costs(
    specialists: Sequence[str],
    fee_weight: float,
    own: Mapping[str, float],
    refund: Mapping[str, float] | None = None,
    wait: Mapping[str, float] | None = None,
) -> Costs:
    """Costs of the looks in one request, in units of reward, from prices in money.

    specialists: those of the router, in its order.
    fee_weight: reward per unit of money (`Router.fee_weight`).
    own: price of a look at each specialist; those left out cost nothing, and can be inspected only if they
        are among the `names` of `Looks`.
    refund: the part of it that comes back if the specialist is chosen; 0 where left out.
    wait: the part of it that is waiting, of which looks made together cost the longest; 0 where left out.

    >>> costs = request_costs(("a", "b"), 10.0, {"a": 0.001, "b": 0.002}, {"a": 0.001})
    >>> costs.marginal.round(6).tolist(), costs.refund.round(6).tolist()
    ([0.01, 0.02], [0.01, 0.0])
    """
    stated = (own, refund or {}, wait or {})
    money, back, waiting = (
        fee_weight * np.array([part.get(name, 0.0) for name in specialists]) for part in stated
    )
    return Costs(money, refund=back, wait=waiting)


@dataclass(frozen=True, eq=False)
class Waiting:
    """The price of a second of waiting, in units of reward, and how long specialists take.

    look: expected seconds until a look has read enough (M,); their price is the `wait` of inspection costs.
    answer: expected seconds of a whole answer (M,). back: the share of the wait for a look that comes back if
    its specialist is chosen (M,). timed: whether a fit also measures how long requests take at other prices
    of a second (`router.latency`). first: expected seconds to the first token (M,). until: whether the price
    of the seconds to the last byte or to the first token counts against the worth of an answer.
    """

    second: float
    look: Vector
    answer: Vector
    back: Vector
    timed: bool = False
    first: Vector | None = None
    until: Until = "last_byte"

    @classmethod
    def none(cls, boxes: int) -> Waiting:
        """Seconds cost nothing, and nobody measured them."""
        return cls(0.0, np.zeros(boxes), np.zeros(boxes), np.zeros(boxes))

    @property
    def lost(self) -> Vector:
        """What the seconds of an answer take from the worth of each specialist (M,)."""
        return self.second * self.expected(self.until)

    def expected(self, until: Until) -> Vector:
        """The expected seconds of an answer to its last byte or its first token (M,)."""
        return self.answer if until == "last_byte" or self.first is None else self.first

    def repriced(self, costs: Costs, second: float) -> Costs:
        """Inspection costs at another price of a second than this one, with the waits that follow from it.

        >>> waiting = Waiting(0.0, np.array([2.0]), np.array([5.0]), np.array([1.0]))
        >>> dearer = waiting.repriced(Costs([0.1], refund=0.1), 0.01)
        >>> dearer.own.tolist(), dearer.refund.tolist(), dearer.wait.tolist()
        ([0.12000000000000001], [0.12000000000000001], [0.02])
        """
        before = costs.wait if len(costs.wait) else np.zeros(len(costs))
        wait = second * self.look
        own, refund = costs.own - before + wait, costs.refund + self.back * (wait - before)
        return Costs(own, costs.shared, costs.group, np.clip(refund, 0.0, own), wait)


@dataclass(frozen=True)
class Inspection:
    """Prices as multiples of a number: `shared` once a prompt, `own` by specialist, `each` for the others.

    `refund` (0 to 1) is the fraction of the own cost that comes back if the specialist is inspected and
    chosen.

    >>> Inspection(shared=2.0, own={"a": 0.0}).costs(0.01, ("a", "b")).marginal.tolist()
    [0.02, 0.03]
    >>> Inspection(refund=0.5).costs(0.01, ("a", "b")).refund.tolist()
    [0.005, 0.005]
    """

    shared: float = 0.0
    own: Mapping[str, float] = field(default_factory=dict)
    each: float = 1.0
    refund: float = 0.0

    def __post_init__(self) -> None:
        if not 0.0 <= self.refund <= 1.0:
            raise UsageError(
                "refund",
                expected="the share of the own cost that comes back, from 0 to 1",
                came=f"{self.refund}",
                do="Say 1 where a look begins the answer and 0 where nothing of it is used again.",
            )

    def costs(self, price: float, specialists: Sequence[str]) -> Costs:
        """The costs of these specialists; raises `UsageError` if `own` names one that is not among them."""
        for name in self.own:
            if name not in specialists:
                raise UsageError(
                    "inspection: own",
                    expected=f"specialists of the table: {', '.join(specialists)}",
                    came=repr(name),
                    do=did_you_mean(name, specialists, "Check the spelling."),
                )
        own = price * np.array([self.own.get(name, self.each) for name in specialists])
        shared, group = ([price * self.shared], [0] * len(specialists)) if self.shared else ([], [])
        return Costs(own, shared, group, self.refund * own)
