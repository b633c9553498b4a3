"""From a routing table to a router: f and g on train, signal model and policy on calibration, report on test.

    1. f and g are fitted on the train split.
    2. The calibration prompts are added to f; prompts of both splits get estimates made without themselves.
    3. Signal model and policy are fitted on those.
    4. The router is measured on the test split, which no earlier step used.
    5. The test prompts are added to f too, and the router is returned (unless `remember_test` is off).

f knows every prompt. All else reads at most `sample` training prompts and `HELD_OUT` of the other splits: g
is fitted, the signal model and the policy are chosen, and the report is measured on samples (docs/scale.md).
Splits with fewer prompts are read whole.

Prompts whose text (apart from white space) occurs in an earlier split are left out, and counted. Each stage
is a pure function of its key, so with a work folder an interrupted fit resumes after the last finished stage.
"""

from __future__ import annotations

import hashlib
import json
import platform
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from pandora_router.boxes import Costs
from pandora_router.boxes.costs import as_costs
from pandora_router.calibrate import (
    Auto,
    Calibrated,
    Candidate,
    GaussianJoint,
    SignalModel,
    Unfitted,
    ablate,
    candidates,
    guard,
)
from pandora_router.calibrate.readings import Readings
from pandora_router.calibrate.ways import Standing
from pandora_router.data import Table
from pandora_router.data.splits import HELD_OUT, SAMPLE
from pandora_router.data.table import normalise
from pandora_router.errors import UsageError
from pandora_router.estimators.estimator import Estimator, Predictor, Remembering
from pandora_router.estimators.states import is_saved, load_estimator
from pandora_router.estimators.states import write as write_estimator
from pandora_router.router.artifact import FitRecord
from pandora_router.router.fit_report import Priced, report
from pandora_router.router.inspection import Inspection, Waiting, purchase
from pandora_router.router.out_of_fold import Estimated, Part, estimated
from pandora_router.router.recipes import (
    Costly,
    External,
    NeighbourRecipe,
    Recipe,
    SetRecipe,
    TransformerRecipe,
)
from pandora_router.run.runner import InPlace, Runner
from pandora_router.search import Committing, KnowledgeGradient, Policy
from pandora_router.types import Advance

if TYPE_CHECKING:
    from pandora_router.router.router import Router

PACKAGES = ("pandora-router", "numpy", "scipy", "lightgbm", "wordllama", "tokenizers")
ENOUGH = 40  # prompts, of which the usual split keeps the 8 that calibration needs
COSTS = ("own", "shared", "refund")  # the parts of costs that distinguish one router from another


class System(NamedTuple):
    """The four parts of a router that a fit chooses where its caller names none."""

    cheap: Recipe
    costly: Costly
    signal: Unfitted
    policy: Policy


def system(preset: str | None = None) -> System:
    """The default parts (`preset` None), or those of the paper's router ("paper").

    The paper's router is its Algorithm 1: f from 3 neighbours, a fine-tuned transformer as g, a joint
    Gaussian of all G given f, the best committing policy by 100 samples with backup prices as outside
    options. Raises `UsageError` for another name.
    """
    if preset is None:
        return System(NeighbourRecipe(), SetRecipe(), Calibrated(), KnowledgeGradient())
    if preset != "paper":
        raise UsageError(
            "preset",
            expected="'paper' or None",
            came=repr(preset),
            do="Leave it out for the default router.",
        )
    return System(NeighbourRecipe(3), TransformerRecipe(), GaussianJoint(), Committing())


