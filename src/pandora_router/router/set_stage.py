"""The last stage of a fit with `SetRecipe` on a table with contexts: estimates from everything opened.

The router with own-beginning estimates is fitted first. Then the second layer (`estimators.set_layer`) is
grown on its out-of-fold estimates, a `SetSignal` is fitted on held-out prompts, and both routers decide the
same out-of-fold training and calibration prompts at the costs of the fit. `Compared` has the rule that
chooses.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from pandora_router.boxes import Costs
from pandora_router.calibrate import Auto, FittedSignal, Unfitted
from pandora_router.calibrate.choose import Guarded
from pandora_router.calibrate.diagnostics import folds_of
from pandora_router.calibrate.readings import Readings
from pandora_router.calibrate.set_signal import LATTICE, SetSignal, codes, fit_sets, route_sets
from pandora_router.calibrate.ways import ROUTER, Routed, Standing, basic, search
from pandora_router.data import Table
from pandora_router.errors import UsageError
from pandora_router.estimators.estimator import Estimator, Predictor
from pandora_router.estimators.set_layer import (
    SetEstimate,
    SetTrees,
    Signs,
    chains,
    second_folds,
    subsets,
    training_signs,
)
from pandora_router.estimators.stack.boosted import Boosted
from pandora_router.router.fit_report import Priced
from pandora_router.router.fit_report import routing as routing_report
from pandora_router.router.inspection import Waiting
from pandora_router.router.recipes import SetRecipe
from pandora_router.router.revalue import Moved
from pandora_router.router.router import Router
from pandora_router.search import KnowledgeGradient, Never, Policy
from pandora_router.types import Advance, Mask, Matrix, Positions, Vector

FOLDS = 5
CHAINS = 2  # random orders of opening per held-out prompt, if there are too many sets to use all
MOST = 3000  # held-out prompts on which the two routers are compared


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Held-out prompts: readings, features, and raw estimates given any set.

    Training prompts come first and are predicted by the ensemble without their fold; `fold` (N,) is that
    fold, -1 for prompts that were not used in training, which all ensembles predict together. If there are
    few sets, estimates given a set are cached for all prompts.
    """

    readings: Readings
    signs: Signs
    fold: Positions
    second: SetTrees
    _kept: dict[int, Matrix] = field(default_factory=dict, repr=False)

    def raw(self, rows: Positions, opened: Mask) -> Matrix:
        """Raw estimates (n, M) of these prompts when `opened` (n, M) is open; NaN where it cannot be."""
        if opened.shape[1] > LATTICE:
            return self._estimated(rows, opened)
        means, code = np.empty(opened.shape), codes(opened)
        for subset in np.unique(code).tolist():
            here = np.flatnonzero(code == subset)
            if subset not in self._kept:
                every = np.broadcast_to(opened[here[0]], self.readings.cheap.shape)
                self._kept[subset] = self._estimated(np.arange(len(self.readings)), every)
            means[here] = self._kept[subset][rows[here]]
        return means

    def _estimated(self, rows: Positions, opened: Mask) -> Matrix:
        some, fold = self.signs.rows(rows), self.fold[rows]
        estimates = np.full(opened.shape, np.nan)
        known = fold < 0
        if known.any():
            estimates[known] = self.second.predict(some.rows(known), opened[known])
        if not known.all():
            estimates[~known] = self.second.left_out(some.rows(~known), opened[~known], fold[~known])
        estimates[(opened & ~some.there).any(axis=1)] = np.nan
        return estimates

    def seen(self, seed: int = 0) -> list[tuple[Mask, Matrix]]:
        """Opened sets and raw estimates to fit on: every set, or chains of sets if there are many."""
        shape = self.readings.cheap.shape
        every = (
            [np.broadcast_to(subset, shape) for subset in subsets(shape[1])]
            if shape[1] <= LATTICE
            else list(chains(shape[0], shape[1], CHAINS, seed))
        )
        rows = np.arange(shape[0])
        return [(opened, self.raw(rows, opened)) for opened in every]


