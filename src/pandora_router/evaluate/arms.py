"""Every way of routing that is compared, each a small frozen value with a name and `route`.

An arm gets an instance, the inspection costs, the number of inspections the router under test bought
(`budget`, for random-N and margin-N) and its own random stream; it sees rewards of test prompts only if it is
the oracle. Arms "on f" are the paper's (plan by f, judge by g); arms "on the mean" plan by the mean of the
default signal model and judge by its values, because part of a router's lead is the step from f to the mean
(METHOD section 5).
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np

from pandora_router.boxes import Costs
from pandora_router.calibrate import Auto, Calibrated, GaussianIndependent, GaussianJoint, Unfitted
from pandora_router.calibrate.choose import decide
from pandora_router.errors import UsageError
from pandora_router.evaluate.instances import Instance
from pandora_router.evaluate.outcomes import Routed
from pandora_router.search import (
    Committing,
    KnowledgeGradient,
    Obligatory,
    Optimal,
    Policy,
    Relative,
    Rollout,
    baselines,
)
from pandora_router.types import Mask, Vector

DEFAULT = "knowledge gradient"  # the router under test
PAPER = "committing (paper)"
STATIC = ("mean-only", "inspect-all", "inspect-all, mean", "margin-N, f", "margin-N, mean")
Rng = np.random.Generator


class Arm(Protocol):
    """A way of routing."""

    @property
    def name(self) -> str:
        """What tables call it."""

    def route(self, instance: Instance, costs: Costs, budget: int, rng: Rng) -> Routed:
        """Decide every test prompt."""


def bill(opened: Mask, costs: Costs) -> Vector:
    """What opening these boxes (N, M) costs each prompt: own parts, and each group's shared part once."""
    spent = opened @ costs.own
    for group, shared in enumerate(costs.shared):
        spent = spent + shared * opened[:, costs.group == group].any(axis=1)
    return np.asarray(spent, dtype=np.float64)


@dataclass(frozen=True)
class Fixed:
    """One specialist for all prompts, a random one, or the best in hindsight; nothing is inspected."""

    name: Literal["best single", "cheapest", "random", "oracle"]

    def route(self, instance: Instance, costs: Costs, budget: int, rng: Rng) -> Routed:
        """Take it."""
        reward = instance.test.reward
        prompts, boxes = reward.shape
        choice = np.full(prompts, instance.single, dtype=np.intp)
        match self.name:
            case "cheapest":
                choice[:] = instance.cheapest
            case "random":
                choice[:] = rng.integers(0, boxes, prompts)
            case "oracle":
                choice[:] = reward.argmax(axis=1)
        return Routed(choice, np.zeros(prompts), np.zeros(prompts))


@dataclass(frozen=True)
class Plan:
    """Which boxes to open is settled before anything is seen; the best of them is taken."""

    name: str
    kind: Literal["never", "always", "top", "coin", "random", "margin"]
    on: Literal["f", "mean"] = "f"

    def route(self, instance: Instance, costs: Costs, budget: int, rng: Rng) -> Routed:
        """Plan on f or the mean, open, take the best opened box."""
        test = instance.test
        scores, values = test.f, test.g
        if self.on == "mean":
            signal = instance.signal()
            scores, values = signal.expected(test.f), signal.values(test.f, test.g)
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
        return Routed(
            plan.choices(values), bill(plan.opened, costs), plan.opened.sum(axis=1).astype(np.float64)
        )


@dataclass(frozen=True)
class Search:
    """A policy over the boxes of a signal model, fitted on `calibration` prompts (0: all there are)."""

    name: str
    signal: Unfitted
    policy: Policy
    calibration: int = 0

    def route(self, instance: Instance, costs: Costs, budget: int, rng: Rng) -> Routed:
        """Search every test prompt."""
        model, test = instance.signal(self.signal, self.calibration), instance.test
        choice, spent, queries = decide(self.policy, model.batch(test.f, costs), model.values(test.f, test.g))
        return Routed(choice, spent, queries)


@dataclass(frozen=True)
class Chosen:
    """Signal model and policy chosen by cross-validation on the calibration prompts at these costs."""

    name: str = "auto"
    auto: Auto = Auto()  # noqa: RUF009 (frozen)

    def route(self, instance: Instance, costs: Costs, budget: int, rng: Rng) -> Routed:
        """Choose, then search."""
        known = instance.calibration
        choice = self.auto.choose(known.f, known.g, known.reward, costs, instance.fits)
        test, model = instance.test, choice.signal
        batch, values = model.batch(test.f, costs), model.values(test.f, test.g)
        return Routed(*decide(choice.candidate.policy, batch, values))


_NORMAL = Calibrated(law="normal")
ARMS: tuple[Arm, ...] = (
    Search(DEFAULT, Calibrated(), KnowledgeGradient()),
    Plan("mean-only", "never", "mean"),
    Plan("inspect-all", "always"),
    Plan("inspect-all, mean", "always", "mean"),
    Plan("margin-N, f", "margin"),
    Plan("margin-N, mean", "margin", "mean"),
    Plan("random-N, f", "random"),
    Plan("random-N, mean", "random", "mean"),
    Plan("f-only", "never"),
    Plan("top-2", "top"),
    Plan("coin flip", "coin"),
    Fixed("best single"),
    Fixed("cheapest"),
    Fixed("random"),
    Fixed("oracle"),
    Search(PAPER, GaussianJoint(), Committing()),
    Search("committing, mean outside", GaussianJoint(), Committing(outside="mean")),
    Search("committing, exact", GaussianJoint(), Committing(payoff="exact")),
    Search("obligatory", GaussianJoint(), Obligatory()),
    Search("one step", Calibrated(), KnowledgeGradient(depth=1)),
    Search("rollout", _NORMAL, Rollout()),
    Search("relative", _NORMAL, Relative()),
    Chosen(),
)
BY_NAME: tuple[Arm, ...] = (  # only where an experiment names them: up to 8 specialists, no shared costs
    Search("optimal, independent", GaussianIndependent(), Optimal()),
)


def named(names: Sequence[str] = ()) -> tuple[Arm, ...]:
    """The arms of these names, the router under test first; all of `ARMS` if none are named."""
    known = {arm.name: arm for arm in (*ARMS, *BY_NAME)}
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            raise UsageError(
                "an arm",
                expected=f"one of {', '.join(known)}",
                came=repr(name),
                do=f"Did you mean {near[0]!r}?" if near else "Choose one of them.",
            )
    if not names:
        return ARMS
    return tuple(arm for arm in known.values() if arm.name in names or arm.name == DEFAULT)
