"""Down-payments from the fitted router to the report: decisions, live looks, explanations, evaluations."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pandora_router.boxes import Costs
from pandora_router.calibrate import Calibrated
from pandora_router.calibrate.readings import Readings
from pandora_router.calibrate.ways import Standing
from pandora_router.errors import UsageError
from pandora_router.evaluate import arms
from pandora_router.evaluate.trials import Trial
from pandora_router.router import Decision, Paid, Router, deciding, explain
from pandora_router.router.deciding import Looks
from pandora_router.router.driver import estimated, judged, missed
from pandora_router.router.inspection import Inspection
from pandora_router.search import KnowledgeGradient, State, drive, reveal
from tests.support.routers import fitted
from tests.support.tables import generate, row_contexts

OWN = np.array([0.004, 0.003, 0.005])


def looked_at(refund: float, times: float = 1.0) -> Router:
    """A router that looks at contexts at `times` the cost, with this share of every look coming back."""
    return replace(
        fitted(contexts=True),
        costs=Costs(times * OWN, refund=refund * times * OWN),
        policy=KnowledgeGradient(),
    )


def decided(router: Router) -> list[Decision]:
    table = generate(contexts=True).in_split("test")
    shown = [row_contexts(table, i) for i in range(len(table))]
    return router.route_batch(table.prompts, shown)


def test_decisions_pay_the_looks_and_get_back_that_of_the_chosen_one() -> None:
    kept = 0
    for decision in decided(looked_at(0.75)):
        paid = sum(one.cost for one in decision.purchases)
        opened = decision.specialist in decision.inspected
        back = 0.75 * OWN[decision.trace.selected] if opened else 0.0
        assert decision.trace.refunded == pytest.approx(back)
        assert decision.trace.spent == pytest.approx(paid - back)
        row = decision.to_dict()
        assert row["spent"] + row["refunded"] == pytest.approx(paid)
        assert [line["refund"] for line in row["specialists"].values()] == pytest.approx(list(0.75 * OWN))
        kept += opened
    assert kept > 5


def test_looks_that_come_back_are_bought_more_often() -> None:
    none, full = (sum(len(one.inspected) for one in decided(looked_at(share, 40.0))) for share in (0.0, 1.0))
    assert full > none


def test_an_explanation_says_what_came_back() -> None:
    router = looked_at(1.0)
    story = next(explain(router, one) for one in decided(router) if one.trace.refunded > 0.0)
    back, net = story.decision.trace.refunded, story.decision.trace.spent
    assert story.bills["refunded"] == back
    assert story.bills["this decision"] == net
    assert story.bills["paid before the refund"] == pytest.approx(net + back)
    assert "is refunded, because" in story.steps[-1].why
    assert "is refunded if" in story.steps[0].why
    sealed = [line for line in story.steps[0].lines if line.reservation_price is not None]
    assert all(line.backup_price is None and line.refund > 0.0 for line in sealed)  # -inf: every look is free
    plain = next(explain(looked_at(0.0), one) for one in decided(looked_at(0.0)) if one.purchases)
    assert "refunded" not in plain.bills
    assert "refunded" not in " ".join(step.why for step in plain.steps)


def test_an_explanation_counts_at_the_costs_of_the_request() -> None:
    router = looked_at(0.0)
    costs = Costs(2.0 * OWN, [0.001], [0, 0, 0], refund=OWN)
    decision = live(router, Looks(router.needs, costs))
    again = Decision.from_dict(decision.to_dict()).prices.costs()
    for name in ("own", "shared", "group", "refund"):
        np.testing.assert_allclose(getattr(again, name), getattr(costs, name), rtol=1e-12)
    story = explain(router, decision)
    assert story.bills["inspect everything"] == pytest.approx(float(2.0 * OWN.sum()) + 0.001)
    spent = [step.spent for step in story.steps]
    assert spent[-1] == pytest.approx(sum(one.cost for one in decision.purchases))


# --- live looks -------------------------------------------------------------------------------------------


def live(router: Router, looks: Looks | None, fails: frozenset[str] = frozenset(), row: int = 0) -> Decision:
    """Drive a decision by hand: contexts are seen when they are asked for, none is offered before."""
    table = generate(contexts=True).in_split("test")
    told = row_contexts(table, row)
    prompt = table.prompts[row]
    asking = deciding(router, prompt, judged(router.cheap, [prompt])[0], looks=looks)
    seen_before: dict[str, str] = {}
    assert router.predictor is not None
    try:
        ask = next(asking)
        while True:
            assert dict(ask.contexts) == seen_before
            assert set(ask.opened) == set(seen_before)
            seen = {name: told[name] for name in ask.specialists if name not in fails}
            whole = replace(ask, contexts={**ask.contexts, **seen})
            paid = estimated(router.predictor, [whole])[0]
            paid = missed(ask, paid, fails.intersection(ask.specialists), "it did not begin")
            seen_before |= seen
            ask = asking.send(replace(paid, contexts=seen))
    except StopIteration as end:
        return end.value


def test_live_looks_decide_as_contexts_that_were_offered() -> None:
    router = looked_at(0.5)
    offered = decided(router)
    bought = 0
    for row, decision in enumerate(offered[:40]):
        found = live(router, Looks(router.needs, router.costs), row=row)
        assert found.trace.actions == decision.trace.actions
        assert found.trace.spent == pytest.approx(decision.trace.spent)
        bought += len(found.purchases)
    assert bought > 5
    assert not live(router, None).purchases  # without looks nothing is for sale


def test_a_request_is_charged_its_own_costs() -> None:
    router = looked_at(0.0)
    free = live(router, Looks(router.needs, Costs(np.full(3, 1e-9))))
    assert len(free.inspected) == 3
    assert free.trace.spent == pytest.approx(3e-9)
    assert free.prices.inspection_cost.tolist() == [1e-9] * 3
    assert not live(router, Looks(router.needs, Costs(np.full(3, 10.0)))).purchases
    some = live(router, Looks(frozenset({"small"}), Costs(np.full(3, 1e-9))))
    assert some.inspected == ("small",)


def test_a_look_that_does_not_begin_is_paid_and_lost() -> None:
    router = looked_at(0.0)
    found = live(router, Looks(router.needs, Costs(np.full(3, 1e-9))), frozenset({"small"}))
    purchase = next(one for one in found.purchases if "small" in one.specialists)
    assert purchase.note == "it did not begin"
    assert found.costly.keys() == {"large", "lawyer"}


def test_looks_whose_waiting_is_shared_are_made_together() -> None:
    """Where waiting is most of the price, one ask has all specialists that are worth a look."""
    router = looked_at(0.0)
    together = Looks(router.needs, Costs(np.full(3, 1e-9), [0.002], [0, 0, 0]))
    assert any(
        len(one.specialists) > 1 for row in range(10) for one in live(router, together, row=row).purchases
    )


# --- evaluations ------------------------------------------------------------------------------------------


def trial(seed: int = 0, prompts: int = 80) -> Trial:
    rng = np.random.default_rng(seed)

    def readings() -> Readings:
        f = rng.normal(0.5, 0.1, (prompts, 3))
        g = f + 0.15 * rng.standard_normal(f.shape)
        return Readings(f, g, g + 0.1 * rng.standard_normal(f.shape))

    return Trial(readings(), readings(), Standing(0, 1))


@pytest.mark.parametrize("share", [0.0, 0.6, 1.0])
def test_arms_count_refunds_as_driving_does(share: float) -> None:
    """The aware search and the blind one against searches driven by hand, prompt by prompt."""
    case, costs = trial(), Inspection(refund=share).costs(0.02, ("a", "b", "c"))
    bare = Costs(costs.own)
    policy = case.shipped(Calibrated(), KnowledgeGradient(), costs)
    signal, rng = case.signal(), np.random.default_rng(0)
    aware = arms.Shipped().route(case, costs, 0, rng)
    blind = arms.Blind().route(case, costs, 0, rng)
    values = signal.values(case.test.cheap, case.test.costly)
    blind_policy = case.shipped(Calibrated(), KnowledgeGradient(), bare)
    for i, f in enumerate(case.test.cheap):
        trace = drive(policy, State(signal.boxes(f, costs)), reveal(values[i]))
        assert (aware.choice[i], aware.spent[i]) == (trace.selected, pytest.approx(trace.spent))
        trace = drive(blind_policy, State(signal.boxes(f, bare)), reveal(values[i]))
        back = costs.refund[trace.selected] if trace.selected in trace.inspected else 0.0
        assert blind.choice[i] == trace.selected
        assert blind.spent[i] == pytest.approx(trace.spent - back)
    if share == 0.0:
        assert (aware.choice == blind.choice).all()
    else:
        assert aware.inspections.sum() > blind.inspections.sum()


def test_always_inspecting_gets_back_what_it_chose() -> None:
    case, costs = trial(), Costs([0.02, 0.03, 0.01], refund=[0.02, 0.0, 0.01])
    always = next(one for one in arms.ARMS if one.name == "always inspect")
    routed = always.route(case, costs, 0, np.random.default_rng(0))
    np.testing.assert_allclose(routed.spent, 0.06 - costs.refund[routed.choice])
    values = case.signal().values(case.test.cheap, case.test.costly)
    assert (routed.choice == (values + costs.refund).argmax(axis=1)).all()


def test_what_ships_is_decided_at_the_refunds_it_ships_with() -> None:
    """Two costs that differ only in what comes back are two decisions of what ships."""
    case = trial()
    for share in (0.0, 1.0):
        case.shipped(Calibrated(), KnowledgeGradient(), Inspection(refund=share).costs(0.02, ("a", "b", "c")))
    assert len(case._ships) == 2


def test_a_refund_is_a_share() -> None:
    with pytest.raises(UsageError, match="from 0 to 1"):
        Inspection(refund=1.5)


def test_nothing_paid_is_nothing_back() -> None:
    assert Paid([0.5]).contexts == {}
