"""Running a policy over a batch takes, action for action, the decisions of `drive`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from pandora_router.boxes import Costs
from pandora_router.boxes.checks import finite
from pandora_router.errors import UsageError
from pandora_router.search import (
    Batch,
    Committing,
    Held,
    Inspect,
    KnowledgeGradient,
    Obligatory,
    Optimal,
    Policy,
    Rollout,
    Select,
    State,
    baselines,
    drive,
    reveal,
    run,
    stream,
)
from pandora_router.search.state import Action
from tests.support.instances import EXACT, SIMULATED

POLICIES = (*EXACT, *SIMULATED, Held(0, 0.45), Held(0, 0.65), Held(2, 0.65), Held(1, 0.7), Held(0, -np.inf))
VARIANTS = (
    "independent",
    "repeated",
    "correlated",
    "quantiles",
    "shared groups",
    "correlated groups",
    "quantile groups",
    "refunds",
    "correlated refunds",
    "quantile refunds",
    "correlated groups with refunds",
    "heterogeneous costs",
    "outside option",
    "correlated with outside option",
    "ties",
    "nothing to learn",
    "singular",
    "one box",
)


def correlation(rng: np.random.Generator, boxes: int, rank: int = 3) -> np.ndarray:
    factor = rng.standard_normal((boxes, rank)) + 0.7
    matrix = factor @ factor.T + 0.3 * np.eye(boxes)
    scale = np.sqrt(np.diag(matrix))
    matrix = matrix / scale / scale[:, None]
    np.fill_diagonal(matrix, 1.0)
    return matrix


def make_batch(variant: str, seed: int, queries: int = 30, boxes: int = 4) -> tuple[Batch, np.ndarray]:
    rng = np.random.default_rng([VARIANTS.index(variant), seed])
    if variant == "one box":
        boxes = 2
    mean = rng.normal(0.5, 0.15, (queries, boxes))
    std = rng.uniform(0.05, 0.4, (queries, boxes))
    cost: float | np.ndarray | Costs = float(rng.choice([1e-3, 0.02, 0.06]))
    linked = None
    outside = -np.inf
    laws = rank = None
    if "correlated" in variant or "quantile" in variant:
        linked = correlation(rng, boxes)
    if "quantile" in variant:
        laws = np.sort(rng.standard_normal((3, 9)), axis=1)
        rank = rng.integers(0, 3, (queries, boxes))
    if "groups" in variant:
        cost = Costs([0.0, 0.01, 0.0, 0.004], shared=[0.03, 0.01], group=[0, 0, 0, 1])
        if seed % 2:
            cost = Costs([0.0, 0.01, 0.0, 0.0], shared=[0.02, 0.03], group=[0, -1, 1, 1])
    if variant == "heterogeneous costs":
        cost = np.array([0.0, 1e-4, 0.03, 0.2])
    if "refunds" in variant:
        costs = cost if isinstance(cost, Costs) else Costs(np.full(boxes, cost))
        share = (0.5, 1.0)[seed % 2]
        cost = Costs(costs.own, costs.shared, costs.group, share * costs.own)
    if "outside" in variant:
        outside = 0.6
    if variant == "ties":
        mean, std = rng.integers(4, 6, mean.shape) / 10, rng.integers(0, 3, std.shape) / 10
        linked = None if seed % 2 else np.where(np.eye(boxes, dtype=bool), 1.0, 0.5)
    if variant == "nothing to learn":
        std[:, ::2] = 0.0
        cost = np.array([0.0, 0.01, 0.02, 0.0])
    if variant == "singular":
        linked = np.ones((boxes, boxes))
        linked[0, 1:] = linked[1:, 0] = -1.0
    if variant == "one box":
        mean, std = mean[:, :1], std[:, :1]
    if variant == "repeated":  # the same means with other deviations too
        mean = mean[np.arange(queries) % 2]
        std = std[np.arange(queries) % 3]
    values = mean + std * rng.standard_normal(mean.shape)
    if variant == "ties":
        values = np.round(values, 1)
    return Batch(mean, std, cost, correlation=linked, quantiles=laws, rank=rank, outside=outside), values


def same_as_driven(policy: Policy, batch: Batch, values: np.ndarray) -> None:
    decisions = run(policy, batch, values, threads=2)
    for i in range(len(batch)):
        expected = drive(policy, batch.state(i), reveal(values[i]))
        came = decisions.trace(i, values)
        assert came.actions == expected.actions, (i, came, expected)
        assert came.values == expected.values
        gross = expected.spent + expected.refunded
        assert came.spent + came.refunded == pytest.approx(gross, rel=1e-14, abs=1e-300)
        assert came.refunded == expected.refunded
        assert decisions.choice[i] == expected.selected
        assert decisions.inspections[i] == len(expected.inspected)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("policy", POLICIES, ids=repr)
def test_batch_equals_drive(policy: Policy, variant: str) -> None:
    for seed in (0, 1):
        batch, values = make_batch(variant, seed, queries=5 if isinstance(policy, Committing) else 24)
        if isinstance(policy, Held) and policy.box >= batch.mean.shape[1]:
            return
        same_as_driven(policy, batch, values)


@pytest.mark.parametrize("policy", [Obligatory(), Rollout(), KnowledgeGradient()], ids=repr)
def test_many_queries_and_boxes(policy: Policy) -> None:
    """More queries than a thread takes at a time, more boxes than the other tests."""
    rng = np.random.default_rng(5)
    mean, std = rng.normal(0.5, 0.1, (300, 12)), rng.uniform(0.05, 0.3, (300, 12))
    batch = Batch(mean, std, 0.01, correlation=correlation(rng, 12))
    same_as_driven(policy, batch, mean + std * rng.standard_normal(mean.shape))


@pytest.mark.parametrize("policy", EXACT, ids=repr)
def test_threads_do_not_matter(policy: Policy) -> None:
    batch, values = make_batch("correlated", 0, queries=600)
    one, two = run(policy, batch, values, threads=1), run(policy, batch, values, threads=2)
    for name in ("choice", "spent", "order", "stage"):
        assert (getattr(one, name) == getattr(two, name)).all()


def test_a_stream_is_its_chunks() -> None:
    whole, values = make_batch("independent", 3, queries=50)
    chunks = [
        (Batch(whole.mean[rows], whole.std[rows], whole.costs), values[rows])
        for rows in (slice(0, 20), slice(20, 50))
    ]
    parts = list(stream(Rollout(), chunks))
    assert np.concatenate([p.choice for p in parts]).tolist() == run(Rollout(), whole, values).choice.tolist()


@dataclass(frozen=True)
class OpenTwoThenBest:
    """A user's own policy: open the two boxes of highest mean in one purchase, take the best in hand."""

    def start(self, state: State) -> Policy:
        return self

    def next(self, state: State) -> Action:
        if not state.opened:
            first = np.argsort(-state.boxes.mean, kind="stable")[:2]
            return Inspect(tuple(int(j) for j in first))
        return Select(state.best.box)


