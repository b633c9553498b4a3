r"""How long requests take over the price of a second, on held-out prompts; the price that meets a goal.

At the price s of a second, in right answers, the worth of a specialist falls by s x the expected seconds of
its answer, and the wait for a look costs s x its seconds, as a gateway counts them. The time of a request is
put together from the recorded seconds of its answers. Looks of one purchase begin together and take as long
as the longest. An answer that was looked at goes on meanwhile:

    end of the looks + seconds of the answer                             chosen without a look
    max(end of the looks, begin of its look + seconds of the answer)     chosen after a look

The time until the first token has the seconds to the first token in their place, here and in the worth.

The quantile p of n times is below the r-th smallest with probability P(Binomial(n, p) < r), whatever their
law; `Quantile.most` is the smallest that makes this 0.95.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from scipy.special import bdtr

from pandora_router.boxes import Costs
from pandora_router.calibrate.readings import Readings
from pandora_router.calibrate.ways import Routed
from pandora_router.data import Table
from pandora_router.errors import UsageError
from pandora_router.router.inspection import Waiting
from pandora_router.types import Matrix, Until, Vector

LEVELS: Mapping[str, float] = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
"""The shares of requests that a goal may speak of."""
STEPS = 12
"""Prices of a second besides 0 and that of the fit."""
LOWEST, HIGHEST = 0.003, 3.0
"""Right answers for which the slowest specialist is asked instead of the fastest, at the ends of the prices:
below the first hardly anything changes, above the last nobody but the fastest is asked."""
CONFIDENCE = 0.95
NEAR = 1.02
"""Where no price meets a goal, the lowest whose quantile is within this factor of the smallest is served."""

REPORTED: Mapping[Until, str] = {"last_byte": "timings", "first_token": "timings_first_token"}
"""The names of timings in the report of a fit."""

Route = Callable[[Vector, Costs], Routed]
"""Decides the held-out prompts with the worth of each box moved by (M,), at these inspection costs."""


@dataclass(frozen=True)
class Quantile:
    """Seconds within which a share of requests was answered, and a bound that holds with 95 % confidence.

    `most` is None where there are too few prompts to say.
    """

    seconds: float
    most: float | None

    @classmethod
    def of(cls, seconds: Vector, share: float) -> Self:
        """The quantile of independent times.

        >>> Quantile.of(np.arange(1.0, 101.0), 0.5)
        Quantile(seconds=50.0, most=59.0)
        >>> Quantile.of(np.arange(1.0, 31.0), 0.95).most
        """
        count, ordered = len(seconds), np.sort(seconds)
        below = bdtr(np.arange(count), count, share)  # P(Binomial <= r - 1) for r = 1 to n
        enough = np.flatnonzero(below >= CONFIDENCE)
        middle = ordered[max(int(np.ceil(share * count)) - 1, 0)]
        return cls(float(middle), float(ordered[enough[0]]) if len(enough) else None)


@dataclass(frozen=True)
class Timing:
    """What routing at one price of a second takes, scores and costs per prompt.

    price: of a second, in right answers. quantiles: by the names of `LEVELS`.
    """

    price: float
    score: float
    money: float
    inspections: float
    quantiles: Mapping[str, Quantile]

    @classmethod
    def from_dict(cls, facts: Mapping[str, Any]) -> Self:
        """What `dataclasses.asdict` wrote."""
        quantiles = {name: Quantile(**quantile) for name, quantile in facts["quantiles"].items()}
        return cls(**{**facts, "quantiles": quantiles})


@dataclass(frozen=True)
class InTime:
    """The price of a second that meets a goal: `level` of all requests answered within `seconds`.

    sure: whether the held-out prompts show it; otherwise `timing` is the best that there is. until: what was
    waited for.
    """

    level: str
    seconds: float
    timing: Timing
    sure: bool
    until: Until = "last_byte"

    @classmethod
    def from_dict(cls, facts: Mapping[str, Any]) -> Self:
        """What `dataclasses.asdict` wrote."""
        return cls(**{**facts, "timing": Timing.from_dict(facts["timing"])})


@dataclass(frozen=True)
class Timings:
    """Timings by falling price of a second, measured on so many prompts; `until`: what was waited for."""

    points: tuple[Timing, ...]
    prompts: int
    until: Until = "last_byte"

    @classmethod
    def from_dict(cls, facts: Mapping[str, Any]) -> Self:
        """What `dataclasses.asdict` wrote."""
        points = tuple(Timing.from_dict(point) for point in facts["points"])
        return cls(points, facts["prompts"], facts.get("until", "last_byte"))

    def within(self, level: str, seconds: float) -> InTime:
        """The lowest price of a second at which `level` of all requests take at most `seconds`.

        Prices are tested from the highest down and the first that fails ends the search, so the promise is
        broken with probability 5 % at most. If already the highest fails, the price is the lowest that comes
        near the shortest time that there is, with `sure` false.
        """
        last = None
        for point in self.points:
            if not _meets(point, level, seconds):
                break
            last = point
        if last is not None:
            return InTime(level, seconds, last, True, self.until)
        least = NEAR * min(point.quantiles[level].seconds for point in self.points)
        near = [point for point in self.points if point.quantiles[level].seconds <= least]
        return InTime(level, seconds, near[-1], False, self.until)

    def at(self, price: float, level: str, seconds: float) -> InTime:
        """Whether the point nearest to `price` meets the goal."""
        near = min(self.points, key=lambda point: abs(point.price - price))
        return InTime(level, seconds, near, _meets(near, level, seconds), self.until)


def _meets(point: Timing, level: str, seconds: float) -> bool:
    most = point.quantiles[level].most
    return most is not None and most <= seconds


def timings(
    route: Route, part: Readings, costs: Costs, waiting: Waiting, table: Table, weight: float, until: Until
) -> Timings | None:
    """Times, scores and money over the price of a second on complete held-out readings.

    table: the same prompts; those without the seconds of all answers `until` then are left out. weight:
    `fee_weight` of the fit, in which `part` and `costs` are. None if no seconds were recorded or all
    specialists are equally fast.
    """
    expected, whole = waiting.expected(until), table.seconds
    seconds = whole if until == "last_byte" else table.first_seconds
    spread = float(expected.max() - expected.min())
    if seconds is None or whole is None or weight <= 0.0 or spread <= 0.0:
        return None
    known = np.flatnonzero(np.isfinite(seconds + whole).all(axis=1))
    if not len(known):
        return None
    prices = {0.0, waiting.second, *(np.geomspace(LOWEST, HIGHEST, STEPS) / spread).tolist()}
    rows, points = np.arange(len(part)), []
    for price in sorted(prices, reverse=True):
        at = waiting.repriced(costs, price)
        routed = route(-price * expected, at)
        money = (part.fee[rows, routed.choice] + routed.money(at)) / weight
        taken = elapsed(routed, waiting.look, whole, seconds)[known]
        points.append(
            Timing(
                float(price),
                float(part.score[rows, routed.choice][known].mean()),
                float(money[known].mean()),
                float(routed.inspections[known].mean()),
                {name: Quantile.of(taken, share) for name, share in LEVELS.items()},
            )
        )
    return Timings(tuple(points), len(known), until)


def elapsed(routed: Routed, look: Vector, answer: Matrix, until: Matrix | None = None) -> Vector:
    """Seconds of each request (N,), from the mean seconds of looks (M,) and those of answers (N, M).

    A look takes no longer than the whole answer. until: seconds to what is waited for (N, M), if that is not
    the last byte.

    >>> routed = Routed(np.array([0]), np.zeros(1), np.zeros(1), stage=np.array([[0, 0, 1]]))
    >>> elapsed(routed, np.array([1.0, 2.0, 0.5]), np.array([[2.2, 9.0, 9.0]])).tolist()
    [2.5]
    """
    rows, choice = np.arange(len(routed.choice)), routed.choice
    whole: Vector = (answer if until is None else until)[rows, choice]
    if routed.stage is None:
        return whole
    reading = np.minimum(look, answer)
    end, begun = np.zeros(len(rows)), np.zeros(len(rows))
    mine = routed.stage[rows, choice]
    for stage in range(int(routed.stage.max(initial=-1)) + 1):
        here = routed.stage == stage
        begun[mine == stage] = end[mine == stage]
        end = end + np.where(here, reading, 0.0).max(axis=1)
    return np.where(mine >= 0, np.maximum(end, begun + whole), end + whole)


def timings_of(facts: Mapping[str, Any], until: Until = "last_byte") -> Timings:
    """The timings in the report of a fit; `UsageError` if it did not measure them."""
    measured = facts.get("routing", {}).get(REPORTED[until])
    if not measured:
        whole = until == "last_byte"
        of, again = (
            ("its answers", "") if whole else ("the first tokens of its answers", " and `stream: true`")
        )
        raise UsageError(
            "goal.latency",
            expected=f"a router fitted with a goal latency, on a table with the seconds of {of}",
            came="no such times on test prompts",
            do=f"Collect with `pandora collect`{again}, which records seconds, and fit again with this goal.",
        )
    return Timings.from_dict(measured)
