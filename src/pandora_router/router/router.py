"""`Router`: a fitted router as one immutable value, from a prompt to a Decision."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from pandora_router.boxes import Boxes, Costs
from pandora_router.calibrate import Auto, Calibrated, SignalModel, Unfitted
from pandora_router.data import Table
from pandora_router.errors import UpstreamError, UsageError
from pandora_router.estimators.embedders import Embedder
from pandora_router.estimators.estimator import Estimator, Predictor, fitted
from pandora_router.router.decision import Decision, Estimates, Prices, declined, new_id, std_of
from pandora_router.router.inspection import Inspection
from pandora_router.router.opening import Purchases, checked_contexts, finish, is_local
from pandora_router.router.recipes import Costly, NeighbourRecipe, Recipe, StackRecipe
from pandora_router.search import KnowledgeGradient, Policy, State, Trace, adrive
from pandora_router.types import Advance, Vector

Contexts = Mapping[str, str]


@dataclass(frozen=True, eq=False)
class Router:
    """Estimators, signal model, policy and costs over named specialists.

    `default` answers where the router declines. `fees` (M,) are mean fees in the unit of the table, for
    display and newcomers. `record` is what is told about the fit: data fingerprint, settings, evidence,
    report. `id` names the artifact in every decision.
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
    record: Mapping[str, Any] = field(repr=False)
    timeout: float | None = 30.0

    def __post_init__(self) -> None:
        fitted(self.costly)  # refuses what keeps neither contract
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
        cheap: Recipe | None = None,
        costly: Costly | None = None,
        signal: Unfitted | None = None,
        policy: Policy | Auto | None = None,
        inspection_cost: ArrayLike | Costs | Inspection = 0.01,
        default: str | None = None,
        timeout: float | None = 30.0,
        progress: Advance | None = None,
        work: Path | str | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> Router:
        """Fit f and g on the train split, the signal model and `Auto` on the calibration split.

        One number for `inspection_cost` is the price of one purchase: of all specialists where g shows
        them together, of each otherwise. Without `default` it is the specialist of highest mean reward in
        training. Stages are kept in `work`, so that a second start goes on where the first one stopped.
        `settings` is written into the artifact beside what was chosen.
        """
        from pandora_router.router.fitting import Order, fit

        order = Order(
            table=table,
            cheap=cheap or NeighbourRecipe(),
            costly=costly or StackRecipe(),
            signal=signal or Calibrated(),
            policy=policy or KnowledgeGradient(),
            inspection_cost=inspection_cost,
            default=default,
            timeout=timeout,
            settings=dict(settings or {}),
        )
        return fit(order, progress or (lambda what, share: None), None if work is None else Path(work))

    def route(self, prompt: str, contexts: Contexts | None = None) -> Decision:
        """Decide who answers a prompt; `contexts` are what specialists have begun to say, by name."""
        return finish(self.aroute(prompt, contexts), waits=not is_local(self.costly))

    async def aroute(self, prompt: str, contexts: Contexts | None = None) -> Decision:
        """As `route`, awaiting costly estimates that come from outside."""
        begun = time.perf_counter()
        row = self.judge([prompt])
        if isinstance(row, str):
            return self.decline(row, time.perf_counter() - begun)
        purchases = self.purchases(prompt, contexts, row[0])
        boxes = self.boxes(purchases)
        trace = await adrive(self.policy, State(boxes), purchases.open)
        prices = Prices.of(boxes)
        return self.conclude(purchases, boxes, prices, trace, time.perf_counter() - begun)

    def route_batch(
        self, prompts: Sequence[str], contexts: Sequence[Contexts | None] | None = None
    ) -> list[Decision]:
        """Decide for many prompts: the same decisions as `route`, with purchases made in rounds."""
        from pandora_router.router.batch import route_batch

        return finish(route_batch(self, prompts, contexts), waits=not is_local(self.costly))

    def add_specialist(
        self, name: str, prompts: Sequence[str], score: ArrayLike, *, fee: ArrayLike, **options: Any
    ) -> Router:
        """A router with one more specialist from a few dozen scored prompts; the others stay as they are.

        See `newcomer.add_specialist` for the options.
        """
        from pandora_router.router.newcomer import add_specialist

        return add_specialist(self, name, prompts, score, fee=fee, **options)

    def save(self, path: Path | str, *, replace: bool = False) -> None:
        """Write the artifact: a folder that is there whole or not at all."""
        from pandora_router.router.artifact import save

        save(self, Path(path), replace=replace)

    @classmethod
    def load(
        cls, path: Path | str, *, costly: Estimator | None = None, embedder: Embedder | None = None
    ) -> Router:
        """Read an artifact back; `costly` and `embedder` only if they were handed over ready made."""
        from pandora_router.router.artifact import load

        return load(Path(path), costly=costly, embedder=embedder)

    def with_policy(self, policy: Policy) -> Router:
        """The same router searching in another way; the id says so."""
        return replace(self, policy=policy, id=f"{self.id.split('/')[0]}/{policy!r}")

    def judge(self, prompts: Sequence[str]) -> np.ndarray | str:
        """Cheap estimates (prompts, M), or why there are none."""
        if any(not isinstance(prompt, str) for prompt in prompts):
            raise UsageError("a prompt", expected="a text", came="something else", do="Pass a str.")
        if not all(prompt.strip() for prompt in prompts):
            return "the prompt is empty"
        try:
            rows = self.cheap.predict(prompts)
        except (UpstreamError, TimeoutError, OSError) as error:
            return f"the cheap estimate could not be had: {error}"
        return rows if np.isfinite(rows).all() else "the cheap estimate is not a finite number"

    def decline(self, because: str, seconds: float) -> Decision:
        """The default, with the reason."""
        return declined(
            self.specialists,
            self.default,
            because,
            policy=repr(self.policy),
            artifact=self.id,
            seconds=seconds,
        )

    def purchases(self, prompt: str, contexts: Contexts | None, cheap: Vector) -> Purchases:
        """An empty basket for one prompt."""
        given = checked_contexts(contexts, self.specialists)
        return Purchases(
            prompt, given, self.specialists, self.costly, self.signal, cheap, timeout=self.timeout
        )

    def boxes(self, purchases: Purchases) -> Boxes:
        """What is known of the specialists before anything is bought; those not for sale are not sealed."""
        boxes = self.signal.boxes(purchases.cheap, self.costs)
        closed = purchases.closed()
        return boxes.shut(closed) if closed.any() else boxes

    def conclude(
        self, bought: Purchases, boxes: Boxes, prices: Prices, trace: Trace, seconds: float
    ) -> Decision:
        """The decision at the end of a search."""
        known = Estimates(
            self.specialists, bought.cheap, boxes.mean, std_of(boxes), dict(bought.told), dict(bought.notes)
        )
        name = self.specialists[trace.selected]
        return Decision(new_id(), name, trace, known, prices, repr(self.policy), self.id, seconds)
