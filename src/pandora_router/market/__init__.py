"""Markets: specialists that own their estimates decide whether to look before they answer a price."""

from pandora_router.market.auction import AuctionEnd, auction, rounds
from pandora_router.market.bidder import Bidder, interval, intervals, value_of_information
from pandora_router.market.clocks import Sales, ascending, descending, second_price
from pandora_router.market.compare import PromptResults, Result, compare, leave_one_out, outcomes
from pandora_router.market.deviations import Deviation, deviations, shading
from pandora_router.market.instances import STRONG, WEAK, Instance, Signal, generate
from pandora_router.market.mechanisms import (
    Ascending,
    Descending,
    Mechanism,
    PostedPrice,
    SecondPrice,
    Sequential,
    asking_prices,
)
from pandora_router.market.messages import Answer, Award, Bid, Book, Call, Event, Leave, Opened, Wait
from pandora_router.market.plans import (
    Plans,
    announced_holdout,
    covered_plans,
    held_plans,
    myopic_plans,
    sealed_plans,
)
from pandora_router.market.posted import Bidding, LeaveOneOut, best_of_others
from pandora_router.market.sealed import inspection_equilibrium, looking
from pandora_router.market.strategies import (
    Covered,
    Guided,
    Myopic,
    Quoting,
    Responding,
    Sealed,
    Strategy,
    Unseen,
)
from pandora_router.market.trade import Record, market, trade

__all__ = [
    "STRONG",
    "WEAK",
    "Answer",
    "Ascending",
    "AuctionEnd",
    "Award",
    "Bid",
    "Bidder",
    "Bidding",
    "Book",
    "Call",
    "Covered",
    "Descending",
    "Deviation",
    "Event",
    "Guided",
    "Instance",
    "Leave",
    "LeaveOneOut",
    "Mechanism",
    "Myopic",
    "Opened",
    "Plans",
    "PostedPrice",
    "PromptResults",
    "Quoting",
    "Record",
    "Responding",
    "Result",
    "Sales",
    "Sealed",
    "SecondPrice",
    "Sequential",
    "Signal",
    "Strategy",
    "Unseen",
    "Wait",
    "announced_holdout",
    "ascending",
    "asking_prices",
    "auction",
    "best_of_others",
    "compare",
    "covered_plans",
    "descending",
    "deviations",
    "generate",
    "held_plans",
    "inspection_equilibrium",
    "interval",
    "intervals",
    "leave_one_out",
    "looking",
    "market",
    "myopic_plans",
    "outcomes",
    "rounds",
    "sealed_plans",
    "second_price",
    "shading",
    "trade",
    "value_of_information",
]
