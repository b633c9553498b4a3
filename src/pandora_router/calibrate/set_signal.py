"""The signal model of estimates from everything opened so far (docs/method.md, section 12).

    m_S = projection of the full-information estimate on (estimates given S, f),  a ridge per set

so that m_S is a martingale in S on held-out prompts: further openings change it by 0 on average. The
full-information estimate is itself a ridge of rewards. The law of the next step says how all means change
when box j is opened next: a fitted table of equally likely joint changes times a scale that depends on the
present mean of j, rescaled so that the gain it predicts on held-out prompts equals the realised gain.

A search starts at m(f), the mean of `FittedSignal`, so that it chooses as never inspecting does if it opens
nothing; the projection for the empty set only serves to fit the law.

With up to `LATTICE` specialists there is a ridge and a law for every set, otherwise for every number of
opened specialists.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from pandora_router.boxes import Boxes, Costs, Moving
from pandora_router.calibrate.means import STRENGTHS, fit_ridge
from pandora_router.calibrate.readings import Readings, estimates
from pandora_router.calibrate.residuals import Scale, fit_scale
from pandora_router.calibrate.signals import FittedSignal, Prior
from pandora_router.calibrate.ways import Routed, bill
from pandora_router.errors import UsageError
from pandora_router.search import Always, Policy
from pandora_router.search.moving_batch import MovingBatch, run_moving
from pandora_router.types import Mask, Matrix, Positions, Vector

LATTICE = 4
OUTCOMES = 32  # equally likely changes in a law
FEWEST = 60  # held-out prompts below which no law is fitted
FACTORS = np.linspace(0.5, 2.5, 41)
Raw = Callable[[Positions, Mask], Matrix]
"""(rows, opened (n, M)) -> raw estimates (n, M) of these prompts for all specialists, given what is open."""


def codes(opened: Mask) -> Positions:
    """Code of the ridge and law for each opened set (N, M): its bits, or its size if there are many boxes."""
    boxes = opened.shape[1]
    weights = 2 ** np.arange(boxes) if boxes <= LATTICE else np.ones(boxes, dtype=np.intp)
    return np.asarray(opened @ weights, dtype=np.intp)


def kinds(boxes: int) -> int:
    """The number of codes."""
    return 2**boxes if boxes <= LATTICE else boxes + 1


@dataclass(frozen=True, eq=False)
class FittedMovement:
    """Laws of the next step by code and next box: `base` (K, M, Q, M), and a column of `scale` for each.

    `columns` are the boxes that take part, out of all M; the others stay sealed.
    """

    base: Matrix
    scale: Scale
    columns: Positions

    def steps(self, opened: Mask, mean: Matrix, box: int) -> Matrix:
        """The equally likely changes (N, Q, M) of all means when `box` is opened."""
        total = self.base.shape[1]
        whole = np.zeros((len(opened), total), dtype=np.bool_)
        whole[:, self.columns] = opened
        at, code = int(self.columns[box]), codes(whole)
        law = code * total + at
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

    def means(self, opened: Mask, everyone: Vector) -> tuple[float, ...] | None:
        """The means of all boxes once `opened` (M,) is open, given the estimates `everyone` (M,).

        They are relative to the means of the boxes, so a constant that was added to a box stays added.
        """
        assert self.signal is not None and self.cheap is not None  # noqa: PT018
        shown = self.signal.means(self.cheap[None], opened[None], everyone[None])[0]
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

    def means(self, cheap: Matrix, opened: Mask, raw: Matrix) -> Matrix:
        """m_S (N, M) from cheap estimates (N, M) and estimates given S (N, M), ignored where S is empty."""
        code = codes(opened)
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
        return SetPrior(Moving(start, self.movement, inspection_cost), start, 1.0, self, cheap)

    def batch(self, cheap: ArrayLike, inspection_cost: Costs) -> MovingBatch:
        """The boxes of many prompts (N, M) at once."""
        return MovingBatch(self.start(np.asarray(cheap)), self.movement, inspection_cost)

    def values(self, cheap: ArrayLike, costly: ArrayLike) -> Matrix:
        """As for the model of own-beginning estimates."""
        return self.base.values(cheap, costly)


def route_sets(
    signal: SetSignal,
    policy: Policy,
    readings: Readings,
    raw: Raw,
    costs: Costs,
    bonus: Vector | None = None,
) -> Routed:
    """Decide every prompt of `readings`; `raw` is called only for the sets that the search opens.

    `bonus` (M,) is added to the worth of each box, whatever it shows.
    """
    prompts, boxes = readings.cheap.shape
    more = np.zeros(boxes) if bonus is None else bonus

    def told(rows: Positions, opened: Mask) -> Matrix:
        return signal.means(readings.cheap[rows], opened, raw(rows, opened)) + more

    if isinstance(policy, Always):
        every = np.ones((prompts, boxes), dtype=np.bool_)
        choice = (told(np.arange(prompts), every) + costs.refund).argmax(axis=1)
        spent = bill(every, costs) - costs.refund[choice]
        return Routed.every(choice, spent, boxes)
    batch = signal.batch(readings.cheap, costs)
    return Routed.after(run_moving(policy, batch.moved(more) if more.any() else batch, told))


def fit_sets(base: FittedSignal, readings: Readings, seen: Sequence[tuple[Mask, Matrix]]) -> SetSignal:
    """Fit projection and movement on held-out prompts.

    readings: cheap estimates and rewards (N, M) of prompts that trained none of the estimates.
    seen: opened sets (N, M) with the raw estimates (N, M) given them: every set, or whole chains from nothing
        to everything, each step with one specialist more.

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
    sets = [(opened[whole], raw[whole]) for opened, raw in seen]
    weights = np.zeros((kinds(boxes), 2 * boxes, boxes))
    intercept = np.zeros((kinds(boxes), boxes))
    full = _stacked(sets, kinds(boxes) - 1)
    at, raw = full[0], full[2]
    informed = np.concatenate([raw, cheap[at]], axis=1)
    weights[-1], intercept[-1], _, _ = fit_ridge(informed, reward[at], STRENGTHS)
    best = np.empty(cheap.shape)
    best[at] = informed @ weights[-1] + intercept[-1]
    for code in range(kinds(boxes) - 1):
        at, _, raw = _stacked(sets, code)
        used = slice(boxes, None) if code == 0 else slice(None)
        inputs = np.concatenate([raw, cheap[at]], axis=1)[:, used]
        weights[code, used], intercept[code], _, _ = fit_ridge(inputs, best[at], STRENGTHS)
    blank = FittedMovement(np.zeros((1, 1, 1, 1)), _no_scale(1), np.arange(boxes))
    signal = SetSignal(base, weights, intercept, blank)
    means = [(opened, signal.means(cheap, opened, raw)) for opened, raw in sets]
    return replace(signal, movement=fit_movement(means))


