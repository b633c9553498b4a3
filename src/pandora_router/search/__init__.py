"""The search: states and actions, policies, baselines, drivers, and batches of queries.

    state, drive          what is known so far, what a policy can say, and the loop that runs one
    policies, payoffs     policies by reservation prices, and what committing to one plan is worth
    gradient, groups      the knowledge gradient, of one box and of several opened together
    prefixes              several boxes opened side by side, in the order of their prices
    baselines             plans made beforehand, and the optimum
    batch, moving_batch   the same policies over many queries at once
    kernels/              the compiled loops of all of these

What other rooms use can be imported from here.
"""

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
