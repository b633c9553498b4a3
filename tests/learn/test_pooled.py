"""The linear model with shared parts: conditioning by brute force, single answers, newcomers, on disk."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pandora_router import Never, Router
from pandora_router.estimators.pooled import Pooled, likeliest, noise_parts
from pandora_router.gateway.incumbent import sharing
from pandora_router.learn.refit import refit
from tests.learn.test_refit import only
from tests.support.routers import QUICK
from tests.support.tables import generate

PRIOR, NOISE = (0.2, 0.05), (0.04, 0.1)


def prompts(n: int, seed: int = 0, specialists: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Unit rows (n, 4), and rewards (n, 3) drawn from a law of this kind, some of them missing."""
    rng = np.random.default_rng(seed)
    units = rng.standard_normal((n, 4))
    units /= np.linalg.norm(units, axis=1, keepdims=True)
    weights = rng.normal(0.0, 0.4, (4, 1)) + rng.normal(0.0, 0.2, (4, specialists))
    reward = 0.5 + units @ weights + 0.2 * rng.standard_normal((n, 1))
    return units, reward + 0.3 * rng.standard_normal((n, specialists))


def brute(law: Pooled, units: np.ndarray, reward: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of all weights by conditioning one large normal vector on every known reward."""
    phi, (count, specialists) = law.features(units), reward.shape
    width = phi.shape[1]
    design = np.zeros((count * specialists, specialists * width))
    for i in range(count):
        for m in range(specialists):
            design[i * specialists + m, m * width : (m + 1) * width] = phi[i]
    prior = np.kron(law.prior[0] + law.prior[1] * np.eye(specialists), np.eye(width))
    noise = np.kron(np.eye(count), law.noise[0] + law.noise[1] * np.eye(specialists))
    known = np.isfinite(reward).ravel()
    design, noise = design[known], noise[np.ix_(known, known)]
    gain = prior @ design.T @ np.linalg.inv(design @ prior @ design.T + noise)
    residual = (reward - law.level).ravel()[known]
    return (gain @ residual).reshape(specialists, width), prior - gain @ design @ prior


@pytest.fixture(scope="module")
def learnt() -> tuple[Pooled, np.ndarray, np.ndarray]:
    units, reward = prompts(30)
    reward[10:][np.random.default_rng(1).random((20, 3)) < 0.6] = np.nan
    return Pooled.fit(units, reward, NOISE), units, reward


def test_the_law_of_the_weights_is_that_of_conditioning(
    learnt: tuple[Pooled, np.ndarray, np.ndarray],
) -> None:
    law, units, reward = learnt
    weights, covariance = brute(law, units, reward)
    assert law.weights == pytest.approx(weights, abs=1e-9)
    assert law.covariance == pytest.approx(covariance, abs=1e-9)
    assert law.predict(units[:3]) == pytest.approx(law.level + law.features(units[:3]) @ weights.T)


def test_one_answer_at_a_time_is_the_same_as_all_at_once(
    learnt: tuple[Pooled, np.ndarray, np.ndarray],
) -> None:
    law, units, reward = learnt
    more, scores = prompts(8, seed=5)
    single, later = np.full((8, 3), np.nan), law
    for i in range(8):
        single[i, i % 3] = scores[i, i % 3]
        later = later.after(more[i], i % 3, scores[i, i % 3])
    weights, covariance = brute(law, np.concatenate([units, more]), np.concatenate([reward, single]))
    assert later.weights == pytest.approx(weights, abs=1e-9)
    assert later.covariance == pytest.approx(covariance, abs=1e-9)


def test_a_newcomer_is_a_specialist_of_whom_no_score_is_known(
    learnt: tuple[Pooled, np.ndarray, np.ndarray],
) -> None:
    law, units, reward = learnt
    joined = law.joined(0.3)
    weights, covariance = brute(joined, units, np.column_stack([reward, np.full(30, np.nan)]))
    assert joined.weights == pytest.approx(weights, abs=1e-9)
    assert joined.covariance == pytest.approx(covariance, abs=1e-9)
    assert joined.level[-1] == 0.3


def test_prior_variances_of_highest_likelihood_are_those_that_made_the_data() -> None:
    rng = np.random.default_rng(2)
    phi, specialists = rng.standard_normal((1000, 33)), 6
    weights = np.sqrt(0.1) * rng.standard_normal((33, 1)) + 0.1 * rng.standard_normal((33, specialists))
    error = 0.2 * rng.standard_normal((1000, 1)) + 0.3 * rng.standard_normal((1000, specialists))
    assert likeliest(phi, phi @ weights + error, (0.04, 0.09)) == (0.1, 0.01)
    assert likeliest(phi[:999], (phi @ weights + error)[:999], (0.04, 0.09)) == (0.1, 0.03)  # too few


def test_noise_has_a_shared_and_an_own_part() -> None:
    assert noise_parts(0.04 + 0.1 * np.eye(4)) == pytest.approx((0.04, 0.1))
    assert noise_parts(np.array([[0.2]])) == (0.0, 0.2)
    assert noise_parts(np.array([[0.2, -0.1], [-0.1, 0.2]])) == pytest.approx((0.0, 0.2))


def test_a_refitted_router_decides_alike_alone_in_a_batch_and_after_loading(tmp_path: object) -> None:
    router = Router.fit(generate(n=120, seed=1), costly=QUICK, policy=Never())
    traffic, fresh = generate(n=300, seed=2), generate(n=40, seed=3)
    made = refit(router, only(traffic, np.arange(300) % 3)).router
    again = refit(made, only(traffic, np.arange(300) % 3)).router  # from the same log: nothing counts twice
    made.save(f"{tmp_path}/learnt")
    loaded = Router.load(f"{tmp_path}/learnt")
    expected = made.cheap.predict(fresh.prompts)
    assert loaded.cheap.predict(fresh.prompts) == pytest.approx(expected, abs=1e-12)
    assert again.cheap.predict(fresh.prompts) == pytest.approx(expected, abs=1e-12)
    alone = [made.route(prompt).specialist for prompt in fresh.prompts]
    assert alone == [decision.specialist for decision in loaded.route_batch(fresh.prompts)]
    assert replace(made, id="").record.learnt["parent"] == router.id


def test_what_two_routers_share_is_held_once_and_the_estimates_stay(tmp_path: Path) -> None:
    served = Router.fit(generate(n=200, seed=1), costly=QUICK, policy=Never())
    traffic = generate(n=60, seed=2)
    refit(served, only(traffic, np.arange(60) % 3)).router.save(tmp_path / "candidate")
    read = Router.load(tmp_path / "candidate")
    made = sharing(read, served)
    assert made.cheap.before is served.cheap  # type: ignore[attr-defined]
    assert made.cheap.embedder is served.cheap.embedder  # type: ignore[attr-defined]
    for prompt in traffic.prompts[
        :5
    ]:  # one by one: what was just asked of the shared neighbours is remembered
        expected = read.cheap.predict([prompt])
        assert served.cheap.predict([prompt]) == pytest.approx(read.cheap.before.predict([prompt]))  # type: ignore[attr-defined]
        assert made.cheap.predict([prompt]) == pytest.approx(expected)
    other = Router.fit(generate(n=200, seed=5), costly=QUICK, policy=Never())
    assert sharing(read, other).cheap is read.cheap
    assert sharing(other, served) is other
