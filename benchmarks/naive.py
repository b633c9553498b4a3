"""The reference that speed is measured against: what one writes from the paper in an afternoon.

One scipy root-find per price, dense conditioning by solving the linear system anew, plain numpy loops. Kept
simple on purpose; it also serves as an oracle in the tests.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.stats import norm


def unit_loss_inverse(y: float) -> float:
    """Root of phi(t) - t Phi(-t) = y by bracketing."""
    return float(brentq(lambda t: norm.pdf(t) - t * norm.sf(t) - y, -y - 1.0, 40.0, xtol=1e-14))


def price_offset(std: float, cost: float) -> float:
    return std * unit_loss_inverse(cost / std)


def committing_payoff(mean: np.ndarray, std: np.ndarray, cost: np.ndarray, held: int) -> float:
    """nu of holding one box at its backup price (-1: none), by adaptive quadrature of 1 - H."""
    offset = np.array([price_offset(s, c) for s, c in zip(std, cost, strict=True)])
    price = mean + offset
    rivals = [j for j in range(len(mean)) if j != held]

    def cdf(x: float) -> float:
        product = 1.0
        for j in rivals:
            if x < price[j]:
                product *= norm.cdf((x - mean[j]) / std[j])
        return product

    start = mean[held] - offset[held] if held >= 0 else float(np.min(mean - 9.0 * std))
    points = np.unique(np.concatenate([[start], price[rivals][price[rivals] > start]]))
    above = sum(quad(lambda x: 1.0 - cdf(x), a, b, epsabs=1e-10)[0] for a, b in pairwise(points))
    if held < 0:
        return float(start + above)
    chance = cdf(start)
    return float(mean[held] * chance + start * (1.0 - chance) + above)


def simulate_once(
    mean: np.ndarray, covariance: np.ndarray, cost: np.ndarray, outcome: np.ndarray, held: int, at: float
) -> float:
    """Payoff of one committing policy on one outcome, reconditioning and repricing after every opening."""
    opened: list[int] = []
    best, spent = at, 0.0
    while True:
        rest = [j for j in range(len(mean)) if j != held and j not in opened]
        if not rest:
            break
        mu, sigma = mean, covariance
        if opened:
            block = covariance[np.ix_(opened, opened)]
            gain = np.linalg.solve(block, covariance[opened]).T
            mu = mean + gain @ (outcome[opened] - mean[opened])
            sigma = covariance - gain @ covariance[opened]
        price = [mu[j] + price_offset(float(np.sqrt(max(sigma[j, j], 1e-18))), cost[j]) for j in rest]
        top = int(np.argmax(price))
        if best >= price[top]:
            break
        opened.append(rest[top])
        best, spent = max(best, outcome[rest[top]]), spent + cost[rest[top]]
    found = max((outcome[j] for j in opened), default=-np.inf)
    value = outcome[held] if held >= 0 and found <= at else found
    return float(value - spent)
