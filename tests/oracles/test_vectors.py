"""Every reference vector that concerns the core, within the tolerance its note gives.

mpmath kinds: 1e-12 relative; traces and baselines: exact; optima: 1e-5, correlated 3e-5. The kinds `bid` and
`bidder_loo` belong to the market.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pandora_router.boxes import Independent, Joint, Ladder, LowRank
from pandora_router.index import ladder_offsets, unit_loss, unit_loss_inverse
from pandora_router.search import (
    Committing,
    Held,
    Inspect,
    Obligatory,
    Optimal,
    State,
    Trace,
    committing_payoffs,
    drive,
    reveal,
)
from pandora_router.search import baselines as plans
from pandora_router.search.gradient import plain_gradient
from tests.conftest import of_kind
from tests.oracles.correlated_optimum import correlated_optimum

CORE = {
    "unit_loss",
    "unit_loss_inv",
    "prices",
    "voi",
    "nu",
    "condition",
    "trace",
    "trace_corr",
    "baseline",
    "chain_index",
    "opt_value",
    "opt_value_corr3",
}
MARKET = {"bid", "bidder_loo"}


def agree(came: float, expected: str | float, *, within: float = 1e-12, scale: float = 0.0) -> None:
    """Compare relatively (to `scale` where the true value is a difference of numbers of that size)."""
    truth = float(expected)
    if not np.isfinite(truth):
        assert came == truth
    else:
        assert abs(came - truth) <= within * max(abs(truth), scale), (came, truth)


def test_no_vector_is_left_out(vectors: list[dict[str, Any]]) -> None:
    assert len(vectors) == 101
    assert {v["kind"] for v in vectors} == CORE | MARKET


@pytest.mark.parametrize("vector", of_kind("unit_loss"))
def test_unit_loss(vector: dict[str, Any]) -> None:
    agree(float(unit_loss(vector["input"]["t"])), vector["output"])


@pytest.mark.parametrize("vector", of_kind("unit_loss_inv"))
def test_unit_loss_inverse(vector: dict[str, Any]) -> None:
    agree(float(unit_loss_inverse(vector["input"]["y"])), vector["output"])


@pytest.mark.parametrize("vector", of_kind("prices"))
def test_prices(vector: dict[str, Any]) -> None:
    """Reservation and backup price, and the bidder's interval, which is exactly [b, u] or empty."""
    given, out = vector["input"], vector["output"]
    boxes = Independent([given["mu"]], [given["sigma"]], given["c"])
    u, b = float(boxes.reservation_price()[0]), float(boxes.backup_price()[0])
    size = max(abs(given["mu"]), given["sigma"])
    agree(u, out["reservation"], scale=size)
    agree(b, out["backup"], scale=size)
    agree(float(boxes.gain(given["mu"])[0]), out["max_voi"])
    interval = out["bidder_interval"]
    if interval is None:
        assert b > u
    else:
        assert b <= u
        agree(b, interval[0], scale=size)
        agree(u, interval[1], scale=size)


@pytest.mark.parametrize("vector", of_kind("voi"))
def test_value_of_information(vector: dict[str, Any]) -> None:
    given, out = vector["input"], vector["output"]
    boxes = Independent([given["mu"]], [given["sigma"]], 0.0)
    agree(float(boxes.gain(given["p"])[0]), out["gain"])
    # the gradient of a single box against an outside option is the bidder's value of information
    agree(float(plain_gradient(boxes, given["p"])[0]), out["voi_bid"], scale=abs(given["mu"] - given["p"]))
    joint = Joint([given["mu"]], [[given["sigma"] ** 2]], 0.0)
    agree(float(plain_gradient(joint, given["p"])[0]), out["voi_bid"])


@pytest.mark.parametrize("vector", of_kind("nu"))
def test_committing_payoffs(vector: dict[str, Any]) -> None:
    given, out = vector["input"], vector["output"]
    boxes = Independent(given["mu"], given["sigma"], given["c"])
    payoffs = committing_payoffs(boxes, "mean" if given["variant"] == "mu" else "backup")
    assert len(payoffs) == len(out["nu"])
    for came, truth in zip(payoffs, out["nu"], strict=True):
        agree(float(came), truth)
    assert int(payoffs.argmax()) == out["best"]


@pytest.mark.parametrize("kind", ["joint", "low rank"])
@pytest.mark.parametrize("vector", of_kind("condition"))
def test_conditioning(vector: dict[str, Any], kind: str) -> None:
    given = vector["input"]
    sigma = np.array(given["Sigma"])
    if kind == "joint":
        boxes: Joint | LowRank = Joint(given["mu"], sigma, given["c"])
    else:
        boxes = LowRank(given["mu"], np.linalg.cholesky(sigma), np.zeros(len(sigma)), given["c"])
    for box, value in zip(given["observed"], given["values"], strict=True):
        boxes = boxes.given(box, value)
    for row in vector["output"]:
        k = row["box"]
        agree(float(boxes.mean[k]), row["mean"], scale=1.0)
        agree(float(boxes.std[k]), row["sd"])
        agree(float(boxes.reservation_price()[k]), row["reservation"], scale=1.0)
        agree(float(boxes.backup_price()[k]), row["backup"], scale=1.0)


def opened(trace: Trace) -> list[int]:
    assert all(len(a.boxes) == 1 for a in trace.actions if isinstance(a, Inspect))
    return list(trace.inspected)


