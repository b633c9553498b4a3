"""From estimates to boxes: fit a signal model, check it, choose a policy, add a specialist, save it."""

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
