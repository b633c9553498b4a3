"""Estimates from everything opened as the default of a fit: which router ships, its report, live looks."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pandora_router.bidding.service import RouterSide
from pandora_router.bidding.wire import Offer
from pandora_router.boxes import Costs
from pandora_router.calibrate import EmpiricalDraws, FittedSignal
from pandora_router.calibrate.choose import Guarded
from pandora_router.calibrate.set_signal import SetSignal
from pandora_router.config.experiments import experiment
from pandora_router.data import save
from pandora_router.estimators.looking import Looking, plain
from pandora_router.estimators.set_layer import SetEstimate
from pandora_router.evaluate.arms import BY_NAME, Shipped
from pandora_router.evaluate.estimates import estimates, table_of
from pandora_router.evaluate.trials import trial_of
from pandora_router.folders.saved import read_arrays, write_arrays
from pandora_router.prices import FREE
from pandora_router.router import Router, StackRecipe
from pandora_router.router.recipes import SetRecipe
from pandora_router.router.set_stage import Compared
from pandora_router.search import Always, KnowledgeGradient, Never
from pandora_router.specialists.function import Function
from pandora_router.specialists.specialist import Request
from tests.evaluate.test_evaluate import write_folder
from tests.oracles.test_sets import quarrel, router
from tests.support.command import pandora
from tests.support.tables import generate, row_contexts

QUICK = SetRecipe(rounds=10, folds=2)
PRICE = Costs([0.02, 0.02])


def test_a_fit_reads_everything_opened_unless_told_otherwise() -> None:
    assert isinstance(Router.fit(quarrel(300), inspection_cost=PRICE).signal, SetSignal)
    own = Router.fit(quarrel(300), costly=StackRecipe(rounds=10, folds=2), inspection_cost=PRICE)
    assert isinstance(own.signal, FittedSignal)
    assert "opened" not in own.record.report


def test_without_contexts_it_is_the_plain_stack() -> None:
    bare = generate(200, 2)
    made = Router.fit(bare, costly=QUICK, inspection_cost=0.01)
    plainly = Router.fit(bare, costly=QUICK.first, inspection_cost=0.01)
    assert "opened" not in made.record.report
    assert made.record.report["routing"] == plainly.record.report["routing"]


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"policy": Never()}, "knowledge_gradient"),
        ({"policy": Always()}, "knowledge_gradient"),
        ({"signal": EmpiricalDraws()}, "calibrated"),
        ({"inspection_cost": Costs([0.01] * 2, shared=[0.01], group=[0, 0])}, "one by one"),
    ],
)
def test_what_cannot_be_searched_keeps_own_beginnings_and_says_why(
    asked: dict[str, object], told: str
) -> None:
    made = Router.fit(quarrel(300), costly=QUICK, **{"inspection_cost": PRICE, **asked})  # type: ignore[arg-type]
    found = made.record.report["opened"]
    assert not isinstance(made.signal, SetSignal)
    assert found["chosen"] is False
    assert told in found["because"]
    if "policy" in asked:
        assert made.policy == asked["policy"]


def test_where_most_prompts_lack_a_beginning_own_beginnings_stay() -> None:
    """Such a prompt has no full set, so the model of sets would know less than that of own beginnings."""
    whole = quarrel(300)
    assert whole.contexts is not None
    contexts = whole.contexts.copy()
    contexts[np.random.default_rng(0).random(300) < 0.6, 0] = None
    made = Router.fit(
        replace(whole, contexts=contexts), costly=replace(QUICK, peek=400), inspection_cost=PRICE
    )
    assert isinstance(made.signal, FittedSignal)
    assert "every beginning and every reward for most" in made.record.report["opened"]["because"]


def test_the_report_is_that_of_the_router_that_ships() -> None:
    """Every number of the report again, from the decisions of the router itself on the test prompts."""
    made, test = router(), quarrel().in_split("test")
    decisions = made.route_batch(test.prompts, [row_contexts(test, i) for i in range(len(test))])
    chosen = [made.specialists.index(one.specialist) for one in decisions]
    rows = np.arange(len(test))
    score, fee = test.score[rows, chosen], made.fee_weight * test.fee[rows, chosen]
    spent = np.array([one.trace.spent for one in decisions])
    found = made.record.report["routing"]
    assert found["prompts"] == len(test)
    told = found["ways"]["router"]
    assert told["accuracy"] == pytest.approx(score.mean())
    assert told["fee"] == pytest.approx(fee.mean())
    assert told["spent"] == pytest.approx(spent.mean())
    assert told["cost"] == pytest.approx((fee + spent).mean())
    assert told["net_reward"] == pytest.approx((score - fee - spent).mean())
    never = test.score[:, 1] - made.fee_weight * test.fee[:, 1]  # large is best on average, f says nothing
    gap = score - fee - spent - never
    assert found["ways"]["best single"]["behind_error"] == pytest.approx(gap.std(ddof=1) / np.sqrt(len(gap)))
    guard = made.record.evidence["guard"]
    assert guard == made.record.report["opened"]["over_never"]
    assert guard["on"]
    assert guard["gain"] > 5.0 * guard["error"]


@pytest.mark.parametrize(
    ("lead", "gain", "ships"),
    [
        (0.02, 0.02, True),
        (-0.005, 0.02, True),
        (-0.02, 0.02, False),
        (0.02, -0.005, True),
        (0.02, -0.02, False),
    ],
)
def test_it_ships_unless_it_is_behind_by_more_than_noise(lead: float, gain: float, ships: bool) -> None:
    own, never = (Guarded.of(KnowledgeGradient(), ahead, 0.01, 500) for ahead in (lead, gain))
    assert Compared(own, never).better is ships


def test_one_line_of_the_command_says_which_and_what_it_earned(tmp_path: Path) -> None:
    save(quarrel(300), tmp_path / "table")
    (tmp_path / "pandora.yaml").write_text(
        "table: table\nfit: {inspection: 0.02, costly: {rounds: 10, folds: 2}}"
    )
    done = pandora("fit", tmp_path / "pandora.yaml", "-o", tmp_path / "router")
    assert done.exit_code == 0, done.output
    said = " ".join(done.output.split())
    assert "reading all beginnings seen so far together earns" in said
    assert "against reading each specialist's own: it is used." in said
    assert isinstance(Router.load(tmp_path / "router").signal, SetSignal)


def test_live_looks_change_all_means_as_contexts_given_beforehand() -> None:
    made, test = router(), quarrel().in_split("test")
    for i in range(6):
        prompt, given = test.prompts[i], row_contexts(test, i)
        people = {name: Function(name, lambda _, text=given[name]: text, FREE) for name in made.specialists}

        async def live(prompt: str = prompt, people: dict[str, Function] = people) -> object:
            assert made.predictor is not None
            with Looking(Request.of(prompt), made.predictor, people, context_of=plain) as looks:
                return (await replace(made, costly=looks).aroute(prompt)).purchases

        before = made.route(prompt, given).purchases
        after = asyncio.run(live())
        assert [one.means for one in before] == [one.means for one in after]  # type: ignore[attr-defined]
        assert len(before) == 2


def test_a_bidder_sees_the_mean_that_its_own_beginning_alone_gives() -> None:
    made, test = router(), quarrel().in_split("test")
    assert isinstance(made.signal, SetSignal) and isinstance(made.costly, SetEstimate)  # noqa: PT018
    prompt, given = test.prompts[0], row_contexts(test, 0)
    side = RouterSide(made, Function("small", lambda _: given["small"], FREE))
    offer = Offer.model_construct(auction="one", prompt=prompt, messages=(), deadline=5.0)
    value = asyncio.run(side.look(offer))
    raw = made.costly.predict([prompt], np.array([[given["small"], None]], dtype=object))
    f = made.route(prompt).estimates.cheap
    assert value == pytest.approx(made.signal.means(f[None], np.array([[True, False]]), raw)[0, 0])


def test_a_newcomer_joins_a_router_of_own_beginnings() -> None:
    made, test = router(), quarrel().in_split("test")
    grown = made.add_specialist("third", test.prompts[:40], test.score[:40, 1], fee=0.1)
    assert isinstance(grown.signal, FittedSignal)
    assert grown.specialists == ("small", "large", "third")
    assert grown.route(test.prompts[50]).specialist in grown.specialists


def test_an_experiment_measures_what_would_ship(tmp_path: Path) -> None:
    """At each cost the arm "router" is either "own" or the estimates from everything opened, as compared."""
    write_folder(tmp_path / "small")
    asked = experiment("pair", {"data": "small", "specialists": {"cheap": 0, "dear": 0.2}, "peek": 40})
    found = table_of(asked, tmp_path)
    trial = trial_of(estimates(asked, found, 1), 0)
    arms = {arm.name: arm for arm in BY_NAME}
    rng = np.random.default_rng(0)
    for cost in (0.001, 0.02):
        costs = asked.costs_at(cost, found.specialists, together=False)
        ours, own, opened = (
            arm.route(trial, costs, 0, rng).total(trial.test)
            for arm in (Shipped(), arms["own"], arms["opened, no choice"])
        )
        policy = trial.shipped(Shipped().signal, Shipped().policy, costs)
        better = trial.sets.weighed.compare(KnowledgeGradient(), policy, costs).better  # type: ignore[union-attr]
        np.testing.assert_array_equal(ours, opened if better else own)
    whole = {"data": "small", "peek": 40, "inspection": {"shared": 1, "each": 0}}
    assert not experiment("whole", whole).opened  # one price for all looks


def test_features_that_an_older_version_kept_are_made_anew(tmp_path: Path) -> None:
    write_folder(tmp_path / "small")
    asked = experiment("pair", {"data": "small", "specialists": {"cheap": 0, "dear": 0.2}, "peek": 40})
    found = table_of(asked, tmp_path)
    first = estimates(asked, found, 1, tmp_path / "cache")
    [path] = (tmp_path / "cache").iterdir()
    write_arrays(path, {name: array for name, array in first.items() if not name.endswith("_read")})
    again = estimates(asked, found, 1, tmp_path / "cache")
    assert trial_of(again, 0).sets is not None
    assert again.keys() == first.keys() == read_arrays(path).keys()
