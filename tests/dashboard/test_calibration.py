"""The statistics of the calibration page against scipy and against traffic whose truth is known."""

from __future__ import annotations

import random

import numpy as np
import pytest
from scipy.stats import ks_2samp

from pandora_router.dashboard.calibration import (
    LEVELS,
    best_cheap,
    changed,
    reliability,
    surprises,
)
from pandora_router.dashboard.net_value import score_of
from tests.support.traffic import decided, valued


@pytest.mark.parametrize("shift", [0.0, 0.05, 0.4, 1.0])
def test_drift_is_the_two_sample_test_of_scipy(shift: float) -> None:
    rng = np.random.default_rng(7)
    older, newer = rng.normal(size=400), rng.normal(shift, size=400)
    found = changed([*older, *newer])
    assert found is not None
    assert found == pytest.approx(ks_2samp(older, newer, method="asymp").pvalue, abs=0.03)
    assert (found < 0.01) == (shift >= 0.3)
    assert changed([1.0] * 39) is None
    assert changed([1.0] * 100) == 1.0


def test_rewards_drawn_as_expected_lie_on_the_diagonal_and_others_do_not() -> None:
    rng = random.Random(3)
    rows = [{"decision": decided(rng), "value": valued()} for _ in range(2000)]
    chances = [score_of(row, row["decision"]["specialist"]) for row in rows]
    right = reliability([(p, float(rng.random() < p)) for p in chances if p is not None])
    assert len(right) == 10
    assert sum(one["n"] for one in right) == 2000
    agree = [abs(one["real"] - one["expected"]) <= one["half"] for one in right]
    assert sum(agree) >= 8
    wrong = reliability([(p, float(rng.random() < p / 2)) for p in chances if p is not None])
    assert not any(abs(one["real"] - one["expected"]) <= one["half"] for one in wrong)
    assert reliability([]) == []


def test_looks_fall_into_their_intervals_as_often_as_stated() -> None:
    rng = random.Random(4)
    row = decided(rng)
    scores = []
    for _ in range(3000):
        known = row["specialists"]["small"]
        row["purchases"] = [{"specialists": ["small"], "values": [rng.gauss(known["mean"], known["std"])]}]
        scores += surprises({"decision": row})
    for level, width in LEVELS.items():
        assert np.mean(np.abs(scores) <= width) == pytest.approx(level, abs=0.03)
    assert best_cheap({"decision": row}) == max(one["cheap"] for one in row["specialists"].values())
    assert best_cheap({}) is None
    assert score_of({"decision": {}}, "small") is None
