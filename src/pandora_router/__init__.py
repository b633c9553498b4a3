"""pandora-router: which estimates are worth buying, and which specialist should answer.

>>> import pandora_router as pr
>>> boxes = pr.Joint(mean=[0.62, 0.55], covariance=[[0.02, 0.005], [0.005, 0.06]], inspection_cost=0.01)
>>> trace = pr.drive(pr.KnowledgeGradient(), pr.State(boxes), pr.reveal([0.58, 0.95]))
>>> trace.actions
(Inspect(boxes=(1,)), Select(box=1))
"""

from pandora_router.boxes import Boxes, Costs, Draws, Independent, Joint, Ladder, LowRank
from pandora_router.errors import PandoraError, UpstreamError, UsageError
from pandora_router.search import (
    OUTSIDE,
    Batch,
    Committing,
    Decisions,
    Held,
    Inspect,
    KnowledgeGradient,
    Obligatory,
    Optimal,
    Policy,
    Relative,
    Rollout,
    Select,
    State,
    Trace,
    adrive,
    committing_payoffs,
    drive,
    replay,
    reveal,
)

__version__ = "0.1.0"

__all__ = [
    "OUTSIDE",
    "Batch",
    "Boxes",
    "Committing",
    "Costs",
    "Decisions",
    "Draws",
    "Held",
    "Independent",
    "Inspect",
    "Joint",
    "KnowledgeGradient",
    "Ladder",
    "LowRank",
    "Obligatory",
    "Optimal",
    "PandoraError",
    "Policy",
    "Relative",
    "Rollout",
    "Select",
    "State",
    "Trace",
    "UpstreamError",
    "UsageError",
    "adrive",
    "committing_payoffs",
    "drive",
    "replay",
    "reveal",
]
