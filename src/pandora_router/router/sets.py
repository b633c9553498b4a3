"""The last stage of a fit with `SetRecipe`: estimates from everything opened, if they pay.

The router with own-beginning estimates is fitted first. Then the second layer (`estimators.sets`) is grown on
its out-of-fold estimates, a `SetSignal` is fitted on held-out prompts, and both routers decide the same
out-of-fold training and calibration prompts at the costs of the fit. The one with the lower loss is kept.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from pandora_router.boxes import Costs
from pandora_router.calibrate import Auto, FittedSignal, Unfitted
from pandora_router.calibrate.diagnostics import folds_of
from pandora_router.calibrate.readings import Readings
from pandora_router.calibrate.sets import LATTICE, SetSignal, codes, fit_sets, route_sets
from pandora_router.calibrate.ways import ROUTER, Routed, search
from pandora_router.data import Table
from pandora_router.errors import UsageError
from pandora_router.estimators.sets import (
    SetEstimate,
    SetTrees,
    Signs,
    chains,
    second_folds,
    subsets,
    training_signs,
)
from pandora_router.estimators.stack.boosted import Boosted
from pandora_router.router.recipes import SetRecipe
from pandora_router.router.router import Router
from pandora_router.search import KnowledgeGradient, Policy
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

        Raises `UsageError` if no prompt has every beginning and every reward.
        """
        known = self.known
        usable = np.flatnonzero(known.readings.complete & known.signs.there.all(axis=1))
        judged = np.zeros(len(known.readings), dtype=np.bool_)
        judged[np.random.default_rng(0).permutation(usable)[:MOST]] = True
        leads = []
        for fold, held in enumerate(folds_of(len(judged), FOLDS, 0)):
            rows = np.flatnonzero(held & judged)
            if len(rows):
                base, signal = self.without(fold, held)
                part = known.readings.rows(rows)
                ours = route_sets(signal, policy, part, partial(_raw_of, known, rows), costs)
                leads.append(search(own_policy, base, part, costs).total(part) - ours.total(part))
        if not leads:
            raise UsageError(
                "held-out prompts",
                expected="some with every beginning and every reward",
                came="none",
                do="Collect answers of all specialists, or use `costly: {kind: stack}`.",
            )
        lead = np.concatenate(leads)
        error = float(lead.std(ddof=1) / np.sqrt(len(lead))) if len(lead) > 1 else float("inf")
        return Compared(float(lead.mean()), error, len(lead))


def _raw_of(known: HeldOut, rows: Positions, which: Positions, opened: Mask) -> Matrix:
    """Raw estimates of the prompts `which` among `rows`."""
    return known.raw(rows[which], opened)


@dataclass(frozen=True, eq=False)
class Compared:
    """Both ways on the same held-out prompts: by how much sets lose less, and the standard error."""

    lead: float
    error: float
    prompts: int

    @property
    def better(self) -> bool:
        """Whether estimates from everything opened are kept."""
        return self.lead > 0.0

    def words(self) -> str:
        """One sentence."""
        what = "earn" if self.better else "lose"
        ends = "they ship" if self.better else "each specialist keeps the estimate from its own beginning"
        return (
            f"Estimates from everything opened {what} {abs(self.lead):.4f} per prompt (s.e. {self.error:.4f})"
            f" against estimates from each specialist's own beginning, on {self.prompts:,} prompts; {ends}."
        )