@dataclass(frozen=True, eq=False)
class Order:
    """All arguments of a fit."""

    table: Table
    cheap: Recipe
    costly: Costly
    signal: Unfitted
    policy: Policy | Auto
    inspection_cost: ArrayLike | Costs | Inspection
    default: str | None
    timeout: float | None
    settings: Mapping[str, Any]
    waiting: Waiting
    remember_test: bool = True
    sample: int = SAMPLE
    runner: Runner = field(default_factory=InPlace)

    def key(self, *parts: object) -> str:
        """Name of a stage: equal for the same data, recipe and versions."""
        identity = json.dumps([self.table.fingerprint(), self.versions(), *(repr(part) for part in parts)])
        return hashlib.sha256(identity.encode()).hexdigest()[:16]

    def versions(self) -> dict[str, str]:
        """The versions on which fitted numbers depend."""
        versions = {"python": platform.python_version()}
        more = ("torch", "onnxruntime") if isinstance(self.costly, TransformerRecipe) else ()
        for package in (*PACKAGES, *more):
            try:
                versions[package] = metadata.version(package)
            except metadata.PackageNotFoundError:
                versions[package] = "unknown"
        return versions


def fit(
    order: Order,
    say: Advance,
    work: Path | None,
    on_estimates: Callable[[Mapping[str, Readings]], None] | None = None,
) -> Router:
    """Run all stages; see `Router.fit`."""
    from pandora_router.router.router import Router

    begun = time.process_time()
    train, calibration, test, repeated = parted(order.table)
    whole = {"train": train, "calibration": calibration, "test": test}
    most = {"train": order.sample}
    splits = {
        name: Part.of(part, most.get(name, min(order.sample, HELD_OUT))) for name, part in whole.items()
    }
    parts = {name: part.table for name, part in splits.items()}
    say("fitting the cheap estimate", 0.0)
    recipe = order.cheap
    if isinstance(recipe, NeighbourRecipe):
        recipe = replace(recipe, sample=order.sample, runner=order.runner)
    cheap = _estimator(order, recipe, train, work, lambda what, share: say(what, 0.1 * share))
    fitted = _costly(order, parts["train"], work, lambda what, share: say(what, 0.1 + 0.7 * share))
    costly = fitted.estimator if isinstance(fitted, External) else fitted
    say("estimating calibration and test prompts", 0.8)
    known = estimated(
        cheap,
        fitted,
        _read(order, splits),
        _kept(order, work),
        lambda done, total: say("buying costly estimates", 0.8 + 0.05 * done / total),
    )
    held, learnt = known.held, known.train
    if on_estimates is not None:
        on_estimates(held)
    costs = costs_of(order, costly)
    say("fitting the signal model and weighing policies", 0.85)
    signal, policy, evidence = choose(order, held["calibration"], learnt, costs)
    measured = _measured(order, train, known, signal, policy, costs, say, parts["test"])
    default = order.default or measured["standing"]["single"]
    cheap, remembered = _shipped(order, known.cheap, train, calibration, test)
    counts = {"train": len(train), "calibration": len(calibration), "test": len(test), "left_out": repeated}
    counts["remembered"] = remembered
    sampled = {name: len(part.rows) for name, part in splits.items() if len(part.rows) < len(part.whole)}
    record = FitRecord(
        fingerprint=order.table.fingerprint(),
        prompts=counts | ({"sampled": sampled} if sampled else {}),
        versions=order.versions(),
        settings={**_told(order), **order.settings},
        evidence=evidence,
        lengths={name: dict(means) for name, means in order.table.lengths.items()},
        report=measured,
        fit_cpu_seconds=round(time.process_time() - begun, 2),
    )
    router = Router(
        specialists=order.table.specialists,
        cheap=cheap,
        costly=costly,
        signal=signal,
        policy=policy,
        costs=costs,
        default=default,
        fees=np.nanmean(train.fee, axis=0),
        fee_weight=order.table.fee_weight,
        id=order.key(
            *(*_told(order).values(), *(vars(costs)[n].tolist() for n in COSTS), default),
            *([costs.wait.tolist()] if len(costs.wait) else []),
            *(order.remember_test, *sampled.values()),
        ),
        record=record,
        timeout=order.timeout,
    )
    if not isinstance(order.costly, SetRecipe) or not order.costly.characters(train):
        return router
    from pandora_router.router.set_stage import with_sets

    router = with_sets(
        router, order.costly, order.signal, order.policy, parts, held, learnt, order.waiting, say
    )
    seconds = round(time.process_time() - begun, 2)
    return replace(router, record=replace(router.record, fit_cpu_seconds=seconds))


