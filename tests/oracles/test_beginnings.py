"""Numbers read off what specialists show: counted by hand, worth something, kept on disk."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from pandora_router.errors import UsageError
from pandora_router.estimators.beginnings import NUMBERS, Beginnings, numbers
from pandora_router.estimators.saved import load_estimator, write
from pandora_router.estimators.sets import Signs


def test_the_numbers_are_those_one_would_count() -> None:
    said = dict(
        zip(
            NUMBERS,
            numbers("What is the capital of Peru?", "log-probabilities: -0.5 -1.5\nLima\n\nlima!\nCusco 2"),
            strict=True,
        )
    )
    assert said["tokens"] == 2
    assert (said["sum"], said["mean"], said["worst"], said["first"]) == (-2.0, -1.0, -1.5, -0.5)
    assert said["words"] == 3
    assert said["hits"] == 0
    assert said["figures"] == 1
    assert said["lines"] == 3
    assert said["agreement"] == pytest.approx(2 / 3)
    found = dict(zip(NUMBERS, numbers("capital of Peru", "The capital of Peru is Lima."), strict=True))
    assert found["hits"] == found["weighty hits"] == 1.0
    assert math.isnan(found["mean"])
    assert found["tokens"] == 0
    half = dict(zip(NUMBERS, numbers("capital of Peru", "of"), strict=True))
    weights = [math.exp(length / 3) for length in (7, 2, 4)]
    assert half["hits"] == pytest.approx(1 / 3)
    assert half["weighty hits"] == pytest.approx(weights[1] / sum(weights))
    assert numbers("", "")[NUMBERS.index("agreement")] == 0.0


@pytest.mark.parametrize(
    "context",
    ["log-probabilities: are numbers\nLima", "scores: nan 1\nLima", "scores: 1 inf\nLima", "scores:7"],
)
def test_a_first_line_from_outside_that_holds_no_numbers_is_text(context: str) -> None:
    said = dict(zip(NUMBERS, numbers("capital of Peru", context), strict=True))
    first = context.startswith("scores:7")
    assert said["tokens"] == (1 if first else 0)
    assert said["lines"] == (0 if first else 2)


def test_scores_of_passages_are_read_and_are_no_part_of_what_was_said() -> None:
    said = dict(zip(NUMBERS, numbers("Nile", "scores: 7.5 2.5\n[1] Nile\n[2] Rhine"), strict=True))
    assert (said["tokens"], said["mean"], said["worst"], said["first"]) == (2, 5.0, 2.5, 7.5)
    assert said["lines"] == 2
    contexts = np.array([["scores: 7.5 2.0\nit is 42", "log-probabilities: -0.1\nit is 42"]], dtype=object)
    bare = np.array([["it is 42", "it is 42"]], dtype=object)
    one = np.zeros((1, 2))
    headed, plain = (Signs.of(["how many"], texts, one, one, one, 400) for texts in (contexts, bare))
    np.testing.assert_array_equal(headed.same, plain.same)
    np.testing.assert_array_equal(headed.overlap, plain.overlap)


def material(n: int, rng: np.random.Generator) -> tuple[list[str], np.ndarray, np.ndarray]:
    """Rewards that follow the log-probability of what was seen, not the prompt."""
    prompts = [f"question {i} about {rng.choice(['rivers', 'towns', 'hills'])}" for i in range(n)]
    sure = rng.random((n, 2))
    reward = (rng.random((n, 2)) < sure).astype(float)
    contexts = np.array(
        [[f"log-probabilities: {math.log(p):.3f}\nyes" for p in row] for row in sure], dtype=object
    )
    return prompts, reward, contexts


def test_what_is_seen_improves_on_f_and_nothing_seen_is_f() -> None:
    rng = np.random.default_rng(0)
    prompts, reward, contexts = material(600, rng)
    fitted = Beginnings.fit(prompts[:400], reward[:400], ["a", "b"], contexts[:400])
    blind, seen = fitted.predict(prompts[400:]), fitted.predict(prompts[400:], contexts[400:])
    np.testing.assert_array_equal(blind, fitted.neighbours.predict(prompts[400:]))
    truth = reward[400:]
    # the best possible error is E[p (1 - p)] = 1/6, that of a constant 1/4
    assert ((seen - truth) ** 2).mean() < 0.5 * (1 / 6 + 1 / 4)
    assert ((seen - truth) ** 2).mean() < ((blind - truth) ** 2).mean()
    half = contexts[400:].copy()
    half[:, 1] = None
    mixed = fitted.predict(prompts[400:], half)
    np.testing.assert_array_equal(mixed, np.column_stack([seen[:, 0], blind[:, 1]]))


def test_it_comes_back_from_disk_as_it_was(tmp_path: Path) -> None:
    prompts, reward, contexts = material(120, np.random.default_rng(1))
    contexts[:100, 1] = None  # too few to learn from: this one keeps f
    fitted = Beginnings.fit(prompts, reward, ["a", "b"], contexts)
    write(tmp_path / "saved", fitted.state())
    again = load_estimator(tmp_path / "saved")
    np.testing.assert_array_equal(again.predict(prompts, contexts), fitted.predict(prompts, contexts))
    np.testing.assert_array_equal(
        again.predict(prompts, contexts)[:, 1], fitted.neighbours.predict(prompts)[:, 1]
    )
    with pytest.raises(UsageError):
        fitted.predict(prompts, contexts[:3])
