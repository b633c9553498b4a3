r"""Quality against cost on held-out prompts, over the worth of a right answer; the worth that meets a goal.

At the worth V (weight w = 1 / V) the router of a fit at the weight w0 decides as `revalue.weighed` does: the
worth of specialist j moves by (w0 - w) x its mean fee, and inspection costs scale by w / w0. So a point of
the curve is what a gateway serves at that worth, with the estimates and the policy of the fit.

Two lines to compare with. Each single specialist is a point. A *mix* sends a random share of the prompts to
one specialist and the rest to another; at the cost c the best mix scores

    H(c) = the upper concave hull of the points (money, score) of the single specialists, at c,

and a point of the router is worth something if it lies above H. With the hull's end points a and b around c
and the slope k between them, the difference of a prompt is (S - S_a) - k (C - C_a).

Errors are of means over prompts, clustered by distinct f vectors. `band` is the number of standard errors
that covers all points of the curve at once with probability 0.95: the 0.95 quantile of the largest of their
correlated standard normal errors.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Self

import numpy as np

from pandora_router.boxes import Costs
from pandora_router.calibrate.readings import Readings
from pandora_router.calibrate.ways import Routed
from pandora_router.errors import UsageError
from pandora_router.router.inspection import Waiting
from pandora_router.text import did_you_mean
from pandora_router.types import Matrix, Positions, Vector

STEPS = 15
"""Points of the curve besides that of the fit."""
NEAR = 0.01
"""A point whose worth is as near as this to that of the fit, as a share of it, is left out."""
LOWEST, HIGHEST = 10**-0.5, 10**3
"""Worths of a right answer at the ends of the curve, as multiples of what the dearest specialist costs more
than the cheapest. Below the first the dearest is not worth asking; at the last a thousandth of a right answer
pays for it. Where a specialist in between is still worth asking at the first, the curve goes on below it in
equal steps until the cheapest alone answers, for at most `STEPS` more points."""
SURE = 1.645
"""Standard errors by which a goal must be met: a one-sided test at 5 %."""
DRAWS = 4000
"""Draws of correlated normal errors from which `Curve.band` is computed."""

Route = Callable[[Vector, Costs], Routed]
"""Decides the held-out prompts with the worth of each box moved by (M,), at these inspection costs."""


@dataclass(frozen=True)
class Point:
    """What a way of routing scores and costs per prompt, with standard errors.

    worth: of a right answer, in money; None for a single specialist. over_mix: score minus that of the best
    mix of two specialists at the same cost. beside: covariance of the mean score with that of each single
    specialist, by name.
    """

    worth: float | None
    score: float
    score_error: float
    money: float
    money_error: float
    inspections: float = 0.0
    over_mix: float = 0.0
    over_mix_error: float = 0.0
    beside: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Curve:
    """Points by falling worth, and the single specialists by name.

    oracle: (money, score) per prompt at each of these worths if for every prompt the specialist of the
    highest worth x score - money was known; empty in curves of earlier versions.
    """

    points: tuple[Point, ...]
    singles: Mapping[str, Point]
    prompts: int
    band: float
    oracle: tuple[tuple[float, float], ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; `from_dict` reads them."""
        return asdict(self)

    @classmethod
    def from_dict(cls, facts: Mapping[str, Any]) -> Self:
        """The curve that `to_dict` wrote."""
        return cls(
            tuple(Point(**point) for point in facts["points"]),
            {name: Point(**point) for name, point in facts["singles"].items()},
            facts["prompts"],
            facts["band"],
            tuple((money, score) for money, score in facts.get("oracle", ())),
        )

    def mix(self, money: float) -> float:
        """The score of the best mix of two specialists that costs `money` or less per prompt."""
        corners = hull([(point.money, point.score) for point in self.singles.values()])
        costs, scores = zip(*corners, strict=True)
        return float(np.interp(money, costs, scores))

    def keep(self, share: float, of: str) -> Kept:
        """The lowest worth, and so the lowest cost, that keeps `share` of the mean score of `of`.

        Worths are tested from the highest to the lowest, each by whether the mean of (score - share x score
        of `of`) is above 0 by `SURE` standard errors; the first that fails ends the search, so the promise
        is broken with probability 5 % at most, however many worths there are. If already the highest
        fails, it is returned, with `sure` false. Raises `UsageError` if `of` is no specialist.
        """
        if of not in self.singles:
            raise UsageError(
                "goal.of",
                expected=f"one of {', '.join(self.singles)}",
                came=repr(of),
                do=did_you_mean(of, self.singles, "Name a specialist of the router."),
            )
        last = None
        for point in self.points:
            kept = self._kept(point, share, of)
            if not kept.sure:
                break
            last = kept
        return last or self._kept(self.points[0], share, of)

    def at(self, worth: float, share: float, of: str) -> Kept:
        """How sure it is that the point nearest to `worth` keeps `share` of the score of `of`."""
        near = min(self.points, key=lambda point: abs(math.log((point.worth or math.inf) / worth)))
        return self._kept(near, share, of)

    def _kept(self, point: Point, share: float, of: str) -> Kept:
        strong = self.singles[of]
        variance = point.score_error**2 + (share * strong.score_error) ** 2
        error = math.sqrt(max(variance - 2.0 * share * point.beside[of], 0.0))
        sure = point.score - share * strong.score - SURE * error >= 0.0
        return Kept(share, of, point, strong, sure)


