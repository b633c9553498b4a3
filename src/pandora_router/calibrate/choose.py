"""Choose signal model and policy by cross-validated regret + cost at the configured inspection cost.

Never and always inspecting are among the candidates, so that, up to noise, the choice is at no cost worse
than the better of them. Each fold is searched with a model fitted on the others; the loss of a prompt is

    max_m R_m - R_chosen + what was spent

By default the candidate with the lowest mean loss is chosen: a one-standard-error rule cost up to .009 at
single costs on real data (docs/method.md, section 9). The default router uses `guard`: the search is kept
unless it is clearly worse than never inspecting.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pandora_router.boxes import Costs
from pandora_router.boxes.costs import as_costs
from pandora_router.calibrate.diagnostics import folds_of
from pandora_router.calibrate.readings import Readings
from pandora_router.calibrate.reward_mean import NewsSlope
from pandora_router.calibrate.signals import Calibrated, GaussianJoint, SignalModel, Unfitted
from pandora_router.calibrate.ways import ALWAYS, NEVER, search
from pandora_router.errors import UsageError
from pandora_router.search import (
    Always,
    Committing,
    KnowledgeGradient,
    Never,
    Policy,
    Rollout,
)
from pandora_router.types import Mask, Positions

SIMULATED = 20  # with more specialists the paper's simulated payoffs take too long to cross-validate
WHOLE = -1  # no fold is held out
Fits = dict[tuple[Unfitted, int], SignalModel]
SEARCH = "search"  # the policy that buys, beside never and always
MOST = 3000  # training prompts judged: more would change no choice
MANY = 400  # judged prompts from which the guard allows a search to be one standard error behind
FEWEST = 20  # complete prompts below which nothing is chosen


@dataclass(frozen=True)
class Candidate:
    """A signal model and the policy that would search its boxes."""

    name: str
    signal: Unfitted
    policy: Policy


def candidates(signal: Calibrated | None = None, *, specialists: int = 2) -> tuple[Candidate, ...]:
    """The default candidates around a calibrated signal model, simplest first.

    Policies that use marginal distributions get the model with the normal law, for which they are compiled;
    the paper's committing policy gets the paper's signal model.
    """
    signal = signal or Calibrated()
    normal = replace(signal, law="normal")
    simulated = specialists <= SIMULATED
    return (
        Candidate(NEVER, signal, Never()),
        Candidate(ALWAYS, signal, Always()),
        Candidate("knowledge gradient", signal, KnowledgeGradient()),
        Candidate("knowledge gradient, normal law", normal, KnowledgeGradient()),
        Candidate("rollout", normal, Rollout()),
        Candidate(
            "committing (paper)" if simulated else "committing (exact payoffs)",
            GaussianJoint(signal.mean),
            Committing() if simulated else Committing(payoff="exact"),
        ),
    )


@dataclass(frozen=True)
class CandidateLoss:
    """A candidate's loss per prompt in cross-validation, and its paired difference to the best."""

    name: str
    loss: float
    standard_error: float
    regret: float
    inspection_cost: float
    inspections: float
    behind: float
    behind_error: float


@dataclass(frozen=True, eq=False)
class ChosenPolicy:
    """The chosen candidate, its signal model fitted on all prompts, and the evidence for it.

    `incomplete` prompts lack a costly estimate or a reward: they are used for fitting only.
    """

    candidate: Candidate
    signal: SignalModel
    evidence: tuple[CandidateLoss, ...]
    prompts: int
    incomplete: int
    folds: int
    rule: str
    totals: NDArray[Any] = field(repr=False)  # loss of each candidate on each judged prompt

    def lead(self, first: str, second: str) -> tuple[float, float]:
        """How much less candidate `first` lost per prompt than `second`, and its paired standard error."""
        names = [row.name for row in self.evidence]
        gap = self.totals[names.index(second)] - self.totals[names.index(first)]
        return float(gap.mean()), float(gap.std(ddof=1) / np.sqrt(len(gap)))

    def to_dict(self) -> dict[str, Any]:
        """The choice and its evidence as plain values, ready for JSON."""
        return {
            "chosen": self.candidate.name,
            "policy": repr(self.candidate.policy),
            "signal": repr(self.candidate.signal),
            "rule": self.rule,
            "folds": self.folds,
            "prompts": self.prompts,
            "incomplete_prompts": self.incomplete,
            "evidence": [asdict(row) for row in self.evidence],
        }


