"""What a search knows of unopened values: normal, jointly normal, drawn, moving, or climbing tiers."""

from pandora_router.boxes.base import Boxes
from pandora_router.boxes.costs import Costs
from pandora_router.boxes.independent import Draws, Independent
from pandora_router.boxes.joint import Joint, LowRank
from pandora_router.boxes.ladder import Ladder
from pandora_router.boxes.moving import Movement, Moving

__all__ = ["Boxes", "Costs", "Draws", "Independent", "Joint", "Ladder", "LowRank", "Movement", "Moving"]
