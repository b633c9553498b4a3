r"""The worth of a right answer at which a budget lasts until the end of its period.

With B the budget, S what is spent, n the requests that are expected until the end of the period and kappa the
ratio of realised to expected cost so far, a request may cost

    rho = (B - S) / (n + sqrt(n)) / kappa,

and the worth is the highest on the curve of the router (`router.curve`) whose expected cost is at most rho.
Computed again every few seconds, it follows growing, falling and uneven traffic: what was not spent is spent
later, and what was spent too early is saved later. The square root keeps money for more requests than
expected: it matters in the last hours, when nothing can be saved later.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from pandora_router.router.curve import Curve

FORGET = 0.98
"""Weight of what was known about realised and expected cost, after each update."""
SURE = 50.0
"""Requests that count as if they had cost what the curve expects."""

SPARE = 1.0
"""Requests that are planned for beyond those expected, in square roots of their number."""


@dataclass(frozen=True)
class Traffic:
    """Requests and money, in dollars: of the period so far, and of the last days, over `seconds`.

    labels: part of what is spent that was for labels, and so says nothing about the cost of a request.
    """

    spent: float
    requests: int
    recent: int
    seconds: float
    labels: float = 0.0

    def expected_end(self, left: float) -> float:
        """The money that the period will end at, `left` seconds from now, if requests go on as they were."""
        each = (self.spent - self.labels) / self.requests if self.requests else 0.0
        return self.spent + (self.recent * left / self.seconds * each if self.seconds > 0.0 else 0.0)


@dataclass(frozen=True)
class Pace:
    """The worth that is served now, and what is known of realised and expected cost.

    seen: requests of the period and their money when this pace was computed, from which the next one learns.
    """

    curve: Curve
    budget: float
    worth: float
    realised: float = 0.0
    expected: float = 0.0
    seen: tuple[int, float] | None = None

    @property
    def ratio(self) -> float:
        """Realised to expected cost, 1 where nothing is known."""
        usual = SURE * cost_at(self.curve, self.worth)
        return (self.realised + usual) / (self.expected + usual) if usual > 0.0 else 1.0

    def after(self, traffic: Traffic, left: float) -> Pace:
        """The pace with `left` seconds to the end of the period; unchanged worth if nothing is known yet."""
        learnt, paid = self, traffic.spent - traffic.labels
        if self.seen is not None and traffic.requests >= self.seen[0]:
            requests, money = traffic.requests - self.seen[0], paid - self.seen[1]
            forget = FORGET if requests else 1.0
            learnt = replace(
                self,
                realised=forget * self.realised + money,
                expected=forget * self.expected + requests * cost_at(self.curve, self.worth),
            )
        learnt = replace(learnt, seen=(traffic.requests, paid))
        if not traffic.recent or traffic.seconds <= 0.0:
            return learnt
        expected = traffic.recent * left / traffic.seconds
        ahead = max(expected + SPARE * math.sqrt(expected), 1.0)
        allowed = max(self.budget - traffic.spent, 0.0) / ahead / max(learnt.ratio, 1e-9)
        return replace(learnt, worth=affordable(self.curve, allowed))

    def expected_end(self, traffic: Traffic, left: float) -> float:
        """The money that the period will end at, if traffic and the present worth stay as they are."""
        ahead = traffic.recent * left / traffic.seconds if traffic.seconds > 0.0 else 0.0
        return traffic.spent + ahead * cost_at(self.curve, self.worth) * self.ratio


def cost_at(curve: Curve, worth: float) -> float:
    """The expected cost of a request at this worth, interpolated between the points of the curve."""
    worths, costs = _rising(curve)
    return float(np.interp(math.log(worth), np.log(worths), costs))


def affordable(curve: Curve, cost: float) -> float:
    """The highest worth whose expected cost is at most `cost`; the lowest of the curve if none is."""
    worths, costs = _rising(curve)
    if cost >= costs[-1]:
        return float(worths[-1])
    above = int(np.searchsorted(costs, cost, side="right"))
    if above == 0:
        return float(worths[0])
    share = (cost - costs[above - 1]) / (costs[above] - costs[above - 1])
    low, high = math.log(worths[above - 1]), math.log(worths[above])
    return math.exp(low + share * (high - low))


def _rising(curve: Curve) -> tuple[np.ndarray, np.ndarray]:
    """Worths in rising order with their costs, which noise is not allowed to make fall."""
    points = sorted((point.worth or 0.0, point.money) for point in curve.points)
    worths, costs = np.array(points).T
    return worths, np.maximum.accumulate(costs)
