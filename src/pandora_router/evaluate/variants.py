"""Variations of the router on the same splits: what each part of it, and each free number, is worth.

Every variation is an arm like any other, so it is paired with the rest prompt by prompt. Its name says what
is varied, a colon, and the value: tables and figures group by what stands before the colon.

    signal: ...        the router's policy on another signal model, or the default one with a part off
    committing on: ... the paper's policy on another signal model (its Gaussian against kNN table)
    calibration: n     the router with n calibration prompts
    S: n               the paper's policy with n simulated outcomes
    K: n               the paper's policy on the mean and deviation of the n nearest calibration prompts

The paper's k, the neighbours behind f, is varied by `neighbours` of an experiment, the peek by one experiment
each, because both change the estimates themselves.
"""

from __future__ import annotations

from pandora_router.calibrate import (
    Calibrated,
    EmpiricalDraws,
    GaussianIndependent,
    GaussianJoint,
    NeighbourSignal,
    Unfitted,
)
from pandora_router.evaluate.arms import ARMS, DEFAULT, PAPER, STATIC, Arm, Search, named
from pandora_router.evaluate.experiments import Experiment, Sweep
from pandora_router.search import Committing

SIGNALS: dict[str, Unfitted] = {
    "constant scale": Calibrated(scale="constant"),
    "no correlation": Calibrated(correlation="none"),
    "no slope": Calibrated(slope=False),
    "normal law": Calibrated(law="normal"),
    "Gaussian joint (paper)": GaussianJoint(),
    "Gaussian independent": GaussianIndependent(),
    "neighbours, K=16 (paper)": NeighbourSignal(),
    "empirical draws": EmpiricalDraws(),
}


def arms_of(experiment: Experiment, k: int) -> tuple[Arm, ...]:
    """The arms of an experiment where f looks at k neighbours, the router under test first.

    All of them, and the variations, run on the first number of neighbours; on the others only the router,
    what it is judged against and the quick policies: each number costs as much as the first.
    """
    arms = named(experiment.arms)
    if k == experiment.ks[0]:
        return (*arms, *variations(experiment.sweep))
    core = (DEFAULT, *STATIC, "f-only", "oracle", PAPER, "rollout", "relative")
    return tuple(arm for arm in arms if arm.name in core)


def variations(sweep: Sweep) -> tuple[Arm, ...]:
    """The arms that a sweep asks for."""
    default = next(arm for arm in ARMS if arm.name == DEFAULT)
    assert isinstance(default, Search)
    made: list[Arm] = []
    if sweep.signals:
        made += [Search(f"signal: {name}", model, default.policy) for name, model in SIGNALS.items()]
        others = ("Gaussian independent", "neighbours, K=16 (paper)")
        made += [Search(f"committing on: {name}", SIGNALS[name], Committing()) for name in others]
    made += [
        Search(f"calibration: {n}", default.signal, default.policy, calibration=n) for n in sweep.calibration
    ]
    made += [Search(f"S: {n}", GaussianJoint(), Committing(samples=n)) for n in sweep.samples]
    made += [Search(f"K: {n}", NeighbourSignal(n), Committing()) for n in sweep.signal_neighbours]
    return tuple(made)
