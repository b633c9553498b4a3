"""Evidence from rated requests of a log: unbiased, once per session, bounded by key."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pandora_router.learn.drift import ALARM, FIRST, DriftState, detect
from pandora_router.learn.evidence import UNBOUNDED, WORST, Evidence, Rated, allowance, counted, largest


def rated(decision: str, session: str = "", key: str | None = None, score: float = 1.0) -> Rated:
    return Rated(decision, session or decision, key, True, 0.5, 0.5, 0.5, score, 0.1)


def test_the_difference_has_the_expectation_of_what_would_be_served() -> None:
    """Every coin and every outcome, weighed with its chance; the candidate pays for a look, the other not."""
    share, right_a, right_b, look = 0.3, 0.6, 0.7, 0.05
    total = 0.0
    for candidate, right in product((False, True), (0.0, 1.0)):
        chance = right_b if candidate else right_a
        row = Rated("d", "s", None, candidate, share, 0.2, 0.9, right, look if candidate else 0.0)
        weight = (share if candidate else 1.0 - share) * (chance if right else 1.0 - chance)
        total += weight * row.difference
        assert abs(row.difference) <= largest(share, 1.0 - WORST)
    assert total == pytest.approx((right_b - look) - right_a)


def test_a_session_counts_once_with_its_mean() -> None:
    rows = [rated("a", "one"), rated("b", "one", score=0.0), rated("c", "two"), rated("d", "old")]
    evidence, differences = counted(Evidence.start(), rows, {"old"}, {None: 1})
    mean = (rows[0].difference + rows[1].difference) / 2.0
    assert differences == {"a": mean, "b": None, "c": rows[2].difference, "d": None}
    bound = largest(0.5, 1.0 - WORST)
    assert evidence == Evidence.start().after(mean, bound).after(rows[2].difference, bound)


def test_no_key_has_more_than_its_share() -> None:
    """One key floods with ratings, four others rate a little: the flood moves the mean by its share alone."""
    flood = [rated(f"x{i}", key="evil", score=0.0) for i in range(1000)]
    honest = [rated(f"k{k}-{i}", key=f"key{k}") for k in range(4) for i in range(30)]
    evidence, differences = counted(Evidence.start(), [*honest, *flood], set(), {}, 0.2)
    mine = sum(value is not None for name, value in differences.items() if name[0] == "x")
    assert mine <= max(0.2 * evidence.rated, UNBOUNDED)
    truth, lie = honest[0].difference, flood[0].difference
    assert evidence.mean == pytest.approx(truth + 0.2 * (lie - truth), abs=1e-9)
    alone, _ = counted(Evidence.start(), flood, set(), {}, 0.2)
    assert alone.rated == 1000  # the only key of a gateway may teach it everything


@given(st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 400), min_size=1), st.floats(0.05, 1.0))
def test_no_key_teaches_a_refit_more_than_its_share(ratings: dict[str | None, int], per_key: float) -> None:
    most, share = allowance(ratings, per_key), max(per_key, 1.0 / len(ratings))

    def fair(one: int) -> bool:
        return one <= max(share * sum(min(count, one) for count in ratings.values()), UNBOUNDED)

    assert most == max(one for one in range(max(ratings.values()) + 1) if fair(one))  # tried one by one


def test_a_flood_of_one_key_moves_the_detector_by_its_share_alone() -> None:
    """One key says that a good specialist is worthless, 50 times as often as four others rate it."""
    rng, state, lies, truths = np.random.default_rng(0), DriftState(), 0, 0
    for i in range(60_000):
        key = f"honest{i % 4}" if rng.random() < 0.02 else "evil"
        if not state.admits(key, 0.2):
            continue
        lies, truths = lies + (key == "evil"), truths + (key != "evil")
        state = state.by(key).after(-0.6 if key == "evil" else float(rng.normal(0.0, 0.3)))
    assert truths > 1000  # of about 1,200: keys that rate alike seldom wait for each other
    assert lies <= 0.3 * (lies + truths) + 100  # alone at the start, it may fill the window once
    again = DriftState.from_dict(json.loads(json.dumps(state.to_dict())))
    assert again == state
    old = {name: value for name, value in state.to_dict().items() if name != "keys"}
    assert DriftState.from_dict(old).keys == ()  # a state that an earlier version wrote


def test_the_only_key_of_a_gateway_teaches_the_detector_everything() -> None:
    state = DriftState()
    for _ in range(500):
        assert state.admits("", 0.2)
        state = state.by("").after(0.1)
    assert state.answers == 500


def test_an_alarm_measures_what_has_changed() -> None:
    """The state goes through JSON after each answer; the mean shift of 40 streams is near the true drop."""
    shifts = []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        state = DriftState()
        for i in range(FIRST + 2000):
            chance = 0.8 if i < FIRST + 200 else 0.5
            state = DriftState.from_dict(state.after(float(rng.random() < chance) - 0.75).to_dict())
            if state.evidence >= ALARM:
                state = state.alarmed()
                break
        shifts.append(state.shift)
    assert np.mean(np.array(shifts) < 0.0) == 1.0
    assert np.mean(shifts) == pytest.approx(-0.3, abs=0.1)


def test_a_rare_coin_may_show_large_differences() -> None:
    """A candidate that is asked once in ten: its difference is that of ten rewards, and none of it is cut."""
    row = Rated("d", "s", None, True, 0.1, 0.0, 0.0, 1.0, 0.0)
    assert row.difference == pytest.approx(10.0)
    evidence, found = counted(Evidence.start(), [row], (), {})
    assert found == {"d": pytest.approx(10.0)}
    assert evidence.mean == pytest.approx(10.0)


def test_what_alarms_measure_adds_up() -> None:
    once = DriftState(recent=(-0.2,) * 10).alarmed()
    again = replace(once, recent=(-0.1, -0.3)).alarmed()
    assert (once.shift, again.shift, again.alarms) == pytest.approx((-0.2, -0.4, 2))


def test_the_state_step_by_step_is_the_detector() -> None:
    values = np.random.default_rng(3).normal(0.0, 0.3, 700).tolist()
    state = DriftState()
    for value in values:
        state = state.after(value)
    found = detect(values)
    assert (found.answers, found.evidence, found.level) == (700, state.evidence, state.level)
