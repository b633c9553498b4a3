"""What a search knows of unopened values: normal, jointly normal, drawn, moving, or climbing tiers.

    base          what all kinds of boxes can say: the protocol `Boxes`
    costs         inspection costs: own and shared parts, refunds, waiting
    independent   normal boxes that say nothing of each other, and boxes known by draws
    joint         correlated normal boxes
    moving        boxes whose means all move with every opening
    ladder        boxes with more than two tiers of estimates
    checks        what every kind checks about its input

What other rooms use can be imported from here.
"""

from pandora_router.boxes.base import Boxes
from pandora_router.boxes.costs import Costs
from pandora_router.boxes.independent import Draws, Independent
from pandora_router.boxes.joint import Joint, LowRank
from pandora_router.boxes.ladder import Ladder
from pandora_router.boxes.moving import Movement, Moving

__all__ = ["Boxes", "Costs", "Draws", "Independent", "Joint", "Ladder", "LowRank", "Movement", "Moving"]
