"""Down-payments: part of the cost of a look comes back if the box that was looked at is chosen."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pandora_router.boxes import Costs, Draws, Independent, Joint, Ladder
from pandora_router.errors import UsageError
from pandora_router.market import Bidder
from pandora_router.search import (
    OUTSIDE,
    Batch,
    Inspect,
    KnowledgeGradient,
    Obligatory,
    Optimal,
    Rollout,
    Select,
    State,
    committing_payoffs,
    drive,
    reveal,
)
from tests.support.instances import EXACT, NORMAL, ONE_TIER, Spec, make, specs


def with_share(spec: Spec, share: float) -> Spec:
    return replace(spec, refunded=share)


# --- accounts ---------------------------------------------------------------------------------------------


def test_the_refund_comes_back_once_and_only_for_the_chosen_opened_box() -> None:
    boxes = Independent([0.5, 0.4, 0.3], [0.1] * 3, Costs([0.02, 0.03, 0.04], refund=[0.02, 0.01, 0.0]))
    state = State(boxes).observe(0, 0.6).observe(1, 0.7)
    assert state.spent == pytest.approx(0.05)
    assert state.boxes.mean.tolist() == [0.6 + 0.02, 0.7 + 0.01, 0.3]
    assert [state.refund(j) for j in (0, 1, 2, OUTSIDE)] == [0.02, 0.01, 0.0, 0.0]
    assert state.lose(2).refund(2) == 0.0
    trace = drive(Obligatory(), State(boxes), reveal([0.4, 0.7, 0.3]))
    assert trace.inspected == (0, 1)
    assert trace.selected == 1
    assert trace.spent == pytest.approx(0.04)
    assert trace.refunded == 0.01


def test_conditioning_uses_the_value_and_not_the_refund() -> None:
    covariance = [[0.04, 0.03], [0.03, 0.05]]
    plain = Joint([0.5, 0.4], covariance, 0.02).given(0, 0.7)
    back = Joint([0.5, 0.4], covariance, Costs([0.02, 0.02], refund=0.02)).given(0, 0.7)
    assert back.mean[1] == plain.mean[1]
    assert back.mean[0] == plain.mean[0] + 0.02
    assert (back.std == plain.std).all()


@pytest.mark.parametrize("refund", [[0.03, 0.0], 0.02, [-0.01, 0.0], [0.0]])
def test_a_refund_lies_between_nothing_and_the_own_cost(refund: object) -> None:
    with pytest.raises(UsageError, match="refund"):
        Costs([0.02, 0.01], refund=refund)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="refund"):
        Ladder([0.5], [[0.1, 0.1]], [[0.01, 0.02]], [[0.02, 0.0]])


# --- prices -----------------------------------------------------------------------------------------------


@given(specs(ONE_TIER, grouped=False, refunds=True))
def test_prices_solve_their_equations(spec: Spec) -> None:
    """E[(G + r - u)+] = c, and opening with b in hand is worth as much as taking the box sealed."""
    boxes = spec.boxes()
    c, r = boxes.inspection_cost, boxes.refund
    u, b = boxes.reservation_price(), boxes.backup_price()
    np.testing.assert_allclose(boxes.gain(u), c, rtol=1e-9, atol=1e-12)
    opening = b + boxes.gain(b) - c  # E[max(G + r, b)] - c
    np.testing.assert_allclose(opening, boxes.mean, atol=1e-9)
    np.testing.assert_allclose(b + boxes.gain(b) - boxes.mean - r, c - r, atol=1e-9)
    assert (with_share(spec, 1.0).boxes().backup_price() == -np.inf).all()


@pytest.mark.parametrize("share", [0.0, 0.5, 0.99])
@pytest.mark.parametrize(("std", "cost"), [(0.2, 0.01), (0.05, 0.04), (1.5, 1e-5)])
def test_prices_against_mpmath(std: float, cost: float, share: float) -> None:
    """In 30 digits the defining expectations, by quadrature, hold at the prices to 1e-12."""
    boxes = Independent([0.3], [std], Costs([cost], refund=share * cost))
    u, b = float(boxes.reservation_price()[0]), float(boxes.backup_price()[0])
    with mpmath.workdps(30):
        s, c, r = mpmath.mpf(std), mpmath.mpf(cost), mpmath.mpf(float(boxes.refund[0]))
        density = lambda g: mpmath.npdf(g, 0.3, s)  # noqa: E731
        edges = [mpmath.mpf(0.3) + k * s for k in range(-12, 13, 3)]
        above = [u - r, *(e for e in edges if e > u - r)]
        below = [*(e for e in edges if e < b - r), b - r]
        gain = mpmath.quad(lambda g: (g + r - u) * density(g), above)
        loss = mpmath.quad(lambda g: (b - r - g) * density(g), below)
        assert abs(gain - c) <= 1e-12 * c + 1e-15
        assert abs(loss - (c - r)) <= 1e-12 * c + 1e-15


@given(specs(("independent", "joint", "quantiles"), grouped=False, refunds=True))
def test_prices_of_a_batch_are_those_of_its_boxes(spec: Spec) -> None:
    std = spec.std
    links = None if spec.kind == "independent" else spec.covariance / std / std[:, None]
    laws = {"quantiles": spec.residuals, "rank": [range(len(std))]} if spec.kind == "quantiles" else {}
    batch = Batch([spec.mean], [std], spec.costs, correlation=links, **laws)  # type: ignore[arg-type]
    above, below = batch.prices()
    boxes = batch.state(0).boxes
    np.testing.assert_allclose(above[0], boxes.reservation_price(), rtol=1e-12)
    np.testing.assert_allclose(below[0], boxes.backup_price(), rtol=1e-12)


@pytest.mark.parametrize("share", [0.3, 0.9])
def test_a_ladder_of_one_tier_is_a_box(share: float) -> None:
    ladder = Ladder([0.5, 0.4], [[0.2], [0.3]], [[0.01], [0.05]], [[share * 0.01], [share * 0.05]])
    box = Independent([0.5, 0.4], [0.2, 0.3], Costs([0.01, 0.05], refund=[share * 0.01, share * 0.05]))
    for name in ("reservation_price", "backup_price"):
        np.testing.assert_allclose(getattr(ladder, name)(), getattr(box, name)(), rtol=1e-13)
    np.testing.assert_allclose(ladder.gain(0.6), box.gain(0.6), rtol=1e-13)
    np.testing.assert_allclose(ladder.given(0, 0.7).mean, box.given(0, 0.7).mean)


def test_a_ladder_earns_what_its_offsets_promise() -> None:
    """Two tiers with refunds: at the reservation price a climb is worth nothing, by 200,000 outcomes."""
    s, c, r = np.array([0.15, 0.2]), np.array([0.02, 0.03]), np.array([0.015, 0.01])
    boxes = Ladder([0.0], [s], [c], [r], skip=False)
    u = float(boxes.reservation_price()[0])
    second = float(boxes.given(0, 0.0).reservation_price()[0]) - r[0]  # offset over the second estimate
    z = np.random.default_rng(0).standard_normal((200_000, 2))
    first = s[0] * z[:, 0]
    goes_on = first + r[0] + second > u
    won = np.maximum(first + s[1] * z[:, 1] + r.sum() - u, 0.0) - c[1]
    gain = np.where(goes_on, won, 0.0) - c[0]
    assert abs(gain.mean()) <= 5.0 * gain.std() / np.sqrt(len(gain))


# --- no refund is no change -------------------------------------------------------------------------------


@given(specs(refunds=False))
def test_no_refund_is_bit_for_bit_as_before(spec: Spec) -> None:
    bare = {"own": spec.own, "shared": spec.shared, "group": spec.group}
    assert Costs(**bare).refund.tolist() == [0.0] * len(spec.own)  # type: ignore[arg-type]
    boxes = spec.boxes()
    u, b = boxes.reservation_price(), boxes.backup_price()
    if spec.kind in NORMAL:
        from pandora_router.index import price_offset

        offset = price_offset(boxes.std, boxes.inspection_cost)  # type: ignore[attr-defined]
        assert (u == boxes.mean + offset).all()
        assert (b == boxes.mean - offset).all()
    value = float(np.ravel(spec.values[0])[0])
    assert boxes.given(0, value).mean[0] == value


# --- what full refunds make easy --------------------------------------------------------------------------


def best_search(support: np.ndarray, cost: np.ndarray, refund: np.ndarray) -> float:
    """The optimal non-obligatory search over equally likely values by plain recursion."""

    def value(left: frozenset[int], v: float) -> float:
        best = max([v, *(support[j].mean() for j in left)])
        for j in left:
            after = [value(left - {j}, max(v, g + refund[j])) for g in support[j]]
            best = max(best, float(np.mean(after)) - cost[j])
        return best

    return value(frozenset(range(len(support))), -np.inf)


def earned(policy: object, boxes: Draws) -> float:
    """What a policy earns over all outcomes, each equally likely."""
    total = []
    for outcome in product(*boxes.samples):
        trace = drive(policy, State(boxes), reveal(outcome))  # type: ignore[arg-type]
        total.append(outcome[trace.selected] - trace.spent)
    return float(np.mean(total))


@pytest.mark.parametrize("boxes", [2, 3])
@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_the_index_rule_against_brute_force(boxes: int, share: float) -> None:
    """With full refunds the obligatory rule is optimal; in general it lacks at most max(c - r)."""
    worst = 0.0
    for seed in range(12):
        rng = np.random.default_rng([boxes, seed])
        support = np.sort(rng.uniform(0.0, 1.0, (boxes, 3)), axis=1)
        cost = rng.uniform(0.0, 0.3, boxes)
        refund = share * cost
        truth = best_search(support, cost, refund)
        came = earned(Obligatory(), Draws(support, Costs(cost, refund=refund)))
        assert came <= truth + 1e-12
        assert truth <= came + (cost - refund).max() + 1e-12
        worst = max(worst, truth - came)
    assert worst < 1e-12 if share == 1.0 else worst > 1e-3


@pytest.mark.parametrize("seed", range(4))
def test_with_full_refunds_obligatory_is_optimal_for_normal_boxes(seed: int) -> None:
    spec = make("independent", np.random.default_rng(seed), 2 + seed % 2, cost=0.05, refunded=1.0)
    coarse, fine = (Optimal(points=n).value(spec.state()) for n in (20_001, 40_001))
    value = fine + (fine - coarse) / 3.0  # the error falls with the square of the step
    assert float(committing_payoffs(spec.boxes())[0]) == pytest.approx(value, abs=1e-9)


@pytest.mark.parametrize("share", [0.0, 0.4, 0.8])
def test_optimal_with_refunds_against_a_recursion(share: float) -> None:
    """41 Gauss-Hermite outcomes leave about 3e-3 of a standard deviation at the kinks."""
    z, w = np.polynomial.hermite_e.hermegauss(41)
    w = w / w.sum()
    spec = make("independent", np.random.default_rng(3), 2, cost=0.05, refunded=share)
    mean, std, cost, refund = spec.mean, spec.std, spec.own, spec.costs.refund

    def recursion(left: frozenset[int], v: float) -> float:
        value = max([v, *(mean[j] for j in left)])
        for j in left:
            after = [recursion(left - {j}, max(v, mean[j] + refund[j] + std[j] * x)) for x in z]
            value = max(value, float(w @ after) - cost[j])
        return value

    truth = recursion(frozenset({0, 1}), -np.inf)
    assert Optimal().value(spec.state()) == pytest.approx(truth, abs=3e-3)


@settings(max_examples=15)
@given(
    specs(("independent",), grouped=False, outside=False, smallest=2, largest=3), st.sampled_from([0.5, 1.0])
)
def test_no_policy_is_worth_more_than_obligatory_plus_what_is_lost(spec: Spec, share: float) -> None:
    spec = with_share(spec, share)
    lost = float((spec.costs.own - spec.costs.refund).max())
    obligatory = float(committing_payoffs(spec.boxes())[0])
    value = Optimal(points=4001).value(spec.state())
    assert obligatory - 1e-6 <= value <= obligatory + lost + 1e-6


# --- policies ---------------------------------------------------------------------------------------------


def test_looking_at_the_one_you_would_take_anyway_is_free() -> None:
    """Without a refund the leader is taken unseen; with one it is looked at first."""
    mean, std = [0.6, 0.5], [0.1, 0.02]
    dear = State(Independent(mean, std, 0.02))
    held = State(Independent(mean, std, Costs([0.02, 0.02], refund=[0.02, 0.0])))
    for policy in (KnowledgeGradient(depth=1), KnowledgeGradient(), Rollout(), Optimal()):
        assert policy.next(dear) == Select(0)
        assert policy.next(held) == Inspect((0,))


@pytest.mark.parametrize("kind", ONE_TIER)
def test_policies_with_refunds_against_the_average_over_outcomes(kind: str) -> None:
    """One step ahead, the worth of a look is E[best worth then] - best worth now, by conditioning itself."""
    from pandora_router.search.gradient import gradient, plain_gradient

    for seed in range(4):
        boxes = make(kind, np.random.default_rng(seed), 3, refunded=0.7).boxes()
        drawn = boxes.sample(30_000, np.random.default_rng(1))
        came = gradient(boxes, 0.3)
        np.testing.assert_allclose(came, plain_gradient(boxes, 0.3), rtol=1e-9, atol=1e-13)
        for j in range(3):
            values = drawn[:400, j]
            best = np.array([max(0.3, float(boxes.given(j, float(v)).mean.max())) for v in values])
            now = max(0.3, float(boxes.mean.max()))
            assert abs(came[j] - (best.mean() - now)) <= 5.0 * best.std() / np.sqrt(len(best)) + 1e-12


@pytest.mark.parametrize("share", [0.3, 0.7])
def test_committing_payoffs_are_what_driving_earns(share: float) -> None:
    """The exact payoffs of all committing policies against 4,000 driven outcomes; 5 standard errors."""
    from pandora_router.search import Held
    from pandora_router.search.payoffs import outside_options

    boxes = make("independent", np.random.default_rng(5), 3, cost=0.05, refunded=share).boxes()
    drawn = boxes.sample(4000, np.random.default_rng(2))
    for outside in ("mean", "backup"):
        held = outside_options(boxes, outside)  # type: ignore[arg-type]
        exact = committing_payoffs(boxes, outside)  # type: ignore[arg-type]
        for m in range(-1, 3):
            policy = Obligatory() if m < 0 else Held(m, float(held[m]))
            traces = [drive(policy, State(boxes), reveal(g)) for g in drawn]
            won = np.array([g[t.selected] - t.spent for g, t in zip(drawn, traces, strict=True)])
            assert abs(won.mean() - exact[m + 1]) <= 5.0 * won.std() / np.sqrt(len(won))


def test_a_bidder_looks_where_the_refund_makes_it_pay() -> None:
    """Between the interval without and with a refund only the refunded look is bought."""
    bare = Independent([0.5], [0.2], 0.05)
    back = Independent([0.5], [0.2], Costs([0.05], refund=0.05))
    for price in (0.3, 0.6):
        plain = drive(Bidder(), State(bare, price), reveal([0.7]))
        refunded = drive(Bidder(), State(back, price), reveal([0.7]))
        assert refunded.actions == (Inspect((0,)), Select(0))
        assert refunded.spent == 0.0
        if price == 0.3:
            assert plain.actions == (Select(0),)


@pytest.mark.parametrize("policy", EXACT, ids=repr)
def test_refunds_never_make_a_search_earn_less(policy: object) -> None:
    """400 outcomes of four boxes, twice: the same searches with money back, at least as good on average."""
    difference = []
    for seed in range(20):
        spec = make("independent", np.random.default_rng(seed), 4, cost=0.04)
        boxes = {share: with_share(spec, share).boxes() for share in (0.0, 1.0)}
        for g in boxes[0.0].sample(20, np.random.default_rng(seed)):
            won = {}
            for share, made in boxes.items():
                trace = drive(policy, State(made), reveal(g))  # type: ignore[arg-type]
                won[share] = g[trace.selected] - trace.spent
            difference.append(won[1.0] - won[0.0])
    assert np.mean(difference) > 0.0
