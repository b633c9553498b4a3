"""Fitting on the recorded answers, and what every way of routing earns on the questions held out.

    reward = right (1 or 0) - WEIGHT x processor seconds of the answer
    net    = reward - WEIGHT x processor seconds of the looks

A look is charged at the mean seconds that looks at this specialist took in training. f is the mean reward of
near training questions (k by leave-one-out error), g is `Beginnings`. It refuses to know how anything is
shown.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pandora_router.types import Advance, Vector

from ..boxes.costs import as_costs
from ..calibrate.readings import Readings
from ..calibrate.ways import Routed, Standing
from ..data.table import Table
from ..estimators.beginnings import Beginnings
from ..estimators.neighbours import Neighbours
from ..evaluate.arms import DEFAULT, named
from ..evaluate.trials import Trial
from ..router import NeighbourRecipe, Router
from ..search import KnowledgeGradient
from .recording import Recorded

WEIGHT = 0.1
"""Reward per processor second: ten seconds of computing are worth one right answer."""
WAYS = (
    "best single",
    "cheapest",
    "f-only",
    "never inspect",
    "always inspect, raw g",
    "committing (paper)",
    DEFAULT,
    "auto",
    "oracle",
)
KS = (3, 10, 20, 50)


@dataclass(frozen=True)
class Looking:
    """The recipe of g: `Beginnings` over the contexts of the table."""

    seed: int = 0

    def fit(self, train: Table, say: Advance, work: Path | None = None) -> Beginnings:
        """Fit on the training questions; too quick for anything to be kept in `work`."""
        say("reading what specialists let be seen", 0.0)
        assert train.contexts is not None
        return Beginnings.fit(train.prompts, train.reward, train.specialists, train.contexts, seed=self.seed)


@dataclass(frozen=True)
class Way:
    """One way to route on the held-out questions: means per question, and net reward against the router's.

    `behind` is how much less it earns than the router under test, `error` the standard error of that paired
    difference, `net_error` that of `net`.
    """

    name: str
    right: float
    seconds: float
    looks: float
    look_seconds: float
    net: float
    net_error: float
    behind: float
    error: float


@dataclass(frozen=True, eq=False)
class Study:
    """A fitted router, the ways to route compared, and how well f and g predict (mean squared errors).

    `nets` has what each way nets on every held-out question.
    """

    router: Router
    ways: tuple[Way, ...]
    errors: dict[str, float]
    questions: dict[str, int]
    routed: Routed
    nets: dict[str, Vector]
    held_out: Table
    weight: float

    def beats(self) -> dict[str, bool]:
        """Whether the router earns more than each way, the oracle apart, by more than one standard error."""
        others = [way for way in self.ways if way.name not in (DEFAULT, "oracle")]
        return {way.name: way.behind > way.error for way in others}


def nearest(train: Table) -> int:
    """The number of neighbours with the least leave-one-out error on the training questions."""
    found = Neighbours.fit(train.prompts, train.reward, train.specialists)
    guesses = dict(zip(KS, found.leave_one_out_each(KS), strict=True))
    return min(KS, key=lambda k: float(np.nanmean((guesses[k] - train.reward) ** 2)))


def study(
    recorded: Recorded, weight: float = WEIGHT, progress: Callable[[str, float], None] | None = None
) -> Study:
    """Fit on train and calibration, compare on test; calibrated and compared where everybody answered."""
    usable = (recorded.table.split == "train") | ~recorded.table.missing.any(axis=1)
    table = recorded.table.rows(usable).with_fee_weight(weight)
    learn = table.split == "train"
    train = table.rows(learn)
    looks = weight * np.nanmean(recorded.looks[usable][learn], axis=0)
    k = nearest(train)
    router = Router.fit(
        table,
        cheap=NeighbourRecipe(k),
        costly=Looking(),
        policy=KnowledgeGradient(),
        inspection_cost=as_costs(looks, len(looks)),
        progress=progress,
        settings={"reward_per_processor_second": weight, "neighbours": k},
    )
    parts = {name: _arrays(router, table.in_split(name)) for name in ("calibration", "test")}
    known = table.rows(table.split != "test")
    instance = Trial(parts["calibration"], parts["test"], Standing.of(known.reward, known.fee))
    rng = np.random.default_rng(0)
    routed = {arm.name: arm.route(instance, router.costs, 0, rng) for arm in named(WAYS)}
    test = parts["test"]
    whole = table.in_split("test")
    rows = np.arange(len(test))
    nets = {name: np.asarray(test.reward[rows, one.choice] - one.spent) for name, one in routed.items()}
    return Study(
        router,
        tuple(_way(name, routed[name], nets, test, weight) for name in WAYS),
        _errors(test, train),
        {"train": len(train), "calibration": len(parts["calibration"]), "test": len(test)},
        routed[DEFAULT],
        nets,
        whole.rows(~whole.missing.any(axis=1)),
        weight,
    )


def _arrays(router: Router, part: Table) -> Readings:
    """f, g, reward and weighted fee of the questions that everybody answered."""
    part = part.rows(~part.missing.any(axis=1))
    f, g = router.cheap.predict(part.prompts), _costly(router, part)
    return Readings(f, g, part.reward, part.fee_weight * part.fee)


def _costly(router: Router, part: Table) -> Any:
    assert isinstance(router.costly, Beginnings)
    return router.costly.predict(part.prompts, part.contexts)


def _way(name: str, mine: Routed, nets: dict[str, Vector], test: Readings, weight: float) -> Way:
    rows, root = np.arange(len(test)), np.sqrt(len(test))
    earned, lost = nets[name], nets[DEFAULT] - nets[name]
    return Way(
        name,
        right=float(test.score[rows, mine.choice].mean()),
        seconds=float(test.fee[rows, mine.choice].mean() / weight),
        looks=float(mine.queries.mean()),
        look_seconds=float(mine.spent.mean() / weight),
        net=float(earned.mean()),
        net_error=float(earned.std(ddof=1) / root),
        behind=float(lost.mean()),
        error=float(lost.std(ddof=1) / root),
    )


def _errors(test: Readings, train: Table) -> dict[str, float]:
    usual = np.nanmean(train.reward, axis=0)
    guesses = {
        "each specialist's mean": np.broadcast_to(usual, test.cheap.shape),
        "f": test.cheap,
        "g": test.costly,
    }
    return {name: float(((guess - test.reward) ** 2).mean()) for name, guess in guesses.items()}