@dataclass(frozen=True, eq=False)
class Weighed:
    """Compares estimates from everything opened with those from own beginnings, on held-out prompts.

    Models fitted without a fold do not depend on costs and are fitted once.
    """

    known: HeldOut
    unfitted: Unfitted
    seed: int = 0
    _fits: dict[int, tuple[FittedSignal, SetSignal]] = field(default_factory=dict, repr=False)

    @cached_property
    def seen(self) -> list[tuple[Mask, Matrix]]:
        """The opened sets, with the raw estimates given them, on which models are fitted."""
        return self.known.seen(self.seed)

    def signal(self, base: FittedSignal) -> SetSignal:
        """The model fitted on all held-out prompts."""
        return fit_sets(base, self.known.readings, self.seen)

    def without(self, fold: int, held: Mask) -> tuple[FittedSignal, SetSignal]:
        """Both models fitted without the prompts `held` of this fold."""
        if fold not in self._fits:
            trained = self.known.fold >= 0
            rest = self.known.readings.rows(~held & ~trained)
            more = self.known.readings.rows(~held & trained)
            base = self.unfitted.fit(rest, more)
            assert isinstance(base, FittedSignal)
            sets = [(opened[~held], raw[~held]) for opened, raw in self.seen]
            self._fits[fold] = base, fit_sets(base, self.known.readings.rows(~held), sets)
        return self._fits[fold]

    def compare(self, policy: Policy, own_policy: Policy, costs: Costs) -> Compared:
        """Route up to `MOST` held-out prompts both ways, each with models fitted without its fold.

        Raises `UsageError` unless most prompts have every beginning and every reward: the models of own
        beginnings know the others, too.
        """
        known = self.known
        usable = np.flatnonzero(known.readings.complete & known.signs.there.all(axis=1))
        if 2 * len(usable) < len(known.readings):
            raise UsageError(
                "held-out prompts",
                expected="every beginning and every reward for most of them",
                came=f"all of that for {len(usable):,} of {len(known.readings):,}",
                do="Collect answers of all specialists.",
            )
        judged = np.zeros(len(known.readings), dtype=np.bool_)
        judged[np.random.default_rng(0).permutation(usable)[:MOST]] = True
        leads, gains = [], []
        for fold, held in enumerate(folds_of(len(judged), FOLDS, 0)):
            rows = np.flatnonzero(held & judged)
            if len(rows):
                base, signal = self.without(fold, held)
                part = known.readings.rows(rows)
                ours = route_sets(signal, policy, part, partial(_raw_of, known, rows), costs).total(part)
                leads.append(search(own_policy, base, part, costs).total(part) - ours)
                gains.append(search(Never(), base, part, costs).total(part) - ours)
        pair = (np.concatenate(values) for values in (leads, gains))
        return Compared(*(Guarded.of(policy, *_mean(values), len(values)) for values in pair))


def _mean(values: Vector) -> tuple[float, float]:
    """The mean and its standard error, which is infinite for a single value."""
    error = float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else float("inf")
    return float(values.mean()), error


def _raw_of(known: HeldOut, rows: Positions, which: Positions, opened: Mask) -> Matrix:
    """Raw estimates of the prompts `which` among `rows`."""
    return known.raw(rows[which], opened)


@dataclass(frozen=True, eq=False)
class Compared:
    """Estimates from everything opened on held-out prompts, by the rule of the guard against two others.

    over_own: against estimates from own beginnings. over_never: against never inspecting.

    They read more, so they are kept unless they earned less than one of the two by more than the guard
    tolerates. Held-out training prompts are estimated by the trees of one fold instead of the mean over all
    folds, which costs two layers of trees more than one: the true lead is larger than the one seen here.
    """

    over_own: Guarded
    over_never: Guarded

    @property
    def better(self) -> bool:
        """Whether they are kept."""
        return self.over_own.on and self.over_never.on

    def to_dict(self) -> dict[str, Any]:
        """The comparison as plain values, ready for JSON."""
        own = self.over_own
        return {
            "chosen": self.better,
            "lead": own.gain,
            "error": own.error,
            "prompts": own.prompts,
            "over_never": self.over_never.to_dict(),
        }


def with_sets(
    router: Router,
    recipe: SetRecipe,
    unfitted: Unfitted,
    wanted: Policy | Auto,
    parts: Mapping[str, Table],
    held: Mapping[str, Readings],
    learnt: Readings | None,
    waiting: Waiting,
    say: Advance,
) -> Router:
    """The final router: `router`, or the one that reads everything opened.

    wanted: the policy that was requested. parts: the tables "train", "calibration" and "test". held: readings
    of "calibration" and, if there is one, "test". learnt: readings of the training prompts, out of fold.
    waiting: counted by the decisions of the report.
    """
    begun = time.process_time()
    say("growing trees over opened sets", 0.97)
    try:
        policy, base = _possible(router, wanted)
        known, estimate = _held_out(router.costly, recipe, parts, held, learnt)
        weighed = Weighed(known, unfitted, recipe.seed)
        compared = weighed.compare(policy, router.policy, router.costs)
        signal = weighed.signal(base)
    except UsageError as error:
        return _noted(router, {"chosen": False, "because": str(error)})
    facts = compared.to_dict()
    name = hashlib.sha256(f"{router.id} {recipe!r}".encode()).hexdigest()[:16]
    made = replace(router, costly=estimate, signal=signal, policy=policy, id=name)
    routing: dict[str, Any] = {}
    if "test" in held and len(parts["test"]):
        standing = Standing.of(parts["train"].reward, parts["train"].fee)
        facts["test"], routing = tested(made, router, parts["test"], held["test"], standing, waiting)
    facts["cpu_seconds"] = round(time.process_time() - begun, 2)
    if not compared.better:
        return _noted(router, facts)
    evidence = {"chosen": "guarded", "policy": repr(policy), "guard": compared.over_never.to_dict()}
    report = {**router.record.report, **({"routing": routing} if routing else {})}
    evidence = {**router.record.evidence, **evidence}
    return _noted(replace(made, record=replace(router.record, evidence=evidence, report=report)), facts)


