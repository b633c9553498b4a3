"""The signal model of estimates from everything opened so far (docs/method.md, section 12).

    m_S = projection of the full-information estimate on (estimates given S, f),  a ridge per set

so that m_S is a martingale in S on held-out prompts: further openings change it by 0 on average. The
full-information estimate is itself a ridge of rewards. The law of the next step says how all means change
when box j is opened next: a fitted table of equally likely joint changes times a scale that depends on the
present mean of j, rescaled so that the gain it predicts on held-out prompts equals the realised gain.

A search starts at m(f), the mean of `FittedSignal`, so that it chooses as never inspecting does if it opens
nothing; the projection for the empty set only serves to fit the law.

A set says how often each specialist was inspected, its tier: 0, 1 (a look), or 2 (a look and a judge's
verdict on it). With up to `LATTICE` sets there is a ridge and a law for each, otherwise for each number of
looks and verdicts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from pandora_router.boxes import Boxes, Costs, Moving
from pandora_router.boxes.costs import as_costs
from pandora_router.calibrate.means import STRENGTHS, fit_ridge
from pandora_router.calibrate.readings import Readings, estimates
from pandora_router.calibrate.residuals import Scale, fit_scale
from pandora_router.calibrate.signals import FittedSignal, Prior
from pandora_router.calibrate.ways import Routed
from pandora_router.errors import UsageError
from pandora_router.search import Always, Policy
from pandora_router.search.moving import MovingBatch, run_moving
from pandora_router.types import Matrix, Positions, Vector

LATTICE = 16
OUTCOMES = 32  # equally likely changes in a law
FEWEST = 60  # held-out prompts below which no law is fitted
FACTORS = np.linspace(0.5, 2.5, 41)
Raw = Callable[[Positions, Positions], Matrix]
"""(rows, tier (n, M)) -> raw estimates (n, M) of these prompts for all specialists, given what is open."""
SetEstimates = tuple[Positions, Matrix]
"""Tiers (N, M), and the estimates or means (N, M) given them."""


def codes(tier: Positions, tiers: int = 1) -> Positions:
    """Code of the ridge and law for each set (N, M), if boxes can be inspected up to `tiers` times.

    The tiers as digits, or with many sets the numbers of boxes inspected at least once and at least twice.
    """
    boxes = tier.shape[1]
    if (tiers + 1) ** boxes <= LATTICE:
        return np.asarray(tier @ (tiers + 1) ** np.arange(boxes), dtype=np.intp)
    reached = [(tier > k).sum(axis=1) for k in range(tiers)]
    return np.asarray(sum(count * (boxes + 1) ** k for k, count in enumerate(reached)), dtype=np.intp)


def kinds(boxes: int, tiers: int = 1) -> int:
    """The number of codes."""
    every: int = (tiers + 1) ** boxes
    return every if every <= LATTICE else (boxes + 1) ** tiers


@dataclass(frozen=True, eq=False)
class FittedMovement:
    """Laws of the next step by code and next inspection: `base` (K, T M, Q, M), and a column of `scale` each.

    Inspection number t M + j is that of box j after it was inspected t times. `columns` are the boxes that
    take part, out of all M; the others stay sealed.
    """

    base: Matrix
    scale: Scale
    columns: Positions

    @property
    def tiers(self) -> int:
        """How often a box can be inspected."""
        return self.base.shape[1] // self.base.shape[3]

    def steps(self, tier: Positions, mean: Matrix, box: int) -> Matrix:
        """The equally likely changes (N, Q, M) of all means when `box` is inspected next."""
        total = self.base.shape[3]
        whole = np.zeros((len(tier), total), dtype=np.intp)
        whole[:, self.columns] = tier
        at, code = total * tier[:, box] + int(self.columns[box]), codes(whole, self.tiers)
        law = code * self.base.shape[1] + at
        low, high = self.scale.lowest[law], self.scale.highest[law]
        z = (np.clip(mean[:, box], low, high) - self.scale.centre[law]) / self.scale.spread[law]
        a, b, c = self.scale.coefficients[law].T
        size = np.exp(0.5 * (a + z * (b + z * c)))
        steps: Matrix = size[:, None, None] * self.base[code, at][:, :, self.columns]
        return steps

    def only(self, boxes: Positions) -> FittedMovement:
        """The law of some of the boxes."""
        return replace(self, columns=self.columns[boxes])


@dataclass(frozen=True, eq=False)
class SetPrior(Prior):
    """What is known of one prompt before anything is opened, and how later estimates are read."""

    signal: SetSignal | None = None
    cheap: Vector | None = None

    def means(self, tier: Positions, everyone: Vector) -> tuple[float, ...] | None:
        """The means of all boxes, inspected `tier` (M,) times, given the estimates `everyone` (M,).

        They are relative to the means of the boxes, so a constant that was added to a box stays added.
        """
        assert self.signal is not None and self.cheap is not None  # noqa: PT018
        shown = self.signal.means(self.cheap[None], tier[None], everyone[None])[0]
        return tuple((self.boxes.mean + (shown - self.anchor)).tolist())


@dataclass(frozen=True, eq=False)
class SetSignal:
    """The fitted model. `base` is the model of own-beginning estimates, kept for its mean and its reports.

    `weights` (K, 2 M, M) and `intercept` (K, M) project (estimates given S, f) on the means m_S.
    """

    base: FittedSignal
    weights: Matrix
    intercept: Matrix
    movement: FittedMovement

    def means(self, cheap: Matrix, tier: Positions, raw: Matrix) -> Matrix:
        """m_S (N, M) from cheap estimates (N, M) and estimates given S (N, M), ignored where S is empty."""
        code = codes(tier, self.movement.tiers)
        inputs = np.concatenate([np.where((code == 0)[:, None], 0.0, raw), cheap], axis=1)
        means: Matrix = np.einsum("np,npm->nm", inputs, self.weights[code]) + self.intercept[code]
        return means

    def start(self, cheap: Matrix) -> Matrix:
        """The means before anything is opened (N, M): m(f), so that not opening is never inspecting."""
        return self.base.believed(cheap)

    def expected(self, cheap: ArrayLike) -> Matrix:
        """As for the model of own-beginning estimates."""
        return self.base.expected(cheap)

    def spread(self, cheap: ArrayLike) -> Matrix:
        """As for the model of own-beginning estimates."""
        return self.base.spread(cheap)

    def boxes(self, estimates: ArrayLike, inspection_cost: ArrayLike | Costs) -> Boxes:
        """The boxes of one prompt with cheap estimates (M,)."""
        return self.prior(estimates, inspection_cost).boxes

    def prior(self, row: ArrayLike, inspection_cost: ArrayLike | Costs) -> Prior:
        """The boxes, and how estimates given everything opened become means."""
        cheap = estimates(row, self.weights.shape[2], ndim=1)
        start = self.start(cheap[None])[0]
        costs = self._sold(as_costs(inspection_cost, len(start)))
        return SetPrior(Moving(start, self.movement, costs), start, 1.0, self, cheap)

    def batch(self, cheap: ArrayLike, inspection_cost: Costs) -> MovingBatch:
        """The boxes of many prompts (N, M) at once."""
        return MovingBatch(self.start(np.asarray(cheap)), self.movement, self._sold(inspection_cost))

    def _sold(self, costs: Costs) -> Costs:
        """The costs of what this model knows: without verdicts if it was fitted without them."""
        return costs if self.movement.tiers > 1 else costs.once

    def values(self, cheap: ArrayLike, costly: ArrayLike) -> Matrix:
        """As for the model of own-beginning estimates."""
        return self.base.values(cheap, costly)


def route_sets(signal: SetSignal, policy: Policy, readings: Readings, raw: Raw, costs: Costs) -> Routed:
    """Decide every prompt of `readings`; `raw` is called only for the sets that the search opens."""
    prompts, boxes = readings.cheap.shape

    def told(rows: Positions, tier: Positions) -> Matrix:
        return signal.means(readings.cheap[rows], tier, raw(rows, tier))

    batch = signal.batch(readings.cheap, costs)
    if isinstance(policy, Always):
        deepest = batch.costs.tiers
        every = np.full((prompts, boxes), deepest)
        choice = (told(np.arange(prompts), every) + costs.refund).argmax(axis=1)
        spent = costs.own.sum() + batch.costs.then.sum() + costs.shared.sum() - costs.refund[choice]
        count = np.full(prompts, float(deepest * boxes))
        return Routed(choice, spent, count, np.ones(prompts, dtype=np.bool_))
    done = run_moving(policy, batch, told)
    kept = (done.order == done.choice[:, None]).any(axis=1)
    return Routed(done.choice.astype(np.intp), done.spent, done.inspections.astype(np.float64), kept)


def fit_sets(
    base: FittedSignal, readings: Readings, seen: Sequence[SetEstimates], tiers: int = 1
) -> SetSignal:
    """Fit projection and movement on held-out prompts.

    readings: cheap estimates and rewards (N, M) of prompts that trained none of the estimates.
    seen: sets (N, M) with the raw estimates (N, M) given them: every set, or whole chains from nothing to
        everything, each step with one inspection more.
    tiers: how often a specialist can be inspected.

    Raises `UsageError` with fewer than `FEWEST` prompts that have every reward.
    """
    boxes = readings.cheap.shape[1]
    whole = np.isfinite(readings.reward).all(axis=1) & np.isfinite(sum(raw for _, raw in seen)).all(axis=1)
    if int(whole.sum()) < FEWEST:
        raise UsageError(
            "estimates from all that was opened",
            expected=f"{FEWEST} or more held-out prompts with every beginning and every reward",
            came=f"{int(whole.sum())}",
            do="Collect more, or use `costly: {kind: stack}`.",
        )
    cheap, reward = readings.cheap[whole], readings.reward[whole]
    sets = [(tier[whole], raw[whole]) for tier, raw in seen]
    count = kinds(boxes, tiers)
    weights, intercept = np.zeros((count, 2 * boxes, boxes)), np.zeros((count, boxes))
    full = _stacked(sets, count - 1, tiers)
    at, raw = full[0], full[2]
    informed = np.concatenate([raw, cheap[at]], axis=1)
    weights[-1], intercept[-1], _, _ = fit_ridge(informed, reward[at], STRENGTHS)
    best = np.empty(cheap.shape)
    best[at] = informed @ weights[-1] + intercept[-1]
    for code in range(count - 1):
        at, _, raw = _stacked(sets, code, tiers)
        if not len(at):
            continue  # a set that cannot be: more verdicts than looks
        used = slice(boxes, None) if code == 0 else slice(None)
        inputs = np.concatenate([raw, cheap[at]], axis=1)[:, used]
        weights[code, used], intercept[code], _, _ = fit_ridge(inputs, best[at], STRENGTHS)
    blank = FittedMovement(np.zeros((1, tiers * boxes, 1, boxes)), _no_scale(1), np.arange(boxes))
    signal = SetSignal(base, weights, intercept, blank)
    means = [(tier, signal.means(cheap, tier, raw)) for tier, raw in sets]
    return replace(signal, movement=fit_movement(means, tiers))


def _stacked(sets: Sequence[SetEstimates], code: int, tiers: int) -> tuple[Positions, Positions, Matrix]:
    """Row numbers, sets and raw estimates of all rows whose set has this code."""
    parts = []
    for tier, raw in sets:
        rows = np.flatnonzero(codes(tier, tiers) == code)
        parts.append((rows, tier[rows], raw[rows]))
    rows, tier, raw = (np.concatenate(part) for part in zip(*parts, strict=True))
    return rows, tier, raw


def fit_movement(means: Sequence[SetEstimates], tiers: int = 1) -> FittedMovement:
    """The laws of the next step, from means (N, M) given sets (N, M) of the same prompts.

    A step is a pair of sets in which the second has one inspection more. With fewer than `FEWEST` steps of a
    kind its law has no change, so that nothing is bought for it.
    """
    boxes = means[0][1].shape[1]
    count, wide = kinds(boxes, tiers), tiers * boxes
    base = np.zeros((count, wide, OUTCOMES, boxes))
    scale = _no_scale(count * wide)
    parts = {name: np.array(vars(scale)[name]) for name in vars(scale)}
    moves: dict[tuple[int, int], list[tuple[Matrix, Matrix]]] = {}
    for before, now in means:
        for after, then in means:
            more = after.astype(np.intp) - before
            step = (np.abs(more).sum(axis=1) == 1) & (more.sum(axis=1) == 1)
            for j in np.flatnonzero((more[step] > 0).any(axis=0)).tolist():
                rows = np.flatnonzero(step & (more[:, j] > 0))
                code, number = codes(before[rows], tiers), boxes * before[rows, j].astype(np.intp) + j
                for kind in np.unique(code * wide + number).tolist():
                    at = rows[code * wide + number == kind]
                    moves.setdefault(divmod(kind, wide), []).append((now[at], then[at]))
    for (at_code, which), pairs in moves.items():
        now, then = (np.concatenate(part) for part in zip(*pairs, strict=True))
        if len(now) >= FEWEST:
            table, fitted = _law(now, then, which % boxes)
            base[at_code, which] = table
            for name, part in parts.items():
                part[at_code * wide + which] = vars(fitted)[name][0]
    return FittedMovement(base, Scale(**parts), np.arange(boxes))


def _law(now: Matrix, then: Matrix, j: int) -> tuple[Matrix, Scale]:
    """The table of changes (Q, M) and their scale, from steps that open box j.

    Changes are ordered along the direction in which specialists differ most, since only that affects a
    choice, and averaged in bins of equal size. The table is then rescaled until the mean gain that it
    predicts on these steps equals the realised gain.
    """
    moved = then - now
    apart = moved - moved.mean(axis=1, keepdims=True)
    direction = np.linalg.eigh(apart.T @ apart)[1][:, -1]
    along = apart @ direction
    scale = fit_scale(now[:, [j]], along[:, None])
    size = scale.of(now[:, [j]])
    order = np.argsort(along / size[:, 0], kind="stable")
    table = np.stack([(moved / size)[part].mean(axis=0) for part in np.array_split(order, OUTCOMES)])
    table -= table.mean(axis=0)
    had = float((then.max(axis=1) - now.max(axis=1)).mean())
    promised = []
    for factor in FACTORS:
        worth = (now[:, None, :] + factor * size[:, :, None] * table).max(axis=2).mean(axis=1)
        promised.append(float((worth - now.max(axis=1)).mean()))
    factor = float(np.interp(had, promised, FACTORS))
    return factor * table, scale


def _no_scale(laws: int) -> Scale:
    ones, zeros = np.ones(laws), np.zeros(laws)
    return Scale(np.zeros((laws, 3)), zeros, ones, zeros, ones)
