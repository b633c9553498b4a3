"""Call every kernel once as a search would, so that each is compiled for the arguments it will meet."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import numpy as np

from pandora_router.boxes import Costs, Independent, Joint
from pandora_router.boxes.checks import locked
from pandora_router.search import batch, gradient, payoffs, policies, simulation
from pandora_router.search.gradient import KnowledgeGradient
from pandora_router.search.policies import Committing, Obligatory, Rollout
from pandora_router.search.state import State
from pandora_router.types import Progress


def rehearse(kernels: SimpleNamespace, progress: Progress) -> None:
    """Run each kernel on two boxes; `progress` hears its name, how many are done and how many there are."""
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
        "best_inspection": lambda: gradient.compiled_inspection(kernels, state.boxes, -np.inf, 2, 6),
        "gradient_step": lambda: group.compiled_next(kernels, State(grouped)),
        "simulated_payoffs": lambda: simulation.compiled_payoffs(kernels, state, "mean", 2, 0),
        "rollout_step": lambda: policies.compiled_rollout(kernels, state, True),
        "held_rows": lambda: batch.run_with(kernels, Obligatory(), made, values),
        "exact_holdouts": lambda: batch.run_with(kernels, Committing(payoff="exact"), made, values),
        "rollout_rows": lambda: batch.run_with(kernels, Rollout(), made, values),
        "gradient_rows": lambda: batch.run_with(kernels, KnowledgeGradient(), made, values),
    }
    for done, (name, call) in enumerate(steps.items()):
        progress(name, done, len(steps))
        call()
    progress("search kernels", len(steps), len(steps))
