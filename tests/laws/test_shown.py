"""An estimator is shown the contexts of what was paid for, and of nothing else."""

from __future__ import annotations

import numpy as np

from pandora_router.boxes import Independent
from pandora_router.calibrate.signals import Prior
from pandora_router.router.deciding import Bought
from pandora_router.router.purchases import Paid
from pandora_router.search import Inspect, State

NAMES = ("small", "large", "lawyer")
GIVEN = {name: f"{name} begins" for name in NAMES}


def test_only_what_is_paid_for_is_shown() -> None:
    boxes = Independent([0.5, 0.4, 0.3], [0.2, 0.2, 0.2], 0.01)
    bought = Bought(NAMES, Prior(boxes, boxes.mean))
    first = Inspect((1,))
    assert bought.ask("why", GIVEN, first).contexts == {"large": "large begins"}
    bought.settle(State(boxes), first, first, Paid(np.array([0.9]), 0.0))
    asked = bought.ask("why", GIVEN, Inspect((2,)))
    assert asked.contexts == {"large": "large begins", "lawyer": "lawyer begins"}
    assert asked.opened == ("large",)


def test_an_estimate_that_is_not_a_number_was_paid_for_and_shows_nothing() -> None:
    boxes = Independent([0.5, 0.4, 0.3], [0.2, 0.2, 0.2], 0.01)
    bought = Bought(NAMES, Prior(boxes, boxes.mean))
    inspect = Inspect((0,))
    bought.settle(State(boxes), inspect, inspect, Paid(np.array([np.nan]), 0.0))
    assert bought.values == [(None,)]
    assert bought.purchases[0].cost == 0.01
    assert bought.opened == ()
    assert bought.ask("why", GIVEN, Inspect((1,))).contexts == {name: GIVEN[name] for name in NAMES[:2]}
