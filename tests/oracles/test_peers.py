"""The benchmark of peers: published rules against brute force, and peers that are not installed."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from benchmarks.peers import baselines
from benchmarks.peers.__main__ import others
from benchmarks.peers.page import Measured, page
from benchmarks.peers.runs import NEVER, OURS, PEERS, Chosen, Run
from sklearn.model_selection import PredefinedSplit, cross_val_score
from sklearn.neighbors import KNeighborsRegressor

from pandora_router.config.experiments import experiment
from tests.support.tables import generate


@pytest.fixture
def task() -> SimpleNamespace:
    rng = np.random.default_rng(3)
    vectors, test = rng.normal(size=(120, 6)), rng.normal(size=(30, 6))
    score = np.clip(vectors[:, :3] + rng.normal(size=(120, 3)), 0.0, 1.0)
    fee = np.broadcast_to([0.0, 0.1, 0.3], score.shape)
    return SimpleNamespace(vectors=vectors, test=test, score=score, fee=fee, net=score - fee)


def test_nearest_takes_the_best_mean_of_the_nearest_by_cosine(task: SimpleNamespace) -> None:
    decide = baselines.nearest(task, 7)
    for row, vector in enumerate(task.test):
        cosine = task.vectors @ vector / np.linalg.norm(task.vectors, axis=1)
        near = sorted(range(len(cosine)), key=lambda i: -cosine[i])[:7]
        assert decide(row) == int(np.argmax(task.net[near].mean(axis=0)))


def test_k_of_carrot_is_that_of_least_cross_validated_error(task: SimpleNamespace) -> None:
    unit = baselines.unit(task.vectors)
    folds = PredefinedSplit(np.random.default_rng(0).integers(0, 5, len(unit)))
    sizes = np.bincount(folds.test_fold)
    errors = {
        k: -cross_val_score(
            KNeighborsRegressor(k, metric="cosine"),
            unit,
            task.score,
            cv=folds,
            scoring="neg_mean_squared_error",
        )
        @ sizes
        for k in baselines.KS
        if k <= 0.7 * len(unit)
    }
    assert baselines.chosen_k(unit, task.score) == min(errors, key=lambda k: errors[k])


@pytest.fixture
def run(tmp_path: Path) -> Run:
    told = experiment("small", {"data": "small"})
    return Run("small", 1, told, generate(150, 2), tmp_path / "kept")


def test_a_peer_that_is_not_installed_is_named_and_left_out(run: Run, tmp_path: Path) -> None:
    ways, failed = others(run, tmp_path, 10.0)
    assert set(failed) == set(PEERS)
    assert "make peers" in failed["ParetoBandit"]
    same = {way: [choice] for way, choice in ways.items()}
    ours = ways["best single"]
    found = {"small": Measured([run], same | {OURS: [ours], NEVER: [ours]})}
    text = page(found, failed, "code", "command")
    assert "**ParetoBandit** was left out" in text
    assert "| ours |" in text


def test_choices_are_kept_and_made_anew_for_other_settings(run: Run) -> None:
    made: list[int] = []

    def make() -> Chosen:
        made.append(1)
        return Chosen(np.zeros(len(run.test), dtype=np.intp), np.full(len(run.test), 0.25), 1.0, 2.0)

    first, again = run.kept("way", make, "a"), run.kept("way", make, "a")
    assert len(made) == 1
    np.testing.assert_array_equal(first.chosen, again.chosen)
    np.testing.assert_allclose(run.net(again), run.test.reward[:, 0] - 0.25)
    run.kept("way", make, "b")
    assert len(made) == 2


def test_a_lead_is_the_paired_mean_and_its_error_that_of_prompts(run: Run) -> None:
    rows = len(run.test)
    best, worst = (
        Chosen(pick(run.test.reward, axis=1), np.zeros(rows), 1.0, 1.0) for pick in (np.argmax, np.argmin)
    )
    measured = Measured([run], {OURS: [worst], "best": [best]})
    lead, error = measured.lead("best")
    gap = run.test.reward.max(axis=1) - run.test.reward.min(axis=1)
    assert lead == pytest.approx(gap.mean())
    assert error == pytest.approx(gap.std(ddof=1) / np.sqrt(rows), rel=0.15)
