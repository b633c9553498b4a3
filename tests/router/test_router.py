"""The router where things go wrong: no context, late or broken estimates, empty prompts, newcomers."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import re
from functools import cache
from io import StringIO
from pathlib import Path

import numpy as np
import pytest

from pandora_router.boxes import Costs
from pandora_router.calibrate import EmpiricalDraws
from pandora_router.cli.console import Screen
from pandora_router.cli.explain import show
from pandora_router.data import PerSpecialist, resplit
from pandora_router.data.importers import read_folder
from pandora_router.errors import UpstreamError, UsageError
from pandora_router.estimators.estimator import Query, Scorer
from pandora_router.router import (
    BoxStatus,
    Decision,
    External,
    NeighbourRecipe,
    PurchaseStatus,
    Router,
    StackRecipe,
    explain,
)
from pandora_router.router.explanation import amount
from pandora_router.search import Always, KnowledgeGradient, Never
from tests.support.embedders import CallableEmbedder
from tests.support.tables import generate, row_contexts

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data" / "gsm8k_6b_175b"
QUICK = StackRecipe(rounds=20, folds=2)


@cache
def fitted(contexts: bool = False) -> Router:
    return Router.fit(generate(contexts=contexts), costly=QUICK, inspection_cost=0.002)


@cache
def judged() -> Router:
    """A router whose costly estimates come from outside, each specialist at its own price."""
    ready = External(Scorer(lambda query, name: 0.4 + len(name) / 50), "lengths")
    return Router.fit(generate(), costly=ready, inspection_cost=0.002)


def test_the_record_tells_what_was_fitted_and_found() -> None:
    router = fitted()
    record = router.record
    counts = {"train": 180, "calibration": 60, "test": 60, "left_out": 0, "remembered": 300}
    assert record.prompts == counts
    mse = record.report["mse"]
    assert {"training mean", "kNN-3", "kNN-50", "f", "h(f)", "g"} == set(mse)
    assert mse["kNN-3"] > mse["f"] != mse["kNN-50"]
    assert record.report["on"] == "test"
    ways = record.report["routing"]["ways"]
    assert {"best single", "cheapest", "random", "oracle", "router", "never inspect"} <= set(ways)
    assert ways["oracle"]["net_reward"] >= ways["router"]["net_reward"]
    assert [one["name"] for one in record.evidence["evidence"]] == [
        "never inspect",
        "always inspect",
        "search",
    ]
    assert judged().record.report["on"] == "calibration, cross-validated"


def test_a_multi_output_estimate_is_one_purchase_and_a_peek_is_one_each() -> None:
    assert fitted().costs.shared.tolist() == [0.002]
    assert fitted().costs.own.tolist() == [0.0] * 3
    assert fitted(True).costs.own.tolist() == [0.002] * 3


@cache
def looking() -> Router:
    return Router.fit(generate(contexts=True), costly=QUICK, inspection_cost=0.002)


def test_looks_at_beginnings_are_paid_one_by_one() -> None:
    assert looking().costs.own.tolist() == [0.002] * 3
    assert len(looking().costs.shared) == 0


def test_looks_that_would_show_nothing_are_not_for_sale() -> None:
    router = looking().with_policy(Always())
    assert router.route("count the king").inspected == ()
    told = {"large": "clearly it is"}
    assert router.route("count the king", told).inspected == ("large",)
    assert router.route_batch(["count the king"] * 2, [None, told])[1].inspected == ("large",)
    grown = looking().add_specialist("poet", *scored(), fee=0.03).with_policy(Always())
    assert grown.costs.own.tolist() == pytest.approx([0.002] * 4)
    assert grown.route("count the king").inspected == ("poet",)


def scored() -> tuple[tuple[str, ...], np.ndarray]:
    few = generate(m=4).in_split("test").rows(slice(0, 40))
    return few.prompts, few.score[:, 3]


def test_an_estimator_that_declares_nothing_is_refused_with_what_is_missing() -> None:
    class Silent:
        async def estimate(self, query: Query, specialists: list[str]) -> np.ndarray:
            return np.zeros(len(specialists))

    with pytest.raises(UsageError, match=r"needs, together, estimate.*Silent"):
        dataclasses.replace(judged(), costly=Silent())


def test_prompts_that_stand_in_train_are_left_out_elsewhere() -> None:
    table = generate()
    twice = list(table.prompts)
    i, j = (int(np.flatnonzero(table.split == name)[0]) for name in ("train", "calibration"))
    twice[j] = f"  {twice[i]} "
    router = Router.fit(dataclasses.replace(table, prompts=tuple(twice)), costly=QUICK, inspection_cost=0.01)
    assert router.record.prompts["left_out"] == 1
    assert router.record.prompts["calibration"] == 59


def test_nothing_of_calibration_or_test_trains_g_and_f_only_remembers_it() -> None:
    table = generate()
    held_out = table.split != "train"
    other = dataclasses.replace(table, score=np.where(held_out[:, None], 1.0 - table.score, table.score))
    one, two = (Router.fit(t, costly=QUICK, inspection_cost=0.01) for t in (table, other))
    prompts = table.in_split("test").prompts[:10]
    known = len(table.in_split("train"))
    for ours, theirs in zip(*((r.cheap.vectors, r.cheap.reward) for r in (one, two)), strict=True):  # type: ignore[attr-defined]
        np.testing.assert_array_equal(ours[:known], theirs[:known])
    np.testing.assert_array_equal(one.costly.predict(prompts), two.costly.predict(prompts))  # type: ignore[union-attr]


def test_too_few_prompts_are_told_to_be_more_not_to_be_split_anew() -> None:
    with pytest.raises(UsageError, match=r"the calibration split.*30 are too few, 40 enough"):
        Router.fit(resplit(generate(30), seed=0))
    assert len(resplit(generate(40), seed=0).in_split("calibration")) >= 8


def test_without_splits_nothing_is_fitted() -> None:
    table = generate()
    with pytest.raises(UsageError, match=r"the train split.*resplit"):
        Router.fit(table.with_split(np.full(len(table), "")))
    with pytest.raises(UsageError, match="the calibration split"):
        Router.fit(table.with_split(np.full(len(table), "train")))
    with pytest.raises(UsageError, match="default specialist"):
        Router.fit(table, costly=QUICK, default="nobody")


def test_missing_cells_are_fitted_around() -> None:
    router = Router.fit(generate(missing=0.1), costly=QUICK, inspection_cost=0.002)
    assert router.record.report["missing_reward"] > 0
    assert router.route("count the king").specialist in router.specialists


def test_a_specialist_without_its_context_is_not_for_sale() -> None:
    router, table = fitted(True).with_policy(Always()), generate(contexts=True)
    told = row_contexts(table, 0)
    told.pop("large")
    decision = router.route(table.prompts[0], told)
    assert decision.inspected == ("small", "lawyer")
    assert decision.estimates.status == (BoxStatus.OPENED, BoxStatus.UNAVAILABLE, BoxStatus.OPENED)
    assert router.route(table.prompts[0]).inspected == ()
    story = explain(router, decision)
    assert {line.specialist: line.status for line in story.steps[0].lines}["large"] == "not for sale"
    with pytest.raises(UsageError, match="'larg'"):
        router.route("x", {"larg": "text"})


def test_an_empty_prompt_and_a_lost_embedder_are_declined_with_a_reason() -> None:
    decision = fitted().route("  \n")
    assert decision.declined_because == "the prompt is empty"
    assert decision.specialist == fitted().default
    assert decision.trace.spent == 0.0
    down = False

    def embed(texts: list[str]) -> np.ndarray:
        if down:
            raise UpstreamError("no answer")
        return np.array([[len(text), text.count("count") + 1.0, 1.0] for text in texts])

    recipe = NeighbourRecipe(10, CallableEmbedder("mine", embed))
    router = Router.fit(generate(), cheap=recipe, costly=QUICK, inspection_cost=0.01, default="lawyer")
    down = True
    gone = router.route("count the king")
    assert (gone.specialist, gone.declined_because) == (
        "lawyer",
        "the cheap estimate could not be had: no answer",
    )
    assert [d.specialist for d in router.route_batch(["count", ""])] == ["lawyer"] * 2
    assert explain(router, gone).steps == ()
    assert gone.to_dict()["specialists"]["small"]["mean"] is None
    mixed = fitted().route_batch(["count the king", " ", "tell about the gene"])
    assert [d.declined_because is None for d in mixed] == [True, False, True]


@pytest.mark.parametrize("kind", ["timeout", "upstream", "nan"])
def test_a_failed_inspection_loses_the_box_but_not_the_bill(kind: str) -> None:
    async def fails(query: Query, name: str) -> float:
        if name != "large":
            return 0.1
        if kind == "timeout":
            await asyncio.sleep(5)
        if kind == "upstream":
            raise UpstreamError("busy")
        return float("nan")

    class Plain:
        needs: frozenset[str] = frozenset()
        together = False

        async def estimate(self, query: Query, specialists: list[str]) -> np.ndarray:
            return np.array([await fails(query, name) for name in specialists])

    router = dataclasses.replace(judged(), costly=Plain(), timeout=0.05, policy=Always())
    decision = router.route("count the king")
    assert decision.trace.spent == pytest.approx(0.006)
    lost = decision.trace.values[0]
    assert lost[1] is None
    status = {"timeout": PurchaseStatus.LATE, "upstream": PurchaseStatus.FAILED, "nan": PurchaseStatus.PARTLY}
    assert [one.status for one in decision.purchases] == [status[kind]]
    assert decision.estimates.status[1] is BoxStatus.LOST
    assert "large" not in decision.costly
    assert explain(router, decision).steps[-1].lines[1].status == "lost"


def test_a_bug_in_an_estimator_is_raised_and_route_wants_no_running_loop() -> None:
    def broken(query: Query, name: str) -> float:
        raise ZeroDivisionError("bug")

    router = dataclasses.replace(judged(), costly=Scorer(broken), policy=Always())
    with pytest.raises(ZeroDivisionError):
        router.route("count the king")

    async def inside() -> None:
        judged().route("count the king")

    with pytest.raises(UsageError, match="aroute"):
        asyncio.run(inside())


def test_a_group_purchase_is_explained_by_what_the_group_is_worth() -> None:
    router = fitted()
    bought = [d for d in map(router.route, generate().in_split("test").prompts) if d.purchases]
    assert any(one.worth > one.cost for decision in bought for one in decision.purchases)
    for decision in bought:
        step = explain(router, decision).steps[0]
        (purchase,) = decision.purchases
        assert step.purchase is purchase
        assert purchase.worth > 0.7 * purchase.cost  # of two steps the policy may expect a little more
        cost = "and costs 0.002" if purchase.worth > purchase.cost else "less than its cost of 0.002"
        assert "one purchase opens 3 specialists" in step.why
        assert re.search(rf"by {amount(purchase.worth)},? {cost}", step.why), step.why


def test_why_nothing_is_bought_names_the_purchase_that_comes_nearest_to_paying() -> None:
    dear = dataclasses.replace(fitted(), costs=Costs([0.0] * 3, [0.5], [0, 0, 0]))
    (step,) = explain(dear, dear.route("count the king")).steps
    assert re.search(r"the best is .*: expected improvement 0(\.\d+)?, cost 0\.5000", step.why), step.why
    never = fitted().with_policy(Never())
    whys = [explain(never, never.route(p)).steps[0].why for p in generate().in_split("test").prompts]
    assert any(why.startswith("the policy Never() buys nothing more (the best is 3 spec") for why in whys)


def test_amounts_are_written_for_people() -> None:
    numbers = [0.0, 3.331e-16, -1e-12, 0.002, 0.0021349, 2.56e-05, 0.25, 12.5, -0.3]
    assert [amount(number) for number in numbers] == [
        "0", "0", "0", "0.002", "0.0021", "0.000026", "0.2500", "12.5000", "-0.3000",
    ]  # fmt: skip


def test_warming_up_buys_nothing_from_outside() -> None:
    asked: list[str] = []

    def score(query: Query, name: str) -> float:
        asked.append(name)
        return 0.5

    dataclasses.replace(judged(), costly=Scorer(score), policy=Always()).warm()
    assert asked == []
    fitted().warm()


def test_explaining_a_decision_changes_nothing_and_adds_up() -> None:
    router, table = fitted(True), generate(contexts=True)
    for i in range(20):
        decision = router.route(table.prompts[i], row_contexts(table, i))
        story = explain(router, decision)
        assert len(story.steps) == len(decision.trace.actions)
        assert story.steps[-1].spent == pytest.approx(decision.trace.spent)
        assert {*story.held, *decision.inspected} == set(router.specialists)
        assert len(story.alternatives) == 2
        assert story.alternatives[0].specialist == story.runner_up
        assert all(one.gives_up >= -1e-12 for one in story.alternatives)


def test_a_newcomer_is_added_without_touching_the_others(tmp_path: Path) -> None:
    whole = generate(m=4)
    router = Router.fit(whole.only(whole.specialists[:3]), costly=QUICK, inspection_cost=0.002)
    few = whole.in_split("calibration").rows(slice(0, 40))
    grown = router.add_specialist("poet", few.prompts, few.score[:, 3], fee=0.03)
    assert grown.specialists == (*router.specialists, "poet")
    prompts = whole.in_split("test").prompts[:20]
    np.testing.assert_array_equal(grown.cheap.predict(prompts)[:, :3], router.cheap.predict(prompts))
    before, after = (r.route(prompts[0]).estimates for r in (router, grown))
    np.testing.assert_allclose(after.mean[:3], before.mean, atol=1e-12)
    assert grown.costs.group.tolist() == [0, 0, 0, 0]
    assert grown.fees[-1] == 0.03
    grown.save(tmp_path / "r")
    again = Router.load(tmp_path / "r")
    assert [d.specialist for d in again.route_batch(prompts)] == [grown.route(p).specialist for p in prompts]
    assert again.id != router.id
    assert again.record.added[0]["specialist"] == "poet"
    good = router.add_specialist("star", few.prompts, np.ones(40), fee=0.0)
    assert {good.route(p).specialist for p in prompts} == {"star"}


def test_newcomers_that_cannot_be_added() -> None:
    router, few = fitted(), generate().in_split("calibration")
    with pytest.raises(UsageError, match="a new name"):
        router.add_specialist("small", few.prompts, few.score[:, 0], fee=0.0)
    with pytest.raises(UsageError, match="16 or more"):
        router.add_specialist("x", few.prompts[:9], few.score[:9, 0], fee=0.0)
    with pytest.raises(UsageError, match="the fee: expected zero or more"):
        router.add_specialist("x", few.prompts, few.score[:, 0], fee=np.nan)
    with pytest.raises(UsageError, match="One per prompt"):
        router.add_specialist("x", few.prompts, few.score, fee=0.0)
    draws = Router.fit(generate(), costly=QUICK, signal=EmpiricalDraws(draws=8), inspection_cost=0.01)
    with pytest.raises(UsageError, match="can grow"):
        draws.add_specialist("x", few.prompts, few.score[:, 0], fee=0.0)


def test_a_newcomer_scored_from_outside() -> None:
    few = generate().in_split("test")
    grown = judged().add_specialist("x", few.prompts, few.score[:, 0], fee=0.0, inspection_cost=0.5)
    assert grown.costs.own[-1] == 0.5
    assert grown.route("count the king").specialist in grown.specialists


@pytest.mark.skipif(not SHARED.is_dir(), reason="no folder ../shared/data beside the repository")
@pytest.mark.slow
def test_real_prompts_with_real_contexts(tmp_path: Path) -> None:
    fees = {"6b_finetuning": 0.0, "6b_verification": 0.1, "175b_finetuning": 0.15, "175b_verification": 0.3}
    table = resplit(read_folder(SHARED, fees=PerSpecialist(fees)), seed=1)
    recipe, policy = StackRecipe(rounds=60, folds=3), KnowledgeGradient(depth=1)  # named, so not guarded
    router = Router.fit(table, costly=recipe, policy=policy, inspection_cost=0.0005)
    mse = router.record.report["mse"]
    assert mse["g"] < mse["h(f)"] < mse["kNN-3"]
    assert 0.5 < router.record.report["coverage_1"] < 0.85
    test = table.in_split("test")
    told = [row_contexts(test, i) for i in range(len(test))]
    decisions = router.route_batch(test.prompts, told)
    for decision, prompt, given in zip(decisions[:20], test.prompts[:20], told[:20], strict=True):
        alone = router.route(prompt, given)  # numbers may differ in the last digits: BLAS sums in blocks
        assert alone.trace.actions == decision.trace.actions
        np.testing.assert_allclose(alone.estimates.mean, decision.estimates.mean, atol=1e-9)
    assert sum(len(d.inspected) for d in decisions) > 0


def test_a_number_that_rounds_to_zero_is_shown_without_a_sign() -> None:
    router = fitted()
    story = explain(router, router.route("count the king"))
    (first, *others) = story.steps[0].lines
    near = dataclasses.replace(first, mean=-1e-5, std=0.0, reservation_price=-2e-4, backup_price=-0.0)
    said = StringIO()
    step = dataclasses.replace(story.steps[0], lines=(near, *others))
    show(Screen(file=said, width=200), dataclasses.replace(story, steps=(step,)), 12)
    assert "-0.000" not in said.getvalue()
    assert "0.000" in said.getvalue()


def test_a_router_whose_looks_wait_side_by_side_opens_sets_and_says_what_they_cost(tmp_path: Path) -> None:
    """Money of each and the longest wait: in the bill, as JSON, in the explanation, on disk."""
    table = generate()
    own, wait = np.array([0.004, 0.005, 0.006]), np.array([0.003, 0.004, 0.005])
    router = Router.fit(table, costly=QUICK, inspection_cost=Costs(own, wait=wait))
    decisions = router.route_batch(table.prompts[:60])
    sets = [one for one in decisions if any(len(bought.specialists) > 1 for bought in one.purchases)]
    assert sets
    for decision in sets:
        for bought in decision.purchases:
            at = [router.specialists.index(name) for name in bought.specialists]
            assert bought.cost == pytest.approx((own - wait)[at].sum() + wait[at].max())
        paid = sum(bought.cost for bought in decision.purchases)
        assert decision.trace.spent + decision.trace.refunded == pytest.approx(paid)
        row = json.loads(json.dumps(decision.to_dict()))
        again = Decision.from_dict(row)
        assert again.to_dict() == row
        story = explain(router, again)
        assert story.steps[-1].spent == pytest.approx(paid)
        assert story.bills["inspect everything"] == pytest.approx((own - wait).sum() + wait.max())
        assert any("side by side" in step.why for step in story.steps)
    router.save(tmp_path / "router")
    loaded = Router.load(tmp_path / "router")
    for decision, same in zip(decisions, loaded.route_batch(table.prompts[:60]), strict=True):
        assert decision.trace.actions == same.trace.actions
