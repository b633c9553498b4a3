"""Fees against numbers worked out by hand; nothing with a score is free by omission."""

from __future__ import annotations

import numpy as np
import pytest

from pandora_router.data.fees import (
    Facts,
    FirstOf,
    Free,
    FromColumn,
    PerParameter,
    PerSpecialist,
    PerToken,
    price,
)
from pandora_router.errors import UsageError

nan = np.nan
FACTS = Facts(
    specialists=("small", "large"),
    prompt_characters=np.array([400.0, 800.0]),
    scored=np.array([[True, True], [True, False]]),
    per_specialist={
        "params_b": np.array([7.0, nan]),
        "samples": np.array([1.0, 100.0]),
        "usd_in": np.array([1.0, 10.0]),
        "usd_out": np.array([2.0, 30.0]),
    },
    per_cell={
        "output_chars": np.array([[40.0, 80.0], [120.0, nan]]),
        "cost": np.array([[0.1, nan], [0.3, nan]]),
    },
)


def test_per_specialist():
    assert price(PerSpecialist({"small": 1, "large": 2.5}), FACTS).tolist() == [[1, 2.5], [1, 2.5]]


def test_per_parameter_with_stated_sizes_and_samples():
    fee = price(PerParameter(2.0, stated={"large": 500.0}), FACTS)
    np.testing.assert_allclose(fee, [[0.014, 1.0], [0.014, 1.0]])
    fee = price(PerParameter(2.0, stated={"large": 500.0}, samples="samples"), FACTS)
    np.testing.assert_allclose(fee, [[0.014, 100.0], [0.014, 100.0]])


def test_per_token_from_characters():
    fee = price(PerToken("usd_in", "usd_out", characters_out="output_chars"), FACTS)
    np.testing.assert_allclose(fee[0], [(100 * 1 + 10 * 2) / 1e6, (100 * 10 + 20 * 30) / 1e6])
    np.testing.assert_allclose(fee[1, 0], (200 * 1 + 30 * 2) / 1e6)


def test_per_token_from_counts_and_prices_given():
    rule = PerToken(price_in={"small": 5.0, "large": 7.0}, price_out=11.0, tokens_in=1000, tokens_out=10)
    np.testing.assert_allclose(price(rule, FACTS)[0], [5110 / 1e6, 7110 / 1e6])


@pytest.mark.parametrize("lengths", [{}, {"tokens_out": 1, "characters_out": "output_chars"}])
def test_per_token_needs_exactly_one_answer_length(lengths):
    with pytest.raises(UsageError, match="either tokens_out or characters_out"):
        PerToken(**lengths)


def test_free_must_be_said():
    assert price(Free(), FACTS).tolist() == [[0, 0], [0, 0]]


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        (PerSpecialist({"small": 1}), r"none for 1 of 2 specialists: large \(1 answers\)"),
        (PerParameter(1.0), "large"),
        (FromColumn("cost"), r"large \(1 answers\)"),
        (PerSpecialist({"small": 1, "lagre": 2}), "'lagre'"),
        (PerParameter(1.0, stated={"lagre": 2}), "'lagre'"),
        (FromColumn("costs"), "'costs'"),
        (FirstOf((FromColumn("cost"), PerParameter(1.0))), "large"),
    ],
)
def test_the_unpriced_and_the_misspelt_are_errors(rule, said):
    with pytest.raises(UsageError, match=said):
        price(rule, FACTS)


def test_a_missing_cell_may_stay_unpriced():
    fee = price(PerToken("usd_in", "usd_out", characters_out="output_chars"), FACTS)
    assert np.isnan(fee[1, 1])


def test_first_of_takes_whole_specialists():
    rule = FirstOf((FromColumn("cost"), PerSpecialist({"small": 9, "large": 5})))
    assert price(rule, FACTS).tolist() == [[0.1, 5.0], [0.3, 5.0]]


def test_a_column_that_is_no_number_says_where():
    fault = UsageError("f.csv, row 2, column 'cost'", expected="a number", came="'x'", do="Mend.")
    facts = Facts(("a",), np.ones(1), np.ones((1, 1), dtype=bool), unreadable={"cost": fault})
    with pytest.raises(UsageError, match="row 2"):
        price(FromColumn("cost"), facts)
