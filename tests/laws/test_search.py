"""Laws of states, drivers and policies over every kind of box."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.stats import norm

from pandora_router.boxes import Boxes, Costs, Draws, Independent, Joint, LowRank
from pandora_router.errors import UsageError
from pandora_router.search import (
    OUTSIDE,
    Committing,
    Held,
    Inspect,
    KnowledgeGradient,
    Obligatory,
    Policy,
    Rollout,
    Select,
    State,
    Trace,
    adrive,
    drive,
    kernels,
    replay,
    reveal,
)
from pandora_router.search.state import Action
from pandora_router.types import Matrix, Vector
from tests.support.instances import EXACT, KINDS, ONE_TIER, SIMULATED, Spec, make, policies_for, specs


def every_policy(spec: Spec) -> tuple[Policy, ...]:
    return policies_for(spec.kind)


# --- states -----------------------------------------------------------------------------------------------


@given(specs())
def test_a_state_charges_exactly_once_and_only_when_it_observes(spec: Spec) -> None:
    state = spec.state()
    cost = float(state.boxes.inspection_cost[0])
    value = float(np.ravel(spec.values[0])[0])
    seen, lost = state.observe(0, value), state.lose(0)
    assert state.spent == 0.0
    assert seen.spent == lost.spent == cost
    assert [tuple(worth) for worth in seen.opened] == [(0, value)]
    assert lost.opened == ()
    assert lost.boxes.sealed.tolist() == [False, *state.boxes.sealed[1:].tolist()]
    assert lost.boxes.mean[0] == state.boxes.mean[0]
    assert seen.outside == lost.outside == state.outside
    with pytest.raises(UsageError):
        lost.observe(0, value)
    with pytest.raises(UsageError):
        state.observe(0, float("nan"))


@given(specs(ONE_TIER))
def test_best_is_the_best_in_hand_and_richest_the_best_of_all(spec: Spec) -> None:
    state = spec.state()
    assert state.best == (OUTSIDE, spec.outside)
    seen = state.observe(0, 0.9)
    assert seen.best.value == max(0.9, spec.outside)
    assert seen.richest.value == max(float(seen.boxes.mean.max()), spec.outside)
    lost = state.lose(0)
    assert lost.best.value == max(float(state.boxes.mean[0]), spec.outside)


# --- drivers ----------------------------------------------------------------------------------------------


@settings(max_examples=15)
@given(specs(refunds=True))
def test_three_drivers_one_search(spec: Spec) -> None:
    """Blocking, async and replayed searches are the same; so is the same search again."""
    opener = spec.opener()

    async def slow(state: State, inspect: Inspect) -> Sequence[float | None]:
        await asyncio.sleep(0)
        shown: Sequence[float | None] = opener(state, inspect)
        return shown

    for policy in every_policy(spec):
        trace = drive(policy, spec.state(), opener)
        assert asyncio.run(adrive(policy, spec.state(), slow)) == trace
        assert replay(policy, spec.state(), trace) == trace
        assert drive(policy, spec.state(), opener) == trace


@settings(max_examples=25)
@given(specs(refunds=True), st.randoms(use_true_random=False))
def test_the_bill_is_the_sum_of_what_was_opened_whatever_fails(spec: Spec, random: object) -> None:
    """Failures are data: the money counts, the box is never asked for again, the search ends."""
    opener, rng = spec.opener(), np.random.default_rng(random.getrandbits(32))  # type: ignore[attr-defined]

    for policy in every_policy(spec):

        def flaky(state: State, inspect: Inspect) -> list[float | None]:
            return [v if rng.random() < 0.6 else None for v in opener(state, inspect)]

        trace = drive(policy, spec.state(), flaky)
        state = spec.state()
        for action, shown in zip(trace.actions, trace.values, strict=False):
            assert isinstance(action, Inspect)
            for box, value in zip(action.boxes, shown, strict=True):
                assert state.boxes.sealed[box]
                state = state.lose(box) if value is None else state.observe(box, value)
        back = state.refund(trace.selected)
        assert (trace.spent, trace.refunded) == (state.spent - back, back)
        assert isinstance(trace.actions[-1], Select)
        assert all(isinstance(action, Inspect) for action in trace.actions[:-1])
        assert len(trace.values) == len(trace.actions) - 1
        assert OUTSIDE <= trace.selected < len(spec.mean)
        assert trace.selected != OUTSIDE or np.isfinite(spec.outside)
        assert replay(policy, spec.state(), trace) == trace


def test_replay_refuses_what_was_not_opened() -> None:
    state = State(Independent([0.5, 0.6], [0.2, 0.2], 0.01))
    trace = Trace((Inspect((1,)), Select(1)), ((0.9,),), 0.01)
    assert replay(Held(0, -1.0), state, trace).inspected == (1,)
    with pytest.raises(UsageError, match=r"opened only \(1,\)"):
        replay(Held(1, -1.0), state, trace)


def test_a_held_box_that_was_opened_is_a_value_in_hand() -> None:
    """Its outside option of 0.9 is gone: it turned out to be worth 0.1, so the other box is opened."""
    state = State(Independent([0.5, 0.6], [0.2, 0.2], 0.01))
    assert Held(0, 0.9).next(state) == Select(0)
    assert Held(0, 0.9).next(state.observe(0, 0.1)) == Inspect((1,))
    assert Held(0, 0.9).next(state.observe(0, 0.1).observe(1, 0.3)) == Select(1)


def test_replay_may_open_in_another_order() -> None:
    state = State(Independent([0.5, 0.6], [0.2, 0.2], 1e-4))
    trace = Trace((Inspect((0,)), Inspect((1,)), Select(1)), ((0.5,), (0.55,)), 2e-4)
    again = replay(Obligatory(), state, trace)
    assert again.inspected == (1, 0)
    assert again.values == ((0.55,), (0.5,))


@dataclass(frozen=True)
class Saying:
    """A policy that says one thing."""

    action: object

    def start(self, state: State) -> Policy:
        return self  # type: ignore[return-value]

    def next(self, state: State) -> Action:
        return self.action  # type: ignore[return-value]


@pytest.mark.parametrize(
    "action", [None, Inspect(()), Inspect((0, 0)), Inspect((2,)), Inspect((-1,)), Select(2), Select(-2)]
)
def test_nobody_pays_for_what_a_policy_must_not_say(action: object) -> None:
    paid = []

    def open(state: State, inspect: Inspect) -> list[float]:
        paid.append(inspect)
        return [0.5] * len(inspect.boxes)

    with pytest.raises(UsageError):
        drive(Saying(action), State(Independent([0.5, 0.6], [0.2, 0.2], 0.01)), open)  # type: ignore[arg-type]
    assert paid == []


def test_nobody_pays_twice_for_a_box() -> None:
    paid = []

    def open(state: State, inspect: Inspect) -> list[float]:
        paid.append(inspect)
        return [0.5] * len(inspect.boxes)

    with pytest.raises(UsageError, match="already open"):
        drive(Saying(Inspect((0,))), State(Independent([0.5, 0.6], [0.2, 0.2], 0.01)), open)  # type: ignore[arg-type]
    assert len(paid) == 1


# --- policies ---------------------------------------------------------------------------------------------


@settings(max_examples=20)
@given(specs(refunds=True))
def test_the_same_state_gets_the_same_answer(spec: Spec) -> None:
    for policy in every_policy(spec):
        assert policy.next(spec.state()) == policy.next(spec.state())
        assert policy.next(spec.state()) == policy.start(spec.state()).next(spec.state())


@given(specs(("independent", "joint", "low rank", "draws", "ladder")))
def test_without_cost_the_choice_is_that_of_inspect_all(spec: Spec) -> None:
    """c = 0. (Residual quantiles are left out: a value beyond them may be missed, as their law says.)"""
    free = spec.charging(0.0)
    last = free.values[:, -1] if free.kind == "ladder" else free.values
    best = OUTSIDE if spec.outside >= last.max() else int(last.argmax())
    for policy in every_policy(spec):
        if not isinstance(policy, Held):
            trace = drive(policy, free.state(), free.opener())
            assert trace.selected == best, policy
            assert trace.spent == 0.0


@given(specs(outside=True), st.sampled_from([1e3, 1e6]))
def test_at_a_prohibitive_cost_nothing_is_opened_and_the_best_mean_is_taken(spec: Spec, cost: float) -> None:
    for outside in (-np.inf, spec.outside):
        dear = spec.charging(cost)
        state = State(dear.boxes(), outside)
        for policy in every_policy(spec):
            if isinstance(policy, Obligatory | Held):
                continue
            trace = drive(policy, state, dear.opener())
            if isinstance(policy, Committing) and policy.payoff == "monte_carlo":
                assert trace.inspected == ()  # which box it holds is up to its few outcomes
                continue
            assert trace.actions == (Select(state.richest.box),)


@given(specs(ONE_TIER, grouped=False, refunds=True), st.floats(-30.0, 30.0))
def test_searches_move_with_the_rewards(spec: Spec, by: float) -> None:
    moved = spec.shifted(by)
    for policy in EXACT:
        here = drive(policy, spec.state(), spec.opener())
        there = drive(policy, moved.state(), moved.opener())
        assert here.actions == there.actions
        assert there.spent == pytest.approx(here.spent)


@given(specs(refunds=True), st.sampled_from([2.0**-10, 0.5, 64.0]))
def test_searches_scale_with_the_rewards(spec: Spec, k: float) -> None:
    """Powers of two scale without rounding, so even simulated groups do the same."""
    scaled = spec.scaled(k)
    for policy in policies_for(spec.kind):
        if isinstance(policy, Committing) and policy.payoff == "monte_carlo":
            continue  # outcomes are drawn from a stream of the means
        rescaled = Held(policy.box, k * policy.at) if isinstance(policy, Held) else policy
        here = drive(policy, spec.state(), spec.opener())
        there = drive(rescaled, scaled.state(), scaled.opener())
        assert here.actions == there.actions
        assert there.spent == k * here.spent


@given(specs(KINDS, smallest=2, refunds=True), st.randoms(use_true_random=False))
def test_searches_do_not_care_about_the_order_of_boxes(spec: Spec, random: object) -> None:
    """With shared costs too; boxes of one purchase are named in ascending order."""
    order = np.random.default_rng(random.getrandbits(32)).permutation(len(spec.mean))  # type: ignore[attr-defined]
    moved = spec.permuted(order)
    back = {OUTSIDE: OUTSIDE, **{new: int(old) for new, old in enumerate(order)}}
    policies = EXACT if spec.kind != "ladder" else (Obligatory(), KnowledgeGradient())
    for policy in policies:
        here = drive(policy, spec.state(), spec.opener())
        there = drive(policy, moved.state(), moved.opener())
        assert [sorted(back[j] for j in bought) for bought in purchases(there)] == purchases(here)
        assert back[there.selected] == here.selected
        assert there.spent == pytest.approx(here.spent, rel=1e-12)


def purchases(trace: Trace) -> list[list[int]]:
    return [sorted(action.boxes) for action in trace.actions if isinstance(action, Inspect)]


@pytest.mark.parametrize("k", [1e-170, 2.0**-560, 2.0**530, 1e160])
@pytest.mark.parametrize("kind", ["independent", "draws"])
def test_searches_scale_beyond_what_can_be_squared(kind: str, k: float) -> None:
    """Standard deviations whose squares are 0 or infinite: nothing but the unit changes."""
    for seed in range(8):
        spec = make(kind, np.random.default_rng(seed), 4, grouped=seed > 5)
        for policy in EXACT:
            here, there = (
                drive(policy, State(scaled_boxes(spec, x), 0.4 * x), reveal(x * spec.values))
                for x in (1.0, k)
            )
            assert here.actions == there.actions
            assert there.spent == pytest.approx(k * here.spent, rel=1e-12)


def scaled_boxes(spec: Spec, k: float) -> Boxes:
    costs = Costs(k * spec.own, k * spec.shared, spec.group)
    if spec.kind == "draws":
        return Draws(k * (spec.mean[:, None] + spec.std[:, None] * spec.residuals), costs)
    return Independent(k * spec.mean, k * spec.std, costs)


@pytest.mark.parametrize("k", [2.0**-480, 2.0**480])
def test_correlated_searches_scale_as_far_as_a_covariance_can_be_written(k: float) -> None:
    for seed in range(8):
        spec = make(("joint", "quantiles")[seed % 2], np.random.default_rng(seed), 4, grouped=seed > 3)
        scaled = spec.scaled(k)
        for policy in EXACT:
            here = drive(policy, spec.state(), spec.opener())
            assert drive(policy, scaled.state(), scaled.opener()).actions == here.actions


@given(specs(("independent",), refunds=True))
def test_searches_on_a_diagonal_covariance_are_those_of_independent_boxes(spec: Spec) -> None:
    joint = State(Joint(spec.mean, np.diag(spec.std**2), spec.costs), spec.outside)
    for policy in (*EXACT, Held(0, 0.4)):
        alone = drive(policy, spec.state(), spec.opener())
        assert drive(policy, joint, spec.opener()) == alone


@given(specs(("low rank",), refunds=True))
def test_low_rank_searches_are_those_of_the_dense_covariance(spec: Spec) -> None:
    dense = State(Joint(spec.mean, spec.covariance, spec.costs), spec.outside)
    assert isinstance(spec.boxes(), LowRank)
    for policy in (*EXACT, *SIMULATED, Held(0, 0.4)):
        low = drive(policy, spec.state(), spec.opener())
        assert drive(policy, dense, spec.opener()).actions == low.actions


@given(specs(ONE_TIER, outside=True))
def test_an_outside_option_above_everything_is_taken_at_once(spec: Spec) -> None:
    state = State(spec.boxes(), 50.0)
    for policy in every_policy(spec):
        assert drive(policy, state, spec.opener()).actions == (Select(OUTSIDE),)


@given(specs(("independent",), grouped=False, refunds=True))
def test_rollout_in_compiled_code_is_rollout_in_plain_code(spec: Spec) -> None:
    state = spec.state()
    for policy in (Rollout(), Rollout("backup")):
        assert policy.next(state) == policy.plain_next(state)
        later = state.observe(0, float(spec.values[0]))
        if later.boxes.sealed.any():
            assert policy.next(later) == policy.plain_next(later)


def test_a_protocol_check_on_boxes_is_structural() -> None:
    assert not isinstance(object(), Boxes)


# --- copies of one specialist ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Copies:
    """A world of a few specialists (mu, covariance, costs, values), each behind several boxes (`owner`)."""

    owner: Vector
    mean: Vector
    root: Matrix
    cost: Vector
    refund: Vector
    value: Vector

    @classmethod
    def drawn(cls, rng: np.random.Generator) -> Copies:
        few = int(rng.integers(2, 4))
        more = rng.integers(0, few, int(rng.integers(1, 4)))
        owner = rng.permutation(np.concatenate([np.arange(few), more]))
        mix = rng.normal(size=(few, few + 1))
        root = np.linalg.cholesky(mix @ mix.T * rng.uniform(0.01, 0.1))
        mean = rng.normal(0.5, 0.2, few)
        cost = rng.choice([0.0, 0.01, 0.05], few)
        refund = cost * rng.choice([0.0, 0.5, 1.0])
        return cls(owner, mean, root, cost, refund, mean + root @ rng.normal(size=few))

    def written(self, scale: float, shift: float, *, product: bool) -> tuple[Joint, Vector]:
        """The same world in another unit and from another zero; its covariance is a `product` or taken."""
        rows = (scale * self.root)[self.owner]
        small = self.root @ self.root.T
        covariance = rows @ rows.T if product else (small * scale**2)[np.ix_(self.owner, self.owner)]
        costs = Costs(scale * self.cost[self.owner], refund=scale * self.refund[self.owner])
        boxes = Joint((scale * self.mean + shift)[self.owner], 0.5 * (covariance + covariance.T), costs)
        return boxes, (scale * self.value + shift)[self.owner]


WAYS = [(1.0, 0.0, False), (3.7, 0.0, False), (1.0, 0.3, False), (1.0, 0.0, True), (0.37, 1.1, True)]


@pytest.mark.parametrize("compiled", [True, False], ids=["compiled", "plain"])
@pytest.mark.parametrize(
    "policy",
    [Obligatory(), Committing("mean", "exact"), Rollout(), KnowledgeGradient(depth=1), KnowledgeGradient()],
    ids=repr,
)
def test_rounding_does_not_decide_among_copies(
    policy: Policy, compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Boxes that are equal in theory differ in their last digits, otherwise in each way to write them."""
    kernel = kernels.load()
    monkeypatch.setattr(kernels, "ready", lambda: kernel if compiled else None)
    rng = np.random.default_rng(3)
    for _ in range(80 if compiled else 30):
        world = Copies.drawn(rng)
        traces = []
        for scale, shift, product in WAYS:
            boxes, values = world.written(scale, shift, product=product)
            trace = drive(policy, State(boxes), reveal(values))
            traces.append((trace.inspected, trace.selected))
        assert len(set(traces)) == 1, (world, traces)


