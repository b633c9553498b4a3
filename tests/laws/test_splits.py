"""What holds for every split that is drawn, kept or carved."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pandora_router.data.splits import NAMES, Fractions, carve, crossing, draw, keep, resplit, sample
from pandora_router.data.table import Table
from pandora_router.errors import UsageError

words = st.sampled_from(["a", "b c", "b  c", " b c\n", "d", "e\tf", "e f", "g", "h"])
fresh = st.integers(0, 10**6).map(lambda n: f"prompt {n}")
rows = st.lists(st.tuples(words | fresh, st.sampled_from(["x", "y", "z"])), min_size=1, max_size=80)
seeds = st.integers(0, 2**32)


@st.composite
def shares(draw_from: st.DrawFn) -> Fractions:
    a, b, c = draw_from(st.tuples(*[st.integers(0, 10)] * 3).filter(lambda t: sum(t) > 0))
    total = a + b + c
    return Fractions(
        a / total, b / total, 1 - a / total - b / total if c else max(0.0, 1 - a / total - b / total)
    )


def table_of(prompts: list[str], tasks: list[str], split: list[str] | None = None) -> Table:
    n = len(prompts)
    return Table(
        prompt_ids=tuple(map(str, range(n))),
        prompts=tuple(prompts),
        tasks=tuple(tasks),
        split=np.array(split or [""] * n),
        specialists=("s",),
        score=np.zeros((n, 1)),
        fee=np.zeros((n, 1)),
    )


@given(rows, seeds, shares())
def test_identical_prompts_never_cross(data, seed, fractions):
    prompts, tasks = zip(*data, strict=True)
    split = draw(prompts, tasks, seed=seed, fractions=fractions)
    seen = defaultdict(set)
    for prompt, name in zip(prompts, split, strict=True):
        seen[tuple(prompt.split())].add(str(name))
    assert all(len(names) == 1 for names in seen.values())
    assert crossing(table_of(list(prompts), list(tasks), split.tolist())) == ()


@given(rows, seeds, st.randoms(use_true_random=False))
def test_the_order_of_rows_does_not_matter(data, seed, random):
    prompts, tasks = zip(*data, strict=True)
    order = list(range(len(data)))
    random.shuffle(order)
    whole = draw(prompts, tasks, seed=seed)
    shuffled = draw([prompts[i] for i in order], [tasks[i] for i in order], seed=seed)
    assert shuffled.tolist() == whole[order].tolist()


@given(rows, seeds, shares())
def test_shares_hold_up_to_rounding(data, seed, fractions):
    prompts, tasks = zip(*data, strict=True)
    split = draw(prompts, tasks, seed=seed, fractions=fractions)
    group = max(Counter(tuple(prompt.split()) for prompt in prompts).values())
    wanted = dict(zip(NAMES, (fractions.train, fractions.calibration, fractions.test), strict=True))
    for name in NAMES:
        assert abs((split == name).sum() - wanted[name] * len(split)) <= group + 1e-9
        if wanted[name] == 0:
            assert not (split == name).any()
    home = {}  # the task that a text counts for
    for prompt, task in data:
        home[tuple(prompt.split())] = min(task, home.get(tuple(prompt.split()), task))
    for task in set(tasks):
        here = np.array([home[tuple(prompt.split())] == task for prompt in prompts])
        for name in NAMES:
            off = (split[here] == name).sum() - wanted[name] * here.sum()
            assert abs(off) <= 2 * group + 1e-9


def test_shares_hold_even_if_every_task_has_one_prompt():
    prompts = [f"p{i}" for i in range(100)]
    counts = Counter(draw(prompts, [f"t{i}" for i in range(100)], seed=1).tolist())
    assert counts == {"train": 60, "calibration": 20, "test": 20}


def test_the_seed_matters_and_the_draw_looks_random():
    prompts = [f"p{i}" for i in range(2000)]
    tasks = ["t"] * 2000
    first, second = (draw(prompts, tasks, seed=s) == "test" for s in (1, 2))
    # independent draws of 20 % agree on 4 % of the prompts: 80 +- 8
    assert abs((first & second).sum() - 80) < 40
    # neighbours are not drawn together: 400 tests, about 80 follow a test
    assert abs((first[1:] & first[:-1]).sum() - 80) < 40


def test_a_published_split_cannot_change():
    """Worked out by hand from SHA-256 of seed, line break, text: smallest digest first."""
    prompts = [f"question {i}" for i in range(10)]
    order = sorted(range(10), key=lambda i: hashlib.sha256(f"5\nquestion {i}".encode()).digest())
    # owed 6, 2, 2: train four times until level, then each in turn
    turns = ["train"] * 5 + ["calibration", "test", "train", "calibration", "test"]
    split = draw(prompts, ["t"] * 10, seed=5)
    assert split[order].tolist() == turns


@given(rows, seeds)
def test_carving_touches_train_only(data, seed):
    prompts, tasks = map(list, zip(*data, strict=True))
    before = ["train" if i % 3 else "test" for i in range(len(prompts))]
    after = carve(table_of(prompts, tasks, before), seed=seed, fraction=0.5).split.tolist()
    for old, new in zip(before, after, strict=True):
        assert new == "test" if old == "test" else new in ("train", "calibration")


def test_carving_refuses_a_table_that_has_calibration():
    with pytest.raises(UsageError, match="1 calibration prompts"):
        carve(table_of(["a"], ["t"], ["calibration"]), seed=0)


def test_the_usual_names_are_understood_and_others_refused():
    assert keep(["train", "val", "test", "ood", "dev", ""]).tolist() == [
        "train", "calibration", "test", "", "calibration", "",
    ]  # fmt: skip
    assert keep(["ood"], {"ood": "test"}).tolist() == ["test"]
    with pytest.raises(UsageError, match="'holdout'"):
        keep(["train", "holdout"])


@pytest.mark.parametrize("bad", [(0.5, 0.5, 0.5), (1.2, -0.2, 0.0), (float("nan"), 0.5, 0.5), (0, 0, 0)])
def test_fractions_that_are_none_are_refused(bad):
    with pytest.raises(UsageError, match="sum 1"):
        Fractions(*bad)


def test_resplit_changes_the_split_and_nothing_else():
    table = table_of(["a", "b", "c", "d", "e"], list("ttttt"), ["test"] * 5)
    again = resplit(table, seed=3)
    assert Counter(again.split.tolist()) == {"train": 3, "calibration": 1, "test": 1}
    assert again.with_split(table.split).fingerprint() == table.fingerprint()


def test_a_prompt_in_no_split_does_not_cross():
    assert crossing(table_of(["a", "a", "b", " b"], list("tttt"), ["train", "", "train", "test"])) == ("b",)


@given(st.lists(words | fresh, max_size=60), st.integers(0, 70), st.integers(0, 70), seeds)
def test_a_sample_depends_on_the_texts_alone(prompts: list[str], most: int, fewer: int, seed: int) -> None:
    chosen = sample(prompts, most)
    assert len(chosen) == min(most, len(prompts))
    assert (np.diff(chosen) > 0).all()
    if most >= len(prompts):
        assert chosen.tolist() == list(range(len(prompts)))
    shuffled = np.random.default_rng(seed).permutation(len(prompts))
    again = sample([prompts[i] for i in shuffled], most)
    assert Counter(prompts[i] for i in chosen) == Counter(prompts[shuffled[i]] for i in again)
    inner = sample([prompts[i] for i in chosen], fewer)  # nested: a sample of a sample
    assert chosen[inner].tolist() == sample(prompts, min(fewer, most)).tolist()


def test_a_sample_is_spread_evenly_over_kinds_of_prompts() -> None:
    """The share of each of ten kinds is within five standard errors of a tenth."""
    kinds = np.arange(20_000) % 10
    chosen = sample([f"kind {kind}, number {i}" for i, kind in enumerate(kinds)], 4000)
    shares = np.bincount(kinds[chosen], minlength=10) / 4000
    assert np.abs(shares - 0.1).max() < 5 * np.sqrt(0.09 / 4000)
