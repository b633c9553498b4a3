"""A fit reads samples of large splits: below the limit nothing changes, above it everybody reads the same."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from pandora_router.data import Table
from pandora_router.estimators.neighbours import Neighbours
from pandora_router.estimators.stack.boosted import Boosted
from pandora_router.folders.saved import Saved
from pandora_router.router import Router, SetRecipe, StackRecipe
from pandora_router.router.out_of_fold import Part, cheap_estimates
from pandora_router.run import Pool
from tests.support.tables import generate, row_contexts

SETS, STACK = SetRecipe(rounds=20, folds=2), StackRecipe(rounds=20, folds=2)
"""Small fits: which prompts are read does not depend on how long the trees are grown."""


def same(a: Saved, b: Saved) -> None:
    """Every array and setting of two fitted things, bit for bit."""
    assert (a.kind, a.settings, a.texts, set(a.arrays), set(a.parts)) == (
        *(b.kind, b.settings, b.texts),
        *(set(b.arrays), set(b.parts)),
    )
    for name, array in a.arrays.items():
        np.testing.assert_array_equal(array, b.arrays[name])
    for name, part in a.parts.items():
        same(part, b.parts[name])


def decided(router: Router, table: Table) -> list[object]:
    told = None if table.contexts is None else [row_contexts(table, i) for i in range(len(table))]
    return [(d.specialist, d.trace) for d in router.route_batch(table.prompts, told)]


def test_a_sample_that_is_large_enough_for_every_split_changes_nothing() -> None:
    table = generate(700, contexts=True)
    whole = Router.fit(table, costly=SETS, sample=len(table.in_split("train")))
    usual = Router.fit(table, costly=SETS)
    assert whole.id == usual.id
    assert "sampled" not in usual.record.prompts
    same(whole.cheap.state(), usual.cheap.state())
    assert repr(decided(whole, table)) == repr(decided(usual, table))


@pytest.mark.parametrize("contexts", [False, True])
def test_beyond_the_sample_f_knows_all_and_the_rest_is_a_fit_on_the_sample(contexts: bool) -> None:
    table = generate(900, contexts=contexts)
    costly = SETS if contexts else STACK
    router = Router.fit(table, costly=costly, sample=120)
    assert router.record.prompts["sampled"] == {"train": 120, "calibration": 120, "test": 120}
    assert router.record.report["routing"]["prompts"] <= 120
    assert router.id != Router.fit(table, costly=costly).id
    assert isinstance(router.cheap, Neighbours)
    assert len(router.cheap.vectors) == 900
    first = router.costly if isinstance(router.costly, Boosted) else router.costly.first
    assert first.out_of_fold.shape == (120, 3)
    sampled = Part.of(table.in_split("train"), 120)
    assert set(sampled.table.prompts) < set(table.prompts)
    assert first.evidence.neighbours.embedder.name == router.cheap.embedder.name


def test_left_out_estimates_of_a_sample_are_those_of_the_whole() -> None:
    table = generate(600)
    parts = {name: table.in_split(name) for name in ("train", "calibration", "test")}
    train, calibration = parts["train"], parts["calibration"]
    known = Neighbours.fit(train.prompts, train.reward, train.specialists).remember(
        calibration.prompts, calibration.reward
    )
    every = cheap_estimates(known, {name: Part.of(t, 1000) for name, t in parts.items()}, {"f": None})
    some = {name: Part.of(t, 50) for name, t in parts.items()}
    for name, estimates in cheap_estimates(known, some, {"f": None}).items():
        rows = some[name.partition(".")[0]].rows
        np.testing.assert_array_equal(estimates, every[name][rows])


def test_a_pool_of_processes_embeds_to_the_same_router() -> None:
    table = generate(1500)
    here = Router.fit(table, costly=STACK, sample=300)
    there = Router.fit(table, costly=STACK, sample=300, runner=Pool(2))
    same(here.cheap.state(), there.cheap.state())
    assert here.id == there.id
    assert repr(decided(here, table)) == repr(decided(there, table))


def test_above_the_bound_without_faiss_search_stays_exact(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "faiss", None)
    table = generate(400)
    fitted = Neighbours.fit(table.prompts, table.reward, table.specialists, exact_up_to=100)
    usual = Neighbours.fit(table.prompts, table.reward, table.specialists)
    assert "entry" not in fitted.state().settings
    loaded = Neighbours.load(fitted.save(tmp_path / "f"))
    gap = np.abs(loaded.predict(table.prompts[:50]) - usual.predict(table.prompts[:50]))
    assert gap.max() < 0.1  # packed, as the others are from 512 prompts on
