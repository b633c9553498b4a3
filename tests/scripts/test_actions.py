"""Exact scripts: what each policy does, move by move, on instances small enough to check by hand."""

from __future__ import annotations

import numpy as np
import pytest

from pandora_router.boxes import Boxes, Costs, Draws, Independent, Joint, Ladder
from pandora_router.search import (
    OUTSIDE,
    Committing,
    Held,
    Inspect,
    KnowledgeGradient,
    Obligatory,
    Optimal,
    Planned,
    Policy,
    Rollout,
    Select,
    State,
    baselines,
    drive,
    reveal,
)

FREE = Costs([0.0, 0.0, 0.0], shared=[0.05], group=[0, 0, -1])


def play(
    policy: Policy, boxes: Boxes, values: list[float] | list[list[float]], outside: float = -np.inf
) -> list:
    return list(drive(policy, State(boxes, outside), reveal(values)).actions)


# --- Weitzman's search ------------------------------------------------------------------------------------

# Two-valued boxes at cost .1: u solves E[(G - u)+] = .1, so u = high - .2.
#   box 0: 0 or 1 -> u = .8      box 1: .4 or .6 -> u = .4      box 2: .2 or .9 -> u = .7
COINS = Draws([[0.0, 1.0], [0.4, 0.6], [0.2, 0.9]], 0.1)


def test_the_coins_cost_what_the_head_of_this_section_says() -> None:
    np.testing.assert_allclose(COINS.reservation_price(), [0.8, 0.4, 0.7])


@pytest.mark.parametrize(
    ("values", "script"),
    [
        ([1.0, 0.6, 0.9], [Inspect((0,)), Select(0)]),
        ([0.0, 0.6, 0.9], [Inspect((0,)), Inspect((2,)), Select(2)]),
        ([0.0, 0.6, 0.2], [Inspect((0,)), Inspect((2,)), Inspect((1,)), Select(1)]),
        ([0.0, 0.1, 0.2], [Inspect((0,)), Inspect((2,)), Inspect((1,)), Select(2)]),
        ([0.75, 0.6, 0.9], [Inspect((0,)), Select(0)]),
        ([0.7, 0.6, 0.9], [Inspect((0,)), Select(0)]),  # open iff v < u: .7 is not below .7
    ],
)
def test_obligatory(values: list[float], script: list) -> None:
    assert play(Obligatory(), COINS, values) == script


def test_obligatory_against_an_outside_option() -> None:
    assert play(Obligatory(), COINS, [0.0, 0.6, 0.9], 0.8) == [Select(OUTSIDE)]  # not below .8
    assert play(Obligatory(), COINS, [0.0, 0.6, 0.2], 0.75) == [Inspect((0,)), Select(OUTSIDE)]


def test_ties_go_to_the_lowest_index() -> None:
    twins = Independent([0.5, 0.5, 0.5], [0.2, 0.2, 0.2], 0.01)
    order = [Inspect((0,)), Inspect((1,)), Inspect((2,))]
    assert play(Obligatory(), twins, [0.3, 0.3, 0.3]) == [*order, Select(0)]
    assert play(Rollout(), twins, [0.9, 0.0, 0.0])[0] == Inspect((0,))
    assert play(KnowledgeGradient(), twins, [0.9, 0.0, 0.0])[0] == Inspect((0,))
    dear = Independent([0.5, 0.5], [0.2, 0.2], 1.0)
    for policy in (Rollout(), KnowledgeGradient(), Optimal(), Committing("mean", payoff="exact")):
        assert play(policy, dear, [0.0, 0.0]) == [Select(0)]


def test_conditioning_changes_the_order() -> None:
    """Boxes 1 and 2 have the higher prices, and box 1 speaks ill of box 2."""
    p = [[0.01, 0.0, 0.0], [0.0, 0.04, 0.038], [0.0, 0.038, 0.04]]
    values = [0.55, 0.2, 0.25]
    joint, alone = Joint([0.5, 0.5, 0.5], p, 0.01), Independent([0.5] * 3, [0.1, 0.2, 0.2], 0.01)
    assert play(Obligatory(), alone, values) == [Inspect((1,)), Inspect((2,)), Inspect((0,)), Select(0)]
    assert play(Obligatory(), joint, values) == [Inspect((1,)), Inspect((0,)), Select(0)]


