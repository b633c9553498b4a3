"""Numbers read off what specialists show, counted by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pandora_router.estimators.set_layer import NUMBERS, Signs, numbers


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