@dataclass(frozen=True)
class Kept:
    """The point that meets a goal `keep`, beside the specialist whose score it keeps.

    sure: whether the held-out prompts show it; otherwise `point` is the best that there is.
    """

    share: float
    of: str
    point: Point
    strong: Point
    sure: bool

    @classmethod
    def from_dict(cls, facts: Mapping[str, Any]) -> Self:
        """What `dataclasses.asdict` wrote."""
        return cls(
            facts["share"],
            facts["of"],
            Point(**facts["point"]),
            Point(**facts["strong"]),
            facts["sure"],
        )


def trace(
    route: Route,
    part: Readings,
    costs: Costs,
    waiting: Waiting,
    weight: float,
    fees: Vector,
    names: Sequence[str],
) -> Curve | None:
    """The curve of a router on complete held-out readings; None if fees do not count or do not differ.

    weight: `fee_weight` of the fit, in which `part` and `costs` are. fees: mean fee of each specialist in
    training, in money. names: the specialists.
    """
    spread = float(fees.max() - fees.min())
    if weight <= 0.0 or spread <= 0.0 or len(part) < 2:
        return None
    steps = (spread * np.geomspace(LOWEST, HIGHEST, STEPS)).tolist()
    worths = sorted({1.0 / weight, *(w for w in steps if abs(w * weight - 1.0) > NEAR)}, reverse=True)
    rows, paid = np.arange(len(part)), part.fee / weight
    most = len(worths) + STEPS
    score: list[Vector] = []
    money: list[Vector] = []
    bought: list[Vector] = []
    for worth in worths:
        scale = 1.0 / (worth * weight)
        scaled = costs.scaled(scale)
        routed = route((weight - 1.0 / worth) * fees - scale * waiting.lost, scaled)
        score.append(part.score[rows, routed.choice])
        money.append(paid[rows, routed.choice] + worth * routed.money(scaled))
        bought.append(np.asarray(routed.inspections, dtype=np.float64))
        if len(score) == len(worths) < most and np.any(fees[routed.choice] > fees.min()):
            worths.append(worth * steps[0] / steps[1])
    ours = np.column_stack(score), np.column_stack(money), np.column_stack(bought)
    return measured(worths, *ours, part.score, paid, names, part.cluster)


