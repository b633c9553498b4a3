"""The linear cheap estimate against scikit-learn and refits without each prompt."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sklearn.decomposition import PCA
from sklearn.linear_model import Ridge

from pandora_router.estimators.embedders.embedder import normalised
from pandora_router.estimators.estimator import Remembering
from pandora_router.estimators.linear import PENALTIES, LinearHead
from pandora_router.estimators.states import estimator_of
from pandora_router.router import LinearRecipe, Router, StackRecipe
from tests.support.embedders import CallableEmbedder
from tests.support.tables import generate

VECTORS = np.random.default_rng(0).standard_normal((400, 12)) * np.linspace(2.0, 0.2, 12)
BY_NUMBER = CallableEmbedder("by number", lambda texts: np.array([VECTORS[int(text)] for text in texts]))
TEXTS = [str(i) for i in range(400)]
REWARD = np.column_stack([np.tanh(VECTORS[:, 0]), VECTORS[:, 1] * VECTORS[:, 2]])
REWARD = REWARD + 0.3 * np.random.default_rng(1).standard_normal(REWARD.shape)


def fitted(rows: list[int], reward: np.ndarray = REWARD) -> LinearHead:
    texts = [TEXTS[i] for i in rows]
    return LinearHead.fit(texts, reward[rows], ["a", "b"], embedder=BY_NUMBER, count=5)


def test_it_is_a_ridge_on_whitened_components_with_the_best_penalty_left_out() -> None:
    rows = list(range(300))
    found = fitted(rows)
    assert isinstance(found, Remembering)
    unit = normalised(VECTORS).astype(np.float64)
    components = PCA(5, whiten=True).fit(unit[:300])
    z = components.transform(unit) * np.sqrt(300 / 299)
    for column in range(2):
        errors, models = [], []
        for penalty in PENALTIES:
            alpha = 300 * penalty
            model = Ridge(alpha).fit(z[:300], REWARD[:300, column])
            x = np.hstack([z[:300], np.ones((300, 1))])
            hat = np.diag(x @ np.linalg.inv(x.T @ x + alpha * np.diag([1.0] * 5 + [0.0])) @ x.T)
            errors.append(np.mean(((REWARD[:300, column] - model.predict(z[:300])) / (1 - hat)) ** 2))
            models.append(model)
        best = models[int(np.argmin(errors))]
        assert found.predict(TEXTS[300:])[:, column] == pytest.approx(best.predict(z[300:]), abs=1e-4)


def test_left_out_is_a_refit_without_the_prompt_and_its_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    """With one penalty, so that leaving a prompt out cannot change which is chosen."""
    monkeypatch.setattr("pandora_router.estimators.linear.PENALTIES", (0.01,))
    reward = REWARD.copy()
    reward[[3, 50], 0] = np.nan
    whole = fitted(list(range(80)), reward).remember([TEXTS[7], TEXTS[90]], reward[[8, 90]])
    left = whole.leave_one_out()
    assert left.shape == (82, 2)
    for i in (0, 3, 7, 50, 80, 81):
        keep = np.array([not np.array_equal(row, whole.components[i]) for row in whole.components])
        assert keep.sum() == (80 if i in (7, 80) else 81)
        z, y = whole.components[keep].astype(np.float64), whole.reward[keep]
        for column in range(2):
            there = ~np.isnan(y[:, column])
            known = (~np.isnan(whole.reward[:, column])).sum()
            model = Ridge(0.01 * known).fit(z[there], y[there, column])
            assert left[i, column] == pytest.approx(model.predict(whole.components[i : i + 1])[0], abs=1e-6)
    assert whole.predict_unseen([TEXTS[0], TEXTS[7]]) == pytest.approx(left[[0, 7]])
    assert whole.predict_unseen([TEXTS[200]]) == pytest.approx(whole.predict([TEXTS[200]]))


def test_a_router_with_it_is_fitted_saved_and_read_back(tmp_path: Path) -> None:
    table = generate(300)
    quick = StackRecipe(rounds=12, folds=2)
    router = Router.fit(table, cheap=LinearRecipe(8), costly=quick, inspection_cost=0.002)
    assert router.record.prompts["remembered"] == 300
    router.save(tmp_path / "router")
    again = Router.load(tmp_path / "router")
    prompts = ["count the river", "tell about the king and the code"]
    np.testing.assert_array_equal(again.cheap.predict(prompts), router.cheap.predict(prompts))
    before, after = router.route_batch(prompts), again.route_batch(prompts)
    assert [one.specialist for one in before] == [one.specialist for one in after]
    state = router.cheap.state()
    np.testing.assert_array_equal(estimator_of(state).predict(prompts), router.cheap.predict(prompts))
