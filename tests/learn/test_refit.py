"""A router learns from rated requests: rows are completed as regression says, and decisions are no worse."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pandora_router import Never, Router
from pandora_router.data import Table
from pandora_router.errors import UsageError
from pandora_router.estimators.neighbours import Neighbours
from pandora_router.learn.drift import ALARM, FIRST, detect
from pandora_router.learn.refit import aligned, complaint_offset, refit, spread, told_by_looks
from tests.support.routers import QUICK
from tests.support.tables import generate


def only(table: Table, column: np.ndarray) -> Table:
    """The table with the score of one specialist per prompt."""
    score = np.where(np.arange(table.score.shape[1]) == column[:, None], table.score, np.nan)
    return replace(table, score=score)


def test_missing_cells_follow_by_conditioning_a_normal_law() -> None:
    rng = np.random.default_rng(0)
    root = rng.standard_normal((4, 4))
    covariance = root @ root.T
    draws = rng.multivariate_normal(np.zeros(4), covariance, 200_000)
    near = np.abs(draws[:, [0, 2]] - np.array([0.5, -0.3])).max(axis=1) < 0.1  # brute force conditioning
    news = np.array([[0.5, np.nan, -0.3, np.nan], [np.nan] * 4])
    found = spread(news, covariance)
    assert found[0] == pytest.approx(draws[near].mean(axis=0), abs=0.15)
    assert found[0, [0, 2]] == pytest.approx([0.5, -0.3])
    assert found[1].tolist() == [0.0] * 4


def test_looks_are_noisy_observations_in_the_same_normal_law() -> None:
    """Against the posterior by adding precisions, for rows of every pattern of rated and looked-at cells."""
    rng = np.random.default_rng(1)
    root = rng.standard_normal((3, 3))
    covariance, told = root @ root.T + np.eye(3), 0.5 * rng.standard_normal((200, 3))
    news = rng.standard_normal((200, 3))
    told[rng.random(told.shape) < 0.4] = np.nan
    news[rng.random(news.shape) < 0.6] = np.nan
    found, prior = spread(news, covariance, told), np.linalg.inv(covariance)
    share = np.nanmean(told**2, axis=0) / np.diag(covariance)
    noise = np.diag(covariance) * (1.0 / share - 1.0)
    for row in range(200):
        rated, looked = np.isfinite(news[row]), np.isfinite(told[row]) & ~np.isfinite(news[row])
        precision = np.where(rated, 1e8, np.where(looked, 1.0 / noise, 0.0))
        value = np.where(rated, news[row], np.where(looked, told[row] / share, 0.0))
        posterior = np.linalg.solve(prior + np.diag(precision), precision * value)
        assert found[row] == pytest.approx(posterior, abs=1e-5)
    blank = np.full_like(news, np.nan)
    alone = spread(blank, covariance, np.where(np.arange(3) == 1, told, np.nan))[:, 1]
    assert alone == pytest.approx(np.nan_to_num(told[:, 1]))  # a look alone says what it says
    assert spread(news, covariance, blank).tolist() == spread(news, covariance).tolist()


def test_what_looks_tell_is_measured_on_the_rated_answers() -> None:
    rng = np.random.default_rng(2)
    shown, noise = rng.standard_normal((2, 4000, 2))
    answered = np.argmax(shown, axis=1)  # who looked better answers
    known = np.arange(2) == answered[:, None]
    told, slope = told_by_looks(shown, np.where(known, 0.5 * shown + noise, np.nan))
    assert slope == pytest.approx(0.5, abs=0.06)
    assert told == pytest.approx(slope * shown)
    against, none = told_by_looks(shown, np.where(known, noise - 0.5 * shown, np.nan))
    assert none == 0.0
    assert np.isnan(against).all()
    assert told_by_looks(shown[:20], np.where(known, shown, np.nan)[:20])[1] == 0.0  # too few


def test_looks_fill_the_cells_of_those_that_did_not_answer(small: Router) -> None:
    """Looks that show part of the truth lower the error of completed cells; wrong ones change nothing."""
    traffic = generate(n=400, seed=11)
    asked = np.arange(400) % 3
    truth = traffic.reward - small.cheap.predict(traffic.prompts)
    plain = refit(small, only(traffic, asked)).router
    told, misled = (refit(small, only(traffic, asked), looks=sign * 0.3 * truth).router for sign in (1, -1))

    def error(router: Router) -> float:
        rows = router.cheap.after.reward[-400:] - traffic.reward  # type: ignore[attr-defined]
        return float(np.sqrt(np.mean(rows[np.arange(3) != asked[:, None]] ** 2)))

    assert error(told) < 0.7 * error(plain)
    assert error(misled) == error(plain)
    assert told.record.learnt["looks"]["requests"] == 400
    assert misled.record.learnt["looks"] == {"requests": 0, "slope": 0.0}


@pytest.fixture(scope="module")
def small() -> Router:
    return Router.fit(generate(n=120, seed=1), costly=QUICK, policy=Never())


def test_rated_requests_improve_decisions_and_seen_scores_stay_as_they_were_seen(small: Router) -> None:
    traffic, held = generate(n=2000, seed=2), generate(n=2000, seed=3)
    asked = np.array([small.specialists.index(d.specialist) for d in small.route_batch(traffic.prompts)])
    learnt = refit(small, only(traffic, asked))
    assert (learnt.requests, learnt.ratings) == (2000, 2000)
    assert learnt.router.id != small.id
    assert learnt.router.record.learnt["parent"] == small.id
    rows = np.arange(2000)
    seen = learnt.router.cheap.after.reward[-2000:][rows, asked]  # type: ignore[attr-defined]
    assert seen == pytest.approx(traffic.reward[rows, asked])

    def earned(router: Router) -> float:
        chosen = [router.specialists.index(d.specialist) for d in router.route_batch(held.prompts)]
        return float(held.reward[rows, chosen].mean())

    assert earned(learnt.router) >= earned(small) - 0.002


def test_what_it_learnt_is_kept_on_disk(small: Router, tmp_path: object) -> None:
    traffic = generate(n=200, seed=4)
    made = refit(small, only(traffic, np.zeros(200, dtype=int))).router
    made.save(f"{tmp_path}/learnt")
    again = Router.load(f"{tmp_path}/learnt")
    prompts = traffic.prompts[:20]
    assert [d.specialist for d in again.route_batch(prompts)] == [
        d.specialist for d in made.route_batch(prompts)
    ]


def test_complaints_are_told_from_bad_answers() -> None:
    """Wrong answers rated four times as often as right ones: the offset is log(1/4)."""
    rng = np.random.default_rng(5)
    chance = rng.uniform(0.3, 0.9, (40_000, 1))
    right = rng.random(chance.shape) < chance
    rated = rng.random(chance.shape) < np.where(right, 0.1, 0.4)
    score = np.where(rated, right.astype(float), np.nan)
    assert complaint_offset(chance, score) == pytest.approx(np.log(0.25), abs=0.05)


def test_a_log_of_strangers_and_a_router_without_neighbours_are_refused(small: Router) -> None:
    with pytest.raises(UsageError, match="rating"):
        refit(small, replace(generate(n=50), specialists=("x", "y", "z")))


def test_ratings_are_ordered_as_the_router_has_its_specialists() -> None:
    """Compared cell by cell with the rows of the table; a specialist that was never asked has none."""
    traffic = only(generate(n=9, seed=6), np.arange(9) % 3)
    names = (traffic.specialists[1], "a stranger", traffic.specialists[0])
    score, fee = aligned(names, traffic)
    for row in range(9):
        for column, there in ((0, 1), (2, 0)):
            cells = (
                (score[row, column], traffic.score[row, there]),
                (fee[row, column], traffic.fee[row, there]),
            )
            assert all(ours == theirs or np.isnan([ours, theirs]).all() for ours, theirs in cells)
    assert np.isnan([score[:, 1], fee[:, 1]]).all()
    assert (~np.isnan(score)).sum() == 6


@pytest.mark.parametrize(("drop", "alarms"), [(0.0, False), (0.02, False), (0.2, True)])
def test_a_drop_is_noticed_and_quiet_streams_are_quiet(drop: float, alarms: bool) -> None:
    rng = np.random.default_rng(8)
    found = []
    for _ in range(20):
        chance = np.where(np.arange(1500) < 600, 0.7, 0.7 - drop)
        found.append(
            detect((rng.random(1500) < chance) - 0.65).alarm
        )  # the estimate is off by .05 throughout
    noticed = [alarm for alarm in found if alarm is not None]
    if alarms:
        assert len(noticed) == 20
        assert np.median(noticed) < 600 + 250
        assert min(noticed) > FIRST
    else:
        assert len(noticed) <= 1


def test_the_detector_is_the_mean_of_its_bets_by_hand() -> None:
    values = [0.0] * FIRST + [-0.5, -0.5]
    expected = []
    for sign in (-1.0, 1.0):
        for bet in (0.02, 0.05, 0.1, 0.2, 0.4):
            wealth = 0.0
            for e in (-0.5, -0.5):
                wealth = (wealth + 1.0) * (1.0 + bet * (sign * e - 0.03))
            expected.append(wealth)
    assert detect(values).evidence == pytest.approx(np.mean(expected))
    assert detect(values).evidence < ALARM


def test_what_a_specialist_earns_of_late_leaves_out_the_answers_that_set_its_level() -> None:
    values = np.concatenate([np.full(300, 0.1), np.full(40, -0.2)])
    assert detect(values).recent == pytest.approx(-0.3)
    assert detect(np.concatenate([values, np.full(500, 0.4)])).recent == pytest.approx(0.3)


def test_a_fair_sample_tells_complaints_from_a_change_of_all_specialists(small: Router) -> None:
    """Everything got worse by 0.2, and wrong answers are rated four times as often: both are found."""
    rng, cheap = np.random.default_rng(9), small.cheap
    assert isinstance(cheap, Neighbours)
    traffic, fair = generate(n=6000, seed=10), generate(n=1500, seed=11)
    expected = cheap.predict_unseen(traffic.prompts) + small.deducted
    chance = np.clip(expected - 0.2, 0.02, 0.98)
    score = (rng.random(chance.shape) < chance).astype(float)
    asked = np.arange(6000) % 3
    right = score[np.arange(6000), asked] > 0.5
    rated = rng.random(6000) < np.where(right, 0.2, 0.8)
    log = only(replace(traffic, score=np.where(rated[:, None], score, np.nan)), asked)
    fair_chance = np.clip(cheap.predict_unseen(fair.prompts) + small.deducted - 0.2, 0.02, 0.98)
    sample = replace(fair, score=(rng.random(fair_chance.shape) < fair_chance).astype(float))
    alone, both = (refit(small, log, complaints=True, fair=known) for known in (None, sample))
    drift = both.router.record.learnt["drift"]
    assert both.offset == pytest.approx(np.log(0.25), abs=0.15)
    assert alone.offset == pytest.approx(both.offset + drift, abs=0.15)  # bias and change, not told apart
    held = generate(n=1000, seed=12)
    truth = cheap.predict_unseen(held.prompts) - 0.2

    def error(router: Router) -> float:
        return abs(float((router.cheap.predict(held.prompts) - truth).mean()))

    assert error(both.router) < error(alone.router)
    assert error(both.router) < 0.1
    assert both.router.record.learnt["labels"] == 4500


def test_prompts_that_were_scored_completely_are_known_like_those_of_the_fit(small: Router) -> None:
    traffic, labels, held = (generate(n=n, seed=seed) for n, seed in ((60, 21), (80, 22), (50, 23)))
    made = refit(small, only(traffic, np.arange(60) % 3), fair=labels).router
    assert isinstance(small.cheap, Neighbours)
    wide = small.cheap.remember(labels.prompts, labels.reward)
    assert made.cheap.before.predict(held.prompts) == pytest.approx(wide.predict(held.prompts))  # type: ignore[attr-defined]
    assert made.cheap.fitted.same_as(small.cheap)  # type: ignore[attr-defined]
    again = refit(made, only(traffic, np.arange(60) % 3), fair=labels).router  # nothing counts twice
    assert again.cheap.predict(held.prompts) == pytest.approx(made.cheap.predict(held.prompts), abs=1e-12)
    nobody = generate(n=1, seed=21)
    empty = replace(nobody, score=np.full(nobody.score.shape, np.nan))
    alone = refit(small, empty, fair=labels).router  # labels without any rating
    assert alone.cheap.after.reward == pytest.approx(wide.reward)  # type: ignore[attr-defined]