def _stacked(sets: Sequence[tuple[Mask, Matrix]], code: int) -> tuple[Positions, Mask, Matrix]:
    """Row numbers, opened sets and raw estimates of all rows whose set has this code."""
    parts = []
    for opened, raw in sets:
        rows = np.flatnonzero(codes(opened) == code)
        parts.append((rows, opened[rows], raw[rows]))
    rows, opened, raw = (np.concatenate(part) for part in zip(*parts, strict=True))
    return rows, opened, raw


def fit_movement(means: Sequence[tuple[Mask, Matrix]]) -> FittedMovement:
    """The laws of the next step, from means (N, M) given opened sets (N, M) of the same prompts.

    A step is a pair of sets in which the second has one box more. With fewer than `FEWEST` steps of a kind
    its law has no change, so that nothing is bought for it.
    """
    boxes = means[0][1].shape[1]
    laws = kinds(boxes) * boxes
    base = np.zeros((kinds(boxes), boxes, OUTCOMES, boxes))
    scale = _no_scale(laws)
    parts = {name: np.array(vars(scale)[name]) for name in vars(scale)}
    moves: dict[tuple[int, int], list[tuple[Matrix, Matrix]]] = {}
    for before, now in means:
        for after, then in means:
            more = after & ~before
            step = (more.sum(axis=1) == 1) & ~(before & ~after).any(axis=1)
            for j in np.flatnonzero((more & step[:, None]).any(axis=0)).tolist():
                rows = np.flatnonzero(step & more[:, j])
                for code in np.unique(codes(before[rows])):
                    at = rows[codes(before[rows]) == code]
                    moves.setdefault((int(code), j), []).append((now[at], then[at]))
    for (code, j), pairs in moves.items():
        now, then = (np.concatenate(part) for part in zip(*pairs, strict=True))
        if len(now) >= FEWEST:
            table, fitted = _law(now, then, j)
            base[code, j] = table
            for name, part in parts.items():
                part[code * boxes + j] = vars(fitted)[name][0]
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