# --- holding a box ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("at", "values", "script"),
    [
        (0.75, [0.0, 0.6, 0.9], [Select(0)]),  # nobody's price exceeds .75 but the held box's own
        (0.5, [0.0, 0.6, 0.9], [Inspect((2,)), Select(2)]),
        (0.5, [0.0, 0.6, 0.2], [Inspect((2,)), Select(0)]),
        (0.5, [0.0, 0.6, 0.5], [Inspect((2,)), Select(0)]),  # taken iff best <= b
        (0.3, [0.0, 0.6, 0.2], [Inspect((2,)), Inspect((1,)), Select(1)]),
        (0.4, [0.0, 0.6, 0.2], [Inspect((2,)), Select(0)]),
    ],
)
def test_held(at: float, values: list[float], script: list) -> None:
    assert play(Held(0, at), COINS, values) == script


def test_a_held_box_that_comes_free_with_its_group_is_judged_by_its_value() -> None:
    boxes = Independent([0.5, 0.6, 0.2], [0.3, 0.3, 0.1], FREE)
    assert play(Held(1, 0.6), boxes, [0.55, 0.1, 0.0])[-1] == Select(0)
    assert play(Held(1, 0.6), boxes, [0.55, 0.7, 0.0])[-1] == Select(1)
    assert play(Held(1, 0.6), boxes, [0.55, 0.1, 0.0])[0] == Inspect((2,))  # free, so first
    assert Inspect((0, 1)) in play(Held(1, 0.6), boxes, [0.55, 0.1, 0.0])


def test_committing_holds_what_pays() -> None:
    """The boxes of docs/how-it-decides.md, .5 and .45 at c = .06: holding box 0 at its mean is best."""
    boxes = Independent([0.5, 0.45], [0.2, 0.25], 0.06)
    exact = Committing("mean", payoff="exact")
    assert exact.start(State(boxes)) == Held(0, 0.5)
    assert play(exact, boxes, [0.1, 0.4]) == [Inspect((1,)), Select(0)]
    assert play(exact, boxes, [0.1, 0.8]) == [Inspect((1,)), Select(1)]
    cheap = Independent([0.5, 0.45], [0.2, 0.25], 0.01)
    assert Committing("mean", payoff="exact").start(State(cheap)) == Obligatory()
    # by outcomes: a sure thing needs no luck
    sure = Independent([0.5, 0.45], [0.0, 0.0], 0.06)
    assert play(Committing(samples=5), sure, [0.5, 0.45]) == [Select(0)]
    assert play(Committing("mean", samples=5), sure, [0.5, 0.45]) == [Select(0)]


def test_rollout_changes_its_mind() -> None:
    """It holds box 0, sees box 1 disappoint, and still takes box 0 sealed; or is pleased and stops."""
    boxes = Independent([0.5, 0.45], [0.2, 0.25], 0.06)
    assert play(Rollout(), boxes, [0.1, 0.2]) == [Inspect((1,)), Select(0)]
    assert play(Rollout(), boxes, [0.1, 0.9]) == [Inspect((1,)), Select(1)]
    # .56 in hand against box 0 sealed: E[(G - .56)+] = .2 psi(.3) = .053 < .06, so it stops
    assert play(Rollout(), boxes, [0.9, 0.56]) == [Inspect((1,)), Select(1)]
    assert play(Optimal(), boxes, [0.9, 0.56]) == [Inspect((1,)), Select(1)]
    # .51 in hand: opening box 0 adds .2 psi(.05) = .075 > .06
    assert play(Rollout(), boxes, [0.9, 0.51]) == [Inspect((1,)), Inspect((0,)), Select(0)]
    assert play(Optimal(), boxes, [0.9, 0.51]) == [Inspect((1,)), Inspect((0,)), Select(0)]


def test_the_knowledge_gradient_sees_that_common_news_changes_nothing() -> None:
    rho = 0.99
    boxes = Joint([0.52, 0.5], 0.04 * np.array([[1.0, rho], [rho, 1.0]]), 0.01)
    assert play(Rollout(), boxes, [0.4, 0.4])[0] != Select(0)
    assert play(KnowledgeGradient(), boxes, [0.4, 0.4]) == [Select(0)]
    # with opposite boxes one opening tells all: the difference moves twice as far
    apart = Joint([0.52, 0.5], 0.04 * np.array([[1.0, -rho], [-rho, 1.0]]), 0.07)
    assert play(KnowledgeGradient(), apart, [0.7, 0.3]) == [Inspect((0,)), Select(0)]
    assert play(KnowledgeGradient(), apart, [0.3, 0.7]) == [Inspect((0,)), Select(1)]
    assert play(KnowledgeGradient(), Independent([0.52, 0.5], [0.2, 0.2], 0.079), [0.7, 0.3]) == [Select(0)]


# --- knowledge gradient -----------------------------------------------------------------------------------


