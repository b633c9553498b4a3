"""Estimates from everything that was opened: agreement, projection, movement, and a fitted router on disk."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from pandora_router.boxes import Costs, Moving
from pandora_router.calibrate import Calibrated, FittedSignal
from pandora_router.calibrate.readings import Readings
from pandora_router.calibrate.set_signal import SetSignal, codes, fit_movement, fit_sets, kinds, route_sets
from pandora_router.cli.batch_file import decided
from pandora_router.data import Table
from pandora_router.errors import UsageError
from pandora_router.estimators.set_layer import SetTrees, Signs, chains, subsets, table
from pandora_router.estimators.stack.agreement import agreement
from pandora_router.router import Decision, Paid, Router, explain
from pandora_router.router.deciding import deciding
from pandora_router.router.driver import estimated, judged
from pandora_router.router.recipes import SetRecipe
from pandora_router.router.revalue import weighed
from pandora_router.search import Always, KnowledgeGradient, Never, run
from tests.support.tables import generate, row_contexts, small_and_large


def quarrel(n: int = 600, seed: int = 0) -> Table:
    """A table where only agreement tells: small, which is free, is right when both name the same number.

    A single beginning says nothing of it; large is right and has a fee. One score in 20 is turned over.
    """
    rng = np.random.default_rng(seed)
    agree = rng.random(n) < 0.5
    contexts = np.full((n, 2), None, dtype=object)
    for i in range(n):
        first = int(rng.integers(10, 99))
        second = first if agree[i] else first + int(rng.integers(1, 9))
        contexts[i] = [f"so the result is {first}", f"adding up we get {second}"]
    score = np.stack([agree, np.ones(n)], axis=1).astype(float)
    score = np.where(rng.random(score.shape) < 0.05, 1.0 - score, score)
    return small_and_large(score, contexts, rng, seed)


@cache
def router() -> Router:
    return Router.fit(
        quarrel(),
        costly=SetRecipe(rounds=30, folds=3),
        inspection_cost=Costs([0.02, 0.02], refund=[0.01, 0.01]),
        remember_test=False,
    )


def test_agreement_pays_and_ships() -> None:
    """Half of the prompts can be given to the free specialist, which only reading both beginnings tells."""
    found = router().record.report["opened"]
    assert found["chosen"]
    assert found["test"]["lead"] > 5.0 * found["test"]["lead_error"] > 0.0
    assert isinstance(router().signal, SetSignal)
    test = quarrel().in_split("test")
    decisions = router().route_batch(test.prompts, [row_contexts(test, i) for i in range(len(test))])
    same = [len({text.split()[-1] for text in row}) == 1 for row in test.contexts.tolist()]  # type: ignore[union-attr]
    right = [(d.specialist == "small") == agree for d, agree in zip(decisions, same, strict=True)]
    assert np.mean(right) > 0.9
    assert all(len(d.inspected) == 2 for d in decisions)


def test_a_saved_router_decides_alike_alone_in_batch_and_by_hand(tmp_path: Path) -> None:
    made, test = router(), quarrel().in_split("test")
    made.save(tmp_path / "router")
    again = Router.load(tmp_path / "router")
    shown = [row_contexts(test, i) for i in range(12)]
    together = made.route_batch(test.prompts[:12], shown)
    for prompt, contexts, decision in zip(test.prompts, shown, together, strict=False):
        for other in (again.route(prompt, contexts), by_hand(made, prompt, contexts)):
            assert other.trace.actions == decision.trace.actions
            assert other.trace.spent == pytest.approx(decision.trace.spent)
            for one, two in zip(other.purchases, decision.purchases, strict=True):
                assert one.means == pytest.approx(two.means, abs=0.02)  # sums in another order
        assert Decision.from_dict(decision.to_dict()).purchases == decision.purchases


def by_hand(made: Router, prompt: str, contexts: dict[str, str]) -> Decision:
    assert made.predictor is not None
    asking = deciding(made, prompt, judged(made.cheap, [prompt])[0], contexts)
    try:
        ask = next(asking)
        while True:
            assert set(ask.contexts) == {*ask.opened, *ask.specialists}
            ask = asking.send(estimated(made.predictor, [ask])[0])
    except StopIteration as end:
        decision: Decision = end.value
        return decision


def test_the_means_after_each_purchase_are_those_of_the_model() -> None:
    made, test = router(), quarrel().in_split("test")
    assert isinstance(made.signal, SetSignal)
    decision = made.route(test.prompts[0], row_contexts(test, 0))
    cheap = decision.estimates.cheap
    assert decision.estimates.mean == pytest.approx(made.signal.start(cheap[None])[0])
    opened = np.zeros(2, dtype=bool)
    seen: dict[str, str] = {}
    for purchase in decision.purchases:
        for name in purchase.specialists:
            opened[made.specialists.index(name)] = True
            seen[name] = row_contexts(test, 0)[name]
        cells = np.array([[seen.get(name) for name in made.specialists]], dtype=object)
        raw = made.costly.predict([test.prompts[0]], cells)  # type: ignore[union-attr]
        assert purchase.means == pytest.approx(made.signal.means(cheap[None], opened[None], raw)[0])
    assert decision.expected_reward == pytest.approx(decision.purchases[-1].means[decision.trace.selected])
    assert decided(decision)["expected_reward"] == decision.expected_reward  # as in a file of a batch


def test_an_explanation_repeats_the_means_and_says_what_agrees() -> None:
    made, test = router(), quarrel().in_split("test")
    agree = next(i for i in range(len(test)) if len({t.split()[-1] for t in test.contexts[i]}) == 1)  # type: ignore[index]
    contexts = row_contexts(test, agree)
    decision = made.route(test.prompts[agree], contexts)
    story = explain(made, decision, contexts)
    last = {line.specialist: line.mean for line in story.steps[-1].lines}
    refunds = dict(zip(made.specialists, made.costs.refund, strict=True))
    for name, mean in zip(made.specialists, decision.purchases[-1].means, strict=True):
        assert last[name] == pytest.approx(mean + refunds[name])
    number = contexts["small"].split()[-1]
    told = story.steps[-2].seen
    assert f"both say {number}" in told
    assert "small is now worth" in told
    assert f"both say {number}" not in explain(made, decision).steps[-2].seen


def test_only_some_candidates_are_searched() -> None:
    made, test = router(), quarrel().in_split("test")
    decision = made.route(test.prompts[0], row_contexts(test, 0), among=["large"])
    assert decision.specialist == "large"
    assert "small" not in decision.inspected


def test_a_look_that_was_lost_leaves_the_others() -> None:
    made, test = router(), quarrel().in_split("test")
    prompt = test.prompts[0]
    asking = deciding(made, prompt, judged(made.cheap, [prompt])[0], row_contexts(test, 0))
    asks, decision = [next(asking)], None
    while decision is None:
        try:
            asks.append(asking.send(Paid.nothing(asks[-1], "gone")))
        except StopIteration as end:
            decision = end.value
    bought = [name for ask in asks for name in ask.specialists]
    assert len(bought) == len(set(bought))  # what was lost is not bought again
    assert decision.specialist == "large"
    assert decision.trace.spent == pytest.approx(0.02 * len(bought))
    assert not any(one.means for one in decision.purchases)


def test_where_nothing_is_gained_own_beginnings_ship() -> None:
    """Contexts that say the whole truth of their own specialist: agreement adds nothing but noise."""
    part = generate(300, 2, contexts=True)
    made = Router.fit(part, costly=SetRecipe(rounds=10, folds=2), inspection_cost=Costs([0.002] * 2))
    found = made.record.report["opened"]
    assert found["chosen"] == isinstance(made.signal, SetSignal)
    tolerated = found["error"] * min(1.0, found["prompts"] / 400)
    assert found["chosen"] == (found["lead"] >= -tolerated and found["over_never"]["on"])
    with pytest.raises(UsageError, match="contexts"):
        Router.fit(generate(300, 2), costly=SetRecipe(400), inspection_cost=0.01)


# --- parts ------------------------------------------------------------------------------------------------


def signs(n: int, m: int, seed: int = 0) -> Signs:
    rng = np.random.default_rng(seed)
    words = [["river", "king", "gene 4", "poem 7", "angle 12"][k] for k in rng.integers(0, 5, n * m)]
    contexts = np.array(words, dtype=object).reshape(n, m)
    contexts[rng.random((n, m)) < 0.1] = None
    near, far, own = (rng.random((n, m)) for _ in range(3))
    return Signs.of([f"prompt {i}" for i in range(n)], contexts, near, far, own, 400)


def test_pairs_give_the_features_of_agreement() -> None:
    """The features from comparisons of pairs against those computed from the texts of each set."""
    rng = np.random.default_rng(0)
    texts = ["the answer is (A) 4 rivers", "so (B) 4 Kings", "7 rivers and Kings", "no idea", "(A) 12 4"]
    n, m = 40, 4
    contexts = np.array([[texts[k] for k in rng.integers(0, 5, m)] for _ in range(n)], dtype=object)
    prompts = [f"count the rivers {i}" for i in range(n)]
    strength = rng.random(m)
    flat = np.zeros((n, m))
    made = Signs.of(prompts, contexts, flat, flat, flat, 400)
    for opened in subsets(m):
        shown = np.where(opened, contexts, None)
        want = agreement(prompts, shown, strength)[:, :, :-1]  # the last is the length
        rows = table(made, np.broadcast_to(opened, (n, m)), strength).reshape(n, m, -1)
        several = opened.sum() > 1
        came = rows[:, :, 5 : 5 + want.shape[2]]
        if several:
            there = np.isfinite(want) & np.isfinite(came)
            np.testing.assert_allclose(came[there], want[there], atol=1e-5)
            assert there[:, opened].mean() > 0.3


def test_features_see_nothing_of_sealed_specialists() -> None:
    """Changing what a sealed specialist would say changes no feature of anybody."""
    one = signs(20, 3)
    opened = np.zeros((20, 3), dtype=bool)
    opened[:, 1] = True
    other = replace(
        one,
        own=np.where(opened, one.own, 9.0),
        same=np.where((opened[:, :, None] & opened[:, None, :])[..., None], one.same, 1.0),
        overlap=np.where((opened[:, :, None] & opened[:, None, :])[..., None], one.overlap, 1.0),
        read=np.where(opened[..., None] | np.isnan(one.read), one.read, 5.0),
    )
    strength = np.array([0.5, 0.6, 0.7])
    np.testing.assert_array_equal(table(one, opened, strength), table(other, opened, strength))


def test_left_out_estimates_never_saw_their_prompt() -> None:
    """Changing the rewards of a fold changes no estimate of that fold by the ensemble that left it out."""
    made, rng = signs(160, 2), np.random.default_rng(1)
    folds, reward = rng.integers(0, 2, 160), rng.random((160, 2))
    opened = np.broadcast_to(np.array([True, False]), (160, 2))
    first = SetTrees.fit(made, reward, folds)
    changed = np.where((folds == 0)[:, None], rng.random((160, 2)), reward)
    # early stopping watches the held-out fold, so only the number of trees may differ
    before, after = (fit.boosters[0] for fit in (first, SetTrees.fit(made, changed, folds)))
    trees = min(len(before.leaves), len(after.leaves))
    assert before.leaves[:trees].tolist() == after.leaves[:trees].tolist()
    every = first.left_out(made, opened, folds)
    assert every.shape == (160, 2)
    alone = first.left_out(
        made.rows(folds == 1), opened[folds == 1], folds[folds == 1]
    )  # a fold without prompts
    np.testing.assert_array_equal(alone, every[folds == 1])


def lattice(n: int, m: int, seed: int = 0) -> tuple[Readings, list[tuple[np.ndarray, np.ndarray]]]:
    """A Gaussian world: raw estimates given S are noisy conditional means of the reward."""
    rng = np.random.default_rng(seed)
    signal = 0.15 * rng.standard_normal((n, m))
    f = 0.5 + 0.1 * rng.standard_normal((n, m))
    reward = f + signal + 0.3 * signal.sum(axis=1, keepdims=True) + 0.1 * rng.standard_normal((n, m))
    every = subsets(m) if m <= 4 else None
    sets = []
    shown = [np.broadcast_to(one, (n, m)) for one in every] if every is not None else list(chains(n, m, 2, 0))
    for opened in shown:
        known = np.where(opened, signal, 0.0)
        raw = f + known + 0.3 * known.sum(axis=1, keepdims=True) + 0.02 * rng.standard_normal((n, m))
        sets.append((opened, raw))
    return Readings(f, f, reward), sets


def base(m: int) -> FittedSignal:
    rng = np.random.default_rng(0)
    f = rng.random((60, m))
    return Calibrated().fit(Readings(f, f + 0.1 * rng.standard_normal(f.shape), f))


@pytest.mark.parametrize("m", [2, 3, 6])
def test_means_are_a_martingale_and_movements_have_the_gains_there_were(m: int) -> None:
    readings, seen = lattice(1500, m)
    made = fit_sets(base(m), readings, seen)
    means = [(opened, made.means(readings.cheap, opened, raw)) for opened, raw in seen]
    shape = readings.cheap.shape
    start = made.means(readings.cheap, np.zeros(shape, dtype=int), np.zeros(shape))
    for _, now in means:
        np.testing.assert_allclose((now - start).mean(axis=0), 0.0, atol=0.01)
        slope = ((now - start) * start).mean() / (start**2).mean()
        assert abs(slope) < 0.01
    for j in range(m):
        after = next((o, v) for o, v in means if (o.sum(axis=1) == 1).all() and o[:, j].any())
        rows = np.flatnonzero(after[0][:, j])
        none = np.zeros((len(rows), m), dtype=bool)
        steps = made.movement.steps(none, start[rows], j)
        assert np.abs(steps.mean(axis=1)).max() < 1e-12
        promised = ((start[rows, None] + steps).max(axis=2).mean(axis=1) - start[rows].max(axis=1)).mean()
        had = (after[1][rows].max(axis=1) - start[rows].max(axis=1)).mean()
        assert promised == pytest.approx(had, rel=0.35, abs=2e-3)


def test_a_search_that_opens_nothing_chooses_as_never_inspecting_does() -> None:
    made, test = router(), quarrel().in_split("test")
    assert isinstance(made.signal, SetSignal)
    dear = replace(made, costs=Costs(np.full(len(made.specialists), 5.0)))
    offered = [row_contexts(test, i) for i in range(len(test))]
    cheap = np.array([judgement.row for judgement in judged(made.cheap, test.prompts)])
    never = run(Never(), made.signal.base.batch(cheap, dear.costs), cheap).choice
    one_by_one = [dear.route(*asked) for asked in zip(test.prompts, offered, strict=True)]
    assert not any(decision.purchases for decision in one_by_one)
    for decisions in (one_by_one, dear.route_batch(test.prompts, offered)):
        chosen = [made.specialists.index(decision.specialist) for decision in decisions]
        assert chosen == never.tolist()
        mean = np.array([decision.estimates.mean for decision in decisions])
        np.testing.assert_allclose(mean, made.signal.base.believed(cheap))


@pytest.mark.parametrize("m", [2, 5])
def test_searching_beats_never_and_always_where_looks_cost_something(m: int) -> None:
    readings, seen = lattice(1500, m)
    made = fit_sets(base(m), readings, seen)
    fresh, _ = lattice(600, m, seed=9)
    rng = np.random.default_rng(9)
    signal = 0.15 * rng.standard_normal((600, m))  # the same draws as inside `lattice`

    def raw(rows: np.ndarray, opened: np.ndarray) -> np.ndarray:
        known = np.where(opened, signal[rows], 0.0)
        return fresh.cheap[rows] + known + 0.3 * known.sum(axis=1, keepdims=True)

    costs = Costs(np.full(m, 0.02))
    total = {
        name: route_sets(made, policy, fresh, raw, costs).total(fresh).mean()
        for name, policy in (("search", KnowledgeGradient()), ("never", Never()), ("always", Always()))
    }
    assert total["search"] < min(total["never"], total["always"])


def test_a_movement_of_some_boxes_is_part_of_the_whole() -> None:
    readings, seen = lattice(400, 3)
    made = fit_sets(base(3), readings, seen)
    boxes = made.boxes(readings.cheap[0], 0.01)
    assert isinstance(boxes, Moving)
    some = boxes.only(np.array([2, 0]))
    np.testing.assert_allclose(some.steps(0), boxes.steps(2)[:, [2, 0]])
    then = boxes.given(2, (boxes.bare + boxes.steps(2)[3]).tolist())
    np.testing.assert_allclose(
        some.given(0, (some.bare + some.steps(0)[3]).tolist()).steps(1), then.steps(0)[:, [2, 0]]
    )


def test_codes_number_sets_or_sizes() -> None:
    assert codes(subsets(3)).tolist() == list(range(8))
    assert kinds(3) == 8
    five = np.tri(6, 5, -1, dtype=bool)
    assert codes(five).tolist() == list(range(6))
    assert kinds(5) == 6


def test_too_few_prompts_are_refused_and_rare_steps_do_not_move() -> None:
    readings, seen = lattice(40, 2)
    with pytest.raises(UsageError, match="held-out prompts"):
        fit_sets(base(2), readings, seen)
    few = [(opened, raw) for opened, raw in seen]
    law = fit_movement(few)
    assert not law.steps(np.zeros((1, 2), dtype=bool), np.full((1, 2), 0.5), 0).any()


def test_a_router_at_other_values_moves_every_mean_alike() -> None:
    """Profiles weigh fees otherwise: all means of a decision differ by the same shift, the law by nothing."""
    made, test = router(), quarrel().in_split("test")
    other = weighed(made, 0.5 * made.fee_weight)
    by = 0.5 * made.fee_weight * made.fees
    shown = [row_contexts(test, i) for i in range(8)]
    for prompt, contexts, decision in zip(
        test.prompts, shown, other.route_batch(test.prompts[:8], shown), strict=False
    ):
        alone = other.route(prompt, contexts)
        # f differs in a batch here (neighbours at equal distance), and with it who is opened first
        assert set(alone.inspected) == set(decision.inspected)
        assert alone.specialist == decision.specialist
        before = made.route(prompt, contexts)
        np.testing.assert_allclose(alone.estimates.mean, before.estimates.mean + by)
        np.testing.assert_allclose(alone.estimates.std, before.estimates.std)
        if alone.trace.actions[0] == before.trace.actions[0] and alone.purchases:
            np.testing.assert_allclose(alone.purchases[0].means, np.array(before.purchases[0].means) + by)
