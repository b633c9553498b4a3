"""The mix of prompts: ranks are even, quiet streams stay quiet, new kinds of prompts raise an alarm."""

from __future__ import annotations

import json

import numpy as np
import pytest
from scipy.stats import kstest

from pandora_router import Never, Router
from pandora_router.learn.drift import ALARM, FIRST
from pandora_router.learn.mix import NAMES, Mix, MixState
from tests.support.routers import QUICK
from tests.support.tables import generate

NEW = ("translate this sentence into french", "fix the bug in my python loop", "which pills help a cough")


@pytest.fixture(scope="module")
def router() -> Router:
    return Router.fit(generate(n=400, seed=1), costly=QUICK, policy=Never())


@pytest.fixture(scope="module")
def mix(router: Router) -> Mix:
    made = Mix.of(router.cheap)
    assert made is not None
    return made


def test_ranks_of_prompts_of_the_same_mix_are_even(mix: Mix) -> None:
    ranks = np.array([mix.ranks(prompt) for prompt in generate(n=600, seed=9).prompts])
    assert ranks.shape == (600, len(NAMES))
    for column in ranks.T:  # against 200 reference prompts, so with their own error
        assert kstest(column, "uniform").statistic < 0.14
    novel = np.array([mix.ranks(f"{prompt} {i}")[0] for i, prompt in enumerate(NEW)])
    assert novel.min() > 0.95


@pytest.fixture(scope="module")
def known(mix: Mix) -> list[list[float]]:
    return [mix.ranks(prompt) for prompt in generate(n=400, seed=9).prompts]


def test_quiet_streams_raise_no_alarm_and_new_prompts_do(mix: Mix, known: list[list[float]]) -> None:
    new = [mix.ranks(f"{prompt} {i}") for i in range(30) for prompt in NEW]
    delays = []
    for seed in range(6):
        rng, state = np.random.default_rng(seed), MixState()
        for i in rng.integers(len(known), size=2500):
            state = state.after(known[i])
            assert not state.raises
        begun = state.prompts
        while not state.raises and state.prompts < begun + 2500:
            drawn = new if rng.random() < 0.3 else known
            mixed = drawn[rng.integers(len(drawn))]
            state = MixState.from_dict(json.loads(json.dumps(state.after(mixed).to_dict())))
        delays.append(state.prompts - begun)
    assert max(delays) < 1200
    assert np.median(delays) < 700


def test_one_key_cannot_raise_the_alarm_alone() -> None:
    state, strange = MixState(), [1.0] * len(NAMES)
    for i in range(FIRST):
        state = state.after([0.5] * len(NAMES), key=f"k{i % 20}", per_key=0.2)
    flooded = state
    for _ in range(5000):
        flooded = flooded.after(strange, key="flood", per_key=0.2)
    assert flooded.prompts <= FIRST + 20
    assert flooded.evidence < ALARM
    for i in range(200):
        state = state.after(strange, key=f"k{i % 20}", per_key=0.2)
    assert state.raises
    assert state.most in NAMES
    alarmed = state.alarmed()
    for _ in range(5000):  # who sent the last prompts is known after an alarm, too
        alarmed = alarmed.after(strange, key="k0", per_key=0.2)
    assert alarmed.prompts <= 20
