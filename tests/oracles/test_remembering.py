"""A cheap estimate that remembers: against plain loops over all prompts, and no look at the test split."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pandora_router.calibrate import Calibrated
from pandora_router.data import Table
from pandora_router.estimators.embedders.embedder import normalised
from pandora_router.estimators.estimator import Remembering, unseen
from pandora_router.estimators.neighbours import Neighbours
from pandora_router.router import NeighbourRecipe, Router, StackRecipe
from pandora_router.router.out_of_fold import recentred
from pandora_router.router.table_fit import parted
from tests.support.embedders import CallableEmbedder
from tests.support.tables import generate

QUICK = StackRecipe(rounds=12, folds=2)
KS = (4, 9)


def points(texts: list[str]) -> np.ndarray:
    """A vector per text that any two texts share only if they are equal."""
    seeds = [int.from_bytes(text.encode()[-4:].rjust(4, b"\0"), "big") for text in texts]
    return np.array([np.random.default_rng(seed).standard_normal(5) for seed in seeds]).reshape(-1, 5)


GIVEN = CallableEmbedder("points", points)


def average(query: np.ndarray, vectors: np.ndarray, reward: np.ndarray, ks: tuple[int, ...]) -> np.ndarray:
    """The mean over ks of the mean reward of the k nearest, by sorting everything."""
    order = np.argsort(-(vectors @ query), kind="stable")
    return np.mean([reward[order[:k]].mean(axis=0) for k in ks], axis=0)


def test_the_estimate_is_the_average_over_all_k_of_everything_it_remembers() -> None:
    rng = np.random.default_rng(0)
    texts = [f"p{i:03d}" for i in range(60)]
    reward = rng.random((60, 2))
    fitted = Neighbours.fit(texts[:40], reward[:40], ["a", "b"], embedder=GIVEN, k=KS)
    grown = fitted.remember(texts[40:], reward[40:])
    assert isinstance(grown, Remembering)
    vectors = normalised(points(texts))
    new = normalised(points(["x001", "x002"]))
    for i, found in enumerate(grown.predict(["x001", "x002"])):
        assert found == pytest.approx(average(new[i], vectors, reward, KS))
    left = grown.leave_one_out()
    for i in range(60):
        rest = np.arange(60) != i
        assert left[i] == pytest.approx(average(vectors[i], vectors[rest], reward[rest], KS))
    assert grown.predict_unseen(texts[35:45]) == pytest.approx(left[35:45])
    assert grown.predict(texts[35:45]) != pytest.approx(left[35:45])
    assert unseen(grown, ["x001"]) == pytest.approx(grown.predict(["x001"]))


def test_a_router_is_measured_before_it_remembers_the_test_prompts() -> None:
    table = generate(300)
    cheap = NeighbourRecipe(KS, GIVEN)
    ships = Router.fit(table, cheap=cheap, costly=QUICK, inspection_cost=0.002)
    waits = Router.fit(table, cheap=cheap, costly=QUICK, inspection_cost=0.002, remember_test=False)
    assert ships.record.report == waits.record.report
    assert ships.id != waits.id
    train, calibration, test, _ = parted(table)
    assert ships.record.prompts["remembered"] == len(train) + len(calibration) + len(test)
    assert waits.record.prompts["remembered"] == len(train) + len(calibration)
    query = normalised(points(["new prompt 777"]))[0]
    for router, parts in ((ships, (train, calibration, test)), (waits, (train, calibration))):
        vectors = normalised(points([text for part in parts for text in part.prompts]))
        reward = np.concatenate([part.reward for part in parts])
        expected = average(query, vectors, reward, KS)
        assert router.cheap.predict(["new prompt 777"])[0] == pytest.approx(expected)


def test_nothing_that_is_fitted_or_chosen_depends_on_rewards_of_test_prompts() -> None:
    """The same table with other scores on test: only what is remembered and what is measured may differ."""
    table = generate(300)
    lied = np.where((table.split == "test")[:, None], 1.0 - table.score, table.score)
    one, other = (
        Router.fit(t, cheap=NeighbourRecipe(KS, GIVEN), costly=QUICK, inspection_cost=0.002)
        for t in (table, replace(table, score=lied))
    )
    f = np.random.default_rng(1).random((20, 3))
    g = f + 0.1
    np.testing.assert_array_equal(one.signal.values(f, g), other.signal.values(f, g))
    np.testing.assert_array_equal(one.signal.batch(f, 0.01).std, other.signal.batch(f, 0.01).std)
    assert one.record.evidence == other.record.evidence
    assert one.record.report != other.record.report
    assert (one.cheap.predict(["new"]) != other.cheap.predict(["new"])).any()


def test_the_signal_model_is_fitted_on_left_out_estimates_of_train_and_calibration() -> None:
    table = generate(300)
    router = Router.fit(table, cheap=NeighbourRecipe(KS, GIVEN), costly=QUICK, inspection_cost=0.002)
    train, calibration, _, _ = parted(table)
    vectors = normalised(points([*train.prompts, *calibration.prompts]))
    reward = np.concatenate([train.reward, calibration.reward])
    rows = np.arange(len(vectors))
    f = np.array([average(vectors[i], vectors[rows != i], reward[rows != i], KS) for i in rows])
    f += [reward.mean(axis=0) - reward[rows != i].mean(axis=0) for i in rows]
    from pandora_router.calibrate.readings import Readings

    costly = QUICK.fit(train, lambda what, share: None)
    learnt = Readings(f[: len(train)], costly.out_of_fold, train.reward)  # type: ignore[attr-defined]
    g = costly.predict(calibration.prompts)
    expected = Calibrated().fit(Readings(f[len(train) :], g, calibration.reward), learnt)
    new = np.random.default_rng(2).random((9, 3))
    assert router.signal.values(new, new) == pytest.approx(expected.values(new, new))
    assert router.signal.batch(new, 0.01).mean == pytest.approx(expected.believed(new))


def test_where_prompts_say_nothing_left_out_estimates_do_not_predict_the_opposite() -> None:
    """Rewards of pure noise, 25 to 99 neighbours among 100 prompts: the pooled slope on left-out f is 0."""
    rng = np.random.default_rng(3)
    texts = [f"n{i:03d}" for i in range(100)]
    raw, moved = [], []
    for _ in range(200):
        reward = rng.standard_normal((100, 3))
        fitted = Neighbours.fit(texts, reward, ["a", "b", "c"], embedder=GIVEN, k=(25, 50, 200))
        left = fitted.leave_one_out()
        for f, sums in ((left, raw), (recentred(left, reward), moved)):
            away = f - f.mean(axis=0)
            sums.append([float((away * reward).sum()), float((away**2).sum())])
    for sums, low, high in ((raw, -2.0, -0.5), (moved, -0.15, 0.15)):
        product, square = np.sum(sums, axis=0)
        assert low < product / square < high
    hole = np.where(rng.random((100, 3)) < 0.3, np.nan, rng.random((100, 3)))
    same = recentred(left, hole)
    assert (same[np.isnan(hole)] == left[np.isnan(hole)]).all()


def test_a_prompt_of_calibration_that_stands_in_test_again_is_left_out_there() -> None:
    table = generate(300)
    first = int(np.flatnonzero(table.split == "calibration")[0])
    again = int(np.flatnonzero(table.split == "test")[0])
    texts = list(table.prompts)
    texts[again] = f"  {texts[first]} "
    doubled: Table = replace(table, prompts=tuple(texts))
    before, after = parted(table), parted(doubled)
    assert (before[3], after[3]) == (0, 1)
    assert len(after[2]) == len(before[2]) - 1
