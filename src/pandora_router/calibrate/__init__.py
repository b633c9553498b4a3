"""From estimates to boxes: fit a signal model, check it, choose a policy, add a specialist, save it.

    readings                      F, G and R of the same prompts
    signals, samples              signal models: from cheap estimates to boxes
    means, reward_mean            the mean of a box given all cheap estimates, of G and of R
    residuals, laws               scale, correlation and law of G around its mean
    set_signal                    the signal model of estimates from everything opened
    choose, ways                  the choice of a policy, and the names of all ways to route
    diagnostics, ablation         how good a signal model is, and what each part of it contributes
    extend                        one more specialist without refitting the others
    signal_states                 signal models on disk

What other rooms use can be imported from here.
"""

from pandora_router.calibrate.ablation import Ablation, ablate
from pandora_router.calibrate.choose import (
    Auto,
    Candidate,
    CandidateLoss,
    ChosenPolicy,
    Guarded,
    candidates,
    guard,
)
from pandora_router.calibrate.diagnostics import Check, check, cross_check
from pandora_router.calibrate.extend import extend, extend_unscored
from pandora_router.calibrate.means import CheapMean, RidgeMean
from pandora_router.calibrate.readings import Readings
from pandora_router.calibrate.samples import EmpiricalDraws, FittedDraws, FittedNeighbours, NeighbourSignal
from pandora_router.calibrate.signal_states import load, save
from pandora_router.calibrate.signals import (
    Calibrated,
    FittedSignal,
    GaussianIndependent,
    GaussianJoint,
    SignalModel,
    Unfitted,
)

__all__ = [
    "Ablation",
    "Auto",
    "Calibrated",
    "Candidate",
    "CandidateLoss",
    "CheapMean",
    "Check",
    "ChosenPolicy",
    "EmpiricalDraws",
    "FittedDraws",
    "FittedNeighbours",
    "FittedSignal",
    "GaussianIndependent",
    "GaussianJoint",
    "Guarded",
    "NeighbourSignal",
    "Readings",
    "RidgeMean",
    "SignalModel",
    "Unfitted",
    "ablate",
    "candidates",
    "check",
    "cross_check",
    "extend",
    "extend_unscored",
    "guard",
    "load",
    "save",
]