def weitzman(boxes: Joint, values: Vector, equal: float = 1e-9) -> tuple[list[int], int]:
    """The index rule from its definition: conditioned afresh at each step, prices by root finding."""
    mean, covariance, opened, best, choice = boxes.mean, boxes.covariance, list[int](), -np.inf, -1
    while left := [j for j in range(len(mean)) if j not in opened]:
        seen = covariance[np.ix_(opened, opened)]
        gain = covariance[:, opened] @ np.linalg.pinv(seen, rcond=1e-10, hermitian=True)
        now = mean + gain @ (values[opened] - mean[opened])
        variance = np.diag(covariance - gain @ covariance[opened])
        std = np.sqrt(np.where(variance > 1e-10 * np.diag(covariance), variance, 0.0))
        price = {j: _price(now[j], std[j], boxes.costs.own[j]) + boxes.costs.refund[j] for j in left}
        top = max(price.values())
        if best >= top - equal:
            break
        box = min(j for j in left if price[j] >= top - equal)
        opened.append(box)
        worth = values[box] + boxes.costs.refund[box]
        if worth > best + equal:
            best, choice = worth, box
    tied = [j for j in opened if values[j] + boxes.costs.refund[j] >= best - equal]
    return opened, min(tied, default=choice)


def _price(mean: float, std: float, cost: float) -> float:
    """The u with E[(G - u)+] = cost for a normal G."""
    if std == 0.0 or cost == 0.0:
        return mean - cost if std == 0.0 else np.inf

    def excess(u: float) -> float:
        z = (u - mean) / std
        return float(std * (norm.pdf(z) - z * norm.sf(z)) - cost)

    return float(brentq(excess, mean - cost - std, mean + 40.0 * std, xtol=1e-14))


def test_the_index_rule_among_copies_is_that_of_its_definition() -> None:
    rng = np.random.default_rng(11)
    for _ in range(50):
        world = Copies.drawn(rng)
        for scale, shift, product in WAYS:
            boxes, values = world.written(scale, shift, product=product)
            trace = drive(Obligatory(), State(boxes), reveal(values))
            assert (list(trace.inspected), trace.selected) == weitzman(boxes, values)
