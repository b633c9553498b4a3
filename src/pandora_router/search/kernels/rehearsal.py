"""Call every kernel once as a search would, so that each is compiled for the arguments it will meet."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pandora_router.boxes import Costs, Independent, Joint
from pandora_router.boxes.checks import locked
from pandora_router.search import batch, gradient, payoffs, policies
from pandora_router.search.gradient import KnowledgeGradient
from pandora_router.search.policies import Committing, Obligatory, Rollout
from pandora_router.search.state import State
from pandora_router.types import Progress

Array = NDArray[Any]


def rehearse(kernels: SimpleNamespace, progress: Progress) -> None:
    """Run each kernel on two boxes; `progress` hears of each, done and total."""
    state = State(Joint([0.5, 0.4], [[0.04, 0.01], [0.01, 0.05]], 0.01))
    made = batch.Batch([[0.5, 0.4]], [[0.2, 0.2]], 0.01, correlation=np.eye(2))
    grouped = Independent([0.5, 0.4], [0.2, 0.2], Costs([0.0, 0.0], [0.01], [0, 0]))
    values = locked(np.array([[0.6, 0.3]]))
    group = KnowledgeGradient(samples=2)
    steps: dict[str, Callable[[], object]] = {
        "unit_loss_inverse": lambda: kernels.unit_loss_inverse(np.ones(1), np.empty(1)),
        "normal_prices": lambda: payoffs.compiled_prices(kernels, state.boxes),
        "committing_payoffs": lambda: payoffs.compiled_payoffs(kernels, state.boxes, "mean", -np.inf),
        "knowledge_gradient": lambda: gradient.compiled_gradient(kernels, state.boxes, -np.inf),
        "gradient_step": lambda: group.compiled_next(kernels, State(grouped)),
        "learning_gains": lambda: kernels.learning_gains(np.ones((1, 2)), *_moves()),
        "simulated_payoffs": lambda: payoffs.compiled_simulation(kernels, state, "mean", 2, 0),
        "rollout_step": lambda: policies.compiled_rollout(kernels, state, True),
        "half_means": lambda: kernels.half_means(*_rows()),
        "packed_nearest": lambda: kernels.packed_nearest(*_packed()),
        "largest_rows": lambda: kernels.largest_rows(_packed()[0], *_packed()[2:]),
        "graph_nearest": lambda: kernels.graph_nearest(*_graph()),
        "neighbour_means": lambda: kernels.neighbour_means(*_means()),
        "tree_sums": lambda: kernels.tree_sums(*_tree()),
        "held_rows": lambda: batch.run_with(kernels, Obligatory(), made, values),
        "exact_holdouts": lambda: batch.run_with(kernels, Committing(payoff="exact"), made, values),
        "rollout_rows": lambda: batch.run_with(kernels, Rollout(), made, values),
        "gradient_rows": lambda: batch.run_with(kernels, KnowledgeGradient(), made, values),
    }
    for done, (name, call) in enumerate(steps.items()):
        progress(f"compiling {name}", done, len(steps))
        call()
    progress("compiling search kernels", len(steps), len(steps))


def _moves() -> tuple[Any, ...]:
    """Arguments of `learning_gains` behind the worths of two specialists."""
    return np.ones((1, 2)), np.ones(1), np.empty(1)


def _rows() -> tuple[Array, ...]:
    """Arguments of `half_means`: one text with the only token of a table."""
    ids, ends = np.zeros(1, dtype=np.intp), np.ones(1, dtype=np.intp)
    return np.zeros((1, 2), dtype=np.uint16), ids, ends, np.zeros((1, 2), dtype=np.float32)


def _packed() -> tuple[Array, ...]:
    """Arguments of `packed_nearest`: one query, two rows of two numbers."""
    codes = np.ones((2, 2), dtype=np.int8)
    scale = np.ones(2, dtype=np.float32)
    return np.ones((1, 2), dtype=np.float32), codes, scale, np.empty((1, 1), dtype=np.intp)


def _graph() -> tuple[Any, ...]:
    """Arguments of `graph_nearest`: one query, two rows that have an edge to each other.

    Codes and edges are read-only, as those of a mapped file are.
    """
    starts, edges = np.array([0, 4, 8], dtype=np.int64), np.full(8, -1, dtype=np.int32)
    edges[[0, 4]] = 1, 0
    query, codes, _, positions = _packed()
    return query, locked(codes), starts, locked(edges), 0, 0, 2, 2, positions


def _means() -> tuple[Array, ...]:
    """Arguments of `neighbour_means`: one prompt whose only neighbour is row 0."""
    ks, out = np.ones(1, dtype=np.intp), np.empty((1, 1, 1))
    return np.zeros((1, 1), dtype=np.intp), np.ones((1, 1)), np.ones(1), ks, out


def _tree() -> tuple[Array, ...]:
    """Arguments of `tree_sums`: one row, one tree with one node and two leaves."""
    starts = np.array([[0, 0, 0, 0, 2]], dtype=np.int64)
    nodes, children = np.zeros((1, 2), dtype=np.int32), np.array([[-1, -2]], dtype=np.int32)
    bounds, words = np.zeros(0, dtype=np.int32), np.zeros(0, dtype=np.uint32)
    table = np.zeros((1, 1))
    return table, starts, nodes, np.zeros(1), children, np.ones(2), bounds, words, np.empty(1)