@dataclass(frozen=True)
class Stubborn(Rollout):
    """A user's change of one of ours: never opens."""

    def next(self, state: State) -> Action:
        return Select(state.richest.box)


@pytest.mark.parametrize("variant", ["independent", "correlated groups", "quantiles"])
def test_a_users_policy_works_in_batch(variant: str) -> None:
    batch, values = make_batch(variant, 0)
    same_as_driven(OpenTwoThenBest(), batch, values)
    decisions = run(OpenTwoThenBest(), batch, values)
    assert (decisions.inspections == 2).all()
    assert (decisions.stage[:, :2] == 0).all()


def test_a_subclass_decides_for_itself() -> None:
    batch, values = make_batch("independent", 0)
    assert run(Rollout(), batch, values).inspections.sum() > 0
    decisions = run(Stubborn(), batch, values)
    assert decisions.inspections.sum() == 0
    assert (decisions.choice == batch.mean.argmax(axis=1)).all()


def test_optimal_and_plans_work_in_batch() -> None:
    batch, values = make_batch("independent", 1, queries=5)
    same_as_driven(Optimal(points=201), batch, values)
    plan = baselines.top(batch.mean, 2)
    for i in range(len(batch)):
        same_as_driven(plan.policy(i), batch, values)


@pytest.mark.parametrize("k", [1e-170, 1e160])
def test_batches_scale_beyond_what_can_be_squared(k: float) -> None:
    batch, values = make_batch("independent", 0)
    scaled = Batch(k * batch.mean, k * batch.std, k * batch.costs.own)
    for policy in EXACT:
        same_as_driven(policy, scaled, k * values)
        assert (run(policy, scaled, k * values).order == run(policy, batch, values).order).all()


@pytest.mark.parametrize("k", [1e-170, 1e160])
def test_a_covariance_that_cannot_be_written_is_refused(k: float) -> None:
    with pytest.raises(UsageError, match="unit of the rewards"):
        Batch([[0.5 * k, 0.4 * k]], [[0.1 * k, 0.0]], 0.01 * k, correlation=np.eye(2))


def test_kernels_get_arrays_in_one_memory_order() -> None:
    """Compiled code depends on the order: another one would be compiled in the middle of a search."""
    rng = np.random.default_rng(0)
    mean, std = (np.asfortranarray(rng.random((6, 3))) for _ in range(2))
    rank = np.asfortranarray(rng.integers(0, 2, (6, 3)))
    batch = Batch(mean, std, 0.01, correlation=np.eye(3), quantiles=[[-1.0, 1.0], [-2.0, 2.0]], rank=rank)
    arrays = [*batch.law(), finite("values", mean, ndim=2)]
    assert all(part.flags.c_contiguous for part in arrays if isinstance(part, np.ndarray))
