"""From estimates to boxes: fit the signal model, check it, choose a policy, add a specialist, keep it all."""

from pandora_router.calibrate.check import Check, check, cross_check
from pandora_router.calibrate.choose import Auto, Candidate, Choice, Evidence, candidates
from pandora_router.calibrate.extend import extend
from pandora_router.calibrate.means import Boosted, Identity, Ridge
from pandora_router.calibrate.persistence import load, save
from pandora_router.calibrate.samples import EmpiricalDraws, FittedDraws, FittedNeighbours, NeighbourSignal
from pandora_router.calibrate.signals import (
    Calibrated,
    FittedSignal,
    GaussianIndependent,
    GaussianJoint,
    SignalModel,
    Unfitted,
)
from pandora_router.calibrate.worth import Worth, worth_of_parts

__all__ = [
    "Auto",
    "Boosted",
    "Calibrated",
    "Candidate",
    "Check",
    "Choice",
    "EmpiricalDraws",
    "Evidence",
    "FittedDraws",
    "FittedNeighbours",
    "FittedSignal",
    "GaussianIndependent",
    "GaussianJoint",
    "Identity",
    "NeighbourSignal",
    "Ridge",
    "SignalModel",
    "Unfitted",
    "Worth",
    "candidates",
    "check",
    "cross_check",
    "extend",
    "load",
    "save",
    "worth_of_parts",
]
