"""The platform's own estimates for a prompt: from the cheap estimates of a router, or the same for all.

They set reserves and posted prices, and are the bids of plain endpoints. A bidder that the router does not
know gets the average of those it knows; nothing is refitted when a bidder joins. `Reputation` corrects
the claims of bidders that promised more than they delivered.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from pandora_router.boxes import Boxes, Independent
from pandora_router.errors import UpstreamError
from pandora_router.router import Router
from pandora_router.router.driver import judged
from pandora_router.store.auctions import Score


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
