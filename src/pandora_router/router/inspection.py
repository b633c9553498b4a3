"""What costly estimates cost: the one cost model of fitting, evaluation and experiments.

One plain number is the price of ONE purchase: of all specialists where the costly estimate shows them
together, of each specialist otherwise (`purchase`). Where prices differ, `Inspection` states them in
multiples of that number.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from pandora_router.boxes import Costs
from pandora_router.errors import UsageError


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


@dataclass(frozen=True)
class Inspection:
    """Prices in multiples of one number: `shared` once a prompt, `own` by specialist, `each` for the others.

    >>> Inspection(shared=2.0, own={"a": 0.0}).costs(0.01, ("a", "b")).marginal.tolist()
    [0.02, 0.03]
    """

    shared: float = 0.0
    own: Mapping[str, float] = field(default_factory=dict)
    each: float = 1.0

    def costs(self, price: float, specialists: Sequence[str]) -> Costs:
        """The costs of these specialists; raises `UsageError` if `own` names one that is not among them."""
        for name in self.own:
            if name not in specialists:
                near = difflib.get_close_matches(name, specialists, n=1)
                raise UsageError(
                    "inspection: own",
                    expected=f"specialists of the table: {', '.join(specialists)}",
                    came=repr(name),
                    do=f"Did you mean {near[0]!r}?" if near else "Check the spelling.",
                )
        own = price * np.array([self.own.get(name, self.each) for name in specialists])
        if self.shared == 0.0:
            return Costs(own)
        return Costs(own, shared=[price * self.shared], group=[0] * len(specialists))