@dataclass(frozen=True)
class Auto:
    """Choose among candidates by K-fold cross-validation; ties go to the earlier one.

    `rule="one_standard_error"` chooses, among those within one paired standard error of the best, the one
    with the fewest inspections.
    """

    candidates: tuple[Candidate, ...] = field(default=())
    folds: int = 5
    rule: Literal["mean", "one_standard_error"] = "mean"
    seed: int = 0

    def __post_init__(self) -> None:
        if self.rule not in ("mean", "one_standard_error"):
            raise UsageError(
                "rule", expected="'mean' or 'one_standard_error'", came=repr(self.rule), do="Choose one."
            )

    def choose(
        self,
        readings: Readings,
        inspection_cost: ArrayLike | Costs,
        fits: Fits | None = None,
        train: Readings | None = None,
    ) -> ChosenPolicy:
        """The best candidate on calibration prompts at this inspection cost.

        `train` has left-out f and out-of-fold g of training prompts: models may be fitted on them, and up to
        `MOST` complete ones are evaluated in addition to the calibration prompts, each by a model fitted
        without its fold. Signal models do not depend on costs: to choose at several costs on the same
        prompts, pass the same `fits`, an initially empty dictionary. Raises `UsageError` with too few
        complete prompts.
        """
        fits = {} if fits is None else fits
        readings = readings.enough()
        boxes = readings.cheap.shape[1]
        costs = as_costs(inspection_cost, boxes)
        runners = self.candidates or candidates(specialists=boxes)
        judged = int(readings.complete.sum())
        if judged < FEWEST:
            raise UsageError(
                "choosing a policy",
                expected=f"{FEWEST} or more prompts with every costly estimate and every reward",
                came=f"{judged} of {len(readings)}",
                do="Fill in missing cells, or name a policy instead of choosing one.",
            )
        losses = self._losses(readings, train, costs, runners, fits)
        evidence = _evidence(runners, losses)
        winner = runners[self._best(evidence)]
        return ChosenPolicy(
            winner,
            _fitted(winner.signal, readings, train, WHOLE, fits),
            evidence,
            losses.shape[2],
            len(readings) - judged,
            self.folds,
            self.rule,
            losses[:, 0] + losses[:, 1],
        )

    def _losses(
        self,
        readings: Readings,
        train: Readings | None,
        costs: Costs,
        runners: tuple[Candidate, ...],
        fits: Fits,
    ) -> NDArray[Any]:
        """Regret, cost and inspections (candidates, 3, prompts) of each candidate on each judged prompt."""
        chosen, fold_of = self._judged(train)
        parts: list[NDArray[Any]] = []
        for fold, held in enumerate(folds_of(len(readings), self.folds, self.seed)):
            tests = [part for part in (_some(readings, held & readings.complete),) if part is not None]
            rest, training = readings.rows(~held), train
            if train is not None:
                training = train.rows(fold_of != fold)
                if (more := _some(train, chosen & (fold_of == fold))) is not None:
                    tests.append(more)
            for judged in tests:
                losses = np.empty((len(runners), 3, len(judged)))
                for k, runner in enumerate(runners):
                    model = _fitted(runner.signal, rest, training, fold, fits)
                    routed = search(runner.policy, model, judged, costs)
                    losses[k] = np.stack([routed.regret(judged), routed.spent, routed.inspections])
                parts.append(losses)
        return np.concatenate(parts, axis=2)

    def _judged(self, train: Readings | None) -> tuple[Mask, Positions]:
        """Which training prompts are judged (N,), and the fold of each."""
        if train is None:
            return np.zeros(0, dtype=np.bool_), np.zeros(0, dtype=np.intp)
        rng = np.random.default_rng(self.seed)
        chosen = np.zeros(len(train), dtype=np.bool_)
        chosen[rng.permutation(np.flatnonzero(train.complete))[:MOST]] = True
        return chosen, rng.permutation(len(train)) % self.folds

    def _best(self, evidence: tuple[CandidateLoss, ...]) -> int:
        leader = int(np.argmin([row.loss for row in evidence]))
        if self.rule == "mean":
            return leader
        near = [k for k, row in enumerate(evidence) if row.behind <= row.behind_error]
        return min(near, key=lambda k: (evidence[k].inspections, k))


