"""The price of exploration: gains against simulation, and regret against uniform draws."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pandora_router import Never, Router
from pandora_router.estimators.pooled import Pooled
from pandora_router.learn.exploration import COUNTS, HALF_NORMAL, SHARE, Exploration, gains
from pandora_router.search import kernels
from tests.learn.test_pooled import NOISE, prompts
from tests.support.routers import QUICK
from tests.support.tables import generate


@pytest.fixture(scope="module")
def known() -> Exploration:
    units, reward = prompts(40)
    reward[10:, 2] = np.nan  # little is known of the third
    law = Pooled.fit(units, reward, NOISE)
    rows = prompts(12, seed=3)[0]
    return Exploration(law, law.features(rows), law.predict(rows), np.full(3, SHARE))


@pytest.fixture(scope="module")
def close(known: Exploration) -> Exploration:
    """The same for prompts at which all specialists are about equally good."""
    return replace(known, worth=0.5 + 0.1 * known.worth)


def test_the_gain_is_that_of_drawing_answers_and_conditioning_on_them(known: Exploration) -> None:
    """n answers are drawn from the law, the law is conditioned on each, and the best is taken again."""
    rng = np.random.default_rng(0)
    unit = prompts(1, seed=9)[0][0]
    phi, column, n, law = known.law.features(unit[None])[0], 2, 4, known.law
    width = len(phi)
    block = slice(column * width, (column + 1) * width)
    deviation = np.sqrt(phi @ law.covariance[block, block] @ phi)
    before = known.worth.max(axis=1).mean()
    gained = []
    for _ in range(4000):
        truth = law.level[column] + phi @ law.weights[column] + deviation * rng.standard_normal()
        later = law
        mean = truth + np.sqrt(sum(NOISE) / n) * rng.standard_normal()  # of n answers
        later = later.after(unit, column, mean, sum(NOISE) / n)
        gained.append((later.level + known.features @ later.weights.T).max(axis=1).mean() - before)
    moved = (law.covariance[:, block] @ phi).reshape(3, width)
    scale = 1.0 / np.sqrt(deviation**2 + sum(NOISE) / n)
    expected = gains(known.worth, known.features @ moved.T, np.array([scale]))[0]
    assert np.mean(gained) == pytest.approx(expected, abs=4.0 * np.std(gained) / np.sqrt(4000))
    assert expected > 5.0 * np.std(gained) / np.sqrt(4000)


def test_compiled_and_plain_gains_are_the_same_and_below_their_bound(
    known: Exploration, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(1)
    worth, moves = rng.standard_normal((20, 5)), rng.standard_normal((20, 5))
    scales = np.array([0.01, 0.3, 1.0, 5.0])
    kernels.load()
    compiled = gains(worth, moves, scales)
    monkeypatch.setattr(kernels, "ready", lambda: None)
    plain = gains(worth, moves, scales)
    assert compiled == pytest.approx(plain, abs=1e-9)
    assert (HALF_NORMAL * scales * np.ptp(moves, axis=1).mean() >= plain - 1e-12).all()


def test_screening_hides_no_lesson_that_all_gains_would_show(close: Exploration) -> None:
    """Every specialist's gain, one after the other, as the module says; the screen must find the same."""
    rng, law = np.random.default_rng(3), close.law
    width, ratings, found = close.features.shape[1], 3000.0, 0
    counts = np.array(COUNTS)
    for phi in close.features:
        worth = rng.uniform(0.47, 0.53, 3)
        best, most, worth_of_best = None, 0.0, 0.0
        for m in range(3):
            loss = worth.max() - worth[m]
            moved = np.array(
                [
                    law.covariance[k * width : (k + 1) * width, m * width : (m + 1) * width] @ phi
                    for k in range(3)
                ]
            )
            scales = 1.0 / np.sqrt(phi @ moved[m] + sum(NOISE) / counts)
            taught = (
                (ratings - counts) / counts * gains(close.worth, SHARE * close.features @ moved.T, scales)
            ).max()
            if loss > 0.0 and taught - loss > most:
                best, most, worth_of_best = m, taught - loss, taught
        lesson = close.lesson(phi, worth, ratings)
        assert (None if lesson is None else lesson.column) == best
        if lesson is not None:
            assert lesson.worth == pytest.approx(worth_of_best)
        found += best is not None
    assert 0 < found < len(close.features)


def test_a_lesson_has_a_price(close: Exploration) -> None:
    phi, worth = close.features[0], np.array([0.6, 0.58, 0.59])
    lesson = close.lesson(phi, worth, ratings=100_000.0)
    assert lesson is not None
    assert lesson.column == 2  # the one of whom little is close
    assert lesson.loss == pytest.approx(0.01)
    assert close.lesson(phi, worth, ratings=COUNTS[0]) is None  # nobody will use it
    assert close.lesson(phi, worth - [0.0, 0.0, 50.0], ratings=1000.0) is None or (
        close.lesson(phi, worth - [0.0, 0.0, 50.0], ratings=1000.0).column != 2  # type: ignore[union-attr]
    )
    only = close.lesson(phi, worth, ratings=100_000.0, allowed=np.array([True, True, False]))
    assert only is None or only.column == 1
    taught = close
    for _ in range(200):
        taught = taught.expecting(phi, 2, rate=1.0)
    again = taught.lesson(phi, worth, ratings=100_000.0)
    assert again is None or again.column != 2 or again.worth < lesson.worth  # what is known need not be asked
    assert close.expecting(phi, 2, rate=0.0) is close


def test_what_is_expected_of_rare_ratings_is_the_covariance_of_a_noisier_answer(known: Exploration) -> None:
    unit = prompts(1, seed=4)[0][0]
    phi = known.law.features(unit[None])[0]
    once = known.expecting(phi, 1, rate=0.25).law
    noisy = known.law.after(unit, 1, 0.9, 4.0 * sum(NOISE))
    assert once.covariance == pytest.approx(noisy.covariance, abs=1e-12)
    assert once.weights == pytest.approx(known.law.weights)


def test_newest_prompts_of_a_router_stand_for_those_to_come() -> None:
    router = Router.fit(generate(n=200, seed=1), costly=QUICK, policy=Never())
    made = Exploration.of(router.cheap)
    assert made.worth.shape == (64, 3)
    assert made.features.shape[0] == 64
    assert np.isfinite(made.worth).all()
    assert made.share.tolist() == [SHARE] * 3  # a newcomer's moves count whole
    grown = Exploration.of(router.add_unscored("new", 0.1).cheap)
    assert grown.share.tolist() == [SHARE] * 3 + [1.0]