def with_sets(
    router: Router,
    recipe: SetRecipe,
    unfitted: Unfitted,
    wanted: Policy | Auto,
    parts: Mapping[str, Table],
    held: Mapping[str, Readings],
    learnt: Readings | None,
    say: Advance,
) -> Router:
    """The final router: `router`, or the one that reads everything opened.

    wanted: the policy that was requested; only the knowledge gradient can search boxes of type `Moving`.
    parts: the tables "train", "calibration" and "test". held: readings of "calibration" and, if there is one,
    "test". learnt: readings of the training prompts, out of fold.
    """
    first, train = router.costly, parts["train"]
    if not isinstance(first, Boosted) or train.contexts is None or learnt is None:
        raise UsageError(
            "fit.costly",
            expected="a table with contexts, looked at by the stack, and f of neighbours for kind `opened`",
            came="none of that",
            do="Import contexts, or use `costly: {kind: stack}`.",
        )
    say("growing trees over opened sets", 0.97)
    folds = second_folds(train.prompts, recipe.folds, recipe.seed)
    signs = training_signs(first, train.prompts, train.contexts)
    second = SetTrees.fit(signs, train.reward, folds, recipe.seed)
    estimate = SetEstimate(first, second)
    calibration = parts["calibration"]
    known = HeldOut(
        learnt.beside(held["calibration"]),
        joined(signs, estimate.signs(calibration.prompts, calibration.contexts)),
        np.concatenate([folds, np.full(len(calibration), -1, dtype=np.intp)]),
        second,
    )
    policy = wanted if isinstance(wanted, KnowledgeGradient) else KnowledgeGradient()
    try:
        weighed = Weighed(known, unfitted, recipe.seed)
        compared = weighed.compare(policy, router.policy, router.costs)
        signal = weighed.signal(_based(router))
    except UsageError as error:
        return _told(router, {"chosen": False, "because": str(error)})
    facts: dict[str, Any] = {
        "chosen": compared.better,
        "because": compared.words(),
        "lead": compared.lead,
        "error": compared.error,
        "prompts": compared.prompts,
    }
    name = hashlib.sha256(f"{router.id} {recipe!r}".encode()).hexdigest()[:16]
    made = replace(router, costly=estimate, signal=signal, policy=policy, id=name)
    if "test" in held and len(parts["test"]):
        facts["test"] = tested(made, router, parts["test"], held["test"])
    return _told(made if compared.better else router, facts)


def _based(router: Router) -> FittedSignal:
    if not isinstance(router.signal, FittedSignal):
        raise UsageError(
            "fit.signal",
            expected="a calibrated signal model for `costly: {kind: opened}`",
            came=type(router.signal).__name__,
            do="Leave fit.signal out.",
        )
    return router.signal


def tested(made: Router, own: Router, test: Table, readings: Readings) -> dict[str, Any]:
    """Net rewards of both routers on complete test prompts, and their paired difference."""
    assert isinstance(made.costly, SetEstimate) and isinstance(made.signal, SetSignal)  # noqa: PT018
    signs = made.costly.signs(test.prompts, test.contexts)
    rows = np.flatnonzero(readings.complete & signs.there.all(axis=1))
    part = readings.rows(rows)
    if len(rows) < 2:
        return {"prompts": len(rows)}
    fresh = HeldOut(part, signs.rows(rows), np.full(len(rows), -1, dtype=np.intp), made.costly.second)
    routed = route_sets(made.signal, made.policy, part, fresh.raw, made.costs)
    before = search(own.policy, own.signal, part, own.costs)
    nets = [way.reward(part) - way.spent for way in (routed, before)]
    root = np.sqrt(len(rows))
    return {
        "prompts": len(rows),
        "opened": _facts(routed, nets[0]),
        "own beginnings": _facts(before, nets[1]),
        "lead": float((nets[0] - nets[1]).mean()),
        "lead_error": float((nets[0] - nets[1]).std(ddof=1) / root),
    }


def _facts(routed: Routed, net: Vector) -> dict[str, float]:
    return {
        "net_reward": float(net.mean()),
        "standard_error": float(net.std(ddof=1) / np.sqrt(len(net))),
        "spent": float(routed.spent.mean()),
        "inspections": float(routed.inspections.mean()),
    }


def _told(router: Router, facts: Mapping[str, Any]) -> Router:
    """The router with the results about opened sets in its record."""
    report = dict(router.record["report"])
    report["opened"] = dict(facts)
    ways = report.get("routing", {}).get("ways", {})
    if facts["chosen"] and "test" in facts and ROUTER in ways and "opened" in facts["test"]:
        shipped = {**ways[ROUTER], **facts["test"]["opened"]}
        report["routing"] = {**report["routing"], "ways": {**ways, ROUTER: shipped}}
    return replace(router, record={**router.record, "report": report})


def joined(first: Signs, second: Signs) -> Signs:
    """The features of some prompts followed by those of others."""
    pairs = zip(vars(first).values(), vars(second).values(), strict=True)
    return Signs(*(np.concatenate(pair) for pair in pairs))