@pytest.mark.parametrize("vector", of_kind("trace"))
def test_traces(vector: dict[str, Any]) -> None:
    given, out = vector["input"], vector["output"]
    state = State(Independent(given["mu"], given["sigma"], given["c"]))
    show = reveal(given["G"])
    trace = drive(Obligatory(), state, show)
    assert (trace.selected, opened(trace)) == (out["oi"]["choice"], out["oi"]["opened"])
    for name, outside in (("ni_backup", "backup"), ("ni_mu", "mean")):
        truth = out[name]
        payoffs = committing_payoffs(state.boxes, outside)
        for came, exact in zip(payoffs, truth["nu"], strict=True):
            agree(float(came), exact, within=1e-11)
        if truth["gap"] < 1e-9:
            continue
        plan = Committing(outside, payoff="exact").start(state)
        assert (plan.box if isinstance(plan, Held) else -1) == truth["holdout"]
        trace = drive(plan, state, show)
        assert (trace.selected, opened(trace)) == (truth["choice"], truth["opened"])
        assert trace.spent == pytest.approx(np.array(given["c"])[opened(trace)].sum())


@pytest.mark.parametrize("kind", ["joint", "low rank"])
@pytest.mark.parametrize("vector", of_kind("trace_corr"))
def test_correlated_traces(vector: dict[str, Any], kind: str) -> None:
    given, out = vector["input"], vector["output"]
    factor, noise = np.array(given["factor"]), np.array(given["diag"])
    if kind == "joint":
        boxes: Joint | LowRank = Joint(given["mu"], factor @ factor.T + np.diag(noise), given["c"])
    else:
        boxes = LowRank(given["mu"], factor, noise, given["c"])
    state, show = State(boxes), reveal(given["G"])
    trace = drive(Obligatory(), state, show)
    assert (trace.selected, opened(trace)) == (out["oi"]["choice"], out["oi"]["opened"])
    b = float(boxes.backup_price()[given["holdout"]])
    agree(b, out["held"]["b"], scale=1.0)
    trace = drive(Held(given["holdout"], b), state, show)
    assert (trace.selected, opened(trace)) == (out["held"]["choice"], out["held"]["opened"])


@pytest.mark.parametrize("vector", of_kind("baseline"))
def test_baselines(vector: dict[str, Any]) -> None:
    given, out = vector["input"], vector["output"]
    f, g, r = np.array(given["F"]), np.array(given["G"]), np.array(given["R"])
    name = given["name"]
    if name == "margin":
        plan = plans.margin_budget(f, given["Npr"])
    elif name == "random":
        pytest.fail("a random baseline has no exact vector")
    else:
        plan = {"f_only": plans.never, "g_always": plans.always, "top2": plans.top}[name](f)
    choice = plan.choices(g)
    queries = plan.opened.sum(axis=1)
    assert choice.tolist() == out["choice"]
    assert queries.tolist() == out["queries"]
    regret = float(np.mean(r.max(axis=1) - np.take_along_axis(r, choice[:, None], axis=1)[:, 0]))
    assert regret == out["regret"]
    assert float(np.mean(queries * given["cg"])) == pytest.approx(out["cost"], rel=1e-15)
    for i in range(len(f)):  # the same plan, driven
        state = State(Independent(f[i], np.ones_like(f[i]), given["cg"]))
        trace = drive(plan.policy(i), state, reveal(g[i]))
        assert (trace.selected, len(trace.inspected)) == (choice[i], queries[i])


@pytest.mark.parametrize("vector", of_kind("chain_index"))
def test_ladder_offsets(vector: dict[str, Any]) -> None:
    given, out = vector["input"], vector["output"]
    stds, costs = [given["s1"], given["s2"]], [given["c1"], given["c2"]]
    offsets, _ = ladder_offsets(stds, costs, skip=False)
    agree(float(offsets[0]), out["w0"])
    agree(float(offsets[1]), out["w2"], within=1e-11)
    boxes = Ladder([0.5], [stds], [costs], skip=False)
    agree(float(boxes.reservation_price()[0]), 0.5 + float(out["w0"]))
    agree(float(boxes.given(0, 0.4).reservation_price()[0]), 0.4 + float(out["w2"]), within=1e-11)


@pytest.mark.parametrize("vector", of_kind("opt_value"))
def test_optimal_value(vector: dict[str, Any]) -> None:
    given, out = vector["input"], vector["output"]
    boxes = Independent(given["mu"], given["sigma"], given["c"])
    value = Optimal().value(State(boxes))
    assert value == pytest.approx(out["optimal_ni"], abs=1e-5)
    by_mean, by_backup = committing_payoffs(boxes, "mean"), committing_payoffs(boxes, "backup")
    agree(float(by_mean[0]), out["oi"], within=1e-11)
    agree(float(by_mean.max()), out["best_commit_mu"], within=1e-11)
    agree(float(by_backup.max()), out["best_commit_backup"], within=1e-11)
    assert by_backup.max() <= by_mean.max() + 1e-13 <= value + 1e-7
    assert max(given["mu"]) <= value <= by_mean[0] + max(given["c"]) + 1e-7


@pytest.mark.parametrize("vector", of_kind("opt_value_corr3"))
def test_correlated_optimum(vector: dict[str, Any]) -> None:
    given = vector["input"]
    s = np.array(given["sigma"])
    correlation = np.where(np.eye(3, dtype=bool), 1.0, given["rho"])
    value = correlated_optimum(given["mu"], np.outer(s, s) * correlation, given["c"], points=401)
    assert value == pytest.approx(vector["output"]["optimal_ni"], abs=3e-5)
    if given["rho"] == 0.0:  # the same oracle checks the dynamic programme for independent boxes
        assert Optimal().value(State(Independent(given["mu"], s, given["c"]))) == pytest.approx(
            value, abs=1e-5
        )
