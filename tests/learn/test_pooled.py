"""The linear model with shared parts: conditioning by brute force, single answers, newcomers, on disk."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pandora_router import Never, Router
from pandora_router.estimators.pooled import Blended, Pooled, likeliest, noise_parts
from pandora_router.gateway.incumbent import sharing
from pandora_router.learn.refit import refit
from tests.learn.test_refit import only
from tests.support.disputes import NAMES, believer, router
from tests.support.disputes import prompt as asked_for
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


def test_what_the_fit_said_gives_way_where_people_have_rated() -> None:
    """The router is sure that `large` can count; all its answers of that kind were rated 0."""
    before = router("large")
    prompts = [asked_for("count", i) for i in range(200, 800)]
    score = np.full((600, 3), np.nan)
    score[:, NAMES.index("large")] = 0.0
    rated = replace(believer("large", n=600), prompts=tuple(prompts), score=score, fee=np.zeros((600, 3)))
    made = refit(before, rated).router
    asked = [asked_for("count", i) for i in range(500, 530)]
    others = [asked_for("tell", i) for i in range(500, 530)]
    large = NAMES.index("large")
    assert before.cheap.predict(asked)[:, large].min() > 0.4
    assert made.cheap.predict(asked)[:, large].mean() < 0.14
    assert (made.cheap.predict(others).argmax(axis=1) == NAMES.index("echo")).all()  # nobody rated these


def test_the_share_of_rated_requests_is_counted_among_the_nearest() -> None:
    fitted = Router.fit(generate(n=150, seed=1), costly=QUICK, policy=Never())
    made = refit(fitted, only(generate(n=90, seed=2), np.arange(90) % 3)).router.cheap
    assert isinstance(made, Blended)
    fresh = generate(n=20, seed=3).prompts
    units = made.before.units(made.embedder.embed(fresh))
    order = np.argsort(-units @ made.after.units().T, axis=1, kind="stable")
    share = np.mean([(order[:, :k] >= 150).mean(axis=1) for k in (25, 50, 200)], axis=0)[:, None]
    parts = made.before.predict(fresh), made.after.predict(fresh), made.linear.predict(units)
    expected = ((1.0 - share) * parts[0] + (1.0 + share) * parts[1] + parts[2]) / 3.0
    assert made.predict(fresh) == pytest.approx(expected, abs=1e-3)  # equal cosines are in any order
    assert 0.0 < share.min() < share.max() < 1.0