def measured(
    worths: Sequence[float],
    score: Matrix,
    money: Matrix,
    bought: Matrix,
    single_score: Matrix,
    single_money: Matrix,
    names: Sequence[str],
    cluster: Positions,
) -> Curve:
    """The curve from scores and money of each prompt: (N, worths) of the router, (N, M) of specialists."""
    many = score.shape[1]
    spread = covariance(np.hstack([score, single_score]), cluster)
    money_error = np.sqrt(np.diag(covariance(np.hstack([money, single_money]), cluster)))
    error = np.sqrt(np.diag(spread))
    singles = {
        name: Point(
            None,
            float(single_score[:, j].mean()),
            float(error[many + j]),
            float(single_money[:, j].mean()),
            float(money_error[many + j]),
        )
        for j, name in enumerate(names)
    }
    points = []
    for at, worth in enumerate(worths):
        over = over_mix(score[:, at], money[:, at], single_score, single_money)
        points.append(
            Point(
                worth,
                float(score[:, at].mean()),
                float(error[at]),
                float(money[:, at].mean()),
                float(money_error[at]),
                float(bought[:, at].mean()),
                float(over.mean()),
                float(np.sqrt(covariance(over[:, None], cluster)[0, 0])),
                {name: float(spread[at, many + j]) for j, name in enumerate(names)},
            )
        )
    known = tuple(_hindsight(worth, single_score, single_money) for worth in worths)
    return Curve(tuple(points), singles, len(score), _band(spread[:many, :many]), known)


def _hindsight(worth: float, score: Matrix, money: Matrix) -> tuple[float, float]:
    """Mean money and score of the specialists that are worth most, prompt by prompt."""
    rows, best = np.arange(len(score)), (worth * score - money).argmax(axis=1)
    return float(money[rows, best].mean()), float(score[rows, best].mean())


def hull(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """The corners of the upper concave hull, by rising cost, up to the highest score.

    >>> hull([(0.0, 0.2), (1.0, 0.4), (2.0, 0.8), (3.0, 0.7)])
    [(0.0, 0.2), (2.0, 0.8)]
    """
    corners: list[tuple[float, float]] = []
    for cost, score in sorted(points, key=lambda point: (point[0], -point[1])):
        if corners and score <= corners[-1][1]:
            continue
        while len(corners) > 1 and _rises(corners[-1], (cost, score), corners[-2]):
            corners.pop()
        corners.append((cost, score))
    return corners


def _rises(middle: tuple[float, float], end: tuple[float, float], begin: tuple[float, float]) -> bool:
    """Whether `middle` lies on or below the line from `begin` to `end`."""
    ahead = (end[1] - begin[1]) * (middle[0] - begin[0])
    return (middle[1] - begin[1]) * (end[0] - begin[0]) <= ahead


def covariance(values: Matrix, cluster: Positions) -> Matrix:
    """The covariance (K, K) of the means of columns (N, K) whose rows belong together by `cluster` (N,)."""
    centred = values - values.mean(axis=0)
    sums = np.zeros((int(cluster.max()) + 1, values.shape[1]))
    np.add.at(sums, cluster, centred)
    return np.asarray(sums.T @ sums / len(values) ** 2)


def over_mix(score: Vector, money: Vector, single_score: Matrix, single_money: Matrix) -> Vector:
    """Score of each prompt minus that of the best mix of two specialists at the same mean cost (N,)."""
    means = list(zip(single_money.mean(axis=0).tolist(), single_score.mean(axis=0).tolist(), strict=True))
    corners = hull(means)
    place = [means.index(corner) for corner in corners]
    after = int(np.searchsorted([cost for cost, _ in corners], money.mean()))
    if after in (0, len(corners)):  # cheaper than the cheapest, or dearer than the best: that one itself
        return np.asarray(score - single_score[:, place[min(after, len(corners) - 1)]])
    (low, bottom), (high, top) = corners[after - 1], corners[after]
    one, slope = place[after - 1], (top - bottom) / (high - low)
    return np.asarray((score - single_score[:, one]) - slope * (money - single_money[:, one]))


def _band(spread: Matrix) -> float:
    """The 0.95 quantile of the largest absolute correlated standard normal error; 1.96 for one point."""
    error = np.sqrt(np.diag(spread))
    moving = error > 0.0
    if not moving.any():
        return 1.96
    correlation = spread[np.ix_(moving, moving)] / np.outer(error[moving], error[moving])
    values, vectors = np.linalg.eigh(correlation)
    root = vectors * np.sqrt(np.clip(values, 0.0, None))
    draws = np.random.default_rng(0).standard_normal((DRAWS, len(values))) @ root.T
    return float(np.quantile(np.abs(draws).max(axis=1), 0.95))
