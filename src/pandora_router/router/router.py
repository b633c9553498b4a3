"""`Router`: a fitted router as one immutable object."""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from numpy.typing import ArrayLike

from pandora_router.boxes import Costs
from pandora_router.calibrate.signals import SignalModel
from pandora_router.errors import UsageError
from pandora_router.estimators.estimator import Estimator, Predictor, fitted
from pandora_router.router.deciding import Deciding, deciding
from pandora_router.router.decision import Decision
from pandora_router.router.driver import drive, finish, here, judged
from pandora_router.router.purchases import Offered
from pandora_router.search import Never, Policy
from pandora_router.specialists.threads import Work, Worker
from pandora_router.types import Advance, Vector, silent

if TYPE_CHECKING:
    from pandora_router.calibrate import Auto, Unfitted
    from pandora_router.calibrate.readings import Readings
    from pandora_router.data import Table
    from pandora_router.estimators.embedders.embedder import Embedder
    from pandora_router.router.artifact import FitRecord
    from pandora_router.router.fit_report import Report
    from pandora_router.router.inspection import Inspection, Waiting
    from pandora_router.router.recipes import Costly, Recipe
    from pandora_router.run.runner import Runner


@dataclass(frozen=True, eq=False)
class Router:
    """Estimators, signal model, policy and costs over named specialists.

    default: the specialist that answers if the router declines.
    fees: mean fees (M,) in the unit of the table, for display and for newcomers.
    record: facts about the fit: data fingerprint, settings, evidence, report.
    id: identifies the artifact in every decision.
    timeout: most seconds of one decision; estimates that have not arrived by then stay sealed.
    worker: runs the computations of `aroute`.
    bonus: (M,), added to the worth of each specialist beside its score and its fee (`weights.weighed`).
    """

    specialists: tuple[str, ...]
    cheap: Predictor = field(repr=False)
    costly: Predictor | Estimator = field(repr=False)
    signal: SignalModel = field(repr=False)
    policy: Policy
    costs: Costs = field(repr=False)
    default: str
    fees: Vector = field(repr=False)
    fee_weight: float
    id: str
    record: FitRecord = field(repr=False)
    timeout: float | None = 30.0
    worker: Worker = field(default_factory=Worker, repr=False)
    bonus: Vector | float = field(default=0.0, repr=False)

    def __post_init__(self) -> None:
        self.predictor  # noqa: B018 (refuses a costly estimate that keeps neither contract)
        if self.default not in self.specialists:
            raise UsageError(
                "the default specialist",
                expected=f"one of {', '.join(self.specialists)}",
                came=repr(self.default),
                do="Name a specialist that the router knows.",
            )

    @classmethod
    def fit(
        cls,
        table: Table,
        *,
        preset: Literal["paper"] | None = None,
        cheap: Recipe | None = None,
        costly: Costly | None = None,
        signal: Unfitted | None = None,
        policy: Policy | Auto | None = None,
        inspection_cost: ArrayLike | Costs | Inspection = 0.01,
        waiting: Waiting | None = None,
        default: str | None = None,
        timeout: float | None = 30.0,
        progress: Advance | None = None,
        work: Path | str | None = None,
        settings: Mapping[str, Any] | None = None,
        on_estimates: Callable[[Mapping[str, Readings]], None] | None = None,
        remember_test: bool = True,
        sample: int | None = None,
        runner: Runner | None = None,
    ) -> Router:
        """Fit f and g on the train split, the signal model and `Auto` on the calibration split.

        `record.report` was measured on the test split before anything used it. The returned router also
        knows the test prompts (its cheap estimate averages over all known prompts): to measure it on them
        yourself, pass `remember_test=False`.

        preset: "paper" fits the router of the paper (f from 3 neighbours, a fine-tuned transformer, a joint
            Gaussian, the committing policy; extra `[transformer]`). Parts given as arguments win.
        inspection_cost: one number is the price of one purchase: of all specialists if g shows them together,
            otherwise of each.
        waiting: what a second costs, and the seconds of looks and answers. The report decides as a gateway
            does that counts them, and tells them apart from money. The price of the seconds of a look is the
            `wait` of `inspection_cost`.
        default: by default the specialist with the highest mean reward in training.
        work: folder for finished stages, so that an interrupted fit can resume.
        settings: written to the artifact together with what was chosen.
        on_estimates: called once with the estimates and rewards of held-out prompts, by split ("calibration"
            and, unless g is external, "test").
        sample: most training prompts that g, the signal model and the policy read (None: 100,000), and most
            of another split if that is less than 30,000; the cheap estimate knows all.
            `record.prompts["sampled"]` names the splits that have more.
        runner: embeds the known prompts where there are more than `sample` (None: this process); the router
            is the same.
        """
        from pandora_router.data.splits import SAMPLE
        from pandora_router.router.inspection import Waiting
        from pandora_router.router.table_fit import Order, fit, system
        from pandora_router.run.runner import InPlace

        usual = system(preset)
        order = Order(
            table=table,
            cheap=cheap or usual.cheap,
            costly=costly or usual.costly,
            signal=signal or usual.signal,
            policy=policy or usual.policy,
            inspection_cost=inspection_cost,
            default=default,
            timeout=timeout,
            settings=dict(settings or {}),
            waiting=waiting or Waiting.none(len(table.specialists)),
            remember_test=remember_test,
            sample=sample or SAMPLE,
            runner=runner or InPlace(),
        )
        say = progress or silent
        return fit(order, say, None if work is None else Path(work), on_estimates)

    @property
    def deducted(self) -> Vector:
        """Expected score minus expected worth of each specialist (M,): fee_weight * fees - bonus."""
        return self.fee_weight * self.fees - self.bonus

    def route(
        self,
        prompt: str,
        contexts: Offered | None = None,
        *,
        timeout: float | None = None,
        among: Collection[str] | None = None,
    ) -> Decision:
        """Choose the specialist for a prompt; `contexts` are beginnings of answers, by specialist.

        Prompts that cannot be judged are declined with a reason. `timeout` replaces the router's. With
        `among`, only these specialists are inspected or chosen (a declined decision names the default, or the
        one of them with the lowest mean fee if the default is not among them).
        Raises `UsageError` for a prompt that is not text, for a context of an unknown specialist, and if
        costly estimates must be awaited while an event loop runs in this thread.
        """
        return self._route(prompt, contexts, self._until(timeout), among)

    async def aroute(
        self,
        prompt: str,
        contexts: Offered | None = None,
        *,
        timeout: float | None = None,
        among: Collection[str] | None = None,
    ) -> Decision:
        """As `route`, on an event loop; the router's `worker` runs all computations."""
        until = self._until(timeout)
        if self.predictor is not None:
            return await self.worker(self._route, prompt, contexts, until, among)
        return await self._decide(prompt, contexts, until, among, self.worker)

    def _until(self, timeout: float | None) -> float:
        allowed = self.timeout if timeout is None else timeout
        return math.inf if allowed is None else time.monotonic() + allowed

    def _route(
        self, prompt: str, contexts: Offered | None, until: float, among: Collection[str] | None
    ) -> Decision:
        return finish(self._decide(prompt, contexts, until, among, here), waits=self.predictor is None)

    async def _decide(
        self, prompt: str, contexts: Offered | None, until: float, among: Collection[str] | None, work: Work
    ) -> Decision:
        return (await drive(self, [self._deciding(prompt, contexts, among)], work, until))[0]

    def _deciding(self, prompt: str, contexts: Offered | None, among: Collection[str] | None) -> Deciding:
        """`deciding`, with the cheap estimates computed at its first step."""
        cheap = judged(self.cheap, [prompt])[0]
        return (yield from deciding(self, prompt, cheap, contexts, among))

    def route_batch(
        self,
        prompts: Sequence[str],
        contexts: Sequence[Offered | None] | None = None,
        *,
        among: Collection[str] | None = None,
    ) -> list[Decision]:
        """Decide for many prompts: the same decisions as `route`, with purchases made in rounds.

        A prompt that cannot be judged is declined without affecting the others.
        """
        from pandora_router.router.prompt_batch import route_batch

        return finish(route_batch(self, prompts, contexts, among), waits=self.predictor is None)

    def warm(self) -> None:
        """Do now what the first decision would wait for: compile kernels, load lazy parts.

        Decides two prompts, without estimates from outside.
        """
        from pandora_router.search import kernels

        kernels.warm()
        local = self if self.predictor is not None else self.with_policy(Never())
        local.route("Is this a prompt?")
        local.route_batch(["Is this a prompt?"])

    def add_specialist(
        self, name: str, prompts: Sequence[str], score: ArrayLike, *, fee: ArrayLike, **options: Any
    ) -> Router:
        """A router with one more specialist, from a few dozen scored prompts; the others do not change.

        See `newcomer.add_specialist` for the options.
        """
        from pandora_router.router.add_specialist import add_specialist

        return add_specialist(self, name, prompts, score, fee=fee, **options)

    def add_unscored(self, name: str, fee: float, *, inspection_cost: float | None = None) -> Router:
        """A router with one more specialist, of which only the mean fee is known; the others do not change.

        It is taken for an average colleague at this fee, until `learn.refit` knows ratings of its answers.
        """
        from pandora_router.router.add_specialist import add_unscored

        return add_unscored(self, name, fee, inspection_cost=inspection_cost)

    def save(self, path: Path | str, *, replace: bool = False, inputs: Iterable[Path] = ()) -> None:
        """Write this router to the folder `path`, atomically: a crash leaves the old one or the new one.

        Raises `UsageError` if `path` exists, unless it is a router and `replace` is true, and if `path` is,
        contains or lies within one of the `inputs` (what the router was fitted on).
        """
        from pandora_router.router.artifact import save

        save(self, Path(path), replace=replace, inputs=inputs)

    @classmethod
    def load(
        cls, path: Path | str, *, costly: Estimator | None = None, embedder: Embedder | None = None
    ) -> Router:
        """Read an artifact.

        `costly` and `embedder` only if the router was fitted with ones made elsewhere.
        """
        from pandora_router.router.artifact import load

        return load(Path(path), costly=costly, embedder=embedder)

    def with_policy(self, policy: Policy) -> Router:
        """The same router with another policy, and an id that says so."""
        return replace(self, policy=policy, id=f"{self.id.split('/')[0]}/{policy!r}")

    @property
    def report(self) -> Report:
        """What the fit measured on held-out prompts: `print(router.report)`."""
        from pandora_router.router.fit_report import Report

        return Report(self.record.report, self.fee_weight, self.record.currency)

    @functools.cached_property
    def predictor(self) -> Predictor | None:
        """The costly estimate if it is computed in this process, else None."""
        return fitted(self.costly)

    @functools.cached_property
    def needs(self) -> frozenset[str]:
        """The specialists whose costly estimate needs a context."""
        return self.costly.needs

    @functools.cached_property
    def policy_text(self) -> str:
        """The name of the policy in decisions."""
        return repr(self.policy)
