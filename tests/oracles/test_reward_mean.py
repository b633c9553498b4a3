"""The mean that decides, against plain loops that refit without each prompt."""

from __future__ import annotations

import numpy as np
import pytest

from pandora_router.calibrate.means import RidgeMean
from pandora_router.calibrate.readings import Readings
from pandora_router.calibrate.reward_mean import PRIOR, STRENGTHS, fit_reward_mean


def world(
    prompts: int, seed: int, turn: float = 0.0, noise: float = 0.3
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """f, R and E[R | f] of four specialists; `turn` mixes their f before rewards follow it."""
    rng = np.random.default_rng(seed)
    f = 0.5 + 0.1 * rng.standard_normal((prompts, 4))
    mixed = np.eye(4) + turn * np.roll(np.eye(4), 1, axis=1)
    truth = 0.5 + 0.8 * (f - 0.5) @ mixed
    return f, truth + noise * rng.standard_normal(truth.shape), truth


def posterior(x: np.ndarray, y: np.ndarray) -> float:
    """The slope of prompts' vectors y on x under the prior, each prompt one draw."""
    k = [float(a @ b) for a, b in zip(x, y, strict=True)]
    v = [float(a @ a) for a in x]
    slope = sum(k) / sum(v)
    variance = sum((p - slope * q) ** 2 for p, q in zip(k, v, strict=True)) / sum(v) ** 2
    return (slope / variance + PRIOR[0] / PRIOR[1] ** 2) / (1.0 / variance + 1.0 / PRIOR[1] ** 2)


def brute_force(f: np.ndarray, r: np.ndarray, new: np.ndarray) -> tuple[np.ndarray, float]:
    """m(new) with every leave-one-out error from a refit, and the penalty (0: none)."""
    n, boxes = f.shape
    contrast = np.eye(boxes) - 1.0 / boxes
    c, level = f.mean(axis=0), r.mean(axis=0)
    b = max(posterior((f - c) @ contrast, (r - level) @ contrast), 0.0)
    b_mean = max(posterior((f - c).mean(axis=1)[:, None], (r - level).mean(axis=1)[:, None]), 0.0)
    spread = f.std(axis=0).mean()
    left = (r - level - b * (f - c)) @ contrast

    def weights(rows: np.ndarray, penalty: float) -> tuple[np.ndarray, np.ndarray]:
        x, y = (f[rows] - f[rows].mean(axis=0)) / spread, left[rows] - left[rows].mean(axis=0)
        found = np.linalg.solve(x.T @ x + penalty * np.eye(boxes), x.T @ y) / spread
        return found, left[rows].mean(axis=0) - f[rows].mean(axis=0) @ found

    losses = []
    for strength in [*STRENGTHS, np.inf]:
        loss = []
        for i in range(n):
            rest = np.arange(n) != i
            w, a = weights(rest, n * strength) if np.isfinite(strength) else (0.0 * contrast, 0.0)
            guess = f[i] @ w + a if np.isfinite(strength) else left[rest].mean(axis=0)
            loss.append(float(((left[i] - guess) ** 2).sum()))
        losses.append(loss)
    best = int(np.argmin(np.mean(losses, axis=1)))
    gaps = np.array(losses) - np.array(losses[best])
    near = gaps.mean(axis=1) <= gaps.std(axis=1, ddof=1) / np.sqrt(n)
    last = max(np.flatnonzero(near))
    none = last == len(STRENGTHS)
    w = 0.0 * contrast if none else weights(np.ones(n, dtype=np.bool_), n * STRENGTHS[last])[0]
    gap = (r - f) @ contrast
    square = gap.var(axis=0, ddof=1) / n
    tau = max(float((gap.mean(axis=0) ** 2 - square).mean()), 0.0)
    d = gap.mean(axis=0) * tau / (tau + square.mean())
    apart = (c + d + b * (new - c) + (new - c) @ w) @ contrast
    common = r.mean() + b_mean * (new - c).mean(axis=1)
    return apart + common[:, None], 0.0 if none else float(STRENGTHS[last])


@pytest.mark.parametrize(("prompts", "turn"), [(30, 0.0), (60, 1.5)])
def test_it_is_what_refitting_without_each_prompt_gives(prompts: int, turn: float) -> None:
    f, r, _ = world(prompts, 1, turn, noise=0.05)
    new = world(7, 2)[0]
    fitted = fit_reward_mean(f, r)
    expected, penalty = brute_force(f, r, new)
    assert fitted.of(new) == pytest.approx(expected)
    assert fitted.strength == pytest.approx(penalty)
    assert (penalty > 0.0) is (turn > 0.0)  # both ways through the code


def test_with_few_prompts_it_loses_little_where_raw_f_is_right() -> None:
    """Rewards follow f, 40 noisy prompts: a plain regression gives away four times as much of what f has."""
    new, _, truth = world(500, 4)
    rows = np.arange(500)
    best, lost = truth[rows, new.argmax(axis=1)], []
    for seed in range(10, 40):
        f, r, _ = world(40, seed)
        means = fit_reward_mean(f, r), RidgeMean().fit(Readings(f, r))[0]
        lost.append([(best - truth[rows, mean.of(new).argmax(axis=1)]).mean() for mean in means])
    near_f, plain = np.mean(lost, axis=0)
    assert 4.0 * near_f < plain


def test_with_many_prompts_it_finds_what_raw_f_misses() -> None:
    f, r, _ = world(3000, 5, turn=1.5)
    new, _, truth = world(500, 6, turn=1.5)
    believed = fit_reward_mean(f, r).of(new)
    assert np.abs(believed - truth).mean() < 0.02
    rows = np.arange(500)
    gained = truth[rows, believed.argmax(axis=1)] - truth[rows, new.argmax(axis=1)]
    assert gained.mean() > 0.02


def test_missing_rewards_are_left_out() -> None:
    f, r, _ = world(200, 7, turn=1.5, noise=0.1)
    blank = np.vstack([r, np.full((50, 4), np.nan)])
    whole = fit_reward_mean(f, r)
    padded = fit_reward_mean(np.vstack([f, world(50, 8)[0]]), blank)
    assert padded.weights == pytest.approx(whole.weights)
    assert padded.intercept == pytest.approx(whole.intercept)
    holes = r.copy()
    holes[np.random.default_rng(0).random(r.shape) < 0.2] = np.nan
    new, _, truth = world(300, 9, turn=1.5)
    assert np.abs(fit_reward_mean(f, holes).of(new) - truth).mean() < 0.05


def test_estimates_that_never_differ_say_nothing_but_the_level() -> None:
    f = np.full((50, 3), 0.4)
    r = np.tile([0.2, 0.4, 0.6], (50, 1)) + 0.01 * np.random.default_rng(0).standard_normal((50, 3))
    assert fit_reward_mean(f, r).of(f[:1])[0] == pytest.approx([0.2, 0.4, 0.6], abs=0.02)
