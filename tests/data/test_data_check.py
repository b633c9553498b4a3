"""The summary against numbers worked out by hand."""

from __future__ import annotations

import json
import math
import statistics

import numpy as np
import pytest

from pandora_router.data import Table
from pandora_router.data.check import baselines, summarise

nan = np.nan


def table() -> Table:
    return Table(
        prompt_ids=tuple("12345"),
        prompts=("one", " one ", "two", "two", "three"),
        tasks=("t", "t", "t", "u", "u"),
        split=np.array(["train", "train", "train", "test", ""]),
        specialists=("cheap", "good", "never"),
        score=np.array([[0, 1, nan], [1, 1, nan], [1, nan, nan], [0, 1, nan], [nan, nan, nan]]),
        fee=np.array([[0.1, 0.3, nan]] * 5),
        contexts=np.array([["c", None, None]] * 5, dtype=object),
        fee_weight=1.0,
    )


def test_counts():
    summary = summarise(table())
    assert (summary.prompts, summary.scores, summary.missing_cells) == (5, 7, 8)
    assert summary.filled == pytest.approx(7 / 15)
    assert summary.tasks == {"t": 3, "u": 2}
    assert summary.splits == {"train": 3, "test": 1, "none": 1}
    assert [(c.specialist, c.missing) for c in summary.specialists] == [
        ("cheap", 1),
        ("good", 2),
        ("never", 5),
    ]
    assert summary.contexts == 5
    assert summary.specialists[2].score is None


def test_duplicates_and_those_that_cross():
    summary = summarise(table())
    assert summary.duplicate_prompts == 2
    assert (summary.texts_across_splits, summary.prompts_across_splits) == (1, 2)  # "two" in train and test


def test_rewards_with_holes():
    cheap, good = [-0.1, 0.9, 0.9, -0.1], [0.7, 0.7, 0.7]
    result = summarise(table()).available
    assert result is not None
    assert result.prompts == 4
    assert result.best_single.specialist == "good"
    assert result.best_single.reward.mean == pytest.approx(statistics.mean(good))
    assert result.best_single.reward.n == 3
    assert result.cheapest.specialist == "cheap"
    assert result.cheapest.reward.mean == pytest.approx(statistics.mean(cheap))
    assert result.cheapest.reward.standard_error == pytest.approx(statistics.stdev(cheap) / math.sqrt(4))
    mixed = [0.3, 0.8, 0.9, 0.3]
    assert result.random.mean == pytest.approx(statistics.mean(mixed))
    assert result.random.standard_error == pytest.approx(statistics.stdev(mixed) / 2)
    assert result.oracle.mean == pytest.approx(statistics.mean([0.7, 0.9, 0.9, 0.7]))
    assert summarise(table()).complete is None  # nobody asked "never"


def test_complete_prompts_compare_like_with_like():
    result = summarise(table().only(["cheap", "good"])).complete
    assert result is not None
    assert result.prompts == 3
    assert result.cheapest.reward.mean == pytest.approx((-0.1 + 0.9 - 0.1) / 3)
    assert result.oracle.mean == pytest.approx((0.7 + 0.9 + 0.7) / 3)


def test_ties_are_said():
    fee = np.zeros((5, 3))
    free = Table(**{**{f: getattr(table(), f) for f in table().__dataclass_fields__}, "fee": fee})
    result = baselines(free)
    assert result is not None
    assert (result.cheapest.specialist, result.cheapest.tied) == ("cheap", 1)


def test_one_prompt_has_no_standard_error_and_none_has_nothing():
    one = baselines(table().rows([0]))
    assert one is not None
    assert one.oracle.standard_error is None
    assert baselines(table().rows([4])) is None
    assert summarise(table().rows([])).available is None


def test_the_summary_is_strict_json():
    text = json.dumps(summarise(table()).to_dict(), allow_nan=False)
    assert json.loads(text)["available"]["oracle"]["n"] == 4