def test_knowledge_gradient_by_hand() -> None:
    """Draws: opening box 1 (0 or 1, mean .5) against .6 sure is worth .5 * .4 = .2."""
    boxes = Draws([[0.6, 0.6], [0.0, 1.0]], [0.01, 0.19])
    assert play(KnowledgeGradient(), boxes, [0.6, 1.0]) == [Inspect((1,)), Select(1)]
    assert play(KnowledgeGradient(), boxes, [0.6, 0.0]) == [Inspect((1,)), Select(0)]
    dear = Draws([[0.6, 0.6], [0.0, 1.0]], [0.01, 0.21])
    assert play(KnowledgeGradient(), dear, [0.6, 1.0]) == [Select(0)]
    assert play(KnowledgeGradient(), dear, [0.6, 1.0], outside=0.6) == [Select(OUTSIDE)]


# --- groups -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", [Obligatory(), Rollout(), KnowledgeGradient()], ids=repr)
def test_a_group_is_one_purchase(policy: Policy) -> None:
    """One pass scores boxes 0 and 1 for .05; box 2 is known and low."""
    boxes = Independent([0.5, 0.49, 0.1], [0.3, 0.3, 0.0], Costs([0.0, 0.0, 0.5], [0.05], [0, 0, -1]))
    trace = drive(policy, State(boxes), reveal([0.2, 0.9, 0.1]))
    assert trace.actions == (Inspect((0, 1)), Select(1))
    assert trace.values == ((0.2, 0.9),)
    assert trace.spent == 0.05


def test_a_group_worth_opening_only_as_a_whole() -> None:
    """Alone box 0 is worth .3 psi(|.5-.49|/.3) = .115 at .13; together the two are worth .17."""
    boxes = Joint([0.5, 0.49], np.diag([0.09, 0.09]), Costs([0.0, 0.0], [0.13], [0, 0]))
    assert play(KnowledgeGradient(), boxes, [0.2, 0.9]) == [Inspect((0, 1)), Select(1)]
    apart = Joint([0.5, 0.49], np.diag([0.09, 0.09]), [0.13, 0.13])
    assert play(KnowledgeGradient(), apart, [0.2, 0.9]) == [Select(0)]
    dear = Joint([0.5, 0.49], np.diag([0.09, 0.09]), Costs([0.0, 0.0], [0.2], [0, 0]))
    assert play(KnowledgeGradient(), dear, [0.2, 0.9]) == [Select(0)]


def test_a_mate_with_a_cost_of_its_own_is_a_purchase_of_its_own() -> None:
    boxes = Independent([0.5, 0.5], [0.3, 0.3], Costs([0.01, 0.02], [0.03], [0, 0]))
    trace = drive(Obligatory(), State(boxes), reveal([0.4, 0.45]))
    assert trace.actions == (Inspect((0,)), Inspect((1,)), Select(1))
    assert trace.spent == pytest.approx(0.01 + 0.03 + 0.02)


# --- ladders ----------------------------------------------------------------------------------------------


def test_a_ladder_skips_a_tier_that_does_not_pay() -> None:
    """A first tier as dear as the second and less telling is skipped; a cheap one is not."""
    stds = [[0.1, 0.2], [0.1, 0.2]]
    dear = Ladder([0.5, 0.45], stds, [[0.03, 0.03]] * 2)
    assert dear.next_tier.tolist() == [2, 2]
    trace = drive(Obligatory(), State(dear), reveal([[0.55, 0.4], [0.5, 0.3]]))
    assert trace.actions == (Inspect((0,)), Inspect((1,)), Select(0))
    assert trace.values == ((0.4,), (0.3,))  # the second column: the first tier was skipped
    assert trace.spent == pytest.approx(0.06)
    told = Ladder([0.5, 0.45], stds, [[0.03, 0.03]] * 2, skip=False)
    assert told.next_tier.tolist() == [1, 1]
    cheap = Ladder([0.5, 0.45], [[0.2, 0.1]] * 2, [[0.001, 0.03]] * 2)
    assert cheap.next_tier.tolist() == [1, 1]


def test_a_ladder_is_climbed_step_by_step() -> None:
    """Box 0 first; its middling estimate hands the turn to box 1, which climbs to the top and wins."""
    boxes = Ladder([0.5, 0.49], [[0.2, 0.1]] * 2, [[0.001, 0.02]] * 2, skip=False)
    trace = drive(Obligatory(), State(boxes), reveal([[0.3, 0.35], [0.6, 0.7]]))
    assert trace.actions == (Inspect((0,)), Inspect((1,)), Inspect((1,)), Select(1))
    assert trace.values == ((0.3,), (0.6,), (0.7,))
    assert trace.spent == pytest.approx(0.001 + 0.001 + 0.02)