def _measured(
    order: Order,
    train: Table,
    known: Estimated,
    signal: SignalModel,
    policy: Policy,
    costs: Costs,
    say: Advance,
    test: Table,
) -> dict[str, Any]:
    """The report on held-out prompts, the best single and cheapest specialist, and the worth of each part."""
    say("checking on held-out prompts", 0.95)
    standing, mean = Standing.of(train.reward, train.fee), np.nanmean(train.reward, axis=0)
    measured = report(
        *(known.held, known.others, signal, order.signal, policy, costs),
        training_mean=mean,
        standing=standing,
        waiting=order.waiting,
        priced=priced(train),
        test=test,
    )
    say("weighing the parts of the signal model", 0.97)
    return measured | {
        "standing": {name: train.specialists[place] for name, place in asdict(standing).items()},
        "parts": parts_of(order.signal, policy, known.held["calibration"], known.train, costs),
    }


def priced(train: Table) -> Priced:
    """The weight of fees and their means over the training prompts."""
    return Priced(train.fee_weight, np.nanmean(train.fee, axis=0), train.specialists)


def _shipped(
    order: Order, cheap: Predictor, train: Table, calibration: Table, test: Table
) -> tuple[Predictor, int]:
    """The final cheap estimate, with the test prompts if wanted, and the number of prompts it knows."""
    if not isinstance(cheap, Remembering):
        return cheap, len(train)
    if not order.remember_test:
        return cheap, len(train) + len(calibration)
    return cheap.remember(test.prompts, test.reward), len(train) + len(calibration) + len(test)


def _read(order: Order, splits: Mapping[str, Part]) -> dict[str, Part]:
    """The splits to estimate: not the test split for estimates from outside, because they cost money."""
    without = isinstance(order.costly, External) or not len(splits["test"].whole)
    return {name: part for name, part in splits.items() if name != "test" or not without}


def _kept(order: Order, work: Path | None) -> Path | None:
    """Folder for readings; None for an unnamed estimator, which may be another one next time."""
    nameless = isinstance(order.costly, External) and order.costly.name == External.name
    if work is None or nameless:
        return None
    return work / f"readings-{order.key(order.cheap, order.costly, order.sample)}"


def parted(table: Table) -> tuple[Table, Table, Table, int]:
    """Train, calibration and test, without prompts of an earlier split, and the number of those."""
    train = table.in_split("train")
    seen = {normalise(prompt) for prompt in train.prompts}
    others, repeated = [], 0
    for name in ("calibration", "test"):
        part = table.in_split(name)
        texts = [normalise(prompt) for prompt in part.prompts]
        fresh = np.array([text not in seen for text in texts], dtype=np.bool_)
        repeated += int((~fresh).sum())
        seen.update(texts)
        others.append(part.rows(fresh))
    for what, part, least in (("train", train, 2), ("calibration", others[0], 8)):
        if len(part) < least:
            raise UsageError(
                f"the {what} split",
                expected=f"{least} or more prompts",
                came=f"{len(part)} (splits in the table: {sorted(set(table.split.tolist()))})",
                do="Draw a split: `pandora data import ... --seed 0`, or data.resplit(table, seed=0)."
                if len(table) >= ENOUGH
                else f"Score more prompts: {len(table)} are too few, {ENOUGH} enough for the usual split.",
            )
    unscored = [name for name in train.specialists if name not in train.answered]
    if unscored:
        raise UsageError(
            f"the specialist {unscored[0]!r}",
            expected="a score of at least one train prompt",
            came=f"none of {len(train):,}",
            do="Score some of its answers, or leave it out: fit.specialists in pandora.yaml, "
            "`table.only(...)` in Python.",
        )
    return train, others[0], others[1], repeated


