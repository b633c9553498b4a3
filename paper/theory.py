"""The paper's mathematical claims, each compared with a computation that uses no formula of the paper.

Small random instances with boxes of a few values are solved by enumeration (`best`, `walk`), prices by
integration and root finding. Nothing here depends on data, so the same seed gives the same figures.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product

import numpy as np
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.stats import norm

from pandora_router import Independent
from pandora_router.types import Vector

ROUND = 1e-9  # differences below this are rounding
INSTANCES = 200


@dataclass(frozen=True)
class Discrete:
    """Boxes with a few equally likely values each (M, K), and inspection costs (M,)."""

    values: Vector
    cost: Vector

    @classmethod
    def draw(cls, rng: np.random.Generator, boxes: int = 3, levels: int = 3) -> Discrete:
        """Values between 0 and 1, costs between 0 and .2."""
        return cls(rng.random((boxes, levels)), 0.2 * rng.random(boxes))

    @property
    def mean(self) -> Vector:
        """The expected value of each box."""
        return np.asarray(self.values.mean(axis=1))

    def price(self, box: int, *, backup: bool = False) -> float:
        """The root v of E[(V - v)+] = c, or of E[(v - V)+] = c for the backup price."""
        values, cost = self.values[box], float(self.cost[box])
        sign = -1.0 if backup else 1.0

        def over(v: float) -> float:
            return float(np.maximum(sign * (values - v), 0.0).mean()) - cost

        low, high = float(values.min()) - cost - 1.0, float(values.max()) + cost + 1.0
        return float(brentq(over, low, high, xtol=1e-13))


def best(boxes: Discrete, *, obligatory: bool) -> float:
    """The payoff of the best admissible policy, by dynamic programming over everything that can be seen."""
    count = len(boxes.cost)

    @cache
    def worth(seen: tuple[float | None, ...]) -> float:
        opened = [value for value in seen if value is not None]
        sealed = [box for box in range(count) if seen[box] is None]
        stop = max(opened, default=-np.inf)
        if not obligatory:
            stop = max([stop, *(float(boxes.mean[box]) for box in sealed)])
        paid = [
            float(np.mean([worth((*seen[:box], float(v), *seen[box + 1 :])) for v in boxes.values[box]]))
            - float(boxes.cost[box])
            for box in sealed
        ]
        return max([stop, *paid])

    return worth((None,) * count)


def walk(boxes: Discrete, order: Mapping[int, float], outside: float, sealed: float) -> float:
    """The payoff of opening the boxes of `order` by falling price while the best value is below the price.

    outside: what an opened value must exceed; sealed: what is paid if none does.
    """
    ranked = sorted(order, key=lambda box: -order[box])
    total = 0.0
    for drawn in product(*(boxes.values[box] for box in ranked)):
        found, spent = -np.inf, 0.0
        for box, value in zip(ranked, drawn, strict=True):
            if max(found, outside) >= order[box]:
                break
            found, spent = max(found, float(value)), spent + float(boxes.cost[box])
        total += (found if found > outside else sealed) - spent
    return total / len(list(product(*(boxes.values[box] for box in ranked))))


def committing(boxes: Discrete, held: Sequence[int], outside: Callable[[int], float]) -> float:
    """The payoff with the boxes `held` kept sealed, of which the one with the highest `outside` is taken."""
    rest = {box: boxes.price(box) for box in range(len(boxes.cost)) if box not in held}
    if not held:
        return walk(boxes, rest, -np.inf, -np.inf)
    taken = max(held, key=outside)
    return walk(boxes, rest, outside(taken), float(boxes.mean[taken]))


def instances(seed: int = 0) -> list[Discrete]:
    """The random instances that the claims are tried on."""
    rng = np.random.default_rng(seed)
    return [Discrete.draw(rng) for _ in range(INSTANCES)]


def closed_form(seed: int = 0) -> float:
    """Largest difference between our Gaussian prices and those found by integration and root finding."""
    rng, worst = np.random.default_rng(seed), 0.0
    for mean, std, cost in zip(
        rng.normal(size=50), rng.uniform(0.05, 1.0, 50), rng.uniform(0.001, 0.3, 50), strict=True
    ):
        box = Independent([mean], [std], [cost])

        def gain(v: float, mean: float = mean, std: float = std) -> float:
            return float(
                quad(lambda x: (x - v) * norm.pdf(x, mean, std), max(v, mean - 10 * std), mean + 10 * std)[0]
            )

        reservation = brentq(lambda v: gain(v) - cost, mean - 2.0, mean + 8.0 * std, xtol=1e-12)  # noqa: B023
        shortfall = brentq(lambda v: gain(v) + v - mean - cost, mean - 8.0 * std, mean + 2.0, xtol=1e-12)  # noqa: B023
        ours = box.reservation_price()[0], box.backup_price()[0]
        worst = max(worst, abs(float(ours[0]) - reservation), abs(float(ours[1]) - shortfall))
    return worst


def prices_cross(seed: int = 0) -> tuple[int, int]:
    """Boxes on which "backup <= reservation iff c <= E[(mean - V)+]" fails, and boxes tried."""
    wrong = tried = 0
    for boxes in instances(seed):
        for box in range(len(boxes.cost)):
            shortfall = float(np.maximum(boxes.mean[box] - boxes.values[box], 0.0).mean())
            if abs(shortfall - boxes.cost[box]) > ROUND:
                below = boxes.price(box, backup=True) <= boxes.price(box)
                wrong += below != (boxes.cost[box] <= shortfall)
                tried += 1
    return wrong, tried


def weitzman(seed: int = 0) -> float:
    """Largest gap between the optimum of obligatory inspection and Weitzman's rule."""
    return max(best(boxes, obligatory=True) - committing(boxes, (), float) for boxes in instances(seed))


