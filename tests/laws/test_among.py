"""Deciding among some of the specialists: a search over their boxes alone, told in terms of all."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pandora_router.boxes import Boxes, Costs, Draws, Independent, Joint, LowRank
from pandora_router.errors import UsageError
from pandora_router.router import Router, explain
from pandora_router.router.decision import BoxStatus
from pandora_router.search import Always, KnowledgeGradient

COSTS = Costs([0.01, 0.02, 0.03, 0.01], shared=[0.05], group=[-1, 0, 0, 0], refund=[0.01, 0, 0.01, 0])


def kinds(rng: np.random.Generator) -> list[Boxes]:
    mean, root = rng.normal(size=4), rng.normal(size=(4, 4))
    return [
        Independent(mean, rng.uniform(0.1, 1, 4), COSTS),
        Joint(mean, root @ root.T, COSTS),
        Joint(mean, root @ root.T, COSTS, quantiles=np.sort(rng.normal(size=(4, 8)), axis=1)),
        LowRank(mean, root[:, :2], rng.uniform(0.1, 1, 4), COSTS),
        Draws(rng.normal(size=(4, 6)), COSTS),
    ]


@given(st.integers(0, 2**32), st.permutations(range(4)), st.integers(1, 4))
def test_leaving_boxes_out_commutes_with_opening(seed: int, order: list[int], count: int) -> None:
    positions = np.array(order[:count])
    for boxes in kinds(np.random.default_rng(seed)):
        few = boxes.only(positions)
        one = few.given(0, 0.3)
        other = boxes.given(int(positions[0]), 0.3).only(positions)
        for left, right in ((few, boxes.only(positions)), (one, other)):
            np.testing.assert_allclose(left.mean, right.mean, atol=1e-12)
            np.testing.assert_allclose(left.gain(0.1), right.gain(0.1), atol=1e-9)
            np.testing.assert_array_equal(left.sealed, right.sealed)
            np.testing.assert_allclose(left.inspection_cost, right.inspection_cost, atol=1e-15)
        np.testing.assert_allclose(few.reservation_price(), boxes.reservation_price()[positions])


@pytest.mark.parametrize("policy", [KnowledgeGradient(), Always()])
def test_only_candidates_are_inspected_and_chosen(router: Router, policy: object) -> None:
    searching = router.with_policy(policy)  # type: ignore[arg-type]
    names = searching.specialists
    for prompt in ("count the river king number 7", "name the long word", "what is it"):
        for among in (names[:1], names[1:], names):
            decision = searching.route(prompt, among=among)
            assert decision.specialist in among
            assert set(decision.inspected) <= set(among)
            assert set(decision.worth) == set(among)
            assert decision.specialist == max(decision.worth, key=lambda name: decision.worth[name])
            out = [one is BoxStatus.EXCLUDED for one in decision.estimates.status]
            assert out == [name not in among for name in names]
            told = explain(searching, decision)
            assert {line.specialist for line in told.steps[0].lines} == set(among)
            assert type(decision).from_dict(decision.to_dict()).worth == decision.worth
            again = searching.route_batch([prompt], among=among)[0]
            assert (again.specialist, again.trace.actions) == (decision.specialist, decision.trace.actions)
        whole, plain = searching.route(prompt, among=names), searching.route(prompt)
        assert (whole.specialist, whole.trace) == (plain.specialist, plain.trace)


def test_a_declined_prompt_goes_to_a_candidate(router: Router) -> None:
    others = [name for name in router.specialists if name != router.default]
    cheapest = min(others, key=lambda name: float(router.fees[router.specialists.index(name)]))
    for decision in (router.route(" ", among=others), router.route_batch([" "], among=others)[0]):
        assert (decision.specialist, decision.declined_because) == (cheapest, "the prompt is empty")
    assert router.route(" ", among=router.specialists).specialist == router.default


def test_candidates_nobody_knows_are_refused(router: Router) -> None:
    for among in ([], ["nobody"]):
        with pytest.raises(UsageError, match="candidates"):
            router.route("hello", among=among)