def _possible(router: Router, wanted: Policy | Auto) -> tuple[KnowledgeGradient, FittedSignal]:
    """The policy and the model of own beginnings; raises `UsageError` if they do not do for sets."""
    if not isinstance(wanted, KnowledgeGradient):
        raise UsageError(
            "estimates from everything opened",
            expected="the policy knowledge_gradient",
            came=type(wanted).__name__,
            do="Leave fit.policy out.",
        )
    if not isinstance(router.signal, FittedSignal):
        raise UsageError(
            "estimates from everything opened",
            expected="a calibrated signal model",
            came=type(router.signal).__name__,
            do="Leave fit.signal out.",
        )
    if len(router.costs.shared):
        raise UsageError(
            "estimates from everything opened",
            expected="looks that are paid for one by one",
            came="a shared part of the inspection cost",
            do="Leave fit.inspection.shared out.",
        )
    return wanted, router.signal


def _held_out(
    first: Predictor | Estimator,
    recipe: SetRecipe,
    parts: Mapping[str, Table],
    held: Mapping[str, Readings],
    learnt: Readings | None,
) -> tuple[HeldOut, SetEstimate]:
    """Grow the second layer on the training prompts; returns the known prompts and the estimator."""
    train, calibration = parts["train"], parts["calibration"]
    if not isinstance(first, Boosted) or train.contexts is None or learnt is None:
        raise UsageError(
            "estimates from everything opened",
            expected="a table with contexts, and a cheap estimate that can leave prompts out",
            came="none of that",
            do="Leave fit.cheap out.",
        )
    folds = second_folds(train.prompts, recipe.folds, recipe.seed)
    signs = training_signs(first, train.prompts, train.contexts)
    second = SetTrees.fit(signs, train.reward, folds, recipe.seed)
    estimate = SetEstimate(first, second)
    known = HeldOut(
        learnt.beside(held["calibration"]),
        joined(signs, estimate.signs(calibration.prompts, calibration.contexts)),
        np.concatenate([folds, np.full(len(calibration), -1, dtype=np.intp)]),
        second,
    )
    return known, estimate


def tested(
    made: Router, own: Router, test: Table, readings: Readings, standing: Standing, waiting: Waiting
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Both routers on the test prompts that have every beginning.

    Returns how much more `made` earns than `own`, and the report of all ways to route with `made` as router.
    """
    assert isinstance(made.costly, SetEstimate) and isinstance(made.signal, SetSignal)  # noqa: PT018
    signs = made.costly.signs(test.prompts, test.contexts)
    rows = np.flatnonzero(readings.complete & signs.there.all(axis=1))
    part = readings.rows(rows)
    fresh = HeldOut(part, signs.rows(rows), np.full(len(rows), -1, dtype=np.intp), made.costly.second)
    routed = route_sets(made.signal, made.policy, part, fresh.raw, made.costs, -waiting.lost)
    ways = basic(Moved(own.signal, -waiting.lost), own.policy, part, own.costs, standing)
    facts: dict[str, Any] = {"prompts": len(rows)}
    if len(rows) > 1:
        facts["lead"], facts["lead_error"] = _mean(ways[ROUTER].total(part) - routed.total(part))
    measured = routing_report(part, {**ways, ROUTER: routed}, made.costs)

    def route(by: Vector, at: Costs) -> Routed:
        assert isinstance(made.signal, SetSignal)
        return route_sets(made.signal, made.policy, part, fresh.raw, at, by)

    priced = Priced(made.fee_weight, made.fees, made.specialists)
    timed = priced.timings(route, part, made.costs, waiting, test.rows(rows))
    return facts, {**measured, "curve": priced.curve(route, part, made.costs, waiting), **timed}


def _noted(router: Router, facts: Mapping[str, Any]) -> Router:
    """The router with the facts about opened sets in its record."""
    report = {**router.record.report, "opened": dict(facts)}
    return replace(router, record=replace(router.record, report=report))


def joined(first: Signs, second: Signs) -> Signs:
    """The features of some prompts followed by those of others."""
    pairs = zip(vars(first).values(), vars(second).values(), strict=True)
    return Signs(*(np.concatenate(pair) for pair in pairs))