def _some(readings: Readings, which: Mask) -> Readings | None:
    """The picked prompts, or None if there are none."""
    return readings.rows(which) if which.any() else None


def _fitted(
    signal: Unfitted, readings: Readings, train: Readings | None, fold: int, fits: Fits
) -> SignalModel:
    """The model fitted on these readings, which are those left when `fold` is held out."""
    if (signal, fold) not in fits:
        fits[signal, fold] = signal.fit(readings, train)
    return fits[signal, fold]


@dataclass(frozen=True)
class Guarded:
    """What ships: the search, unless it did worse than never inspecting by more than `tolerance`.

    `gain` is how much more reward per prompt the search earned than never inspecting, on `prompts` prompts
    that fitted nothing of what judged them, and `error` its paired standard error. `news` says how far the
    costly estimates could be believed, None if that is not known.
    """

    policy: Policy
    gain: float
    error: float
    prompts: int
    news: NewsSlope | None = None

    @classmethod
    def of(cls, policy: Policy, gain: float, error: float, prompts: int) -> Self:
        """Apply the rule to a search that earned `gain` more than never inspecting."""
        guarded = cls(policy, gain, error, prompts)
        return replace(guarded, policy=Never()) if gain < -guarded.tolerance else guarded

    @property
    def tolerance(self) -> float:
        """How far the search may be behind: one standard error, with fewer than `MANY` prompts less.

        With few prompts the standard error is large and the slope of the signal model is mostly its prior,
        so a search that looks bad is bad more often than chance alone would make it.
        """
        return self.error * min(1.0, self.prompts / MANY)

    @property
    def on(self) -> bool:
        """Whether estimates are bought at all."""
        return not isinstance(self.policy, Never)

    def to_dict(self) -> dict[str, Any]:
        """The evidence as plain values, ready for JSON; gain and error in units of reward per prompt."""
        news = {} if self.news is None else {"news": self.news.to_dict()}
        return {"on": self.on, "gain": self.gain, "error": self.error, "prompts": self.prompts} | news


def guard(
    signal: Unfitted,
    policy: Policy,
    readings: Readings,
    costs: Costs,
    *,
    train: Readings | None = None,
    fits: Fits | None = None,
) -> tuple[Guarded, ChosenPolicy]:
    """Compare never, always and the search; see `Guarded` for the rule (docs/method.md, section 11).

    Raises `UsageError` with too few complete calibration prompts to compare anything.
    """
    runners = (
        Candidate(NEVER, signal, Never()),
        Candidate(ALWAYS, signal, Always()),
        Candidate(SEARCH, signal, policy),
    )
    choice = Auto(runners).choose(readings, costs, fits, train)
    gain, error = choice.lead(SEARCH, NEVER)
    guarded = Guarded.of(policy, gain, error, choice.prompts)
    return replace(guarded, news=_news(choice.signal, readings, train)), choice


def _news(model: SignalModel, readings: Readings, train: Readings | None) -> NewsSlope | None:
    """How far costly estimates of known prompts could be believed."""
    known, more = (
        None if part is None else (model.expected(part.cheap), part.costly, part.reward)
        for part in (readings, train)
    )
    return None if known is None else NewsSlope.of(known, more)


def _evidence(runners: tuple[Candidate, ...], losses: NDArray[Any]) -> tuple[CandidateLoss, ...]:
    total = losses[:, 0] + losses[:, 1]
    best = total[int(total.mean(axis=1).argmin())]
    root = np.sqrt(total.shape[1])
    return tuple(
        CandidateLoss(
            name=runner.name,
            loss=float(total[k].mean()),
            standard_error=float(total[k].std(ddof=1) / root),
            regret=float(losses[k, 0].mean()),
            inspection_cost=float(losses[k, 1].mean()),
            inspections=float(losses[k, 2].mean()),
            behind=float((total[k] - best).mean()),
            behind_error=float((total[k] - best).std(ddof=1) / root),
        )
        for k, runner in enumerate(runners)
    )