def test_a_plan_judges_a_ladder_by_its_last_tier() -> None:
    boxes = Ladder([0.5, 0.5], [[0.2, 0.1]] * 2, [[0.001, 0.02]] * 2, skip=False)
    trace = drive(Planned((0, 1), 0), State(boxes), reveal([[0.9, 0.1], [0.3, 0.4]]))
    assert trace.actions == (Inspect((0, 1)), Inspect((0, 1)), Select(1))


# --- failures ---------------------------------------------------------------------------------------------


def test_a_failed_inspection_costs_and_the_box_keeps_its_mean() -> None:
    boxes = Independent([0.5, 0.45], [0.2, 0.25], 0.01)  # u: .751, .755

    def failing(state: State, inspect: Inspect) -> list[float | None]:
        return [None if box == 1 else 0.3 for box in inspect.boxes]

    trace = drive(Obligatory(), State(boxes), failing)
    # box 1 fails and is worth .45 in hand; box 0 at .751 is still worth opening, and disappoints
    assert trace.actions == (Inspect((1,)), Inspect((0,)), Select(1))
    assert trace.values == ((None,), (0.3,))
    assert trace.spent == 0.02

    nothing = drive(Obligatory(), State(boxes), lambda state, inspect: [None])
    assert nothing.actions == (Inspect((1,)), Inspect((0,)), Select(0))
    gradient = drive(KnowledgeGradient(), State(boxes), lambda state, inspect: [None] * len(inspect.boxes))
    assert gradient.selected == 0


def test_a_lost_box_still_moves_with_the_others() -> None:
    """Box 0 cannot be opened any more, but box 1 tells that it is good."""
    p = 0.04 * np.array([[1.0, 0.9], [0.9, 1.0]])
    state = State(Joint([0.5, 0.3], p, 0.01)).lose(0)
    later = state.observe(1, 0.6)
    assert later.boxes.mean[0] == pytest.approx(0.77)
    assert later.best == (0, pytest.approx(0.77))
    assert later.spent == pytest.approx(0.02)


# --- plans ------------------------------------------------------------------------------------------------


def test_plans() -> None:
    boxes = Independent([0.5, 0.6, 0.7], [0.1] * 3, 0.01)
    assert play(Planned((), 2), boxes, [0.1, 0.2, 0.3]) == [Select(2)]
    assert play(Planned((0, 1), 2), boxes, [0.1, 0.2, 0.9]) == [Inspect((0, 1)), Select(1)]
    assert play(Planned((1, 0), 2), boxes, [0.2, 0.2, 0.9]) == [Inspect((1, 0)), Select(0)]
    trace = drive(Planned((0, 1), 2), State(boxes), lambda state, inspect: [None, None])
    assert trace.actions == (Inspect((0, 1)), Select(2))
    assert trace.spent == 0.02


def test_plans_of_baselines() -> None:
    f = np.array([[0.6, 0.5, 0.1], [0.4, 0.4, 0.2]])
    assert baselines.never(f).policy(1) == Planned((), 0)
    assert baselines.always(f).policy(0) == Planned((0, 1, 2), 0)
    assert baselines.top(f, 2).policy(1) == Planned((0, 1), 0)
    assert baselines.top(f, 5).opened.all()
    assert baselines.margin_budget(f, 3).opened.tolist() == [[False] * 3, [True, True, True]]
    assert baselines.margin_budget(f, 0).opened.sum() == 0
    for budget in range(8):
        spent = baselines.random_budget(f, budget, np.random.default_rng(0)).opened.sum()
        assert spent == min(budget, 6)
    flips = baselines.coin_flip(np.zeros((2000, 2)), np.random.default_rng(0)).opened.mean()
    assert abs(flips - 0.5) < 5.0 * 0.5 / np.sqrt(4000)
    again = baselines.random_budget(f, 3, np.random.default_rng(5)).opened
    assert (again == baselines.random_budget(f, 3, np.random.default_rng(5)).opened).all()


def test_values_by_box_are_taken_by_box_and_not_by_place() -> None:
    values = {2: 0.9, 1: 0.6, 0: 0.0}
    expected = drive(Obligatory(), State(COINS), reveal([0.0, 0.6, 0.9]))
    assert len(expected.inspected) > 1
    assert drive(Obligatory(), State(COINS), values) == expected
    several = drive(baselines.Always(), State(COINS), lambda _, inspect: {b: values[b] for b in values})
    assert several == drive(baselines.Always(), State(COINS), reveal([0.0, 0.6, 0.9]))
