"""The rules of an auction: the mechanism by name, its parameters from the platform's beliefs, time limits."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import get_args

import numpy as np

from pandora_router.boxes import Boxes
from pandora_router.errors import UsageError
from pandora_router.market import (
    Ascending,
    Descending,
    Mechanism,
    PostedPrice,
    SecondPrice,
    Sequential,
    asking_prices,
)
from pandora_router.types import MechanismName, Positions


@dataclass(frozen=True)
class Rules:
    """How auctions are held.

    mechanism: `sequential` posts prices set by the platform's own estimates, one bidder after the other.
    deadline: seconds for one round of calls; a reply that is not there by then is `leave`.
    auction: seconds for all rounds together; after them nobody is called any more.
    deliver: seconds for the winner's answer; then the auction goes on without it.
    seed: of the order of bidders, which breaks ties.
    """

    mechanism: MechanismName = "sequential"
    deadline: float = 0.5
    auction: float = 5.0
    deliver: float = 60.0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.mechanism not in get_args(MechanismName):
            raise UsageError(
                "mechanism",
                expected=f"one of {', '.join(get_args(MechanismName))}",
                came=repr(self.mechanism),
                do="Choose one.",
            )

    @property
    def keep(self) -> float:
        """Seconds that a bidder must keep what it holds for an auction."""
        return min(self.auction + self.deliver, 3600.0)

    def order(self, auction: str, bidders: int) -> Positions:
        """The order of bidders 0, 1, ... in this auction: random, determined by seed and auction.

        Mechanisms break ties by index, so that ties favour no bidder and can be verified afterwards.
        """
        rng = np.random.default_rng([self.seed, zlib.crc32(auction.encode())])
        return rng.permutation(bidders)

    def build(self, beliefs: Boxes) -> Mechanism:
        """The mechanism for bidders of whom the platform believes this, in the order of the auction.

        The reserve at second price is the second highest mean; the others have none, or bring their own
        prices. The strategic bidder of `leave one out` is the first. One bidder alone is asked for its answer
        at price 0 where others would have to set the price.
        """
        alone = len(beliefs.mean) == 1
        if self.mechanism == "sequential":
            return asking_prices(beliefs)
        if self.mechanism == "descending":
            return Descending()
        if self.mechanism == "ascending":
            return Ascending(0.0) if alone else Ascending()
        if self.mechanism == "leave one out":
            return Sequential((0,), (0.0,)) if alone else PostedPrice(0)
        means = np.sort(beliefs.mean)
        return SecondPrice(float(means[-2] if len(means) > 1 else means[-1]))
