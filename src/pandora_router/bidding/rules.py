"""The rules of an auction, and what the platform itself believes of bidders.

The platform's own estimates for a prompt: from the cheap estimates of a router, or the same for all.

They set reserves and posted prices, and are the bids of plain endpoints. A bidder that the router does not
know gets the average of those it knows; nothing is refitted when a bidder joins. `Reputation` corrects
the claims of bidders that promised more than they delivered.

The rules of an auction: the mechanism by name, its parameters from the platform's beliefs, time limits.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, get_args

import numpy as np

from pandora_router.boxes import Boxes, Independent
from pandora_router.errors import UpstreamError, UsageError
from pandora_router.market import (
    Ascending,
    Descending,
    Mechanism,
    PostedPrice,
    SecondPrice,
    Sequential,
    asking_prices,
)
from pandora_router.router import Router
from pandora_router.router.driver import judged
from pandora_router.store.auctions import Score
from pandora_router.types import MechanismName, Positions


@dataclass(frozen=True)
class Reputation:
    """Parameters of the handicap; `newcomer` is h_0 and `evidence` is k."""

    newcomer: float = 0.0
    evidence: float = 20.0

    def handicap(self, score: Score | None) -> float:
        """The handicap for one bidder and kind of prompt; None: nothing was graded there.

        >>> round(Reputation().handicap(Score("small", "mathematics", 80, 24.0, 9.0)), 4)
        0.2265
        """
        if score is None or score.graded == 0:
            return self.newcomer
        n = score.graded
        mean = score.total / n
        spread = math.sqrt(max(score.squares / n - mean * mean, 0.0) / max(n - 1, 1)) if n > 1 else math.inf
        weight = n / (n + self.evidence)
        return weight * max(0.0, mean - spread) + (1.0 - weight) * self.newcomer

    def handicaps(self, scores: Iterable[Score], kind: str) -> dict[str, float]:
        """The handicaps of all bidders with graded wins of this kind; others have `newcomer`."""
        return {score.bidder: self.handicap(score) for score in scores if score.kind == kind}


class Beliefs(Protocol):
    """The platform's own estimates."""

    async def boxes(self, prompt: str, names: Sequence[str]) -> Boxes:
        """One box per name, in this order; raises `UpstreamError` for a prompt that cannot be judged."""
        ...


@dataclass(frozen=True)
class Even:
    """No router: all bidders have the same box."""

    mean: float = 0.5
    std: float = 0.25
    inspection_cost: float = 0.01

    async def boxes(self, prompt: str, names: Sequence[str]) -> Boxes:
        """The same box for every name."""
        size = len(names)
        return Independent(np.full(size, self.mean), np.full(size, self.std), self.inspection_cost)


@dataclass(frozen=True)
class RouterBeliefs:
    """The cheap estimates of a fitted router, through its signal model; nothing is inspected."""

    router: Router

    async def boxes(self, prompt: str, names: Sequence[str]) -> Boxes:
        """The router's own boxes as independent ones, with an average box for names it does not know."""
        return await self.router.worker(self._boxes, prompt, names)

    def _boxes(self, prompt: str, names: Sequence[str]) -> Boxes:
        cheap = judged(self.router.cheap, [prompt])[0]
        if cheap.row is None:
            raise UpstreamError(f"the prompt cannot be judged: {cheap.because}")
        known = self.router.signal.prior(cheap.row, self.router.costs).boxes
        columns = (known.mean, known.std, known.inspection_cost)
        place = {name: j for j, name in enumerate(self.router.specialists)}
        mean, std, cost = (
            np.array([column[place[name]] if name in place else column.mean() for name in names])
            for column in columns
        )
        return Independent(mean, std, cost)


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