def _estimator(order: Order, recipe: Recipe, train: Table, work: Path | None, say: Advance) -> Predictor:
    """The fitted estimator, read from the work folder if finished before."""
    if work is None:
        return recipe.fit(train, say)
    folder = work / f"estimator-{order.key(recipe, order.sample)}"
    if is_saved(folder):
        return load_estimator(folder, embedder=getattr(recipe, "embedder", None))
    fitted = recipe.fit(train, say, work / "parts")
    write_estimator(folder, fitted.state())
    shutil.rmtree(work / "parts", ignore_errors=True)
    return fitted


def _costly(order: Order, train: Table, work: Path | None, say: Advance) -> Predictor | External:
    if isinstance(order.costly, External):
        return order.costly
    return _estimator(order, order.costly, train, work, say)


def costs_of(order: Order, costly: Predictor | Estimator) -> Costs:
    """Inspection costs for boxes; one number is the price of one purchase."""
    boxes = len(order.table.specialists)
    if isinstance(order.inspection_cost, Inspection):
        return order.inspection_cost.costs(1.0, order.table.specialists)
    if isinstance(order.inspection_cost, Costs) or np.ndim(order.inspection_cost) > 0:
        return as_costs(order.inspection_cost, boxes)
    price = float(np.asarray(order.inspection_cost, dtype=np.float64))
    return purchase(price, boxes, together=costly.together)


def choose(
    order: Order, known: Readings, train: Readings | None, costs: Costs
) -> tuple[SignalModel, Policy, dict[str, Any]]:
    """The fitted signal model, the policy and the evidence for it.

    The default policy is guarded: it ships unless it did worse than never inspecting by more than one
    standard error (less with few prompts: `calibrate.Guarded`) on out-of-fold training and calibration
    prompts. A policy that was named ships as named.
    With too few complete prompts to compare anything a named policy, and the default, ship as they are.
    """
    policy = order.policy
    if isinstance(policy, Auto):
        auto = policy if policy.candidates else replace(policy, candidates=_runners(order, costs))
        choice = auto.choose(known, costs, train=train)
        return choice.signal, choice.candidate.policy, choice.to_dict()
    signal = order.signal.fit(known, train)
    try:
        guarded, choice = guard(order.signal, policy, known, costs, train=train)
    except UsageError as error:
        return signal, policy, {"chosen": "named", "policy": repr(policy), "none_because": str(error)}
    evidence = choice.to_dict() | {"best": choice.candidate.name}
    if policy == KnowledgeGradient():
        replaced = {"chosen": "guarded", "policy": repr(guarded.policy)}
        return signal, guarded.policy, evidence | replaced | {"guard": guarded.to_dict()}
    return signal, policy, evidence | {"chosen": "named", "policy": repr(policy)}


def parts_of(
    signal: Unfitted, policy: Policy, held: Readings, train: Readings | None, costs: Costs
) -> list[dict[str, Any]]:
    """What each part of a calibrated signal model contributes; empty for other models or too few prompts."""
    if not isinstance(signal, Calibrated):
        return []
    try:
        return [ablation.to_dict() for ablation in ablate(signal, policy, held, costs, train)]
    except UsageError:
        return []


def _runners(order: Order, costs: Costs) -> tuple[Candidate, ...]:
    """The default candidates that are possible with these costs."""
    signal = order.signal if isinstance(order.signal, Calibrated) else None
    usual = candidates(signal, specialists=len(costs))
    # with shared costs the committing policy must be simulated policy by policy: hours, not seconds
    return tuple(
        candidate
        for candidate in usual
        if not (len(costs.shared) and isinstance(candidate.policy, Committing))
    )


def _told(order: Order) -> dict[str, Any]:
    return {name: repr(getattr(order, name)) for name in ("cheap", "costly", "signal", "policy")}