@dataclass(frozen=True)
class Holdouts:
    """How committing policies compare on the instances: mean and largest gap to the best admissible policy.

    several: instances on which holding two boxes is better than the best policy that holds at most one.
    """

    mean: float
    worst: float
    several: int


def holdouts(outside: str, seed: int = 0) -> Holdouts:
    """Committing policies whose outside option is the held box's "mean" or its "backup" price."""
    gaps, several = [], 0
    for boxes in instances(seed):
        prices = {
            "mean": [float(mean) for mean in boxes.mean],
            "backup": [boxes.price(box, backup=True) for box in range(len(boxes.cost))],
        }[outside]
        single = max(committing(boxes, held, prices.__getitem__) for held in ((), (0,), (1,), (2,)))
        double = max(committing(boxes, held, prices.__getitem__) for held in ((0, 1), (0, 2), (1, 2)))
        gaps.append(best(boxes, obligatory=False) - single)
        several += double > single + ROUND
    return Holdouts(float(np.mean(gaps)), float(np.max(gaps)), several)


def reduction(seed: int = 0) -> tuple[float, float]:
    """Largest |E[R - cost] - E[G - cost]| over random instances, without and with dependence between boxes.

    The policy opens box 0, opens box 1 too if the value of box 0 is below .5, and takes the highest value
    that it opened. With dependence, the reward of a box also depends on the signal of the other box, which
    the proposition excludes.
    """
    rng, worst = np.random.default_rng(seed), [0.0, 0.0]
    for _ in range(INSTANCES):
        chance = rng.random((2, 2, 2))  # chance[m, z_m, z_other] that the reward of box m is 1
        alone = np.repeat(chance.mean(axis=2, keepdims=True), 2, axis=2)
        for place, own in enumerate((alone, chance)):
            posterior = own.mean(axis=2)  # E[R_m | Z_m]
            gap = 0.0
            for first, second in product(range(2), range(2)):
                value = posterior[0, first], posterior[1, second]
                taken = 1 if value[0] < 0.5 and value[1] > value[0] else 0
                truth = own[1, second, first] if taken else own[0, first, second]
                gap += float(truth - value[taken]) / 4.0
            worst[place] = max(worst[place], abs(gap))
    return worst[0], worst[1]


def bidder_interval(seed: int = 0) -> float:
    """Largest difference between the ends of VoI(p) >= c, found by roots, and our two prices."""
    rng, worst = np.random.default_rng(seed), 0.0
    for mean, std in zip(rng.normal(size=50), rng.uniform(0.05, 1.0, 50), strict=True):
        cost = float(rng.uniform(0.01, 0.35)) * std  # below std / sqrt(2 pi), so that there is an interval

        def over(p: float, mean: float = mean, std: float = std, cost: float = cost) -> float:
            a = (mean - p) / std
            return float((mean - p) * norm.cdf(a) + std * norm.pdf(a) - max(mean - p, 0.0) - cost)

        box = Independent([mean], [std], [cost])
        low, high = brentq(over, mean - 8.0 * std, mean), brentq(over, mean, mean + 8.0 * std)
        worst = max(
            worst, abs(low - float(box.backup_price()[0])), abs(high - float(box.reservation_price()[0]))
        )
    return worst
