"""Markets: specialists that own their estimates decide whether to look before they answer a price.

    mechanisms  the messages and the rules: who is called at which price, and who answers the prompt
    strategies  how a bidder answers a call; the posted prices at which a look pays
    auction     an auction as a generator, and the same among strategies in this process
    instances   prompts with estimates and values, drawn from a model
    plans       many prompts at once: plans of bidders, who looks at second price, who wins
    posted      every specialist in turn faces the best of the others
    compare     all mechanisms on the same prompts; what a bidder gains by deviating

Nothing here knows a network; `bidding` carries the messages over one.
"""

from pandora_router.market.auction import AuctionEnd, Record, auction, market, rounds, trade
from pandora_router.market.compare import (
    Deviation,
    PromptResults,
    Result,
    compare,
    deviations,
    leave_one_out,
    outcomes,
    shading,
)
from pandora_router.market.instances import STRONG, WEAK, Instance, Signal, generate
from pandora_router.market.mechanisms import (
    Answer,
    Ascending,
    Award,
    Bid,
    Book,
    Call,
    Descending,
    Event,
    Leave,
    Mechanism,
    Opened,
    PostedPrice,
    SecondPrice,
    Sequential,
    Wait,
    asking_prices,
)
from pandora_router.market.plans import (
    Plans,
    Sales,
    announced_holdout,
    ascending,
    covered_plans,
    descending,
    held_plans,
    inspection_equilibrium,
    looking,
    myopic_plans,
    sealed_plans,
    second_price,
)
from pandora_router.market.posted import Bidding, LeaveOneOut, best_of_others
from pandora_router.market.strategies import (
    Bidder,
    Covered,
    Guided,
    Myopic,
    Quoting,
    Responding,
    Sealed,
    Strategy,
    Unseen,
    interval,
    intervals,
    value_of_information,
)

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
