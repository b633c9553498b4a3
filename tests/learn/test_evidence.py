"""Evidence of a trial: unbiased, bounded, seldom wrong though read after every answer, and strong enough."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pandora_router.errors import UsageError
from pandora_router.learn.evidence import CERTAIN, GRID, Evidence, difference, largest, verdict

pytest.importorskip("estimators", reason="vw-estimators is not installed")
from estimators.bandits.cs import Interval


def paths(d: np.ndarray, bound: float) -> np.ndarray:
    """Evidence for B after each answer of each stream (streams, answers): the plain numpy twin."""
    return np.mean([np.exp(np.cumsum(np.log1p(bet / bound * d), axis=1)) for bet in GRID], axis=0)


def streams(gain: float, answers: int, *, count: int = 300, delta: float = 0.5, seed: int = 0) -> np.ndarray:
    """Differences of trials in which B earns `gain` more than A on average, better here and worse there."""
    rng = np.random.default_rng(seed)
    shape = (count, answers)
    chance_a = rng.uniform(0.35, 0.65, shape)
    chance_b = chance_a + gain + rng.uniform(-0.25, 0.25, shape)
    q_a, q_b = (np.clip(chance + rng.normal(0.05, 0.1, shape), 0.0, 1.0) for chance in (chance_a, chance_b))
    picked = rng.random(shape) < delta
    reward = (rng.random(shape) < np.where(picked, chance_b, chance_a)).astype(float)
    return np.vectorize(difference)(reward, picked, delta, q_a, q_b)


@given(
    st.floats(0.02, 0.98),
    st.tuples(*[st.floats(0.0, 1.0)] * 4),
)
def test_the_difference_is_unbiased_and_within_its_bound(delta: float, four: tuple[float, ...]) -> None:
    mean_a, mean_b, q_a, q_b = four
    expected = delta * difference(mean_b, True, delta, q_a, q_b)
    expected += (1.0 - delta) * difference(mean_a, False, delta, q_a, q_b)
    assert expected == pytest.approx(mean_b - mean_a, abs=1e-9)
    for picked in (True, False):
        for reward in (0.0, 1.0):
            assert abs(difference(reward, picked, delta, q_a, q_b)) <= largest(delta) + 1e-9


def test_the_state_is_the_mean_of_eight_products_and_survives_json() -> None:
    d = streams(0.1, 60, count=1)[0]
    trial = Evidence.start()
    for value in d:
        trial = Evidence.from_dict(json.loads(json.dumps(trial.after(float(value)).to_dict())))
    assert (trial.promote, trial.drop) == pytest.approx(
        (paths(d[None], 2.0)[0, -1], paths(-d[None], 2.0)[0, -1])
    )
    assert trial.mean == pytest.approx(d.mean())
    assert trial.standard_error == pytest.approx(d.std(ddof=1) / np.sqrt(60))


@pytest.mark.parametrize("delta", [0.5, 0.9])
@pytest.mark.parametrize("gain", [0.0, -0.01, -0.05])
def test_a_candidate_that_is_not_better_is_seldom_promoted_though_read_after_every_answer(
    gain: float, delta: float
) -> None:
    d = streams(gain, 4000, delta=delta)
    promoted = (paths(d, largest(delta)) >= CERTAIN).any(axis=1).mean()
    assert promoted <= 0.05 + 2.0 * np.sqrt(0.05 * 0.95 / len(d))
    if gain <= -0.01:
        assert promoted <= 0.05
    z = np.cumsum(d, axis=1) / np.sqrt(np.cumsum(d * d, axis=1) + 1e-9)  # what reading a test each time does
    assert gain < 0.0 or (z[:, 30:] > 1.645).any(axis=1).mean() > 0.2


def test_a_gain_of_a_tenth_is_proven_within_several_hundred_answers() -> None:
    """About 6 / gain^2 rated disagreements where D has a standard deviation of 1; a loss as fast."""
    for sign in (1.0, -1.0):
        reached = paths(sign * streams(sign * 0.1, 2000), 2.0) >= CERTAIN
        assert reached.any(axis=1).mean() > 0.9
        assert np.median(np.argmax(reached[reached.any(axis=1)], axis=1)) < 8 / 0.1**2


def test_proofs_agree_with_the_confidence_sequence_of_vw_estimators() -> None:
    """Their interval for the mean of D in [-2, 2]: its lower end above 0 is a one-sided proof at 5 %."""
    answers, ours, theirs = 1500, [], []
    for gain in (0.1, 0.2, -0.1):
        for d in streams(gain, answers, count=8, seed=5):
            trial, interval, own, other = Evidence.start(), Interval(rmin=-2.0, rmax=2.0), None, None
            for number, value in enumerate(d, 1):
                trial = trial.after(float(value))
                interval.add_example(p_log=1.0, r=float(value), p_pred=1.0)
                if own is None and trial.promote >= CERTAIN:
                    own = number
                if other is None and number % 10 == 0 and interval.get(alpha=2.0 / CERTAIN)[0] > 0.0:
                    other = number
            low, high = interval.get(alpha=0.01)
            assert low < trial.mean < high
            if gain < 0.0:
                assert (own, other) == (None, None)
            else:
                ours.append(own or answers)
                theirs.append(other or answers)
    assert np.mean(ours) < 1.1 * np.mean(theirs)
    assert np.mean(ours) > 0.3 * np.mean(theirs)


def test_verdicts() -> None:
    def trial(rated: int, total: float, squares: float, promote: float = 1.0, drop: float = 1.0) -> Evidence:
        logs = tuple(np.full((2, 8), np.log([[promote], [drop]])).tolist())
        return Evidence(rated, total, squares, tuple(logs[0]), tuple(logs[1]))

    assert verdict(Evidence.start(), "veto") == "go on"
    assert verdict(trial(1998, 0.0, 500.0).after(0.0), "veto") == "go on"
    asked = trial(1999, 0.0, 500.0).after(0.0)
    assert verdict(asked, "veto") == "promote"
    assert verdict(asked, "proof") == "go on"
    assert verdict(trial(1999, -60.0, 500.0).after(0.0), "veto") == "go on"  # mean -.03, standard error .011
    vetoed = trial(1999, -24.0, 500.0).after(0.0)  # mean -.012
    assert verdict(vetoed, "veto") == "go on"
    near = trial(1999, -20.0, 500.0).after(0.0)  # mean -.010: within one standard error
    assert verdict(near, "veto") == "promote"
    for _ in range(3):
        vetoed = Evidence.from_dict(json.loads(json.dumps(vetoed.after(0.7).to_dict())))
    assert vetoed.mean > -vetoed.standard_error
    assert verdict(vetoed, "veto") == "go on"  # the mean is asked once
    few = trial(99, 0.0, 25.0)
    assert verdict(replace(few, least=100).after(0.0), "veto") == "promote"
    older = {key: near.to_dict()[key] for key in ("rated", "total", "squares", "for", "against")}
    assert verdict(Evidence.from_dict(older), "veto") == "promote"
    assert verdict(trial(50, 20.0, 25.0, promote=21.0), "proof") == "promote"
    assert verdict(trial(5000, -60.0, 500.0, drop=21.0), "veto") == "drop"


@pytest.mark.parametrize(
    ("d", "bound"), [(float("nan"), 2.0), (float("inf"), 2.0), (0.1, 0.0), (0.1, float("nan"))]
)
def test_what_is_no_difference_is_refused(d: float, bound: float) -> None:
    with pytest.raises(UsageError):
        Evidence.start().after(d, bound)


def test_a_long_proof_does_not_overflow() -> None:
    trial = Evidence.start()
    for _ in range(4000):
        trial = trial.after(2.0)
    assert np.isfinite(trial.promote)
    assert trial.promote > 1e300
    assert trial.drop < 1e-20
