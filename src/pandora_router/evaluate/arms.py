"""The arms: every way of routing that is compared, each a small frozen object with a name and `route`.

`calibrate.ways` has the names that `pandora fit` also reports; `pandora evaluate --list-arms` prints all of
them with a description. An arm gets a trial, the inspection costs, the number of inspections that the router
bought (`budget`, for margin and random inspections) and its own random generator. Only the oracle uses
rewards of test prompts.

Arms "on f" are the paper's: they choose what to open by f and compare opened boxes by g. The others use the
mean and the values of the default signal model, because part of a router's lead comes from the step from f to
the mean (docs/method.md, section 5).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol

import numpy as np

from pandora_router.boxes import Costs
from pandora_router.calibrate import (
    Auto,
    Calibrated,
    EmpiricalDraws,
    GaussianIndependent,
    GaussianJoint,
    NeighbourSignal,
    Unfitted,
)
from pandora_router.calibrate.set_signal import route_sets
from pandora_router.calibrate.ways import (
    ALWAYS,
    BEST_SINGLE,
    CHEAPEST,
    F_ONLY,
    NEVER,
    ORACLE,
    RANDOM,
    ROUTER,
    Routed,
    bill,
    search,
)
from pandora_router.errors import UsageError
from pandora_router.evaluate.experiments import Experiment, Sweep
from pandora_router.evaluate.trials import Trial
from pandora_router.search import (
    Always,
    Committing,
    KnowledgeGradient,
    Obligatory,
    Optimal,
    Policy,
    Rollout,
    baselines,
)
from pandora_router.text import did_you_mean

DEFAULT = ROUTER  # the arm under test
EVERY = "every single"
SINGLE = "single: "  # before the name of a specialist: the arm that always asks it
PAPER = "committing (paper)"
RAW = "always inspect, raw g"
MARGIN = "margin"
STATIC = (NEVER, F_ONLY, BEST_SINGLE, ALWAYS, RAW, MARGIN, "margin on f")  # no search, no hindsight
Rng = np.random.Generator


class Arm(Protocol):
    """A way of routing."""

    @property
    def name(self) -> str:
        """Its name in tables."""

    @property
    def about(self) -> str:
        """What it does, in one line."""

    @property
    def alone(self) -> bool:
        """Whether it decides each prompt separately; otherwise it needs all prompts (a shared budget)."""

    def route(self, trial: Trial, costs: Costs, budget: int, rng: Rng) -> Routed:
        """Decide every test prompt."""


@dataclass(frozen=True)
class Fixed:
    """One specialist for all prompts, a random one, or the best in hindsight; nothing is inspected."""

    name: str
    about: str = ""
    alone: bool = True

    def route(self, trial: Trial, costs: Costs, budget: int, rng: Rng) -> Routed:
        """Choose the specialist that `name` stands for on every test prompt."""
        reward = trial.test.reward
        prompts, boxes = reward.shape
        if self.name == RANDOM:
            return Routed.unseen(np.asarray(rng.integers(0, boxes, prompts)))
        if self.name == ORACLE:
            return Routed.unseen(np.asarray(reward.argmax(axis=1)))
        column = trial.standing.cheapest if self.name == CHEAPEST else trial.standing.single
        return Routed.unseen(np.full(prompts, column))


@dataclass(frozen=True)
class Single:
    """The specialist in one column for all prompts; nothing is inspected."""

    name: str
    column: int
    about: str = ""
    alone: bool = True

    def route(self, trial: Trial, costs: Costs, budget: int, rng: Rng) -> Routed:
        """Choose the column on every test prompt."""
        return Routed.unseen(np.full(len(trial.test), self.column))


@dataclass(frozen=True)
class Baseline:
    """Chooses the boxes to open before anything is seen, and takes the best of them."""

    name: str
    kind: Literal["never", "always", "top", "coin", "random", "margin"]
    on: Literal["f", "mean"] = "f"
    about: str = ""

    @property
    def alone(self) -> bool:
        """False for margin and random inspections, which share one budget over all prompts."""
        return self.kind not in ("random", "margin")

    def route(self, trial: Trial, costs: Costs, budget: int, rng: Rng) -> Routed:
        """Plan on f or the mean, open, take the best opened box."""
        test = trial.test
        scores, values = test.cheap, test.costly
        if self.on == "mean":
            signal = trial.signal()
            scores, values = signal.batch(test.cheap, costs).mean, signal.values(test.cheap, test.costly)
        match self.kind:
            case "never":
                plan = baselines.never(scores)
            case "always":
                plan = baselines.always(scores)
            case "top":
                plan = baselines.top(scores, 2)
            case "coin":
                plan = baselines.coin_flip(scores, rng)
            case "random":
                plan = baselines.random_budget(scores, budget, rng)
            case _:
                plan = baselines.margin_budget(scores, budget)
        choice = plan.choices(values + costs.refund)
        kept = plan.opened[np.arange(len(choice)), choice]
        spent = bill(plan.opened, costs) - np.where(kept, costs.refund[choice], 0.0)
        return Routed(
            choice, spent, plan.opened.sum(axis=1).astype(np.float64), np.where(plan.opened, 0.0, -1.0)
        )


@dataclass(frozen=True)
class Search:
    """A search `policy` over the boxes of the signal model `signal`.

    calibration: number of calibration prompts that the signal model is fitted on; 0 means all of them.
    """

    name: str
    signal: Unfitted
    policy: Policy
    calibration: int = 0
    about: str = ""
    alone: bool = True

    def route(self, trial: Trial, costs: Costs, budget: int, rng: Rng) -> Routed:
        """Search every test prompt."""
        return search(self.policy, trial.signal(self.signal, self.calibration), trial.test, costs)


@dataclass(frozen=True)
class Shipped:
    """The default of `Router.fit`: the search, or never inspecting where the search was worse.

    With `opened`, and where looks are bought one at a time, estimates from everything opened so far are used
    if they lost less on known prompts than estimates from own beginnings; without it, the latter always.
    """

    name: str = ROUTER
    opened: bool = True
    signal: Unfitted = field(default_factory=Calibrated)
    policy: Policy = field(default_factory=KnowledgeGradient)
    calibration: int = 0
    about: str = "what `pandora fit` ships by default"
    alone: bool = True

    def route(self, trial: Trial, costs: Costs, budget: int, rng: Rng) -> Routed:
        """Compare the ways on known prompts, then decide every test prompt."""
        policy = trial.shipped(self.signal, self.policy, costs)
        if self.opened and trial.opens(self.policy, policy, costs):
            return FromOpened(ROUTER, self.policy).route(trial, costs, budget, rng)
        return search(policy, trial.signal(self.signal), trial.test, costs)


@dataclass(frozen=True)
class Blind:
    """A search that plans as if there were no refunds, but gets them.

    The difference to the router is what planning with refunds is worth. Without refunds it is the router.
    """

    name: str = "blind to refunds"
    router: Shipped = field(default_factory=Shipped)
    about: str = "the router planning as if nothing came back; what does come back is counted"
    alone: bool = True

    def route(self, trial: Trial, costs: Costs, budget: int, rng: Rng) -> Routed:
        """Search at costs without refunds, then apply the refunds."""
        bare = Costs(costs.own, costs.shared, costs.group, wait=costs.wait if len(costs.wait) else 0.0)
        routed = self.router.route(trial, bare, budget, rng)
        assert routed.opened is not None
        kept = routed.opened[np.arange(len(routed.choice)), routed.choice]
        return replace(routed, spent=routed.spent - np.where(kept, costs.refund[routed.choice], 0.0))


@dataclass(frozen=True)
class FromOpened:
    """Estimates from everything opened so far, whatever they lost on known prompts."""

    name: str
    policy: Policy = field(default_factory=KnowledgeGradient)
    about: str = ""
    alone: bool = True

    def route(self, trial: Trial, costs: Costs, budget: int, rng: Rng) -> Routed:
        """Search every test prompt; raises `UsageError` unless looks are bought one at a time."""
        sets = trial.sets
        if sets is None:
            raise UsageError(
                f"the arm {self.name!r}",
                expected="an experiment with a `peek`, no `agreement` and no shared cost",
                came="another one",
                do="Leave this arm out.",
            )
        return route_sets(sets.signal(trial.signal()), self.policy, sets.test, sets.fresh.raw, costs)


@dataclass(frozen=True)
class Chosen:
    """Signal model and policy chosen by cross-validation on the calibration prompts at these costs."""

    name: str = "auto"
    auto: Auto = Auto()  # noqa: RUF009 (frozen)
    about: str = "signal model and policy of lowest cross-validated loss on the calibration prompts"
    alone: bool = False

    def route(self, trial: Trial, costs: Costs, budget: int, rng: Rng) -> Routed:
        """Choose, then search."""
        choice = self.auto.choose(trial.calibration, costs, trial.fits, trial.train)
        return search(choice.candidate.policy, choice.signal, trial.test, costs)


_NORMAL = Calibrated(law="normal")
ARMS: tuple[Arm, ...] = (
    Shipped(),
    Baseline(NEVER, "never", "mean", "buys nothing, takes the highest mean"),
    Baseline(F_ONLY, "never", about="buys nothing, takes the highest cheap estimate"),
    Fixed(BEST_SINGLE, "one specialist for all prompts: the best on known prompts"),
    Baseline(ALWAYS, "always", "mean", "buys every costly estimate, takes the highest value"),
    Baseline(RAW, "always", about="buys every costly estimate, takes the highest g (paper: g-always)"),
    Baseline(MARGIN, "margin", "mean", "as many inspections as the router, on the closest contests"),
    Baseline("margin on f", "margin", about="the same by cheap estimates (paper: Margin-N)"),
    Baseline("random inspections", "random", "mean", "as many inspections as the router, drawn at random"),
    Baseline("random inspections on f", "random", about="the same by cheap estimates (paper: Random-N)"),
    Baseline("top-2", "top", "mean", "inspects the two specialists of highest mean"),
    Baseline("top-2 on f", "top", about="inspects the two of highest cheap estimate (paper: Top-2)"),
    Baseline("coin flip", "coin", about="inspects each specialist with probability one half"),
    Fixed(CHEAPEST, "one specialist for all prompts: the one of lowest fee"),
    Fixed(RANDOM, "a specialist drawn at random"),
    Fixed(ORACLE, "the best specialist in hindsight"),
    Search(PAPER, GaussianJoint(), Committing(), about="the paper's Algorithm 1"),
    Search(
        "committing, mean outside",
        GaussianJoint(),
        Committing(outside="mean"),
        about="Algorithm 1 with the mean as outside option",
    ),
    Search(
        "committing, exact",
        GaussianJoint(),
        Committing(payoff="exact"),
        about="Algorithm 1 with exact payoffs on the marginals",
    ),
    Search("no guard", Calibrated(), KnowledgeGradient(), about="the router's search, never switched off"),
    Search("obligatory", GaussianJoint(), Obligatory(), about="Weitzman's rule: only opened boxes are taken"),
    Search("one step", Calibrated(), KnowledgeGradient(depth=1), about="the router looking one step ahead"),
    Search("rollout", _NORMAL, Rollout(), about="best committing policy after every opening, on marginals"),
    Chosen(),
)
SEARCHES = frozenset(arm.name for arm in ARMS if isinstance(arm, Search))  # take long over many prompts
BY_NAME: tuple[Arm, ...] = (  # only where an experiment names them
    Blind(),
    Fixed(EVERY, "one arm for each specialist, which always asks it"),
    Shipped("own", opened=False, about="the router with estimates from own beginnings alone"),
    FromOpened("opened, no choice", about="estimates from everything opened, whatever they lost"),
    FromOpened("open everything", Always(), about="looks at everybody and reads all beginnings together"),
    Search(
        "optimal, independent",
        GaussianIndependent(),
        Optimal(),
        about="dynamic programming on independent boxes; up to 8 specialists, no shared costs",
    ),
)


def named(names: Sequence[str] = ()) -> tuple[Arm, ...]:
    """The arms of these names, the router first; all of `ARMS` if none are named.

    Raises `UsageError` for a name that is not in the list.
    """
    arms = {arm.name: arm for arm in (*ARMS, *BY_NAME)}
    for name in names:
        if name not in arms:
            raise UsageError(
                "an arm",
                expected="one of " + "; ".join(arms),
                came=repr(name),
                do=did_you_mean(name, arms, "`pandora evaluate --list-arms` describes them."),
            )
    if not names:
        return ARMS
    return tuple(arm for arm in arms.values() if arm.name in names or arm.name == DEFAULT)


SIGNALS: dict[str, Unfitted] = {
    "constant scale": Calibrated(scale="constant"),
    "no correlation": Calibrated(correlation="none"),
    "no slope": Calibrated(slope=False),
    "normal law": Calibrated(law="normal"),
    "calibration prompts alone": Calibrated(pooled=False),
    "Gaussian joint (paper)": GaussianJoint(),
    "Gaussian independent": GaussianIndependent(),
    "neighbours, K=16 (paper)": NeighbourSignal(),
    "empirical draws": EmpiricalDraws(),
}


def arms_of(experiment: Experiment, k: int) -> tuple[Arm, ...]:
    """The arms of an experiment where f uses k neighbours, the router under test first.

    All arms and variations run on the first number of neighbours. On the others only the router, its
    comparisons and the fast policies run, because each number takes as long as the first.
    """
    arms = named(experiment.arms)
    if k == experiment.ks[0]:
        return (*arms, *variations(experiment.sweep))
    core = (DEFAULT, *STATIC, "f-only", "oracle", PAPER, "rollout")
    return tuple(arm for arm in arms if arm.name in core)


def with_singles(arms: Sequence[Arm], specialists: Sequence[str]) -> tuple[Arm, ...]:
    """The arms, with one for each specialist in place of the arm `EVERY`."""
    if all(arm.name != EVERY for arm in arms):
        return tuple(arms)
    singles = [Single(SINGLE + name, column) for column, name in enumerate(specialists)]
    return (*(arm for arm in arms if arm.name != EVERY), *singles)


def variations(sweep: Sweep) -> tuple[Arm, ...]:
    """The arms of a sweep."""
    default = next(arm for arm in ARMS if arm.name == DEFAULT)
    assert isinstance(default, Shipped)
    arms: list[Arm] = []
    if sweep.signals:
        arms += [Search(f"signal: {name}", model, default.policy) for name, model in SIGNALS.items()]
        others = ("Gaussian independent", "neighbours, K=16 (paper)")
        arms += [Search(f"committing on: {name}", SIGNALS[name], Committing()) for name in others]
    arms += [
        Search(f"calibration: {n}", default.signal, default.policy, calibration=n) for n in sweep.calibration
    ]
    arms += [Search(f"S: {n}", GaussianJoint(), Committing(samples=n)) for n in sweep.samples]
    arms += [Search(f"K: {n}", NeighbourSignal(n), Committing()) for n in sweep.signal_neighbours]
    return tuple(arms)
