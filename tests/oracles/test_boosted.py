"""The boosted stack: learns what is there, keeps out of fold what it must not know, earns it on real data."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from benchmarks.folders import DATA, Folder, load
from scipy.optimize import lsq_linear

from pandora_router.errors import UsageError
from pandora_router.estimators.embedders.tfidf import SURFACE, characters, surface
from pandora_router.estimators.extended import Extended
from pandora_router.estimators.neighbours import Neighbours
from pandora_router.estimators.rewards import blend_weights
from pandora_router.estimators.stack.agreement import AGREEMENT, agreement
from pandora_router.estimators.stack.boosted import Boosted, Trees
from pandora_router.estimators.stack.features import PEEKED, asked_for, peeked
from pandora_router.estimators.stack.peek import Peek

WORDS = ["river", "stone", "cloud", "engine", "violin", "harbour", "meadow", "candle"]


def prompts_and_rewards(count: int, seed: int) -> tuple[list[str], np.ndarray]:
    """Two specialists: one is good at long prompts, the other at prompts with digits; the rest is noise."""
    rng = np.random.default_rng(seed)
    prompts, chance = [], np.empty((count, 2))
    for i in range(count):
        long, digits = rng.random(2) < 0.5
        text = " ".join(rng.choice(WORDS, 30 if long else 6))
        prompts.append(f"{text} {rng.integers(10, 99) if digits else ''} {i}")
        chance[i] = 0.9 if long else 0.2, 0.8 if digits else 0.3
    return prompts, (rng.random((count, 2)) < chance).astype(float)


def test_a_known_rule_is_learnt_and_missing_cells_are_not_needed() -> None:
    prompts, reward = prompts_and_rewards(600, 0)
    reward[np.random.default_rng(1).random(reward.shape) < 0.3] = np.nan
    fitted = Boosted.fit(prompts, reward, ["long", "digits"])
    new, truth = prompts_and_rewards(400, 2)
    error = np.mean((fitted.predict(new) - truth) ** 2)
    constant = np.mean((np.nanmean(reward, axis=0) - truth) ** 2)
    assert error < 0.85 * constant
    assert np.isfinite(fitted.out_of_fold).all()


def test_weights_of_several_estimates_are_those_of_bounded_least_squares() -> None:
    """Three estimates that nearly agree, one of which has to be held at 0; cells are missing."""
    rng = np.random.default_rng(4)
    truth = rng.random((300, 2))
    parts = [truth + 0.3 * rng.standard_normal(truth.shape), truth + 0.3 * rng.standard_normal(truth.shape)]
    parts.append(0.6 * parts[0] + 0.6 * parts[1] + 0.001 * rng.standard_normal(truth.shape) - truth)
    reward = np.where(rng.random(truth.shape) < 0.1, np.nan, truth + 0.2 * rng.standard_normal(truth.shape))
    mean = np.nanmean(reward, axis=0)
    there = np.isfinite(reward)
    design = np.column_stack([(part - mean)[there] for part in parts])
    expected = lsq_linear(design, (reward - mean)[there], (0.0, np.inf), tol=1e-14).x
    assert expected.min() == pytest.approx(0.0, abs=1e-8)
    assert blend_weights(parts, reward, mean) == pytest.approx(expected, abs=1e-6)


def test_out_of_fold_predictions_do_not_know_their_own_reward() -> None:
    rng = np.random.default_rng(3)
    prompts = [" ".join(rng.choice(WORDS, 9)) for _ in range(400)]
    reward = rng.integers(0, 2, (400, 2)).astype(float)
    fitted = Boosted.fit(prompts, reward, ["a", "b"])
    known = np.corrcoef(fitted.out_of_fold.ravel() - fitted.out_of_fold.mean(), reward.ravel())[0, 1]
    assert not known > 0.15


def test_the_same_seed_gives_the_same_stack_and_a_prompt_does_not_see_its_neighbours_in_a_batch() -> None:
    prompts, reward = prompts_and_rewards(120, 4)
    quick = Trees(rounds=20)
    one, two = (Boosted.fit(prompts, reward, ["a", "b"], trees=quick, seed=7) for _ in range(2))
    together = one.predict(prompts[:9])
    np.testing.assert_array_equal(together, two.predict(prompts[:9]))
    alone = np.vstack([one.predict([prompt]) for prompt in prompts[:9]])
    np.testing.assert_allclose(together, alone, atol=1e-3)


def test_prompts_of_one_form_are_estimated_alike_alone_and_among_others() -> None:
    """They vary in few directions; along the others trees would split rounding errors."""
    rng = np.random.default_rng(5)
    prompts = [f"count the {rng.choice(WORDS[:3])} of case {i}" for i in range(300)]
    contexts = np.array([[f"I get {a}", f"it is {b}"] for a, b in rng.integers(100, 999, (300, 2))], object)
    reward = rng.random((300, 2))
    fitted = Boosted.fit(prompts, reward, ["a", "b"], contexts=contexts, peek=Peek(), trees=Trees(rounds=30))
    alone = [fitted.predict(prompts[i : i + 1], contexts[i : i + 1])[0] for i in range(60)]
    assert np.allclose(fitted.predict(prompts[:60], contexts[:60]), alone, rtol=0.0, atol=1e-9)


def test_a_peek_that_tells_all_is_believed_and_its_absence_falls_back_to_the_prompt() -> None:
    prompts, reward = prompts_and_rewards(500, 5)
    told = np.where(reward > 0.5, "surely it is forty two", "perhaps, not sure, maybe").astype(object)
    plain = Boosted.fit(prompts, reward, ["a", "b"])
    seeing = Boosted.fit(prompts, reward, ["a", "b"], contexts=told, peek=Peek(400))
    new, truth = prompts_and_rewards(300, 6)
    new_told = np.where(truth > 0.5, "surely it is forty two", "perhaps, not sure, maybe").astype(object)
    assert np.mean((seeing.predict(new, new_told) - truth) ** 2) < 0.05
    blind, usual = (np.mean((g.predict(new) - truth) ** 2) for g in (seeing, plain))
    assert blind < 1.15 * usual
    short = Boosted.fit(prompts, reward, ["a", "b"], contexts=told, peek=Peek(1), trees=Trees(rounds=30))
    assert short.contexts is not None
    assert set(short.contexts.peek.cut(told).ravel()) == {"s", "p"}


def test_a_peek_needs_contexts_of_the_right_shape() -> None:
    prompts, reward = prompts_and_rewards(20, 7)
    with pytest.raises(UsageError, match="contexts for a peek"):
        Boosted.fit(prompts, reward, ["a", "b"], peek=Peek())
    with pytest.raises(UsageError, match="shape"):
        Boosted.fit(prompts, reward, ["a", "b"], peek=Peek(), contexts=np.full((2, 2), None, dtype=object))


def test_agreement_counts_who_says_the_same() -> None:
    told = np.array([["so 12", "hence 12", "then 7", None]], dtype=object)
    found = agreement(["how many?"], told, np.array([0.5, 0.5, 0.5, 0.5]))
    assert found.shape == (1, 4, AGREEMENT)
    np.testing.assert_allclose(found[0, :3, 0], [0.5, 0.5, 0.0])
    np.testing.assert_allclose(found[0, :3, 2], 2 / 3)
    assert np.isnan(found[0, 3]).all()


def test_a_newcomer_like_one_already_known_is_learnt_from_a_few_prompts() -> None:
    prompts, reward = prompts_and_rewards(500, 8)
    base = Boosted.fit(prompts, reward, ["long", "digits"])
    few, scored = prompts_and_rewards(60, 9)
    added = Extended.fit(base, "new", few, scored[:, 0])
    new, truth = prompts_and_rewards(300, 10)
    found = added.predict(new)
    np.testing.assert_array_equal(found[:, :2], base.predict(new))
    assert np.mean((found[:, 2] - truth[:, 0]) ** 2) < 1.15 * np.mean((found[:, 0] - truth[:, 0]) ** 2)


@pytest.mark.parametrize("text", ["", " ", "\n\n", "?", "12", "a" * 5000, "\u4f60\u597d \ud83d\ude00"])
def test_surface_is_finite_for_every_text(text: str) -> None:
    assert surface([text]).shape == (1, SURFACE)
    assert np.isfinite(surface([text])).all()
    assert np.isfinite(peeked(asked_for(text), text)).all()
    assert len(peeked(asked_for(""), text)) == PEEKED


def test_characters_are_counted_as_one_by_one() -> None:
    rng = np.random.default_rng(0)
    kinds = [*map(chr, range(0x3000)), "\ud800", "\U0001f600", "\u2167", *map(chr, range(128))] + ["e"] * 9000
    for length in rng.integers(0, 60, 500):
        text = "".join(kinds[int(i)] for i in rng.integers(0, len(kinds), length))
        marks = sum(1 for one in text if not one.isalnum() and not one.isspace())
        beyond = sum(1 for one in text if ord(one) > 127)
        one_by_one = (sum(map(str.isdigit, text)), sum(map(str.isupper, text)), marks, beyond)
        assert characters(text) == one_by_one


def shared(name: str) -> tuple[Folder, Folder]:
    if not (DATA / name / "scores.parquet").exists():
        pytest.skip(f"no shared data at ../shared/data/{name}")
    folder = load(name)
    return folder.take(folder.rows("train")), folder.take(folder.rows("test"))


@pytest.mark.parametrize("name", ["gsm8k_6b_175b", "rag_adarague"])
def test_on_real_prompts_the_stack_is_a_fifth_below_three_neighbours(name: str) -> None:
    train, test = shared(name)
    near = Neighbours.fit(train.prompts, train.reward, train.specialists, k=3)
    g = Boosted.fit(train.prompts, train.reward, train.specialists)
    errors = [
        np.nanmean((model.predict(test.prompts) - test.reward) ** 2)
        for model in (near, replace(near, k=50), g)
    ]
    assert errors[2] < 0.8 * errors[0]
    assert errors[2] < errors[1]
