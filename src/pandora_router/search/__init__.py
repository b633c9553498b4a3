"""The search: states and actions, policies, baselines, drivers, and batches of queries."""

from pandora_router.search.baselines import Always, Never, Optimal, Plan, Planned
from pandora_router.search.batch import Batch, Decisions, run, stream
from pandora_router.search.drive import adrive, drive, replay, reveal
from pandora_router.search.gradient import KnowledgeGradient
from pandora_router.search.payoffs import committing_payoffs
from pandora_router.search.policies import Committing, Held, Obligatory, Rollout
from pandora_router.search.prefixes import SideBySide
from pandora_router.search.state import OUTSIDE, Inspect, Policy, Select, State, Trace

__all__ = [
    "OUTSIDE",
    "Always",
    "Batch",
    "Committing",
    "Decisions",
    "Held",
    "Inspect",
    "KnowledgeGradient",
    "Never",
    "Obligatory",
    "Optimal",
    "Plan",
    "Planned",
    "Policy",
    "Rollout",
    "Select",
    "SideBySide",
    "State",
    "Trace",
    "adrive",
    "committing_payoffs",
    "drive",
    "replay",
    "reveal",
    "run",
    "stream",
]
